"""Fewer points that draw the same curve. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def thin(xs: Sequence[int], ys: Sequence[float], most: int) -> list[int]:
    """Return the places of at most `most` points that draw the curve ``(xs, ys)``.

    Kept are both ends, and of every stretch of steps the lowest and the highest point and the first NaN and the first
    infinity of either sign: what a person looks for in a curve is its extremes. Stretches are of equal width in steps,
    so that thinning again and again while a run goes on does not starve its beginning; a resume that goes back in
    steps begins a stretch of its own. A curve that goes back too often for that is cut by places instead.

    Args:
        xs: Steps.
        ys: Values, as many.
        most: At least 16.
    """
    if len(xs) <= most:
        return list(range(len(xs)))
    low, high = min(xs), max(xs)
    parts = most // 2 - 1
    while parts >= 2:
        width = (high - low) / parts
        kept = _kept(ys, [int((x - low) / width) for x in xs] if width > 0 else [0] * len(xs))
        if len(kept) <= most:
            return kept
        parts //= 2
    parts = max(1, most // 6)
    return _kept(ys, [index * parts // len(xs) for index in range(len(xs))])


def _kept(ys: Sequence[float], stretch_of: Sequence[int]) -> list[int]:
    kept = {0, len(ys) - 1}
    for start, stop in _stretches(stretch_of):
        kept.update(_extremes(ys, start, stop))
    return sorted(kept)


def _stretches(stretch_of: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(stretch_of)):
        if stretch_of[index] != stretch_of[start]:
            yield start, index
            start = index
    yield start, len(stretch_of)


def _extremes(ys: Sequence[float], start: int, stop: int) -> set[int]:
    found: dict[str, int] = {}
    for index in range(start, stop):
        value = ys[index]
        if math.isfinite(value):
            if "low" not in found or value < ys[found["low"]]:
                found["low"] = index
            if "high" not in found or value > ys[found["high"]]:
                found["high"] = index
        else:
            found.setdefault(str(value), index)
    return set(found.values())
