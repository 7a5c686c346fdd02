"""Searches in a log: for a text, a regular expression, errors, or patterns of the handbook.

RE2 runs in time linear in the text, so a person may type any pattern. Patterns that RE2 does not
support (look-around, back references) are searched as plain text, with a message.
"""

from __future__ import annotations

import functools
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from rgt_tui.fleet.box_logs import BoxLog, BoxSearch
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines, LineBlock, join_blocks
from rgt_tui.handbook import HandbookPage, LogSearcher, compiled_by_re2
from rgt_tui.language import translate
from rgt_tui.model import how_many
from rgt_tui.ui.notation import compact_time, format_thousands, size_or_dash

Spans = tuple[tuple[int, int], ...]
_MEASURED = r"\s{0,4}['\"]?\s{0,4}[:=]\s{0,4}[-+]?(?:0\b|\d{0,20}\.\d)"
"""The rest of a measured value: ``error: 0.031``, ``'FAILED': 0``."""
_SIGNS = (
    r"\bTraceback\b",
    # Names of exceptions; ``MeanAbsoluteError`` and similar are metrics.
    r"\b(?!\w{0,99}(?:Mean|Median|Squared?|Absolute|Percentage|Logarithmic|Reconstruction))"
    r"\w{0,200}[A-Za-z\d](?:Error|Exception|Interrupt|OOMKilled)\b(?!" + _MEASURED + ")",
    r"\b(?:Exception|Error) (?:in|while|at|during|from)\b",
    # A level, as loggers print it; glog has a letter and the date.
    r"(?<![\w.=/-])(?<!level )(?:ERROR|CRITICAL|FATAL|FAILURE)(?![\w=/-]|" + _MEASURED + ")",
    r"(?<![\w-])\"?level\"?\s?[=:]\s?\"?(?i:error|fatal|critical)\b",
    (
        r"\[(?i:error|fatal|critical)\]|^\s{0,9}[EF]\d{4} \d\d:\d\d:|\[[EF] \w{1,60}\.(?:cpp|cu|cc"
        r"|h):\d"
    ),
    # What programs report about themselves.
    (
        r"\b(?i:error|fatal):(?!\s{0,4}(?:[-+]?(?:0\b|\d{0,20}\.\d)|(?i:none|null|false)\b))"
        r"|\b[Ff]atal error\b"
    ),
    r"\*\*\* \[.{1,300}\] Error \d|\bpanicked at\b|\bterminate called\b",
    r"\bcommand not found\b|\bsh: \d{1,6}: .{1,300} not found",
    r"\b(?:No such file or directory|Permission denied|Connection (?:refused|reset))\b",
    r"\b(?:Input/output error|Stale file handle)\b",
    r"\b(?:No space left|ENOSPC|Disk quota exceeded|[Cc]annot allocate memory)\b",
    r"\b(?:FAILED|[A-Z]{2,20}_STATUS_\w{1,60}_FAILED)\b(?!" + _MEASURED + ")",
    r"\b[Aa]ssertion\b.{1,300}\bfailed\b",
    # How processes end.
    r"\b(?:Killed|OOM|OOMKilled|oom_kill|Xid|Segmentation fault|[Ss]egfault|Bus error)\b",
    r"\b(?:Illegal instruction|core dumped)\b",
    r"^\s{0,9}(?:Terminated|Aborted)\b|\b[Jj]ob step aborted\b|\bCANCELLED AT\b",
    r"\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE)",
    r"\bSIG(?:TERM|KILL|SEGV|ABRT|BUS|ILL|FPE|XCPU)\b|\bexit(?:code)?\s{0,4}[:=]\s{0,4}-?[1-9]",
    (
        r"\bexit(?:ed|s|ing)?,? (?:with )?(?:an? )?(?:non-?zero )?(?:exit |return |error )?(?:code"
        r"|status)\W{0,5}[1-9]"
    ),
    r"\bexited with -?[1-9]\d{0,2}\b(?!\.\d)|\breturn(?:ed)? ?code\W{0,5}[1-9]",
    # GPUs and their interconnects.
    (
        r"\b(?i:out of memory)\b|\b(?:CUDA|HIP|cuda) (?:error|failure)\b|\bCuda failure\b"
        r"|\bdevice-side assert\b"
    ),
    (
        r"NCCL(?! INFO).{0,80}?\b(?i:errors?|timeout|timed out|abort(?:ed|ing)?"
        r"|failure)\b(?!\s?[:=]\s?\d)"
    ),
    r"\bcollective operation timeout\b|\bbefore timing out\b",
    # Values that are not finite.
    r"(?<![\w/.-])-?(?:nan|NaN|NAN)(?![\w/-]|\s?[:=]\s?\d)",
    r"(?i:loss|grad(?:ient)?[ _-]?norm|gnorm|perplexity|ppl|logits)['\"\])]{0,3}"
    r"\s{0,4}(?:[:=|]|is|was|became|of|->)?\s{0,4}(?:tensor\()?[-+]?(?i:inf|infinity)(?![\w-])",
)
ERROR = re.compile("|".join(_SIGNS))
"""Lines that the key for the next error goes to."""
WORDS = (
    "traceback", "error", "exception", "interrupt", "oom", "critical", "fatal", "failure",
    "panicked at",
    "terminate called", "not found", "no such file", "permission denied", "connection refused",
    "connection reset",
    "stale file handle", "no space left", "enospc", "disk quota", "allocate memory", "failed",
    "killed", "xid",
    "segmentation fault", "segfault", "illegal instruction", "core dumped", "terminated", "aborted",
    "cancelled at",
    "due to ", "sigterm", "sigkill", "sigsegv", "sigabrt", "sigbus", "sigill", "sigfpe", "sigxcpu",
    "exit",
    "return code", "returncode", "returned code", "returnedcode", "out of memory",
    "device-side assert", "timeout",
    "timed out", "timing out", "nccl",
)  # fmt: skip
"""Every line that `ERROR` matches contains one of these, in any case, or matches one of
`OTHERS`."""
OTHERS = (
    r"(?:^|[^\w/.])-?nan",
    r"(?:loss|norm|perplexity|ppl|logits)[^\n]{0,50}inf",
    r"^\s{0,9}[ef]\d{4} \d\d:\d\d:",
    r"\[[ef] \w",
)
"""Matched case-insensitively."""


