"""Triage of a log of any origin: which pages it shows, the best first, with the very line that proves each."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from rgt_tui.files import open_regular
from rgt_tui.handbook.line_search import LineHit, Searcher, writer_of
from rgt_tui.handbook.pages import Page
from rgt_tui.model.evidence import Fix, Severity

PIECE = 1 << 20
SPECIFIC, GENERAL, SYMPTOM = 0.95, 0.7, 0.5
"""How sure a finding is: its line says it, its line says something general, it only follows from something else."""

EXCEPTION = "PY1"
"""Page of the exceptions that no other page knows."""
ABOVE, BELOW = 2, 8
"""Lines around the name of an exception that belong to it: the statement that raised it, the rest of its message."""
MAX_SAID = 400
"""Characters of an exception's line that hints see."""
TOGETHER = 200
"""Lines that stand nearer to one another are of one end."""
END = 1 << 18
"""Bytes from the end of a log in which it is looked for that it went on."""
_WENT_ON = re.compile(
    rb"(?i)\bloss['\"]?(?:\s{0,9}[=:|]\s{0,9}|\s{1,9})(?:tensor\()?[-+]?\d|^Warning: Permanently added '"
    rb"|\b(?:rc|exit(?:ed)?(?: with)?(?: code| status)?|status)[ =:]{1,3}0\b",
    re.MULTILINE,
)
"""A step, a host that answered, a command that ended well."""
_RAISED = re.compile(r"(?:\[[^]\n]{1,40}\]: ?|\([^)\n]{1,80}\) |\d{1,6}: )?[\w.]*(?:Error|Exception)\b")


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

    def told_by(self, page: Page) -> FileFinding:
        """Return the same as a finding of another page."""
        return replace(
            self,
            gotcha=page.id,
            title=page.title,
            severity=str(page.severity),
            action=str(page.action),
            fix=page.fixes,
            never=page.never,
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
    return ranked(_lasting(hits, pages, end, searcher.line_ends), pages)


def _lasting(hits: list[LineHit], pages: Mapping[str, Page], end: bytes, line_ends: int) -> list[LineHit]:
    """Leave out what was tried again with success: the log went on behind it.

    What was raised stays: a traceback is written at once, and steps that came before it may be written later.
    """
    last: dict[str, int] = {}
    for hit in hits:
        if pages[hit.id].passing:
            last[hit.id] = (
                max(hit.line_no, last.get(hit.id, 0)) if not _RAISED.match(hit.line) else line_ends + 1
            )
    if not last:
        return hits
    went_on = max(
        (line_ends - end.count(b"\n", match.start()) + 1 for match in _WENT_ON.finditer(end)), default=0
    )
    return [hit for hit in hits if last.get(hit.id, went_on) >= went_on]


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    if str(path) == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    file = open_regular(path)
    return gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file


def ranked(hits: Iterable[LineHit], pages: Mapping[str, Page]) -> list[FileFinding]:
    """Return one finding a page, the best first: what is specific before what is general, causes before consequences.

    Args:
        hits: As they were found.
        pages: The handbook.
    """
    lines: dict[str, dict[int, LineHit]] = {}
    for hit in hits:
        lines.setdefault(hit.id, {}).setdefault(hit.line_no, hit)
    first = {id_: _telling(found, last=pages[id_].symptom_only) for id_, found in lines.items()}
    times = {id_: len(found) for id_, found in lines.items()}
    beaten = {loser for id_ in first for loser in pages[id_].beats}
    general = {loser for page in pages.values() for loser in page.beats}
    found = list(_findings(first, times, pages, beaten, general))
    causes = [finding for finding in found if finding.confidence > SYMPTOM]
    fatal = [finding for finding in causes if finding.severity == Severity.FATAL]
    ends = [] if fatal or not causes else [finding for finding in found if _is_end(finding, causes)]
    order = sorted(causes or found, key=lambda one: (-one.confidence, one not in fatal, one.line_no))
    told = [*ends, *order]
    at = next((place for place, one in enumerate(told) if one.gotcha == EXCEPTION), None)
    return told if at is None else [*told[: at + 1], *_likely(told[at], pages, first), *told[at + 1 :]]


def _likely(end: FileFinding, pages: Mapping[str, Page], known: Container[str]) -> list[FileFinding]:
    """Return the page that an exception which none knows is probably about; of several the one named first."""
    said = writer_of(end.line)[1][:MAX_SAID]
    hints = [
        (match.start(1) if match.re.groups else 0, page)
        for page in pages.values()
        for hint in page.hints
        if page.id not in known and (match := re.match(hint, said)) is not None
    ]
    if not hints:
        return []
    return [end.told_by(min(hints, key=lambda pair: pair[0])[1])]


def _is_end(finding: FileFinding, causes: Iterable[FileFinding]) -> bool:
    """Tell whether it is an exception of which no page knows more: what only warns did not end the run."""
    return finding.gotcha == EXCEPTION and not any(
        -ABOVE <= cause.line_no - finding.line_no <= BELOW for cause in causes
    )


def _telling(found: Mapping[int, LineHit], *, last: bool) -> LineHit:
    """Return the line that proves it: the first; of what any end leaves behind, the first one of the last end.

    A traceback that was logged and survived is not what ended the run; of those that stand together the first is the
    cause.
    """
    numbers = sorted(found)
    at = len(numbers) - 1 if last else 0
    while at and numbers[at] - numbers[at - 1] <= TOGETHER:
        at -= 1
    return found[numbers[at]]


def how_sure(page: Page, general: Container[str]) -> float:
    """Return how sure a finding is by its line alone.

    Args:
        page: Which it is of.
        general: Ids of what some page explains away.
    """
    return SYMPTOM if page.symptom_only else GENERAL if page.id in general else SPECIFIC


def _findings(
    first: Mapping[str, LineHit],
    times: Mapping[str, int],
    pages: Mapping[str, Page],
    beaten: set[str],
    general: set[str],
) -> Iterator[FileFinding]:
    for id_, hit in first.items():
        page = pages[id_]
        if id_ in beaten:
            continue
        yield FileFinding(
            gotcha=id_,
            title=page.title,
            line_no=hit.line_no,
            line=hit.line,
            confidence=how_sure(page, general),
            severity=str(page.severity),
            action=str(page.action),
            fix=page.fixes,
            never=page.never,
            times=times[id_],
        )
