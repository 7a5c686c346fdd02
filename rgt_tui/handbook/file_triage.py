"""Triage of a log of any origin: the pages that its lines show, best first, and its numbers."""

from __future__ import annotations

import codecs
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from rgt_tui.files import open_named
from rgt_tui.handbook.envelopes import LogSource
from rgt_tui.handbook.line_search import (
    ANSI,
    LineHit,
    LogSearcher,
    compile_pattern,
    find_quoted_rows,
    writer_of,
)
from rgt_tui.handbook.outlived import (
    LOSS_BROKEN,
    RAISED,
    WARNS,
    drop_outlived,
    find_last_words,
    find_stated_ends,
    split_outlived,
)
from rgt_tui.handbook.page_search import find_nearest_page
from rgt_tui.handbook.pages import AdvisedAction, HandbookPage, PageRole, choose_fixes
from rgt_tui.handbook.torn_tracebacks import find_torn_traceback
from rgt_tui.model import FixStep, FrozenStruct, Severity

PIECE = 1 << 20
END = 1 << 16
"""Bytes at the end of a log in which signs of continuation are searched."""
UNPACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma"}
"""Magic bytes of a packed file → the module whose ``open`` unpacks it."""
PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
    b"\x04\x22\x4d\x18": "lz4",
}
"""The same for formats that cannot be unpacked here, and so not searched."""
LONGEST_MARK = max(map(len, (*UNPACKED, *PACKED)))
SPECIFIC, GENERAL, SYMPTOM = 0.95, 0.7, 0.5
"""Confidence of a finding: a specific line, a general line, a mere consequence."""
EXCEPTION = "PY1"
"""Page for exceptions that no other page knows."""
KERNEL, KILLED = "U9", "U3"
"""Pages for a process killed by the kernel's OOM killer, and for one killed by an unknown sender.
"""

ABOVE, BELOW = 2, 8
"""Lines around an exception's name that belong to it: the raising statement, and the rest of its
message.
"""
MAX_SAID = 400
"""Characters of an exception's line that hints are matched against."""
_WENT_ON = re.compile(
    r"(?i)(?:\b|_)loss(?:_\w{1,9})?['\"]?(?:\s{0,9}[=:|]\s{0,9}|\s{1,9})(?:tensor\()?[-+]?\d"
    r"|^Warning: Permanently added '"
    r"|\b(?:rc|exit(?:ed)?(?: with)?(?: code| status)?|status)[ =:]{1,3}0\b"
    r"|^\d{4}-[^\n]{1,300} saved \[\d{1,15}(?:/\d{1,15})?\]"
    r"|^(?:[\w.:+-]{1,30} ){0,4}(?<!not )(?:fetched|downloaded|retrieved|reconnected|connected"
    r"|recovered)\b(?!: 0)",
    re.MULTILINE,
)
_BARE = re.compile(
    r"(?i:^(?!\s*(?:#|//|\* )|[^\n]{0,80}\b(?:warn(?:ing)?|info|debug|skip\w{0,6}|ignor\w{1,4}"
    r"|retry\w{0,4}|caught)\b))"
    r"(?:[^\n'\"]{0,100}(?:[:|\]>-]|\b(?:ERROR|CRITICAL|FATAL))[ \t]{1,9}|[ \t]{1,9})?"
    r"((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)): (?![-+\d.%]+(?:\W|$))\S"
)
"""An exception without a traceback in the log; `MeanAbsoluteError: 0.12` is not one."""
_KERNEL_SAYS = re.compile(r"(?i)oom|out of memory|memory (?:limit|usage)|available ram|\bv?mem\b")
LOSS_STILL, ON_PROCESSOR, COUNT_RESTARTS, LOSS_GROWN = "O2", "U31", "C12", "P12"
"""Pages for a constant loss, training on the CPU, a count that restarts, and an exploding loss."""
SCALE_COLLAPSED = "P10"
"""Page for fp16 that overflows at every step."""
GROWTH, LARGE = 1000.0, 100.0
"""A loss has exploded from this multiple of its first and lowest value, and from this minimum
value.
"""
LONGEST_LINE = 1000
"""Characters of a line that are searched."""
_LOSS = re.compile(
    r"(?i)(?<![A-Za-z_/])(?:(?:train|training|total)[_/ ])?loss['\"]?\s{0,3}[=:]?\s{0,3}['\"]?"
    r"(\d{1,30}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)(?![\w.])"
)
_PLACE = re.compile(
    r"(?i)(?<![A-Za-z])(step|epoch|iter)(?:ation)?\b['\"]?[\s:=\[#]{0,4}(\d{1,9})(?![.\d])"
)
_LOADED = re.compile(
    r"(?i)\bresum(?:ed|ing)\b|\b(?:loaded|restored|loading|restoring) (?:from )?(?:the )?(?:latest "
    r"|last |newest )?"
    r"(?:checkpoint|ckpt|state)\b(?!.{0,80}(?:best|pretrain|eval|shards))"
)
_LOADS = ("resum", "load", "restor")
_ON_CPU = re.compile(
    r"(?i)\b(?:using|use|on|selected"
    r"|training)[ :]{1,2}(?:the )?(?:torch )?device:? ?[=:(]{0,2} ?['\"]?cpu\b"
    r"|^\W{0,3}device['\"]? ?[=:] ?(?:torch\.device\(|device\()?(?:type=)?['\"]?cpu['\"]?\W{0,3}$"
)
_CELLS = re.compile(r"[ \t]*[|,\t][ \t]*")
_LOSS_CELL = re.compile(r"(?i)(?:train(?:ing)?|total)?[_/ ]?loss")
_NO_NUMBER = ("nan", "inf", "-inf", "+inf")
_COMPUTED = re.compile(
    r"(?i)(?<![\w/.-])([a-z][\w/.-]{0,40}?)['\"]?[ \t]{0,12}[:=|][ \t]{0,12}['\"]?(?:tensor\()?"
    r"([-+]?(?:nan|inf\b|\d))"
)
_NAN_SAID = re.compile(
    r"(?i)\bloss(?:es)?\b(?: value)?(?: is| was| became| has become| =|:| =>)? ?nan\b"
)
_SCALE_SET = re.compile(
    r"(?i)\b(?:loss|grad(?:ient)?)[ _]?scale\w{0,2}\b[^\n]{0,40}?"
    r"(?:\bto:?|[=:]) ?(\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,3})?)(?!\d)"
)
_OF_THE_LOSS = re.compile(r"(?i)loss|kl|entropy|grad|nll|elbo|perplexity|ppl|objective|cost")
"""Names of figures that are computed from a loss or its gradient: NaN in one is NaN in the weights.
"""


