"""The handbook: known ways for training to go wrong, as data; how a log shows them, and the way out."""

from __future__ import annotations

from rgt_tui.handbook.file_triage import SPECIFIC, FileFinding, Unreadable, how_sure, triage_file
from rgt_tui.handbook.line_search import (
    LineHit,
    Lookout,
    Searcher,
    by_writer,
    find_pages,
    search_text,
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
from rgt_tui.handbook.sample_evidence import read_samples, weighed

__all__ = [
    "ACTION_WORDS", "SPECIFIC", "Action", "FileFinding", "HandbookError", "LineHit", "Lookout", "Page", "Searcher",
    "Unreadable", "all_pages", "by_writer", "find_pages", "how_sure", "own_directory", "read_pages", "read_samples",
    "search_text", "shipped_pages", "triage_file", "weighed", "writer_of",
]  # fmt: skip
