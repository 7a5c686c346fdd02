"""No pattern is catastrophic: up to 1 MiB of text made to nearly match it, the time grows with the text."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.handbook import HandbookPage, search_text, shipped_pages

parser: Any = import_module("re._parser")
PAGES = [page for page in shipped_pages().values() if page.patterns]
SMALL, LARGE = 128 << 10, 1 << 20
QUICK_S = 0.4
"""A text of 1 MiB that takes less shows nothing that is worth a second look."""
WIDE = 4.0
"""A busy machine may make the larger one slower by so much; what is quadratic is slower by 8."""
LINE = 1900
"""Characters of a line, nearly the most that patterns see."""


def example(items: Iterable[Any]) -> str:
    """Return a text that a parsed pattern matches, or nearly."""
    out = []
    for kind, value in items:
        name = str(kind)
        if name == "LITERAL":
            out.append(chr(value))
        elif name in ("ANY", "NOT_LITERAL"):
            out.append("x")
        elif name == "IN":
            out.append(member(*value[0]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            out.append(example(value[2]) * max(value[0], 1))
        elif name == "SUBPATTERN":
            out.append(example(value[-1]))
        elif name == "BRANCH":
            out.append(example(value[1][0]))
    return "".join(out)


def member(kind: Any, value: Any) -> str:
    if str(kind) == "LITERAL":
        return chr(value)
    if str(kind) == "RANGE":
        return chr(value[0])
    known = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    return known.get(str(value), "x")


def spoiled(page: HandbookPage, size: int) -> str:
    """Return lines full of the beginnings of what the page's patterns match; no two are alike."""
    texts = [example(parser.parse(pattern, re.MULTILINE)) for pattern in page.patterns]
    pieces = [text[: max(4, len(text) * 3 // 4)] for text in texts]
    needle = next(iter(page.needles), "loss nan 137")
    words = map("".join, itertools.product("bcdfghjk", repeat=6))
    lines = []
    for piece in itertools.islice(itertools.cycle(pieces), size // LINE):
        body = f"{piece} " * (LINE // (len(piece) + 1))
        lines.append(f"{needle} {body}{next(words)}")
    return "\n".join(lines)


def seconds(page: HandbookPage, text: str) -> float:
    began = time.thread_time()
    search_text(text, [page])
    return time.thread_time() - began


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_time_grows_with_the_text(page: HandbookPage) -> None:
    large = spoiled(page, LARGE)
    took = seconds(page, large)
    if took < QUICK_S:
        return
    small = spoiled(page, SMALL)
    least = min(seconds(page, small) for _ in range(3))
    if took > WIDE * (LARGE / SMALL) * least:
        took = min(took, seconds(page, large))
    assert took <= WIDE * (LARGE / SMALL) * least
    assert took < 30  # linear, and nothing that anybody would wait for


def test_no_pattern_is_slow_on_real_failures(thorough: bool) -> None:
    """Tracebacks have what lines made from a pattern lack: hundreds of lines that begin alike."""
    real = (
        (Path(__file__).parents[2] / "fixtures" / "triage" / "real.jsonl").read_text().splitlines()
    )
    text = "\n".join(json.loads(line)["log"] for line in real[:: 1 if thorough else 4])

    def took(pattern: str) -> float:
        compiled = re.compile(pattern, re.MULTILINE)
        began = time.thread_time()
        for _ in compiled.finditer(text):
            pass
        return time.thread_time() - began

    plain = max(took(r"^(\S+)[^\n]*$") for _ in range(3))
    slow = [pattern for page in PAGES for pattern in page.patterns if took(pattern) > 40 * plain]
    assert not [pattern for pattern in slow if took(pattern) > 40 * plain]
