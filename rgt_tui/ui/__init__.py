"""The Textual front end. It draws what the fleet knows and does no I/O of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers, which do not see the names below.
if TYPE_CHECKING:
    from rgt_tui.ui.app import RgtApp, SeenPlatforms
    from rgt_tui.ui.box_pulls import BoxPull
    from rgt_tui.ui.box_status import assess_box, choose_log, health_mark, spend_parts, status_label
    from rgt_tui.ui.clipboard import (
        MOST_OSC52_BYTES,
        ClipboardText,
        copied_path,
        copy_to_clipboard,
        stretch_wide_text,
        write_screenshot,
    )
    from rgt_tui.ui.commands import (
        APP,
        BOX_TARGET,
        LOG_LINES,
        MOVE,
        REPLAY,
        SCREEN,
        SCREENS,
        Command,
        build_bindings,
        choose_keys,
        commands_by_screen,
        key_for,
        key_name,
        keys_page,
        screen_class,
    )
    from rgt_tui.ui.compositing import ON, TightCompositor, TightUpdate, draw_pieces, switch_style
    from rgt_tui.ui.curve_words import (
        build_legend_entries,
        circumstances_of,
        describe_density,
        list_differences,
        list_notes,
        nothing_to_draw,
        options_of,
        settings_of,
    )
    from rgt_tui.ui.enduring import append_traceback, describe_error, report_path, shorten_path
    from rgt_tui.ui.exports import (
        NotExported,
        check_suffix,
        export_name,
        export_points,
        phases_markdown,
        propose_file_name,
        write_export,
    )
    from rgt_tui.ui.key_turns import GARBAGE_PACES, QuietGarbage, SteadyStylesheet, parse_in_steps
    from rgt_tui.ui.legends import legend_of, state_legend
    from rgt_tui.ui.mouse import (
        BACK_KEY,
        extra_button,
        find_hinted_command,
        hear_back_button,
        marked_text,
    )
    from rgt_tui.ui.notation import (
        ASCII,
        UNICODE,
        choose_glyphs,
        clock_or_dash,
        compact_time,
        current_glyphs,
        format_position_time,
        percent_or_dash,
    )
    from rgt_tui.ui.palette import PaletteEntry, PaletteProvider, find_entries, score_entry
    from rgt_tui.ui.preferences import (
        Preferences,
        PreferencesError,
        find_clashes,
        is_key,
        parse_preferences,
        preferences_path,
        read_preferences,
        remember_theme,
        with_theme,
    )
    from rgt_tui.ui.terminal_quirks import know_quirks
    from rgt_tui.ui.themes import THEMES, themes_of
    from rgt_tui.ui.widgets.fleet_rows.since_lines import (
        AWAY_S,
        UserVisits,
        day_of,
        idle_since,
        read_visits,
        visits_path,
        write_visits,
    )

__all__ = [
    "APP",
    "ASCII",
    "AWAY_S",
    "BACK_KEY",
    "BOX_TARGET",
    "GARBAGE_PACES",
    "LOG_LINES",
    "MOST_OSC52_BYTES",
    "MOVE",
    "ON",
    "REPLAY",
    "SCREEN",
    "SCREENS",
    "THEMES",
    "UNICODE",
    "BoxPull",
    "ClipboardText",
    "Command",
    "NotExported",
    "PaletteEntry",
    "PaletteProvider",
    "Preferences",
    "PreferencesError",
    "QuietGarbage",
    "RgtApp",
    "SeenPlatforms",
    "SteadyStylesheet",
    "TightCompositor",
    "TightUpdate",
    "UserVisits",
    "append_traceback",
    "assess_box",
    "build_bindings",
    "build_legend_entries",
    "check_suffix",
    "choose_glyphs",
    "choose_keys",
    "choose_log",
    "circumstances_of",
    "clock_or_dash",
    "commands_by_screen",
    "compact_time",
    "copied_path",
    "copy_to_clipboard",
    "current_glyphs",
    "day_of",
    "describe_density",
    "describe_error",
    "draw_pieces",
    "export_name",
    "export_points",
    "extra_button",
    "find_clashes",
    "find_entries",
    "find_hinted_command",
    "format_position_time",
    "health_mark",
    "hear_back_button",
    "idle_since",
    "is_key",
    "key_for",
    "key_name",
    "keys_page",
    "know_quirks",
    "legend_of",
    "list_differences",
    "list_notes",
    "marked_text",
    "nothing_to_draw",
    "options_of",
    "parse_in_steps",
    "parse_preferences",
    "percent_or_dash",
    "phases_markdown",
    "preferences_path",
    "propose_file_name",
    "read_preferences",
    "read_visits",
    "remember_theme",
    "report_path",
    "score_entry",
    "screen_class",
    "settings_of",
    "shorten_path",
    "spend_parts",
    "state_legend",
    "status_label",
    "stretch_wide_text",
    "switch_style",
    "themes_of",
    "visits_path",
    "with_theme",
    "write_export",
    "write_screenshot",
    "write_visits",
]

# Imported when first used: a command that needs one name does not load every screen.
__getattr__ = imported_later(
    __name__,
    {
        "app": "SeenPlatforms RgtApp",
        "box_pulls": "BoxPull",
        "box_status": "assess_box choose_log health_mark spend_parts status_label",
        "clipboard": "ClipboardText MOST_OSC52_BYTES copied_path copy_to_clipboard "
        "stretch_wide_text write_screenshot",
        "commands": (
            "APP BOX_TARGET Command LOG_LINES MOVE REPLAY SCREEN SCREENS build_bindings "
            "choose_keys commands_by_screen key_for key_name keys_page screen_class"
        ),
        "compositing": "ON TightCompositor TightUpdate draw_pieces switch_style",
        "curve_words": "circumstances_of describe_density list_differences build_legend_entries "
        "list_notes nothing_to_draw options_of settings_of",
        "enduring": "append_traceback report_path shorten_path describe_error",
        "exports": (
            "NotExported export_name phases_markdown export_points propose_file_name "
            "check_suffix write_export"
        ),
        "key_turns": ("GARBAGE_PACES QuietGarbage SteadyStylesheet parse_in_steps"),
        "legends": "legend_of state_legend",
        "mouse": "BACK_KEY extra_button hear_back_button find_hinted_command marked_text",
        "notation": "ASCII UNICODE choose_glyphs clock_or_dash compact_time current_glyphs "
        "percent_or_dash format_position_time",
        "palette": "PaletteEntry PaletteProvider find_entries score_entry",
        "preferences": (
            "Preferences PreferencesError find_clashes is_key parse_preferences preferences_path "
            "read_preferences remember_theme with_theme"
        ),
        "terminal_quirks": "know_quirks",
        "themes": "THEMES themes_of",
        "widgets.fleet_rows.since_lines": (
            "AWAY_S UserVisits day_of idle_since write_visits visits_path read_visits"
        ),
    },
)
