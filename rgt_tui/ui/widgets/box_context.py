"""Panes about the selected box: recent events, the end of its log, its figures over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual import events
from textual.containers import Horizontal
from textual.widget import Widget

from rgt_tui.language import translate
from rgt_tui.model import BoxState, FleetState, FrozenStruct
from rgt_tui.ui.box_status import choose_log, level_tone, old_mark
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import clock_or_dash, compact_time
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import FleetRow
from rgt_tui.ui.widgets.panes import Pane, PaneSection, set_height, set_width
from rgt_tui.ui.widgets.platform_lines import unlisted_section
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, fit_text, make_line, tone_line

SHARES = ((0, ("story",)), (100, ("story", "log")), (150, ("story", "log", "past")))
"""Minimum width, and the panes shown side by side from that width on."""


class PaneSizes(FrozenStruct):
    """How the screen is divided between the table and the panes below it, in lines."""

    held_lines: int = 26
    """Lines kept free above, for a longer selection than the current one."""
    pane_share: float = 0.4
    """Minimum fraction of the screen for the panes."""
    shared_from: int = 14
    """Minimum lines of the lower half to show more than one pane."""
    tallest_half: int = 36
    """Maximum lines of the lower half; more would stay empty."""
    least_half: int = 22
    """Minimum lines of the lower half before the panes below it get any."""
    least_tail: int = 10
    """Minimum lines of the log and history panes below the lower half."""


PANE_SIZES = PaneSizes()

PANES = ("why", "loss", "since", "detail")
TAILS = ("log", "past")
WIDTH_SHARES: tuple[tuple[int, dict[str, int]], ...] = (
    (0, {"why": 1}),
    (100, {"why": 58, "since": 42}),
    (116, {"why": 52, "loss": 27, "since": 41}),
    (150, {"why": 62, "loss": 40, "since": 48}),
    (200, {"why": 64, "loss": 40, "since": 42, "detail": 54}),
)
"""Minimum width, and the panes of the lower half with their proportions from that width on."""


def context_height(room: int, above: int, *, steady: bool = False) -> int:
    """Return the height left for the panes; 0 if it is too little to be useful.

    Args:
        room: Lines of the screen.
        above: Lines wanted above the panes. At least half of the screen, up to `held_lines`
            lines, is reserved for them, so that the panes do not move with the selection.
        steady: `above` is the same for every selection, so nothing is reserved.
    """
    left = room - max(above + 1, 0 if steady else min(room // 2, PANE_SIZES.held_lines))
    # Minimum height, with the frame, if the panes keep their place.
    least_steady = 7
    if left >= (least_steady if steady else PANE_SIZES.least_tail):
        return left
    return 0


class BoxContext(Horizontal):
    """Up to three panes about one box; a pane without content is hidden."""

    DEFAULT_CSS = "BoxContext { height: 0; }"

    def __init__(self) -> None:
        super().__init__(id="context")
        self._has: frozenset[str] = frozenset()

    def compose(self) -> Iterable[Widget]:
        """Return the panes."""
        return [Pane(id=name) for name in SHARES[-1][1]]

    def show_box(
        self,
        box: BoxState | None,
        first: Callable[[BoxState, int, int], PaneSection],
        height: int,
        now: float,
        *,
        stale: bool,
    ) -> None:
        """Show a box in `height` lines.

        Args:
            box: The box; None hides the panes.
            first: Makes the first pane from the box and the pane's inner width and height.
            height: Lines; 0 hides the panes.
            now: Client clock.
            stale: The box is not watched now: its values are dimmed.
        """
        set_height(self, height if box is not None else 0)
        if box is None or not height:
            return
        # Without the frame.
        inner = height - 2
        view = choose_log(box, None)
        has_past = bool(box.past.at or box.recent.at)
        self._has = frozenset(
            ("story", *(["log"] if view and view.lines else []), *(["past"] if has_past else []))
        )
        self.query_one("#story", Pane).show_sections(lambda width: [first(box, width, inner)])
        self.query_one("#log", Pane).show_sections(
            lambda width: newest_lines(box, width, inner, stale=stale)
        )
        self.query_one("#past", Pane).show_sections(lambda width: past_of(box, width, inner, now))
        # It has no width before its first layout.
        self._share_width(self.size.width or self.screen.size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Divide the width between the panes."""
        self._share_width(event.size.width)

    def _share_width(self, width: int) -> None:
        names = next(found for least, found in reversed(SHARES) if width >= least or not least)
        shown = [name for name in names if name in self._has]
        for place, name in enumerate(SHARES[-1][1]):
            share = 0
            if name in shown:
                share = width // len(shown)
            if share and place == 0:
                share += width % len(shown)
            set_width(self.query_one(f"#{name}"), share)


# The part of the fleet screen below the table: its layout, the selected box, its log and history.


