"""A DeepSpeed engine with ZeRO: killed, stopped, damaged and wiped, and the same steps afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from rgt_train import UsageError, of_deepspeed

from tests.process.train.harness import Zygote, events
from tests.process.train.parallel import deepspeed_worker
from tests.process.train.parallel.forked import Ranks, forked

REAL = ("--real",) * bool(os.environ.get("RGT_REAL_DEEPSPEED"))
"""With DeepSpeed in the Python path, the same tests run with it."""


def launch(trainers: Zygote, out: Path, *words: str, count: int = 2) -> Ranks:
    ranks = forked(trainers, count, deepspeed_worker.__file__, str(out), *REAL, *words)
    ranks.wait()
    return ranks


def steps_of(out: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Return by rank and step what was used and what came of it; of a repeated step, the last."""
    return {
        (rank, line["step"]): line
        for rank in range(2)
        for line in map(json.loads, (out / f"seen-{rank}.jsonl").read_text().splitlines())
    }


def checkpoints_of(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("global_step*"))


@pytest.fixture
def plain(trainers: Zygote, tmp_path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """The steps of an uninterrupted training."""
    ranks = launch(trainers, tmp_path / "plain")
    assert ranks.wait() == [0, 0], ranks.text()
    assert checkpoints_of(tmp_path / "plain") == ["global_step15", "global_step18"]
    return steps_of(tmp_path / "plain")


def test_a_killed_training_repeats_the_same_steps(
    trainers: Zygote, tmp_path: Path, plain: dict[tuple[int, int], dict[str, Any]]
) -> None:
    out = tmp_path / "run"
    killed = launch(trainers, out, "--die-at", "12")
    assert -signal.SIGKILL in killed.wait()
    ranks = launch(trainers, out)
    assert ranks.wait() == [0, 0], ranks.text()
    assert "resuming from" in ranks.text() and "global_step10, step 10" in ranks.text()
    assert steps_of(out) == plain
    assert [event["step"] for event in events(out, "resume")] == [10]
    assert events(out, "done")


def test_a_signal_to_one_rank_saves_on_all(
    trainers: Zygote, tmp_path: Path, plain: dict[tuple[int, int], dict[str, Any]]
) -> None:
    out = tmp_path / "run"
    assert launch(trainers, out, "--stop-at", "8").wait() == [75, 75]
    assert len(checkpoints_of(out)) == 2
    ranks = launch(trainers, out)
    assert ranks.wait() == [0, 0], ranks.text()
    assert steps_of(out) == plain


def test_a_damaged_checkpoint_is_passed_over_and_a_wiped_disk_comes_back(
    trainers: Zygote, tmp_path: Path, plain: dict[tuple[int, int], dict[str, Any]]
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    launch(trainers, out, "--die-at", "12", "--mirror", str(mirror))
    (file,) = (out / "global_step10").glob("*rank_1_mp_rank_00_optim_states.pt")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    ranks = launch(trainers, out, "--stop-at", "13", "--mirror", str(mirror))
    assert ranks.wait() == [75, 75], ranks.text()
    assert "passed over" in ranks.text()
    history = [(out / f"seen-{rank}.jsonl").read_text() for rank in range(2)]
    shutil.rmtree(out)
    out.mkdir()
    for rank, text in enumerate(history):
        (out / f"seen-{rank}.jsonl").write_text(text)
    ranks = launch(trainers, out, "--mirror", str(mirror))
    assert ranks.wait() == [0, 0], ranks.text()
    assert "from the mirror" in ranks.text()
    assert steps_of(out) == plain


def test_another_number_of_ranks_is_refused(trainers: Zygote, tmp_path: Path) -> None:
    launch(trainers, tmp_path / "run", "--stop-at", "6")
    ranks = launch(trainers, tmp_path / "run", count=1)
    assert ranks.wait() == [2]
    assert "DeepSpeed cannot load" in ranks.text() and "number of ranks" in ranks.text()


def test_the_run_itself_points_there() -> None:
    class Engine:
        def zero_optimization_stage(self) -> int:
            return 2

    with pytest.raises(UsageError, match=r"ZeRO stage 2 .*RgtDeepSpeed"):
        of_deepspeed(Engine())
