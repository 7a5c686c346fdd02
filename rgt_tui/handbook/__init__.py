"""The handbook: known failures of training as data, how they show in a log, and how to fix them."""

from __future__ import annotations

from rgt_tui.handbook.envelopes import LogSource
from rgt_tui.handbook.file_triage import (
    KERNEL,
    SPECIFIC,
    SYMPTOM,
    FileFinding,
    JudgedPage,
    LogJudge,
    Unreadable,
    add_nearest_page,
    curve_findings,
    find_last_exception,
    killed_by,
    triage_file,
    went_on,
)
from rgt_tui.handbook.line_search import (
    LineHit,
    LiteralSearch,
    LogSearcher,
    compiled_by_re2,
    hits_of,
    in_order,
    search_text,
    states_of,
    writer_of,
)
from rgt_tui.handbook.outlived import drop_outlived, find_stated_ends
from rgt_tui.handbook.page_search import TextIndex, build_page_index, find_pages
from rgt_tui.handbook.pages import (
    ACTION_WORDS,
    AdvisedAction,
    HandbookError,
    HandbookPage,
    PageRole,
    all_pages,
    choose_fixes,
    own_directory,
    read_pages,
    shipped_pages,
)

# Other packages and the tests import these names from here, so that modules can move.
__all__ = [
    "ACTION_WORDS",
    "KERNEL",
    "SPECIFIC",
    "SYMPTOM",
    "AdvisedAction",
    "FileFinding",
    "HandbookError",
    "HandbookPage",
    "JudgedPage",
    "LineHit",
    "LiteralSearch",
    "LogJudge",
    "LogSearcher",
    "LogSource",
    "PageRole",
    "TextIndex",
    "Unreadable",
    "add_nearest_page",
    "all_pages",
    "build_page_index",
    "choose_fixes",
    "compiled_by_re2",
    "curve_findings",
    "drop_outlived",
    "find_last_exception",
    "find_pages",
    "find_stated_ends",
    "hits_of",
    "in_order",
    "killed_by",
    "own_directory",
    "read_pages",
    "search_text",
    "shipped_pages",
    "states_of",
    "triage_file",
    "went_on",
    "writer_of",
]  # fmt: skip
