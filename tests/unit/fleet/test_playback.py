"""The clock of a recording."""

from __future__ import annotations

import asyncio

import pytest

from rgt_tui.recordings import FULL
from rgt_tui.recordings.replay_fleet import PlaybackClock


class Real:
    """Our clock, turned by hand."""

    def __init__(self) -> None:
        self.at = 50.0

    def __call__(self) -> float:
        return self.at


async def test_it_runs_at_its_speed_and_not_ahead_of_what_is_to_be_shown() -> None:
    real = Real()
    clock = PlaybackClock(1000.0, 10.0, real)
    real.at += 1
    assert clock.now() == 1000.0  # nothing is known to come
    waiting = asyncio.create_task(clock.wait_until(1030.0))
    await asyncio.sleep(0)
    assert clock.now() == 1010.0
    clock.set_speed(2.0)
    real.at += 5
    assert clock.now() == 1020.0
    real.at += 100
    clock.set_speed(1.0)  # wakes it
    await waiting
    assert clock.now() == 1030.0


async def test_it_stands_still_while_it_is_held() -> None:
    real = Real()
    clock = PlaybackClock(1000.0, 1.0, real)
    waiting = asyncio.create_task(clock.wait_until(1005.0))
    await asyncio.sleep(0)
    real.at += 2
    clock.set_paused(True)
    real.at += 100
    assert (clock.now(), clock.is_paused, waiting.done()) == (1002.0, True, False)
    clock.set_paused(False)
    real.at += 2.5
    assert clock.now() == 1004.5
    real.at += 1
    clock.set_paused(False)
    await waiting


async def test_full_speed_waits_for_nothing_but_a_hold() -> None:
    clock = PlaybackClock(1000.0, FULL)
    await clock.wait_until(9999.0)
    assert clock.now() == 9999.0
    clock.set_paused(True)
    waiting = asyncio.create_task(clock.wait_until(10_000.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.set_paused(False)
    await waiting
    assert clock.now() == 10_000.0


async def test_what_is_past_is_reached_at_once() -> None:
    clock = PlaybackClock(1000.0, 1.0, Real())
    await clock.wait_until(900.0)
    assert clock.now() == 1000.0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_is_above_0(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        PlaybackClock(0.0, 1.0).set_speed(speed)
