"""The threads of a trainer in a container with a CPU quota, where nobody has chosen a number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from rgt_train.ranks import choose, launch


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pretend a machine of 16 cores on which nothing is set; returns the numbers that are set."""
    chosen: list[int] = []
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # so that it is removed afterwards
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    return chosen


def test_the_quota_limits_the_threads_once(cores: list[int]) -> None:
    said = choose.limit_threads(4.5)
    assert said == (
        "OMP_NUM_THREADS is not set: 4 threads in place of 16, because the CPU quota of this "
        "container is 4.5 of 16 cores"
    )
    assert cores == [4] and os.environ["OMP_NUM_THREADS"] == "4"
    assert choose.limit_threads(4.5) == ""


def test_ranks_share_the_quota(cores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert "1 threads" in choose.limit_threads(6.0)
    assert cores == [1]


def test_a_number_that_was_chosen_stays(cores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose.limit_threads(float("inf")) == choose.limit_threads(16.0) == ""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 12)  # by torch.set_num_threads
    assert choose.limit_threads(4.0) == ""
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    assert choose.limit_threads(4.0) == "" and cores == []


@pytest.mark.parametrize(
    ("files", "groups", "quota"),
    [
        ({"cpu.max": "250000 100000\n"}, "0::/\n", 2.5),
        ({"cpu.max": "max 100000\n"}, "0::/\n", float("inf")),
        ({"cpu.max": "400000 100000\n"}, "0::/kubepods/pod7\n", 4.0),
        (
            {
                "cpu.max": "max 100000\n",
                "a/cpu.max": "300000 100000\n",
                "a/b/cpu.max": "max 100000\n",
            },
            "0::/a/b\n",
            3.0,
        ),
        (
            {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            "1:cpu:/\n",
            1.5,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", float("inf")),
        ({}, "", float("inf")),
    ],
)
def test_the_quota_of_the_control_groups(
    tmp_path: Path, files: dict[str, str], groups: str, quota: float
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "groups").write_text(groups)
    assert launch.read_cpu_quota(str(tmp_path), str(tmp_path / "groups")) == quota
