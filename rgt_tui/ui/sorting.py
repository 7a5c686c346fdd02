"""Order and filter of the fleet's rows, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rgt_tui.ui.format import clean
from rgt_tui.ui.widgets.fleet_row import Row

Key = Callable[[Row], tuple[object, ...]]


def _trouble(row: Row) -> tuple[object, ...]:
    # Without the age of progress in it: rows must not change places every second while all is well.
    return (*row.verdict.rank[:3], row.name)


def _age(row: Row) -> tuple[object, ...]:
    age = row.verdict.progress_age
    return (-math.inf if age is None else -age if age > 10 else 0.0, row.name)


def _spent(row: Row) -> tuple[object, ...]:
    return (row.box.meter.currency, -(row.box.meter.spent or 0.0), row.name)


SORTS: dict[str, tuple[str, Key | None]] = {
    "state": ("trouble first", _trouble),
    "name": ("name", lambda row: (row.name,)),
    "age": ("longest without progress first", _age),
    "spent": ("most spent first", _spent),
    "file": ("as in the fleet file", None),
}
"""By the key of the column that the order is about: what it is called, and the order itself."""


def ordered(rows: Sequence[Row], sort: str) -> list[Row]:
    """Return the rows in the order called `sort`."""
    key = SORTS[sort][1]
    return list(rows) if key is None else sorted(rows, key=key)


def matches(row: Row, query: str) -> bool:
    """Say whether a row matches every word of a filter; ``!word`` must not match."""
    text = " ".join(
        (
            row.name,
            row.platform,
            row.box.spec.profile,
            row.verdict.health.value,
            row.verdict.word,
            *(alert.word + " " + alert.text for alert in row.verdict.alerts),
        )
    )
    text = clean(text).casefold()
    for word in query.casefold().split():
        if word.startswith("!"):
            if len(word) > 1 and word[1:] in text:
                return False
        elif word not in text:
            return False
    return True
