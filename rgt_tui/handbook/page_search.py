"""Full-text search over the handbook: by id, by words, by an error line as it stands in a log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rgt_tui.handbook.line_search import search_text
from rgt_tui.handbook.pages import Page

_WORD = re.compile(r"\w+(?:[._-]\w+)*")
_WEIGHTS = (("id", 12), ("title", 6), ("symptom", 4), ("topic", 3), ("cause", 2), ("never", 1))


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
    words = [word.lower() for word in _WORD.findall(term)]
    scored = [(_score(page, words) + 100 * (page.id in by_line), page) for page in known]
    return [page for score, page in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def _score(page: Page, words: list[str]) -> int:
    """Return how well a page fits: every word must stand in it, at the beginning of a word."""
    total = 0
    fields = [(getattr(page, key).lower(), weight) for key, weight in _WEIGHTS]
    fields.append((" ".join(f"{fix.text} {fix.command or ''}" for fix in page.fixes).lower(), 1))
    fields.append((" ".join(page.needles), 3))
    for word in words:
        begins = re.compile(rf"(?<!\w){re.escape(word)}")
        best = max((weight for text, weight in fields if begins.search(text)), default=0)
        if not best:
            return 0
        total += best
    return total
