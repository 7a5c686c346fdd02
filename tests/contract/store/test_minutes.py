"""Minutes of cost in a real file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model.fleet import Spend
from rgt_tui.store import minutes
from rgt_tui.store.connect import connect, transaction
from rgt_tui.store.costs import PAST_SECONDS, Costs
from rgt_tui.store.errors import Damaged
from rgt_tui.store.spend import DAY, MINUTE, Minute, masks

HOUR = 3600.0
LATER = 1_800_000_000.0
DAY0 = minutes.midnight(1_790_000_000.0)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    con = connect(tmp_path / "history.db")
    yield con
    con.close()


def watch(
    con: sqlite3.Connection, start: float, stop: float, rate: float = 2.0, currency: str = "USD"
) -> None:
    with transaction(con):
        for number, mask in masks(start, stop):
            what = Minute(number, currency, rate=rate, covered=mask, busy=mask)
            minutes.write(con, 1, what, minutes.closed(con, LATER))


def read(con: sqlite3.Connection, at: float, spent: float, since: float = DAY0 - 9 * DAY) -> None:
    with transaction(con):
        what = Minute(int(at // MINUTE), "USD", spent=spent, since=since, at=at)
        minutes.write(con, 1, what, minutes.closed(con, LATER))


def cost(con: sqlite3.Connection, start: float = DAY0, stop: float = DAY0 + DAY) -> float:
    return minutes.between(con, (1,), start, stop).get("USD", (0.0, 0.0))[0]


def test_watched_time_is_counted_once_however_often_it_is_told(con: sqlite3.Connection) -> None:
    for _ in range(3):
        watch(con, DAY0, DAY0 + HOUR)
    watch(con, DAY0 + HOUR / 2, DAY0 + 1.5 * HOUR)
    assert cost(con) == pytest.approx(3.0)


def test_currencies_are_never_added_up(con: sqlite3.Connection) -> None:
    watch(con, DAY0, DAY0 + HOUR)
    watch(con, DAY0, DAY0 + HOUR, rate=7.0, currency="CNY")
    totals = minutes.between(con, (1,), DAY0, DAY0 + DAY)
    assert {currency: round(amount, 6) for currency, (amount, _) in totals.items()} == {
        "USD": 2.0,
        "CNY": 7.0,
    }


def test_an_unwatched_night_counts_by_the_provider_s_sum_alone(con: sqlite3.Connection) -> None:
    evening, morning = DAY0 + 22 * HOUR, DAY0 + DAY + 8 * HOUR
    watch(con, evening - HOUR, evening)
    read(con, evening, 100.0)
    assert cost(con, DAY0 + DAY, DAY0 + 2 * DAY) == 0.0
    read(con, morning, 120.0)
    watch(con, morning, morning + HOUR)
    assert cost(con, DAY0 + DAY, DAY0 + 2 * DAY) == pytest.approx(20.0 * 8 / 10 + 2.0)
    assert cost(con) == pytest.approx(sum_before_first_reading(con) + 2.0 * 1 + 20.0 * 2 / 10, rel=1e-3)


def sum_before_first_reading(con: sqlite3.Connection) -> float:
    """What the very first reading said of the time before it, on that day."""
    row = con.execute("SELECT gap, gap_from, at FROM minutes WHERE gap > 0 ORDER BY minute").fetchone()
    gap, start, stop = (float(value) for value in row)
    return gap * (stop - DAY0) / (stop - start)


def test_watched_time_between_two_readings_is_not_counted_again(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    watch(con, DAY0 + HOUR, DAY0 + 2 * HOUR)
    read(con, DAY0 + 2 * HOUR, 4.0, since=DAY0)
    assert cost(con) == pytest.approx(4.0)
    read(con, DAY0 + 4 * HOUR, 8.0, since=DAY0)
    assert cost(con) == pytest.approx(8.0)


def test_a_watcher_who_is_late_to_tell_takes_his_part_out_of_the_gap(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + 5 * HOUR, 10.0, since=DAY0)
    assert cost(con) == pytest.approx(10.0)
    watch(con, DAY0 + 2 * HOUR, DAY0 + 3 * HOUR)
    assert cost(con) == pytest.approx(10.0)
    read(con, DAY0 + 3 * HOUR, 6.0, since=DAY0)
    assert cost(con) == pytest.approx(10.0)


def test_a_provider_with_two_sums_is_not_counted_by_both(con: sqlite3.Connection) -> None:
    """Its books since the machine was made, and an estimate since it was started while they do not answer."""
    read(con, DAY0 + 10 * HOUR, 20.0, since=DAY0)
    read(con, DAY0 + 10.5 * HOUR, 5.0, since=DAY0 + 8 * HOUR)
    read(con, DAY0 + 11 * HOUR, 22.0, since=DAY0)
    assert cost(con) == pytest.approx(22.0)


def test_a_machine_that_is_made_anew_begins_at_nothing(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + 6 * HOUR, 3.0, since=DAY0 + 4 * HOUR)
    assert cost(con) == pytest.approx(5.0)


def test_a_sum_that_was_corrected_downwards_costs_nothing(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 2.0, since=DAY0)
    read(con, DAY0 + 3 * HOUR, 1.5, since=DAY0)
    read(con, DAY0 + 5 * HOUR, 2.5, since=DAY0)
    assert cost(con) == pytest.approx(3.0)


def test_old_days_are_summed_up_once_and_late_minutes_of_them_are_not_counted(
    con: sqlite3.Connection,
) -> None:
    watch(con, DAY0 + 23 * HOUR, DAY0 + 25 * HOUR)
    read(con, DAY0 + 25 * HOUR, 9.0, since=DAY0 + 24 * HOUR)
    later = DAY0 + 9 * DAY
    before = cost(con), cost(con, DAY0 + DAY, DAY0 + 2 * DAY)
    for _ in range(2):
        with transaction(con):
            minutes.roll_up(con, later)
    rows = con.execute("SELECT billed FROM days ORDER BY day").fetchall()
    assert [row[0] for row in rows] == [pytest.approx(before[0]), pytest.approx(before[1])]
    assert con.execute("SELECT count(*) FROM minutes").fetchone()[0] == 1  # the last reading
    watch(con, DAY0, DAY0 + HOUR)
    assert con.execute("SELECT count(*) FROM minutes").fetchone()[0] == 1
    read(con, later, 19.0, since=DAY0 + 24 * HOUR)
    assert con.execute("SELECT gap FROM minutes ORDER BY minute DESC").fetchone()[0] == pytest.approx(10.0)


def rolled(con: sqlite3.Connection, now: float) -> None:
    with transaction(con):
        minutes.roll_up(con, now)


def days(con: sqlite3.Connection) -> list[float]:
    return [row[0] for row in con.execute("SELECT billed FROM days ORDER BY day")]


def test_a_long_absence_counts_on_the_days_that_were_closed_meanwhile(con: sqlite3.Connection) -> None:
    """The provider's sum after it tells what it cost only then."""
    read(con, DAY0 + 600, 10.0, since=DAY0 + 600)
    rolled(con, DAY0 + 5 * DAY + HOUR)
    read(con, DAY0 + 600 + 5 * DAY, 130.0, since=DAY0 + 600)
    assert days(con) == [pytest.approx(24 * (DAY - 600) / DAY), *[pytest.approx(24.0)] * 2]
    for later in (6, 9, 9):
        rolled(con, DAY0 + later * DAY + HOUR)
    assert sum(days(con)) == pytest.approx(120.0)
    assert days(con)[1:5] == [pytest.approx(24.0)] * 4


