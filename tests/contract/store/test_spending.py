"""What boxes cost, in a real file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import FleetSpend
from rgt_tui.store import ObservedCost, ProviderSum
from rgt_tui.store.database import connect, transaction
from rgt_tui.store.spending import (
    DAY,
    add_cost,
    apply_provider_sum,
    day_of,
    local_midnight,
    read_spend,
)

HOUR = 3600.0
DAY0 = local_midnight(1_790_000_000.0)
LONG_AGO = DAY0 - 9 * DAY


@pytest.fixture
def con(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    con = connect(tmp_path / "history.db")
    yield con
    con.close()


def watch(
    con: sqlite3.Connection, start: float, stop: float, rate: float = 2.0, currency: str = "USD"
) -> None:
    """As a writer does, every few seconds."""
    with transaction(con):
        at = start
        while at < stop:
            seconds = min(30.0, stop - at)
            add_cost(
                con, 1, ObservedCost(day_of(at), currency, rate * seconds / 3600, 0.0, seconds)
            )
            at += seconds


def read(
    con: sqlite3.Connection,
    at: float,
    amount: float,
    since: float = LONG_AGO,
    estimated: bool = False,
) -> None:
    with transaction(con):
        apply_provider_sum(con, 1, ProviderSum("USD", since, at, amount, estimated))


def cost(con: sqlite3.Connection, start: float = DAY0, stop: float = DAY0 + DAY) -> float:
    row = con.execute(
        "SELECT total(billed) FROM days WHERE day >= ? AND day < ?", (day_of(start), day_of(stop))
    ).fetchone()
    return float(row[0])


def everything(con: sqlite3.Connection) -> float:
    return cost(con, DAY0 - 2000 * DAY, DAY0 + 100 * DAY)


def test_watched_time_counts(con: sqlite3.Connection) -> None:
    watch(con, DAY0, DAY0 + 1.5 * HOUR)
    assert cost(con) == pytest.approx(3.0)


def test_currencies_are_never_added_up(con: sqlite3.Connection) -> None:
    watch(con, DAY0, DAY0 + HOUR)
    watch(con, DAY0, DAY0 + HOUR, rate=7.0, currency="CNY")
    found = {
        name: round(amount, 6) for name, amount in read_spend(con, (1,), DAY0 + 2 * HOUR).today
    }
    assert found == {"USD": 2.0, "CNY": 7.0}


def test_an_unwatched_night_counts_by_the_provider_s_sum_alone(con: sqlite3.Connection) -> None:
    evening, morning = DAY0 + 22 * HOUR, DAY0 + DAY + 8 * HOUR
    watch(con, evening - HOUR, evening)
    read(con, evening, 100.0)
    assert cost(con, DAY0 + DAY, DAY0 + 2 * DAY) == 0.0
    before = cost(con)
    read(con, morning, 120.0)
    watch(con, morning, morning + HOUR)
    assert cost(con, DAY0 + DAY, DAY0 + 2 * DAY) == pytest.approx(20.0 * 8 / 10 + 2.0)
    assert cost(con) == pytest.approx(before + 20.0 * 2 / 10)


def test_the_first_sum_of_a_provider_tells_what_it_cost_since_it_was_made(
    con: sqlite3.Connection,
) -> None:
    watch(con, DAY0, DAY0 + HOUR)
    read(con, DAY0 + HOUR, 100.0)
    assert everything(con) == pytest.approx(100.0)
    assert cost(con, LONG_AGO, LONG_AGO + DAY) == pytest.approx(98.0 / (9 + 1 / 24))


def test_watched_time_between_two_readings_is_not_counted_again(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    watch(con, DAY0 + HOUR, DAY0 + 2 * HOUR)
    read(con, DAY0 + 2 * HOUR, 4.0, since=DAY0)
    assert cost(con) == pytest.approx(4.0)
    read(con, DAY0 + 4 * HOUR, 8.0, since=DAY0)
    assert cost(con) == pytest.approx(8.0)


def test_a_reading_that_is_told_twice_counts_once(con: sqlite3.Connection) -> None:
    for _ in range(3):
        read(con, DAY0 + HOUR, 2.0, since=DAY0)
    assert cost(con) == pytest.approx(2.0)


def estimate(con: sqlite3.Connection, at: float, since: float = DAY0) -> None:
    """Read what price × time comes to, at $2/h."""
    read(con, at, max(0.0, at - since) / HOUR * 2.0, since, estimated=True)


def test_an_estimate_of_unwatched_time_is_shown_as_one_and_never_added_to_what_is_known(
    con: sqlite3.Connection,
) -> None:
    watch(con, DAY0, DAY0 + HOUR)
    estimate(con, DAY0 + HOUR)
    estimate(con, DAY0 + 9 * HOUR)
    watch(con, DAY0 + 9 * HOUR, DAY0 + 10 * HOUR)
    estimate(con, DAY0 + 10 * HOUR)
    assert cost(con) == pytest.approx(4.0)
    found = read_spend(con, (1,), DAY0 + 10 * HOUR)
    assert dict(found.today) == {"USD": pytest.approx(20.0)}
    assert (found.estimated, found.at_least) == (("today", "month"), ())


def test_a_month_that_a_wrong_clock_saw_is_taken_back(con: sqlite3.Connection) -> None:
    """One run at +30 days, and the next at the true time: nothing of it stays, and later sums count."""
    watch(con, DAY0, DAY0 + HOUR)
    estimate(con, DAY0 + HOUR)
    estimate(con, DAY0 + HOUR + 30 * DAY)
    assert everything(con) == pytest.approx(2.0), "no estimate is a fact, at no time"
    now = DAY0 + 2 * HOUR
    estimate(con, now)
    assert dict(read_spend(con, (1,), now).today)["USD"] == pytest.approx(4.0, abs=0.1)
    assert dict(read_spend(con, (1,), DAY0 + DAY + 1).today) == {}
    assert dict(read_spend(con, (1,), now + 29 * DAY).month).get("USD", 0.0) <= 4.1
    later = now + 8 * HOUR
    estimate(con, later)
    assert dict(read_spend(con, (1,), later).today)["USD"] == pytest.approx(20.0, abs=0.1)


def test_books_that_a_wrong_clock_read_count_on_the_day_of_the_next_reading(
    con: sqlite3.Connection,
) -> None:
    """What the provider booked is true, whatever the clock here said; only its days are not."""
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + HOUR + 30 * DAY, 6.0, since=DAY0)
    read(con, DAY0 + 4 * HOUR, 8.0, since=DAY0)
    assert everything(con) == pytest.approx(8.0)
    assert cost(con) == pytest.approx(8.0)
    read(con, DAY0 + 9 * HOUR, 18.0, since=DAY0)
    assert cost(con) == pytest.approx(18.0)


def test_a_reading_from_before_the_machine_was_there_is_left_out(con: sqlite3.Connection) -> None:
    """A clock that was reset to 1970, or to the day of its battery."""
    estimate(con, DAY0 + HOUR)
    estimate(con, DAY0 - 900 * DAY)
    estimate(con, DAY0 + 2 * HOUR)
    assert dict(read_spend(con, (1,), DAY0 + 2 * HOUR).month)["USD"] == pytest.approx(4.0)


def test_a_minute_that_nobody_watched_is_not_looked_into(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + HOUR + 60, 5.0, since=DAY0)
    assert cost(con) == pytest.approx(2.0)


def test_a_provider_with_two_sums_is_not_counted_by_both(con: sqlite3.Connection) -> None:
    """Its books since the machine was made, and an estimate since it was started while they do not answer."""
    read(con, DAY0 + 10 * HOUR, 20.0, since=DAY0)
    read(con, DAY0 + 10.5 * HOUR, 5.0, since=DAY0 + 8 * HOUR)
    read(con, DAY0 + 11 * HOUR, 22.0, since=DAY0)
    assert cost(con) == pytest.approx(22.0)
    read(con, DAY0 + 12 * HOUR, 8.0, since=DAY0 + 8 * HOUR)
    assert cost(con) == pytest.approx(
        22.0 + 1.0
    )  # 3.0 more than it said, 2.0 of which the books told
    read(con, DAY0 + 13 * HOUR, 26.0, since=DAY0)
    assert cost(con) == pytest.approx(26.0)


def test_a_machine_that_is_made_anew_begins_at_nothing(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + 6 * HOUR, 3.0, since=DAY0 + 4 * HOUR)
    assert cost(con) == pytest.approx(5.0)


def test_a_sum_that_was_corrected_downwards_costs_nothing(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + 3 * HOUR, 1.5, since=DAY0)
    read(con, DAY0 + 5 * HOUR, 2.5, since=DAY0)
    assert cost(con) == pytest.approx(3.0)


def test_a_long_absence_counts_on_the_days_that_it_lasted(con: sqlite3.Connection) -> None:
    read(con, DAY0 + 600, 10.0, since=DAY0 + 600)
    read(con, DAY0 + 600 + 5 * DAY, 130.0, since=DAY0 + 600)
    days = [row[0] for row in con.execute("SELECT billed FROM days ORDER BY day")]
    assert days == [
        pytest.approx(24 * (DAY - 600) / DAY),
        *[pytest.approx(24.0)] * 4,
        pytest.approx(24 / 144),
    ]


def test_an_absence_since_the_beginning_of_time_has_an_end(con: sqlite3.Connection) -> None:
    read(con, DAY0, 3000.0, since=0.0)
    (count,) = con.execute("SELECT count(*) FROM days").fetchone()
    assert 1000 <= count <= 1001
    assert everything(con) == pytest.approx(3000.0 * 1000 * DAY / DAY0)


def test_another_time_zone_loses_no_day(
    con: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live_in(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    try:
        live_in("UTC")
        noon = local_midnight(DAY0) + 12 * HOUR
        watch(con, noon, noon + 18 * HOUR)
        live_in("America/Los_Angeles")
        watch(con, noon + 18 * HOUR, noon + 36 * HOUR)
        assert everything(con) == pytest.approx(72.0)
        assert dict(read_spend(con, (1,), noon + 20 * HOUR).month)["USD"] == pytest.approx(72.0)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_days_are_local_also_where_the_clock_is_changed(
    con: sqlite3.Connection, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for month in (3, 4, 10, 11):  # the clock is changed in it
            end = time.mktime((2026, month, 28, 12, 0, 0, 0, 0, -1))
            first = time.mktime((2026, month, 1, 0, 0, 0, 0, 0, -1))
            add_cost(con, month, ObservedCost(day_of(first), "USD", 1.0))
            add_cost(con, month, ObservedCost(day_of(first - HOUR), "USD", 10.0))
            add_cost(con, month, ObservedCost(day_of(end), "USD", 100.0))
            found = read_spend(con, (month,), end)
            assert (dict(found.month), dict(found.today)) == ({"USD": 101.0}, {"USD": 100.0})
    finally:
        monkeypatch.undo()
        time.tzset()


def test_yesterday_and_the_month(con: sqlite3.Connection) -> None:
    first = time.mktime((2026, 9, 1, 0, 0, 0, 0, 0, -1))
    now = first + 11.5 * DAY
    watch(con, first - 5 * HOUR, first + 2 * HOUR)  # 10 before the month, 4 in it
    watch(con, first + 10 * DAY, first + 10 * DAY + 3 * HOUR)
    watch(con, first + 11 * DAY, first + 11 * DAY + HOUR, currency="EUR")

    def rounded(spend: FleetSpend) -> list[dict[str, float]]:
        return [
            {currency: round(amount, 3) for currency, amount in each}
            for each in (spend.today, spend.yesterday, spend.month)
        ]

    assert rounded(read_spend(con, (1,), now)) == [
        {"EUR": 2.0},
        {"USD": 6.0},
        {"EUR": 2.0, "USD": 10.0},
    ]
    second = (
        first + 1.5 * DAY
    )  # yesterday, and the days before, are of the same month or of the last one
    assert rounded(read_spend(con, (1,), first + HOUR))[1:] == [{"USD": 10.0}, {"USD": 4.0}]
    assert rounded(read_spend(con, (1,), second))[1:] == [{"USD": 4.0}, {"USD": 4.0}]
    assert read_spend(con, (2,), now) == FleetSpend()


def test_what_was_lost_makes_its_days_lower_bounds(con: sqlite3.Connection) -> None:
    first = time.mktime((2026, 9, 1, 0, 0, 0, 0, 0, -1))
    con.execute(
        "INSERT INTO losses VALUES (?, ?)",
        (first + 9 * DAY + 20 * HOUR, first + 10 * DAY + 3 * HOUR),
    )
    for day, expected in (
        (9, ("today", "month")),
        (10, ("today", "yesterday", "month")),
        (11, ("yesterday", "month")),
        (12, ("month",)),
        (35, ()),
    ):
        assert read_spend(con, (), first + (day + 0.5) * DAY).at_least == expected, day


def test_a_price_that_was_not_known_in_full_makes_its_days_lower_bounds(
    con: sqlite3.Connection,
) -> None:
    first = time.mktime((2026, 9, 1, 0, 0, 0, 0, 0, -1))
    at = day_of(first + 9.5 * DAY)
    with transaction(con):
        add_cost(con, 1, ObservedCost(at, "USD", 3.0, 1.0, 60.0, at_least=True))
        add_cost(con, 1, ObservedCost(at, "USD", 1.0, 0.0, 60.0))
        add_cost(con, 2, ObservedCost(at, "", at_least=True))
        add_cost(con, 3, ObservedCost(at, "USD", 7.0, 0.0, 60.0))
    for boxes in ((1,), (2,), (1, 3)):
        for day, expected in (
            (9, ("today", "month")),
            (10, ("yesterday", "month")),
            (11, ("month",)),
            (35, ()),
        ):
            found = read_spend(con, iter(boxes), first + (day + 0.5) * DAY)
            assert found.at_least == expected, (boxes, day)
    assert dict(read_spend(con, (1,), first + 9.6 * DAY).today) == {"USD": pytest.approx(4.0)}
    assert read_spend(con, (2,), first + 9.6 * DAY).today == (), (
        "an unknown price is no sum, of no currency"
    )
    assert read_spend(con, (3,), first + 9.6 * DAY).at_least == ()
