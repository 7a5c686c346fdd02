from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import MoneyAmount, clean_text, format_duration, format_time_ago
from rgt_tui.ui import ASCII, UNICODE, choose_glyphs
from rgt_tui.ui import notation as f


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-3, "0s"),
        (0, "0s"),
        (42.9, "42s"),
        (60, "1m00"),
        (134, "2m14"),
        (3599, "59m59"),
        (11_220, "3h07"),
        (14 * 86_400 + 6 * 3600 + 59, "14d 6h"),
        (18 * 86_400 + 22 * 3600, "18d 22h"),
        (2000 * 86_400, "2000d"),
        (math.nan, "–"),
    ],
)
def test_compact_time(seconds: float | None, text: str) -> None:
    assert f.compact_time(seconds) == text


@given(st.floats(min_value=0, max_value=1e8))
def test_a_duration_has_one_form_on_screens_and_in_commands(seconds: float) -> None:
    assert f.compact_time(seconds) == format_duration(seconds)
    assert format_time_ago(1e9 - seconds, 1e9).removesuffix(" ago") == format_duration(
        1e9 - (1e9 - seconds)
    )


def test_a_narrow_cell_drops_the_hours_rather_than_cutting_them() -> None:
    assert f.narrow_time(18 * 86_400 + 22 * 3600) == "18d"
    assert f.narrow_time(14 * 86_400 + 6 * 3600) == "14d 6h"
    assert f.narrow_time(None) == "–"


@given(st.floats(min_value=0, max_value=999 * 86_400))
def test_compact_time_is_short(seconds: float) -> None:
    assert len(f.compact_time(seconds)) <= 8


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0%"),
        (0.2, "<1%"),
        (40.6, "40%"),
        (99.7, "99%"),
        (100, "100%"),
        (math.inf, "–"),
    ],
)
def test_percent_never_rounds_to_full_or_empty(value: float | None, text: str) -> None:
    assert f.percent_or_dash(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (812, "812 B"),
        (38_000_000, "38.0 MB"),
        (4_100_000_000, "4.1 GB"),
        (10**15, "1000.0 TB"),
    ],
)
def test_size(count: int | None, text: str) -> None:
    assert f.size_or_dash(count) == text


def test_memory_is_counted_as_the_kernel_counts_it() -> None:
    assert [f.memory_or_dash(count) for count in (None, 4 << 30)] == ["–", "4.0 GiB"]
    assert "".join(f.gib_of(16.9 * (1 << 30), 24 << 30)) == "16.9/24 GiB"
    assert "".join(f.gib_of(None, None)) == "–/– GiB"


def test_money_has_its_currency_and_unknown_is_not_free() -> None:
    assert f.money_or_dash(1.11) == "$1.11"
    assert f.money_or_dash(5.12, "CNY") == "¥5.12"
    assert f.money_or_dash(7, "PLN") == "7.00 PLN"
    assert f.money_or_dash(None) == "–"
    assert f.money_or_dash(0.004) == "<$0.01"
    assert f.money_or_dash(0.0) == "$0.00"
    assert f.money_or_dash(0.5055, "USD", True) == "≥ $0.50"
    assert f.amount_or_dash(None) == "–"
    assert f.amount_or_dash(MoneyAmount(0.5, at_least=True)) == "≥ $0.50"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (1.2844, "1.284"), (math.nan, "NaN"), (-math.inf, "-inf"), (3e-7, "3.0e-7")],
)
def test_number(value: float | None, text: str) -> None:
    assert f.number_or_dash(value) == text


HOSTILE = (
    ("\x1b[2J\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07shown", "shown"),
    ("\x1b]52;c;c2VjcmV0\x1b\\shown", "shown"),
    ("\x1bP1$r0m\x1b\\x", "x"),
    ("\x9b31mx\x9d0;t\x9cy", "xy"),
    ("a\rb\nc\x00d\x7fe", "abcde"),
    ("safe\u202egpj.exe", "safegpj.exe"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ("tab\tbed", "tab bed"),
    ("训练 ok", "训练 ok"),
    ("\x1b[", ""),
)


@pytest.mark.parametrize(("text", "cleaned"), HOSTILE)
def test_clean(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(st.text())
def test_clean_leaves_no_control_character(text: str) -> None:
    assert all(ord(c) >= 32 and not 0x7F <= ord(c) <= 0x9F for c in clean_text(text))


@pytest.mark.parametrize(
    ("environ", "encoding", "expected"),
    [
        ({}, "UTF-8", UNICODE),
        ({}, "utf_8", UNICODE),
        ({}, "ISO-8859-1", ASCII),
        ({"RGT_ASCII": "1"}, "UTF-8", ASCII),
        ({"RGT_ASCII": "0"}, "ascii", UNICODE),
        ({"TERM": "dumb"}, "UTF-8", ASCII),
        ({"TERM": "linux"}, "UTF-8", ASCII),
        ({"TERM": "linux", "RGT_ASCII": "0"}, "UTF-8", UNICODE),
    ],
)
def test_glyphs_are_chosen_by_the_terminal(
    environ: dict[str, str], encoding: str, expected: object
) -> None:
    assert choose_glyphs(environ, encoding) is expected


def test_ascii_glyphs_are_ascii_and_complete() -> None:
    for name in UNICODE._fields:
        value = getattr(ASCII, name)
        assert not isinstance(value, str) or value.isascii(), name
    for name in ("bar", "spark", "frame", "thin"):
        assert len(getattr(ASCII, name)) == len(getattr(UNICODE, name)), name


def test_no_screen_writes_percents_or_plurals_in_its_own_way() -> None:
    own = re.compile(r":\.\d?f\}\s?%|\(s\)[\"' ]")
    found = {
        f"{path.name}: {text.strip()}"
        for path in Path(f.__file__).parent.rglob("*.py")
        if path.name != "notation.py"
        for text in path.read_text(encoding="utf-8").splitlines()
        if own.search(text)
    }
    assert not found, "notation.percent and model.how_many write them"
    assert own.search('f"{value:.0f} %"') and own.search('"3 box(s)"')
