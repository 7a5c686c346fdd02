"""Calls that hang: given up, not begun a second time, and taken up again when they end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rgt_tui.health import ThreadRunner


async def test_what_it_returns_and_raises_comes_back() -> None:
    aside = ThreadRunner()
    assert await aside.run_in_thread(lambda: 7, 90) == 7
    with pytest.raises(ValueError, match="odd"):
        await aside.run_in_thread(lambda: int("odd"), 90)
    assert await aside.run_in_thread(threading.current_thread, 90) is not threading.current_thread()


async def test_what_hangs_is_given_up_and_nothing_begins_before_it_ends() -> None:
    aside, begins, ends, begun = ThreadRunner(), threading.Event(), threading.Event(), []

    def hang() -> None:
        begun.append(threading.current_thread())
        begins.set()
        ends.wait()

    with pytest.raises(TimeoutError):
        await aside.run_in_thread(hang, 0.01)
    with pytest.raises(TimeoutError, match="still hangs"):
        await aside.run_in_thread(hang, 90)
    assert await asyncio.to_thread(begins.wait, 90)
    assert len(begun) == 1
    assert begun[0].daemon, "the end of the program does not wait for it"
    ends.set()
    await asyncio.to_thread(begun[0].join)
    async with asyncio.timeout(90):
        while True:
            try:
                assert await aside.run_in_thread(lambda: 7, 90) == 7
                break
            except TimeoutError:
                await asyncio.sleep(0)


async def test_a_caller_that_is_cancelled_leaves_the_call_to_end_before_the_next() -> None:
    aside, ends, order = ThreadRunner(), threading.Event(), []

    def slow() -> None:
        ends.wait()
        order.append("first")

    first = asyncio.create_task(aside.run_in_thread(slow, 90))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(aside.run_in_thread(lambda: order.append("second"), 90))
    await asyncio.sleep(0)
    ends.set()
    await second
    assert order == ["first", "second"]
