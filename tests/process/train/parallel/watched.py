"""A launch of several ranks as the agent sees it; the processes are real, only its clock is the test's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rgt_box.sampling.processes import ProcSampler
from rgt_box.sampling.rank_waits import RankWatch

from rgt_tui.health import diagnose
from rgt_tui.model.evidence import Finding
from rgt_tui.model.protocol import Proc
from tests.unit.triage.builders import NOW, box, run, sample

PATIENCE = 150.0


class Watched:
    """The launch as the agent sees it, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._procs = ProcSampler(re.escape(str(folder)))
        self._ranks = RankWatch()
        self._now = 0.0

    def look(self, later: float) -> dict[int, Proc]:
        """Look `later` seconds after the last time; returns the ranks."""
        self._now += later
        self._procs._scanned = 0.0
        raw = self._procs.read()
        self._ranks.look(raw, self._now)
        self.procs = msgspec.convert(raw, tuple[Proc, ...])
        return {proc.dist.rank: proc for proc in self.procs if proc.dist is not None}

    def findings(self, progress_age: float | None = None) -> list[Finding]:
        """Look twice, with 40 s between that nothing but the clock has gone through, and judge."""
        self.look(40.0)
        self.look(40.0)
        runs = () if progress_age is None else (run(progressed_at=NOW - progress_age),)
        state = box(sample=sample(procs=self.procs), sample_at=NOW, queues=(), logs=(), runs=runs, found=())
        return list(diagnose(state, NOW, ()))

    def step(self, rank: int) -> int:
        try:
            return int((self.folder / f"step-{rank}").read_text())
        except (OSError, ValueError):
            return 0

    def until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def stands(self) -> bool:
        """Tell whether the ranks have come to where they wait: no counter moves any more."""
        before = [reading(proc) for proc in self.look(10.0).values()]
        time.sleep(0.3)
        after = [reading(proc) for proc in self.look(10.0).values()]
        return len(before) == len(after) and all(still for still in after)

    def tell(self, rank: int, word: str) -> None:
        (self.folder / str(rank)).write_text(word)


def reading(proc: Proc) -> float:
    return (proc.dist.still_s or 0.0) if proc.dist is not None else 0.0
