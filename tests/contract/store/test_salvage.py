"""What a damaged history still gives, and in which order."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rgt_tui.store import minutes
from rgt_tui.store import salvage as module
from rgt_tui.store.batch import Batch
from rgt_tui.store.connect import connect
from rgt_tui.store.damage import set_aside
from rgt_tui.store.file import HistoryFile
from rgt_tui.store.salvage import Salvaged, salvage
from rgt_tui.store.spend import DAY, MINUTE, Minute
from rgt_tui.store.tables import CURVES, RUNS, SAMPLES, TABLES, Table
from tests.contract.store.worlds import batch, spec

NOW = 1_790_000_000.0
LATER = ("curves", "runs", "samples")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def opened(path: Path, *names: str) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: NOW)
    file.adopt([spec(name) for name in names])
    return file


def filled(path: Path) -> Path:
    """A history with something in every table, set aside."""
    log = path.with_name("audit.jsonl")
    log.write_text(
        '{"at": 1.0, "event": "requested", "box": "a", "verb": "park", "instance": "p", "text": "x"}\n'
    )
    file = HistoryFile(path, clock=lambda: NOW, audit=log)
    file.adopt([spec("a"), spec("b")])
    file.commit(batch(["a", "b"], 0, at=NOW - 9 * 86400))
    for number in range(5):
        file.commit(batch(["a", "b"], number, at=NOW))
    file.upkeep(force=True)
    file.close()
    aside = set_aside(path, None)
    assert aside is not None
    return aside


def counts(path: Path) -> dict[str, int]:
    con = sqlite3.connect(path)
    found = {t.name: int(con.execute(f"SELECT count(*) FROM {t.name}").fetchone()[0]) for t in TABLES}
    con.close()
    return found


def test_everything_of_a_sound_file_is_taken_over(path: Path) -> None:
    aside = filled(path)
    before = counts(aside)
    assert all(before.values())
    found = salvage(aside, path)
    assert counts(path) == before
    assert found == Salvaged(sum(before.values()), whole=True)
    file = opened(path, "a", "b")
    assert list(file.verify(force=True))
    assert len(file.recall()["a"].runs[0].series["loss"]) == 50
    file.close()


def test_what_is_dear_does_not_hang_on_the_time_that_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    aside = filled(path)
    before = counts(aside)
    found = salvage(aside, path)
    assert not found.whole
    after = counts(path)
    assert {name for name, count in after.items() if count == 0} == set(LATER)
    assert {name: count for name, count in after.items() if name not in LATER} == {
        name: count for name, count in before.items() if name not in LATER
    }
    file = opened(path, "a", "b")
    assert file.spend().month
    assert file.recall()["a"].meter.spent == 5.0
    assert list(file.verify(force=True))
    file.close()


def test_another_process_may_have_begun_the_new_file(path: Path) -> None:
    aside = filled(path)
    other = opened(path, "z", "b")  # z gets the number that was that of a
    other.commit(batch(["z"], 0, at=NOW))
    other.close()
    salvage(aside, path)
    file = opened(path, "a", "b", "z")
    found = file.recall()
    assert {name: len(found[name].runs[0].series["loss"]) for name in found} == {"a": 50, "b": 50, "z": 10}
    con = connect(path)
    billed = """SELECT name, sum(billed) FROM minutes JOIN boxes ON boxes.id = minutes.box GROUP BY name"""
    assert dict(con.execute(billed)) == {
        "a": pytest.approx(10 / 60), "b": pytest.approx(10 / 60), "z": pytest.approx(2 / 60)
    }  # fmt: skip
    con.close()
    assert list(file.verify(force=True))
    file.close()


@pytest.mark.parametrize("table", [RUNS, CURVES, SAMPLES])
def test_a_broken_row_costs_no_more_than_what_hangs_on_it(path: Path, table: Table) -> None:
    aside = filled(path)
    before = counts(aside)
    con = sqlite3.connect(aside)
    where = " AND ".join(
        f"{key} = (SELECT {key} FROM {table.name} LIMIT 1)" for key in table.columns[: table.key]
    )
    assert con.execute(f"UPDATE {table.name} SET crc = crc + 1 WHERE {where}").rowcount == 1
    con.commit()
    con.close()
    salvage(aside, path)
    after = counts(path)
    lost = {name: before[name] - after[name] for name in before if before[name] != after[name]}
    assert lost == ({"samples": 1} if table is SAMPLES else {"runs": 1, "curves": 2})


def test_a_lost_mark_of_what_is_closed_makes_nothing_count_twice(path: Path) -> None:
    """A provider's sum after five days away: the first of them are in their days' sums by then."""
    start = minutes.midnight(NOW)

    def reading(at: float, spent: float) -> Batch:
        minute = Minute(int(at // MINUTE), "USD", spent=spent, since=start, at=at)
        return Batch(minutes=(("a", minute),))

    clock = [start + 60.0]
    file = HistoryFile(path, clock=lambda: clock[0])
    file.adopt([spec("a")])
    file.commit(reading(start, 0.0))
    clock[0] += 5 * DAY
    file.upkeep(force=True)
    file.commit(reading(start + 5 * DAY, 120.0))
    file.close()
    aside = set_aside(path, None)
    assert aside is not None
    con = sqlite3.connect(aside)
    con.execute("UPDATE marks SET crc = crc + 1")
    con.commit()
    con.close()
    salvage(aside, path)
    clock[0] += 5 * DAY
    file.upkeep(force=True)
    file.close()
    con = sqlite3.connect(path)
    (billed,) = con.execute("SELECT sum(billed) FROM days").fetchone()
    con.close()
    assert billed == pytest.approx(120.0)