class LineFinder(Protocol):
    """Searches blocks of lines, in a thread."""

    around: int
    """Number of lines before a block that it must see, too."""
    quick: bool
    """Whether it may search a small block on the UI thread."""

    def find_lines(self, block: LineBlock) -> Sequence[tuple[int, str]]:
        """Return the numbers of the matching lines, in order, each with a name or an empty text."""
        ...


Search = Callable[[bytes, int], Any]
"""``search`` of a compiled pattern: takes text and start, returns a match or None."""


def lines_with(search: Search, block: LineBlock) -> Iterator[int]:
    """Yield the index of each line of a block in which a match begins."""
    text, starts, at = block.text, block.starts, 0
    while (match := search(text, at)) is not None:
        index = bisect_right(starts, match.start()) - 1
        # An empty match after the last line.
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
        # Positions only grow, so the bisection begins at the last line found.
        index = bisect_right(starts, at, index) - 1
        yield index
        index += 1
        if index >= count:
            return
        at = find(needle, starts[index])


_BEYOND = re.compile(r"\\[sWDnvfBpPxX]|\[\^|\\[^\w\s]?$|\(\?s")
"""Patterns whose match may extend beyond a line's end: each candidate line is then searched
alone."""
_WHOLE = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*-")
"""Patterns that need each line to be searched alone."""


