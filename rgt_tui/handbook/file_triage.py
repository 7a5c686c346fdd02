"""Triage of a log of any origin: which pages it shows, the best first, with the very line that proves each."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from rgt_tui.files import open_regular
from rgt_tui.handbook.judgement import Judge, went_on
from rgt_tui.handbook.line_search import ANSI, LineHit, Searcher
from rgt_tui.handbook.pages import Page
from rgt_tui.model.evidence import Fix

PIECE = 1 << 20
END = 1 << 18
"""Bytes from the end of a log in which it is looked for that it went on."""


class Unreadable(Exception):
    """A file that cannot be read; names it."""


class FileFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a log shows."""

    gotcha: str
    title: str
    line_no: int
    line: str
    confidence: float
    severity: str
    action: str
    fix: tuple[Fix, ...]
    never: str
    times: int = 1
    """Lines of another kind each; such as differ by numbers alone count once."""

    @classmethod
    def of(cls, page: Page, line: str, confidence: float, *, line_no: int = 0, times: int = 1) -> FileFinding:
        """Return what `line` shows: the page with its words, its steps, and how sure that is."""
        return cls(
            gotcha=page.id,
            title=page.title,
            line_no=line_no,
            line=line,
            confidence=confidence,
            severity=str(page.severity),
            action=str(page.action),
            fix=page.fixes,
            never=page.never,
            times=times,
        )


def triage_file(
    path: Path, pages: Mapping[str, Page], also: Callable[[bytes], None] | None = None
) -> list[FileFinding]:
    """Return what a file shows, the best first; ``-`` is standard input, ``.gz`` is unpacked.

    Args:
        path: Of the file.
        pages: The handbook.
        also: Called with each piece that is read.

    Raises:
        Unreadable: it is missing, no regular file, or damaged.
    """
    searcher = Searcher(pages.values())
    hits: list[LineHit] = []
    end = b""
    try:
        with _opened(path) as file:
            while data := file.read(PIECE):
                hits.extend(searcher.feed(data))
                end = data[-END:] if len(data) >= END else (end + data)[-END:]
                if also is not None:
                    also(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    hits.extend(searcher.close())
    if not any(pages[hit.id].passing for hit in hits):
        return ranked(hits, pages)
    text = ANSI.sub(b"", end).decode("utf-8", "replace")
    return ranked(hits, pages, went_on(text, searcher.line_ends + 1))


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    if str(path) == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    file = open_regular(path)
    return gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file


def ranked(hits: Sequence[LineHit], pages: Mapping[str, Page], newest: int = -1) -> list[FileFinding]:
    """Return what the judge makes of the lines that were found, see `Judge.told`."""
    told = Judge(pages).told(hits, newest)
    return [
        FileFinding.of(one.page, one.hit.line, one.confidence, line_no=one.hit.line_no, times=one.times)
        for one in told
    ]