class Unreadable(Exception):
    """A file that cannot be read; the message names it."""


class FileFinding(FrozenStruct, kw_only=True):
    """What a log shows."""

    gotcha: str
    title: str
    line_no: int
    line: str
    confidence: float
    severity: str
    action: str
    fix: tuple[FixStep, ...]
    never: str
    times: int = 1
    """Number of distinct matching lines; lines that differ only in numbers count once."""
    by_words: bool = False
    """No pattern found it: its page's words are only the nearest to the log's last lines."""
    steps_behind: int = 0
    """Steps that the run went on for, if it has overcome this; 0 = it has not."""

    @classmethod
    def from_page(
        cls, page: HandbookPage, line: str, confidence: float, *, line_no: int = 0, times: int = 1
    ) -> FileFinding:
        """Return the finding of `line`: the page's texts and steps, with the confidence."""
        return cls(
            gotcha=page.id,
            title=page.title,
            line_no=line_no,
            line=line,
            confidence=confidence,
            severity=str(page.severity),
            action=str(page.action),
            fix=choose_fixes(page.fixes, line),
            never=page.never,
            times=times,
        )


def triage_file(
    path: Path,
    pages: Mapping[str, HandbookPage],
    also: Callable[[bytes], None] | None = None,
    source: LogSource | None = None,
    overcome: list[FileFinding] | None = None,
) -> list[FileFinding]:
    """Return what a file shows, the best first; ``-`` is stdin; gzip, bzip2 and xz are unpacked.

    Args:
        path: The file.
        pages: The handbook.
        also: Called with each piece of the log, without its envelope.
        source: Tells afterwards which line of the file a line of the log came from.
        overcome: Failures that the run has outlived are appended to it.

    Raises:
        Unreadable: it is missing, not a regular file, damaged, or packed in another format.
    """
    source = source or LogSource()
    searcher = LogSearcher(pages.values())
    hits: list[LineHit] = []
    end = b""
    try:
        with open_unpacked(path) as file:
            for data in source.read_text(_iterate_utf8(file)):
                hits.extend(searcher.feed(data))
                if len(data) >= END:
                    end = data[-END:]
                else:
                    end = (end + data)[-END:]
                if also is not None:
                    also(data)
    except list_read_errors() as error:
        raise unreadable_error(path, error) from error
    hits.extend(searcher.close())
    text, last = ANSI.sub(b"", end).decode("utf-8", "replace"), searcher.line_ends + 1
    kept, outlived = split_outlived(hits, pages, text, last)
    found = _judge_log(kept, pages, text, last)
    if overcome is not None:
        known = {one.gotcha for one in found}
        steps = {hit.line_no: behind for hit, behind in outlived}
        overcome.extend(
            msgspec.structs.replace(
                one, line_no=source.line_of(one.line_no), steps_behind=steps[one.line_no]
            )
            for one in rank_findings([hit for hit, _ in outlived], pages)
            if one.gotcha not in known
        )
    return [msgspec.structs.replace(one, line_no=source.line_of(one.line_no)) for one in found]