class Re2Finder:
    """Searches for a regular expression with RE2.

    Args:
        pattern: A pattern that RE2 supports.
        fold: Whether to ignore case.

    Raises:
        ValueError: RE2 does not support it; the message says why.
    """

    around = 0
    quick = True

    def __init__(self, pattern: str, *, fold: bool) -> None:
        # A block has many lines: with (?m), `^` and `$` match at each of them.
        self._pattern = compiled_by_re2(f"(?m){pattern}", fold=fold)
        self._whole = _WHOLE.search(pattern) is not None
        self._alone = self._whole or _BEYOND.search(pattern) is not None

    def find_lines(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the matching lines."""
        search = self._pattern.search
        found: Iterable[int] = range(len(block.starts))
        if not self._whole:
            found = lines_with(search, block)
        if self._alone:
            found = (index for index in found if search(block.read_line(index)))
        return [(block.first + index, "") for index in found]

    def find_spans(self, line: str) -> Spans:
        """Return the spans of the matches in a line."""
        spans = (match.span() for match in self._pattern.finditer(line))
        return tuple((start, end) for start, end in spans if end > start)


class TextFinder(Re2Finder):
    """Searches for a literal text.

    Args:
        text: The text.
        fold: Whether to ignore case.
    """

    def __init__(self, text: str, *, fold: bool) -> None:
        self._raw, self._fold = text.encode("utf-8", "replace"), fold
        super().__init__(re.escape(self._raw.decode()), fold=fold)

    def find_lines(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the matching lines."""
        # `bytes.lower` knows ASCII only.
        if not self._raw.isascii():
            return super().find_lines(block)
        if self._pattern.search(block.text) is None:
            return []
        # Faster if the text occurs often.
        text, needle = block.text, self._raw
        if self._fold:
            text, needle = text.lower(), needle.lower()
        return [(block.first + index, "") for index in _lines_with_text(needle, text, block.starts)]


class ChosenFinder(NamedTuple):
    """The search for a typed text."""

    finder: Re2Finder
    trouble: str
    """Why an expression is searched as plain text; empty = it is not."""


_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}]*")
# The capital of `\S` or `\W` is no capital of the searched text.
_ESCAPED = re.compile(r"\\.")


def ignores_case(text: str) -> bool:
    """Return whether to ignore case for a typed text: only if it has no capital letter."""
    return not any(character.isupper() for character in _ESCAPED.sub("", text))


def finder_for(text: str) -> ChosenFinder:
    """Choose the search for a typed text: smart case, and a regular expression if it is one."""
    fold = ignores_case(text)
    if _PLAIN.fullmatch(text):
        return ChosenFinder(TextFinder(text, fold=fold), "")
    try:
        return ChosenFinder(Re2Finder(text, fold=fold), "")
    except ValueError as error:
        return ChosenFinder(
            TextFinder(text, fold=fold),
            translate(
                "not a regular expression ({replace}): searched as plain text",
                replace=str(error).replace("(?m)", "", 1),
            ),
        )


