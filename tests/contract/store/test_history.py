"""The history as the fleet has it: its thread, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model.fleet import FleetEvent
from rgt_tui.store import worker
from rgt_tui.store.batch import Batch
from rgt_tui.store.connect import connect
from rgt_tui.store.errors import HistoryError
from rgt_tui.store.file import HistoryFile
from rgt_tui.store.history import History
from rgt_tui.store.means import Mean
from rgt_tui.store.steps import VERSION
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


async def said(history: History, condition: Callable[[FleetEvent], bool]) -> FleetEvent:
    """Wait for something to be said."""
    async with asyncio.timeout(90):
        while True:
            for event in history.news():
                if condition(event):
                    return event
            await history.events(1) if history.path.exists() else await asyncio.sleep(0.01)


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


async def test_damage_that_nobody_reads_is_found_by_the_proof(history: History, tmp_path: Path) -> None:
    history.adopt(A)
    for number in range(3):
        history.put(batch(["a"], number))
    assert await recalled(history) == 30
    await history.close()
    con = sqlite3.connect(history.path)
    con.execute("UPDATE events SET text = 'event 7' WHERE text = 'event 1'")
    con.execute("DELETE FROM marks")
    con.commit()
    con.close()
    again = History(history.path)
    assert await recalled(again) == 30
    event = await said(again, lambda event: "damaged" in event.text)
    assert "rows of it were taken over" in event.text
    assert await recalled(again) == 30
    await again.close()


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
        await history.events(1)
    assert [event.text for event in history.news()] == [
        f"{path} was written by a newer rgt (version 999, this one knows {VERSION}); it is left as it is. "
        "Update rgt, or name another file by RGT_HISTORY"
    ]
    await history.close()
    assert path.read_bytes() == before


async def test_a_disk_that_refuses_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.0)
    folder = tmp_path / "state"
    folder.write_text("a file where the directory should be")
    history = History(folder / "history.db")
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
    assert len(await History(folder / "history.db").events(99)) == 0  # nobody adopted the box there
    again = History(folder / "history.db")
    await again.recall(A)
    assert [event.text for event in await again.events(99)] == [f"event {number}" for number in range(5)]


async def test_an_insane_number_of_one_box_is_said_once_and_keeps_nothing_from_being_kept(
    history: History,
) -> None:
    history.adopt([*A, spec("b")])
    for number in range(3):
        good = batch(["a", "b"], number)
        insane = Mean("a", good.means[0].slot - 100, 5, {"util": 1e39})
        history.put(replace(good, means=(*good.means, insane)))
        assert await recalled(history) == 10 * (number + 1)
    assert [event.text for event in history.news()] == [
        "of what a told, its means fit no history and are left out: "
        "OverflowError: float too large to pack with f format"
    ]
    assert len(await history.events(99)) == 6
    assert list(history.path.parent.glob("*.damaged-*")) == []
    con = sqlite3.connect(history.path)
    kept = con.execute("SELECT box, count(*) FROM samples WHERE width = 60 GROUP BY box").fetchall()
    con.close()
    assert kept == [(2, 3)]


async def test_a_batch_with_which_rgt_fails_is_given_up(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.adopt(A)
    works = HistoryFile.commit

    def commit(self: HistoryFile, one: Batch) -> None:
        if one.events[0].text == "event 0":
            raise KeyError("a fault")
        works(self, one)

    monkeypatch.setattr(HistoryFile, "commit", commit)
    history.put(batch(["a"], 0))
    await history.events(1)
    history.put(batch(["a"], 1))
    assert [event.text for event in await history.events(9)] == ["event 1"]
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
