"""Extremes of any stretch, averages in blocks, and places on an axis: what is exact, and how near the rest is."""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rgt_tui.model import EPOCH, TIME, RunResume, RunState, Series
from rgt_tui.ui.plot import (
    FINE,
    SMOOTHING,
    AverageBand,
    AxisKnots,
    Board,
    CurveTrace,
    ExtremesPyramid,
    Floats,
    PlotSettings,
    RunKey,
    RunningAverage,
    ShownRun,
    XAxis,
    clock_labels,
    duration_labels,
    moving_average,
    summarize_seeds,
    time_ticks,
)

HOUR = 3600.0


def noisy(size: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values: Floats = rng.normal(size=size)
    values[rng.random(size) < 0.1] = np.nan
    return values


@given(
    st.integers(1, 6000),
    st.integers(0, 99),
    st.lists(st.integers(0, 6000), min_size=2, max_size=40),
)
@settings(deadline=None, max_examples=60)
def test_no_extreme_is_missed_and_none_comes_from_far(
    size: int, seed: int, places: list[int]
) -> None:
    values = noisy(size, seed)
    pyramid = ExtremesPyramid()
    for cut in sorted({min(place, size) for place in places} | {size}):
        pyramid.append_new(values[:cut])
    cuts = np.array(sorted(min(place, size) for place in places))
    starts, ends = cuts[:-1], cuts[1:]
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    lows, highs = pyramid.range_extremes(values, starts, ends)
    for low, high, start, end in zip(lows, highs, starts, ends, strict=True):
        inside = values[start:end]
        room = (end - start) // FINE
        around = values[max(0, start - room) : end + room]
        if np.isfinite(inside).any():
            assert np.nanmin(around) <= low <= np.nanmin(inside)
            assert np.nanmax(inside) <= high <= np.nanmax(around)


def test_a_curve_that_is_cut_and_grows_again_is_followed() -> None:
    values = noisy(5000, 1)
    pyramid = ExtremesPyramid()
    pyramid.append_new(values)
    pyramid.truncate_to(1234)
    values[1234:] = 7.0
    values[3000] = -99.0
    pyramid.append_new(values[:4000])
    low, high = pyramid.range_extremes(
        values[:4000], np.array([1300, 2900]), np.array([2900, 4000])
    )
    assert low.tolist() == [7.0, -99.0]
    assert high.tolist() == [7.0, 7.0]


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=False), max_size=50),
    st.sampled_from([0.6, 0.9, 0.97]),
    st.integers(1, 9),
)
@example([sys.float_info.max], 0.9, 1)
@example([5e-324], 0.9, 1)
@settings(deadline=None)
def test_averages_in_blocks_are_the_definition(
    values: list[float], keep: float, piece: int
) -> None:
    raw = np.array(values * 9, dtype=np.float64)
    average = RunningAverage(keep)
    for end in range(0, len(raw) + piece, piece * 7):
        average.append_new(raw[: min(end, len(raw))])
    average.append_new(raw)
    total = weight = 0.0
    size = 0.0
    for value, found in zip(raw.tolist(), average.averages.tolist(), strict=True):
        if math.isnan(value):
            assert math.isnan(found)
            continue
        total, weight = keep * total + (1 - keep) * value, keep * weight + 1 - keep
        size = max(size, abs(value))
        expected = max(-sys.float_info.max, min(total / weight, sys.float_info.max))
        # Each step rounds by up to half of the smallest number there is, and the weight it is divided by may be small.
        tolerance = max(1e-12 * size, len(raw) * math.ulp(0.0) / (1 - keep))
        assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=tolerance)


def test_an_average_goes_on_after_a_cut_as_if_nothing_had_been_there() -> None:
    raw = noisy(3000, 3)
    average, fresh = RunningAverage(0.97), RunningAverage(0.97)
    average.append_new(raw)
    average.truncate_to(1700)
    changed = np.concatenate([raw[:1700], raw[:500]])
    average.append_new(changed)
    fresh.append_new(changed)
    np.testing.assert_allclose(average.averages, fresh.averages, rtol=1e-12)


def test_values_that_would_overflow_a_block_are_averaged_one_by_one() -> None:
    means, _ = moving_average(np.array([1e308, 1e308, -1e308] * 200), 0.6)
    assert np.isfinite(means).all()
    assert means[0] == 1e308


def knots_of(points: list[tuple[int, float]], *, from_zero: bool = False) -> AxisKnots | None:
    trace = CurveTrace()
    trace.feed(Series().with_points(points))
    return AxisKnots.from_trace(trace, from_zero=from_zero)