class ErrorFinder:
    """Searches for errors."""

    around = 0
    quick = True

    def __init__(self) -> None:
        words = "|".join(re.escape(word) for word in WORDS)
        likely = compiled_by_re2(f"(?m){words}|{'|'.join(OTHERS)}".encode(), fold=True)
        self._search: Search = likely.search

    def find_lines(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that are errors."""
        likely = lines_with(self._search, block)
        return [
            (block.first + index, "")
            for index in likely
            if is_error(block.read_line(index).decode())
        ]


@functools.cache
def error_finder() -> ErrorFinder:
    """Return the instance that all logs share."""
    return ErrorFinder()


_NUMBERS = re.compile(r"\d+")


def line_shape(line: str) -> str:
    """Return a line with its numbers replaced, so that repeated messages are equal."""
    return _NUMBERS.sub("0", line[:300])


class PageFinder:
    """Searches for patterns of the handbook.

    Args:
        pages: Its pages.
    """

    around = 25
    quick = False

    def __init__(self, pages: Iterable[HandbookPage]) -> None:
        self._pages = tuple(pages)
        self.shapes: dict[str, str] = {}
        """Page of each kind of line found: a repeated line is searched only once."""

    def find_lines(self, block: LineBlock) -> list[tuple[int, str]]:
        """Return the lines that match a page, with its id."""
        searcher = LogSearcher(self._pages)
        first: dict[int, str] = {}
        # Bounded, because every line may have another shape.
        if len(self.shapes) > 5000:
            self.shapes.clear()
        for hit in (*searcher.feed(block.text), *searcher.close()):
            index = hit.line_no - 1
            first.setdefault(block.first + index, hit.id)
            self.shapes.setdefault(line_shape(block.read_line(index).decode()), hit.id)
        return sorted(first.items())


AT_ONCE = 32 << 10
"""Maximum lines that one job of a thread searches."""
SMALL = 96 << 10
"""Maximum new bytes that a quick finder searches at once on the UI thread."""


class SearchJob:
    """A range of lines to search, and the matches in it.

    Args:
        finder: The search.
        blocks: The lines, including the context that the finder needs.
        start: Number of the first line that counts.
        stop: Number after the last one.
    """

    def __init__(
        self, finder: LineFinder, blocks: Sequence[LineBlock], start: int, stop: int
    ) -> None:
        self.start, self.stop = start, stop
        self.found: list[tuple[int, str]] = []
        self._finder, self._blocks = finder, blocks

    @property
    def searched_bytes(self) -> int:
        """Number of bytes to search."""
        return sum(len(block.text) for block in self._blocks)

    def run(self) -> None:
        """Search; called in a thread."""
        blocks = self._blocks
        if self._finder.around:
            blocks = [join_blocks(blocks)]
        for block in blocks:
            found = self._finder.find_lines(block)
            self.found += [one for one in found if one[0] >= self.start]


class LineMarks:
    """The lines of one log that a finder matches.

    Args:
        kept: The log.
        finder: The search.
        most: Maximum lines from the end that are searched; None = all.
    """

    def __init__(self, kept: KeptLines, finder: LineFinder, most: int | None = None) -> None:
        self.finder = finder
        self.names: dict[int, str] = {}
        """Names that the finder gave to lines."""
        self._kept = kept
        self._most = most
        self._numbers: array[int] = array("q")
        self._low = self._high = kept.end

    @property
    def is_complete(self) -> bool:
        """Whether all lines were searched."""
        return self._high >= self._kept.end and self._low <= self._first_searched()

    def _first_searched(self) -> int:
        first = self._kept.first_number
        if self._most is None:
            return first
        return max(first, self._kept.end - self._most)

    @property
    def line_numbers(self) -> Sequence[int]:
        """Numbers of the matching lines, in order."""
        # Lines that have left the log since the last call.
        gone = bisect_left(self._numbers, self._kept.first_number)
        if gone:
            del self._numbers[:gone]
        return self._numbers

    def __len__(self) -> int:
        return len(self.line_numbers)

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number

    def count_up_to(self, number: int) -> int:
        """Return how many of the matching lines are before a line, or are it."""
        return bisect_right(self.line_numbers, number)

    def iterate_after(self, number: int) -> Iterator[int]:
        """Yield the matching lines after a line, in order."""
        numbers = self.line_numbers
        for place in range(bisect_right(numbers, number), len(numbers)):
            yield numbers[place]

    def iterate_before(self, number: int) -> Iterator[int]:
        """Yield the matching lines before a line, the nearest first."""
        numbers = self.line_numbers
        for place in range(bisect_left(numbers, number) - 1, -1, -1):
            yield numbers[place]

    def was_searched(self, number: int) -> bool:
        """Return whether a line was searched."""
        return self._low <= number < self._high

    def forget_before(self, number: int) -> None:
        """Drop the matches before a line, because the lines there have changed."""
        self._low = min(max(self._low, number), self._high)
        del self._numbers[: bisect_left(self._numbers, number)]
        self.names = {one: name for one, name in self.names.items() if one >= number}

    def next_job(self) -> SearchJob | None:
        """Return the next range to search, new lines before old ones; None = nothing is left."""
        first, end = self._first_searched(), self._kept.end
        self._low = max(self._low, min(first, self._high))
        # More lines arrived than are kept: all searched ones have left the log.
        if self._high < first:
            self._low = self._high = first
        start, stop = max(first, self._low - AT_ONCE), self._low
        if self._high < end:
            start, stop = self._high, min(end, self._high + AT_ONCE)
        if start >= stop:
            return None
        blocks = self._kept.iterate_blocks(start - self.finder.around, stop)
        return SearchJob(self.finder, list(blocks), start, stop)

    def apply_job(self, job: SearchJob) -> None:
        """Apply the matches of a job."""
        numbers = array("q", [number for number, _ in job.found])
        self.names.update((number, name) for number, name in job.found if name)
        if job.start == self._high:
            self._numbers += numbers
            self._high = job.stop
        elif job.stop == self._low:
            self._numbers[:0] = numbers
            self._low = job.start
        # Otherwise the lines have changed meanwhile, and are searched again.

    def catch_up(self) -> None:
        """Search new lines immediately if they are few."""
        if self.finder.quick and self._high < self._kept.end:
            job = self.next_job()
            if job is not None and job.searched_bytes <= SMALL:
                job.run()
                self.apply_job(job)


# Error lines, and a cheap test that rules out nearly all other lines.


@functools.lru_cache(maxsize=1024)
def is_error(line: str) -> bool:
    """Return whether a line is an error."""
    # Maximum characters of a line that are searched.
    longest = 4000
    return ERROR.search(line[:longest]) is not None


# Shows the matches of a search in a complete log on its box.


class LineSheet:
    """Lines that are shown instead of a log's newest ones.

    Args:
        kept: The lines.
        heading: Their title.
    """

    def __init__(self, kept: KeptLines, heading: str) -> None:
        self.kept, self.heading = kept, heading
        self.hits: list[FilePlace] = []
        """Offset of each line on the box, by its number, if the lines are matches."""


async def search_box(log: BoxLog, wanted: str, show: Callable[[LineSheet], None]) -> None:
    """Search a complete log on its box; show the matches as they arrive.

    Raises:
        Exception: It cannot be searched.
    """
    sheet = LineSheet(KeptLines(log.path), "")
    found = BoxSearch()
    began = time.monotonic()

    def update_heading(end: str) -> None:
        took = compact_time(time.monotonic() - began)
        what = how_many(max(found.matches, len(sheet.hits)), "line")
        sheet.heading = translate(
            "/{wanted} on the box: {what} in {read}, {took}{end}",
            wanted=wanted,
            what=what,
            read=size_or_dash(found.read),
            took=took,
            end=end,
        )
        show(sheet)

    def add_news(news: BoxSearch) -> None:
        nonlocal found
        for hit in news.hits:
            sheet.hits.append(hit.place)
            sheet.kept.append_lines((hit.text,))
        # Without hits, the message reports how much was read.
        if not news.hits:
            found = news
            update_heading(" …")

    update_heading(" …")
    # The box searches for the same kind of pattern as this screen.
    fixed = isinstance(finder_for(wanted).finder, TextFinder)
    found = await log.search_log(wanted, fixed=fixed, fold=ignores_case(wanted), each=add_news)
    more = ""
    if found.matches > len(sheet.hits):
        more = translate("; the newest {hits} are listed", hits=format_thousands(len(sheet.hits)))
    if found.incomplete:
        more = translate(
            "{more}; not all was searched: {incomplete}", more=more, incomplete=found.incomplete
        )
    update_heading(more)
