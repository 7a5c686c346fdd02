"""Platform profiles: the data of ``profiles/*.toml``, checked and typed."""

from rgt_tui.profiles.loader import ProfileError, all_profiles, load_profile
from rgt_tui.profiles.survival import survival, tier_named

__all__ = ["ProfileError", "all_profiles", "load_profile", "survival", "tier_named"]
