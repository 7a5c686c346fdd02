"""The history as the fleet has it: its thread, and what it says when something is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import Wanted
from rgt_tui.store import Batch, History, HistoryError, HistoryFile, Mean
from rgt_tui.store.database import VERSION, connect
from rgt_tui.store.history_file import LeftOut
from tests.contract.store.worlds import batch, spec

A = [spec("a")]
replace = msgspec.structs.replace


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    history = History(tmp_path / "history.db")
    yield history
    await history.close()


async def recalled(history: History) -> int:
    """How many points of a curve are there, once everything that was put before is."""
    found = await history.recall(A)
    return len(found["a"].runs[0].series["loss"]) if "a" in found else 0


async def test_what_is_put_is_there_and_spend_is_known(history: History) -> None:
    assert await recalled(history) == 0
    assert history.spend is None
    history.put(batch(["a"], 3))
    assert await recalled(history) == 40
    assert history.spend is not None
    assert history.news() == ()


async def test_closing_writes_what_is_pending(tmp_path: Path) -> None:
    history = History(tmp_path / "history.db")
    await history.recall(A)
    for number in range(5):
        history.put(batch(["a"], number))
    await history.close()
    assert await recalled(History(tmp_path / "history.db")) == 50


async def test_damage_is_found_said_and_survived(history: History) -> None:
    history.path.write_bytes(b"no database " * 1000)
    assert await recalled(history) == 0
    (event,) = history.news()
    assert event.level == "warn"
    assert "the history was damaged" in event.text
    assert ".damaged-" in event.text
    history.put(batch(["a"], 1))
    assert await recalled(history) == 20


async def test_a_newer_file_is_said_once_and_rgt_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    con = connect(path)
    con.execute("PRAGMA user_version = 999")
    con.close()
    before = path.read_bytes()
    history = History(path)
    with pytest.raises(HistoryError):
        await history.recall(A)
    for number in range(3):
        history.put(batch(["a"], number))
    with pytest.raises(HistoryError):
        await history.happened(Wanted(), None, 1)
    assert [event.text for event in history.news()] == [
        f"{path} was written by a newer rgt (version 999, this one knows {VERSION}); it is left as it is. "
        "Update rgt, or name another file by RGT_HISTORY"
    ]
    await history.close()
    assert path.read_bytes() == before


async def test_a_disk_that_refuses_is_said_once_and_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file where the directory should be")
    history = History(folder / "history.db", retry_seconds=0.0)
    for number in range(4):
        history.put(batch(["a"], number))
        with pytest.raises(HistoryError):
            await history.recall(A)
    (event,) = history.news()
    assert event.text.startswith("no history is kept for now: ")
    folder.unlink()
    history.put(batch(["a"], 4))
    assert await recalled(history) == 50
    assert [event.text for event in history.news()] == ["the history is being kept again"]
    await history.close()
    again = History(folder / "history.db")
    await again.recall(A)
    assert [event.text for event in (await again.happened(Wanted(), None, 99)).rows] == [
        f"event {number}" for number in range(5)
    ]


async def test_an_insane_number_of_one_box_is_said_once_and_keeps_nothing_from_being_kept(
    history: History,
) -> None:
    history.adopt([*A, spec("b")])
    for number in range(3):
        good = batch(["a", "b"], number)
        insane = Mean("a", 2**70, 5, {"util": 1.0})
        history.put({**good, "a": replace(good["a"], means=(insane,))})
        assert await recalled(history) == 10 * (number + 1)
    assert [event.text for event in history.news()] == [
        "a: its readings cannot be stored in the history and are left out: "
        "OverflowError: Python int too large to convert to SQLite INTEGER"
    ]
    assert len((await history.happened(Wanted(), None, 99)).rows) == 6
    assert list(history.path.parent.glob("*.damaged-*")) == []
    con = sqlite3.connect(history.path)
    kept = con.execute("SELECT DISTINCT box FROM samples").fetchall()
    con.close()
    assert kept == [(2,)]


async def test_a_batch_with_which_rgt_fails_is_given_up(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.adopt(A)
    works = HistoryFile.commit

    def commit(self: HistoryFile, one: Batch) -> tuple[LeftOut, ...]:
        if "a" in one and one["a"].events[0].text == "event 0":
            raise KeyError("a fault")
        return works(self, one)

    monkeypatch.setattr(HistoryFile, "commit", commit)
    history.put(batch(["a"], 0))
    await history.happened(Wanted(), None, 1)
    history.put(batch(["a"], 1))
    assert [event.text for event in (await history.happened(Wanted(), None, 9)).rows] == ["event 1"]
    assert [event.text for event in history.news()] == [
        "history: KeyError: 'a fault'",
        "the history is being kept again",
    ]


async def test_many_batches_behind_a_slow_disk_become_one(tmp_path: Path) -> None:
    history = History(tmp_path / "history.db")
    await history.recall(A)
    blocker = sqlite3.connect(history.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    for number in range(50):
        history.put(batch(["a"], number))
    blocker.execute("COMMIT")
    blocker.close()
    assert await recalled(history) == 500
    assert history.news() == ()
    await history.close()
