"""Writes only the changed cells to the terminal.

Textual (8.2) crops a changed span at its end, not at its beginning: it writes the line again from the widget's left
edge. On a slow link that is most of what an idle dashboard sends, so our screens use a compositor that crops both
ends. It builds on Textual's private compositor: where that is another one, Textual's own drawing is used.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip


class TightUpdate(ChopsUpdate):
    """A partial update that is cropped at both ends of every span."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the spans."""
        try:
            return "".join(
                f"\x1b[{y + 1};{left + 1}H{strip.render(console)}"
                for y, x1, x2 in self.spans
                for left, strip in self._pieces(y, x1, x2)
            )
        except (AttributeError, LookupError, TypeError, ValueError):  # not the lines of Textual 8
            return super().render_segments(console)

    def _pieces(self, y: int, x1: int, x2: int) -> list[tuple[int, Strip]]:
        """Return the column and the cells of every part of line `y` that lies between `x1` and `x2`."""
        pieces = []
        for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            left, right = max(start, x1), min(end, x2)
            if strip is not None and left < right:
                pieces.append((left, strip.crop(left - start, right - start)))
        return pieces


class TightCompositor(Compositor):
    """Textual's compositor, with tight partial updates."""

    def render_partial_update(self, *args: Any, **named: Any) -> ChopsUpdate | None:
        """Return what changed, cropped at both ends."""
        update = super().render_partial_update(*args, **named)
        try:
            return None if update is None else TightUpdate(update.chops, update.spans, update.chop_ends)
        except (AttributeError, TypeError):
            return update
