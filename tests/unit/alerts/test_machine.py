"""One alert's machine: it needs to last before it rises, and to be over for a while before it clears."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.health import GONE, REST, AlertMachine, AlertRung, Condition, Reading, advance_machine

TWO = (AlertRung("warn", 80.0, 77.0), AlertRung("error", 95.0, 92.0))


def kind(
    rungs: tuple[AlertRung, ...] = TWO,
    *,
    hold_s: float = 0.0,
    quiet_s: float = 0.0,
    below: bool = False,
    rises: bool = False,
) -> Condition:
    return Condition(
        "test", "Test", "test", lambda view: (), lambda *_: "text", rungs, "%", "do",
        hold_s=hold_s, quiet_s=quiet_s, below=below, rises=rises,
    )  # fmt: skip


def after(
    row: Condition, *values: float, dt: float = 1.0, machine: AlertMachine = REST
) -> AlertMachine:
    for value in values:
        machine = advance_machine(row, machine, Reading("", value), dt)
    return machine


@pytest.mark.parametrize(
    ("value", "rung"), [(79.9, 0), (80.0, 1), (94.9, 1), (95.0, 2), (math.inf, 2)]
)
def test_the_highest_rung_that_is_reached(value: float, rung: int) -> None:
    assert after(kind(), value).rung == rung


@pytest.mark.parametrize(
    ("values", "rung"),
    [
        ((80, 77), 1),
        ((80, 76.9), 0),
        ((96, 92), 2),
        ((96, 91), 1),
        ((96, 76), 0),
        ((79, 78), 0),
    ],
)
def test_between_the_limits_it_stays_as_it_is(values: tuple[float, ...], rung: int) -> None:
    assert after(kind(), *values).rung == rung


def test_small_values_are_the_bad_ones() -> None:
    row = kind((AlertRung("warn", 5.0, 10.0),), below=True)
    assert [after(row, *values).rung for values in [(5.0,), (5.1,), (5, 10), (5, 10.1)]] == [
        1,
        0,
        1,
        0,
    ]


def test_it_waits_as_long_as_asked() -> None:
    row = kind(hold_s=30)
    assert after(row, *[90.0] * 30).rung == 0  # the first reading begins the wait
    assert after(row, *[90.0] * 31).rung == 1


def test_a_dip_starts_the_wait_anew() -> None:
    row = kind(hold_s=30)
    assert after(row, *[90.0] * 25, 79.0, *[90.0] * 30).rung == 0


def test_it_is_quiet_for_a_while_before_it_clears() -> None:
    row = kind(quiet_s=10)
    machine = after(row, 90.0, *[50.0] * 9)
    assert machine.rung == 1
    assert after(row, 78.0, machine=machine).down_s == 0.0, "a relapse starts the wait anew"
    assert after(row, 50.0, machine=machine).rung == 0


def test_what_has_lasted_by_its_own_evidence_counts_at_first_sight_only() -> None:
    row = kind(hold_s=600)
    assert advance_machine(row, REST, Reading("", 90.0, age_s=600.0), 0.0).rung == 1
    pending = advance_machine(row, REST, Reading("", 90.0, age_s=10.0), 0.0)
    assert advance_machine(row, pending, Reading("", 90.0, age_s=3610.0), 1.0).rung == 0, (
        "a clock was set"
    )


def test_a_resource_that_is_gone_is_over() -> None:
    assert advance_machine(kind(), after(kind(), 96.0), GONE, 1.0).rung == 0
    low = kind((AlertRung("warn", 5.0, 10.0),), below=True)
    assert advance_machine(low, after(low, 1.0), GONE, 1.0).rung == 0


def test_a_count_rises() -> None:
    row = kind((AlertRung("error", 1.0, 1.0),), rises=True, quiet_s=10)
    first = after(row, 3.0)
    assert (first.rung, first.count) == (0, 3.0), "what was there before is no news"
    assert after(row, 3.0, machine=first) is first
    risen = after(row, 4.0, machine=first)
    assert risen.rung == 1
    assert after(row, *[4.0] * 9, machine=risen).rung == 1
    assert after(row, *[4.0] * 10, machine=risen).rung == 0
    assert after(row, *[4.0] * 9, 5.0, *[5.0] * 9, machine=risen).rung == 1
    assert after(row, 0.0, machine=first).rung == 0, "a reboot sets it back"
    assert after(row, 0.0, 1.0, machine=first).rung == 1


@pytest.mark.parametrize(("ago", "rung"), [(1.0, 1), (11.0, 0)])
def test_after_a_reboot_a_count_begins_anew(ago: float, rung: int) -> None:
    """What counts by the number of an event is small again: it is recent, or was there before."""
    row = kind((AlertRung("error", 1.0, 1.0),), rises=True, quiet_s=10)
    before = after(row, 500.0)
    assert advance_machine(row, before, GONE, 1.0) is REST
    fresh = Reading("", 20.0, age_s=ago)
    assert advance_machine(row, REST, fresh, 1.0).rung == rung
    assert advance_machine(row, before, fresh, 1.0).rung == rung, (
        "nobody looked while there was none"
    )


@pytest.mark.parametrize(("ago", "rung"), [(9.0, 1), (11.0, 0)])
def test_a_count_with_a_time_that_is_recent_counts_at_first_sight(ago: float, rung: int) -> None:
    row = kind((AlertRung("error", 1.0, 1.0),), rises=True, quiet_s=10)
    assert advance_machine(row, REST, Reading("", 3.0, age_s=ago), 0.0).rung == rung


NOISE = st.lists(st.floats(70.0, 100.0), min_size=1, max_size=300)


@given(NOISE, st.floats(1.0, 40.0))
def test_noise_raises_at_most_once_per_hold_time(values: list[float], hold_s: float) -> None:
    """A signal that crosses the limit at random, one reading a second."""
    row = kind((AlertRung("warn", 80.0, 77.0),), hold_s=hold_s)
    assert_apart(row, values, hold_s)


@given(NOISE, st.floats(1.0, 40.0))
def test_noise_raises_at_most_once_per_quiet_time(values: list[float], quiet_s: float) -> None:
    row = kind((AlertRung("warn", 80.0, 77.0),), quiet_s=quiet_s)
    assert_apart(row, values, quiet_s)


def assert_apart(row: Condition, values: list[float], seconds: float) -> None:
    machine, last = REST, None
    for now, value in enumerate(values):
        before, machine = machine, advance_machine(row, machine, Reading("", value), 1.0)
        if machine.rung and not before.rung:
            assert last is None or now - last >= seconds
            last = now


@given(st.lists(st.floats(77.0, 79.999), max_size=60))
def test_values_between_the_limits_never_change_it(values: list[float]) -> None:
    row = kind((AlertRung("warn", 80.0, 77.0),))
    assert after(row, 85.0, *values).rung == 1
    assert after(row, *values).rung == 0
