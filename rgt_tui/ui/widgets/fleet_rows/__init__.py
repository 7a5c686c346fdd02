"""The fleet screen: its table, and the panes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers, which do not see the names below.
if TYPE_CHECKING:
    from rgt_tui.ui.widgets.fleet_rows.fleet_cells import (
        FleetRow,
        age_cell,
        clock_cell,
        clock_cells,
        eta_cell,
        find_odd_cards,
        gpu_cell,
        name_cell,
        power_cell,
        state_cell,
        vram_cell,
    )
    from rgt_tui.ui.widgets.fleet_rows.fleet_columns import (
        COLUMNS,
        FilterUnit,
        FilterValue,
        FleetColumn,
        choose_columns,
        draw_heading,
        filter_values,
        row_line,
    )
    from rgt_tui.ui.widgets.fleet_rows.fleet_filter import (
        TEXTS,
        FilterError,
        filter_rows,
        parse_filter,
    )
    from rgt_tui.ui.widgets.fleet_rows.fleet_table import (
        FILE,
        FLEET_GROUPS,
        Arrangement,
        FleetTable,
        FleetView,
        SortOrder,
        Unreadable,
        can_sort,
        group_rows,
        read_view,
        save_view,
        sort_choices,
        sort_rows,
        view_path,
        with_arrangement,
        with_filter,
    )
    from rgt_tui.ui.widgets.fleet_rows.loss_pane import (
        BARE,
        BOARD,
        LossPane,
        frame_still_fits,
        measure_drawn,
        telling_run,
    )
    from rgt_tui.ui.widgets.fleet_rows.since_lines import (
        MOST_EVENTS,
        complete_from,
        group_events,
        idle_foot,
        since_section,
        story_section,
    )

__all__ = [
    "BARE",
    "BOARD",
    "COLUMNS",
    "FILE",
    "FLEET_GROUPS",
    "MOST_EVENTS",
    "TEXTS",
    "Arrangement",
    "FilterError",
    "FilterUnit",
    "FilterValue",
    "FleetColumn",
    "FleetRow",
    "FleetTable",
    "FleetView",
    "LossPane",
    "SortOrder",
    "Unreadable",
    "age_cell",
    "can_sort",
    "choose_columns",
    "clock_cell",
    "clock_cells",
    "complete_from",
    "draw_heading",
    "eta_cell",
    "filter_rows",
    "filter_values",
    "find_odd_cards",
    "fleet_cells",
    "fleet_columns",
    "fleet_filter",
    "fleet_table",
    "frame_still_fits",
    "gpu_cell",
    "group_events",
    "group_rows",
    "idle_foot",
    "loss_pane",
    "measure_drawn",
    "name_cell",
    "parse_filter",
    "power_cell",
    "read_view",
    "row_line",
    "save_view",
    "since_lines",
    "since_section",
    "sort_choices",
    "sort_rows",
    "state_cell",
    "story_section",
    "telling_run",
    "view_path",
    "vram_cell",
    "with_arrangement",
    "with_filter",
]

# Imported when first used: a module that needs one name does not load all of them.
__getattr__ = imported_later(
    __name__,
    {
        "fleet_cells": (
            "FleetRow age_cell clock_cell clock_cells eta_cell gpu_cell name_cell find_odd_cards "
            "power_cell state_cell vram_cell"
        ),
        "fleet_columns": "COLUMNS FleetColumn FilterUnit FilterValue draw_heading choose_columns "
        "row_line filter_values",
        "fleet_filter": "FilterError TEXTS filter_rows parse_filter",
        "fleet_table": (
            "FILE FLEET_GROUPS Arrangement FleetTable FleetView SortOrder Unreadable can_sort "
            "group_rows save_view sort_choices sort_rows read_view view_path with_arrangement "
            "with_filter"
        ),
        "loss_pane": "BARE BOARD LossPane measure_drawn frame_still_fits telling_run",
        "since_lines": (
            "MOST_EVENTS complete_from group_events idle_foot since_section story_section"
        ),
    },
)
