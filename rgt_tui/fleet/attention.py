"""Sampling rates and memory limits per box, by attention and fleet size. Pure functions.

The limits apply to displayed data. They change no cursor, and a log read byte by byte (`rgt logs`)
is not cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    PLACES,
    BoxState,
    Checkpoints,
    DroppedCounts,
    Frame,
    FrozenStruct,
    LogLines,
    LogView,
    QueueState,
    RunState,
    Scalars,
    how_many,
)


class AttentionPaces(FrozenStruct):
    """How fast the boxes follow what a person looks at, in seconds."""

    stays_s: float = 3.0
    """After this long on a box's screen a person is expected to stay: the other boxes are slowed
    down."""
    back_s: float = 0.1
    """Delay until the rows that become fast again have been drawn."""
    at_a_time: int = 4
    """Boxes notified in one pass of the event loop, which takes a fraction of a millisecond."""
    spread_s: float = 1.0
    """Time over which all boxes are notified. A box samples as soon as it is notified, so boxes
    notified at once would send at once from then on."""
    slowest_s: float = 15.0
    """Upper limit of the seconds between two samples of a slowed box: without a watching person,
    alerts must not be minutes late."""


ATTENTION_PACES = AttentionPaces()


class Attention(enum.StrEnum):
    """How closely a person is watching a box."""

    FOCUSED = "focused"
    """The box is focused on screen."""
    VISIBLE = "visible"
    """The box is a row among others."""
    HIDDEN = "hidden"
    """Another box is focused."""
    NOBODY = "nobody"
    """The screen is not being watched."""


class FleetSizeSettings(NamedTuple):
    """Settings of a fleet of up to `most` boxes."""

    most: float
    slower: dict[Attention, float]
    """Factor on the described time between samples."""
    tail: int
    """Lines of a log requested when it is first seen."""
    lines: int
    """Lines of it kept while the box is not focused."""
    ring: int
    """Values of a row's curves kept while the box is not focused."""
    stretches: int
    """Slots kept of a box's history."""
    look: float
    """Minimum seconds between two judgements for findings and alerts, unless a change is urgent."""
    cards: bool = True
    """Each card of a box has its own history."""


SIZES = (
    FleetSizeSettings(12, {Attention.NOBODY: 2.0}, tail=200, lines=2000, ring=120, stretches=720,
                      look=0.9),
    FleetSizeSettings(
        100,
        {Attention.HIDDEN: 5.0, Attention.NOBODY: 5.0},
        tail=200, lines=500, ring=120, stretches=240, look=0.9,
    ),
    # 60 lines are searched for diagnoses.
    FleetSizeSettings(
        300,
        {Attention.HIDDEN: 5.0, Attention.NOBODY: 10.0},
        tail=60, lines=60, ring=60, stretches=240, look=3.0, cards=False,
    ),
    # Judging is half of the engine's work; urgent changes skip the limit.
    FleetSizeSettings(
        float("inf"),
        {Attention.HIDDEN: 5.0, Attention.NOBODY: 10.0},
        tail=60, lines=60, ring=60, stretches=240, look=5.0, cards=False,
    ),
)  # fmt: skip


def settings_for_size(boxes: int) -> FleetSizeSettings:
    """Return the settings of a fleet of this many boxes."""
    return next(one for one in SIZES if boxes <= one.most)


def attention(box: str, focus: str | None, looking: bool) -> Attention:
    """Return the attention that `box` gets.

    Args:
        box: The box.
        focus: The focused box; None = all are visible.
        looking: The screen is being watched.
    """
    if not looking:
        return Attention.NOBODY
    if focus is None:
        return Attention.VISIBLE
    if focus == box:
        return Attention.FOCUSED
    return Attention.HIDDEN


def sampling_interval(described: float, paid: Attention, boxes: int) -> float:
    """Return the seconds between samples of a box.

    Args:
        described: The fleet file's value.
        paid: The attention that it gets.
        boxes: Number of boxes in the fleet.
    """
    slowed = described * settings_for_size(boxes).slower.get(paid, 1.0)
    return max(described, min(slowed, ATTENTION_PACES.slowest_s))


replace = msgspec.structs.replace
_packed = msgspec.msgpack.Encoder().encode

T = TypeVar("T")


class MemoryBudget(FrozenStruct):
    """Memory limits of one box.

    28 runs of 1,000 curves, 3,500 sources and 256 logs of 2,000 lines fit well.
    """

    logs: int = 64 << 20
    """Characters of all log lines."""
    queues: int = 32 << 20
    """Bytes, as for checkpoints and names."""
    checkpoints: int = 32 << 20
    names: int = 48 << 20
    """Names of the runs, their metrics and their sources."""
    points: int = 4_000_000
    """Points of all curves; one takes some 70 bytes."""
    every: int = 8 << 20
    """The limits are checked after this many received bytes, so that checks are cheap; they may be
    exceeded by this much."""


