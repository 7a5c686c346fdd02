"""Platform profiles: the data of ``profiles/*.toml``, checked and typed, and what can be derived from it."""

from rgt_tui.profiles.api_tables import ApiCall, ApiField, ApiTable, load_api_tables, old_tables, parse_field
from rgt_tui.profiles.loader import ProfileError, all_profiles, is_cluster, load_profile, own_profile
from rgt_tui.profiles.platform_page import (
    FIRST_CONTACT,
    PageRow,
    PageSection,
    Weight,
    clock_rows,
    platform_page,
)
from rgt_tui.profiles.profile_faults import Outcome, Shortfall, check_sources
from rgt_tui.profiles.seen import before_renting, mark_seen, seen_at
from rgt_tui.profiles.survival import action_for, path_survives, survival, survives, tiers_of

__all__ = [
    "FIRST_CONTACT",
    "ApiCall",
    "ApiField",
    "ApiTable",
    "Outcome",
    "PageRow",
    "PageSection",
    "ProfileError",
    "Shortfall",
    "Weight",
    "action_for",
    "all_profiles",
    "before_renting",
    "check_sources",
    "clock_rows",
    "is_cluster",
    "load_api_tables",
    "load_profile",
    "mark_seen",
    "old_tables",
    "own_profile",
    "parse_field",
    "path_survives",
    "platform_page",
    "seen_at",
    "survival",
    "survives",
    "tiers_of",
]
