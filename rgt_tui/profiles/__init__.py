"""Platform profiles: the data of ``profiles/*.toml``, checked and typed, and what can be derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

from rgt_tui.profiles.api_tables import ApiField, ApiTable, load_api_tables, old_tables, parse_field
from rgt_tui.profiles.loader import ProfileError, all_profiles, is_cluster, load_profile, own_profile
from rgt_tui.profiles.platform_page import (
    FIRST_CONTACT,
    PageRow,
    PageSection,
    Weight,
    clock_rows,
    platform_page,
)
from rgt_tui.profiles.profile_faults import check_sources
from rgt_tui.profiles.seen import before_renting, mark_seen, seen_at
from rgt_tui.profiles.survival import action_for, path_survives, survival, survives, tiers_of

if TYPE_CHECKING:
    from rgt_tui.profiles.api_tables import parse_table
    from rgt_tui.profiles.box_storage import Storage, copies_of, copy_survives, storage_of
    from rgt_tui.profiles.loader import data_dir, read_profile
    from rgt_tui.profiles.log_advice import FIRST_BYTES, LAST_BYTES, Ends
    from rgt_tui.profiles.prices import (
        HOURS,
        SYMBOLS,
        Toll,
        caveats,
        fleet_rate,
        fleet_spent,
        money,
        price_words,
        projected,
        rate,
        spent,
        storage_per_hour,
        thing_price,
        thing_words,
        toll,
        total,
        written,
    )
    from rgt_tui.profiles.readings import (
        CARD_FIGURES,
        MOST_CARDS,
        age,
        ago,
        byte_pct,
        card_figures,
        cells_made_good,
        disk_of,
        held_runs,
        how_ended,
        how_many,
        inode_pct,
        is_absent,
        is_of_card,
        listed,
        memory_pct,
        no_agent,
        pct,
        percent,
        quoted,
        saved_point,
        size,
        stale_after,
        stall_after,
        step_time,
        stopped_by_person,
        wait_left,
        wait_text,
    )
    from rgt_tui.profiles.run_advice import (
        FAULTS,
        LEAST_POINTS,
        Advice,
        advised,
        daly,
        faults_of,
        run_cost,
        seconds_per_step,
        within,
    )
    from rgt_tui.profiles.seen import shown_path
    from rgt_tui.profiles.survival import by_hand, in_both, keeps_billing, lacking, unmounted, watched_mounts

__all__ = [
    "CARD_FIGURES",
    "FAULTS",
    "FIRST_BYTES",
    "FIRST_CONTACT",
    "HOURS",
    "LAST_BYTES",
    "LEAST_POINTS",
    "MOST_CARDS",
    "SYMBOLS",
    "Advice",
    "ApiField",
    "ApiTable",
    "Ends",
    "PageRow",
    "PageSection",
    "ProfileError",
    "Storage",
    "Toll",
    "Weight",
    "action_for",
    "advised",
    "age",
    "ago",
    "all_profiles",
    "before_renting",
    "by_hand",
    "byte_pct",
    "card_figures",
    "caveats",
    "cells_made_good",
    "check_sources",
    "clock_rows",
    "copies_of",
    "copy_survives",
    "daly",
    "data_dir",
    "disk_of",
    "faults_of",
    "fleet_rate",
    "fleet_spent",
    "held_runs",
    "how_ended",
    "how_many",
    "in_both",
    "inode_pct",
    "is_absent",
    "is_cluster",
    "is_of_card",
    "keeps_billing",
    "lacking",
    "listed",
    "load_api_tables",
    "load_profile",
    "mark_seen",
    "memory_pct",
    "money",
    "no_agent",
    "old_tables",
    "own_profile",
    "parse_field",
    "parse_table",
    "path_survives",
    "pct",
    "percent",
    "platform_page",
    "price_words",
    "projected",
    "quoted",
    "rate",
    "read_profile",
    "run_cost",
    "saved_point",
    "seconds_per_step",
    "seen_at",
    "shown_path",
    "size",
    "spent",
    "stale_after",
    "stall_after",
    "step_time",
    "stopped_by_person",
    "storage_of",
    "storage_per_hour",
    "survival",
    "survives",
    "thing_price",
    "thing_words",
    "tiers_of",
    "toll",
    "total",
    "unmounted",
    "wait_left",
    "wait_text",
    "watched_mounts",
    "within",
    "written",
]

__getattr__ = imported_later(
    __name__,
    {
        "api_tables": "parse_table",
        "box_storage": "Storage copies_of copy_survives storage_of",
        "loader": "data_dir read_profile",
        "log_advice": "Ends FIRST_BYTES LAST_BYTES",
        "prices": (
            "HOURS SYMBOLS Toll caveats fleet_rate fleet_spent money price_words projected rate spent "
            "storage_per_hour thing_price thing_words toll total written"
        ),
        "readings": (
            "CARD_FIGURES MOST_CARDS age ago byte_pct card_figures cells_made_good disk_of held_runs "
            "how_ended how_many inode_pct is_absent is_of_card listed memory_pct no_agent pct percent "
            "quoted saved_point size stale_after stall_after step_time stopped_by_person wait_left "
            "wait_text"
        ),
        "run_advice": "Advice FAULTS LEAST_POINTS advised daly faults_of run_cost seconds_per_step within",
        "seen": "shown_path",
        "survival": "by_hand in_both keeps_billing lacking unmounted watched_mounts",
    },
)
