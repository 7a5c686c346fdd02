"""The provider's books against price × time: a difference that lag does not explain is shown, with its beginning."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.fleet import METER_LIMITS, BookCheck, extend_book_check
from rgt_tui.model import Meter, MeterKind

NOW = 1_790_000_000.0
replace = msgspec.structs.replace


def reading(at: float, booked: float | None, rate: float = 1.0, **fields: object) -> Meter:
    meter = Meter(
        MeterKind.COMPUTE_AND_STORAGE, per_hour=rate, at=NOW + at, booked=booked, booked_at=NOW + at
    )
    return replace(meter, **fields)


def run(hours: float, booked_rate: float, rate: float = 1.0, lag: float = 0.0) -> Meter:
    """Read every minute; the books grow by `booked_rate` an hour, `lag` seconds late."""
    check: BookCheck | None = None
    meter = Meter()
    for minute in range(int(hours * 60) + 1):
        at = minute * 60.0
        check, meter = extend_book_check(
            check, reading(at, 5.0 + booked_rate * max(0.0, at - lag) / 3600.0, rate)
        )
    return meter


def test_books_that_agree_say_nothing() -> None:
    for hours in (0.2, 1, 5):
        assert run(hours, 1.0).books_differ is None


@pytest.mark.parametrize("lag", [60.0, 300.0])
def test_books_that_lag_say_nothing(lag: float) -> None:
    assert run(3, 1.0, lag=lag).books_differ is None


@pytest.mark.parametrize(("booked", "differ"), [(1.5, 1.5), (0.5, -1.5)])
def test_books_that_differ_are_told_with_how_much_and_since_when(
    booked: float, differ: float
) -> None:
    meter = run(3, booked)
    assert meter.books_differ == pytest.approx(differ)
    assert meter.books_differ_since == NOW


def test_it_takes_half_an_hour_before_anything_is_said() -> None:
    assert run((METER_LIMITS.least_compared_s - 60) / 3600, 50.0).books_differ is None
    assert run((METER_LIMITS.least_compared_s + 60) / 3600, 50.0).books_differ is not None


def test_what_was_found_stays_between_two_readings_of_the_books() -> None:
    check: BookCheck | None = None
    for minute in range(120):
        check, _ = extend_book_check(check, reading(minute * 60.0, minute / 60.0 * 3.0))
    later = reading(119 * 60 + 5, 119 / 60 * 3.0, booked_at=NOW + 119 * 60)
    assert extend_book_check(check, later)[1].books_differ is not None


@pytest.mark.parametrize(
    "odd",
    [
        {"at_least": True},
        {"kind": MeterKind.UNKNOWN},
        {"per_hour": None},
        {"booked": None},
    ],
)
def test_an_own_count_that_is_not_exact_is_compared_with_nothing(odd: dict[str, object]) -> None:
    check, _ = extend_book_check(None, reading(0, 0.0))
    again, meter = extend_book_check(check, replace(reading(60, 9.0), **odd))
    assert (again, meter.books_differ) == (None, None)


def test_a_reading_that_failed_changes_nothing() -> None:
    check, _ = extend_book_check(None, reading(0, 0.0))
    failed = Meter(at=NOW + 60, error="503")
    assert extend_book_check(check, failed) == (check, failed)


@pytest.mark.parametrize(
    "then",
    [
        reading(METER_LIMITS.longest_gap_s + 1, 9.0),
        reading(-5, 9.0),
        reading(60, 9.0, currency="EUR"),
        reading(60, 1.0),
    ],
)
def test_a_gap_a_clock_set_back_another_currency_or_books_that_shrank_begin_anew(
    then: Meter,
) -> None:
    check, _ = extend_book_check(None, reading(0, 5.0))
    again, _ = extend_book_check(check, then)
    assert again is not None
    assert (again.since, again.own) == (then.at, 0.0)


@given(st.lists(st.tuples(st.floats(1, 299), st.floats(0, 3)), min_size=1, max_size=60))
def test_exact_books_never_differ_however_the_price_moves(steps: list[tuple[float, float]]) -> None:
    at = booked = 0.0
    check, _ = extend_book_check(None, reading(at, booked, steps[0][1]))
    rate = steps[0][1]
    for passed, price in steps:
        at, booked = at + passed, booked + rate * passed / 3600.0
        check, meter = extend_book_check(check, reading(at, booked, price))
        rate = price
        assert meter.books_differ is None