def test_places_are_in_proportion_between_points_and_nowhere_beyond() -> None:
    knots = knots_of([(0, 100.0), (10, 110.0), (20, math.nan), (30, 150.0)])
    assert knots is not None
    assert knots.x_of(5) == 105.0
    assert knots.x_of(20) == 130.0
    assert knots.step_of(150.0) == 30.0
    assert knots.x_of(31) is None
    assert knots.step_of(99.0) is None
    counted, crossed = knots.steps_of(np.array([0.0, 105.0, 200.0]))
    assert counted[0] == 0.0
    assert counted[2] > 30.0
    assert np.isnan(crossed[[0, 2]]).all()
    assert crossed[1] == 5.0


def test_a_clock_that_was_set_back_does_not_turn_a_run_around() -> None:
    knots = knots_of([(0, 100.0), (1, 110.0), (2, 50.0), (3, 120.0)], from_zero=True)
    assert knots is not None
    assert (np.diff(knots.xs) > 0).all()
    assert knots.xs[0] == 0.0
    assert knots_of([(0, math.nan)]) is None
    assert knots_of([]) is None


@given(
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.floats()), max_size=30),
    st.floats(allow_nan=False),
)
@example([(0, -1.3659299752966264e16), (4_503_599_571_925_599, 1.0)], 0.0)
@example([(0, -1e308), (1, 1e308)], 0.0)
def test_any_places_make_an_axis_or_none(points: list[tuple[int, float]], x: float) -> None:
    knots = knots_of(points)
    if knots is None:
        return
    assert (np.diff(knots.steps) > 0).all()
    assert (np.diff(knots.xs) > 0).all()
    step = knots.step_of(x)
    assert step is None or knots.steps[0] <= step <= knots.steps[-1]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 90.0, ["0s", "30s", "1m", "1m30"]),
        (0.0, 4 * HOUR, ["0s", "1h00", "2h00", "3h00", "4h00"]),
        (0.0, 72 * HOUR, ["0s", "1d", "2d", "3d"]),
    ],
)
def test_durations_on_the_axis(low: float, high: float, said: list[str]) -> None:
    assert duration_labels(time_ticks(low, high, 4)) == said


@given(st.floats(-1e10, 4e10), st.floats(1e-3, 1e10), st.integers(2, 12))
def test_times_on_the_axis_are_distinct_and_within(low: float, span: float, most: int) -> None:
    ticks = time_ticks(low, low + span, most)
    assert all(low - 1e-5 * span - 1e-5 <= tick <= low + span * 1.00001 + 1e-5 for tick in ticks)
    assert len(ticks) <= 2 * most + 2
    for write in (clock_labels, duration_labels):
        names = write(ticks)
        assert len(set(names)) == len(names)


def test_times_of_day_say_the_day_where_it_changes() -> None:
    noon = 1_795_262_400.0
    assert clock_labels([noon, noon + HOUR]) == ["12:00", "13:00"]
    assert clock_labels([noon, noon + 24 * HOUR]) == ["21 Nov 12:00", "22 Nov 12:00"]
    assert clock_labels([noon, noon + 5.0]) == ["12:00:00", "12:00:05"]
    assert clock_labels([1e30]) == ["1e30"]


