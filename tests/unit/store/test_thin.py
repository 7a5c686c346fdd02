"""Thinning keeps what a person looks for in a curve."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.store.saved_curves import thin_indices

values = st.floats(allow_nan=True, allow_infinity=True)
curves = st.lists(st.tuples(st.integers(-5, 400), values), min_size=1, max_size=400)


@settings(max_examples=200, deadline=None)
@given(curves, st.integers(16, 64))
def test_a_thinned_curve_keeps_its_ends_extremes_and_bound(
    points: list[tuple[int, float]], most: int
) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    kept = thin_indices(xs, ys, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    assert {0, len(xs) - 1} <= set(kept)
    finite = [y for y in ys if math.isfinite(y)]
    if finite:
        assert min(finite) in {ys[i] for i in kept}
        assert max(finite) in {ys[i] for i in kept}
    assert any(math.isnan(y) for y in ys) == any(math.isnan(ys[i]) for i in kept)
    if len(xs) <= most:
        assert kept == list(range(len(xs)))


def test_one_nan_among_many_points_stays() -> None:
    ys = [1.0] * 50_000
    ys[33_333] = math.nan
    ys[44_444] = -math.inf
    kept = thin_indices(range(50_000), ys, 256)
    assert {33_333, 44_444} <= set(kept)


def test_thinning_again_and_again_does_not_starve_the_beginning() -> None:
    """As it happens to the stored curve of a run that goes on for weeks."""
    xs: list[int] = []
    ys: list[float] = []
    for step in range(200_000):
        xs.append(step)
        ys.append(math.sin(step / 5000))
        if len(xs) > 1024:
            kept = thin_indices(xs, ys, 512)
            xs, ys = [xs[i] for i in kept], [ys[i] for i in kept]
    first, last = sum(x < 50_000 for x in xs), sum(50_000 <= x < 100_000 for x in xs)
    assert first > 0.5 * last > 20


def test_what_was_lost_before_a_resume_is_drawn_as_well() -> None:
    xs = [*range(1000), *range(500, 1500)]
    ys = [2.0] * 1000 + [1.0] * 1000
    kept = thin_indices(xs, ys, 128)
    assert {ys[i] for i in kept if 600 <= xs[i] < 900} == {1.0, 2.0}
