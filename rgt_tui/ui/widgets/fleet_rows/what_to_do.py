"""What to do about the selected box: a pane whose warnings stay in sight while it scrolls, and the step to copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rgt_tui.model import Finding, Fix, FleetState
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.notation import glyphs, plain
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Row
from rgt_tui.ui.widgets.panes import MakeSections, Pane, Section, border, out_of_sight, sections
from rgt_tui.ui.widgets.platform_lines import unseen_section
from rgt_tui.ui.widgets.spans import EMPTY, Line, Tone
from rgt_tui.ui.widgets.why import Block, why_blocks


class Step(NamedTuple):
    """One step out of a finding that can be copied."""

    finding: Finding
    place: int
    """From 1, among all steps of the finding, those without a command included."""
    fix: Fix

    @property
    def label(self) -> str:
        """As the pane calls it."""
        return f"fix {self.place}" if len(self.finding.fixes) > 1 else "fix"

    @property
    def copied(self) -> Copied:
        """The step as it is taken along: its command alone, for a shell runs every line that it is given."""
        return Copied(what=f"{self.label} of {self.finding.gotcha}", text=self.fix.command or "")


def steps_of(row: Row) -> list[Step]:
    """Return the steps of a box that have a command that this terminal can show whole, in the order to take them."""
    return [
        Step(finding, place, fix)
        for finding in row.box.findings
        if not finding.cleared
        for place, fix in enumerate(finding.fixes, 1)
        if fix.command and plain(fix.command) == fix.command
    ]


def blocks_of(row: Row, state: FleetState, width: int, now: float, marked: str = "") -> list[Block]:
    """Return what is to be said of a box, most important first, and below it what bills unseen."""
    out = why_blocks(row, width, now, marked)
    unseen = unseen_section(state, width, now)
    if unseen is not None:
        out.append(Block([EMPTY, unseen.title, *unseen.body], frozenset({0, 1})))
    return out


def window(blocks: Sequence[Block], top: int, height: int) -> tuple[list[Line], int, int]:
    """Return the lines in sight when `top` of those that scroll are above, and how many are above and below.

    The held lines of the first block in sight are in sight, too.
    """
    passed = 0
    for place, block in enumerate(blocks):
        if top < passed + block.scrolling or place == len(blocks) - 1:
            hidden = min(max(0, top - passed), block.scrolling)
            lines = block.below(hidden)
            for later in blocks[place + 1 :]:
                lines += later.rows
            return lines[:height], passed + hidden, max(0, len(lines) - height)
        passed += block.scrolling
    return [], 0, 0


MakeBlocks = Callable[[int], Sequence[Block]]
"""From the inner width to the blocks of a pane."""


LEAST_MORE = 4
"""Lines below which nothing more is begun."""


class WhyPane(Pane):
    """One frame with blocks that scroll below their held lines."""

    DEFAULT_CSS = "WhyPane { height: 1fr; }"

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, focusable=True)
        self._title: Line = EMPTY
        self._hint: Line = EMPTY
        self._make_blocks: MakeBlocks = lambda width: ()
        self._make_more: MakeSections | None = None

    def tell(self, title: Line, hint: Line, make: MakeBlocks, more: MakeSections | None = None) -> None:
        """Set what is said, and draw what changed.

        Args:
            title: Of the frame.
            hint: At the right end of the title.
            make: Makes what is said.
            more: Makes sections that stand below it, each where all of it fits.
        """
        self._title, self._hint, self._make_blocks, self._make_more = title, hint, make, more
        self.redraw()

    @property
    def says_something(self) -> bool:
        """Whether there is anything to say."""
        return bool(self._title)

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        blocks = self._make_blocks(max(8, width - 4))
        return 2 + sum(len(block.rows) for block in blocks) if blocks else 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame."""
        blocks = self._make_blocks(width - 4)
        if not blocks or width < 4 or height < 3:
            return []
        room = height - 2
        self._top = min(self._top, sum(block.scrolling for block in blocks))
        shown, above, below = window(blocks, self._top, room)
        while self._top and not below and len(shown) < room:  # no blank lines at the end while some are above
            before = window(blocks, self._top - 1, room)
            if before[2]:
                break  # with its held lines the block before leaves no room for the last line
            self._top -= 1
            shown, above, below = before
        parts = [Section(self._title, shown, self._hint)]
        left = 0 if above or below else room - len(shown)
        for part in self._make_more(width - 4) if self._make_more is not None and left >= LEAST_MORE else ():
            if left > len(part.body):
                parts.append(part)
                left -= 1 + len(part.body)
        framed = sections(parts, width, height, active=self.has_focus)
        if above or below:
            _, _, _, _, corner, first, *_ = tuple(glyphs().frame)
            tone = Tone.ACCENT if self.has_focus else Tone.DIM
            framed[-1] = border(width, first, corner, title=out_of_sight(above, below), tone=tone)
        return framed
