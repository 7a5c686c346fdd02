"""kill -9 of the writer, several writers at once, a full disk, a damaged page, a clock that jumps."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.model import BoxState
from rgt_tui.store import HistoryError, HistoryFile
from rgt_tui.store.database import (
    HistoryDamaged,
    HistoryUnavailable,
    backup_of,
    check_integrity,
    connect,
)
from rgt_tui.store.saved_curves import THINNED
from tests.contract.store.worlds import batch, events_of, spec
from tests.torture.store.hammer import START

ROOT = Path(__file__).resolve().parents[3]
KILLS = int(os.environ.get("RGT_KILLS", "20"))
PAGES = int(os.environ.get("RGT_PAGES", "30"))


def writer(path: Path, box: str, first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.torture.store.hammer",
            str(path),
            box,
            str(first),
            str(count),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def opened(path: Path, *names: str, at: float = START) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: at)
    file.adopt_boxes([spec(name) for name in names])
    return file


def points(found: dict[str, BoxState], name: str) -> int:
    return len(found[name].runs[0].series["loss"]) if name in found else 0


def test_a_writer_that_is_killed_at_any_moment_leaves_every_batch_it_had_finished(
    tmp_path: Path,
) -> None:
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
        check_integrity(con, path)
        con.close()
        file = opened(path, "a")
        number = len(events_of(file, 100_000))
        assert number in (said + 1, said + 2)  # the last one may have been done, and not yet said
        if 10 * number <= THINNED:  # a fast machine writes more than a curve keeps one by one
            assert points(file.recall_states(), "a") == 10 * number
        file.close()
    assert list(tmp_path.glob("*.damaged-*")) == []
    whole = connect(backup_of(path))  # whatever was being written when it was killed
    check_integrity(whole, backup_of(path))
    whole.close()


def test_processes_that_write_at_once_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    count = 120
    writers = [writer(path, name, 0, count) for name in ("a", "b", "both", "both")]
    for process in writers:
        out, _ = process.communicate(timeout=400)
        assert process.returncode == 0
        assert out.split() == [
            str(number) for number in range(count)
        ]  # no lock was seen by any of them
    file = opened(path, "a", "b", "both")
    found = file.recall_states()
    con = connect(path)
    for name in ("a", "b", "both"):
        assert len(found[name].runs[0].series["loss"]) == 10 * count
        (box,) = con.execute("SELECT id FROM boxes WHERE name = ?", (name,)).fetchone()
        (billed,) = con.execute("SELECT sum(billed) FROM days WHERE box = ?", (box,)).fetchone()
        if (
            name == "both"
        ):  # each tells the same time; who came second goes on where the first had ended
            assert count * 2.0 / 60 - 1e-9 <= billed < 2 * count * 2.0 / 60
        else:
            assert billed == pytest.approx(count * 2.0 / 60)
    con.close()
    assert len(events_of(file, 10_000)) == 3 * count
    assert list(tmp_path.glob("*.damaged-*")) == []
    file.close()


# A full disk.


def test_a_full_disk_is_trouble_that_passes_and_costs_nothing_that_was_written(
    small_disk: Callable[[str], Path],
) -> None:
    path = small_disk("512k") / "history.db"
    file = opened(path, "a")
    number = 0
    with pytest.raises(HistoryUnavailable, match="full"):
        while True:
            file.commit_batch(batch(["a"], number, at=START))
            number += 1
    assert number > 3
    with pytest.raises(HistoryUnavailable):
        file.commit_batch(batch(["a"], number, at=START))
    assert points(file.recall_states(), "a") == 10 * number
    small_disk("8m")
    file.commit_batch(batch(["a"], number, at=START))
    assert points(file.recall_states(), "a") == 10 * (number + 1)
    file.close()


def test_a_disk_that_is_full_from_the_start_is_trouble(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("512k")
    (disk / "filler").write_bytes(b"x" * (508 << 10))
    with pytest.raises(HistoryUnavailable):
        opened(disk / "history.db", "a").commit_batch(batch(["a"], 0, at=START))
    (disk / "filler").unlink()
    file = opened(disk / "history.db", "a")
    file.commit_batch(batch(["a"], 0, at=START))
    assert points(file.recall_states(), "a") == 10
    file.close()


# Damage.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history and its backup, of which it has five batches more."""
    path = tmp_path_factory.mktemp("sound") / "history.db"
    file = opened(path, "a", "b")
    for number in range(25):
        if number == 20:
            file.run_upkeep(force=True)
        file.commit_batch(batch(["a", "b"], number, at=START))
    file.close()
    con = sqlite3.connect(path)
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    con.close()
    return path


