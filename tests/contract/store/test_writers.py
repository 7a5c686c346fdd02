"""Several rgt use one history: each box is written by one of them, and by another soon after that one has ended."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rgt_tui.fleet import HistoryRecorder
from rgt_tui.fleet.history import history_keeper
from rgt_tui.model import FleetState
from rgt_tui.store import FleetHistory, HistoryFile
from tests.contract.store.worlds import batch, events_of, spec, state

PATIENCE = 60.0
NOW = 1_790_000_000.0
ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from pathlib import Path
from rgt_tui.store import HistoryFile
from tests.contract.store.worlds import batch, spec
file = HistoryFile(Path(sys.argv[1]), clock=lambda: 1_790_000_000.0)
file.adopt_boxes([spec(name) for name in sys.argv[2:]])
file.commit_batch(batch(sys.argv[2:], 4, at=1_790_000_000.0))
print("written", flush=True)
sys.stdin.read()
"""


KEEPER = """
import asyncio, sys, time
from pathlib import Path
import msgspec
from rgt_tui.fleet import HistoryRecorder
from rgt_tui.model.fleet import FleetEvent, FleetState
from rgt_tui.store import FLEET, FleetHistory, BoxWrites
from tests.contract.store.worlds import state

class Numbered(FleetHistory):
    number = 0

    def put_batch(self, batch):
        self.number, begun = self.number + 1, time.monotonic()
        told = batch.get(FLEET, BoxWrites())
        event = FleetEvent(at=time.time(), box="a", text=f"{sys.argv[2]} {self.number}")
        super().put_batch({**batch, FLEET: msgspec.structs.replace(told, events=(*told.events, event))})
        print(self.number, begun, flush=True)

async def main():
    memory = HistoryRecorder(Numbered(Path(sys.argv[1])), seconds=0.02)
    before, points = state("a", points=100), 100
    while True:
        points += 1
        box = state("a", points=points)
        memory.published(FleetState((box,), at=time.time()), ((before, box),))
        before = box
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


class Keeper:
    """An rgt that keeps the history of box ``a`` batch by batch; in each an event with its name and the number."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        words = [sys.executable, "-c", KEEPER, str(path), name]
        self.process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for _ in range(3):  # it is well under way
            assert self.process.stdout.readline()

    def written(self) -> list[int]:
        """The numbers of its batches that are in the history."""
        file = opened(self._path, "a")
        try:
            told = [event.text.split() for event in events_of(file, 100_000) if event.box == "a"]
        finally:
            file.close()
        return [int(number) for name, number in told if name == self.name]

    def first_written(self) -> int:
        """The number of the first one, once it has written two."""
        deadline = time.monotonic() + PATIENCE
        while len(found := self.written()) < 2:
            assert time.monotonic() < deadline, f"{self.name} does not write"
            time.sleep(0.02)
        return found[0]

    def killed(self) -> dict[int, float]:
        """Kill it at once; returns when it began to put each of its batches, by its number."""
        self.process.kill()
        rest = self.process.communicate()[0].split("\n")[:-1]
        return {int(number): float(at) for number, at in map(str.split, rest)}


def test_whoever_is_killed_another_writes_from_its_next_batch_on(tmp_path: Path) -> None:
    """Killed while it writes, as it does most of the time here: no lock and no half-written batch is in the way."""
    assert history_keeper.KEEPER_PACES.batch_s <= 5.0
    path = tmp_path / "history.db"
    keeper, ended = Keeper(path, "rgt0"), 0.0
    try:
        for number in range(1, 6):
            took_over = keeper.first_written()
            with contextlib.ExitStack() as unless_kept:
                waiting = Keeper(path, f"rgt{number}")
                unless_kept.callback(waiting.killed)
                assert not waiting.written(), f"{keeper.name} lives"
                puts = keeper.killed()
                after = [each for each, at in puts.items() if at > ended]
                assert took_over <= min(after, default=took_over)
                written = keeper.written()
                assert written == list(range(took_over, written[-1] + 1)), (
                    "none is lost, none is doubled"
                )
                keeper, ended = waiting, time.monotonic()
                unless_kept.pop_all()
        assert keeper.first_written()
    finally:
        keeper.killed()


@contextmanager
def another_rgt(path: Path, *boxes: str) -> Iterator[subprocess.Popen[str]]:
    """Runs an rgt that writes these boxes until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), *boxes],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def opened(path: Path, *names: str) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: NOW)
    file.adopt_boxes([spec(name) for name in names])
    return file


def points(file: HistoryFile) -> dict[str, int]:
    return {name: len(box.runs[0].series["loss"]) for name, box in file.recall_states().items()}


def test_a_box_is_written_by_one_and_the_others_by_whoever_has_them(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with another_rgt(path, "a") as other:
        file = opened(path, "a", "b")
        assert points(file) == {"a": 50}
        spent = file.read_spend()
        file.commit_batch(batch(["a", "b"], 9, at=NOW))
        assert points(file) == {"a": 50, "b": 100}
        assert dict(file.read_spend().today)["USD"] == pytest.approx(
            2 * dict(spent.today)["USD"]
        )  # b's alone came
        assert [event.text for event in events_of(file, 9) if event.box == "a"] == ["event 4"]
        other.kill()
        other.wait()
        file.commit_batch(batch(["a", "b"], 10, at=NOW))
        assert points(file) == {"a": 110, "b": 110}
        file.close()


def test_who_leaves_lets_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    file = opened(path, "a")
    file.commit_batch(batch(["a"], 0, at=NOW))
    file.close()
    with another_rgt(path, "a"):
        assert points(opened(path, "a")) == {"a": 50}


async def test_another_rgt_takes_over_with_its_next_batch(tmp_path: Path) -> None:
    """Of which there is one every 4 s."""
    assert history_keeper.KEEPER_PACES.batch_s <= 5.0
    path = tmp_path / "history.db"
    box = state("a", points=700)
    kept = HistoryRecorder(FleetHistory(path), seconds=0.05)
    with another_rgt(path, "a") as other:
        kept.published(FleetState((box,), at=box.sample_at or 0.0), ((box, box),))
        await asyncio.sleep(0.3)
        assert points(opened(path, "a")) == {"a": 50}
        other.kill()
        other.wait()
        await kept.close()
    assert points(opened(path, "a")) == {"a": 700}