def _judge_log(
    hits: Sequence[LineHit], pages: Mapping[str, HandbookPage], text: str, last: int
) -> list[FileFinding]:
    hits = [*hits, *find_stated_ends(text, last, pages, hits)]
    if hits and not any(pages[hit.id].passing for hit in hits):
        return rank_findings(hits, pages)
    newest = went_on(text, last)
    found = rank_findings(hits, pages, newest) or rank_findings(
        drop_outlived(list(find_last_exception(text, last, newest)), pages, text, last), pages
    )
    if found:
        return found
    return LogJudge(pages).judge_torn_traceback(list(find_torn_traceback(text, last, EXCEPTION)))


def list_read_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions raised for a file of `open_unpacked` that cannot be read or unpacked."""
    xz = sys.modules.get("lzma")  # imported only if a file was packed with it
    return (OSError, EOFError, zlib.error, *(() if xz is None else (xz.LZMAError,)))


def unreadable_error(path: Path, error: Exception) -> Unreadable:
    """Return the error for a file that cannot be read."""
    return Unreadable(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")


class _PrefixedStream(RawIOBase):
    """A non-seekable stream whose first bytes have been read already."""

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


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file that a person named; gzip, bzip2 and xz are unpacked, ``-`` is stdin.

    Raises:
        OSError: it cannot be opened, is not a file, or is packed in an unsupported format.
    """
    file = os.fdopen(os.dup(sys.stdin.fileno()), "rb") if str(path) == "-" else open_named(path)
    head = file.read(LONGEST_MARK)  # a pipe may return fewer bytes
    if file.seekable():
        file.seek(0)
    else:
        file = cast(BinaryIO, BufferedReader(_PrefixedStream(head, file)))
    for mark, module in UNPACKED.items():
        if head.startswith(mark):
            try:
                return cast(BinaryIO, import_module(module).open(file))
            except ImportError:  # Python may have been built without bzip2 or xz
                file.close()
                raise OSError(
                    None, f"this Python has no {module} to unpack it: unpack it first"
                ) from None
    for mark, name in PACKED.items():
        if head.startswith(mark):
            file.close()
            raise OSError(None, f"it is packed with {name}: unpack it first")
    return file


