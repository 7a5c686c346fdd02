"""NCCL's own client is asked for a launch that stands, and for no other; whatever it answers costs little.

NCCL does not run here: a program in its place answers in the form that NVIDIA documents.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rgt_box.sampling import nccl_ras
from rgt_box.sampling.nccl_ras import RasWatch, ras_address_words, reduce_answer

from rgt_tui.handbook.collectives import of_ras_json

ME = os.getpid()
COUNTS = {"Broadcast": 3, "AllReduce": 64}


def row(rank: int, **over: Any) -> dict[str, Any]:
    base = {
        "rank": rank, "host": "10.0.0.1", "pid": ME + rank, "cuda_dev": rank, "nvml_dev": rank,
        "status": {"init_state": 0}, "collective_counts": COUNTS,
    }  # fmt: skip
    return base | over


def job(*ranks: dict[str, Any], size: int = 3, missing: Any = ()) -> dict[str, Any]:
    group = {"hash": "0x1", "size": size, "ranks": list(ranks), "missing_ranks": list(missing)}
    return {"nccl_version": "2.29.1", "communicators": [group], "ras": {"timeouts_count": 0}}


BEHIND = job(row(0), row(1, collective_counts=COUNTS | {"AllReduce": 60}), row(2))


class Ncclras:
    """A program in the place of NCCL's."""

    def __init__(self, folder: Path) -> None:
        self.answers, self.asked = folder / "answers", folder / "asked"
        path = folder / "bin" / "ncclras"
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\necho "$@" >> {self.asked}\n. {self.answers}\n')
        path.chmod(stat.S_IRWXU)

    def says(self, value: Any) -> None:
        self.answers.write_text(f"cat <<'EOF'\n{json.dumps(value, indent=2)}\nEOF\n")

    def times(self) -> int:
        return len(self.asked.read_text().splitlines()) if self.asked.exists() else 0


