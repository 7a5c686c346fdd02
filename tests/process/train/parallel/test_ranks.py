from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rgt_train import UsageError
from rgt_train.ranks import choose, launch, replicated
from rgt_train.ranks.launch import SingleRank
from rgt_train.ranks.torch_ranks import CollectiveCounter, absent_ranks_text, bind_device

from tests.process.box.harness import until
from tests.process.train.harness import Zygote
from tests.process.train.parallel import worker
from tests.process.train.parallel.forked import forked
from tests.process.train.parallel.launching import torchrun


def results(folder: Path, count: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]


def pids(folder: Path, count: int) -> list[int]:
    files = [folder / f"pid-{rank}" for rank in range(count)]
    until(lambda: all(file.exists() and file.read_text() for file in files), "all ranks")
    return [int(file.read_text()) for file in files]


def test_every_rank_gets_the_same_answers(trainers: Zygote, tmp_path: Path) -> None:
    for scenario in ("talk", "spawned"):
        ranks = forked(trainers, 2, worker.__file__, scenario, str(tmp_path))
        assert ranks.wait() == [0, 0], ranks.text()
        found = results(tmp_path, 2)
        assert [each["agreed"] for each in found] == [3, 3]
        assert found[0]["gathered"] == [{"rank": 0}, {"rank": 1}]
        assert found[1]["gathered"] is None
        assert [each["shared"] for each in found] == ["from 0", "from 0"]
        assert [each["all"] for each in found] == [[0, 1], [0, 1]]
        assert found[0]["nodes"] == 1
        if scenario == "talk":
            assert [each["local"] for each in found] == [0, 1]
        else:
            told = [(each["rank"], each["world"], each["writes"]) for each in found]
            assert told == [(0, 2, True), (1, 2, False)], (
                "a group of the program's own says who is who"
            )


def test_a_signal_to_one_of_four_stops_all_at_the_same_step(
    trainers: Zygote, tmp_path: Path
) -> None:
    ranks = forked(trainers, 4, worker.__file__, "stop", str(tmp_path))
    os.kill(pids(tmp_path, 4)[2], signal.SIGTERM)
    assert ranks.wait() == [0, 0, 0, 0], ranks.text()
    found = results(tmp_path, 4)
    assert len({each["stopped"] for each in found}) == 1
    assert [each["asked"] for each in found] == [None, None, "SIGTERM", None]


def test_a_rank_that_has_ended_or_does_not_come_is_named(trainers: Zygote, tmp_path: Path) -> None:
    ranks = forked(trainers, 2, worker.__file__, "lose", str(tmp_path))
    os.kill(pids(tmp_path, 2)[1], signal.SIGKILL)
    assert ranks.wait()[1] == -signal.SIGKILL
    error = json.loads((tmp_path / "rank-0.json").read_text())["error"]
    assert re.match(
        r"rank 0 of 2: (rank 1 has not come: ended|all had come, but one has ended)", error
    ), error
    assert "/gloo/" not in error, "no place in torch's sources"
    ranks = forked(trainers, 3, worker.__file__, "absent", str(tmp_path))
    for rank in (0, 2):
        ranks.each[rank].wait()
        error = json.loads((tmp_path / f"rank-{rank}.json").read_text())["error"]
        assert error.startswith(f"rank {rank} of 3: rank 1 has not come: ended, or busy"), error
    ranks.each[1].kill()


def test_ranks_do_not_outlive_a_killed_torchrun(tmp_path: Path) -> None:
    with torchrun(2, worker.__file__, "lose", str(tmp_path)) as process:
        found = pids(tmp_path, 2)
        process.kill()
        until(lambda: not any(alive(pid) for pid in found), "the end of the orphans")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("of", [replicated.hash_tensor, replicated.weighted_checksum])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8]
)
def test_every_flipped_bit_changes_the_fingerprint(
    dtype: torch.dtype, of: Callable[[torch.Tensor], int]
) -> None:
    torch.manual_seed(1)
    tensor = (torch.randn(37) * 10).to(dtype)
    before = of(tensor)
    raw = tensor.view(torch.uint8)
    for place in range(raw.numel()):
        for bit in range(8) if dtype is not torch.bool else range(1):
            raw[place] ^= 1 << bit
            assert of(tensor) != before, (place, bit)
            raw[place] ^= 1 << bit
    assert of(tensor) == before


