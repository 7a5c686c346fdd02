"""The window on the steps, the ticks of the axes, and the choices of the person."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import RunState, Series
from rgt_tui.ui.plot import (
    MIN_SPAN,
    SMOOTHING,
    AxisWindow,
    CurveTrace,
    PlotCurve,
    PlotSettings,
    RunKey,
    draw_plot,
    format_labels,
    linear_ticks,
    log_ticks,
    metrics_of,
    nice_step,
    run_tag,
)

WHOLE = (0.0, 2400.0)


def test_all_is_shown_until_zoomed() -> None:
    assert AxisWindow().visible_range(WHOLE) == WHOLE
    assert AxisWindow().is_all
    assert AxisWindow().pan(0.5, WHOLE) == AxisWindow()


def test_zoom_keeps_the_crosshair_in_place() -> None:
    before = AxisWindow().visible_range(WHOLE)
    after = AxisWindow().zoom(0.5, 600.0, WHOLE).visible_range(WHOLE)
    assert after[1] - after[0] == pytest.approx(1200)
    assert (600 - after[0]) / 1200 == pytest.approx((600 - before[0]) / 2400)


def test_zooming_out_ends_with_everything() -> None:
    assert AxisWindow().zoom(0.5, None, WHOLE).zoom(4.0, None, WHOLE) == AxisWindow()


def test_a_window_at_the_right_edge_follows_new_points() -> None:
    view = AxisWindow().zoom(0.25, WHOLE[1], WHOLE)
    assert view.right is None
    assert view.visible_range((0.0, 3000.0)) == (2400.0, 3000.0)


def test_a_window_elsewhere_stays_where_it_is() -> None:
    view = AxisWindow().zoom(0.25, 0.0, WHOLE)
    assert view.visible_range((0.0, 3000.0)) == (0.0, 600.0)
    assert view.pan(1.0, WHOLE).visible_range(WHOLE) == (600.0, 1200.0)
    assert view.pan(-1.0, WHOLE).visible_range(WHOLE) == (0.0, 600.0)
    assert view.pan(99.0, WHOLE).right is None


@given(
    st.lists(st.sampled_from(["in", "out", "left", "right"]), max_size=40),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_the_window_stays_inside_the_data(moves: list[str], first: float, length: float) -> None:
    extent = (first, first + length)
    view = AxisWindow()
    for move in moves:
        if move in {"in", "out"}:
            view = view.zoom(0.5 if move == "in" else 2.0, None, extent)
        else:
            view = view.pan(0.3 if move == "right" else -0.3, extent)
        low, high = view.visible_range(extent)
        full = AxisWindow().visible_range(extent)
        slack = 1e-6 * max(1.0, abs(full[1]))
        assert low < high
        assert full[0] - slack <= low
        assert high <= full[1] + slack
        assert high - low >= min(MIN_SPAN, full[1] - full[0]) - slack


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(1, 30))
def test_linear_ticks_are_within_and_few(low: float, span: float, most: int) -> None:
    high = low + span
    ticks = linear_ticks(low, high, most)
    step = nice_step(span, most)
    assert len(ticks) <= most + 2
    slack = max(step * 1e-6, 1e-12 * max(abs(low), abs(high)))
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert len(format_labels(ticks)) == len(ticks)


@given(st.floats(1e-12, 1e6), st.floats(1.0001, 1e12), st.integers(2, 20))
def test_log_ticks_are_within_and_positive(low: float, factor: float, most: int) -> None:
    ticks = log_ticks(low, low * factor, most)
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)
    assert ticks == sorted(ticks)
    assert len(ticks) <= 2 * most + 2


def test_step_ticks_are_whole() -> None:
    assert linear_ticks(0, 4, 10, whole=True) == [0, 1, 2, 3, 4]
    assert format_labels([0, 600, 1200]) == ["0", "600", "1,200"]


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        ([1.5, 2.0, 3.0, 4.0], ["1.5", "2.0", "3.0", "4.0"]),
        ([1e-5, 2e-5], ["1e-5", "2e-5"]),
        ([1e-4, 1e-2, 1.0], ["0.0001", "0.01", "1"]),
        ([1.0e-4, 1.2e-4, 1.4e-4], ["1.0e-4", "1.2e-4", "1.4e-4"]),
        ([0.0, 2e-5, 4e-5], ["0", "2e-5", "4e-5"]),
        ([1_200_000, 1_400_000], ["1.2e6", "1.4e6"]),
        ([2.0000001, 2.0000002], ["2.0000001", "2.0000002"]),
        ([0.25, 0.5, 0.75], ["0.25", "0.50", "0.75"]),
        ([-2.5, 0.0, 2.5], ["-2.5", "0.0", "2.5"]),
        ([], []),
    ],
)
def test_labels_share_a_precision(ticks: list[float], expected: list[str]) -> None:
    assert format_labels(ticks) == expected


@given(st.floats(-1e15, 1e15), st.floats(1e-12, 1e15), st.integers(1, 30), st.booleans())
def test_labels_are_distinct_and_true_to_a_quarter_step(
    low: float, span: float, most: int, log: bool
) -> None:
    ticks = (
        log_ticks(abs(low) + 1e-12, abs(low) + span, most)
        if log
        else linear_ticks(low, low + span, most)
    )
    ticks = [tick for at, tick in enumerate(ticks) if tick not in ticks[:at]]
    names = format_labels(ticks)
    assert len(set(names)) == len(ticks), names
    for at, (tick, name) in enumerate(zip(ticks, names, strict=True)):
        gaps = [abs(tick - other) for other in ticks[max(0, at - 1) : at + 2] if other != tick]
        said = float(name.replace(",", ""))
        assert abs(said - tick) <= min(gaps, default=abs(tick)) / 4, (tick, name)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1.00e-4, 1.03e-4),
        (2.0, 2.0000001),
        (1e9, 1e9 + 1e-3),
        (1e17, 1e17 + 64),
        (0.1, 0.1000000001),
        (5e6, 5.00001e6),
    ],
)
@pytest.mark.parametrize("width", [16, 24, 40, 80, 200])
@pytest.mark.parametrize("log", [False, True])
def test_no_label_at_the_left_is_cut_off_into_another_number(
    low: float, high: float, width: int, log: bool
) -> None:
    trace = CurveTrace()
    trace.feed(Series().with_points([(i, low + (high - low) * i / 99) for i in range(100)]))
    frame = draw_plot([PlotCurve(trace, 0)], (width, 20), view=AxisWindow(), log=log)
    said = []
    for row in frame.rows[:-2]:
        left = row[0][0].strip()
        assert len(row[0][0]) <= max(2, width // 3 + 1)
        if left:
            said.append(left)
            assert frame.low <= float(left.replace(",", "")) <= frame.high, left
    assert len(set(said)) == len(said), said


def test_ticks_of_a_broken_range_are_harmless() -> None:
    assert nice_step(math.nan, 5) == 1.0
    assert log_ticks(-1, 5, 5) == []


def test_metrics_in_a_stable_order() -> None:
    points = Series().with_points([(0, 1.0)])
    runs = [
        RunState(
            "a",
            series={
                "zeta": points,
                "lr": points,
                "loss": points,
                "empty": Series(),
                "total_steps": points,
            },
        )
    ]
    assert metrics_of(runs) == ["loss", "lr", "zeta"]


def test_settings_go_round() -> None:
    settings = PlotSettings()
    seen = []
    for _ in SMOOTHING:
        seen.append(settings.smooth)
        settings = settings.next_smoothing()
    assert tuple(seen) == SMOOTHING
    assert settings == PlotSettings()
    assert settings.next_metric(["loss", "lr"]).metric == "lr"
    assert settings.next_metric(["loss", "lr"]).next_metric(["loss", "lr"]).metric == "loss"
    assert settings.next_metric([]) == settings


def test_the_axis_is_remembered_per_metric() -> None:
    settings = PlotSettings().toggled_log()
    assert not settings.is_log
    other = settings.next_metric(["loss", "tok_s"])
    assert not other.is_log
    assert other.toggled_log().is_log
    assert not other.next_metric(["loss", "tok_s"]).is_log


def test_only_one_run_and_back() -> None:
    a, b, c = keys = [RunKey("box", name) for name in "abc"]
    one = PlotSettings().isolate_run(b, keys)
    assert one.hidden == {a, c}
    assert one.isolate_run(b, keys).hidden == set()
    assert PlotSettings().toggle_run(a).toggle_run(a) == PlotSettings()


def test_every_run_has_a_tag() -> None:
    assert [run_tag(i) for i in (0, 8, 9)] == ["1", "9", "a"]
    assert len(run_tag(1000)) == 1
