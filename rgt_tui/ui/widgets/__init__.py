"""Widgets that draw line by line, and the pure functions that make their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.widgets.bars import bar, curve_spark, resample, spark, thin_bar
    from rgt_tui.ui.widgets.box_context import (
        LEAST_HALF,
        LEAST_TAIL,
        SHARED_FROM,
        TALLEST_HALF,
        BoxContext,
        context_height,
        detail_sections,
        lower_widths,
        newest_lines,
        split_heights,
        split_left,
    )
    from rgt_tui.ui.widgets.box_past import (
        TALLEST,
        course,
        course_of,
        fitting_span,
        label_of,
        names_of,
        past_room,
        past_section,
    )
    from rgt_tui.ui.widgets.checklist import (
        CheckDetail,
        Checklist,
        CheckRun,
        Phase,
        detail_lines,
        mark,
        next_check,
        phases_of,
        rail_line,
        row_line,
        rows_of,
        summary_parts,
        then_lines,
    )
    from rgt_tui.ui.widgets.curve import (
        CurveLegend,
        CurvePlot,
        MetricGrid,
        curve_tone,
        entry_line,
        layout,
        newest_told,
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
        layout_keys,
        standing,
    )
    from rgt_tui.ui.widgets.gpu_cards import (
        fault_lines,
        gpu_lines,
        gpu_sections,
        links_down,
        narrow,
        worst_first,
    )
    from rgt_tui.ui.widgets.lines import FittedLines, Ground, LineWidget, RowChosen
    from rgt_tui.ui.widgets.log_pane import LogPane
    from rgt_tui.ui.widgets.panes import Pane, Section, border, framed, sections
    from rgt_tui.ui.widgets.platform_lines import (
        dangers_section,
        platform_section,
        unseen_parts,
        unseen_section,
    )
    from rgt_tui.ui.widgets.process_lines import cpu_lines, tree
    from rgt_tui.ui.widgets.selectable_list import SelectableList
    from rgt_tui.ui.widgets.spans import (
        Line,
        Span,
        Tone,
        clip,
        differing,
        fit,
        fit_name,
        line,
        merged,
        name_width,
        pick,
        split,
        spread,
        text_of,
        width_of,
        wrapped,
    )
    from rgt_tui.ui.widgets.vitals import (
        checkpoint_lines,
        disk_lines,
        is_old,
        limited_lines,
        link_lines,
        memory_lines,
        own_stop_lines,
        vitals_sections,
    )
    from rgt_tui.ui.widgets.why import (
        READ_FROM,
        Block,
        WhyPane,
        action_lines,
        finding_details,
        finding_lines,
        run_lines,
        steps_of,
        why_blocks,
        why_lines,
        window,
    )

__all__ = [
    "HOLDS_S",
    "LEAST_HALF",
    "LEAST_TAIL",
    "READ_FROM",
    "SHARED_FROM",
    "TALLEST",
    "TALLEST_HALF",
    "Block",
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
    "Ground",
    "HeaderLine",
    "KeyLine",
    "Line",
    "LineWidget",
    "LogPane",
    "MetricGrid",
    "Pane",
    "Phase",
    "RowChosen",
    "Section",
    "SelectableList",
    "Span",
    "Tone",
    "WhyPane",
    "action_lines",
    "bar",
    "bars",
    "border",
    "box_context",
    "box_past",
    "checklist",
    "checkpoint_lines",
    "clip",
    "context_height",
    "course",
    "course_of",
    "cpu_lines",
    "curve",
    "curve_spark",
    "curve_tone",
    "dangers_section",
    "detail_lines",
    "detail_sections",
    "differing",
    "disk_lines",
    "entry_line",
    "fault_lines",
    "finding_details",
    "finding_lines",
    "fit",
    "fit_name",
    "fitting_span",
    "fixed_lines",
    "framed",
    "gpu_cards",
    "gpu_lines",
    "gpu_sections",
    "is_old",
    "label_of",
    "layout",
    "layout_keys",
    "limited_lines",
    "line",
    "lines",
    "link_lines",
    "links_down",
    "log_pane",
    "lower_widths",
    "mark",
    "memory_lines",
    "merged",
    "name_width",
    "names_of",
    "narrow",
    "newest_lines",
    "newest_told",
    "next_check",
    "own_stop_lines",
    "panes",
    "past_room",
    "past_section",
    "phases_of",
    "pick",
    "platform_lines",
    "platform_section",
    "queue_lines",
    "rail_line",
    "resample",
    "row_line",
    "rows_of",
    "run_lines",
    "run_names",
    "sections",
    "selectable_list",
    "spans",
    "spark",
    "split",
    "split_heights",
    "split_left",
    "spread",
    "standing",
    "steps_of",
    "summary_parts",
    "text_of",
    "then_lines",
    "thin_bar",
    "tree",
    "unseen_parts",
    "unseen_section",
    "vitals",
    "vitals_sections",
    "why",
    "why_blocks",
    "why_lines",
    "width_of",
    "window",
    "worst_first",
    "wrapped",
]

__getattr__ = imported_later(
    __name__,
    {
        "bars": "bar curve_spark resample spark thin_bar",
        "box_context": (
            "LEAST_HALF LEAST_TAIL SHARED_FROM TALLEST_HALF BoxContext context_height detail_sections "
            "lower_widths newest_lines split_heights split_left"
        ),
        "box_past": "TALLEST course course_of fitting_span label_of names_of past_room past_section",
        "checklist": (
            "CheckDetail CheckRun Checklist Phase detail_lines mark next_check phases_of rail_line "
            "row_line rows_of summary_parts then_lines"
        ),
        "curve": "CurveLegend CurvePlot MetricGrid curve_tone entry_line layout newest_told run_names",
        "fixed_lines": (
            "EntryLabel EntryLine EntryNote EventLine HOLDS_S HeaderLine KeyLine layout_keys standing"
        ),
        "gpu_cards": "fault_lines gpu_lines gpu_sections links_down narrow worst_first",
        "lines": "FittedLines Ground LineWidget RowChosen",
        "log_pane": "LogPane",
        "panes": "Pane Section border framed sections",
        "platform_lines": "dangers_section platform_section unseen_parts unseen_section",
        "process_lines": "cpu_lines tree",
        "selectable_list": "SelectableList",
        "spans": (
            "Line Span Tone clip differing fit fit_name line merged name_width pick split spread text_of "
            "width_of wrapped"
        ),
        "vitals": (
            "checkpoint_lines disk_lines is_old limited_lines link_lines memory_lines own_stop_lines "
            "vitals_sections"
        ),
        "why": (
            "Block READ_FROM WhyPane action_lines finding_details finding_lines run_lines steps_of "
            "why_blocks why_lines window"
        ),
    },
)