def lower_widths(width: int, height: int) -> dict[str, int]:
    """Return the panes of a lower half of that size, with their widths."""
    shares = next(found for least, found in reversed(WIDTH_SHARES) if width >= least or not least)
    if height < PANE_SIZES.shared_from:
        shares = WIDTH_SHARES[0][1]
    total, left = sum(shares.values()), width
    out = {name: width * share // total for name, share in shares.items()}
    left -= sum(out.values())
    # Cells lost by rounding down, so that the panes fill the width.
    out["why"] += left
    return out


def split_heights(rows: int, room: int, wanted: int) -> tuple[int, int]:
    """Return the heights of a table of `rows` lines and of the panes below it.

    If both do not fit, the panes get a fixed share, so that the table does not jump with the
    selection.
    """
    if rows + 1 + wanted <= room:
        return rows + 1, wanted
    least_pane = 4
    if room < least_pane + 4:
        return room, 0
    table = min(rows, room - max(least_pane, int(room * PANE_SIZES.pane_share)))
    return table, room - table


def split_left(left: int) -> tuple[int, int]:
    """Return the heights of the lower half and of the panes below it.

    The latter is 0 if it has no room.
    """
    half = min(PANE_SIZES.tallest_half, max(PANE_SIZES.least_half, left * 11 // 20))
    if left - half >= PANE_SIZES.least_tail:
        return (half, left - half)
    return (min(PANE_SIZES.tallest_half, left), 0)


def tail_widths(width: int, *, past: bool) -> dict[str, int]:
    """Return the panes below the lower half, with their widths.

    Args:
        width: Of the screen.
        past: Whether history of the box is stored.
    """
    both_from = 150
    if not past or width < both_from:
        return {"log": width}
    return {"log": width - width * 2 // 5, "past": width * 2 // 5}


def newest_lines(box: BoxState, width: int, height: int, *, stale: bool) -> list[PaneSection]:
    """Return the newest log lines of a box, as many as fit, with errors marked."""
    from rgt_tui.ui.logs.line_finder import is_error

    view = choose_log(box, None)
    if view is None or not view.lines:
        return []
    rows = list(view.lines[-max(1, height) :])
    body = [
        make_line(Span(fit_text(row, width), _choose_tone(is_error(row), stale=stale)))
        for row in rows
    ]
    return [
        PaneSection(
            make_line(translate("log  "), dim_span(view.path.rpartition("/")[2])),
            body,
            make_line(dim_span(key_for("box.log"))),
        )
    ]


def _choose_tone(error: bool, *, stale: bool) -> Tone:
    if error:
        return Tone.TROUBLE
    if stale:
        return Tone.DIM
    return Tone.TEXT


def past_of(box: BoxState, width: int, height: int, now: float) -> list[PaneSection]:
    """Return the section with a box's figures over time; empty if none are stored."""
    from rgt_tui.ui.widgets.box_past import fitting_span, past_section

    if not (box.past.at or box.recent.at):
        return []
    return [past_section(box, fitting_span(box, now), width, height, now)]


def event_lines(state: FleetState, box: str, width: int, most: int = 6) -> list[Line]:
    """Return the last events of a box, newest first."""
    mine = [event for event in state.events if event.box == box][-most:]
    return [
        make_line(
            dim_span(f"{clock_or_dash(event.at)}  "), Span(event.text, level_tone(event.level))
        )
        for event in reversed(mine)
    ]


def detail_sections(row: FleetRow, state: FleetState, width: int, now: float) -> list[PaneSection]:
    """Return the sections of the detail pane, dimmed if the box's values are old."""
    from rgt_tui.ui.widgets.gpu_cards import gpu_sections
    from rgt_tui.ui.widgets.queue_lines import queue_lines
    from rgt_tui.ui.widgets.vitals import disk_lines, memory_lines

    parts = gpu_sections(row.box, width)
    parts.append(PaneSection(make_line(translate("memory")), memory_lines(row.box, width)))
    parts.append(PaneSection(make_line(translate("disks")), disk_lines(row.box, None, width)))
    parts.append(PaneSection(make_line(translate("queue")), queue_lines(row.box, width, now)))
    events = event_lines(state, row.name, width)
    if events:
        parts.append(PaneSection(make_line(translate("events")), events))
    unlisted = unlisted_section(state, width, now, found=False)
    if unlisted is not None:
        parts.append(unlisted)
    if not row.verdict.stale:
        return parts
    if row.verdict.sample_age is not None:
        old = f"{old_mark(row.verdict.health)} {compact_time(row.verdict.sample_age)} old"
        parts[0] = parts[0]._replace(hint=make_line(dim_span(old)))
    return [part._replace(body=[tone_line(made, Tone.DIM) for made in part.body]) for part in parts]
