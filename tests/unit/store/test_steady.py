"""Whether the clock is believed."""

from __future__ import annotations

import pytest

from rgt_tui.store.steady import DOUBT_SECONDS, Steady

NOW = 1_790_000_000.0
DAY = 86400.0


class Clock:
    def __init__(self) -> None:
        self.at = 50.0

    def __call__(self) -> float:
        return self.at


def test_a_clock_that_runs_evenly_is_believed() -> None:
    clock = Clock()
    steady = Steady(clock)
    steady.opened(NOW, NOW - 600)
    for passed in range(0, 9000, 300):
        clock.at = 50.0 + passed
        assert steady.look(NOW + passed + passed % 7)


@pytest.mark.parametrize("moved", [4 * DAY, -4 * DAY, 3700.0])
def test_a_clock_that_was_set_is_doubted_until_it_has_stood_for_a_while(moved: float) -> None:
    clock = Clock()
    steady = Steady(clock)
    assert steady.look(NOW)
    assert not steady.look(NOW + moved)
    clock.at += DOUBT_SECONDS - 1
    assert not steady.look(NOW + moved + DOUBT_SECONDS - 1)
    clock.at += 2
    assert steady.look(NOW + moved + DOUBT_SECONDS + 1)
    assert not steady.look(NOW)


@pytest.mark.parametrize("newest", [NOW - 8 * DAY, NOW + 8 * DAY])
def test_a_file_that_is_far_away_makes_it_doubted(newest: float) -> None:
    clock = Clock()
    steady = Steady(clock)
    steady.opened(NOW, newest)
    assert not steady.look(NOW)
    clock.at += DOUBT_SECONDS
    assert steady.look(NOW + DOUBT_SECONDS)


def test_an_empty_file_says_nothing_of_it() -> None:
    steady = Steady(Clock())
    steady.opened(NOW, None)
    assert steady.look(NOW)
