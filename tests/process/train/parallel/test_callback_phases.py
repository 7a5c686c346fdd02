"""Ranks of transformers' Trainer and of Lightning tell what they are at, and a hang is named with the rank and phase.

The libraries, the launch and the agent's looks are real; only the agent's clock is the test's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.train import frameworks
from tests.process.train.parallel import callback_worker
from tests.process.train.parallel.launching import torchrun
from tests.process.train.parallel.test_beats import Beats

STEP = {
    "hugging_face": "data loop forward backward loop forward backward optimizer loop",
    "lightning": "data forward backward loop optimizer loop",
}
"""The phases of one step; transformers has two backward passes in it."""


@pytest.mark.parametrize(("library", "word", "phase", "said"), [
    ("hugging_face", "forward", "forward", "is in the forward pass of step"),
    ("lightning", "saved", "data", "is waiting for its data of step"),
])  # fmt: skip
def test_a_hang_is_named_with_rank_and_phase_and_the_phases_of_a_step_are_told_in_their_order(
    library: str, word: str, phase: str, said: str, tmp_path: Path
) -> None:
    env = {**frameworks.OFFLINE, "HOME": str(tmp_path)}
    python = str(frameworks.require())
    with torchrun(
        2, callback_worker.__file__, library, str(tmp_path), env=env, python=python
    ) as process:
        seen = Beats(tmp_path)
        try:
            seen.until(
                lambda: min(map(seen.step, (0, 1))) > 12 or process.poll() is not None,
                "the first steps",
            )
            assert process.poll() is None, process.communicate()[0].decode()[-4000:]
            before = seen.beats()
            assert sorted(before) == [0, 1]
            assert min(beat.step for beat in before.values()) > 3
            seen.tell(1, word)
            seen.until(lambda: seen.held(1, word) and seen.at({1: phase}), "it is held up")
            (found,) = seen.judged_later(45.0)
            pid = seen.look(10.0)[1].pid
            assert (found.gotcha, found.resource) == ("HANG2", f"rank 1 of 2 (pid {pid})")
            assert f"rank 1 (pid {pid}) {said}" in found.evidence, found.evidence
            assert "rank 0 waits for it" in found.evidence
            (tmp_path / "end").write_text(str(max(map(seen.step, (0, 1))) + 3))
            seen.tell(1, "")
            told = process.communicate(timeout=frameworks.TIMEOUT)[0].decode()
            assert process.returncode == 0, told[-4000:]
        finally:
            seen.kill()
    for rank in (0, 1):
        told = (tmp_path / f"phases-{rank}").read_text()
        assert told.startswith("start "), told
        assert told.endswith(" end"), told
        assert told.count(STEP[library]) >= 10, told
        assert "evaluation" in told and "checkpoint" in told, told
        assert told.index("evaluation") < told.index("checkpoint")
