"""What the rules look at: a box's state with the few figures derived from it once."""

from __future__ import annotations

import msgspec

from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.money import Lifecycle
from rgt_tui.model.protocol import Cell, QueueState
from rgt_tui.model.run import RunState
from rgt_tui.profiles.readings import stale_after


class View(msgspec.Struct, frozen=True):
    """A box at one moment, for the rules."""

    box: BoxState
    now: float
    """Client clock."""
    sample_age: float | None
    stale: bool
    running: tuple[tuple[QueueState, Cell, RunState | None], ...]
    """Cells that are being run, with their metrics."""
    progress_age: float | None

    @property
    def live(self) -> bool:
        """The figures are of now."""
        return self.box.link is Link.LIVE and not self.stale

    @property
    def box_now(self) -> float:
        """The box's own clock now, as far as the skew is known."""
        return self.now + (self.box.clock_skew or 0.0)

    @property
    def queue_done(self) -> bool:
        """Every queue of the box is through, as its runner wrote."""
        return bool(self.box.queues) and all(queue.done for queue in self.box.queues)

    @property
    def trains(self) -> bool:
        """A process that trains is there."""
        return bool(self.box.sample and self.box.sample.procs)

    @property
    def provider_word(self) -> Lifecycle:
        """The provider's word where it is to be believed: a live box overrules an older reading."""
        meter = self.box.meter
        if meter.lifecycle not in (Lifecycle.STOPPED, Lifecycle.GONE):
            return meter.lifecycle
        seen = self.box.sample_at
        if self.box.link is Link.LIVE and seen is not None and meter.at is not None and seen > meter.at:
            return Lifecycle.UNKNOWN
        return meter.lifecycle


def view(box: BoxState, now: float) -> View:
    """Return the view of `box` at `now` (client clock)."""
    sample_age = None if box.sample_at is None else max(0.0, now - box.sample_at)
    runs = {run.name: run for run in box.runs}
    running = tuple(
        (queue, cell, runs.get(cell.name))
        for queue in box.queues
        for cell in queue.cells
        if cell.state == "running"
    )
    moved = [run.progressed_at for _, _, run in running if run is not None and run.progressed_at is not None]
    if not box.queues:
        newest = [run.progressed_at for run in box.runs if run.progressed_at is not None]
        moved = [max(newest)] if newest else []
    return View(
        box=box,
        now=now,
        sample_age=sample_age,
        stale=sample_age is None or sample_age > stale_after(box),
        running=running,
        progress_age=max(0.0, now - min(moved)) if moved else None,
    )
