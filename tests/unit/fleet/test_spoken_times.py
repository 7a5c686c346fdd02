"""Times as people say them, by the local clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from rgt_tui.fleet.history.spoken_times import (
    day_and_clock,
    night_began,
    night_or_day,
    parse_past_time,
)


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NOW = "2026-11-22 07:10:00"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("02:30", "2026-11-22 02:30:00"),
        ("2:30", "2026-11-22 02:30:00"),
        ("02:31:07", "2026-11-22 02:31:07"),
        ("23:15", "2026-11-21 23:15:00"),  # it has not been today yet
        ("yesterday 14:00", "2026-11-21 14:00:00"),
        ("Yesterday", "2026-11-21 00:00:00"),
        ("today 06:00", "2026-11-22 06:00:00"),
        ("2026-11-19 14:00", "2026-11-19 14:00:00"),
        ("2026-11-19T14:00", "2026-11-19 14:00:00"),
        ("2026-11-19", "2026-11-19 00:00:00"),
        ("-3h", "2026-11-22 04:10:00"),
        ("3h", "2026-11-22 04:10:00"),
        ("- 90m", "2026-11-22 05:40:00"),
        ("-1h30m", "2026-11-22 05:40:00"),
        ("3 days ago", "2026-11-19 07:10:00"),
        ("20 min ago", "2026-11-22 06:50:00"),
        ("now", NOW),
    ],
)
def test_a_time_is_the_one_that_is_meant(text: str, meant: str) -> None:
    assert parse_past_time(text, at(NOW)) == at(meant)


@pytest.mark.parametrize(
    "text", ["", "25:00", "02:60", "noon", "3", "-", "ago", "2026-13-01", "yesterday noon", "--3h"]
)
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="yesterday 14:00"):
        parse_past_time(text, at(NOW))


def test_a_time_of_day_is_that_of_the_clock_on_the_wall_when_summer_time_ends() -> None:
    now = at("2026-10-25 12:00:00")  # the night had an hour more
    assert parse_past_time("yesterday 12:00", now) == now - 25 * 3600
    assert parse_past_time("-24h", now) == now - 24 * 3600


@pytest.mark.parametrize(
    ("now", "looked", "began"),
    [
        ("2026-11-22 07:10:00", None, "2026-11-21 23:00:00"),
        ("2026-11-22 22:59:00", None, "2026-11-21 23:00:00"),
        ("2026-11-22 23:00:00", None, "2026-11-22 23:00:00"),
        ("2026-11-22 07:10:00", "2026-11-21 18:00:00", "2026-11-21 18:00:00"),
        (
            "2026-11-22 07:10:00",
            "2026-11-22 02:10:00",
            "2026-11-21 23:00:00",
        ),  # up for a moment is not the night
        ("2026-11-22 07:10:00", "2026-10-01 00:00:00", "2026-11-15 07:10:00"),
    ],
)
def test_the_night_begins_at_eleven_or_when_somebody_looked_before(
    now: str, looked: str | None, began: str
) -> None:
    assert night_began(at(now), None if looked is None else at(looked)) == at(began)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("2026-11-22 02:31:00", "last night"),
        ("2026-11-21 23:00:00", "last night"),
        ("2026-11-22 07:00:00", "today"),
        ("2026-11-21 14:00:00", "yesterday"),
        ("2026-11-19 14:00:00", "on Thursday"),
        ("2026-11-01 14:00:00", "on 2026-11-01"),
    ],
)
def test_when_that_was(then: str, words: str) -> None:
    assert night_or_day(at(then), at(NOW)) == words


def test_a_time_of_another_day_has_its_date() -> None:
    assert day_and_clock(at("2026-11-22 02:31:00"), at(NOW)) == "02:31"
    assert day_and_clock(at("2026-11-19 02:31:00"), at(NOW)) == "2026-11-19 02:31"
