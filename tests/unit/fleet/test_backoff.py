"""Waiting times double up to a ceiling, and vary, by what went wrong."""

from __future__ import annotations

import random

import pytest

from rgt_tui.fleet import WAITS, Backoff, ConnectFailure, link_after_failure
from rgt_tui.model import LinkState


@pytest.mark.parametrize("failure", ConnectFailure)
def test_waits_double_with_jitter_and_end_at_the_ceiling(failure: ConnectFailure) -> None:
    backoff = Backoff(random.Random(1))
    first, longest = WAITS[failure]
    waits = [backoff.next_wait_s(failure) for _ in range(40)]
    for index, wait in enumerate(waits):
        ceiling = min(longest, first * 2.0**index)
        assert ceiling / 2 <= wait <= ceiling
    assert len(set(waits)) == len(waits)


def test_a_box_that_cannot_be_reached_is_tried_within_two_minutes() -> None:
    assert WAITS[ConnectFailure.UNREACHABLE] == (1.0, 120.0)
    assert all(wait.longest <= 120 for failure, wait in WAITS.items() if "refused" not in failure)


def test_a_refusal_is_not_tried_again_soon() -> None:
    for failure in (ConnectFailure.REFUSED_KEY, ConnectFailure.REFUSED_LOGIN):
        assert Backoff().next_wait_s(failure) > 400


def test_a_connection_that_lived_resets_it() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(6):
        backoff.next_wait_s()
    backoff.reset()
    assert backoff.next_wait_s() <= 1.0


def test_only_a_refusal_says_more_of_the_link_than_unreachable() -> None:
    assert {link_after_failure(failure) for failure in ConnectFailure} == {
        LinkState.UNREACHABLE,
        LinkState.REFUSED_KEY,
        LinkState.REFUSED_LOGIN,
    }