@pytest.mark.parametrize("of", [replicated.hash_tensor, replicated.weighted_checksum])
def test_swapped_values_and_shapes_beyond_a_chunk(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[torch.Tensor], int]
) -> None:
    tensor = torch.arange(1000, dtype=torch.float32)
    whole = of(tensor)
    monkeypatch.setattr(replicated, "CHUNK", 64)
    assert of(tensor) == whole, "the size of a chunk does not matter"
    tensor[[3, 4]] = tensor[[4, 3]]
    assert of(tensor) != whole
    assert of(torch.empty(0)) == 0
    assert of(tensor.view(10, 100).t()) == of(tensor.view(10, 100).t().clone())


TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "9",
    "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip


SRUN = {
    "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NNODES": "2", "SLURM_STEP_ID": "0",
}  # fmt: skip


def test_torchrun_srun_and_nobody() -> None:
    own_store = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}
    assert launch.read_launch(own_store).restarts == 0, "elastic groups count them differently"
    found = launch.read_launch(TORCHRUN)
    assert (found.rank, found.world, found.local_rank, found.nodes, found.restarts) == (
        3,
        4,
        1,
        2,
        2,
    )
    found = launch.read_launch({**SRUN, "MASTER_PORT": "5"})
    assert (found.rank, found.world, found.nodes, found.launcher) == (1, 2, 2, "slurm")
    with pytest.raises(UsageError, match="MASTER_PORT is not set"):
        launch.read_launch(SRUN)
    assert launch.read_launch({}) == launch.LaunchedProcess()
    assert (
        launch.read_launch({**SRUN, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}).launcher == "alone"
    )


@pytest.mark.parametrize("step", [None, "4294967291"])
def test_the_script_of_a_batch_job_is_alone_whatever_the_job_has(
    step: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**SRUN, "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_ID": step or ""}
    assert launch.read_launch(env) == launch.LaunchedProcess()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert isinstance(choose.choose_ranks(None), SingleRank)


def test_nobody_joins_others_for_being_a_task_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert isinstance(choose.choose_ranks(None), SingleRank), (
        "tasks may be runs of their own; distributed() joins them"
    )


def test_a_process_group_says_who_is_who() -> None:
    assert launch.launch_of_group(3, 4, TORCHRUN) == launch.read_launch(TORCHRUN)
    alone = launch.launch_of_group(1, 2, {})
    assert (alone.rank, alone.world, alone.launcher) == (1, 2, launch.GROUP)
    machines = {"RANK": "1", "WORLD_SIZE": "2"}
    assert launch.launch_of_group(11, 16, machines).rank == 11, "variables that count machines"
    with pytest.raises(
        UsageError, match=r"rank 3 of 4, the process group that was made says rank 0 of 1"
    ):
        launch.launch_of_group(0, 1, TORCHRUN)


def test_the_roll_call_names_who_has_not_come() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    calls = [CollectiveCounter(store, "0/run", rank, 4) for rank in range(4)]
    for rank in (0, 1, 3):
        calls[rank].record_arrival()
    assert calls[0].find_absent(0) == [2]
    calls[0].record_arrival()
    assert calls[0].find_absent(0) == [1, 2, 3]
    assert calls[1].find_absent(0) == [2], "one that is further has come"
    assert absent_ranks_text([1, 2, 3], 9).startswith("ranks 1, 2 and 3 have not come")
    for call in calls[1:]:
        call.record_arrival()
    calls[2].record_arrival()
    assert calls[0].find_absent(0) == []
    assert absent_ranks_text(calls[0].find_absent(0), 9).startswith("all had come")
    assert absent_ranks_text(None, 9).startswith("nobody answers")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"RANK": "4"}, "rank 4 of 4"),
        ({"MASTER_PORT": ""}, "MASTER_PORT"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE"),
    ],
)
def test_variables_that_make_no_sense_are_named(change: dict[str, str], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        launch.read_launch(TORCHRUN | change)


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bind_device(5) == torch.device("cpu"), "no GPU at all: the CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="LOCAL_RANK is 2, but this machine has 2 GPUs"):
        bind_device(2)
