"""A save is killed at each system call it makes on files, and each of them is refused: nothing published is lost."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.process.train.harness import Zygote
from tests.torture.train import drill, watched
from tests.torture.train.supervisor import KILL, Call
from tests.torture.train.syscalls import CHANGING
from tests.torture.train.watched import Nth, Watched, below

ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EIO)
FEWEST = 60
"""Calls that the save of a step and a best must at least have had: else the watching saw nothing."""


@pytest.fixture(autouse=True)
def kernel() -> None:
    watched.require()


def _fail(what: int, call: Call) -> int:
    return what


def drilled(trainers: Zygote, place: Path, out: Path, job: str, nth: Nth) -> int:
    """Run a save in which the calls on `out` are counted."""
    drill.prepare(out)
    return Watched(trainers, place, nth, job, str(out)).wait()


def each(full: bool, whats: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield (number of the call, what befalls it): each with each, or in the short form one for each call."""
    for number in range(1, 1000):
        for what in whats if full else (whats[number % len(whats)],):
            yield number, what


def test_killed_at_each(trainers: Zygote, quick_disk: Path, tmp_path: Path) -> None:
    out = quick_disk / "run"
    for number in range(1, 1000):
        nth = Nth(number, lambda call: below(call, out), lambda call: KILL)
        code = drilled(trainers, tmp_path, out, "save", nth)
        assert drill.look(out) is None, (
            f"killed at call {number}, {nth.seen[-1]}: {drill.look(out)}"
        )
        if not nth.hit:
            assert code == 0
            assert len(nth.seen) >= FEWEST, nth.seen
            print(f"{len(nth.seen)} calls, killed at each")
            return
        assert code == -signal.SIGKILL, nth.seen[-1]
        assert drill.save([str(out)]) == 0, "the next launch saves again"
        assert drill.look(out, (3,), (3,)) is None


@pytest.mark.full  # each call that a kill is tried at is in the test above
def test_refused_at_each(trainers: Zygote, quick_disk: Path, tmp_path: Path, full: bool) -> None:
    out = quick_disk / "run"
    done: set[int] = set()
    for number, what in each(full, ERRNOS):
        nth = Nth(
            number, lambda call: below(call, out) and call.name in CHANGING, partial(_fail, what)
        )
        code = drilled(trainers, tmp_path, out, "survive", nth)
        told = f"{errno.errorcode[what]} at call {number}, {nth.seen[-1]}"
        assert code in (0, drill.FAILED_WELL), f"{told}: ended with {code}"
        wrong = drill.look(out, (3, 4), (3, 4))
        assert wrong is None, f"{told}: {wrong}"
        done.add(code)
        if not nth.hit:
            assert len(nth.seen) >= FEWEST // 2, nth.seen
            print(f"{len(nth.seen)} calls that change something, each refused")
            break
    assert done == {0, drill.FAILED_WELL}, (
        "some failures end a save, those of what comes after it do not"
    )
