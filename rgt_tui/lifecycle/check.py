"""What a check is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.evidence import CheckStatus
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Cell, Checkpoint, QueueState
from rgt_tui.model.run import RunState
from rgt_tui.profiles.readings import stale_after


class Verdict(msgspec.Struct, frozen=True):
    """What an evaluator found."""

    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None where it has none, e.g. a fact of the profile."""


class View(msgspec.Struct, frozen=True):
    """A box at one moment, with what several checks need worked out once."""

    box: BoxState
    profile: Profile
    now: float
    cells: tuple[Cell, ...]
    running: tuple[tuple[QueueState, Cell, RunState | None], ...]
    newest: tuple[str, Checkpoint] | None
    """Run and checkpoint that was published last."""

    @property
    def live(self) -> bool:
        """The figures are of now."""
        at = self.box.sample_at
        return self.box.link is Link.LIVE and at is not None and self.now - at <= stale_after(self.box)

    @property
    def unread(self) -> str | None:
        """Why nothing is known of queues, runs and logs; None where they were read."""
        box = self.box
        if box.queues or box.runs or box.checkpoints:
            return None
        if box.hello is None and box.sample is None:
            return f"not known: {box.link.value}, and the box has told nothing yet"
        if box.sample is not None and box.sample.unseen is not None:
            return f"not known: {box.sample.unseen}"
        return None

    def client(self, box_time: float | None) -> float | None:
        """Return a time of the box's clock by the client's."""
        return None if box_time is None else box_time - (self.box.clock_skew or 0.0)


class Check(msgspec.Struct, frozen=True):
    """One item of the lifecycle."""

    id: str
    """e.g. ``4.3``; the figure before the point is the phase."""
    title: str
    evaluator: Callable[[View], Verdict]
    live: bool = True
    """Proved only while the evidence is of now; False for facts that stay true (a finished cell, a profile)."""

    @property
    def phase(self) -> int:
        """0 to 5."""
        return int(self.id.split(".")[0])


def view(box: BoxState, profile: Profile, now: float) -> View:
    """Return what the checks look at."""
    runs = {run.name: run for run in box.runs}
    points = [(entry.run, entry.items[-1]) for entry in box.checkpoints if entry.items]
    return View(
        box=box,
        profile=profile,
        now=now,
        cells=tuple(cell for queue in box.queues for cell in queue.cells),
        running=tuple(
            (queue, cell, runs.get(cell.name))
            for queue in box.queues
            for cell in queue.cells
            if cell.state == "running"
        ),
        newest=max(points, key=lambda pair: pair[1].at, default=None),
    )


def passed(evidence: str, at: float | None = None) -> Verdict:
    """Proved."""
    return Verdict(CheckStatus.PASSED, evidence, at)


def failed(evidence: str, at: float | None = None) -> Verdict:
    """Disproved."""
    return Verdict(CheckStatus.FAILED, evidence, at)


def warn(evidence: str, at: float | None = None) -> Verdict:
    """Neither proved nor disproved, and worth a look."""
    return Verdict(CheckStatus.WARN, evidence, at)


def waiting(evidence: str, at: float | None = None) -> Verdict:
    """Nothing to evaluate yet."""
    return Verdict(CheckStatus.WAITING, evidence, at)


def absent(seen: View, evidence: str, at: float | None = None) -> Verdict:
    """Nothing of it is there yet, or nobody could look, which is not the same."""
    return Verdict(CheckStatus.WAITING, seen.unread or evidence, at)


def person(evidence: str) -> Verdict:
    """Only a person can say."""
    return Verdict(CheckStatus.PERSON, evidence)
