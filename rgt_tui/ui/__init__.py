"""The Textual front end. It draws what the fleet knows and does no input or output of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.app import RgtApp

__all__ = ["RgtApp"]

# Textual is loaded with the app.
__getattr__ = imported_later(__name__, {"app": "RgtApp"})
