"""The Textual front end. It draws what the fleet knows and does no I/O of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.app import MetPlatforms, RgtApp
    from rgt_tui.ui.box_pulls import Pull
    from rgt_tui.ui.box_status import assess, choose_log, mark, spend_parts, standing
    from rgt_tui.ui.clipboard import (
        MOST_OSC52_BYTES,
        Copied,
        copied_path,
        take_along,
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
        bindings,
        choose_keys,
        commands_by_screen,
        key_for,
        key_name,
        keys_page,
        screen_class,
    )
    from rgt_tui.ui.compositing import ON, TightCompositor, TightUpdate, drawn, turned
    from rgt_tui.ui.curve_words import (
        density,
        differences,
        entries,
        notes,
        nothing_to_draw,
        options_of,
        settings_of,
    )
    from rgt_tui.ui.enduring import report, report_path, short, words
    from rgt_tui.ui.exports import (
        NotExported,
        export_name,
        phases_markdown,
        points,
        proposed,
        wanted,
        write,
    )
    from rgt_tui.ui.key_turns import (
        EVERY_SECONDS,
        LATEST_SECONDS,
        MIDDLE,
        NEVER,
        REST_SECONDS,
        WAITS_SECONDS,
        QuietGarbage,
        SteadyStylesheet,
        parsing,
    )
    from rgt_tui.ui.legends import legend_of, states
    from rgt_tui.ui.mouse import BACK_KEY, extra_button, hear_back_button, hinted, marked_text
    from rgt_tui.ui.notation import (
        ASCII,
        UNICODE,
        choose,
        clock,
        compact_time,
        glyphs,
        percent,
        stopwatch,
    )
    from rgt_tui.ui.palette import Entry, Finder, found, score
    from rgt_tui.ui.preferences import (
        Preferences,
        PreferencesError,
        clashes,
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
        Visits,
        day_of,
        idle_since,
        keep_looks,
        looked_path,
        read_looks,
    )

__all__ = [
    "APP",
    "ASCII",
    "AWAY_S",
    "BACK_KEY",
    "BOX_TARGET",
    "EVERY_SECONDS",
    "LATEST_SECONDS",
    "LOG_LINES",
    "MIDDLE",
    "MOST_OSC52_BYTES",
    "MOVE",
    "NEVER",
    "ON",
    "REPLAY",
    "REST_SECONDS",
    "SCREEN",
    "SCREENS",
    "THEMES",
    "UNICODE",
    "WAITS_SECONDS",
    "Command",
    "Copied",
    "Entry",
    "Finder",
    "MetPlatforms",
    "NotExported",
    "Preferences",
    "PreferencesError",
    "Pull",
    "QuietGarbage",
    "RgtApp",
    "SteadyStylesheet",
    "TightCompositor",
    "TightUpdate",
    "Visits",
    "assess",
    "bindings",
    "choose",
    "choose_keys",
    "choose_log",
    "clashes",
    "clock",
    "commands_by_screen",
    "compact_time",
    "copied_path",
    "day_of",
    "density",
    "differences",
    "drawn",
    "entries",
    "export_name",
    "extra_button",
    "found",
    "glyphs",
    "hear_back_button",
    "hinted",
    "idle_since",
    "is_key",
    "keep_looks",
    "key_for",
    "key_name",
    "keys_page",
    "know_quirks",
    "legend_of",
    "looked_path",
    "mark",
    "marked_text",
    "notes",
    "nothing_to_draw",
    "options_of",
    "parse_preferences",
    "parsing",
    "percent",
    "phases_markdown",
    "points",
    "preferences_path",
    "proposed",
    "read_looks",
    "read_preferences",
    "remember_theme",
    "report",
    "report_path",
    "score",
    "screen_class",
    "settings_of",
    "short",
    "spend_parts",
    "standing",
    "states",
    "stopwatch",
    "take_along",
    "themes_of",
    "turned",
    "wanted",
    "with_theme",
    "words",
    "write",
    "write_screenshot",
]

__getattr__ = imported_later(
    __name__,
    {
        "app": "MetPlatforms RgtApp",
        "box_pulls": "Pull",
        "box_status": "assess choose_log mark spend_parts standing",
        "clipboard": "Copied MOST_OSC52_BYTES copied_path take_along write_screenshot",
        "commands": (
            "APP BOX_TARGET Command LOG_LINES MOVE REPLAY SCREEN SCREENS bindings choose_keys "
            "commands_by_screen key_for key_name keys_page screen_class"
        ),
        "compositing": "ON TightCompositor TightUpdate drawn turned",
        "curve_words": "density differences entries notes nothing_to_draw options_of settings_of",
        "enduring": "report report_path short words",
        "exports": "NotExported export_name phases_markdown points proposed wanted write",
        "key_turns": (
            "EVERY_SECONDS LATEST_SECONDS MIDDLE NEVER REST_SECONDS WAITS_SECONDS QuietGarbage "
            "SteadyStylesheet parsing"
        ),
        "legends": "legend_of states",
        "mouse": "BACK_KEY extra_button hear_back_button hinted marked_text",
        "notation": "ASCII UNICODE choose clock compact_time glyphs percent stopwatch",
        "palette": "Entry Finder found score",
        "preferences": (
            "Preferences PreferencesError clashes is_key parse_preferences preferences_path "
            "read_preferences remember_theme with_theme"
        ),
        "terminal_quirks": "know_quirks",
        "themes": "THEMES themes_of",
        "widgets.fleet_rows.since_lines": "AWAY_S Visits day_of idle_since keep_looks looked_path read_looks",
    },
)
