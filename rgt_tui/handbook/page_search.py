"""Finds the pages of the handbook that a few words, or a line of a log, are about."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence

from rgt_tui.handbook.line_search import search_text
from rgt_tui.handbook.pages import Page

_WORD = re.compile(r"\w+(?:[._-]\w+)*")
_WEIGHTS = (("id", 12), ("title", 6), ("symptom", 4), ("topic", 3), ("cause", 2), ("never", 1))
_ENDING = re.compile(r"(?<=\w{4})(?:ions?|ings?|ed|ers?|e?s|e)$")
"""What a word may end with without meaning something else: hang, hangs, hanging."""
_SAY_NOTHING = frozenset(
    re.findall(
        r"\w+",
        "a after am an and are at be by can cannot do does doesn don error for from get got has have how i if in is "
        "isn it my of on or s t than that the this to was wasn what when where while why with without won",
    )
)
_SHORT = {"oom": "out of memory", "hf": "hugging face", "vram": "gpu memory"}
"""What people write, as the pages have it."""
_GENERAL = 1.2
"""How much more a page counts that others are special cases of: a few words rarely mean one of those."""
MOST_WORDS = 16
"""Words of a term that count, from its beginning: lines of logs are long."""
LONG = 7
"""Letters of a word that may be written as two."""
_ENOUGH = 0.5
"""Share of what a term's words say that a page must be about."""


def find_pages(term: str, pages: Iterable[Page]) -> list[Page]:
    """Return the pages that `term` is about, the best first.

    Args:
        term: An id, words, or a line of a log: what a log line proves comes first.
        pages: The handbook.
    """
    known = list(pages)
    exact = [page for page in known if page.id.lower() == term.strip().lower()]
    if exact:
        return exact
    by_line = {hit.id for hit in search_text(term, known)}
    said = [part for word in _WORD.findall(term.lower()) for part in _SHORT.get(word, word).split()]
    fits = _fits(([word for word in said if word not in _SAY_NOTHING] or said)[:MOST_WORDS], known)
    whole = _ENOUGH if not by_line else 1.0
    general = {loser for page in known for loser in page.beats}
    scored = [
        (fit * share * share * (_GENERAL if page.id in general else 1.0) + 100 * (page.id in by_line), page)
        for page, (fit, share) in zip(known, fits, strict=True)
        if share >= whole or page.id in by_line
    ]
    return [page for score, page in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def _fits(words: Sequence[str], pages: Sequence[Page]) -> list[tuple[float, float]]:
    """Return how well each page fits, and the share of the words that it has, where a rare word says more."""
    texts = [_fields(page) for page in pages]
    columns = [[_weight(fields, begins) for fields in texts] for begins in map(_begins, words)]
    rare = [math.log(1 + len(pages) / having) if (having := sum(map(bool, one))) else 0.0 for one in columns]
    every = sum(rare) or 1.0
    return [
        (
            sum(one[place] * worth for one, worth in zip(columns, rare, strict=True)),
            sum(worth for one, worth in zip(columns, rare, strict=True) if one[place]) / every,
        )
        for place in range(len(pages))
    ]


@functools.cache
def _fields(page: Page) -> tuple[tuple[str, int], ...]:
    """Return the texts of a page, each with what a word in it weighs, the weightiest first."""
    fields = [(getattr(page, key).lower(), weight) for key, weight in _WEIGHTS]
    fields.append((" ".join(f"{fix.text} {fix.command or ''}" for fix in page.fixes).lower(), 1))
    fields.append((" ".join(page.needles), 3))
    return tuple(sorted(fields, key=lambda field: -field[1]))


def _begins(word: str) -> re.Pattern[str]:
    """Return what finds words that begin with one, spelt in any way; its group is there for the whole word."""
    stem = _ENDING.sub("", word)
    between = "[ -]?" if len(stem) >= LONG else ""
    spelt = between.join("[sz]" if letter == "z" else re.escape(letter) for letter in stem)
    return re.compile(rf"(?<!\w){spelt}((?:{stem[-1:]}?(?:ions?|ings?|ed|ers?|e?s|e))?\b)?")


def _weight(fields: Iterable[tuple[str, int]], begins: re.Pattern[str]) -> int:
    """Return what a word weighs in a page: it must begin one of its words; a whole word counts twice."""
    best = 0
    for text, weight in fields:
        if 2 * weight <= best:
            break
        if (match := begins.search(text)) is not None:
            best = max(best, weight * (2 if match[1] is not None else 1))
    return best