@pytest.fixture
def ncclras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncclras:
    made = Ncclras(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(nccl_ras, "has_nccl", lambda pid: True)
    monkeypatch.setattr(nccl_ras, "APART_S", 0.0)
    monkeypatch.setattr(
        nccl_ras, "TIMEOUT_S", 50.0
    )  # the child is nicer than all others: it may come late
    return made


@pytest.fixture
def look() -> Callable[..., dict[str, Any] | None]:
    child = nccl_ras.new_child()
    watch = RasWatch(child)

    def asked(stood: float = 40.0, where: tuple[str, ...] = ()) -> dict[str, Any] | None:
        return watch.poll_stuck_launch(stood, {ME: 0}, 3, where)

    asked.watch = watch  # type: ignore[attr-defined]
    return asked


def test_a_launch_that_stands_is_asked_twice_and_then_no_more(
    ncclras: Ncclras, look: Callable[..., dict[str, Any] | None]
) -> None:
    ncclras.says(BEHIND)
    assert look(20.0) is None
    assert ncclras.times() == 0  # it does not stand long enough
    assert look(where=("-h", "localhost", "-p", "9")) is None
    told = look()
    assert told is not None
    assert look() == told
    assert ncclras.asked.read_text().splitlines() == [
        "-f json -t 3 -h localhost -p 9",
        "-f json -t 3",
    ]
    (verdict,) = of_ras_json(told, twice=True)
    assert (verdict.ranks, verdict.confidence) == ((1,), 0.8)
    assert verdict.text.endswith("came to AllReduce operation 60, others to 64")
    assert look(0.0) is None  # it goes on: what was told is of earlier
    look()
    assert ncclras.times() == 3


def test_one_whose_counts_move_is_left_alone(
    ncclras: Ncclras, look: Callable[..., dict[str, Any] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ncclras.says(BEHIND)
    look()
    ncclras.says(job(row(0), row(1), row(2)))
    assert look() is None
    assert look() is None
    assert ncclras.times() == 2
    later = time.monotonic() + nccl_ras.REST + 1.0
    monkeypatch.setattr("time.monotonic", lambda: later)
    look()
    assert ncclras.times() == 3


@pytest.mark.parametrize(
    "said",
    [
        "exit 1",
        "echo no json",
        "cat /dev/zero",
        "yes '{\"a\":'",
        "sleep 100",
        "echo '{\"communicators\": [3]}'",
        "echo '{'",
    ],
)
def test_what_answers_with_nonsense_or_for_ever_is_asked_once(
    said: str,
    ncclras: Ncclras,
    look: Callable[..., dict[str, Any] | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ncclras.answers.write_text(f"{said}\n")
    if said in ("cat /dev/zero", "yes '{\"a\":'", "sleep 100"):
        monkeypatch.setattr(nccl_ras, "TIMEOUT_S", 6.0)  # these it has to end
    assert look() is None
    assert look() is None
    assert ncclras.times() == 1


def test_without_nccl_the_program_or_the_right_to_it_nothing_runs(
    ncclras: Ncclras,
    look: Callable[..., dict[str, Any] | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ncclras.says(BEHIND)
    (tmp_path / "bin").chmod(0o777)  # anybody may have put it there
    assert look() is None
    (tmp_path / "bin").chmod(0o700)
    watch = RasWatch(nccl_ras.new_child())
    assert (
        watch.poll_stuck_launch(40.0, {ME: 0, 1 << 30: 1}, 3, ()) is None
    )  # a process that is gone, or another user's
    monkeypatch.setattr(nccl_ras, "has_nccl", lambda pid: False)
    assert RasWatch(nccl_ras.new_child()).poll_stuck_launch(40.0, {ME: 0}, 3, ()) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert RasWatch(nccl_ras.new_child()).poll_stuck_launch(40.0, {ME: 0}, 3, ()) is None
    assert ncclras.times() == 0


def test_only_this_launch_is_told_and_a_rank_by_its_number_in_it() -> None:
    assert reduce_answer(BEHIND, {1: 0}, 3) == (None, None)  # another job
    assert reduce_answer(job(row(0), row(1), row(2)), {ME: 0}, 3)[0] is None  # all is well
    part = job(row(0), row(1, collective_counts={"AllReduce": 1}), size=2)
    told = reduce_answer(part, {ME: 4, ME + 1: 5}, 8)[0]
    assert told is not None
    assert {verdict.ranks for verdict in of_ras_json(told)} == {(5,)}
    far = job(row(0), row(1, host="10.0.0.2", collective_counts={"AllReduce": 1}), size=2)
    assert reduce_answer(far, {ME: 4, ME + 1: 5}, 8) == (None, None)
    lost = job(
        row(0), size=3, missing=[row(2, status={"considered_dead": True}, collective_counts=None)]
    )
    (verdict,) = of_ras_json(reduce_answer(lost, {ME: 0}, 3)[0] or {})
    assert verdict.ranks == (2,)
    assert "is taken for dead" in verdict.text


def test_what_is_told_of_a_large_job_is_little() -> None:
    names = {f"op{at}" + "x" * 999: at for at in range(50)}
    rows = [
        row(at, collective_counts={name: count + at for name, count in names.items()})
        for at in range(2000)
    ]
    told, _ = reduce_answer(
        job(*rows, size=2000, missing=[row(at) for at in range(2000)]), {ME: 0}, 2000
    )
    assert len(json.dumps(told)) < 40_000


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, []), ({"NCCL_RAS_ENABLE": "0"}, None),
        ({"NCCL_RAS_ADDR": "localhost:123"}, ["-h", "localhost", "-p", "123"]),
        ({"NCCL_RAS_ADDR": "[::1]:9"}, ["-h", "::1", "-p", "9"]), ({"NCCL_RAS_ADDR": "--help;x:1"}, []),
    ],
)  # fmt: skip
def test_where_nccl_listens(env: dict[str, str], words: list[str] | None) -> None:
    assert ras_address_words(env) == words


def test_a_process_without_nccl_is_known() -> None:
    assert nccl_ras.has_nccl(ME) is False
