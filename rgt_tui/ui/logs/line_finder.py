"""What can be searched for in a log: a text, a regular expression, errors, pages of the handbook.

A person may type any pattern: RE2 takes a time that grows with the text alone. What RE2 does not know (look-around,
back references) is searched for as plain text, with a message.
"""

from __future__ import annotations

import functools
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from rgt_tui.fleet.logs.kept_lines import LineBlock
from rgt_tui.handbook import LineHit, Page, Searcher, compiled_by_re2
from rgt_tui.ui.logs.error_lines import OTHERS, WORDS, is_error

Spans = tuple[tuple[int, int], ...]


class Finder(Protocol):
    """Looks for something in blocks of lines, in a thread."""

    around: int
    """Lines before a block that it must see, too."""
    quick: bool
    """It may search a small block on the UI thread."""

    def find(self, block: LineBlock) -> Sequence[tuple[int, str]]:
        """Return the numbers of the lines that have it, in order, each with what it is called there."""
        ...


Search = Callable[[bytes, int], Any]
"""``search`` of a compiled pattern: text and where to begin; a match or None."""


def lines_with(search: Search, block: LineBlock) -> Iterator[int]:
    """Yield the index of each line of a block in which a match begins."""
    text, starts, at = block.text, block.starts, 0
    while (match := search(text, at)) is not None:
        index = bisect_right(starts, match.start()) - 1
        if match.start() >= len(text):
            return
        yield index
        if index + 1 >= len(starts):
            return
        at = starts[index + 1]


def _lines_with_text(needle: bytes, text: bytes, starts: array[int]) -> Iterator[int]:
    find, count, index = text.find, len(starts), 0
    at = find(needle)
    while at >= 0:
        index = bisect_right(starts, at, index) - 1
        yield index
        index += 1
        if index >= count:
            return
        at = find(needle, starts[index])


class TextFinder:
    """Looks for a text as it stands.

    Args:
        text: What.
        fold: Upper and lower case are the same.
    """

    around = 0
    quick = True

    def __init__(self, text: str, *, fold: bool) -> None:
        self._shown = re.compile(re.escape(text), re.IGNORECASE if fold else 0)
        raw = text.encode("utf-8", "replace")
        self._search: Search = compiled_by_re2(re.escape(raw), fold=fold).search
        self._raw, self._fold = raw, fold

    def find(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that have it."""
        if not self._raw.isascii():
            return [(block.first + index, "") for index in lines_with(self._search, block)]
        if self._search(block.text, 0) is None:
            return []
        # Where it stands often, this is the faster way.
        text, needle = (block.text.lower(), self._raw.lower()) if self._fold else (block.text, self._raw)
        return [(block.first + index, "") for index in _lines_with_text(needle, text, block.starts)]

    def spans(self, line: str) -> Spans:
        """Return where it stands in a line."""
        return tuple(match.span() for match in self._shown.finditer(line))


_BEYOND = re.compile(r"\\[sWDnvfBpPxX]|\[\^|\\[^\w\s]?$|\(\?s")
"""A match of it may go on over the end of a line: the line is then looked at by itself."""
_WHOLE = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*-")
"""Has to see each line by itself."""


class Re2Finder:
    """Looks for a regular expression with RE2.

    Args:
        pattern: One that RE2 knows.
        fold: Upper and lower case are the same.

    Raises:
        ValueError: RE2 does not know it; the message says why.
    """

    around = 0
    quick = True

    def __init__(self, pattern: str, *, fold: bool) -> None:
        self._one = compiled_by_re2(pattern, fold=fold)
        self._many = None if _WHOLE.search(pattern) else compiled_by_re2(f"(?m){pattern}".encode(), fold=fold)
        self._alone = _BEYOND.search(pattern) is not None

    def find(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that have it."""
        if self._many is None:
            rows = (block.line(index).decode() for index in range(len(block.starts)))
            return [(block.first + index, "") for index, row in enumerate(rows) if self._one.search(row)]
        found = lines_with(self._many.search, block)
        if self._alone:
            found = (index for index in found if self._one.search(block.line(index).decode()))
        return [(block.first + index, "") for index in found]

    def spans(self, line: str) -> Spans:
        """Return where it matches in a line."""
        found = []
        for match in self._one.finditer(line):
            if match.end() > match.start():
                found.append((match.start(), match.end()))
        return tuple(found)


PatternFinder = TextFinder | Re2Finder


class Chosen(NamedTuple):
    """How a text that somebody typed is looked for."""

    finder: PatternFinder
    trouble: str
    """Why it is looked for as plain text, though it looks like an expression; empty = it is not."""


_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}]*")
_ESCAPED = re.compile(r"\\.")


def folds(text: str) -> bool:
    """Tell whether upper and lower case are the same for what was typed: where it has no capital."""
    return not any(character.isupper() for character in _ESCAPED.sub("", text))


def finder_for(text: str) -> Chosen:
    """Choose how to look for what was typed: smart case, a regular expression where it is one."""
    fold = folds(text)
    if _PLAIN.fullmatch(text):
        return Chosen(TextFinder(text, fold=fold), "")
    try:
        return Chosen(Re2Finder(text, fold=fold), "")
    except ValueError as error:
        return Chosen(
            TextFinder(text, fold=fold), f"not a regular expression ({error}): searched as plain text"
        )


class ErrorFinder:
    """Looks for errors."""

    around = 0
    quick = True

    def __init__(self) -> None:
        words = "|".join(re.escape(word) for word in WORDS)
        likely = compiled_by_re2(f"(?m){words}|{'|'.join(OTHERS)}".encode(), fold=True)
        self._search: Search = likely.search

    def find(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that are errors."""
        likely = lines_with(self._search, block)
        return [(block.first + index, "") for index in likely if is_error(block.line(index).decode())]


@functools.cache
def error_finder() -> ErrorFinder:
    """Return the one that all logs share."""
    return ErrorFinder()


_NUMBERS = re.compile(r"\d+")


def shape(line: str) -> str:
    """Return a line without its numbers: what repeats itself has one shape."""
    return _NUMBERS.sub("0", line[:300])


class PageFinder:
    """Looks for what the handbook knows.

    Args:
        pages: Its pages.
    """

    around = 25
    quick = False

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = tuple(pages)

    def find(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that show a page, with its id."""
        searcher = Searcher(self._pages)
        hits: list[LineHit] = [*searcher.feed(block.text), *searcher.close()]
        first: dict[int, str] = {}
        for hit in hits:
            first.setdefault(block.first + hit.line_no - 1, hit.id)
        return sorted(first.items())
