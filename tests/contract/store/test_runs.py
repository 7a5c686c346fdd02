"""Runs in a real file: what comes back after a restart, and that nothing is then doubled or missing."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import FileCursor, RunState
from rgt_tui.store import saved_curves as curves
from rgt_tui.store.database import connect, transaction
from rgt_tui.store.saved_curves import KnownRun
from tests.contract.store.curve_world import Stream

FILE, FOUND = "/out/metrics.jsonl", "/out#loss"


class Disk:
    """The file as one process after the other has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.restart()

    def restart(self) -> dict[str, RunState]:
        self.con = connect(self.path)
        self.kept: dict[str, KnownRun] = {
            kept.run.name: kept for kept in curves.recall_runs(self.con, 1)
        }
        return {name: kept.run for name, kept in self.kept.items()}

    def save(self, run: RunState) -> None:
        with transaction(self.con):
            self.kept[run.name] = curves.save_run(
                self.con, 1, run, self.kept.get(run.name), self.now
            )


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "history.db")


def same(one: RunState, other: RunState) -> bool:
    """Whether two runs are the same, NaN being NaN. Only the cursor of a file outlives a restart."""
    plain = [
        (
            repr(msgspec.structs.replace(run, series={}, cursors=lasting(run))),
            {k: repr(list(v)) for k, v in run.series.items()},
        )
        for run in (one, other)
    ]
    return plain[0] == plain[1]


def lasting(run: RunState) -> dict[str, FileCursor]:
    return {source: cursor for source, cursor in run.cursors.items() if "#" not in source}


@pytest.mark.parametrize("source", [FILE, FOUND])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_a_run_a_restart_has_it_and_goes_on_exactly(
    disk: Disk, source: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "CHUNK", 16)
    rng = random.Random(seed)
    stream = Stream("r", source, rng)
    stream.grow(5)
    for _ in range(120):
        what = rng.random()
        if what < 0.6:
            stream.grow(rng.randrange(1, 40))
        elif what < 0.7:
            stream.grow(rng.randrange(1, 9), resume=True)
        elif what < 0.8 and source == FOUND:
            stream.correct(rng.randrange(1, 30))
        elif what < 0.82:
            stream.replace()
        elif what < 0.95:
            disk.save(stream.run)
            assert same(disk_view(disk), stream.run)
        else:
            recalled = disk.restart().get("r", RunState(name="r"))
            stream.catch_up(recalled)
            told = [(point.step, point.values["loss"]) for point in stream.file]
            assert repr(list(stream.run.series["loss"])) == repr(
                [(step, math.nan if value == "nan" else value) for step, value in told]
            )


def disk_view(disk: Disk) -> RunState:
    """What a restart would show now."""
    con = connect(disk.path)
    (kept,) = curves.recall_runs(con, 1)
    con.close()
    return kept.run


@pytest.mark.parametrize("source", [FILE, FOUND])
def test_a_long_run_is_thinned_keeps_its_extremes_and_goes_on(
    disk: Disk, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "EXACT", 400)
    monkeypatch.setattr(curves, "THINNED", 200)
    monkeypatch.setattr(curves, "CHUNK", 32)
    rng = random.Random(1)
    stream = Stream("r", source, rng)
    for number in range(60):
        stream.grow(50, resume=number % 20 == 19)
        if number % 3 == 0:
            disk.save(stream.run)
        if number == 30:
            disk.save(stream.run)
            stream.catch_up(disk.restart()["r"])
    disk.save(stream.run)
    stored = disk_view(disk)
    assert 200 <= len(stored.series["loss"]) <= 400 + 50 * 3
    everything = [value for _, value in stream.run.series["loss"] if math.isfinite(value)]
    kept = [value for _, value in stored.series["loss"] if math.isfinite(value)]
    assert (min(kept), max(kept)) == (min(everything), max(everything))
    assert list(stored.series["loss"])[-1] == list(stream.run.series["loss"])[-1]
    assert [resume.step for resume in stored.resumes] == [
        resume.step for resume in stream.run.resumes
    ]
    points = list(stored.series["loss"])
    for resume in stored.resumes:  # the place of a resume is followed through every thinning
        assert points[resume.index][0] >= resume.step
        assert points[resume.index - 1][0] >= points[resume.index][0]
    stream.catch_up(disk.restart()["r"])
    after = list(stream.run.series["loss"])
    if source == FOUND:  # it is told anew, whole
        assert len(after) == len(stream.file)
    else:
        assert repr(after) == repr(points)
    stream.grow(7)
    assert [step for step, _ in stream.run.series["loss"]][-7:] == [p.step for p in stream.file][
        -7:
    ]


def test_only_what_is_new_is_written(disk: Disk) -> None:
    stream = Stream("r", FILE, random.Random(2))
    stream.grow(5000)
    disk.save(stream.run)
    stream.grow(10)
    before = disk.con.total_changes
    disk.save(stream.run)
    assert disk.con.total_changes - before <= 4  # one chunk and the run, each replaced


def test_a_run_that_was_dropped_to_make_room_is_written_anew_as_a_whole(disk: Disk) -> None:
    stream = Stream("r", FILE, random.Random(3))
    stream.grow(100)
    disk.save(stream.run)
    disk.con.execute("DELETE FROM curves")
    disk.con.execute("DELETE FROM runs")
    stream.grow(100)
    disk.save(stream.run)
    assert same(disk_view(disk), stream.run)


def test_nan_and_infinity_come_back(disk: Disk) -> None:
    stream = Stream("r", FILE, random.Random(4))
    stream.grow(1)
    run = msgspec.structs.replace(stream.run, loss=math.nan, grad_norm=math.inf)
    disk.save(run)
    assert same(disk_view(disk), run)
