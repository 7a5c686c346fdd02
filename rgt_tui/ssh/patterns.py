"""OpenSSH's patterns: ``*``, ``?``, lists with commas, and ``!`` for never."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    # Several stars in a row mean one; each more would only cost time on a long name.
    text = re.sub(r"\*+", "*", pattern)
    return re.compile("".join(parts.get(char) or re.escape(char) for char in text), re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Tell whether one pattern fits the whole text."""
    return _compiled(pattern).fullmatch(text) is not None


def any_of(patterns: Iterable[str], text: str) -> bool:
    """Tell whether a pattern fits and none that begins with ``!`` does."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if matches(pattern[1:], text):
                return False
        else:
            found = found or matches(pattern, text)
    return found


def in_list(patterns: str, text: str, *, lower: bool = False) -> bool:
    """As `any_of`, for a list with commas; `lower` compares without regard to case."""
    if lower:
        patterns, text = patterns.lower(), text.lower()
    return any_of(patterns.split(","), text)
