"""Platform profiles: the data of ``profiles/*.toml``, checked and typed, and what follows from it."""

from rgt_tui.profiles.loader import ProfileError, all_profiles, load_profile
from rgt_tui.profiles.survival import action_for, path_survives, survival, survives, tiers_of

__all__ = [
    "ProfileError",
    "action_for",
    "all_profiles",
    "load_profile",
    "path_survives",
    "survival",
    "survives",
    "tiers_of",
]
