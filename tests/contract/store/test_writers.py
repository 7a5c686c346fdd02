"""Several rgt use one history: each box is written by one of them, and by another soon after that one has ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rgt_tui.fleet import Memory
from rgt_tui.fleet.history import history_keeper
from rgt_tui.model.fleet import FleetState
from rgt_tui.store import History
from rgt_tui.store.history_file import HistoryFile
from tests.contract.store.worlds import batch, spec, state

NOW = 1_790_000_000.0
ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from pathlib import Path
from rgt_tui.store.history_file import HistoryFile
from tests.contract.store.worlds import batch, spec
file = HistoryFile(Path(sys.argv[1]), clock=lambda: 1_790_000_000.0)
file.adopt([spec(name) for name in sys.argv[2:]])
file.commit(batch(sys.argv[2:], 4, at=1_790_000_000.0))
print("written", flush=True)
sys.stdin.read()
"""


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
    file.adopt([spec(name) for name in names])
    return file


def points(file: HistoryFile) -> dict[str, int]:
    return {name: len(box.runs[0].series["loss"]) for name, box in file.recall().items()}


def test_a_box_is_written_by_one_and_the_others_by_whoever_has_them(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with another_rgt(path, "a") as other:
        file = opened(path, "a", "b")
        assert points(file) == {"a": 50}
        spent = file.spend()
        file.commit(batch(["a", "b"], 9, at=NOW))
        assert points(file) == {"a": 50, "b": 100}
        assert dict(file.spend().today)["USD"] == pytest.approx(
            2 * dict(spent.today)["USD"]
        )  # b's alone came
        assert [event.text for event in file.events(9) if event.box == "a"] == ["event 4"]
        other.kill()
        other.wait()
        file.commit(batch(["a", "b"], 10, at=NOW))
        assert points(file) == {"a": 110, "b": 110}
        file.close()


def test_who_leaves_lets_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    file = opened(path, "a")
    file.commit(batch(["a"], 0, at=NOW))
    file.close()
    with another_rgt(path, "a"):
        assert points(opened(path, "a")) == {"a": 50}


async def test_another_rgt_takes_over_with_its_next_batch(tmp_path: Path) -> None:
    """Of which there is one every 4 s."""
    assert history_keeper.BATCH_SECONDS <= 5.0
    path = tmp_path / "history.db"
    box = state("a", points=700)
    kept = Memory(History(path), seconds=0.05)
    with another_rgt(path, "a") as other:
        kept.published(FleetState((box,), at=box.sample_at or 0.0), ((box, box),))
        await asyncio.sleep(0.3)
        assert points(opened(path, "a")) == {"a": 50}
        other.kill()
        other.wait()
        await kept.close()
    assert points(opened(path, "a")) == {"a": 700}
