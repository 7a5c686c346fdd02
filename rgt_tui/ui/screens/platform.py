"""The platform page: all that rgt knows about a box's platform.

A short form opens on first contact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import BY_ID
from rgt_tui.model import FleetState, Profile
from rgt_tui.profiles import FIRST_CONTACT, PageRow, PageSection, Weight, platform_sections
from rgt_tui.profiles.platform_page import KNOWN
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.commands import (
    ALERTS_TOO,
    BOX_TARGET,
    FIRST,
    MOVE,
    PLATFORM,
    Command,
    bindings,
    key_for,
)
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, Moves
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import Beside
from rgt_tui.ui.widgets.panes import Pane, Section
from rgt_tui.ui.widgets.platform_lines import platform_section
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line, text_of, wrapped

if TYPE_CHECKING:
    from textual import events

WIDE = 150
"""Minimum width for two columns."""
LABEL = 15
TIGHT_LABEL = 11
COPIED_WIDTH = 100
"""Width of the copied page."""
TONES = {
    Weight.PLAIN: Tone.TEXT,
    Weight.ASIDE: Tone.DIM,
    Weight.STRONG: Tone.STRONG,
    Weight.GOOD: Tone.PROVED,
    Weight.WARN: Tone.WARN,
    Weight.BAD: Tone.TROUBLE,
}


def row_lines(row: PageRow, width: int) -> list[Line]:
    """Return a row of the page: its label, and its wrapped text to the right."""
    pad = LABEL if width >= 70 else TIGHT_LABEL
    rows = wrapped(row.text, max(8, width - pad), TONES[row.weight])
    if len(row.label) < pad:
        return [
            line(dim((row.label if i == 0 else "").ljust(pad)), *made)
            for i, made in enumerate(rows)
        ]
    # A long label (a button's words, what sources disagree about) gets its own line.
    head = wrapped(row.label, width, Tone.STRONG)
    return [*head, *(line(" " * pad, *made) for made in rows)]


def page_sections(page: Sequence[PageSection], width: int) -> list[Section]:
    """Return the page's sections for a pane of that inner width."""
    return [
        Section(
            line(section.title), [made for row in section.rows for made in row_lines(row, width)]
        )
        for section in page
    ]


def halves(page: Sequence[PageSection], width: int) -> tuple[list[PageSection], list[PageSection]]:
    """Split the page into two columns of similar height, in reading order."""
    heights = [1 + len(section.body) for section in page_sections(page, width)]
    total = sum(heights)
    cut = min(range(len(heights) + 1), key=lambda at: abs(2 * sum(heights[:at]) - total))
    return list(page[:cut]), list(page[cut:])


