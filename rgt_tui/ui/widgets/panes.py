"""Panes that show lines made elsewhere, in a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rgt_tui.ui.widgets.frame import Section, sections
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line

MakeSections = Callable[[int], Sequence[Section]]
"""From the inner width to the sections of a pane."""


class Pane(LineWidget):
    """One frame with one or more titled sections."""

    DEFAULT_CSS = "Pane { height: 1fr; }"

    def __init__(self, *, id: str, focusable: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.can_focus = focusable
        self._make_sections: MakeSections = lambda width: ()
        self._foot: Line = EMPTY
        self._top = 0

    def show(self, make: MakeSections, foot: Line = EMPTY) -> None:
        """Set where the sections come from, and draw what changed."""
        self._make_sections, self._foot = make, foot
        self.redraw()

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        parts = self._make_sections(max(8, width - 4))
        return 1 + sum(1 + len(part.body) for part in parts) if parts else 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame."""
        parts = self._make_sections(width - 4)
        if not parts:
            return []
        self._top = max(0, min(self._top, self.wanted_height(width) - height))
        return sections(parts, width, height, foot=self._foot, active=self.has_focus, top=self._top)

    @property
    def page_rows(self) -> int:
        """How far a page goes: one line stays in sight."""
        return max(1, self.size.height - 3)

    def scroll_lines(self, count: int) -> None:
        """Scroll what does not fit."""
        self._top = max(0, self._top + count)
        self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(2)

    def on_mouse_scroll_up(self) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(-2)

    def on_focus(self) -> None:
        """Show the focus in the border."""
        self.redraw()

    def on_blur(self) -> None:
        """Show the focus in the border."""
        self.redraw()