def copied(sound: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    shutil.copy2(backup_of(sound), folder)
    return Path(shutil.copy(sound, folder))


def test_a_damaged_page_is_found_and_the_backup_serves(sound: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    pages = sound.stat().st_size // 4096
    found = 0
    for number in range(PAGES):
        path = copied(sound, tmp_path / f"{number}")
        page = rng.randrange(pages) if number else 0
        with path.open("r+b") as raw:
            raw.seek(4096 * page)
            raw.write(rng.randbytes(4096))
        file = opened(path, "a", "b", at=START + 3600)
        try:
            file.recall_states()
            file.read_spend()
            events_of(file, 1000)
        except HistoryDamaged:
            found += 1
            restored = file.restore_backup()
            assert restored is not None
            assert restored.backup_at == START
            assert points(file.recall_states(), "a") == 200
            assert len(events_of(file, 1000)) == 40
            assert file.read_spend().at_least != ()
            file.commit_batch(batch(["a", "b"], 30, at=START))
            assert points(file.recall_states(), "a") == 310
        except HistoryError:
            pass  # refused, as a stranger's or a newer file: nothing was shown and nothing changed
        finally:
            file.close()
        shutil.rmtree(path.parent)
    assert found > PAGES / 2


@pytest.mark.parametrize("keep", [0, 1, 100, 4095, 4096, 20_000, 65_536])
def test_a_file_that_was_cut_off_is_found(sound: Path, tmp_path: Path, keep: int) -> None:
    path = copied(sound, tmp_path / "cut")
    os.truncate(path, keep)
    file = opened(path, "a", "b")
    if keep == 0:
        assert file.recall_states() == {}
        file.close()
        return
    with pytest.raises(HistoryDamaged):
        file.recall_states()
    assert file.restore_backup() is not None
    assert points(file.recall_states(), "a") == 200
    file.close()


def test_a_clock_that_jumps_loses_no_money_no_curve_and_no_backup(tmp_path: Path) -> None:
    now = [START]
    file = HistoryFile(tmp_path / "history.db", clock=lambda: now[0])
    file.adopt_boxes([spec("a")])
    rng = random.Random(5)
    count = 60
    for number in range(count):
        now[0] = START + rng.choice((0, 0, 0, 3600, -3600, 40 * 86400, -40 * 86400, 4e9))
        file.commit_batch(batch(["a"], number, at=now[0]))
        file.run_upkeep(force=True)
    con = connect(tmp_path / "history.db")
    assert con.execute("SELECT sum(billed) FROM days").fetchone()[0] == pytest.approx(
        count * 2.0 / 60
    )
    con.close()
    assert points(file.recall_states(), "a") == 10 * count
    backup = HistoryFile(backup_of(tmp_path / "history.db"), clock=lambda: START)
    backup.adopt_boxes([spec("a")])
    assert points(backup.recall_states(), "a") > 10 * (count - 10)
    backup.close()
    file.close()


def test_a_disk_that_is_too_full_for_the_backup_goes_on_with_the_history(
    small_disk: Callable[[str], Path],
) -> None:
    path = small_disk("700k") / "history.db"
    file = opened(path, "a")
    for number in range(3):
        file.commit_batch(batch(["a"], number, at=START))
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    (path.parent / "filler").write_bytes(b"x" * (free - (60 << 10)))
    trouble = file.run_upkeep(force=True)
    assert trouble is not None
    assert "full" in trouble
    file.commit_batch(batch(["a"], 3, at=START))
    assert points(file.recall_states(), "a") == 40
    assert sorted(each.name for each in path.parent.glob("*backup*")) == []
    file.close()
