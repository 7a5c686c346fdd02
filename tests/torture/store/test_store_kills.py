"""kill -9 of the writer at any moment, two writers at once, a full disk, flipped bytes: never a lie, never a crash."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.model.box import BoxState
from rgt_tui.store.connect import connect, shape_of
from rgt_tui.store.curves import THINNED
from rgt_tui.store.errors import Damaged, HistoryError, Trouble
from rgt_tui.store.file import HistoryFile
from tests.contract.store.worlds import batch, spec
from tests.torture.store.hammer import START

ROOT = Path(__file__).resolve().parents[3]
KILLS = int(os.environ.get("RGT_KILLS", "20"))
FLIPS = int(os.environ.get("RGT_FLIPS", "90"))


def writer(path: Path, box: str, first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.torture.store.hammer", str(path), box, str(first), str(count)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def opened(path: Path, *names: str, at: float = START) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: at)
    file.adopt([spec(name) for name in names])
    return file


def points(found: dict[str, BoxState], name: str) -> int:
    return len(found[name].runs[0].series["loss"]) if name in found else 0


def test_a_writer_that_is_killed_at_any_moment_leaves_every_batch_it_had_finished(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    rng = random.Random(7)
    number = 0
    said = -1
    for _ in range(KILLS):
        process = writer(path, "a", number, 0)
        assert process.stdout is not None
        said = int(process.stdout.readline())  # it is at work
        time.sleep(rng.random() * 0.05)  # the moment is the point: any will do
        process.kill()
        rest = process.stdout.read().split("\n")
        said = max([said, *(int(line) for line in rest[:-1] if line)])
        process.wait()
        process.stdout.close()
        con = connect(path)
        assert shape_of(con, path) is None
        con.close()
        file = opened(path, "a")
        number = len(file.events(100_000))
        assert number in (said + 1, said + 2)  # the last one may have been done, and not yet said
        if 10 * number <= THINNED:  # a fast machine writes more than a curve keeps one by one
            assert points(file.recall(), "a") == 10 * number
        file.close()
    assert list(opened(path, "a").verify(force=True))
    assert list(tmp_path.glob("*.damaged-*")) == []


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    count = 120
    writers = [writer(path, name, 0, count) for name in ("a", "b", "both", "both")]
    for process in writers:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert out.split() == [str(number) for number in range(count)]  # no lock was seen by any of them
    file = opened(path, "a", "b", "both")
    found = file.recall()
    for name in ("a", "b", "both"):
        assert len(found[name].runs[0].series["loss"]) == 10 * count
        con = connect(path)
        (box,) = con.execute("SELECT id FROM boxes WHERE name = ?", (name,)).fetchone()
        billed = con.execute("SELECT sum(billed), count(*) FROM minutes WHERE box = ?", (box,)).fetchone()
        con.close()
        assert billed == (pytest.approx(count * 2.0 / 60), count)  # also where two saw the same minutes
    assert len(file.events(10_000)) == 3 * count
    assert list(file.verify(force=True))
    assert list(tmp_path.glob("*.damaged-*")) == []
    file.close()


# A full disk.


def test_a_full_disk_is_trouble_that_passes_and_costs_nothing_that_was_written(
    small_disk: Callable[[str], Path],
) -> None:
    path = small_disk("512k") / "history.db"
    file = opened(path, "a")
    number = 0
    with pytest.raises(Trouble, match="full"):
        while True:
            file.commit(batch(["a"], number, at=START))
            number += 1
    assert number > 3
    with pytest.raises(Trouble):
        file.commit(batch(["a"], number, at=START))
    assert points(file.recall(), "a") == 10 * number
    small_disk("8m")
    file.commit(batch(["a"], number, at=START))
    assert points(file.recall(), "a") == 10 * (number + 1)
    assert list(file.verify(force=True))
    file.close()


def test_a_disk_that_is_full_from_the_start_is_trouble(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("512k")
    (disk / "filler").write_bytes(b"x" * (508 << 10))
    with pytest.raises(Trouble):
        opened(disk / "history.db", "a").commit(batch(["a"], 0, at=START))
    (disk / "filler").unlink()
    file = opened(disk / "history.db", "a")
    file.commit(batch(["a"], 0, at=START))
    assert points(file.recall(), "a") == 10
    file.close()


# Flipped bytes.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "history.db"
    file = opened(path, "a", "b")
    for number in range(25):
        file.commit(batch(["a", "b"], number, at=START))
    file.upkeep(force=True)
    assert list(file.verify(force=True))
    file.close()
    con = sqlite3.connect(path)
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    con.close()
    return path


def everything(path: Path) -> list[object]:
    """All that rgt would show."""
    file = opened(path, "a", "b")
    try:
        assert list(file.verify(force=True))
        return [repr(file.recall()), [list(s) for s in curves(file)], file.spend(), file.events(1000)]
    finally:
        file.close()


def curves(file: HistoryFile) -> list[list[tuple[int, float]]]:
    return [
        list(series) for box in file.recall().values() for run in box.runs for series in run.series.values()
    ]


def test_a_flipped_byte_is_found_or_changes_nothing(sound: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    truth = everything(sound)
    size = sound.stat().st_size
    found = 0
    for number in range(FLIPS):
        path = tmp_path / f"{number}" / "history.db"
        path.parent.mkdir()
        shutil.copy(sound, path)
        with path.open("r+b") as raw:
            place = rng.randrange(size) if number % 3 else rng.randrange(4096)
            raw.seek(place)
            old = raw.read(1)[0]
            raw.seek(place)
            raw.write(bytes([old ^ (1 << rng.randrange(8))]))
        try:
            assert plain(everything(path)) == plain(truth), f"byte {place} of {size}"
        except Damaged:
            found += 1
            file = opened(path, "a", "b", at=START + 500)
            try:
                aside, _ = file.renew()
                assert aside is not None
                file.commit(batch(["a", "b"], 30, at=START))
                assert points(file.recall(), "a") == 310
                assert list(file.verify(force=True))
            finally:
                file.close()
        except HistoryError:
            pass  # refused, as a stranger's or a newer file: nothing was shown and nothing changed
        shutil.rmtree(path.parent)
    assert found > FLIPS / 4


def plain(values: list[object]) -> str:
    return re.sub(r" object at 0x[0-9a-f]+", "", repr(values))


@pytest.mark.parametrize("keep", [0, 1, 100, 4095, 4096, 20_000, 65_536])
def test_a_file_that_was_cut_off_is_found(sound: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "history.db"
    shutil.copy(sound, path)
    os.truncate(path, keep)
    file = opened(path, "a", "b")
    if keep == 0:
        assert file.recall() == {}
        file.close()
        return
    with pytest.raises(HistoryError):
        list(file.verify(force=True))
        file.recall()
    file.close()
