"""Percents, sizes and plurals are written in one way, by one function each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rgt_tui
from rgt_tui.model.figures import how_many, noun, pct, size
from rgt_tui.ui.notation import percent

HOME = Path(rgt_tui.__file__).parent
BY_HAND = re.compile(r"""\}\ ?%(?=[ "'.,;:)])|\}%"|['"]s['"]\ if |else\ ['"]s['"]\}""", re.VERBOSE)
"""A percent sign or a plural that somebody has put together themselves."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "?"), (float("nan"), "?"), (0.0, "0 %"), (0.4, "<1 %"), (62.6, "62 %"), (99.2, "99 %"), (99.97, "99 %"),
        (100.0, "100 %"), (250.0, "250 %"),
    ],
)  # fmt: skip
def test_a_percentage_in_words_is_rounded_down_and_never_full_or_nothing_short_of_it(
    value: float | None, said: str
) -> None:
    assert pct(value) == said


def test_a_percentage_in_a_column_is_rounded_to_the_nearest() -> None:
    shown = [percent(value) for value in (0.0, 0.4, 62.6, 99.97, 100.0)]
    assert shown == ["0%", "<1%", "63%", "99%", "100%"]


def test_counts_and_sizes() -> None:
    assert [how_many(count, "file") for count in (0, 1, 2310)] == ["0 files", "1 file", "2,310 files"]
    assert (noun(1, "directory", "directories"), noun(2, "directory", "directories")) == (
        "directory",
        "directories",
    )
    assert [size(count) for count in (None, 999, 38.2e9)] == ["?", "999 B", "38.2 GB"]


def test_nobody_writes_a_percent_or_a_plural_by_hand() -> None:
    own = {HOME / "model" / "figures.py", HOME / "ui" / "notation.py"}
    found = [
        f"{path.relative_to(HOME)}:{number}: {text.strip()}"
        for path in sorted(HOME.rglob("*.py"))
        if path not in own
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_HAND.search(text)
    ]
    assert found == [], "rgt_tui.model.figures has pct and how_many"