def _iterate_utf8(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file as UTF-8: PowerShell writes UTF-16, and Windows editors a byte order mark."""
    data = file.read(PIECE).removeprefix(codecs.BOM_UTF8)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if wide:
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    else:
        decoder = None
    while data:
        yield data if decoder is None else decoder.decode(data).encode()
        data = file.read(PIECE)


def rank_findings(
    hits: Sequence[LineHit], pages: Mapping[str, HandbookPage], newest: int = -1
) -> list[FileFinding]:
    """Return the judge's findings for the matching lines, see `LogJudge.judge_hits`."""
    told = LogJudge(pages).judge_hits(hits, newest)
    return [
        FileFinding.from_page(
            one.page, one.hit.line, one.confidence, line_no=one.hit.line_no, times=one.times
        )
        for one in told
    ]


# Judges a log's matching lines: which count, their confidence, and which comes first.
#
# A file is judged at its end, a box's log as it grows: by the same rules, so that both report the
# same first.


class JudgedPage(NamedTuple):
    """One page that a log shows, with its most significant line."""

    page: HandbookPage
    hit: LineHit
    confidence: float
    times: int = 1
    """Number of distinct matching lines; lines that differ only in numbers count once."""

    @property
    def is_guess(self) -> bool:
        """Whether the page is only a guess from a hint, without a matching pattern of its own."""
        return self.page.id != self.hit.id


POINTS = 2
"""Level of a line that only points to a failure elsewhere."""
_RANKS = {
    PageRole.CAUSE: (0, 1, 5),
    PageRole.CATCH_ALL: (2, 3, 5),
    PageRole.UNKNOWN: (4, 6, 6),
    PageRole.CONSEQUENCE: (5, 5, 5),
}
"""Rank of a page by its role and the level of its line; the lowest comes first."""
LAST_CAUSE = 3
"""Highest rank of what explains a failure; without any, the others are shown."""


def _ranking_key(ranked: tuple[int, JudgedPage]) -> tuple[int, float, bool, int, bool]:
    rank, one = ranked
    mild = one.page.severity != Severity.FATAL
    return rank, -one.confidence, mild, one.hit.line_no, one.page.role != PageRole.CAUSE


def _settle_same_lines(
    ranked: Sequence[tuple[int, JudgedPage]], lines: Mapping[str, Mapping[int, LineHit]]
) -> list[tuple[int, JudgedPage]]:
    """Return the ranked findings, settled where several pages are proved by the same line.

    A page is as good as one that knows its line, too, unless it is a mere consequence; an unknown
    failure is no news if another page knows its line. Of two pages that read the same name in the
    line, the one that also knows the code that used it (the frames) knows what the name is.
    """
    settled = []
    for rank, one in ranked:
        same_line = [
            lines[other.page.id][one.hit.line_no]
            for _, other in ranked
            if other is not one and one.hit.line_no in lines[other.page.id]
        ]
        if not one.hit.frame and any(
            hit.frame and hit.name and hit.name == one.hit.name for hit in same_line
        ):
            continue
        known = [
            other_rank
            for other_rank, other in ranked
            if other is not one
            and other.page.role != PageRole.UNKNOWN
            and one.hit.line_no in lines[other.page.id]
        ]
        mild_catch_all = one.page.role == PageRole.CATCH_ALL and _is_mild(one.page)
        if one.page.role == PageRole.UNKNOWN:
            if not known:
                settled.append((rank, one))
        elif one.page.role == PageRole.CONSEQUENCE or mild_catch_all:
            settled.append((rank, one))
        else:
            settled.append((min([rank, *known]), one))
    return settled


def _is_mild(page: HandbookPage) -> bool:
    """Return whether what a page is about ends no run."""
    return page.severity in (Severity.DEGRADING, Severity.COST)


class LogJudge:
    """Judges the matches in a log.

    Args:
        pages: The handbook, by id.
    """

    def __init__(self, pages: Mapping[str, HandbookPage]) -> None:
        self._pages = pages
        self._general = frozenset(loser for page in pages.values() for loser in page.beats)
        self._hints = [(hint, page) for page in pages.values() for hint in page.hints]
        self._reports = [pattern for page in pages.values() for pattern in page.reports]
        self._points = [pattern for page in pages.values() for pattern in page.points]

    def rate_confidence(self, page: HandbookPage) -> float:
        """Return the confidence of a finding of `page` from its line alone."""
        if page.role in (PageRole.CONSEQUENCE, PageRole.UNKNOWN):
            return SYMPTOM
        if page.id in self._general:
            return GENERAL
        return SPECIFIC

    def judge_hits(self, hits: Sequence[LineHit], went_on: int = -1) -> list[JudgedPage]:
        """Return one finding per page, best first: causes before what only follows from them.

        Args:
            hits: The matches.
            went_on: Number of the newest line that shows that the log continued; -1 = none.
        """
        lines: dict[str, dict[int, LineHit]] = {}
        for hit in self._drop_passing(hits, went_on):
            lines.setdefault(hit.id, {}).setdefault(hit.line_no, hit)
        if not lines:
            return []
        beaten = {loser for id_ in lines for loser in self._pages[id_].beats}
        ranked = _settle_same_lines(
            [self._rank_page(id_, some) for id_, some in lines.items() if id_ not in beaten],
            lines,
        )
        ended = any(
            rank < LAST_CAUSE and not _is_mild(one.page) and not WARNS.search(one.hit.text)
            for rank, one in ranked
        )
        if ended:
            # It went on without the device: something else ended it.
            ranked = [
                (max(rank, LAST_CAUSE) if WARNS.search(one.hit.text) else rank, one)
                for rank, one in ranked
            ]
        found = [one for _, one in ranked]
        causes = [one for rank, one in ranked if rank <= LAST_CAUSE]
        fatal = [
            one
            for one in causes
            if one.page.severity == Severity.FATAL or RAISED.match(one.hit.text)
        ]
        if fatal or not causes:
            ends = []
        else:
            ends = [one for one in found if _is_end(one, causes)]
        order = [
            one
            for rank, one in sorted(ranked, key=_ranking_key)
            if rank <= LAST_CAUSE or not causes
        ]
        told = [*ends, *order]
        at = next((place for place, one in enumerate(told, 1) if one.page.id == EXCEPTION), 0)
        if not at:
            return told
        likely = self._guess_page(told[at - 1], lines)
        # a match of its own pattern is surer, except for pages of unknown failures
        unsure = all(one.page.role == PageRole.UNKNOWN for one in told[at:])
        if any(one.page.role == PageRole.UNKNOWN for one in likely):
            at = len(told)
        elif (causes or unsure) and _says_words(told[at - 1].hit):
            at -= 1  # what it is probably about says more than that it is unknown
        elif causes or unsure:
            pass
        else:
            at = len(told)
        return [*told[:at], *likely, *told[at:]]

    def _rank_page(self, id_: str, found: Mapping[int, LineHit]) -> tuple[int, JudgedPage]:
        """Return a page's rank, the lowest first, and its finding.

        Its role decides, and who wrote its lines: what a process says itself stands before what a
        launcher reports about it.
        """
        page = self._pages[id_]
        levels = {number: self._find_distance(hit.line) for number, hit in found.items()}
        level = min(levels.values())
        near = {number: hit for number, hit in found.items() if levels[number] == level}
        sure = self.rate_confidence(page)
        if level == POINTS:
            sure = min(sure, SYMPTOM)
        elif level or all(hit.by_end_words for hit in near.values()):
            sure = min(sure, GENERAL)
        last = page.role in (PageRole.CONSEQUENCE, PageRole.UNKNOWN)
        told = JudgedPage(page, _find_proving_line(near, last=last), sure, len(found))
        rank = _RANKS[page.role][level]
        if _is_mild(page) and not RAISED.match(told.hit.text or told.hit.line):
            rank = max(rank, _RANKS[PageRole.CATCH_ALL][0])
        return rank, told

    def _find_distance(self, line: str) -> int:
        """Return 0 if the process itself wrote a line, 1 if another reports, 2 if it only points."""
        said = writer_of(line)[1]
        for level, patterns in ((POINTS, self._points), (1, self._reports)):
            if any(compile_pattern(pattern).search(said) for pattern in patterns):
                return level
        return 0

    def _drop_passing(self, hits: Sequence[LineHit], went_on: int) -> Sequence[LineHit]:
        """Drop passing failures after which the log continued: retried with success, or optional.

        Raised exceptions are kept: a traceback is written at once, while earlier steps may be
        flushed later.
        """
        newest: dict[str, float] = {}
        for hit in hits:
            if self._pages[hit.id].passing:
                if RAISED.match(hit.line):
                    at = math.inf
                else:
                    at = hit.line_no
                newest[hit.id] = max(at, newest.get(hit.id, at))
        if newest:
            return [hit for hit in hits if newest.get(hit.id, went_on) >= went_on]
        return hits

    def judge_torn_traceback(self, frames: Sequence[LineHit]) -> list[FileFinding]:
        """Return the findings of a traceback without its last line: what its frames are about comes first.

        Args:
            frames: A hit for each frame, the innermost first.
        """
        if not frames:
            return []
        unknown = JudgedPage(self._pages[EXCEPTION], frames[0], SYMPTOM)
        likely = next(
            (page for hit in frames for page in self._guess_page(unknown._replace(hit=hit), ())),
            None,
        )
        return [
            FileFinding.from_page(one.page, one.hit.line, SYMPTOM, line_no=one.hit.line_no)
            for one in (likely, unknown)
            if one is not None
        ]

    def _guess_page(self, end: JudgedPage, known: Container[str]) -> list[JudgedPage]:
        """Return the page that an unknown exception is probably about, by the first matching hint.

        Hints are matched against its line followed by its innermost frame: the library that raised
        it shows what was being done.
        """
        line, name = end.hit.line, end.hit.name
        if name and name in line:
            line = line[line.find(name) :]
        else:
            line = writer_of(line)[1]
        said = f"{line[:MAX_SAID]}\n{end.hit.frame}"
        likely = [
            (match.start(1) if match.re.groups else 0, page)
            for hint, page in self._hints
            if page.id not in known and (match := compile_pattern(hint).match(said)) is not None
        ]
        if likely:
            return [end._replace(page=min(likely, key=lambda pair: pair[0])[1])]
        return []


def _says_words(hit: LineHit) -> bool:
    """Return whether an exception says what happened: a message of several words, or a library's frame.

    ``KeyError: 'loss'`` in a program's own code says nothing about the kind of failure.
    """
    least_words = 2
    message = hit.line.partition(": ")[2]
    if hit.name and hit.name in hit.line:
        message = hit.line[hit.line.find(hit.name) + len(hit.name) :]
    return len(_WORDS.findall(message)) >= least_words or "-packages/" in hit.frame


_WORDS = re.compile(r"[A-Za-z][A-Za-z_]+|[^\x00-\x7f]+")


def went_on(end: str, last: int) -> int:
    """Return the number of the newest line that shows that the run continued; -1 = none.

    That is a step, a host that answered, a command that succeeded, a downloaded file.

    Args:
        end: End of the log.
        last: Number of its last line.
    """
    newest = None
    for match in _WENT_ON.finditer(end):
        newest = match
    if newest is not None:
        return last - end.count("\n", newest.start())
    return -1


def find_last_exception(end: str, last: int, went_on: int = -1) -> Iterator[LineHit]:
    """Yield the exception at the end of a log without a traceback.

    Args:
        end: End of the log.
        last: Number of its last line.
        went_on: Number of the newest line that shows that the log continued.
    """
    # Lines at the end of a log in which an exception without a traceback counts.
    last_words = 12
    lines = end.rstrip().split("\n")
    quoted = find_quoted_rows(lines[-10 * last_words :])[-last_words:]
    lines = lines[-last_words:]
    after = end[len(end.rstrip()) :].count("\n")
    for number, line in enumerate(lines, last - after - len(lines) + 1):
        line = line.rpartition("\r")[2]
        if quoted[number - (last - after - len(lines) + 1)]:
            continue
        if number > went_on and (match := _BARE.match(line[:MAX_SAID])) is not None:
            yield LineHit(id=EXCEPTION, line=line.strip(), line_no=number, name=match[1])


def killed_by(id_: str, line: str, kills: int | None, share: float | None) -> str:
    """Return the page of a line given the readings.

    A kill is the kernel's only if its counter rose.

    Args:
        id_: Page that the line shows, of any kind.
        line: The line.
        kills: Number of OOM kills; None = unknown.
        share: Share of the memory limit in use, 0 to 1; None = unknown.
    """
    # Share of the memory limit from which an OOM kill is plausible.
    near_limit = 0.9
    innocent = kills == 0 and (share is None or share < near_limit)
    if id_ == KERNEL and innocent and not _KERNEL_SAYS.search(line):
        return KILLED
    return id_


def _is_end(one: JudgedPage, causes: Iterable[JudgedPage]) -> bool:
    """Return whether it is an exception without a specific page nearby. Warnings end no run."""
    return one.page.id == EXCEPTION and not any(
        -ABOVE <= cause.hit.line_no - one.hit.line_no <= BELOW for cause in causes
    )


def _find_proving_line(found: Mapping[int, LineHit], *, last: bool) -> LineHit:
    """Return the line that proves it: the first, or, with `last`, the first of the last end.

    A traceback that was logged and survived did not end the run; of those close together, the first
    is the cause.
    """
    numbers = sorted(found)
    at = len(numbers) - 1 if last else 0
    # Lines closer to one another than this belong to the same end of a run.
    together = 200
    while at and numbers[at] - numbers[at - 1] <= together:
        at -= 1
    return found[numbers[at]]


# What the numbers in a log show although no line reports a fault: a constant loss, a restarted step
# count.


class NumericEvidence(FrozenStruct):
    """A page supported by the numbers, and the line that shows it; `place` counts from 0."""

    page: str
    line: str
    place: int


def curve_findings(
    lines: Sequence[str],
    pages: Mapping[str, HandbookPage],
    found: Sequence[FileFinding],
    *,
    whole: bool = True,
    line_of: Callable[[int], int] = int,
) -> list[FileFinding]:
    """Return `found`, followed by what the numbers show if nothing fatal was found.

    Args:
        lines: The log's lines in order.
        pages: The handbook.
        found: The findings from lines.
        whole: No line is missing, so indexes are line numbers.
        line_of: Returns the line of the file that a line came from.
    """
    unknown = [one for one in found if pages[one.gotcha].role == PageRole.UNKNOWN]
    sure = [one for one in found if one not in unknown and one.confidence > SYMPTOM]
    if any(one.severity == Severity.FATAL for one in sure):
        return [*found]
    more = [
        FileFinding.from_page(
            pages[sign.page],
            sign.line.strip(),
            SYMPTOM,
            line_no=line_of(sign.place + 1) if whole else 0,
        )
        for sign in find_numeric_evidence(lines)
        if sign.page in pages
    ]
    known = {one.gotcha for one in found}
    # A failure without a page of its own is probably due to the NaN.
    first = [one for one in more if unknown and one.gotcha == LOSS_BROKEN]
    if any(one.severity == Severity.FATAL for one in found):
        return [*first, *(one for one in found if not first or one.gotcha != LOSS_BROKEN)]
    return [*found, *(one for one in more if one.gotcha not in known)]


def add_nearest_page(
    lines: Sequence[str],
    pages: Mapping[str, HandbookPage],
    found: Sequence[FileFinding],
    *,
    whole: bool = True,
    line_of: Callable[[int], int] = int,
) -> list[FileFinding]:
    """Return `found`; if no page knows how the log ends, followed by the nearest page by words.

    Args:
        lines: The log's lines in order.
        pages: The handbook.
        found: The findings from lines and numbers.
        whole: No line is missing, so indexes are line numbers.
        line_of: Returns the line of the file that a line came from.
    """
    # Of 54 such offers for public reports, 33 were right: less than any pattern promises.
    sure = 0.4
    if any(pages[one.gotcha].role != PageRole.UNKNOWN for one in found):
        return [*found]
    ending = [
        page
        for page in pages.values()
        if page.role != PageRole.UNKNOWN
        and page.resource
        and (page.severity == Severity.FATAL or page.action == AdvisedAction.RESUME)
    ]
    most_lines = 1000
    end = ANSI.sub(b"", "\n".join(lines[-most_lines:]).encode()).decode()
    said = find_last_words(end, len(lines))
    if not said:
        return [*found]
    nearest = find_nearest_page([text for _, _, text in said], ending)
    if nearest is None:
        return [*found]
    number, line, _ = said[-1]
    place = 0
    if whole:
        place = line_of(number)
    one = FileFinding.from_page(nearest, line, sure, line_no=place)
    return [*found, msgspec.structs.replace(one, by_words=True)]


def find_numeric_evidence(lines: Sequence[str]) -> Iterator[NumericEvidence]:
    """Yield what the numbers of a log show."""
    losses = [
        (place, match[1])
        for place, line in enumerate(lines)
        if ("loss" in line or "Loss" in line)
        and (match := _LOSS.search(line[:LONGEST_LINE])) is not None
    ]
    yield from _check_loss_curve(lines, losses)
    if (place := _broken_in_table(lines)) is None:
        place = _find_broken_figure(lines)
    if place is None:
        place = _find_lasting_nan(lines)
    if place is not None:
        yield NumericEvidence(LOSS_BROKEN, lines[place], place)
    if (place := _find_collapsed_scale(lines)) is not None:
        yield NumericEvidence(SCALE_COLLAPSED, lines[place], place)
    if (place := _find_restarted_count(lines)) is not None:
        yield NumericEvidence(COUNT_RESTARTS, lines[place], place)
    device = (place for place, line in enumerate(lines) if "device" in line or "Device" in line)
    on_cpu = next((place for place in device if _ON_CPU.search(lines[place][:LONGEST_LINE])), None)
    if on_cpu is not None:
        yield NumericEvidence(ON_PROCESSOR, lines[on_cpu], on_cpu)


def _check_loss_curve(
    lines: Sequence[str], losses: Sequence[tuple[int, str]]
) -> Iterator[NumericEvidence]:
    # Minimum number of losses for judging a curve.
    least_losses = 10
    if len(losses) < least_losses:
        return
    last, text = losses[-1]
    # Minimum digits of a loss: with fewer, equal values are not suspicious.
    least_digits = 4
    if (
        sum(char.isdigit() for char in text) >= least_digits
        and float(text)
        and len({said for _, said in losses}) == 1
    ):
        yield NumericEvidence(LOSS_STILL, lines[last], last)
    values = [float(said) for _, said in losses]
    least = max(LARGE, GROWTH * max(values[0], min(values)))
    if math.isfinite(values[-1]) and values[-1] >= least:
        yield NumericEvidence(LOSS_GROWN, lines[last], last)


def _broken_in_table(lines: Sequence[str]) -> int | None:
    """Return the first table row whose loss is not a number, after a row with a number."""
    width = column = 0
    finite = False
    for place, line in enumerate(lines):
        if not width and "loss" not in line.lower():
            continue
        cells = _CELLS.split(line[:LONGEST_LINE].strip(" \t\r|"))
        if len(cells) > 1:
            named = [at for at, cell in enumerate(cells) if _LOSS_CELL.fullmatch(cell)]
        else:
            named = []
        if named:
            width, column, finite = len(cells), named[0], False
        elif width and len(cells) == width:
            if finite and cells[column].lower() in _NO_NUMBER:
                return place
            finite = finite or cells[column][:1].isdigit()
    return None


def _find_broken_figure(lines: Sequence[str]) -> int | None:
    """Return the first line where a figure becomes NaN or infinite and remains so to the end."""
    finite: dict[str, int] = {}
    broken: dict[str, int] = {}
    # Some figures are NaN in the first steps.
    least = 3
    for place, line in enumerate(lines):
        if ":" not in line and "=" not in line and "|" not in line:
            continue
        for match in _COMPUTED.finditer(line[:LONGEST_LINE]):
            name = match[1]
            if not match[2][-1].isdigit():
                if finite.get(name, 0) >= least and _OF_THE_LOSS.search(name):
                    broken.setdefault(name, place)
            else:
                finite[name] = finite.get(name, 0) + 1
                broken.pop(name, None)
    return min(broken.values(), default=None)


def _find_lasting_nan(lines: Sequence[str]) -> int | None:
    """Return the first of several lines at the end of a log that only say that the loss is NaN."""
    least = 5
    said = [place for place, line in enumerate(lines) if line.strip()][-least:]
    if len(said) == least and all(_NAN_SAID.search(lines[place][:LONGEST_LINE]) for place in said):
        return said[0]
    return None


def _find_collapsed_scale(lines: Sequence[str]) -> int | None:
    """Return the line in which the scale of fp16's loss falls below 1 without having risen since."""
    # Each overflow halves it: a run that learns needs no more than some at its beginning.
    least_falls = 5
    falls, before = 0, math.inf
    place = None
    for number, line in enumerate(lines):
        if "scale" not in line or (match := _SCALE_SET.search(line[:LONGEST_LINE])) is None:
            continue
        scale = float(match[1])
        falls += 1
        if scale >= before:
            falls = 0
        before = scale
        if falls < least_falls or scale >= 1.0:
            place = None
        elif place is None:
            place = number
    return place


def _find_restarted_count(lines: Sequence[str]) -> int | None:
    """Return the line where step or epoch restarts at 0 or 1 right after loading a checkpoint."""
    highest: dict[str, int] = {}
    loaded = False
    for place, line in enumerate(lines):
        said = {match[1].lower(): int(match[2]) for match in _PLACE.finditer(line[:LONGEST_LINE])}
        low = line[:LONGEST_LINE].lower()
        if any(word in low for word in _LOADS) and _LOADED.search(low):
            loaded = max(highest.values(), default=0) > 2 and all(
                number < 2 for number in said.values()
            )
        elif said:
            if loaded and max(said.values()) < 2 and any(highest.get(name, 0) > 2 for name in said):
                return place
            loaded = False
            for name, number in said.items():
                highest[name] = max(number, highest.get(name, 0))
    return None
