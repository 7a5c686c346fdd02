"""A launch of several ranks as the agent sees it; the processes are real, only its clock is the test's."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from rgt_box.sampling.processes import ProcSampler
from rgt_box.sampling.rank_waits import RankWatch

from rgt_tui.health import diagnose_box
from rgt_tui.model import Finding, TrainingProcess
from tests.unit.triage.builders import NOW, box, run, sample

PATIENCE = 150.0


class Watched:
    """The launch as the agent sees it, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._procs = ProcSampler(re.escape(str(folder)))
        self._ranks = RankWatch()
        self._now = 0.0

    def look(self, later: float) -> dict[int, TrainingProcess]:
        """Look `later` seconds after the last time; returns the ranks."""
        self._now += later
        self._procs._scanned = 0.0
        raw = self._procs.read()
        self._ranks.add_rank_readings(raw, self._now)
        self.procs = msgspec.convert(raw, tuple[TrainingProcess, ...])
        return {proc.dist.rank: proc for proc in self.procs if proc.dist is not None}

    def findings(self, progress_age: float | None = None) -> list[Finding]:
        """Look twice, with 40 s between that nothing but the clock has gone through, and judge."""
        self.look(40.0)
        self.look(40.0)
        return self.judged(progress_age)

    def findings_of_steps(self) -> list[Finding]:
        """Look twice, with steps of every rank between, and judge: a launch that goes on never stands at both looks."""
        before = {rank: self.step(rank) for rank in self.look(40.0)}
        self.until(
            lambda: all(self.step(rank) > step + 2 for rank, step in before.items()),
            "steps of all ranks",
        )
        self.look(40.0)
        return self.judged()

    def hang(self, progress_age: float | None = None) -> Finding:
        """Wait until the ranks stand, and something is found; return it. One may still have been on its way."""
        found: list[Finding] = []

        def named() -> bool:
            found[:] = self.findings(progress_age) if self.stands() else ()
            return bool(found)

        self.until(named, "a hang is named")
        (only,) = found
        return only

    def judged(self, progress_age: float | None = None) -> list[Finding]:
        """Judge what was seen at the last look."""
        runs = () if progress_age is None else (run(progressed_at=NOW - progress_age),)
        state = box(
            sample=sample(procs=self.procs), sample_at=NOW, queues=(), logs=(), runs=runs, found=()
        )
        return list(diagnose_box(state, NOW, ()))

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
        """Tell whether the ranks have come to where they wait: no counter moves, and none waits for a processor."""
        before = self.look(10.0)
        time.sleep(0.3)
        after = self.look(10.0)
        return len(before) == len(after) and all(stands(proc) for proc in after.values())

    def tell(self, rank: int, word: str) -> None:
        (self.folder / str(rank)).write_text(word)

    def held(self, rank: int, word: str) -> bool:
        """Tell whether a rank, as it says itself, stands where that word holds it."""
        with suppress(OSError):
            return (self.folder / f"held-{rank}").read_text() == word
        return False

    def kill(self) -> None:
        """End the ranks: a torchrun that is killed leaves those that sleep or are stopped."""
        for proc in self.look(10.0).values():
            with suppress(ProcessLookupError):
                os.kill(proc.pid, signal.SIGKILL)


def stands(proc: TrainingProcess) -> bool:
    return reading(proc) > 0.0 and proc.state in ("S", "T")


def reading(proc: TrainingProcess) -> float:
    return (proc.dist.still_s or 0.0) if proc.dist is not None else 0.0
