"""Who holds a queue's lock is told by its words, which come a moment after the lock, and stay a moment longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from rgt_box import files, procstat
from rgt_box.queue import queue_state
from rgt_box.queue.queue_file import Job

GONE = {"pid": 2**22 + 1, "ticks": 1}
"""No kernel gives such a pid."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(str(tmp_path))


@pytest.fixture
def held(job: Job) -> files.FileLock:
    """The lock, just taken, with the words of a runner that is gone."""
    lock = files.FileLock(job.path("runner.lock"))
    assert lock.acquire()
    lock.write_owner(GONE)
    return lock


def me(**more: object) -> dict[str, object]:
    return {"pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid()), **more}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[float]]:
    """Let something happen the first time that it waits; returns how long it has waited each time."""

    def let(happen: Callable[[], object]) -> list[float]:
        waited: list[float] = []
        clock = [0.0]

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            clock[0] += seconds
            if len(waited) == 1:
                happen()

        monkeypatch.setattr(
            queue_state, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
        )
        return waited

    return let


Meanwhile = Callable[[Callable[[], object]], list[float]]


@pytest.mark.parametrize("ended", [True, False])
def test_a_runner_that_ends_while_its_state_is_read_is_not_gone(
    job: Job, held: files.FileLock, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    Path(job.path("queue.txt")).write_text("a.cfg train\n")
    cell = queue_state.new_cell(job, job.read_lines()[0][0])

    def write(state: str) -> None:
        files.write_json(job.path("state.json"), {"cells": [{**cell, "state": state}]})

    write("running")
    held.write_owner(me())
    load_state = queue_state.load_state

    def read_and_end(job: Job) -> dict[str, object]:
        found = load_state(job)
        if ended:
            write("done")
        held.release()
        return found

    monkeypatch.setattr(queue_state, "load_state", read_and_end)
    frame = queue_state.queue_frame(job, job.folder)
    assert [each["state"] for each in frame["cells"]] == ["done" if ended else "interrupted"]
    assert frame["runner_alive"] is False


@pytest.mark.parametrize(("words", "who"), [(me(), "runner"), (me(seal=True), "seal")])
def test_who_has_just_taken_it_says_so_in_a_moment(
    job: Job, held: files.FileLock, meanwhile: Meanwhile, words: dict[str, object], who: str
) -> None:
    waited = meanwhile(lambda: held.write_owner(words))
    assert queue_state.find_lock_owner(job) == who
    assert len(waited) == 1
    assert queue_state.is_runner_alive(job) == (who == "runner")
    assert queue_state.is_sealed(job) == (who == "seal")


def test_who_has_just_given_it_back_is_no_runner(
    job: Job, held: files.FileLock, meanwhile: Meanwhile
) -> None:
    waited = meanwhile(held.release)
    assert queue_state.find_lock_owner(job) == ""
    assert len(waited) == 1


def test_who_never_says_counts_as_a_runner_and_is_waited_for_once(
    job: Job, held: files.FileLock, meanwhile: Meanwhile
) -> None:
    waited = meanwhile(lambda: None)
    assert queue_state.find_lock_owner(job) == "runner"
    first = len(waited)
    assert sum(waited) == pytest.approx(queue_state.TELLS_WITHIN, abs=0.02)
    assert queue_state.find_lock_owner(job) == "runner"
    assert len(waited) == first
    held.write_owner(me(seal=True))
    assert queue_state.is_sealed(job)


def test_nobody_holds_a_queue_that_was_never_run(job: Job) -> None:
    assert queue_state.find_lock_owner(job) == ""
