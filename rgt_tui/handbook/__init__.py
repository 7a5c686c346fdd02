"""The handbook: known failures of training as data, how they show in a log, and how to fix them."""

from __future__ import annotations

from rgt_tui.handbook.file_triage import (
    KERNEL,
    SPECIFIC,
    FileFinding,
    Judge,
    Told,
    Unreadable,
    curve_findings,
    killed_by,
    last_words,
    triage_file,
    went_on,
)
from rgt_tui.handbook.line_search import (
    LineHit,
    Lookout,
    Searcher,
    compiled_by_re2,
    find_pages,
    hits_of,
    in_order,
    search_text,
    states_of,
    writer_of,
)
from rgt_tui.handbook.pages import (
    ACTION_WORDS,
    Action,
    HandbookError,
    Page,
    all_pages,
    own_directory,
    read_pages,
    shipped_pages,
)

__all__ = [
    "ACTION_WORDS", "KERNEL", "SPECIFIC", "Action", "FileFinding", "HandbookError", "Judge", "LineHit", "Lookout",
    "Page", "Searcher", "Told", "Unreadable", "all_pages", "compiled_by_re2", "curve_findings", "find_pages", "hits_of",
    "in_order", "killed_by", "last_words", "own_directory", "read_pages", "search_text",
    "shipped_pages", "states_of", "triage_file", "went_on", "writer_of",
]  # fmt: skip
