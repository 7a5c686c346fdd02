"""A history that the versions before wrote is brought up with everything that it holds."""

from __future__ import annotations

import gzip
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.store import HistoryFile, ProviderSum, minute_means
from rgt_tui.store.database import VERSION, Damaged, connect
from rgt_tui.store.spending import take_sum
from tests.contract.store.worlds import batch, spec

NOW = 1_790_000_000.0
FIXTURE = Path(__file__).parents[2] / "fixtures" / "history" / "version-3.db.gz"
"""Written by the code of version 3 in UTC: an hour watched three days ago, nothing then, and most of an hour today."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    path = tmp_path / "history.db"
    path.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
    yield path
    monkeypatch.undo()
    time.tzset()


def opened(path: Path) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: NOW, fleet="/fleet.toml")
    file.adopt([spec("a"), spec("b")])
    return file


def test_nothing_that_is_shown_is_lost(old: Path) -> None:
    file = opened(old)
    found = file.recall()
    assert len(found["a"].runs[0].series["loss"]) == 120
    assert list(found["b"].runs[0].series["loss"]) == [(step, 1 / (step + 1)) for step in range(600)]
    assert [(each.step, each.index) for each in found["b"].runs[0].resumes] == [(300, 300)]
    assert found["b"].runs[0].cursors["/out/long/metrics.jsonl"].offset == 60_000
    assert found["a"].past.names == ("util", "disk:/")
    assert found["a"].past.values == ((50.0, 12.5), (50.0, 12.5))
    assert found["a"].meter.spent == 5.0
    assert [event.text for event in file.events(99)] == [f"event {number}" for number in range(12)]
    spend = file.spend()
    assert dict(spend.month)["USD"] == pytest.approx(103.73333333333333)
    assert dict(spend.today)["USD"] == pytest.approx(21.092431561996776)
    assert dict(spend.yesterday)["USD"] == pytest.approx(34.08695652173913)
    assert dict(spend.idle_today)["USD"] == pytest.approx(1.0)
    assert spend.at_least == ()
    file.close()


def test_it_goes_on_where_the_older_one_ended(old: Path) -> None:
    file = opened(old)
    file.commit(batch(["a"], 12, at=NOW))
    assert len(file.recall()["a"].runs[0].series["loss"]) == 130
    file.close()
    con = connect(old)
    assert con.execute("PRAGMA user_version").fetchone() == (VERSION,)
    before = dict(opened(old).spend().today)["USD"]
    # An hour after the last reading of the sum, 12 watched minutes of which are counted already.
    take_sum(con, 1, ProviderSum("USD", NOW - 3 * 86400, NOW + 1800, 105.0))
    con.close()
    minutes_counted = 13 * 2.0 / 60
    assert dict(opened(old).spend().today)["USD"] == pytest.approx(before + 2.0 - minutes_counted)


def test_the_older_file_stays_beside_it(old: Path) -> None:
    before = old.read_bytes()
    inode = old.stat().st_ino
    opened(old).recall()
    aside = old.with_name("history.db.version-3")
    assert aside.stat().st_ino == inode
    con = sqlite3.connect(aside)
    assert con.execute("SELECT count(*) FROM minutes").fetchone()[0] > 50
    con.close()
    assert len(before) == aside.stat().st_size
    assert old.stat().st_ino != inode  # by this an older rgt that has it open sees that it was replaced


def test_readings_by_the_minute_come_along(old: Path) -> None:
    con = connect(old)
    count = 0
    for width, chunk in con.execute("SELECT width, chunk FROM samples WHERE width = 60").fetchall():
        slots = minute_means.load(con, (1, width, chunk))
        assert all(each == (60, {"util": 50.0, "disk:/": 12.5}) for each in slots.values())
        count += len(slots)
    con.close()
    assert count == 12


@pytest.mark.parametrize("version", [1, 2])
def test_versions_that_lacked_tables_come_along_too(old: Path, version: int) -> None:
    con = sqlite3.connect(old)
    for table in ("audit", "fleets", "events")[: 3 if version == 1 else 2]:
        con.execute(f"DROP TABLE {table}")
    con.execute(f"PRAGMA user_version = {version}")
    con.commit()
    con.close()
    file = opened(old)
    assert set(file.recall()) == {"a", "b"}
    assert dict(file.spend().month)["USD"] == pytest.approx(103.73333333333333)
    assert old.with_name(f"history.db.version-{version}").exists()
    file.close()


def test_a_damaged_older_file_is_damaged_and_stays(old: Path) -> None:
    whole = old.read_bytes()
    old.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Damaged):
        connect(old)
    assert old.read_bytes() == whole[: len(whole) // 2]
    assert opened(old).restore() is not None
