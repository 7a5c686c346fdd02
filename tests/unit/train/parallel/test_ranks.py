from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train.exits import UsageError
from rgt_train.parallel import fingerprint, launch
from rgt_train.parallel.torch_ranks import bind

from tests.unit.box.harness import until
from tests.unit.train.parallel import worker
from tests.unit.train.parallel.launching import torchrun


def results(folder: Path, count: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]


def pids(folder: Path, count: int) -> list[int]:
    files = [folder / f"pid-{rank}" for rank in range(count)]
    until(lambda: all(file.exists() and file.read_text() for file in files), "all ranks")
    return [int(file.read_text()) for file in files]


def test_every_rank_gets_the_same_answers(tmp_path: Path) -> None:
    with torchrun(2, worker.__file__, "talk", str(tmp_path)) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out.decode()
    found = results(tmp_path, 2)
    assert [each["agreed"] for each in found] == [3, 3]
    assert found[0]["gathered"] == [{"rank": 0}, {"rank": 1}]
    assert found[1]["gathered"] is None
    assert [each["shared"] for each in found] == ["from 0", "from 0"]
    assert [each["all"] for each in found] == [[0, 1], [0, 1]]
    assert [each["local"] for each in found] == [0, 1]
    assert found[0]["nodes"] == 1


def test_a_signal_to_one_of_four_stops_all_at_the_same_step(tmp_path: Path) -> None:
    with torchrun(4, worker.__file__, "stop", str(tmp_path)) as process:
        os.kill(pids(tmp_path, 4)[2], signal.SIGTERM)
        out, _ = process.communicate()
    assert process.returncode == 0, out.decode()
    found = results(tmp_path, 4)
    assert len({each["stopped"] for each in found}) == 1
    assert [each["asked"] for each in found] == [None, None, "SIGTERM", None]


def test_a_killed_rank_is_told_to_the_others_and_ends_them(tmp_path: Path) -> None:
    with torchrun(2, worker.__file__, "lose", str(tmp_path)) as process:
        killed = pids(tmp_path, 2)[1]
        os.kill(killed, signal.SIGKILL)
        out, _ = process.communicate()
    assert process.returncode != 0
    assert b"SIGKILL" in out or b"exitcode" in out
    path = tmp_path / "rank-0.json"
    if path.exists():  # torchrun may have ended it before it could write
        assert "another rank has ended" in json.loads(path.read_text())["error"]


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


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    with torchrun(2, worker.__file__, "absent", str(tmp_path), RGT_TEST_TIMEOUT="1.5") as process:
        process.communicate()
    error = json.loads((tmp_path / "rank-0.json").read_text())["error"]
    assert error.startswith("the save of step 7: ")
    assert "1" in error


def test_one_flipped_bit_on_one_rank_is_found_and_named(tmp_path: Path) -> None:
    with torchrun(2, worker.__file__, "prints", str(tmp_path)) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out.decode()
    for each in results(tmp_path, 2):
        assert each["same"] == []
        assert each["other"] == ["rank 1 has other bits than rank 0 in w"]
        assert each["late"] == ["rank 1 is at step 6, rank 0 at step 5"]


@pytest.mark.parametrize("of", [fingerprint.of_tensor, fingerprint.weighted])
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


@pytest.mark.parametrize("of", [fingerprint.of_tensor, fingerprint.weighted])
def test_swapped_values_and_shapes_beyond_a_chunk(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[torch.Tensor], int]
) -> None:
    tensor = torch.arange(1000, dtype=torch.float32)
    whole = of(tensor)
    monkeypatch.setattr(fingerprint, "CHUNK", 64)
    assert of(tensor) == whole, "the size of a chunk does not matter"
    tensor[[3, 4]] = tensor[[4, 3]]
    assert of(tensor) != whole
    assert of(torch.empty(0)) == 0
    assert of(tensor.view(10, 100).t()) == of(tensor.view(10, 100).t().clone())


TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "9",
    "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip


def test_torchrun_srun_and_nobody() -> None:
    found = launch.read(TORCHRUN)
    assert (found.rank, found.world, found.local_rank, found.nodes, found.restarts) == (3, 4, 1, 2, 2)
    srun = {
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "2",
        "MASTER_PORT": "5",
    }
    found = launch.read(srun)
    assert (found.rank, found.world, found.nodes, found.launcher) == (1, 2, 2, "slurm")
    assert launch.read({}) == launch.Launch()
    assert launch.read({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}).launcher == "alone"


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
        launch.read(TORCHRUN | change)


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bind(5) == torch.device("cpu"), "no GPU at all: the CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="LOCAL_RANK is 2, but this machine has 2 GPUs"):
        bind(2)


def test_a_free_port_can_be_bound() -> None:
    assert 1024 <= launch.free_port() <= 65535
