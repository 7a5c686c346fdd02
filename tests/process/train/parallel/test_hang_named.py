"""A hang of a real torchrun is named with the rank that holds the others up; what is only slow is not.

The processes, their states and their counters are real; only the clock of the agent is the test's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest
from rgt_box.sampling import rank_waits

from tests.process.train.parallel import hang_worker
from tests.process.train.parallel.launching import torchrun
from tests.process.train.parallel.watched import Watched, reading


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("hang")
    with torchrun(3, hang_worker.__file__, str(folder)) as process:
        seen = Watched(folder)
        try:
            seen.until(
                lambda: min(map(seen.step, range(3))) > 2 or process.poll() is not None,
                "the first steps",
            )
            assert process.poll() is None
            yield seen
        finally:
            seen.kill()


def test_the_ranks_are_known_and_a_run_that_advances_is_no_hang(watched: Watched) -> None:
    ranks = watched.look(10.0)
    assert sorted(ranks) == [0, 1, 2]
    assert {proc.dist.world for proc in ranks.values() if proc.dist} == {3}
    assert len({proc.dist.group for proc in ranks.values() if proc.dist}) == 1
    assert watched.findings_of_steps() == []


def test_a_rank_that_works_by_itself_while_the_others_wait_is_no_hang(watched: Watched) -> None:
    """An evaluation, or a checkpoint that one rank saves."""

    def alone() -> bool:
        pid = watched.look(40.0)[0].pid
        before = rank_waits.read_run_time(pid)
        watched.until(lambda: rank_waits.read_run_time(pid) != before, "it works")
        ranks = watched.look(40.0)
        return min(reading(ranks[1]), reading(ranks[2])) >= 40 > reading(ranks[0])

    watched.tell(0, "poll")
    watched.until(alone, "the others wait, and it works")
    assert watched.judged() == []
    watched.tell(0, "")
    before = watched.step(0)
    watched.until(lambda: watched.step(0) > before + 2, "it goes on")


def test_a_stopped_rank_is_named_with_the_way_out(watched: Watched) -> None:
    pid = watched.look(10.0)[1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        found = watched.hang(progress_age=90.0)
        assert watched.findings(progress_age=1.0) == []  # the curve goes on: it is no hang
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (found.gotcha, found.severity.value, found.action) == ("HANG1", "fatal", "ask-user")
    assert found.resource == f"rank 1 of 3 (pid {pid})"
    assert found.evidence.startswith(
        f"rank 1 (pid {pid}) is stopped by a signal (state T); ranks 0, 2 wait for it"
    )
    assert f"kill -CONT {pid}" in [fix.command for fix in found.fixes]
    assert watched.findings_of_steps() == [], "it goes on"


def test_a_rank_that_sleeps_in_python_is_named(watched: Watched) -> None:
    ranks = watched.look(10.0)
    watched.tell(2, "sleep")
    found = watched.hang()
    pid = ranks[2].pid
    assert (found.gotcha, found.action, found.confidence) == ("HANG2", "fix-code", 0.8)
    assert f"rank 2 (pid {pid}) sleeps (time.sleep or similar)" in found.evidence
    assert "ranks 0, 1 wait for it (futex" in found.evidence
    commands = [fix.command for fix in found.fixes]
    assert commands[1:3] == [f"py-spy dump --pid {pid}", f"py-spy dump --pid {ranks[0].pid}"]
    os.kill(pid, signal.SIGSTOP)  # and it is the same rank, now for another reason
    watched.until(lambda: watched.look(10.0)[2].state == "T", "it is stopped")
    assert [one.gotcha for one in watched.findings()] == ["HANG1"]


def test_what_a_sample_of_a_rank_costs_is_two_small_reads(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks nothing is read at all."""
    from rgt_box import procstat

    watched.look(10.0)
    asked: list[str] = []
    real = procstat.read_bytes

    def counted(path: str, limit: int = 65536) -> bytes | None:
        asked.append(path)
        return real(path, limit)

    monkeypatch.setattr("rgt_box.procstat.read_bytes", counted)
    raw = [msgspec.to_builtins(proc) for proc in watched.procs]
    watched._ranks.add_rank_readings(raw, watched._now + 1.0)
    assert asked == []
    watched._ranks.add_rank_readings(raw, watched._now + 10.0)
    assert len(asked) <= 3 * 3
