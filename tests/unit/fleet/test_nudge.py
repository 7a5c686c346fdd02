"""A wait that can be ended early."""

from __future__ import annotations

import asyncio

from rgt_tui.fleet.nudge import Nudge


async def test_a_nudge_ends_the_wait_and_is_forgotten() -> None:
    nudge = Nudge()
    waiting = asyncio.create_task(nudge.wait(3600))
    await asyncio.sleep(0)
    nudge.give()
    async with asyncio.timeout(90):
        await waiting
    again = asyncio.create_task(nudge.wait(3600))
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


async def test_one_that_comes_before_the_wait_counts_unless_it_is_taken_back() -> None:
    nudge = Nudge()
    nudge.give()
    async with asyncio.timeout(90):
        await nudge.wait()
    nudge.give()
    nudge.forget()
    waiting = asyncio.create_task(nudge.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_the_wait_ends_by_itself() -> None:
    async with asyncio.timeout(90):
        await Nudge().wait(0.001)
