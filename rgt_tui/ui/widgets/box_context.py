"""Context for a selected line: its box's recent events, the end of its log, and its figures over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual import events
from textual.containers import Horizontal
from textual.widget import Widget

from rgt_tui.model import BoxState
from rgt_tui.ui.box_status import choose_log
from rgt_tui.ui.widgets.fleet_rows.lower_half import LEAST_TAIL, newest_lines, past_of
from rgt_tui.ui.widgets.panes import Pane, Section, set_height, set_width

SHARES = ((0, ("story",)), (100, ("story", "log")), (150, ("story", "log", "past")))
"""From which width on which panes stand there, side by side."""
LEAST_STEADY = 7
"""Lines that are of use, with the frame, where the panes neither move nor come and go."""
MOST_HELD = 26
"""Lines above it that are kept free for what is longer than what is selected now."""


def context_height(room: int, above: int, *, steady: bool = False) -> int:
    """Return the height that is left for it; 0 where that is too little to say anything.

    Args:
        room: Lines of the screen.
        above: Lines that are wanted above it. Half of the screen, as far as that is of use, is theirs in any case, so
            that the panes stay where they are while another line is selected.
        steady: They want as many whatever is selected: the rest is left, however little it is.
    """
    left = room - max(above + 1, 0 if steady else min(room // 2, MOST_HELD))
    return left if left >= (LEAST_STEADY if steady else LEAST_TAIL) else 0


class BoxContext(Horizontal):
    """Up to three panes about one box; a pane that has nothing to show is not there."""

    DEFAULT_CSS = "BoxContext { height: 0; }"

    def __init__(self) -> None:
        super().__init__(id="context")
        self._has: frozenset[str] = frozenset()

    def compose(self) -> Iterable[Widget]:
        """Return the panes."""
        return [Pane(id=name) for name in SHARES[-1][1]]

    def show(
        self,
        box: BoxState | None,
        first: Callable[[BoxState, int, int], Section],
        height: int,
        now: float,
        *,
        stale: bool,
    ) -> None:
        """Show a box in so many lines.

        Args:
            box: The box; None = there is none to speak of.
            first: From the box, and the inner width and height of the first pane, to what it says.
            height: Lines; 0 = there is no room.
            now: Client clock.
            stale: Nobody sees the box now: what is known of it is dim.
        """
        set_height(self, height if box is not None else 0)
        if box is None or not height:
            return
        inner = height - 2
        view = choose_log(box, None)
        has_past = bool(box.past.at or box.recent.at)
        self._has = frozenset(
            ("story", *(["log"] if view and view.lines else []), *(["past"] if has_past else []))
        )
        self.query_one("#story", Pane).show(lambda width: [first(box, width, inner)])
        self.query_one("#log", Pane).show(lambda width: newest_lines(box, width, inner, stale=stale))
        self.query_one("#past", Pane).show(lambda width: past_of(box, width, inner, now))
        self._share(self.size.width or self.screen.size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Share the width anew."""
        self._share(event.size.width)

    def _share(self, width: int) -> None:
        names = next(found for least, found in reversed(SHARES) if width >= least or not least)
        shown = [name for name in names if name in self._has]
        for place, name in enumerate(SHARES[-1][1]):
            share = width // len(shown) if name in shown else 0
            if share and place == 0:
                share += width % len(shown)
            set_width(self.query_one(f"#{name}"), share)
