"""Waiting times double up to a ceiling, and vary."""

from __future__ import annotations

import random

from rgt_tui.fleet.backoff import LONGEST_SECONDS, Backoff


def test_waits_double_with_jitter_and_end_at_the_ceiling() -> None:
    backoff = Backoff(random.Random(1))
    waits = [backoff.wait() for _ in range(12)]
    for index, wait in enumerate(waits):
        ceiling = min(LONGEST_SECONDS, 2.0**index)
        assert ceiling / 2 <= wait <= ceiling


def test_a_connection_that_lived_resets_it() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(6):
        backoff.wait()
    backoff.reset()
    assert backoff.wait() <= 1.0
