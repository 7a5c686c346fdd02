"""Turns at connecting: so many at once, in order, and nobody holds one for long."""

from __future__ import annotations

import asyncio

from rgt_tui.fleet.turns import Turns


async def taking(turns: Turns, order: list[int], number: int) -> None:
    await turns.take()
    order.append(number)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_at_once_and_then_in_order() -> None:
    turns = Turns(2, hold=3600)
    first, second = await turns.take(), await turns.take()
    order: list[int] = []
    tasks = [asyncio.create_task(taking(turns, order, n)) for n in range(4)]
    await settle()
    assert order == []
    first.give()
    await settle()
    assert order == [0]
    second.give()
    await settle()
    assert order == [0, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_that_hangs_holds_nobody_up() -> None:
    turns = Turns(1, hold=0.01)
    hanging = await turns.take()
    async with asyncio.timeout(90):
        second = await turns.take()
    hanging.give()
    assert turns.free == 0, "what ended by itself was given back twice"
    second.give()
    assert turns.free == 1


async def test_a_turn_is_given_back_once() -> None:
    turns = Turns(1, hold=3600)
    turn = await turns.take()
    turn.give()
    turn.give()
    assert turns.free == 1


async def test_who_leaves_the_queue_takes_no_turn_along() -> None:
    turns = Turns(1, hold=3600)
    turn = await turns.take()
    order: list[int] = []
    leaving = asyncio.create_task(taking(turns, order, 1))
    staying = asyncio.create_task(taking(turns, order, 2))
    await settle()
    leaving.cancel()
    turn.give()
    await asyncio.gather(leaving, staying, return_exceptions=True)
    assert order == [2]


async def test_a_turn_given_to_one_who_is_just_leaving_goes_on_to_the_next() -> None:
    turns = Turns(1, hold=3600)
    turn = await turns.take()
    order: list[int] = []
    leaving = asyncio.create_task(taking(turns, order, 1))
    staying = asyncio.create_task(taking(turns, order, 2))
    await settle()
    turn.give()  # now it is the first one's …
    leaving.cancel()  # … who does not come to take it
    await asyncio.gather(leaving, staying, return_exceptions=True)
    assert order == [2]
