"""The fleet screen: its table, and the panes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.widgets.fleet_rows.fleet_cells import (
        Row,
        age_cell,
        clock_cell,
        clock_cells,
        eta_cell,
        gpu_cell,
        name_cell,
        odd_cards,
        power_cell,
        state_cell,
        vram_cell,
    )
    from rgt_tui.ui.widgets.fleet_rows.fleet_columns import (
        COLUMNS,
        Column,
        Unit,
        Value,
        heading,
        layout,
        row_line,
        values,
    )
    from rgt_tui.ui.widgets.fleet_rows.fleet_filter import TEXTS, FilterError, matching, parse
    from rgt_tui.ui.widgets.fleet_rows.fleet_table import (
        FILE,
        GROUPS,
        Arrangement,
        FleetTable,
        FleetView,
        Order,
        Unreadable,
        can_sort,
        grouped,
        keep_view,
        ordered,
        read_view,
        view_path,
        with_arrangement,
        with_filter,
    )
    from rgt_tui.ui.widgets.fleet_rows.loss_pane import (
        BARE,
        BOARD,
        LossPane,
        seen_of,
        shows,
        telling_run,
    )
    from rgt_tui.ui.widgets.fleet_rows.since_lines import (
        MOST_EVENTS,
        at_hand_from,
        happened,
        idle_foot,
        since_section,
        story_section,
    )

__all__ = [
    "BARE",
    "BOARD",
    "COLUMNS",
    "FILE",
    "GROUPS",
    "MOST_EVENTS",
    "TEXTS",
    "Arrangement",
    "Column",
    "FilterError",
    "FleetTable",
    "FleetView",
    "LossPane",
    "Order",
    "Row",
    "Unit",
    "Unreadable",
    "Value",
    "age_cell",
    "at_hand_from",
    "can_sort",
    "clock_cell",
    "clock_cells",
    "eta_cell",
    "fleet_cells",
    "fleet_columns",
    "fleet_filter",
    "fleet_table",
    "gpu_cell",
    "grouped",
    "happened",
    "heading",
    "idle_foot",
    "keep_view",
    "layout",
    "loss_pane",
    "matching",
    "name_cell",
    "odd_cards",
    "ordered",
    "parse",
    "power_cell",
    "read_view",
    "row_line",
    "seen_of",
    "shows",
    "since_lines",
    "since_section",
    "state_cell",
    "story_section",
    "telling_run",
    "values",
    "view_path",
    "vram_cell",
    "with_arrangement",
    "with_filter",
]

__getattr__ = imported_later(
    __name__,
    {
        "fleet_cells": (
            "Row age_cell clock_cell clock_cells eta_cell gpu_cell name_cell odd_cards power_cell "
            "state_cell vram_cell"
        ),
        "fleet_columns": "COLUMNS Column Unit Value heading layout row_line values",
        "fleet_filter": "FilterError TEXTS matching parse",
        "fleet_table": (
            "FILE GROUPS Arrangement FleetTable FleetView Order Unreadable can_sort grouped keep_view "
            "ordered read_view view_path with_arrangement with_filter"
        ),
        "loss_pane": "BARE BOARD LossPane seen_of shows telling_run",
        "since_lines": "MOST_EVENTS at_hand_from happened idle_foot since_section story_section",
    },
)
