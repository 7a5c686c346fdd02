"""No expression of the console's reader tries the ways in which a text can be divided one by one."""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any

import pytest

MODULES = ("line_plans", "console_blocks", "console_lines", "formats", "json_documents", "tables")
EXPRESSIONS = {
    f"{module}.{name}": value
    for module in MODULES
    for name, value in vars(import_module(f"rgt_box.metrics.{module}")).items()
    if isinstance(value, re.Pattern)
}
PIECES = (
    "the man said , ", "abcdefgh_", "a, ", "a , b/", "a  ", " ", "\t", "-", "#", ", 'a", "|", "| ", "[ ", "[1.0, ",
    "{", '"a": [', "1,", "1 ", "=", "!", "a: ", "a=1 ", ": a ", "100%|a", "epoch 1 ", "\u2500", "1.0/", "Train ",
)  # fmt: skip
ENDS = ("", ". ", "\0", "x: ", "] ,")


def seconds(pattern: Any, text: Any) -> float:
    best = 9.0
    for _ in range(3):
        began = time.thread_time()
        pattern.search(text)
        best = min(best, time.thread_time() - began)
    return best


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_more_of_a_text_takes_no_more_than_its_share(name: str) -> None:
    pattern = EXPRESSIONS[name]
    short, times = 4, 3  # a bounded expression that tries every way is as slow for any longer text
    for piece in PIECES:
        for end in ENDS:
            texts: list[Any] = [f" {piece * count}{end}" for count in (short, times * short)]
            if isinstance(pattern.pattern, bytes):
                texts = [text.encode() for text in texts]
            small = seconds(pattern, texts[0])
            # What tries every way takes some hundred times as long; what begins at each place, 9 times.
            assert seconds(pattern, texts[1]) < 40 * small + 0.02, (piece, end)
