"""Sharded runs with parts of all kinds: averaged weights in parts, odd names, states that one rank cannot store."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import RunState, read_tensors
from rgt_train.data.position import Progress
from rgt_train.export import export_weights
from rgt_train.ranks import sharded_state
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.process.train.harness import Zygote, events
from tests.process.train.parallel import parts_worker
from tests.process.train.parallel.forked import forked


def noted(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(2)]


def test_averages_in_parts_come_back_and_one_rank_s_trouble_stops_nobody(
    trainers: Zygote, tmp_path: Path
) -> None:
    first = forked(trainers, 2, parts_worker.__file__, str(tmp_path), "1", "trouble")
    assert first.wait() == [0, 0], first.text()
    failed = {
        event["step"]: event["error"] for event in events(tmp_path / "run", "checkpoint-failed")
    }
    assert list(failed) == [4, 6], first.text()
    assert all("scaler/odd is a builtins.object" in error for error in failed.values())
    assert ["(found by rank 1)" in error for error in failed.values()] == [False, True]
    second = forked(trainers, 2, parts_worker.__file__, str(tmp_path), "2")
    left = noted(tmp_path, "final")
    assert second.wait() == [0, 0], second.text()
    assert noted(tmp_path, "came") == left, (
        "each rank's part of the averages, and its own statistics"
    )
    assert left[0]["own"] != left[1]["own"]
    assert noted(tmp_path, "final")[0]["held"] != left[0]["held"]
    said = export_weights(str(tmp_path / "run"), str(tmp_path / "w.safetensors"))
    assert "averaged weights of ranker with 1.running_mean, 1.running_var" in said
    weights = read_tensors(memoryview(bytearray((tmp_path / "w.safetensors").read_bytes())))
    export_weights(str(tmp_path / "run"), str(tmp_path / "raw.safetensors"), raw=True)
    raw = read_tensors(memoryview(bytearray((tmp_path / "raw.safetensors").read_bytes())))
    same = {name for name in raw if torch.equal(raw[name], weights[name])}
    assert same == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_a_signal_to_another_rank_ends_the_wait_for_the_disk(
    trainers: Zygote, tmp_path: Path
) -> None:
    ranks = forked(trainers, 2, parts_worker.__file__, str(tmp_path), "1", "full")
    ranks.each[0].wait_line("holding at step 7")
    ranks.each[1].signal(signal.SIGTERM)
    assert ranks.wait() == [75, 75], ranks.text()
    assert "a signal to another rank at step" in ranks.text()
    assert "could not be saved; a relaunch resumes from the last good checkpoint" in ranks.text()


def state_of(**models: torch.nn.Module) -> RunState:
    return RunState(models, {}, Progress(), {}, {}, world=2, rank=1)


def test_each_rank_s_statistics_are_kept_whatever_wraps_the_module() -> None:
    model = torch.nn.Sequential(checkpoint_wrapper(torch.nn.BatchNorm1d(3)), torch.nn.Linear(3, 1))
    tensors, _ = sharded_state.collect_values({"net": model}, {})
    found = sharded_state.take_state(state_of(net=model)).tensors
    own = {f"rank1/{name}" for name in tensors if "running" in name or "num_batches" in name}
    assert len(own) == 3
    assert own <= set(found)


@pytest.mark.parametrize("name", ["objects", "rank0", "a/b"])
def test_names_that_would_mix_tensors_up_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        sharded_state.check_part_names(state_of(**{name: torch.nn.Linear(1, 1)}))
    sharded_state.check_part_names(state_of(ranker=torch.nn.Linear(1, 1)))
