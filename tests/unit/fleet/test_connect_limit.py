"""So many boxes connect at once, in order, and nobody holds one for long."""

from __future__ import annotations

import asyncio

from rgt_tui.fleet import ConnectLimit


async def taking(limit: ConnectLimit, order: list[int], number: int) -> None:
    await limit.acquire_slot()
    order.append(number)


def free(limit: ConnectLimit) -> int:
    return limit._free._value


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_at_once_and_then_in_order() -> None:
    limit = ConnectLimit(2, hold=3600)
    first, second = await limit.acquire_slot(), await limit.acquire_slot()
    order: list[int] = []
    tasks = [asyncio.create_task(taking(limit, order, n)) for n in range(4)]
    await settle()
    assert order == []
    first.release()
    await settle()
    assert order == [0]
    second.release()
    await settle()
    assert order == [0, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_that_hangs_holds_nobody_up() -> None:
    limit = ConnectLimit(1, hold=0.01)
    hanging = await limit.acquire_slot()
    async with asyncio.timeout(90):
        second = await limit.acquire_slot()
    hanging.release()
    assert free(limit) == 0, "what ended by itself was given back twice"
    second.release()
    assert free(limit) == 1


async def test_a_slot_is_given_back_once() -> None:
    limit = ConnectLimit(1, hold=3600)
    slot = await limit.acquire_slot()
    slot.release()
    slot.release()
    assert free(limit) == 1


async def test_who_leaves_the_queue_takes_no_slot_along() -> None:
    limit = ConnectLimit(1, hold=3600)
    slot = await limit.acquire_slot()
    order: list[int] = []
    leaving = asyncio.create_task(taking(limit, order, 1))
    staying = asyncio.create_task(taking(limit, order, 2))
    await settle()
    leaving.cancel()
    slot.release()
    await asyncio.gather(leaving, staying, return_exceptions=True)
    assert order == [2]


async def test_a_slot_given_to_one_who_is_just_leaving_goes_on_to_the_next() -> None:
    limit = ConnectLimit(1, hold=3600)
    slot = await limit.acquire_slot()
    order: list[int] = []
    leaving = asyncio.create_task(taking(limit, order, 1))
    staying = asyncio.create_task(taking(limit, order, 2))
    await settle()
    slot.release()  # now it is the first one's …
    leaving.cancel()  # … who does not come to take it
    await asyncio.gather(leaving, staying, return_exceptions=True)
    assert order == [2]
