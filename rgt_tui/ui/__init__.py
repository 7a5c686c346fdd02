"""The Textual front end. It draws what the fleet knows and does no I/O of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.app import RgtApp
    from rgt_tui.ui.preferences import (
        Preferences,
        PreferencesError,
        parse_preferences,
        preferences_path,
        read_preferences,
    )
    from rgt_tui.ui.themes import THEMES

__all__ = [
    "THEMES",
    "Preferences",
    "PreferencesError",
    "RgtApp",
    "parse_preferences",
    "preferences_path",
    "read_preferences",
]

# Textual is loaded with the first of them.
__getattr__ = imported_later(
    __name__,
    {
        "app": "RgtApp",
        "preferences": "Preferences PreferencesError parse_preferences preferences_path read_preferences",
        "themes": "THEMES",
    },
)
