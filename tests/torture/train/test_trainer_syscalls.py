"""A real trainer and its writer are killed at system calls of one save; the next launch goes on with the same bits."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from rgt_train.checkpoint import CheckpointStore, verified_checkpoint

from tests.process.train.harness import Zygote, assert_same, final_state, losses
from tests.torture.train import watched
from tests.torture.train.conftest import FULL
from tests.torture.train.supervisor import KILL, Call
from tests.torture.train.watched import Watched, below

VALUES = {"epochs": 1, "steps_per_epoch": 40, "save_every": 4, "keep": 1, "pace_ms": 5}
TEMPORARY = re.compile(r"/\.tmp-(\d+)-1\b")
STRIDE = 1 if FULL else 29


class InOneSave:
    """Kills the whole tree, or the trainer alone, at the `deadly`-th call on the run directory between two saves.

    It is the second save: it prunes the first.
    """

    def __init__(self, out: Path, deadly: int) -> None:
        self._out, self._deadly = out, deadly
        self._saves: set[str] = set()
        self.process: Watched | None = None
        self.count = 0
        self.last = ""

    def __call__(self, call: Call) -> int:
        if not below(call, self._out):
            return 0
        text = " ".join(call.paths())
        self._saves.update(TEMPORARY.findall(text))
        if len(self._saves) != 2:
            return 0
        self.count += 1
        self.last = f"{call.name} {text}"
        if self.count != self._deadly:
            return 0
        assert self.process is not None
        if self._deadly % 2:
            self.process.kill_all()
        else:
            self.process.trainer.signal(signal.SIGKILL)  # its writer has to end by itself
        return KILL


@pytest.mark.full  # each call of a save is in `test_every_syscall`, a trainer at random in `test_random_kills`
def test_killed_at_calls_of_one_save(trainers: Zygote, tmp_path: Path, quick_disk: Path) -> None:
    watched.require()
    plain = tmp_path / "plain"
    assert trainers.launch(plain, VALUES).wait() == 0
    killed = 0
    for deadly in range(1, 2000, STRIDE):
        out = quick_disk / f"run{deadly}"
        decide = InOneSave(out, deadly)
        process = decide.process = Watched(
            trainers, tmp_path, decide, "train", *watched.words(out, VALUES)
        )
        code = process.wait()
        if decide.count < deadly:
            assert code == 0, process.trainer.text()
            break
        assert code == -signal.SIGKILL, decide.last
        found, complaints = CheckpointStore(out, 99).newest_good(verified_checkpoint)
        assert not complaints and found is not None and found.step >= 4, (
            f"{decide.last}: {found} {complaints}"
        )
        again = trainers.launch(out, VALUES)
        assert again.wait() == 0, again.text()
        assert losses(out) == losses(plain), decide.last
        assert_same(final_state(out, 40)[0], final_state(plain, 40)[0])
        killed += 1
    print(
        f"{decide.count} calls of the trainer and its writer in one save, killed at {killed} of them"
    )
    assert killed >= 3
