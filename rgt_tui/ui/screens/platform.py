"""The platform page: all that rgt knows about a box's platform.

A short form opens on first contact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import BY_ID
from rgt_tui.language import translate
from rgt_tui.model import FleetState, Profile
from rgt_tui.profiles import FIRST_CONTACT, PageRow, PageSection, RowWeight, platform_sections
from rgt_tui.profiles.platform_page import KNOWN
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import (
    ALERTS_TOO,
    BOX_SHELL,
    BOX_TARGET,
    FIRST,
    MOVE,
    PLATFORM,
    Command,
    build_bindings,
    key_for,
)
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import SideBySideWidgets
from rgt_tui.ui.widgets.panes import Pane, PaneSection
from rgt_tui.ui.widgets.platform_lines import platform_section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    make_line,
    text_of,
    wrap_text,
)

if TYPE_CHECKING:
    from textual import events

TONES = {
    RowWeight.PLAIN: Tone.TEXT,
    RowWeight.ASIDE: Tone.DIM,
    RowWeight.STRONG: Tone.STRONG,
    RowWeight.GOOD: Tone.PROVED,
    RowWeight.WARN: Tone.WARN,
    RowWeight.BAD: Tone.TROUBLE,
}


def row_lines(row: PageRow, width: int) -> list[Line]:
    """Return a row of the page: its label, and its wrapped text to the right."""
    pad = 15
    if width < 70:
        pad = 11
    rows = wrap_text(row.text, max(8, width - pad), TONES[row.weight])
    label = translate(row.label)
    if cell_len(label) < pad:
        return [
            make_line(dim_span(fit_text(label if i == 0 else "", pad)), *made)
            for i, made in enumerate(rows)
        ]
    # A long label (a button's words, what sources disagree about) gets its own line.
    head = wrap_text(label, width, Tone.STRONG)
    return [*head, *(make_line(" " * pad, *made) for made in rows)]


def page_sections(page: Sequence[PageSection], width: int) -> list[PaneSection]:
    """Return the page's sections for a pane of that inner width."""
    return [
        PaneSection(
            make_line(translate(section.title)),
            [made for row in section.rows for made in row_lines(row, width)],
        )
        for section in page
    ]


def split_columns(
    page: Sequence[PageSection], width: int
) -> tuple[list[PageSection], list[PageSection]]:
    """Split the page into two columns of similar height, in reading order."""
    heights = [1 + len(section.body) for section in page_sections(page, width)]
    total = sum(heights)
    cut = min(range(len(heights) + 1), key=lambda at: abs(2 * sum(heights[:at]) - total))
    return list(page[:cut]), list(page[cut:])


