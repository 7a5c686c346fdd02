"""Each rank of our own trainer tells what it is at, and the one that the others wait for is named with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rgt_box.sampling import rank_waits

from rgt_tui.health import heartbeat_of
from rgt_tui.model import Finding, Heartbeat, format_duration
from tests.process.train.parallel import beat_worker
from tests.process.train.parallel.launching import torchrun
from tests.process.train.parallel.watched import Watched

AGE_S = 45.0
"""So long the launch stands, by the agent's clock, when it is judged."""


class Beats(Watched):
    """The launch, and what its ranks say."""

    def beats(self) -> dict[int, Heartbeat]:
        return {
            rank: beat
            for rank, proc in self.look(10.0).items()
            if (beat := heartbeat_of(proc)) is not None
        }

    def has_done(self, steps: int) -> bool:
        found = self.beats()
        return len(found) == 3 and min(beat.steps for beat in found.values()) > steps

    def at(self, phases: dict[int, str]) -> bool:
        """Tell whether the ranks are there, and have been for a while."""
        found = self.beats()
        return all(
            rank in found and found[rank].phase == phase for rank, phase in phases.items()
        ) and all(beat.for_s >= 0.3 for beat in found.values())

    @contextmanager
    def holding(self, rank: int, word: str, phases: dict[int, str]) -> Iterator[int]:
        """Hold a rank by a word until the others wait, and let it go on, also where the test fails: yields its step."""
        self.tell(rank, word)
        try:
            self.until(lambda: self.held(rank, word) and self.at(phases), f"{word} on rank {rank}")
            step = self.beats()[rank].step
            yield step
        finally:
            self.tell(rank, "")
        self.until(lambda: self.beats()[rank].step > step + 2, "it goes on")

    def judged_later(self, later: float = AGE_S) -> list[Finding]:
        """Return what is found `later` seconds on, in which nothing has moved."""
        real = rank_waits.clock
        rank_waits.clock = lambda: real() + int(later * 1e9)
        try:
            return self.findings()
        finally:
            rank_waits.clock = real


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beats]:
    folder = tmp_path_factory.mktemp("beats")
    with torchrun(3, beat_worker.__file__, str(folder)) as process:
        found = Beats(folder)
        try:
            found.until(lambda: found.has_done(5) or process.poll() is not None, "the first steps")
            assert process.poll() is None, process.communicate()[0].decode()
            yield found
        finally:
            found.kill()


def test_a_run_that_advances_tells_its_steps_and_is_no_hang(seen: Beats) -> None:
    before = seen.beats()
    seen.until(lambda: seen.beats()[1].step > before[1].step + 3, "steps")
    now = seen.beats()[1]
    assert now.steps >= now.step > 0
    assert 0.0 < now.usual_s <= now.slowest_s < 30.0
    assert now.step_s < 30.0
    assert seen.findings() == []


def test_a_rank_that_evaluates_alone_is_no_hang(seen: Beats) -> None:
    with seen.holding(0, "evaluate", {0: "evaluation", 1: "collective", 2: "collective"}):
        assert seen.judged_later(600.0) == []


@pytest.mark.parametrize(
    ("rank", "word", "phase", "told", "confidence"),
    [
        (2, "spin", "forward", "is in the forward pass of step", 0.8),
        # The same phase, by a rank that waits instead of computing.
        pytest.param(
            1, "sleep", "forward", "is in the forward pass of step", 0.8, marks=pytest.mark.full
        ),
        (0, "data", "data", "is waiting for its data of step", 0.8),
        (1, "own", "loop", "is in the code of its loop of step", 0.6),
    ],
)
def test_what_holds_the_others_up_is_named_with_rank_phase_step_and_age(
    rank: int, word: str, phase: str, told: str, confidence: float, seen: Beats
) -> None:
    pid = seen.look(10.0)[rank].pid
    begun = time.monotonic()
    with seen.holding(rank, word, dict.fromkeys(range(3), "backward") | {rank: phase}) as step:
        assert seen.judged_later(10.0) == []  # so long a step may take
        (found,) = seen.judged_later()
    assert (found.gotcha, found.resource) == ("HANG2", f"rank {rank} of 3 (pid {pid})")
    assert found.confidence == confidence
    start = f"rank {rank} (pid {pid}) {told} {step + 1} for "
    assert found.evidence.startswith(start)
    age = found.evidence.removeprefix(start).partition(":")[0]
    most = AGE_S + time.monotonic() - begun + 1.0
    assert age in {format_duration(seconds) for seconds in range(int(AGE_S), int(most) + 1)}
    assert "wait for it (in the backward pass of step" in found.evidence
    assert seen.findings() == []
