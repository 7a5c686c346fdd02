"""Hostile text is made harmless."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import clean_text


def test_escape_sequences_and_controls_go_and_words_stay() -> None:
    assert clean_text("\x1b[2J\x1b[1;31mloss\x1b[0m 1.2") == "loss 1.2"
    assert clean_text("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\") == "link"
    assert clean_text("a\x00b\x9b1mc\x7f") == "abc"
    assert clean_text("ab\u202ecd") == "abcd"


def test_tabs_become_spaces_and_line_feeds_go() -> None:
    assert clean_text("a\tb\nc") == "a   bc"


@given(st.text())
def test_nothing_that_moves_the_cursor_survives(text: str) -> None:
    result = clean_text(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in result)


@given(st.text(alphabet=st.characters(codec="ascii", categories=("L", "N", "P", "Zs"))))
def test_ordinary_text_is_untouched(text: str) -> None:
    assert clean_text(text) == text
