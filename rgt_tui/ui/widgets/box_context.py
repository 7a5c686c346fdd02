"""Panes about the selected box: recent events, the end of its log, its figures over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len
from textual import events
from textual.containers import Horizontal
from textual.widget import Widget

from rgt_tui.language import translate
from rgt_tui.model import BoxState, FleetState, FrozenStruct, ReducedHistory
from rgt_tui.profiles import CARD_FIGURES, MOST_CARDS, is_of_card
from rgt_tui.ui.box_status import choose_log, describe_age, level_tone
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import NONE, clock_or_dash, current_glyphs, percent_or_dash
from rgt_tui.ui.widgets.bars import spark_rows
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import FleetRow
from rgt_tui.ui.widgets.panes import Pane, PaneSection, set_height, set_width
from rgt_tui.ui.widgets.platform_lines import unlisted_section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    make_line,
    tone_line,
)

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
    least = 0
    if not steady:
        least = min(room // 2, PANE_SIZES.held_lines)
    left = room - max(above + 1, least)
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
        shown_height = 0
        if box is not None:
            shown_height = height
        set_height(self, shown_height)
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
    from rgt_tui.ui.line_finder import is_error

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
        parts[0] = parts[0]._replace(hint=make_line(dim_span(describe_age(row.verdict))))
    return [part._replace(body=[tone_line(made, Tone.DIM) for made in part.body]) for part in parts]


SPANS = (("10 min", 600.0, "5 min"), ("1 h", 3600.0, "30 min"), ("24 h", 86400.0, "12 h"))
"""Selectable time spans: label, seconds, and the label of half the span."""
TAIL = 17
"""Columns of the extremes at the right."""
TALLEST = 6
"""Maximum lines per curve; slow figures such as disks get one line."""
LIVELY = ("util", "vram", "cgroup")
FIGURE_NAMES = {"util": "gpu", "vram": "vram", "cgroup": "memory"}
"""Labels of the first figures; disks and inodes are labelled by their mount."""
MOST_FIGURES = 64


def course_of(box: BoxState, name: str, begin: float, end: float, cells: int) -> list[float | None]:
    """Return a figure's curve.

    From the fine recording where it reaches, before that the coarse one.
    """
    fine, coarse = (
        mean_per_cell(past, past.names.index(name), begin, end, cells)
        if name in past.names
        else [None] * cells
        for past in (box.recent, box.past)
    )
    if box.recent.at:
        known_from = box.recent.at[0] - box.recent.width
    else:
        known_from = end
    step = (end - begin) / cells
    # A gap in the fine recording is a gap, even where the coarse one averages over it.
    return [
        old if new is None and begin + cell * step < known_from else new
        for cell, (new, old) in enumerate(zip(fine, coarse, strict=True))
    ]


def mean_per_cell(
    past: ReducedHistory, place: int, begin: float, end: float, cells: int
) -> list[float | None]:
    """Return a figure's mean in each of `cells` equal parts of a time span.

    None where nothing was recorded.

    Args:
        past: The recording.
        place: Index of the figure in its names.
        begin: Client clock.
        end: Client clock.
        cells: Number of parts.
    """
    step = (end - begin) / cells
    sums, counts = [0.0] * cells, [0] * cells
    for at, row in zip(past.at, past.values, strict=False):
        if place < len(row):
            value = row[place]
        else:
            value = None
        if value is None or not math.isfinite(value) or at <= begin or at - past.width >= end:
            continue
        # A value that ends exactly at the edge of a cell must not count for the next one.
        first = max(0, math.floor((at - past.width - begin) / step + 1e-6))
        last = min(cells, max(first + 1, math.ceil((at - begin) / step - 1e-6)))
        for cell in range(first, last):
            sums[cell] += value
            counts[cell] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def past_height(box: BoxState) -> int:
    """Return the lines that a pane of the history needs, its frame included."""
    names = names_of(box)
    # 3 lines: the frame and the axis.
    return 3 + len(names) + bool(unkept_cards(box, names, ""))


def unkept_cards(box: BoxState, names: Sequence[str], when: str) -> str:
    """Return a note on which GPUs have no recording of their own; empty if none is missing."""
    cards = 0
    if box.sample is not None:
        cards = len(box.sample.gpus)
    if cards > 1 and not any(map(is_of_card, names)):
        return translate("no per-GPU data is recorded for {when}", when=when)
    if cards > MOST_CARDS:
        return translate(
            "only the first {most_cards} of {cards} GPUs are recorded separately",
            most_cards=MOST_CARDS,
            cards=cards,
        )
    return ""


def past_room(box: BoxState, height: int) -> int:
    """Return how many of `height` lines the pane uses, frame included.

    Busy figures take spare lines.
    """
    least, lively = past_height(box), sum(name in LIVELY for name in names_of(box))
    more = 0
    if lively:
        more = max(0, min(TALLEST - 1, (height - least) // lively))
    return min(height, least + lively * more)


def names_of(box: BoxState) -> list[str]:
    """Return the recorded figures, utilisation first."""
    known = [
        name
        for past in (box.past, box.recent)
        for place, name in enumerate(past.names)
        if any(place < len(row) and row[place] is not None for row in past.values)
    ]
    return sorted(dict.fromkeys(known), key=_sort_key)[:MOST_FIGURES]


def _sort_key(name: str) -> tuple[int, int, int]:
    """Sort key: the box's own figures, its disks, then its GPUs one by one."""
    kind, _, card = name.partition(":")
    if is_of_card(name):
        return 2, int(card) if card.isdecimal() else MOST_FIGURES, CARD_FIGURES.index(kind)
    if name in LIVELY:
        return (0, LIVELY.index(name), 0)
    return (1, 0, 0)


