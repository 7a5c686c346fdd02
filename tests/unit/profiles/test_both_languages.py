"""What a person clicks on a Chinese console stands in both languages at once, wherever rgt says it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest

from rgt_tui.profiles import all_profiles, list_manual_steps, load_profile

CHINESE = re.compile(r"[\u4e00-\u9fff]+(?:[A-Za-z]+(?:[\u4e00-\u9fff]+)?)?")
OWN_WORDS = {"native_label", "name_zh", "log_signature", "example", "fact", "title", "url"}
"""Fields that are the platform's word, a line of a log, or what a source is called."""


def texts(value: object, name: str = "") -> Iterator[str]:
    """Yield every text that a screen or a command may show."""
    if name in OWN_WORDS:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner, name)


def alone(text: str) -> list[str]:
    """Return the Chinese words that no English one explains, before or behind them."""
    return [
        found[0]
        for found in CHINESE.finditer(text)
        if not re.match(r" \(|, the return|, its destruction", text[found.end() :])
        and not text[: found.start()].endswith("(")
    ]


@pytest.mark.parametrize("name", all_profiles())
def test_no_word_of_a_chinese_console_stands_alone(name: str) -> None:
    profile = msgspec.to_builtins(load_profile(name))
    assert [text for text in texts(profile) if alone(text)] == []


def test_the_ways_by_hand_say_both() -> None:
    stop = next(action for action in load_profile("autodl").billing if action.kind == "park")
    said = [text for _, text in list_manual_steps(stop)]
    assert "console: 关机 (stop)" in said
    assert alone("console: 关机 first") == ["关机"]
