"""Work that must not end in silence."""

from __future__ import annotations

import asyncio

import pytest

from rgt_tui.fleet.guarded import guarded


class Work:
    """Fails as often as it is told to, then waits to be cancelled."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.begun = 0
        self.waits = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        if self.faults:
            raise self.faults.pop(0)
        self.waits.set()
        await asyncio.Event().wait()


async def test_work_that_fails_is_said_once_and_begins_again() -> None:
    said: list[tuple[str, str]] = []

    def say(text: str, level: str) -> None:
        said.append((text, level))

    work = Work(OSError("no room"), OSError("no room"), ValueError("\x1b[31mred"))
    running = asyncio.create_task(guarded("counting", work.run, say, again=0.0))
    async with asyncio.timeout(30):
        await work.waits.wait()
    assert work.begun == 4
    assert said == [
        ("counting failed: OSError: no room; this is a fault of rgt; it begins again", "error"),
        ("counting failed: ValueError: red; this is a fault of rgt; it begins again", "error"),
    ]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_who_is_told_does_not_end_it_and_work_that_is_done_ends() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise ValueError

    def say(text: str, level: str) -> None:
        raise OSError

    await guarded("counting", work, say, again=0.0)
    assert done == [0, 1]
