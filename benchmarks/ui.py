"""What the screens cost, each beside the plain way to do the same, in one run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks.report import Row, main
from benchmarks.ui_curves import curves_cases
from benchmarks.ui_fleet import BOXES, KEY_MS, fleet_cases
from benchmarks.ui_keys import far_cases
from benchmarks.ui_logs import log_cases

NAME = "ui"


def over_ssh(quick: bool) -> Sequence[Row]:
    """Keys beside real connections; connecting so many boxes takes longer than a quick run may."""
    if quick:
        return []
    return far_cases(BOXES, 600, KEY_MS)


CASES: tuple[Callable[[bool], Sequence[Row]], ...] = (
    fleet_cases,
    over_ssh,
    curves_cases,
    log_cases,
)
"""A function per screen: takes `quick`, returns its rows."""


def run(quick: bool) -> list[Row]:
    """Measure; returns the table."""
    return [row for case in CASES for row in case(quick)]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