class PlatformPage(MoveKeys, FleetAwareScreen):
    """Base of both forms of the page. Bindings are inherited, so each form has its own."""

    AUTO_FOCUS = "#page"
    DEFAULT_CSS = "PlatformPage #page, PlatformPage #more { width: 1fr; }"
    SECTIONS: ClassVar[tuple[str, ...] | None] = None
    """Titles of the shown sections; None = all."""

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self._page: tuple[PageSection, ...] = ()
        self._of: Profile | None = None
        self._drawn: dict[tuple[str, int], list[PaneSection]] = {}

    def compose_body(self) -> Iterable[Widget]:
        """Return the page, and the second column for wide screens."""
        with SideBySideWidgets(id="split"):
            yield Pane(id="page", focusable=True)
            yield Pane(id="more", focusable=True)

    def _load_page(self) -> None:
        profile = self.fleet.profile_of(self.box_name or "")
        # A changed fleet file may give the box another profile.
        if profile != self._of:
            page = platform_sections(
                profile, lambda alert: translate(BY_ID[alert].title) if alert in BY_ID else None
            )
            wanted = self.SECTIONS
            if wanted is None:
                self._page = page
            else:
                self._page = tuple(one for one in page if one.title in wanted)
            self._of = profile
            self._drawn.clear()

    def _make_column(self, side: str, page: Sequence[PageSection], width: int) -> list[PaneSection]:
        """Return a column; it is wrapped once per width."""
        made = self._drawn.get((side, width))
        if made is None:
            made = self._drawn[side, width] = page_sections(page, width)
        return made

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the page, with the part about this box above it."""
        self._load_page()
        assert self._of is not None
        profile, box = self._of, self.box_state
        # Minimum width for two columns.
        wide_limit = 150
        wide = self.size.width >= wide_limit
        left, right = (
            split_columns(self._page, self.size.width // 2 - 4) if wide else (list(self._page), [])
        )
        self.query_one("#more").display = bool(right)

        def make_first(width: int) -> list[PaneSection]:
            if box is None:
                here = []
            else:
                here = [platform_section(profile, box, width, now)]
            return [*here, *self._make_column("left", left, width)]

        self.query_one("#page", Pane).show_sections(make_first, self.foot_line())
        self.query_one("#more", Pane).show_sections(
            lambda width: self._make_column("right", right, width)
        )

    def foot_line(self) -> Line:
        """Return the right end of the lower border."""
        return EMPTY

    def to_copy(self) -> ClipboardText | None:
        """Return the page as text."""
        # Width of the copied page.
        copied_width = 100
        if self._of is None:
            sections = []
        else:
            sections = page_sections(self._page, copied_width)
        rows = [
            [text_of(one.title), *(f"  {text_of(row)}" for row in one.body)] for one in sections
        ]
        text = "\n\n".join("\n".join(row.rstrip() for row in each) for each in rows)
        if self._of and text:
            return ClipboardText(
                what=translate("the page of {name}", name=self._of.name), text=text
            )
        return None

    def on_mount(self) -> None:
        """Record that the page was shown."""
        super().on_mount()
        self.record_seen()

    def record_seen(self) -> None:
        """Record that the person has seen this platform's page."""
        see = getattr(self.app, "platform_seen", None)
        if see is not None:
            see(self.fleet.profile_of(self.box_name or ""))

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the platform's name, and how well it is known."""
        profile = self.fleet.profile_of(self.box_name or "")
        return [
            (0, make_line(Span(profile.name, Tone.STRONG))),
            (1, make_line(dim_span(translate(KNOWN.get(profile.confidence, profile.confidence))))),
        ]

    def main_widget(self) -> Pane:
        """Return the first column."""
        return self.query_one("#page", Pane)

    @property
    def moved_widget(self) -> Pane:
        """The focused column."""
        if isinstance(self.focused, Pane):
            return self.focused
        return self.main_widget()

    def action_next_pane(self, direction: int) -> None:
        """Focus the other column, if there is one."""
        panes = [pane for pane in self.query(Pane) if pane.display]
        here = panes.index(self.moved_widget)
        self.set_focus(panes[(here + direction) % len(panes)])

    def on_resize(self, event: events.Resize) -> None:
        # Columns of the old width are of no use any more.
        """Lay out for the new size."""
        self._drawn.clear()
        self.call_after_refresh(self.redraw_now)


class PlatformScreen(PlatformPage):
    """What survives, what bills, and every clock and trap of a box's platform."""

    PLACE: ClassVar[str] = "platform"
    KEYS: ClassVar[tuple[Command, ...]] = (
        *PLATFORM,
        *(command for command in BOX_TARGET if command.id != "box.platform"),
        *BOX_SHELL,
        *ALERTS_TOO,
        *MOVE,
    )
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)


class FirstContactScreen(PlatformPage):
    """Opens once per platform, when one of its boxes has connected for the first time.

    It opens by itself, possibly while the person types for the screen below, so none of its keys
    leads to the tear-down.
    """

    PLACE: ClassVar[str] = "first contact"
    KEYS: ClassVar[tuple[Command, ...]] = (*FIRST, *PLATFORM, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    SECTIONS: ClassVar[tuple[str, ...] | None] = FIRST_CONTACT

    def record_seen(self) -> None:
        """Do nothing: only the key records that the page was read."""

    def foot_line(self) -> Line:
        """Return the key that continues."""
        return make_line(Span(key_for("first.read"), Tone.ACCENT), dim_span(translate(" read")))

    def action_read(self) -> None:
        """Record that the page was read, and close it."""
        super().record_seen()
        self.dismiss()

    def action_whole(self) -> None:
        """Show the full page instead, which counts as read."""
        name = self.box_name
        # Before the full page opens, so that this form does not stay below it.
        self.dismiss()
        cast("Dashboard", self.app).open_screen("platform", name)
