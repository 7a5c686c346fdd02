"""The Textual front end. It draws what the fleet knows and does no input or output of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgt_tui.ui.app import RgtApp

__all__ = ["RgtApp"]


def __getattr__(name: str) -> object:
    """Load the app, and Textual with it, when it is asked for."""
    if name != "RgtApp":
        raise AttributeError(name)
    from rgt_tui.ui.app import RgtApp

    return RgtApp