FOR_ONE_QUESTION = MemoryBudget(logs=4 << 20, names=8 << 20, points=100_000, every=4 << 20)
"""For a command that queries one box once (`rgt lease`, `rgt down`): it shows no log and no curve,
and only the latest runs matter to it. Queues and checkpoints are not cut: without all of them, the
gate refuses."""


STRUCTS = 4
"""Bytes in memory per byte on the wire of a queue or a list of checkpoints."""
PER_CURVE = 400
"""Bytes of a curve without points, or of a source."""


_KEPT = (QueueState, Checkpoints)


def estimate_bytes(frame: Frame) -> int:
    """Return about how many bytes a frame adds to memory; 0 if it replaces earlier values."""
    if isinstance(frame, LogLines):
        return sum(map(len, frame.lines)) + 60 * len(frame.lines)
    if isinstance(frame, Scalars):
        per_point = 70
        return PER_CURVE + sum(per_point * len(point.values) for point in frame.points)
    if isinstance(frame, _KEPT):
        return STRUCTS * len(_packed(frame))
    return 0


def cut_to_budget(state: BoxState, budget: MemoryBudget) -> BoxState:
    """Cut the state to the budget; dropped items are counted in `BoxState.left_out`."""
    logs, lines = _cut_logs(state.logs, budget.logs)
    queues = _keep_newest(state.queues, budget.queues, _encoded_bytes, lambda queue: queue.at)
    checkpoints = _keep_newest(
        state.checkpoints, budget.checkpoints, _encoded_bytes, lambda told: told.at
    )
    runs = _keep_newest(state.runs, budget.names, _name_bytes, lambda run: run.last_at or 0.0)
    thinner, points = _cut_points(runs, budget.points)
    left = state.left_out.with_added(
        log_lines=lines,
        points=points,
        runs=len(state.runs) - len(runs),
        queues=len(state.queues) - len(queues),
        checkpoints=len(state.checkpoints) - len(checkpoints),
    )
    if left is state.left_out:
        return state
    return replace(
        state, logs=logs, queues=queues, checkpoints=checkpoints, runs=thinner, left_out=left
    )


def describe_dropped(left: DroppedCounts) -> tuple[str, ...]:
    """Return the counts of items dropped for a box, one line each."""
    oldest = translate("the oldest; the box has them")
    rows = (
        (
            how_many(left.log_lines, "line of the logs", "lines of the logs"),
            translate("the oldest; `rgt logs` has all"),
        ),
        (how_many(left.points, "point of the curves", "points of the curves"), oldest),
        (
            how_many(left.surplus, "point of a further curve", "points of further curves"),
            translate("over the limit per run; the box has them"),
        ),
        (how_many(left.runs, "run"), translate("silent for longest; the box has them")),
        (
            how_many(left.queues, "queue"),
            translate("silent for longest; the state of its cells is unknown"),
        ),
        (
            how_many(left.checkpoints, "list of checkpoints", "lists of checkpoints"),
            translate("the oldest; unknown what is saved there"),
        ),
        (how_many(left.found, "found training"), translate("the oldest")),
    )
    return tuple(
        translate("not kept here: {items}, {why}", items=items, why=why)
        for items, why in rows
        if not items.startswith("0 ")
    )


def cap_per_item(sizes: Iterable[int], most: int) -> int:
    """Return the cap per item so that all together keep at most `most`.

    Small ones keep everything.
    """
    ordered = sorted(sizes)
    for place, size in enumerate(ordered):
        others = len(ordered) - place
        if size * others >= most:
            return most // others
        most -= size
    if ordered:
        return ordered[-1]
    return 0


def _target_size(most: int) -> int:
    """Return the size to cut down to: below the limit, so that not every check has to cut."""
    return most - most // 8


def _cut_logs(views: tuple[LogView, ...], most: int) -> tuple[tuple[LogView, ...], int]:
    sizes = [sum(map(len, view.lines)) for view in views]
    if sum(sizes) <= most:
        return views, 0
    cap, cut, kept = cap_per_item(sizes, _target_size(most)), 0, []
    for view, size in zip(views, sizes, strict=True):
        gone = 0
        while size > cap:
            size -= len(view.lines[gone])
            gone += 1
        cut += gone
        kept.append(
            replace(view, lines=view.lines[gone:], dropped=view.dropped + gone) if gone else view
        )
    return tuple(kept), cut


