"""Triage of a log of any origin: the pages that it shows, best first, with the line that proves each."""

from __future__ import annotations

import codecs
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from rgt_tui.files import open_named
from rgt_tui.handbook.judgement import Judge, last_words, went_on
from rgt_tui.handbook.line_search import ANSI, LineHit, Searcher
from rgt_tui.handbook.pages import Page
from rgt_tui.model import Fix

PIECE = 1 << 20
END = 1 << 18
"""Bytes from the end of a log in which it is looked for that it went on."""
UNPACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma"}
"""What a packed file begins with → the module whose ``open`` unpacks it."""
PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z", b"\x04\x22\x4d\x18": "lz4"}
"""The same of what nothing here unpacks: no word of it would be seen."""
LONGEST_MARK = max(map(len, (*UNPACKED, *PACKED)))


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
    """Return what a file shows, the best first; ``-`` is standard input, what gzip, bzip2 or xz packed is unpacked.

    Args:
        path: Of the file.
        pages: The handbook.
        also: Called with each piece that is read.

    Raises:
        Unreadable: it is missing, no regular file, damaged, or packed by something else.
    """
    searcher = Searcher(pages.values())
    hits: list[LineHit] = []
    end = b""
    try:
        with opened(path) as file:
            for data in _pieces(file):
                hits.extend(searcher.feed(data))
                end = data[-END:] if len(data) >= END else (end + data)[-END:]
                if also is not None:
                    also(data)
    except damage() as error:
        raise unreadable(path, error) from error
    hits.extend(searcher.close())
    if hits and not any(pages[hit.id].passing for hit in hits):
        return ranked(hits, pages)
    text, last = ANSI.sub(b"", end).decode("utf-8", "replace"), searcher.line_ends + 1
    newest = went_on(text, last)
    return ranked(hits, pages, newest) or ranked(list(last_words(text, last, newest)), pages)


def damage() -> tuple[type[Exception], ...]:
    """Return what is raised by a file of `opened` that cannot be read, or cannot be unpacked."""
    xz = sys.modules.get("lzma")  # loaded by the first file that it has packed
    return (OSError, EOFError, zlib.error, *(() if xz is None else (xz.LZMAError,)))


def unreadable(path: Path, error: Exception) -> Unreadable:
    """Return the error for a file that cannot be read."""
    return Unreadable(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")


class _Begun(RawIOBase):
    """A stream of which the first bytes were read already, and that cannot be wound back."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        data, self._head = self._head[: len(room)], self._head[len(room) :]
        data = data or cast(BufferedReader, self._rest).read1(len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._rest.close()
        super().close()


def opened(path: Path) -> BinaryIO:
    """Open a file that a person has named; what gzip, bzip2 or xz packed is unpacked, ``-`` is standard input.

    Raises:
        OSError: it cannot be opened, is no file, or is packed by something that nothing here unpacks.
    """
    file = os.fdopen(os.dup(sys.stdin.fileno()), "rb") if str(path) == "-" else open_named(path)
    head = file.read(LONGEST_MARK)  # what a pipe has is not always all of it
    if file.seekable():
        file.seek(0)
    else:
        file = cast(BinaryIO, BufferedReader(_Begun(head, file)))
    for mark, module in UNPACKED.items():
        if head.startswith(mark):
            try:
                return cast(BinaryIO, import_module(module).open(file))
            except ImportError:  # a Python may have been built without bzip2 or xz
                file.close()
                raise OSError(None, f"this Python has no {module} to unpack it: unpack it first") from None
    for mark, name in PACKED.items():
        if head.startswith(mark):
            file.close()
            raise OSError(None, f"it is packed with {name}: unpack it first")
    return file


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file says, as UTF-8: PowerShell writes UTF-16, and editors of Windows a mark before the text."""
    data = file.read(PIECE).removeprefix(codecs.BOM_UTF8)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if wide else None
    while data:
        yield data if decoder is None else decoder.decode(data).encode()
        data = file.read(PIECE)


def ranked(hits: Sequence[LineHit], pages: Mapping[str, Page], newest: int = -1) -> list[FileFinding]:
    """Return what the judge makes of the lines that were found, see `Judge.told`."""
    told = Judge(pages).told(hits, newest)
    return [
        FileFinding.of(one.page, one.hit.line, one.confidence, line_no=one.hit.line_no, times=one.times)
        for one in told
    ]
