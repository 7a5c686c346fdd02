"""What the rules look at: a box's state with the few figures derived from it once."""

from __future__ import annotations

import msgspec

from rgt_tui.alerts.memory import Memory, News, news_of
from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.money import Lifecycle
from rgt_tui.model.protocol import Cell, QueueState
from rgt_tui.model.run import RunState, training_of
from rgt_tui.profiles.readings import stale_after

RUNNER_GONE = (Lifecycle.STOPPED, Lifecycle.GONE)
TOGETHER_S = 600.0
"""Of several curves of one training, those that advanced within so many seconds of the newest are still written."""


class View(msgspec.Struct, frozen=True):
    """A box at one moment, for the rules."""

    box: BoxState
    now: float
    """Client clock."""
    sample_age: float | None
    stale: bool
    running: tuple[tuple[QueueState, Cell, RunState | None], ...]
    """Cells that are being run, with their metrics."""
    beside: tuple[tuple[RunState, ...], ...]
    """Trainings that go on outside of the queues: per training its runs that are still written, the newest first."""
    progress_age: float | None
    live: bool
    """The figures are of now."""
    trains: bool
    """A process that trains is there."""
    blind: bool
    """Others may train that nobody sees, see `Sample.unseen`; nor are queues and curves read."""
    off: bool
    """The provider says that the machine is stopped or gone, and nothing newer speaks against it."""
    memory: Memory
    """What earlier views have shown."""
    news: News
    """What the box's events tell."""

    @property
    def box_now(self) -> float:
        """The box's own clock now, as far as the skew is known."""
        return self.now + (self.box.clock_skew or 0.0)

    @property
    def unread(self) -> bool:
        """The box has a provider, and nobody has read it yet: right after the start of rgt."""
        meter = self.box.meter
        return (
            self.box.spec.provider is not None and meter.at is None and meter.lifecycle is Lifecycle.UNKNOWN
        )

    @property
    def queue_done(self) -> bool:
        """Every queue of the box is through, as its runner wrote."""
        return bool(self.box.queues) and all(queue.done for queue in self.box.queues)

    @property
    def provider_word(self) -> Lifecycle:
        """The provider's word where it is to be believed: a live box overrules an older reading."""
        return provider_word(self.box)


def provider_word(box: BoxState) -> Lifecycle:
    """Return what the provider says of the machine, unless a sample that is newer proves it wrong."""
    meter = box.meter
    if meter.lifecycle not in RUNNER_GONE:
        return meter.lifecycle
    seen = box.sample_at
    if box.link is Link.LIVE and seen is not None and meter.at is not None and seen > meter.at:
        return Lifecycle.UNKNOWN
    return meter.lifecycle


def view(box: BoxState, now: float, memory: Memory | None = None, news: News | None = None) -> View:
    """Return the view of `box` at `now` (client clock).

    Args:
        box: The state.
        now: Client clock.
        memory: What a book remembers; None = nobody has watched.
        news: What `news_of` made of the same events, where that is known already.
    """
    sample_age = None if box.sample_at is None else max(0.0, now - box.sample_at)
    stale = sample_age is None or sample_age > stale_after(box)
    # What no agent reads any more, another one told before: a cell that ran then is not known to run now.
    blind = box.sample is not None and box.sample.unseen is not None
    running = _running(box) if box.queues and not blind else ()
    trains = bool(box.sample is not None and box.sample.procs)
    beside = () if blind else _beside(box, running, trains)
    moved = [run.progressed_at for _, _, run in running if run is not None and run.progressed_at is not None]
    moved += [runs[0].progressed_at or 0.0 for runs in beside]
    if not moved and not box.queues:
        # Nothing goes on: for how long is worth showing.
        moved = [max((run.progressed_at or 0.0 for run in box.runs), default=0.0)]
        moved = moved if moved[0] else []
    return View(
        box=box,
        now=now,
        sample_age=sample_age,
        stale=stale,
        running=running,
        beside=beside,
        progress_age=max(0.0, now - min(moved)) if moved else None,
        live=box.link is Link.LIVE and not stale,
        trains=trains,
        blind=blind,
        off=provider_word(box) in RUNNER_GONE,
        memory=memory if memory is not None else Memory(),
        news=news if news is not None else news_of(box.events),
    )


def _running(box: BoxState) -> tuple[tuple[QueueState, Cell, RunState | None], ...]:
    found = [(queue, cell) for queue in box.queues for cell in queue.cells if cell.state == "running"]
    if not found:
        return ()
    runs = {run.name: run for run in box.runs}
    return tuple((queue, cell, runs.get(cell.name)) for queue, cell in found)


def _beside(
    box: BoxState, running: tuple[tuple[QueueState, Cell, RunState | None], ...], trains: bool
) -> tuple[tuple[RunState, ...], ...]:
    """Gather the runs that go on and are no cell's: those of found trainings that live, each training by itself.

    Of runs whose processes nobody looks for (named directories), the newest goes on while something trains.
    """
    cells = {cell.name for _, cell, _ in running}
    trainings = {found.name for found in box.found}
    groups: dict[str, list[RunState]] = {}
    for run in box.runs:
        if run.name in cells or run.progressed_at is None:
            continue
        if run.alive:
            groups.setdefault(training_of(run.name, trainings) or run.name, []).append(run)
        elif run.alive is None and trains and not box.queues:
            groups.setdefault("", []).append(run)
    return tuple(_written(runs) for runs in groups.values())


def _written(runs: list[RunState]) -> tuple[RunState, ...]:
    newest_first = sorted(runs, key=lambda run: run.progressed_at or 0.0, reverse=True)
    since = (newest_first[0].progressed_at or 0.0) - TOGETHER_S
    return tuple(run for run in newest_first if (run.progressed_at or 0.0) >= since)
