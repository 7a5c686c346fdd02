"""Widgets that draw line by line, and the pure functions that make their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers, which do not see the names below.
if TYPE_CHECKING:
    from rgt_tui.ui.widgets.bars import curve_spark, draw_bar, draw_sparkline, resample, thin_bar
    from rgt_tui.ui.widgets.box_context import (
        PANE_SIZES,
        TALLEST,
        BoxContext,
        context_height,
        course_of,
        detail_sections,
        fitting_span,
        label_of,
        lower_widths,
        mean_per_cell,
        names_of,
        newest_lines,
        past_room,
        past_section,
        split_heights,
        split_left,
    )
    from rgt_tui.ui.widgets.checklist import (
        CheckDetail,
        Checklist,
        CheckRun,
        PhaseChecks,
        detail_lines,
        next_check,
        phases_of,
        rail_line,
        row_line,
        rows_of,
        status_glyph,
        summary_parts,
        then_lines,
    )
    from rgt_tui.ui.widgets.curve import (
        CurveLegend,
        CurvePlot,
        LegendEntry,
        MetricGrid,
        choose_grid,
        curve_tone,
        entry_line,
        format_newest,
        run_names,
    )
    from rgt_tui.ui.widgets.fixed_lines import (
        HOLDS_S,
        EntryLabel,
        EntryLine,
        EntryNote,
        EventLine,
        HeaderLine,
        KeyLine,
        choose_event,
        layout_keys,
    )
    from rgt_tui.ui.widgets.gpu_cards import (
        fault_lines,
        gpu_lines,
        gpu_sections,
        is_pcie_narrow,
        links_down,
        worst_first,
    )
    from rgt_tui.ui.widgets.lines import FittedLines, LineWidget, PaintedGround, RowChosen
    from rgt_tui.ui.widgets.log_pane import LogPane
    from rgt_tui.ui.widgets.panes import Pane, PaneSection, draw_border, draw_frame, draw_sections
    from rgt_tui.ui.widgets.platform_lines import (
        dangers_section,
        platform_section,
        unlisted_parts,
        unlisted_section,
    )
    from rgt_tui.ui.widgets.selectable_list import SelectableList
    from rgt_tui.ui.widgets.spans import (
        Line,
        Span,
        Tone,
        clip_line,
        find_differing_runs,
        fit_name,
        fit_text,
        join_fitting,
        make_line,
        merge_spans,
        name_width,
        split_line,
        spread_line,
        text_of,
        width_of,
        wrap_text,
    )
    from rgt_tui.ui.widgets.vitals import (
        checkpoint_lines,
        cpu_lines,
        disk_lines,
        is_old,
        limited_lines,
        link_lines,
        memory_lines,
        own_stop_lines,
        vitals_sections,
        walk_processes,
    )
    from rgt_tui.ui.widgets.why import (
        READ_FROM,
        WhyBlock,
        WhyPane,
        action_lines,
        finding_details,
        finding_lines,
        run_lines,
        steps_of,
        visible_lines,
        why_blocks,
        why_lines,
    )

__all__ = [
    "HOLDS_S",
    "PANE_SIZES",
    "READ_FROM",
    "TALLEST",
    "BoxContext",
    "CheckDetail",
    "CheckRun",
    "Checklist",
    "CurveLegend",
    "CurvePlot",
    "EntryLabel",
    "EntryLine",
    "EntryNote",
    "EventLine",
    "FittedLines",
    "HeaderLine",
    "KeyLine",
    "LegendEntry",
    "Line",
    "LineWidget",
    "LogPane",
    "MetricGrid",
    "PaintedGround",
    "Pane",
    "PaneSection",
    "PhaseChecks",
    "RowChosen",
    "SelectableList",
    "Span",
    "Tone",
    "WhyBlock",
    "WhyPane",
    "action_lines",
    "bars",
    "box_context",
    "checklist",
    "checkpoint_lines",
    "choose_event",
    "choose_grid",
    "clip_line",
    "context_height",
    "course_of",
    "cpu_lines",
    "curve",
    "curve_spark",
    "curve_tone",
    "dangers_section",
    "detail_lines",
    "detail_sections",
    "disk_lines",
    "draw_bar",
    "draw_border",
    "draw_frame",
    "draw_sections",
    "draw_sparkline",
    "entry_line",
    "fault_lines",
    "find_differing_runs",
    "finding_details",
    "finding_lines",
    "fit_name",
    "fit_text",
    "fitting_span",
    "fixed_lines",
    "format_newest",
    "gpu_cards",
    "gpu_lines",
    "gpu_sections",
    "is_old",
    "is_pcie_narrow",
    "join_fitting",
    "label_of",
    "layout_keys",
    "limited_lines",
    "lines",
    "link_lines",
    "links_down",
    "log_pane",
    "lower_widths",
    "make_line",
    "mean_per_cell",
    "memory_lines",
    "merge_spans",
    "name_width",
    "names_of",
    "newest_lines",
    "next_check",
    "own_stop_lines",
    "panes",
    "past_room",
    "past_section",
    "phases_of",
    "platform_lines",
    "platform_section",
    "queue_lines",
    "rail_line",
    "resample",
    "row_line",
    "rows_of",
    "run_lines",
    "run_names",
    "selectable_list",
    "spans",
    "split_heights",
    "split_left",
    "split_line",
    "spread_line",
    "status_glyph",
    "steps_of",
    "summary_parts",
    "text_of",
    "then_lines",
    "thin_bar",
    "unlisted_parts",
    "unlisted_section",
    "visible_lines",
    "vitals",
    "vitals_sections",
    "walk_processes",
    "why",
    "why_blocks",
    "why_lines",
    "width_of",
    "worst_first",
    "wrap_text",
]

# Imported when first used, so that the first frame does not wait for other screens' widgets.
__getattr__ = imported_later(
    __name__,
    {
        "bars": "draw_bar curve_spark resample draw_sparkline thin_bar",
        "box_context": "BoxContext PANE_SIZES TALLEST context_height course_of "
        "detail_sections fitting_span label_of lower_widths mean_per_cell "
        "names_of newest_lines past_room past_section split_heights "
        "split_left",
        "checklist": (
            "CheckDetail CheckRun Checklist PhaseChecks detail_lines status_glyph next_check "
            "phases_of rail_line row_line rows_of summary_parts then_lines"
        ),
        "curve": (
            "CurveLegend CurvePlot LegendEntry MetricGrid curve_tone entry_line choose_grid "
            "format_newest run_names"
        ),
        "fixed_lines": (
            "EntryLabel EntryLine EntryNote EventLine HOLDS_S HeaderLine KeyLine layout_keys "
            "choose_event"
        ),
        "gpu_cards": "fault_lines gpu_lines gpu_sections links_down is_pcie_narrow worst_first",
        "lines": "FittedLines PaintedGround LineWidget RowChosen",
        "log_pane": "LogPane",
        "panes": "Pane PaneSection draw_border draw_frame draw_sections",
        "platform_lines": "dangers_section platform_section unlisted_parts unlisted_section",
        "selectable_list": "SelectableList",
        "spans": (
            "Line Span Tone clip_line find_differing_runs fit_text fit_name make_line "
            "merge_spans name_width join_fitting split_line spread_line text_of "
            "width_of wrap_text"
        ),
        "vitals": (
            "checkpoint_lines cpu_lines disk_lines is_old limited_lines link_lines memory_lines "
            "own_stop_lines walk_processes vitals_sections"
        ),
        "why": (
            "WhyBlock READ_FROM WhyPane action_lines finding_details finding_lines run_lines "
            "steps_of why_blocks why_lines visible_lines"
        ),
    },
)
