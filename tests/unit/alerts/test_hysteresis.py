"""An alarm that does not flicker."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.alerts import Hysteresis


def after(machine: Hysteresis, *readings: tuple[float, float | None]) -> Hysteresis:
    for now, value in readings:
        machine = machine.step(value, now)
    return machine


def test_it_rises_at_once_without_a_wait() -> None:
    found = after(Hysteresis(90, 80), (1.0, 90.0))
    assert (found.raised, found.raised_at) == (True, 1.0)


def test_it_waits_as_long_as_asked() -> None:
    machine = Hysteresis(90, 80, 30)
    assert not after(machine, (0, 95.0), (29.9, 95.0)).raised
    assert after(machine, (0, 95.0), (30, 95.0)).raised


def test_a_dip_starts_the_wait_anew() -> None:
    machine = after(Hysteresis(90, 80, 30), (0, 95.0), (20, 89.0), (40, 95.0))
    assert not machine.raised
    assert machine.pending_since == 40


def test_between_the_limits_it_stays_as_it_is() -> None:
    assert after(Hysteresis(90, 80), (0, 95.0), (1, 85.0)).raised
    assert not after(Hysteresis(90, 80), (0, 85.0)).raised


def test_it_clears_below_the_lower_limit_only() -> None:
    assert after(Hysteresis(90, 80), (0, 95.0), (1, 80.0)).raised
    assert not after(Hysteresis(90, 80), (0, 95.0), (1, 79.9)).raised


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_no_reading_says_nothing(nothing: float | None) -> None:
    raised = after(Hysteresis(90, 80), (0, 95.0))
    assert raised.step(nothing, 1) is raised
    assert after(Hysteresis(90, 80, 30), (0, 95.0), (20, nothing), (30, 95.0)).raised


def test_limits_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ValueError, match="clear_below 95 is above raise_above 90"):
        Hysteresis(90, 95)


@given(st.lists(st.floats(80, 89.999), max_size=50))
def test_a_value_between_the_limits_never_changes_it(values: list[float]) -> None:
    up, down = Hysteresis(90, 80).step(95, 0), Hysteresis(90, 80)
    for i, value in enumerate(values):
        up, down = up.step(value, i), down.step(value, i)
    assert up.raised
    assert not down.raised
