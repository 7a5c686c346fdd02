"""The history as the fleet has it: its thread, and what it says when something is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import EventFilter
from rgt_tui.store import Batch, FleetHistory, HistoryError, HistoryFile, SlotMean
from rgt_tui.store.database import DATABASE, connect
from rgt_tui.store.history_file import UnstoredPart
from tests.contract.store.worlds import batch, spec

A = [spec("a")]
replace = msgspec.structs.replace


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[FleetHistory]:
    history = FleetHistory(tmp_path / "history.db")
    yield history
    await history.close()


async def recalled(history: FleetHistory) -> int:
    """How many points of a curve are there, once everything that was put before is."""
    found = await history.recall_states(A)
    return len(found["a"].runs[0].series["loss"]) if "a" in found else 0


async def test_what_is_put_is_there_and_spend_is_known(history: FleetHistory) -> None:
    assert await recalled(history) == 0
    assert history.spend is None
    history.put_batch(batch(["a"], 3))
    assert await recalled(history) == 40
    assert history.spend is not None
    assert history.take_events() == ()


async def test_closing_writes_what_is_pending(tmp_path: Path) -> None:
    history = FleetHistory(tmp_path / "history.db")
    await history.recall_states(A)
    for number in range(5):
        history.put_batch(batch(["a"], number))
    await history.close()
    assert await recalled(FleetHistory(tmp_path / "history.db")) == 50


async def test_damage_is_found_said_and_survived(history: FleetHistory) -> None:
    history.path.write_bytes(b"no database " * 1000)
    assert await recalled(history) == 0
    (event,) = history.take_events()
    assert event.level == "warn"
    assert "the history was damaged" in event.text
    assert ".damaged-" in event.text
    history.put_batch(batch(["a"], 1))
    assert await recalled(history) == 20


async def test_a_newer_file_is_said_once_and_rgt_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    con = connect(path)
    con.execute("PRAGMA user_version = 999")
    con.close()
    before = path.read_bytes()
    history = FleetHistory(path)
    with pytest.raises(HistoryError):
        await history.recall_states(A)
    for number in range(3):
        history.put_batch(batch(["a"], number))
    with pytest.raises(HistoryError):
        await history.read_event_page(EventFilter(), None, 1)
    assert [event.text for event in history.take_events()] == [
        f"{path} was written by a newer rgt (version 999, this one knows {DATABASE.version}); it is left as it is. "
        "Update rgt, or name another file by RGT_HISTORY"
    ]
    await history.close()
    assert path.read_bytes() == before


async def test_a_disk_that_refuses_is_said_once_and_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file where the directory should be")
    history = FleetHistory(folder / "history.db", retry_seconds=0.0)
    for number in range(4):
        history.put_batch(batch(["a"], number))
        with pytest.raises(HistoryError):
            await history.recall_states(A)
    (event,) = history.take_events()
    assert event.text.startswith("no history is kept for now: ")
    folder.unlink()
    history.put_batch(batch(["a"], 4))
    assert await recalled(history) == 50
    assert [event.text for event in history.take_events()] == ["the history is being kept again"]
    await history.close()
    again = FleetHistory(folder / "history.db")
    await again.recall_states(A)
    assert [
        event.text for event in (await again.read_event_page(EventFilter(), None, 99)).rows
    ] == [f"event {number}" for number in range(5)]


async def test_an_insane_number_of_one_box_is_said_once_and_keeps_nothing_from_being_kept(
    history: FleetHistory,
) -> None:
    history.adopt_boxes([*A, spec("b")])
    for number in range(3):
        good = batch(["a", "b"], number)
        insane = SlotMean("a", 2**70, 5, {"util": 1.0})
        history.put_batch({**good, "a": replace(good["a"], means=(insane,))})
        assert await recalled(history) == 10 * (number + 1)
    assert [event.text for event in history.take_events()] == [
        "a: its readings cannot be stored in the history and are left out: "
        "OverflowError: Python int too large to convert to SQLite INTEGER"
    ]
    assert len((await history.read_event_page(EventFilter(), None, 99)).rows) == 6
    assert list(history.path.parent.glob("*.damaged-*")) == []
    con = sqlite3.connect(history.path)
    kept = con.execute("SELECT DISTINCT box FROM samples").fetchall()
    con.close()
    assert kept == [(2,)]


async def test_a_batch_with_which_rgt_fails_is_given_up(
    history: FleetHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.adopt_boxes(A)
    works = HistoryFile.commit_batch

    def commit(self: HistoryFile, one: Batch) -> tuple[UnstoredPart, ...]:
        if "a" in one and one["a"].events[0].text == "event 0":
            raise KeyError("a fault")
        return works(self, one)

    monkeypatch.setattr(HistoryFile, "commit_batch", commit)
    history.put_batch(batch(["a"], 0))
    await history.read_event_page(EventFilter(), None, 1)
    history.put_batch(batch(["a"], 1))
    assert [
        event.text for event in (await history.read_event_page(EventFilter(), None, 9)).rows
    ] == ["event 1"]
    assert [event.text for event in history.take_events()] == [
        "history: KeyError: 'a fault'",
        "the history is being kept again",
    ]


async def test_many_batches_behind_a_slow_disk_become_one(tmp_path: Path) -> None:
    history = FleetHistory(tmp_path / "history.db")
    await history.recall_states(A)
    blocker = sqlite3.connect(history.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    for number in range(50):
        history.put_batch(batch(["a"], number))
    blocker.execute("COMMIT")
    blocker.close()
    assert await recalled(history) == 500
    assert history.take_events() == ()
    await history.close()
