"""Spans of time as people type them."""

from __future__ import annotations

import argparse

import pytest

from rgt_tui.cli import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45),
        ("90s", 90),
        ("45m", 2700),
        ("1.5h", 5400),
        ("8h", 28800),
        ("1d", 86400),
        ("1h30", 5400),
        ("1h30m", 5400),
        ("1m30", 90),
        ("2d4h", 187200),
    ],
)
def test_what_is_a_span(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0h", "h", "-5m", "30m2h", "1h30x", "nan", "inf", "1h 30", "9" * 40, "1:30"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        parse_duration(text)
