"""Growth, robust to bursts and to what is removed again."""

from __future__ import annotations

import random

import pytest

from rgt_tui.health import TREND, FigureTrend


def trend(*values: float) -> FigureTrend:
    made = FigureTrend()
    for minute, value in enumerate(values):
        made = made.with_point(60.0 * minute, value)
    return made


def test_too_early_to_tell() -> None:
    assert trend(*range(TREND.least - 1)).slope is None
    assert trend(*range(TREND.least)).slope is not None


def test_steady_growth() -> None:
    assert trend(*(600.0 * i for i in range(20))).slope == pytest.approx(10.0)


def test_a_few_wild_points_do_not_matter() -> None:
    values = [60.0 * i for i in range(30)]
    for place in random.Random(7).sample(range(30), 6):
        values[place] += 1e9
    assert trend(*values).slope == pytest.approx(1.0, rel=0.5)


def test_what_stands_still_or_goes_up_and_down_does_not_grow() -> None:
    assert trend(*[5.0] * 30).slope == 0.0
    assert abs(trend(*[float(i % 3) for i in range(30)]).slope or 0.0) < 0.001


def test_only_the_last_half_hour_counts_and_nothing_grows_without_bound() -> None:
    made = trend(*(60.0 * i for i in range(100)), *[6000.0] * TREND.points)
    assert made.slope == 0.0
    assert len(made.points) == 2 * TREND.points


def test_an_older_trend_stays_as_it_was() -> None:
    old = trend(*range(TREND.points + 5))
    kept = list(old.points)
    old.with_point(9e9, 1.0)
    assert list(old.points) == kept