class PlatformPage(Moves, FleetAwareScreen):
    """Base of both forms of the page. Bindings are inherited, so each form has its own."""

    AUTO_FOCUS = "#page"
    DEFAULT_CSS = "PlatformPage #page, PlatformPage #more { width: 1fr; }"
    SECTIONS: ClassVar[tuple[str, ...] | None] = None
    """Titles of the shown sections; None = all."""

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self._page: tuple[PageSection, ...] = ()
        self._of: Profile | None = None
        self._drawn: dict[tuple[str, int], list[Section]] = {}

    def body(self) -> Iterable[Widget]:
        """Return the page, and the second column for wide screens."""
        with Beside(id="split"):
            yield Pane(id="page", focusable=True)
            yield Pane(id="more", focusable=True)

    def _learn(self) -> None:
        profile = self.fleet.profile(self.box_name or "")
        if profile != self._of:
            page = platform_sections(
                profile, lambda alert: BY_ID[alert].title if alert in BY_ID else None
            )
            wanted = self.SECTIONS
            self._page = (
                page if wanted is None else tuple(one for one in page if one.title in wanted)
            )
            self._of = profile
            self._drawn.clear()

    def _column(self, side: str, page: Sequence[PageSection], width: int) -> list[Section]:
        """Return a column; it is wrapped once per width."""
        made = self._drawn.get((side, width))
        if made is None:
            made = self._drawn[side, width] = page_sections(page, width)
        return made

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the page, with the part about this box above it."""
        self._learn()
        assert self._of is not None
        profile, box = self._of, self.box
        wide = self.size.width >= WIDE
        left, right = (
            halves(self._page, self.size.width // 2 - 4) if wide else (list(self._page), [])
        )
        self.query_one("#more").display = bool(right)

        def first(width: int) -> list[Section]:
            here = [] if box is None else [platform_section(profile, box, width, now)]
            return [*here, *self._column("left", left, width)]

        self.query_one("#page", Pane).show(first, self.foot())
        self.query_one("#more", Pane).show(lambda width: self._column("right", right, width))

    def foot(self) -> Line:
        """Return the right end of the lower border."""
        return EMPTY

    def to_copy(self) -> Copied | None:
        """Return the page as text."""
        sections = [] if self._of is None else page_sections(self._page, COPIED_WIDTH)
        rows = [
            [text_of(one.title), *(f"  {text_of(row)}" for row in one.body)] for one in sections
        ]
        text = "\n\n".join("\n".join(row.rstrip() for row in each) for each in rows)
        if self._of and text:
            return Copied(what=f"the page of {self._of.name}", text=text)
        return None

    def on_mount(self) -> None:
        """Record that the page was shown."""
        super().on_mount()
        self.seen()

    def seen(self) -> None:
        """Record that the person has seen this platform's page."""
        see = getattr(self.app, "platform_seen", None)
        if see is not None:
            see(self.fleet.profile(self.box_name or ""))

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the platform's name, and how well it is known."""
        profile = self.fleet.profile(self.box_name or "")
        return [
            (0, line(Span(profile.name, Tone.STRONG))),
            (1, line(dim(KNOWN.get(profile.confidence, profile.confidence)))),
        ]

    def main_widget(self) -> Pane:
        """Return the first column."""
        return self.query_one("#page", Pane)

    @property
    def moved(self) -> Pane:
        """The focused column."""
        if isinstance(self.focused, Pane):
            return self.focused
        return self.main_widget()

    def action_next_pane(self, direction: int) -> None:
        """Focus the other column, if there is one."""
        panes = [pane for pane in self.query(Pane) if pane.display]
        here = panes.index(self.moved)
        self.set_focus(panes[(here + direction) % len(panes)])

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        self._drawn.clear()
        self.call_after_refresh(self.redraw_now)


class PlatformScreen(PlatformPage):
    """What survives, what bills, and every clock and trap of a box's platform."""

    PLACE: ClassVar[str] = "platform"
    KEYS: ClassVar[tuple[Command, ...]] = (
        *PLATFORM,
        *(command for command in BOX_TARGET if command.id != "box.platform"),
        *ALERTS_TOO,
        *MOVE,
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)


class FirstContactScreen(PlatformPage):
    """Opens once per platform, when one of its boxes has connected for the first time.

    It opens by itself, possibly while the person types for the screen below, so none of its keys
    leads to the tear-down.
    """

    PLACE: ClassVar[str] = "first contact"
    KEYS: ClassVar[tuple[Command, ...]] = (*FIRST, *PLATFORM, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
    SECTIONS: ClassVar[tuple[str, ...] | None] = FIRST_CONTACT

    def seen(self) -> None:
        """Do nothing: only the key records that the page was read."""

    def foot(self) -> Line:
        """Return the key that continues."""
        return line(Span(key_for("first.read"), Tone.ACCENT), dim(" read"))

    def action_read(self) -> None:
        """Record that the page was read, and close it."""
        super().seen()
        self.dismiss()

    def action_whole(self) -> None:
        """Show the full page instead, which counts as read."""
        name = self.box_name
        self.dismiss()
        cast("Dashboard", self.app).open_screen("platform", name)