STEPS = st.one_of(st.integers(-50, 400), st.integers(10**17, 10**17 + 500), st.just(10**400))
ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(STEPS, ANY), min_size=1, max_size=60),
    st.lists(st.tuples(STEPS, ANY), max_size=20),
    st.sampled_from(XAxis),
    st.sampled_from(SMOOTHING),
    st.booleans(),
    st.sampled_from([(80, 24), (20, 5), (200, 50)]),
)
@settings(deadline=None, max_examples=80)
def test_whatever_a_run_tells_is_drawn_or_said_to_be_nowhere(
    points: list[tuple[int, float]],
    places: list[tuple[int, float]],
    axis: XAxis,
    smooth: float,
    flipped: bool,
    size: tuple[int, int],
) -> None:
    told = {"loss": points, "val_loss": places, TIME: places, EPOCH: places, "tokens": places}
    run = RunState(
        "r",
        series={name: Series().with_points(each) for name, each in told.items() if each},
        resumes=(RunResume(7, "x", 1),),
    )
    board = Board()
    shown = [ShownRun("b", run), ShownRun("c", run)]
    chosen = PlotSettings(axis=axis, smooth=smooth, flipped=frozenset({"loss"} if flipped else ()))
    board.update(shown, chosen, RunKey("b", "r"))
    frame = board.draw_plot_frame(size)
    if frame is None:
        assert axis is not XAxis.STEP
        return
    wide = max(size[0], 16)
    assert {sum(len(text) for text, _ in row) for row in frame.rows} == {wide}
    cross = frame.x_at(wide // 2)
    near = replace(
        chosen, pinned=cross, view=chosen.view.zoom(0.5, cross, board.x_extent, axis.closest_zoom)
    )
    board.update(shown, near, None)
    assert board.draw_plot_frame(size, ascii_only=True) is not None
    board.value_at(RunKey("b", "r"), cross)


def test_stretches_far_from_each_other_are_answered_each_from_its_own() -> None:
    values = noisy(20_000, 5)
    pyramid = ExtremesPyramid()
    pyramid.append_new(values)
    starts, ends = np.array([10, 9_000, 19_990]), np.array([14, 9_005, 20_000])
    lows, highs = pyramid.range_extremes(values, starts, ends)
    for low, high, start, end in zip(lows, highs, starts, ends, strict=True):
        assert (low, high) == (np.nanmin(values[start:end]), np.nanmax(values[start:end]))


def test_the_extent_of_a_curve_on_an_axis() -> None:
    knots = knots_of([(10, 100.0), (20, 200.0)])
    assert knots is not None
    for steps, extent in (
        ([0, 15, 40], (100.0, 200.0)),
        ([12, 14], (120.0, 140.0)),
        ([30, 40], None),
        ([], None),
    ):
        trace = CurveTrace()
        trace.feed(Series().with_points([(step, 1.0) for step in steps]))
        assert knots.trace_extent(trace) == extent


def seed_curves(values: list[list[float]]) -> list[tuple[Floats, Floats]]:
    return [(np.arange(len(ys), dtype=float), np.array(ys)) for ys in values]


def test_the_interquartile_mean_leaves_out_a_quarter_of_the_runs_at_each_end() -> None:
    """As scipy.stats.trim_mean(values, 0.25): of eight runs two at each end, of five one, of three none."""
    for values, expected in (
        ([1, 2, 3, 4, 5, 6, 7, 800], 4.5),
        ([1, 2, 3, 4, 500], 3.0),
        ([1, 2, 6], 3.0),
    ):
        found = summarize_seeds(seed_curves([[float(value)] for value in values]))
        assert found.iqm.tolist() == [expected]
        assert found.low[0] <= expected <= found.high[0]


def test_the_bootstrap_band_is_that_of_resampled_runs() -> None:
    """Compared with resamples that are sorted and cut one by one."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(7, 4))
    found = summarize_seeds(seed_curves(values.tolist()))
    drawn = np.random.default_rng(0).integers(7, size=(1000, 7))
    plain = np.sort(values[drawn], axis=1)[:, 1:6].mean(axis=1)
    np.testing.assert_allclose([found.low, found.high], np.quantile(plain, (0.025, 0.975), axis=0))
    again = summarize_seeds(seed_curves(values.tolist()))
    assert again.low.tolist() == found.low.tolist(), "the same runs have the same band"


def test_runs_of_other_lengths_are_compared_where_all_of_them_are() -> None:
    """At the steps of the sparsest run; others are interpolated, never continued."""
    dense = (np.arange(0.0, 11.0), np.arange(0.0, 11.0))
    sparse = (np.array([2.0, 4.0, 7.5, 20.0]), np.array([1.0, np.nan, 1.0, 1.0]))
    found = summarize_seeds([dense, sparse], AverageBand.RANGE)
    assert found.steps.tolist() == [2.0, 7.5]
    assert found.mean.tolist() == [1.5, 4.25]
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 1.0], [2.0, 7.5])
    assert found.describe_range(["a", "b"]) == "steps 2 to 8 of 20: a ends there"
    diverged = (np.arange(3.0), np.array([1.0, 2.0, np.nan]))
    assert summarize_seeds([dense, diverged]).steps.tolist() == [0.0, 1.0]
    spread = summarize_seeds([dense, (dense[0], dense[1] + 2.0)], AverageBand.STD)
    np.testing.assert_allclose(spread.high - spread.mean, np.sqrt(2.0))


def test_too_few_runs_have_no_average() -> None:
    one = (np.array([5.0]), np.array([1.0]))
    for curves, why in (
        ([one], "two runs"),
        ([one, (np.array([5.0]), np.array([np.nan]))], "two runs"),
        ([one, (np.array([6.0]), np.array([1.0]))], "share no step"),
    ):
        with pytest.raises(ValueError, match=why):
            summarize_seeds(curves)


def test_a_long_run_is_thinned_out_and_keeps_its_ends() -> None:
    long = (np.arange(5000.0), np.arange(5000.0))
    found = summarize_seeds([long, long])
    assert (len(found.steps), found.steps[0], found.steps[-1]) == (400, 0.0, 4999.0)


@pytest.mark.parametrize("day", ["2026-10-24", "2027-03-27"])
def test_the_ticks_of_days_are_midnights_although_the_clocks_change(
    monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    begin = datetime.fromisoformat(day).timestamp()
    days = clock_labels(time_ticks(begin, begin + 96 * HOUR, 5, by_clock=True))
    assert len(days) >= 4 and all(":" not in label for label in days), days
    hours = time_ticks(begin, begin + 48 * HOUR, 12, by_clock=True)
    assert {time.localtime(tick).tm_hour % 6 for tick in hours} == {0}, clock_labels(hours)
    night = time_ticks(begin + 24 * HOUR, begin + 30 * HOUR, 12, by_clock=True)
    assert {after - before for before, after in pairwise(night)} == {1800.0}