def _keep_newest(
    items: tuple[T, ...], most: int, size: Callable[[T], int], at: Callable[[T], float]
) -> tuple[T, ...]:
    sizes = list(map(size, items))
    over = sum(sizes) - most
    if over <= 0:
        return items
    over += most - _target_size(most)
    gone = set()
    for place in sorted(range(len(items)), key=lambda place: at(items[place])):
        if over <= 0:
            break
        over -= sizes[place]
        gone.add(place)
    return tuple(item for place, item in enumerate(items) if place not in gone)


def _encoded_bytes(item: msgspec.Struct) -> int:
    return STRUCTS * len(_packed(item))


def _name_bytes(run: RunState) -> int:
    entries = len(run.series) + len(run.cursors)
    return (
        len(run.name) + sum(map(len, run.series)) + sum(map(len, run.cursors)) + PER_CURVE * entries
    )


def _cut_points(runs: Sequence[RunState], most: int) -> tuple[tuple[RunState, ...], int]:
    sizes = [len(series) for run in runs for series in run.series.values()]
    if sum(sizes) <= most:
        return tuple(runs), 0
    cap = cap_per_item(sizes, _target_size(most))
    kept, cut = [], 0
    for run in runs:
        longer = {
            name: len(series) - cap for name, series in run.series.items() if len(series) > cap
        }
        if longer:
            # Times and epochs belong to the points of the other curves and are not counted again.
            cut += sum(more for name, more in longer.items() if name not in PLACES)
            shorter = {name: run.series[name].last_points(cap) for name in longer}
            first = longer.get("loss", 0)
            resumes = tuple(
                replace(resume, index=max(0, resume.index - first)) for resume in run.resumes
            )
            run = replace(run, series={**run.series, **shorter}, resumes=resumes)
        kept.append(run)
    return tuple(kept), cut


# Sampling rates of the boxes of a running fleet, by attention and a person's choices.
#
# A key press that focuses a box changes the rates of all the others, and writing to two hundred
# connections takes longer than drawing the screen. So the focused box is notified at once, and the
# others later, a few at a time.


class FocusableIntake(Protocol):
    """How much of a box is kept."""

    focused: bool


class SampledSession(Protocol):
    """The part of a session that concerns its sampling rate."""

    state: BoxState

    @property
    def intake(self) -> FocusableIntake:
        """How much of the box is kept."""
        ...

    def set_interval(self, seconds: float) -> None:
        """Request a sample every `seconds`; sends nothing if that is set already."""
        ...


class SamplingPaces:
    """Sets the sampling rates of boxes.

    Args:
        sessions: By name; later changes of the mapping apply.
    """

    def __init__(self, sessions: Mapping[str, SampledSession]) -> None:
        self._sessions = sessions
        self._focus: str | None = None
        self._looking = True
        self._chosen: dict[str, float] = {}
        """Box → seconds between samples chosen by a person."""
        self._asked = asyncio.Event()

    def focus_box(self, box: str | None) -> None:
        """Sample the focused box fast; in a large fleet, slow down the others after a while."""
        if box == self._focus:
            return
        before, self._focus = self._focus, box
        for name in (before, box):
            if name is not None and name in self._sessions:
                self._sessions[name].intake.focused = name == box
        self._send_interval(box)
        self._asked.set()

    def set_looking(self, looking: bool) -> None:
        """Set whether the screen is being watched; otherwise the boxes are polled less often."""
        if looking != self._looking:
            self._looking = looking
            self._asked.set()

    def set_interval_of(self, box: str, seconds: float | None) -> None:
        """Set the seconds between samples of a box.

        None = by its description and by attention.
        """
        if seconds is None:
            self._chosen.pop(box, None)
        else:
            self._chosen[box] = seconds
        self._send_interval(box)

    def boxes_changed(self) -> None:
        """Adjust to added or removed boxes: their number matters as well."""
        if self._focus is not None and self._focus in self._sessions:
            self._sessions[self._focus].intake.focused = True
        self._asked.set()

    async def run(self) -> None:
        """Send changed rates to the boxes until cancelled."""
        while True:
            await self._asked.wait()
            while self._asked.is_set():
                self._asked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        ATTENTION_PACES.back_s if self._focus is None else ATTENTION_PACES.stays_s
                    ):
                        await self._asked.wait()
            names = tuple(self._sessions)
            for place, name in enumerate(names, 1):
                self._send_interval(name)
                if place % ATTENTION_PACES.at_a_time == 0:
                    await asyncio.sleep(
                        ATTENTION_PACES.spread_s * ATTENTION_PACES.at_a_time / len(names)
                    )
                    if self._asked.is_set():
                        break  # the focus has changed again: wait whether it stays

    def _send_interval(self, box: str | None) -> None:
        if box is None or box not in self._sessions:
            return
        session = self._sessions[box]
        paid = attention(box, self._focus, self._looking)
        seconds = sampling_interval(session.state.spec.interval, paid, len(self._sessions))
        session.set_interval(self._chosen.get(box, seconds))
