"""Platform profiles: the validated data of ``profiles/*.toml``, and what is derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.profiles.loader import (
        TEXT_FIELDS,
        ApiField,
        ApiTable,
        ProfileError,
        all_profiles,
        change_texts,
        data_dir,
        is_cluster,
        load_api_tables,
        load_profile,
        old_tables,
        own_profile,
        parse_field,
        parse_table,
        read_profile,
        restore_english,
    )
    from rgt_tui.profiles.log_advice import FIRST_BYTES, LAST_BYTES, HeadAndTail
    from rgt_tui.profiles.platform_page import (
        FIRST_CONTACT,
        PageRow,
        PageSection,
        RowWeight,
        clock_rows,
        platform_sections,
    )
    from rgt_tui.profiles.prices import (
        HOURS,
        TransferCost,
        describe_tier_prices,
        describe_unlisted_item,
        estimate_transfer_cost,
        find_cost_so_far,
        find_hourly_cost,
        fleet_rate,
        fleet_spent,
        list_caveats,
        project_cost,
        storage_per_hour,
        sum_amounts,
        thing_price,
    )
    from rgt_tui.profiles.profile_faults import (
        check_sources,
        cited_by,
        describe_check_months,
        format_month,
        list_old_facts,
    )
    from rgt_tui.profiles.readings import (
        CARD_FIGURES,
        MOST_CARDS,
        byte_pct,
        card_figures,
        compute_percent,
        disk_of,
        find_held_runs,
        find_redone_cells,
        how_ended,
        inode_pct,
        is_absent,
        is_of_card,
        memory_pct,
        no_agent,
        saved_point,
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
        collect_advice,
        compute_daly_interval,
        faults_of,
        is_version_in_range,
        list_quarter_paces,
        run_cost,
        seconds_left,
        seconds_per_step,
        stalled_seconds,
    )
    from rgt_tui.profiles.seen import before_renting, mark_seen, seen_at, shown_path
    from rgt_tui.profiles.survival import (
        JudgedStorage,
        action_for,
        bilingual_verb,
        copies_of,
        copy_survives,
        describe_enlargement,
        describe_missing_verb,
        list_kept_charges,
        list_manual_steps,
        list_unmounted,
        path_survives,
        storage_of,
        tier_of,
        tier_survives,
        tiers_of,
        watched_mounts,
    )

__all__ = [
    "CARD_FIGURES",
    "FAULTS",
    "FIRST_BYTES",
    "FIRST_CONTACT",
    "HOURS",
    "LAST_BYTES",
    "LEAST_POINTS",
    "MOST_CARDS",
    "TEXT_FIELDS",
    "Advice",
    "ApiField",
    "ApiTable",
    "HeadAndTail",
    "JudgedStorage",
    "PageRow",
    "PageSection",
    "ProfileError",
    "RowWeight",
    "TransferCost",
    "action_for",
    "all_profiles",
    "before_renting",
    "bilingual_verb",
    "byte_pct",
    "card_figures",
    "change_texts",
    "check_sources",
    "cited_by",
    "clock_rows",
    "collect_advice",
    "compute_daly_interval",
    "compute_percent",
    "copies_of",
    "copy_survives",
    "data_dir",
    "describe_check_months",
    "describe_enlargement",
    "describe_missing_verb",
    "describe_tier_prices",
    "describe_unlisted_item",
    "disk_of",
    "estimate_transfer_cost",
    "faults_of",
    "find_cost_so_far",
    "find_held_runs",
    "find_hourly_cost",
    "find_redone_cells",
    "fleet_rate",
    "fleet_spent",
    "format_month",
    "how_ended",
    "inode_pct",
    "is_absent",
    "is_cluster",
    "is_of_card",
    "is_version_in_range",
    "list_caveats",
    "list_kept_charges",
    "list_manual_steps",
    "list_old_facts",
    "list_quarter_paces",
    "list_unmounted",
    "load_api_tables",
    "load_profile",
    "mark_seen",
    "memory_pct",
    "no_agent",
    "old_tables",
    "own_profile",
    "parse_field",
    "parse_table",
    "path_survives",
    "platform_sections",
    "project_cost",
    "read_profile",
    "restore_english",
    "run_cost",
    "saved_point",
    "seconds_left",
    "seconds_per_step",
    "seen_at",
    "shown_path",
    "stale_after",
    "stall_after",
    "stalled_seconds",
    "step_time",
    "stopped_by_person",
    "storage_of",
    "storage_per_hour",
    "sum_amounts",
    "thing_price",
    "tier_of",
    "tier_survives",
    "tiers_of",
    "wait_left",
    "wait_text",
    "watched_mounts",
]

# On first use: prices and readings are needed by every screen, most of the others by one command.
__getattr__ = imported_later(
    __name__,
    {
        "log_advice": "HeadAndTail FIRST_BYTES LAST_BYTES",
        "prices": (
            "HOURS TransferCost list_caveats fleet_rate fleet_spent "
            "describe_tier_prices project_cost find_hourly_cost find_cost_so_far "
            "storage_per_hour thing_price describe_unlisted_item estimate_transfer_cost "
            "sum_amounts"
        ),
        "readings": (
            "CARD_FIGURES MOST_CARDS byte_pct card_figures "
            "find_redone_cells disk_of find_held_runs "
            "how_ended inode_pct is_absent is_of_card memory_pct no_agent "
            "compute_percent "
            "saved_point stale_after stall_after step_time stopped_by_person "
            "wait_left "
            "wait_text"
        ),
        "run_advice": "Advice FAULTS LEAST_POINTS collect_advice compute_daly_interval faults_of "
        "run_cost seconds_left seconds_per_step stalled_seconds is_version_in_range "
        "list_quarter_paces",
        "loader": (
            "ApiField ApiTable ProfileError TEXT_FIELDS all_profiles change_texts data_dir "
            "is_cluster "
            "load_api_tables load_profile "
            "old_tables own_profile parse_field parse_table read_profile "
            "restore_english"
        ),
        "platform_page": "FIRST_CONTACT PageRow PageSection RowWeight clock_rows platform_sections",
        "profile_faults": "check_sources cited_by describe_check_months format_month list_old_facts",
        "seen": "before_renting mark_seen seen_at shown_path",
        "survival": (
            "JudgedStorage action_for list_manual_steps copies_of copy_survives bilingual_verb "
            "list_kept_charges describe_enlargement describe_missing_verb "
            "path_survives storage_of tier_survives tier_of tiers_of list_unmounted watched_mounts"
        ),
    },
)
