from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rgt_box.metrics import MAX_SERIES, MetricPoint, PointSeries, ReadBatch, SeriesStore


def series(*points: tuple[float, float]) -> PointSeries:
    found = PointSeries()
    for x, y in points:
        found.add_point(x, y, None)
    return found


def test_a_step_that_goes_back_hides_what_it_overtakes() -> None:
    found = series((1, 1), (2, 2), (3, 3), (2, 20), (5, 50))
    assert (found.xs, found.ys, found.breaks, found.segment) == ([1, 2, 5], [1, 20, 50], [2], 1)


def test_the_same_step_is_the_same_point() -> None:
    found = series((1, 1), (1, 2))
    assert (found.xs, found.ys, found.segment) == ([1], [2], 0)


def test_a_second_resume_from_before_the_first() -> None:
    found = series((1, 1), (2, 2), (3, 3), (2, 4), (3, 5), (1, 6))
    assert (found.xs, found.ys, found.breaks, found.segment) == ([1], [6], [1], 2)


def test_a_told_restart_marks_even_where_no_step_goes_back() -> None:
    found = series((1, 1), (2, 2))
    found.begin_segment(None)
    found.add_point(3, 3, None)
    assert (found.xs, found.breaks, found.segment) == ([1, 2, 3], [3], 1)
    found.begin_segment(3)
    assert found.xs == [1, 2]
    found.add_point(3, 4, None)
    assert (found.ys, found.breaks, found.segment) == ([1, 2, 4], [3], 2)


def test_a_restart_concerns_steps_only() -> None:
    store, batch = SeriesStore(), ReadBatch("f", None)
    batch.points = [
        MetricPoint("loss", "step", 5.0, 1.0, None),
        MetricPoint("val", "epoch", 9.0, 1.0, None),
    ]
    batch.add_restart(2.0, "again")
    store.apply_batch(batch)
    assert [len(each.xs) for each in store.series.values()] == [0, 1]


def test_a_restart_hides_the_rows_before_it() -> None:
    """Rows are counted only where no position is known, and the restart names one."""
    store, batch = SeriesStore(), ReadBatch("f", None)
    batch.points = [MetricPoint("loss", "row", 1.0, 1.0, None)]
    batch.add_restart(2.0, "again")
    store.apply_batch(batch)
    assert [each.xs for each in store.series.values()] == [[]]


def test_series_are_bounded() -> None:
    store, batch = SeriesStore(), ReadBatch("f", None)
    batch.points = [MetricPoint(str(n), "step", 1.0, 1.0, None) for n in range(MAX_SERIES + 3)]
    store.apply_batch(batch)
    assert (len(store.series), store.dropped) == (MAX_SERIES, 3)


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(allow_nan=False)), max_size=60))
def test_order_and_last_wins(points: list[tuple[int, float]]) -> None:
    found = series(*points)
    assert found.xs == sorted(set(found.xs))
    if points:
        assert (found.xs[-1], found.ys[-1]) == points[-1]
    last = dict(points)
    assert all(last[int(x)] == y for x, y in zip(found.xs, found.ys, strict=True))
