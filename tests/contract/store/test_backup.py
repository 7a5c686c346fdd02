"""A damaged history is set aside, and its daily backup takes its place; what is lost is named."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from rgt_tui.store import FleetHistory, HistoryFile
from rgt_tui.store.database import DATABASE, HistoryDamaged, RestoreResult, backup_of, connect
from tests.contract.store.worlds import batch, spec

NOON = time.mktime((2026, 9, 20, 12, 0, 0, 0, 0, -1))
A = [spec("a")]


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> HistoryFile:
    return opened(tmp_path / "state" / "history.db", clock)


def opened(path: Path, clock: Clock) -> HistoryFile:
    file = HistoryFile(path, clock=clock)
    file.adopt_boxes(A)
    return file


def points(file: HistoryFile) -> int:
    found = file.recall_states()
    return len(found["a"].runs[0].series["loss"]) if "a" in found else 0


def damage(path: Path) -> None:
    """Write nonsense over the pages of a table and of its neighbours."""
    con = sqlite3.connect(path)
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = con.execute("SELECT rootpage FROM sqlite_master WHERE name = 'curves'").fetchone()
    con.close()
    with path.open("r+b") as raw:
        raw.seek((page - 1) * 4096)
        raw.write(b"\xff" * 4096)


def test_a_backup_is_written_once_a_day_and_is_a_history_of_its_own(
    file: HistoryFile, clock: Clock
) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    assert file.run_upkeep() is None
    backup = backup_of(file.path)
    assert backup.stat().st_mode & 0o777 == 0o600
    assert backup.stat().st_mtime == clock.now
    file.commit_batch(batch(["a"], 1, at=clock.now))
    clock.now += DATABASE.backup_s - 1
    file.run_upkeep()
    assert points(opened(backup, clock)) == 10
    clock.now += 2
    file.run_upkeep(force=True)
    assert points(opened(backup, clock)) == 20
    clock.now -= (
        30 * 86400
    )  # a clock that was ahead when the last one was written is no reason to write no more
    file.commit_batch(batch(["a"], 2, at=clock.now))
    file.run_upkeep(force=True)
    assert points(opened(backup, clock)) == 30
    file.close()


def test_a_damaged_history_gives_way_to_its_backup(file: HistoryFile, clock: Clock) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep()
    clock.now += 7 * 3600
    file.commit_batch(batch(["a"], 1, at=clock.now))
    before = dict(file.read_spend().today)["USD"]
    file.close()
    damage(file.path)
    with pytest.raises(HistoryDamaged):
        file.recall_states()
    restored = file.restore_backup()
    assert restored == RestoreResult(
        file.path.with_name("history.db.damaged-20260920T190000"), clock.now - 7 * 3600
    )
    assert points(file) == 10
    assert file.path.stat().st_mode & 0o777 == 0o600
    spend = file.read_spend()
    assert dict(spend.today)["USD"] == pytest.approx(before / 2)
    assert spend.at_least == ("today", "month")
    file.commit_batch(batch(["a"], 1, at=clock.now))
    assert points(file) == 20
    file.close()


def test_without_a_backup_a_new_history_begins_and_all_sums_are_lower_bounds(
    file: HistoryFile, clock: Clock
) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.close()
    damage(file.path)
    restored = file.restore_backup()
    assert restored is not None
    assert restored.backup_at is None
    assert restored.aside.exists()
    assert file.recall_states() == {}
    file.commit_batch(batch(["a"], 1, at=clock.now))
    assert file.read_spend().at_least == ("today", "yesterday", "month")
    file.close()


@pytest.mark.parametrize("links", [True, False])
def test_a_crash_while_the_backup_is_restored_begins_no_new_history(
    file: HistoryFile, clock: Clock, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """At each step that changes a name, the file is there, so the next start restores again."""
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep()
    file.close()
    damage(file.path)
    seen: list[bool] = []
    rename = Path.rename

    def rename_if_present(source: Path, target: Path) -> Path:
        seen.append(file.path.exists())
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", rename_if_present)
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)
    restored = file.restore_backup()
    assert restored is not None
    assert restored.aside.exists()
    assert points(file) == 10
    assert len(seen) >= 2
    assert all(seen) == links, "without hard links there is an instant without a file"
    file.close()


def refuse_links(*_: object) -> None:
    raise OSError(1, "Operation not permitted")


def test_a_damaged_backup_is_not_gone_back_to(file: HistoryFile, clock: Clock) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep()
    file.close()
    damage(backup_of(file.path))
    restored = file.restore_backup()
    assert restored is not None
    assert restored.backup_at is None
    file.close()


def test_a_damaged_history_is_never_backed_up(file: HistoryFile, clock: Clock) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep()
    clock.now += DATABASE.backup_s
    whole = backup_of(file.path).read_bytes()
    damage(file.path)
    with pytest.raises(HistoryDamaged):
        file.run_upkeep()
    assert backup_of(file.path).read_bytes() == whole
    file.close()


def test_a_backup_that_cannot_be_written_is_said_and_the_history_goes_on(
    file: HistoryFile, clock: Clock
) -> None:
    file.commit_batch(batch(["a"], 0, at=clock.now))
    in_the_way = backup_of(file.path)
    in_the_way.mkdir()
    os.utime(in_the_way, (1.0, 1.0))
    trouble = file.run_upkeep()
    assert trouble is not None
    assert trouble.startswith("no backup of the history could be written: ")
    assert str(in_the_way) in trouble
    file.commit_batch(batch(["a"], 1, at=clock.now))
    assert points(file) == 20
    file.close()
    assert list(file.path.parent.glob("*.new")) == []


async def test_what_is_lost_is_named(tmp_path: Path, clock: Clock) -> None:
    file = opened(tmp_path / "history.db", clock)
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep()
    file.close()
    damage(file.path)
    clock.now += 7.5 * 3600
    history = FleetHistory(file.path, clock=clock)
    assert len((await history.recall_states(A))["a"].runs[0].series["loss"]) == 10
    (event,) = history.take_events()
    assert event.level == "warn"
    assert event.text.endswith(
        "it is in history.db.damaged-20260920T193000; the backup from 12:00 took its place; the 7.5 h since "
        "then are lost, so what they cost is a lower bound"
    )
    await history.close()


async def test_a_missing_backup_is_named(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "history.db").write_bytes(b"no database " * 1000)
    history = FleetHistory(tmp_path / "history.db", clock=clock)
    assert await history.recall_states(A) == {}
    (event,) = history.take_events()
    assert "there is no backup of it yet, so a new one begins" in event.text
    await history.close()


def test_a_provider_s_sum_brings_back_what_the_lost_hours_cost(
    file: HistoryFile, clock: Clock
) -> None:
    from rgt_tui.store import BoxWrites, ObservedCost, ProviderSum
    from rgt_tui.store.spending import day_of

    def told(amount: float, **more: object) -> dict[str, BoxWrites]:
        reading = ProviderSum("USD", NOON - 3600, clock.now, amount)
        return {"a": BoxWrites(sums=(reading,), **more)}  # type: ignore[arg-type]

    file.commit_batch(told(2.0))
    file.run_upkeep()
    clock.now += 3 * 3600
    file.commit_batch(
        told(8.0, costs=(ObservedCost(day_of(clock.now), "USD", 6.0, 0.0, 3 * 3600.0),))
    )
    assert dict(file.read_spend().today) == {"USD": pytest.approx(8.0)}
    file.close()
    damage(file.path)
    file.restore_backup()
    assert dict(file.read_spend().today) == {"USD": pytest.approx(2.0)}
    clock.now += 60
    file.commit_batch(told(8.1))
    assert dict(file.read_spend().today) == {"USD": pytest.approx(8.1)}
    file.close()


def test_a_history_that_is_made_is_sound(tmp_path: Path) -> None:
    con = connect(tmp_path / "history.db")
    assert con.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    con.close()
