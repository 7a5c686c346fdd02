"""Percents, sizes and plurals are written in one way, by one function each."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import rgt_tui
from rgt_tui.model import how_many, memory, noun, pct, size
from rgt_tui.ui import percent_or_dash

HOME = Path(rgt_tui.__file__).parent
BY_HAND = re.compile(r"""\}\ ?%(?=[ "'.,;:)])|\}%"|['"]s['"]\ if |else\ ['"]s['"]\}""", re.VERBOSE)
"""A percent sign or a plural that somebody has put together themselves."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "?"), (float("nan"), "?"), (0.0, "0%"), (0.4, "<1%"), (62.6, "62%"), (99.2, "99%"), (99.97, "99%"),
        (100.0, "100%"), (250.0, "250%"), (100.0 * 0.57, "57%"),
    ],
)  # fmt: skip
def test_a_percentage_is_rounded_down_and_reads_the_same_in_an_alert_and_in_a_column(
    value: float | None, said: str
) -> None:
    assert pct(value) == said
    assert percent_or_dash(value) == (said if said != "?" else "–")


def test_counts_and_sizes() -> None:
    assert [how_many(count, "file") for count in (0, 1, 2310)] == [
        "0 files",
        "1 file",
        "2,310 files",
    ]
    assert (noun(1, "directory", "directories"), noun(2, "directory", "directories")) == (
        "directory",
        "directories",
    )
    assert [size(count) for count in (None, 999, 38.2e9, 99.97e6)] == [
        "?",
        "999 B",
        "38.2 GB",
        "100 MB",
    ]


def test_a_disk_counts_in_thousands_and_a_memory_as_the_kernel_does() -> None:
    assert [memory(count) for count in (None, 812, 24 << 30, 140 << 30, 512 << 20)] == [
        "?", "812 B", "24.0 GiB", "140 GiB", "512 MiB",
    ]  # fmt: skip
    assert size(80 << 30) == "85.9 GB"
    assert [what(math.inf) for what in (size, memory)] == ["?", "?"]


def test_nobody_writes_a_percent_or_a_plural_by_hand() -> None:
    own = {HOME / "model" / "formats.py", HOME / "ui" / "notation.py"}
    found = [
        f"{path.relative_to(HOME)}:{number}: {text.strip()}"
        for path in sorted(HOME.rglob("*.py"))
        if path not in own
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_HAND.search(text)
    ]
    assert found == [], "rgt_tui.model has pct and how_many"
