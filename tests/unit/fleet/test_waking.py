"""Sleep and clocks that are set: told apart, and put right."""

from __future__ import annotations

import time

import pytest

from rgt_tui.fleet import ClockJump, ClockTimes, clock_jump, read_clocks, shift_state
from rgt_tui.model import BoxSpec, BoxState, LogView, RunState

START = ClockTimes(1000.0, 50.0, 70.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (ClockTimes(1002.0, 52.0, 72.0), None),
        (ClockTimes(1002.4, 52.0, 72.0), None),
        (ClockTimes(1030.0, 80.0, 100.0), None),  # the loop was busy
        (ClockTimes(4602.0, 52.0, 3672.0), ClockJump(slept=3600.0)),
        (ClockTimes(4602.0, 52.0, 72.0), ClockJump(moved=3600.0)),
        (ClockTimes(-2598.0, 52.0, 72.0), ClockJump(moved=-3600.0)),
        (ClockTimes(8202.0, 52.0, 3672.0), ClockJump(3600.0, 3600.0)),
    ],
)
def test_sleep_and_a_clock_that_was_set_are_told_apart(
    after: ClockTimes, expected: ClockJump | None
) -> None:
    assert clock_jump(START, after) == expected


def test_the_real_clocks_do_not_jump() -> None:
    """A process that is held up between two clocks reads them as of different moments: so it may look again."""
    assert any(
        clock_jump(read_clocks(time.time()), read_clocks(time.time())) is None for _ in range(3)
    )


def test_a_jump_is_said_in_words() -> None:
    assert ClockJump(slept=3600.0).event_text == "this computer slept for 1h00: connecting again"
    assert ClockJump(moved=3599.6).event_text == "this computer's clock went forward 1h00"
    assert ClockJump(moved=-183_600.0).event_text == "this computer's clock went back 2d 3h"
    assert ClockJump(moved=-7.0).event_text == "this computer's clock went back 7s"


def test_ages_stay_what_they_were_when_the_clock_is_set() -> None:
    now = 5000.0
    state = BoxState(
        spec=BoxSpec(name="a", host="h"),
        since=4000.0,
        sample_at=4990.0,
        clock_skew=2.0,
        retry_at=5010.0,
        runs=(RunState(name="r", progressed_at=4980.0), RunState(name="s")),
        logs=(LogView(path="/l", at=4970.0, written=4960.0), LogView(path="/m")),
    )
    moved = shift_state(state, 3600.0)
    now += 3600.0
    assert moved.sample_at is not None
    assert moved.retry_at is not None
    assert moved.runs[0].progressed_at is not None
    assert moved.logs[0].at is not None
    assert (now - moved.since, now - moved.sample_at, moved.retry_at - now) == (1000.0, 10.0, 10.0)
    assert (now - moved.runs[0].progressed_at, moved.runs[1].progressed_at) == (20.0, None)
    assert moved.logs[0].written is not None
    assert (now - moved.logs[0].at, now - moved.logs[0].written, moved.logs[1].written) == (
        30.0,
        40.0,
        None,
    )
    # The box's clock was not set: against ours it is now an hour behind.
    assert moved.clock_skew == 2.0 - 3600.0
    assert shift_state(state, 0.0) is state
