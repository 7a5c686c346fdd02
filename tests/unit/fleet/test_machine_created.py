"""From when on files count as made on a machine: one wrong date or clock makes the list longer, never shorter."""

from __future__ import annotations

import pytest

from rgt_tui.fleet import EVIDENCE_LIMITS, created_at
from rgt_tui.model import Meter

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("skew", "since"),
    [
        (0.0, NOW - 3600 - EVIDENCE_LIMITS.made_before_s),
        (60.0, NOW - 3600 - EVIDENCE_LIMITS.made_before_s),
        (-60.0, NOW - 3660 - EVIDENCE_LIMITS.made_before_s),
    ],
)
def test_a_plausible_date_counts_by_the_earlier_of_two_clocks(skew: float, since: float) -> None:
    assert created_at(Meter(created=NOW - 3600, started=NOW - 1800), NOW, skew) == (since, "")


@pytest.mark.parametrize(
    ("created", "started", "skew", "reason"),
    [
        (None, NOW, 0.0, "does not say"),
        (NOW + 1, None, 0.0, "in the future"),
        (NOW - 60, NOW - 3600, 0.0, "reports a start before the creation"),
        (NOW - 3600, None, None, "clock of the box"),
        (NOW - 3600, None, 3600.0, "clock of the box"),
        (NOW - 3600, None, -3600.0, "clock of the box"),
    ],
)
def test_a_date_that_something_contradicts_is_unknown(
    created: float | None, started: float | None, skew: float | None, reason: str
) -> None:
    since, why = created_at(Meter(created=created, started=started), NOW, skew)
    assert since is None and reason in why
