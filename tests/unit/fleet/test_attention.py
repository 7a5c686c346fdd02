"""How closely a box is watched, as a table."""

from __future__ import annotations

import pytest

from rgt_tui.fleet import ATTENTION_PACES, Attention, sampling_interval, settings_for_size
from rgt_tui.fleet.attention import attention


@pytest.mark.parametrize(
    ("focus", "looking", "expected"),
    [
        (None, True, Attention.VISIBLE),
        ("a", True, Attention.FOCUSED),
        ("b", True, Attention.HIDDEN),
        ("a", False, Attention.NOBODY),
        (None, False, Attention.NOBODY),
    ],
)
def test_who_looks(focus: str | None, looking: bool, expected: Attention) -> None:
    assert attention("a", focus, looking) is expected


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        (1, (1, 1, 1, 2)),
        (12, (1, 1, 1, 2)),
        (13, (1, 1, 5, 5)),
        (100, (1, 1, 5, 5)),
        (500, (1, 1, 5, 10)),
    ],
)
def test_boxes_that_nobody_looks_at_are_sampled_more_slowly(
    boxes: int, expected: tuple[int, ...]
) -> None:
    assert tuple(sampling_interval(1.0, paid, boxes) for paid in Attention) == expected


def test_nothing_becomes_slower_than_alerts_can_bear_nor_faster_than_described() -> None:
    assert sampling_interval(10.0, Attention.NOBODY, 500) == ATTENTION_PACES.slowest_s
    assert sampling_interval(60.0, Attention.NOBODY, 500) == 60.0
    assert sampling_interval(0.1, Attention.FOCUSED, 500) == 0.1


def test_of_a_crowd_less_is_kept_of_each() -> None:
    assert settings_for_size(1).lines > settings_for_size(50).lines > settings_for_size(500).lines
