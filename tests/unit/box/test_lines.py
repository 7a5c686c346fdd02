from __future__ import annotations

import random

import pytest
from rgt_box.streams.log_follower import LineSplitter, clean_lines
from rgt_wire import CUT, MAX_LINE
from rgt_wire import line_text as clean


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        (b"windows\r", "windows"),
        (b" 1%|#   |\r 50%|##  |\r100%|####|", "100%|####|"),
        (b"10%\r100%\r", "100%"),
        (b"bad \xff\xfe utf8", "bad \ufffd\ufffd utf8"),
        (b"\x00\x01\x1b[31m", "\x00\x01\x1b[31m"),
        (b"", ""),
    ],
)
def test_a_line_is_made_fit_for_a_screen(raw: bytes, shown: str) -> None:
    assert clean(raw) == shown


def test_lines_that_are_cleaned_together_are_as_each_by_itself() -> None:
    seeded = random.Random(7)
    plain = [b"a", "é€".encode(), b"\n", b"\n", b"\x1b[31m", "\u2028".encode(), b"\x0b\x1c\x85"]
    odd = [b"\r", b"\xe2", b"\x82", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc0", b"\xff"]
    long = [
        "😀".encode() * (MAX_LINE // 4),
        "😀".encode() * (MAX_LINE // 4) + b"x",
        b"x" * MAX_LINE,
    ]
    for pieces in (plain, plain + odd, plain + long, plain + odd + long):
        for _ in range(300):
            raw = b"".join(seeded.choices(pieces, k=seeded.randrange(12)))
            assert clean_lines(raw) == [clean(row) for row in raw.split(b"\n")], raw[:200]


def test_a_long_line_is_cut_with_a_marker() -> None:
    assert clean(b"x" * (MAX_LINE + 1)) == "x" * MAX_LINE + CUT
    assert clean(b"x" * MAX_LINE) == "x" * MAX_LINE


def test_only_complete_lines_come_out_however_the_bytes_are_cut() -> None:
    text = b"one\ntwo\r\nthree 1\rthree 2\n\nlast"
    for size in range(1, len(text) + 1):
        splitter = LineSplitter()
        lines = [
            line for at in range(0, len(text), size) for line in splitter.feed(text[at : at + size])
        ]
        assert lines == ["one", "two", "three 2", ""]
        assert splitter.done == len(text) - len(b"last")


def test_an_endless_line_is_held_in_bounded_memory() -> None:
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.feed(b"y" * 65536) == []
        assert len(splitter._head) <= 3 * MAX_LINE
    (line,) = splitter.feed(b"\n")
    assert line == "y" * MAX_LINE + CUT
    assert splitter.done == 100 * 65536 + 1


def test_a_progress_bar_without_newline_is_folded_while_it_grows() -> None:
    splitter = LineSplitter()
    for step in range(20000):
        splitter.feed(b"\r%d%%" % step)
    assert len(splitter._head) < 100
    assert splitter.feed(b"\n") == ["19999%"]