def test_a_watcher_who_is_late_takes_his_part_out_of_closed_days_too(con: sqlite3.Connection) -> None:
    read(con, DAY0 + HOUR, 10.0, since=DAY0 + HOUR)
    rolled(con, DAY0 + 5 * DAY + HOUR)
    read(con, DAY0 + HOUR + 5 * DAY, 130.0, since=DAY0 + HOUR)
    watch(con, DAY0 + 4 * DAY, DAY0 + 4 * DAY + HOUR)
    rolled(con, DAY0 + 9 * DAY)
    assert sum(days(con)) == pytest.approx(120.0)
    assert days(con)[1] < 24.0


def test_days_that_were_closed_in_another_time_zone_are_added_to(
    con: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live_in(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    try:
        live_in("UTC")
        noon = minutes.midnight(DAY0) + 12 * HOUR
        watch(con, noon, noon + 36 * HOUR)
        rolled(con, noon + 2.5 * DAY + HOUR)  # the first 12 hours are closed
        assert days(con) == [pytest.approx(24.0)]
        live_in("America/Los_Angeles")
        rolled(con, noon + 9 * DAY)
        assert sum(days(con)) == pytest.approx(72.0)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_clock_that_was_ahead_for_a_while_costs_no_minute(con: sqlite3.Connection) -> None:
    now = DAY0 + 5 * HOUR
    watch(con, DAY0, now)
    read(con, now, 50.0, since=DAY0)
    rolled(con, now + 4 * DAY)
    with transaction(con):
        for number, mask in masks(now + 60, now + HOUR + 60):
            minutes.write(con, 1, Minute(number, "USD", rate=2.0, covered=mask), minutes.closed(con, now))
    kept = minutes.between(con, (1,), DAY0, DAY0 + DAY, minutes.closed(con, now))
    closed = minutes.by_day(con, (1,), DAY0, DAY0 + DAY)
    assert minutes.added(kept, closed)["USD"][0] == pytest.approx(10.0 + 2.0)
    for later in (1, 2, 3, 4, 5, 9):
        rolled(con, now + later * DAY)
    assert days(con) == [pytest.approx(12.0)]


def test_a_sum_is_told_from_the_last_reading_before_it_also_when_that_is_closed(
    con: sqlite3.Connection,
) -> None:
    read(con, DAY0 + HOUR, 900.0, since=DAY0 - 300 * DAY)
    read(con, DAY0 + 4 * DAY, 920.0, since=DAY0 - 300 * DAY)
    rolled(con, DAY0 + 5 * DAY)
    watch(con, DAY0 + 3.5 * DAY, DAY0 + 3.5 * DAY + HOUR)  # late: the reading after it is looked at anew
    gap = con.execute("SELECT gap FROM minutes ORDER BY minute DESC LIMIT 1").fetchone()[0]
    assert gap == pytest.approx(18.0)


def test_yesterday_and_the_month_are_added_up_from_minutes_and_closed_days(con: sqlite3.Connection) -> None:
    first = minutes.first_of_month(DAY0)
    now = first + 11.5 * DAY
    watch(con, first - 5 * HOUR, first + 2 * HOUR)  # 10 before the month, 4 in it
    watch(con, first + 10 * DAY, first + 10 * DAY + 3 * HOUR)
    watch(con, first + 11 * DAY, first + 11 * DAY + HOUR, currency="EUR")
    rolled(con, now)
    clock = [0.0]
    costs = Costs(lambda: clock[0])

    def rounded(spend: Spend) -> list[dict[str, float]]:
        return [
            {currency: round(amount, 3) for currency, amount in each}
            for each in (spend.today, spend.yesterday, spend.month)
        ]

    assert rounded(costs.look(con, (1,), now)) == [{"EUR": 2.0}, {"USD": 6.0}, {"EUR": 2.0, "USD": 10.0}]
    watch(con, first + 10 * DAY + 3 * HOUR, first + 10 * DAY + 4 * HOUR)  # told late
    watch(con, first + 11 * DAY + HOUR, first + 11 * DAY + 2 * HOUR, currency="EUR")
    assert rounded(costs.look(con, (1,), now)) == [{"EUR": 4.0}, {"USD": 6.0}, {"EUR": 4.0, "USD": 10.0}]
    clock[0] += PAST_SECONDS
    assert rounded(costs.look(con, (1,), now)) == [{"EUR": 4.0}, {"USD": 8.0}, {"EUR": 4.0, "USD": 12.0}]
    assert costs.look(con, (2,), now) == Spend()


def test_a_price_that_was_changed_on_the_disk_is_found(con: sqlite3.Connection) -> None:
    watch(con, DAY0, DAY0 + HOUR)
    con.execute("UPDATE minutes SET billed = billed * 2 WHERE minute = ?", (int(DAY0 // MINUTE) + 7,))
    with pytest.raises(Damaged):
        minutes.prove(con, (1,), DAY0)