def fitting_span(box: BoxState, now: float) -> int:
    """Return the index in `SPANS` that the recording fills best.

    An hour would be mostly empty for a box that was added a few minutes ago.
    """
    first = min((past.at[0] for past in (box.past, box.recent) if past.at), default=now)
    if now - first < SPANS[0][1]:
        return 0
    return 1


def past_section(
    box: BoxState, span: int, width: int, height: int, now: float, hint: Line = EMPTY
) -> PaneSection:
    """Draw the curves as tall as the room allows, with a time axis below.

    Args:
        box: The box.
        span: Index in `SPANS`.
        width: Cells.
        height: Available lines. The result is longer if not every figure fits; the pane scrolls
            then.
        now: Client clock.
        hint: Shown in the border.
    """
    words, seconds, _ = SPANS[span % len(SPANS)]
    newest = max((past.at[-1] for past in (box.past, box.recent) if past.at), default=now)
    # If the newest value is at most this many intervals old, the next one is merely being recorded.
    under_way = 1.5
    if 0 < now - newest <= under_way * box.recent.width:
        now = newest  # later values are still being recorded: this is no gap
    begin = now - seconds
    names = names_of(box)
    # Maximum columns of the names; shorter names leave more room for the curves.
    label_limit = 18
    label = min(label_limit, max((cell_len(label_of(name)) for name in names), default=0) + 2)
    room = max(4, width - label - TAIL - 1)
    cells = room * (2 if current_glyphs().braille else 1)
    shown = []
    for name in names:
        values = course_of(box, name, begin, now, cells)
        if any(value is not None for value in values):
            shown.append((name, values))
    title = make_line(translate("past "), dim_span(translate(words)))
    if not shown:
        return PaneSection(
            title,
            [make_line(dim_span(translate("no data of the last {words}", words=words)))],
            hint,
        )
    lively = sum(name in LIVELY for name, _ in shown)
    note = unkept_cards(
        box, [name for name, _ in shown], translate("the last {words}", words=words)
    )
    spare = height - 1 - len(shown) - bool(note)
    if lively:
        tall = 1 + max(0, min(TALLEST - 1, spare // lively))
    else:
        tall = 1
    out = [
        made
        for name, values in shown
        for made in _figure_lines(name, values, label, room, tall if name in LIVELY else 1)
    ]
    out += [make_line(dim_span(note))] if note else []
    return PaneSection(title, [*out, _axis_line(span, label, room)], hint)


def _figure_lines(
    name: str, values: Sequence[float | None], label: int, room: int, tall: int
) -> list[Line]:
    known = [value for value in values if value is not None]
    if name.startswith("temp:"):
        write = format_degrees
    else:
        write = percent_or_dash
    low, high = write(min(known)), write(max(known))
    # Fixed scale of 0 to 100 (percent or °C): a figure that hardly moves is a flat line, no false
    # alarm.
    rows = spark_rows(values, room, tall, low=0.0, high=100.0)
    span = translate("min {low:>4} max {high:>4}", low=low, high=high)
    last = ""
    if values[-1] is not None:
        last = translate("now {value:>4}", value=write(values[-1]))
    tails = {0: last, tall - 1: span}
    return [
        # The inner call leaves a blank before the curve.
        make_line(
            dim_span(fit_text(fit_text(label_of(name) if place == 0 else "", label - 1), label)),
            rows[place],
            dim_span(fit_text(tails.get(place, ""), TAIL + 1, right=True)),
        )
        for place in range(tall)
    ]


def label_of(name: str) -> str:
    """Return a figure's label: ``gpu``, ``GPU 0 temp``, ``disk data``, ``inode data``."""
    kind, _, mount = name.partition(":")
    if is_of_card(name):
        return f"GPU {mount} {translate(kind)}"
    if not mount:
        return translate(FIGURE_NAMES.get(kind, kind))
    short = mount.rsplit("/", 1)[-1] or "/"
    return f"{translate('inode' if kind == 'inodes' else 'disk')} {short}"


def format_degrees(value: float | None) -> str:
    """Return a temperature in at most five characters."""
    if value is None:
        return NONE
    if value < 100:
        return f"{value:.0f}°C"
    return f"{value:.0f}°"


def _axis_line(span: int, label: int, room: int) -> Line:
    past, half = (translate(one) for one in SPANS[span % len(SPANS)][::2])
    ago = translate("{now} ago", now=past)
    middle = max(1, room // 2 - cell_len(ago) - cell_len(half) // 2)
    text = f"{ago}{' ' * middle}{half}"
    return make_line(
        dim_span(
            translate(
                "{fit_text}{words}now",
                fit_text=fit_text("", label),
                words=fit_text(text, max(1, room - 3)),
            )
        )
    )
