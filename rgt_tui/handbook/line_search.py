"""Finds handbook pages in the lines of a log: literals first, then patterns.

The first pass uses one RE2 automaton for all literals, whose time is linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from rgt_wire.log_envelopes import COLLECTED, WRITERS

from rgt_tui.handbook.envelopes import unwrap_record
from rgt_tui.handbook.foreign_messages import (
    compile_legacy_needles,
    decode_line,
    foreign_needles,
    translate_lines,
)
from rgt_tui.handbook.pages import HandbookPage
from rgt_tui.model import FrozenStruct

AROUND = 25
"""Lines before and after a literal that a pattern may need."""
BLOCK = 1 << 20
"""Bytes searched at a time."""
ANSI = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]"
    rb"|\x1b[=>78cDEHMNOZ]"
)
_NUMBERS = re.compile(rb"\d+")
_WRITER = re.compile(rf"(?:{WRITERS}|(?:  ){{1,8}}\| )+")
"""Prefixes of lines from one of several writers, and of the exceptions in a group."""
_STAMP = re.compile(COLLECTED)
_TRACEBACK = "Traceback (most recent call last):"
_ESCAPED = re.compile(
    r"Traceback \(most recent call last\):\\n(?:(?= *File \"|[^\"]{0,200}\\n +File \")(?:[^\\]"
    r"|\\.){0,16000}"
    r"|(?:[^\"\\]|\\.){0,16000})"
)
"""A traceback inside a JSON string, with escaped line ends."""
_FOLDED = re.compile(r"Traceback \(most recent call last\):(?= (?:\[\.\.\.\] )?File \")")
"""The beginning of a traceback that a service wrote into one line, with blanks as line ends."""
_FRAME_START = re.compile(r' (?=File "[^"\n]{1,400}", line \d)')
_RAISED_NAME = re.compile(
    r" (?=(?:\w{1,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)\b)"
)
_WRAPPED = re.compile(
    r"\s*(?:\w{1,60}\.){0,8}\w{1,60}(?:Error|Exception|StackTrace|Failure): "
    r"(?=(?:\w{1,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): )"
)
"""The name of an exception in front of another one's, which it wraps."""
_VALUES = re.compile(
    r"\b\w*(?:exc|exception|error|type|kind)\w*=['\"]?((?:\w+\.)*[A-Z]\w*(?:Error"
    r"|Exception))['\"]?\b[^\n]{0,200}?"
    r"\b(?:error|message|msg|exc_value|value|reason|detail|err)=\"((?:[^\"\\\n]|\\.){1,1000})\""
)
"""An exception in a line of keys and values."""
_FRAME = re.compile(r"""(?s:.*)^ +(File "[^"\n]{1,400}", line \d+[^\n]{0,200})""", re.MULTILINE)
_NOTEBOOK_FRAME = re.compile(
    r"(?s:.*)^File ([^\s<][^\n]{0,400}?):(\d+), in ([^\n(]{1,200})", re.MULTILINE
)
"""The innermost frame as notebooks print it."""
_FRAME_LINE = re.compile(r"\s*(?:File \"|[A-Za-z]:\\[^\n]{1,300}\.py(?:\"|:\d| in ))")
_COMMENT = re.compile(r"\s*(?:#(?!#\[error\])|//|\* )")
_QUOTED = re.compile(
    r"\s*\+{1,4} (?=\S)|\s*[-*] [^\n]{0,80}`|\s*-\s+['\"][^\n]*['\"],?\s*$"
    r"|[^\n]{0,200}(?:^|[\s;|&($])(?:[zef]?grep|rg|awk|sed|jq)\s[^\n]{0,200}['\"]"
    r"|\[[\w./-]{1,80}(?: \([\w-]{1,20}\))? [0-9a-f]{7,40}\] |HEAD is now at [0-9a-f]{7}"
    r"|(?=[0-9a-f]{0,9}[a-f])(?=[0-9a-f]{0,9}\d)[0-9a-f]{7,10} (?!\w{0,40}(?:Error"
    r"|Exception))[A-Z][a-z]+ "
    r"|[\s+-]*(?:#(?!#\[error\])|raise \w|except\b[^\n]*:|(?:el)?if\b[^\n]*:\s*$"
    r"|assert\b[^\n]*[\"'(]"
    r"|print\(|echo +[\"']|trap +[\"']|log\w*\.\w+\(|warnings\.warn\()"
    r"|\s*['\"]?(?!\w{0,30}(?:[Ee]rror|[Mm]essage|msg|[Rr]eason|[Ee]xception|[Dd]etail|output"
    r"|stderr)['\"]?\s*[:=])[a-z][\w.-]{0,40}['\"]?"
    r"\s*[:=]\s*['\"\[{][^\n]*['\"\]}],?\s*$"
)
"""A line that quotes errors: a trace of the shell (set -x), a search for them, code, settings,
commits.
"""
# Python's own words for exceptions in destructors, see `find_quoted_rows`.
_IGNORED = "Exception ignored in"


class LineHit(FrozenStruct, kw_only=True):
    """A page that a log shows."""

    id: str
    line: str
    """The proving line, without escape sequences."""
    line_no: int
    """From 1; a line that rewrites itself counts once."""
    text: str = ""
    """The matching line in English, without the prefixes of its writer and of a log collector."""
    name: str | None = None
    """First group of the pattern, e.g. the missing module."""
    frame: str = ""
    """For a match over several lines, the innermost traceback frame in it."""
    by_end_words: bool = False
    """Found by `HandbookPage.end_words`, which is less certain than a pattern."""


class LineState(NamedTuple):
    """A line, or one state of a line that rewrites itself."""

    text: str
    number: int
    before: str = ""
    """The prefix that identifies one of several writers."""
    original: str = ""
    """The whole line as it was written, if `text` was translated."""
    quoted: bool = False
    """It reports no failure of this run, see `find_quoted_rows`."""


class LiteralSearch:
    """The cheap first pass: finds the places in a text that may match a page."""

    def __init__(self, pages: Iterable[HandbookPage]) -> None:
        self.pages = tuple(page for page in pages if page.patterns or page.word_groups)
        of: dict[bytes, list[int]] = {}
        for number, page in enumerate(self.pages):
            for needle in (*page.needles, *page.first_words):
                of.setdefault(needle.encode(), []).append(number)
        self._literals = {literal: of[literal] for literal in sorted(of)}
        """Literal → indexes of its pages in `pages`."""
        self._cheap = {
            number: re.compile(page.needle_pattern.encode(), re.IGNORECASE | re.MULTILINE)
            for number, page in enumerate(self.pages)
            if page.needle_pattern is not None
        }
        self._always = frozenset(
            number
            for number, page in enumerate(self.pages)
            if page.patterns and not page.needles and page.needle_pattern is None
        )
        # One automaton for all of them: its time does not depend on their number.
        parts = [re.escape(literal) for literal in self._literals] + [
            b"(?:%s)" % pattern.pattern for pattern in self._cheap.values()
        ]
        # A page without literals makes the first pass useless: then each line is searched.
        if parts and not self._always:
            parts += [re.escape(needle) for needle in foreign_needles()]
            # Upper and lower case by the automaton, since lowering gigabytes first would copy them.
            self._all = compiled_by_re2(b"(?m)" + b"|".join(parts), fold=True)
        else:
            self._all = None
        self._which = _build_literal_finder(self._literals)

    def find_places(self, text: bytes) -> Iterator[int]:
        """Yield one position per line of `text` that may match a page, in order."""
        if self._always:
            yield from _iterate_line_starts(text)
        elif self._all is not None:
            places = _find_one_per_line(self._all, text)
            if _is_utf8(text):
                yield from places
            else:
                more = _find_one_per_line(compile_legacy_needles(), text)
                yield from sorted(
                    {text.rfind(b"\n", 0, at) + 1: at for at in (*more, *places)}.values()
                )

    def find_suspect_pages(self, text: bytes) -> Iterator[HandbookPage]:
        """Yield the pages whose literals occur in `text`."""
        lines = text.decode("utf-8", "replace").split("\n")
        if (english := translate_lines(lines)) is not lines:
            text = "\n".join(english).encode()
        lower = text.lower()
        found = set(self._always)
        for literal in self._which(lower):
            found.update(self._literals[literal])
        found.update(
            number for number, cheap in self._cheap.items() if cheap.search(text) is not None
        )
        for number in sorted(found):
            yield self.pages[number]

    def suspect_rows(self, rows: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Return row index → ids of pages whose literals occur in it; most rows have none."""
        data = [row.encode("utf-8", "replace") for row in rows]
        text = b"\n".join(data)
        found, at, number = {}, 0, 0
        for place in self.find_places(text):
            number += text.count(b"\n", at, place)
            at = place
            if ids := tuple(page.id for page in self.find_suspect_pages(data[number])):
                found[number] = ids
        return found


@functools.lru_cache(maxsize=8)
def build_literal_search(pages: tuple[HandbookPage, ...]) -> LiteralSearch:
    """Return the cached first pass for these pages, which is slow to create."""
    return LiteralSearch(pages)


def _find_one_per_line(pattern: Any, text: bytes) -> Iterator[int]:
    at = 0
    while (match := pattern.search(text, at)) is not None:
        yield match.start()
        at = text.find(b"\n", match.start()) + 1
        if not at:
            return


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _iterate_line_starts(text: bytes) -> Iterator[int]:
    at = 0
    while at < len(text):
        yield at
        at = text.find(b"\n", at) + 1
        if not at:
            return


def compiled_by_re2(pattern: bytes | str, *, fold: bool) -> Any:
    """Compile with RE2.

    Args:
        pattern: Bytes, to search in undecoded UTF-8 text.
        fold: Ignore case.

    Raises:
        ValueError: RE2 rejects the pattern; the message says why.
    """
    import re2  # imported here: not needed without a log

    try:
        return re2.compile(pattern, options=_build_re2_options(re2, fold))
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from None


def _build_re2_options(re2: Any, fold: bool) -> Any:
    options = re2.Options()
    # RE2 falls back to its slow engine when the automaton does not fit.
    options.max_mem = 64 << 20
    # RE2 would print its errors on stderr.
    options.log_errors = False
    options.case_sensitive = not fold
    return options


def _build_literal_finder(literals: Iterable[bytes]) -> Callable[[bytes], Iterable[bytes]]:
    """Return a function that finds the literals in a text in one pass."""
    import re2  # imported here: not needed without a log

    literals = tuple(literals)
    options = _build_re2_options(re2, fold=False)
    options.encoding = re2.Options.Encoding.LATIN1  # bytes without a meaning
    together = re2.Set.SearchSet(options)
    for literal in literals:
        together.Add(re2.escape(literal))
    together.Compile()
    return lambda text: (
        [literals[number] for number in together.Match(text) or ()] if literals else ()
    )


@functools.cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when a log first contains one of its literals: most are never needed."""
    return re.compile(pattern, re.MULTILINE)


class LogSearcher:
    """Searches a log given in pieces of any size.

    Args:
        pages: The pages to find.
    """

    def __init__(self, pages: Iterable[HandbookPage]) -> None:
        self._lookout = build_literal_search(tuple(pages))
        self._new = b""
        """Data that is not searched yet; its last line may be incomplete."""
        self._cut = False
        """The input continues an overlong line whose beginning was searched."""
        self._kept = b""
        """Searched lines that patterns may still need."""
        self._first = 1
        """Line number of the first line in `_kept`."""
        self._open: list[tuple[int, int]] = []
        """Lines with a literal (index in `_kept`, column) that are searched once enough lines
        follow.
        """
        self._shapes: set[bytes] = set()

    def feed(self, data: bytes) -> Iterator[LineHit]:
        """Add bytes; yield the matches, each page at most once per line."""
        # The rest of an overlong line is dropped up to its end.
        if self._cut:
            end = data.find(b"\n")
            data, self._cut = (data[end + 1 :], False) if end >= 0 else (b"", True)
        self._new += data
        if len(self._new) >= BLOCK:
            yield from self._search_block(last=False)

    def close(self) -> Iterator[LineHit]:
        """Yield the matches at the end of the log."""
        yield from self._search_block(last=True)

    @property
    def line_ends(self) -> int:
        """Number of line ends in the searched text."""
        return self._first - 1 + self._kept.count(b"\n")

    def _search_block(self, *, last: bool) -> Iterator[LineHit]:
        if last:
            end = len(self._new)
        else:
            # Only complete lines: a literal may continue in the next piece.
            end = self._new.rfind(b"\n") + 1
        if not end and not last:
            # A progress bar of megabytes is still one line; beyond this it is cut.
            if len(self._new) < 8 * BLOCK:
                return
            self._new, self._cut = self._new + b"\n", True
            end = len(self._new)
        block, self._new = self._new[:end], self._new[end:]
        if b"\x1b" in block:
            # Colours may be in the middle of a literal.
            block = ANSI.sub(b"", block)
        self._mark_lines(block)
        text = self._kept + block
        total = text.count(b"\n") + (not text.endswith(b"\n"))
        lines: list[bytes] = []
        groups = list(_group_lines(self._open))
        # A pattern may need the lines that follow, which are not there yet.
        while groups and (last or groups[0][-1][0] + AROUND < total):
            lines = lines or text.split(b"\n")
            yield from self._search_group(lines, groups.pop(0))
        self._open = [mark for group in groups for mark in group]
        least = 0
        if self._open:
            least = total - self._open[0][0] + AROUND
        left = min(total, max(AROUND, least))
        self._kept = text[_find_tail_offset(text, left) :]
        gone = total - left
        self._first += gone
        self._open = [(number - gone, column) for number, column in self._open]

    def _mark_lines(self, block: bytes) -> None:
        """Record the lines of a block, appended to the kept ones, that may match a page."""
        at, number = 0, self._kept.count(b"\n")
        for place in self._lookout.find_places(block):
            number += block.count(b"\n", at, place)
            at = place
            if self._is_new(block, place):
                self._open.append((number, place - (block.rfind(b"\n", 0, place) + 1)))

    def _is_new(self, block: bytes, place: int) -> bool:
        """Return whether no equal line, ignoring numbers, was searched before."""
        start = block.rfind(b"\n", 0, place) + 1
        end = block.find(b"\n", place)
        # Around the literal: the ends of a long line often differ by a time.
        block_end = end
        if end < 0:
            block_end = len(block)
        line = block[max(start, place - 300) : min(block_end, place + 300)]
        shape = _NUMBERS.sub(b"0", line)
        if shape in self._shapes:
            return False
        # How many kinds of searched lines are remembered, because logs repeat themselves.
        most_shapes = 20_000
        if len(self._shapes) >= most_shapes:
            # Searching a shape again is harmless; memory without a limit is not.
            self._shapes.clear()
        self._shapes.add(shape)
        return True

    def _search_group(
        self, lines: Sequence[bytes], group: Sequence[tuple[int, int]]
    ) -> Iterator[LineHit]:
        (head, _), (tail, _) = group[0], group[-1]
        first = max(0, head - AROUND)
        rows = _decode_rows(lines[first : tail + AROUND + 1], first, dict(group))
        yield from self._match_rows(rows, head, tail)

    def _match_rows(self, rows: Sequence[LineState], first: int, last: int) -> Iterator[LineHit]:
        text = "\n".join(row.text for row in rows)
        near = range(first - AROUND, last + AROUND + 1)
        for page in self._lookout.find_suspect_pages(text.encode()):
            for hit in hits_of(page, rows, text):
                if hit.line_no in near:
                    yield msgspec.structs.replace(hit, line_no=hit.line_no + self._first)


def _group_lines(marked: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of lines to search at once: with close neighbours, and of limited size."""
    group: list[tuple[int, int]] = []
    # Maximum lines searched at once.
    most_together = 200
    for mark in marked:
        if group and (mark[0] - group[-1][0] > AROUND or mark[0] - group[0][0] > most_together):
            yield group
            group = []
        group.append(mark)
    if group:
        yield group


def _decode_rows(lines: Sequence[bytes], first: int, columns: Mapping[int, int]) -> list[LineState]:
    """Return lines as text: one row per state of a rewritten line, long ones cut."""
    rows: list[tuple[int, str]] = []
    # Maximum characters of a line for patterns; a longer line is cut around the literal.
    max_line = 2000
    for number, line in enumerate(lines, first):
        if len(line) > max_line:
            # Patterns can take quadratic time in the length of a line.
            start = max(0, columns.get(number, 0) - max_line // 2)
            line = line[start : start + (8 * max_line if _TRACEBACK.encode() in line else max_line)]
        rows.extend((number, state) for state in states_of(decode_line(line)))
    return in_order(rows)


def states_of(line: str) -> list[str]:
    """Return each state of a line that rewrites itself.

    A record of a log collector is its text; a traceback in a JSON string becomes lines, and so does
    an exception whose type and message are values of their own.
    """
    # Two cheap tests first: nearly no line is a record.
    if line[-1:] == "}" and '{"' in line and (text := unwrap_record(line)) is not None:
        line = text.rstrip("\n").replace("\n", "\r")
    if '="' in line and (match := _VALUES.search(line)) is not None:
        line = f"{line}\r{match[1]}: {match[2]}".replace('\\"', '"')
    if ": " in line and (match := _WRAPPED.match(line)) is not None:
        line = f"{line}\r{line[match.end() :]}"
    if _TRACEBACK in line:
        if (match := _ESCAPED.search(line)) is not None:
            raised = match[0].replace("\\n", "\r").replace('\\"', '"')
            line = f"{line[: match.start()]}{line[match.end() :]}\r{raised}"
        elif (match := _FOLDED.search(line)) is not None:
            line = f"{line[: match.end()]}\r{_unfold_frames(line[match.end() :])}"
    return line.rstrip("\r").split("\r")


def _unfold_frames(frames: str) -> str:
    """Return the frames of a traceback in one line, and its exception, on lines of their own."""
    frames = _FRAME_START.sub("\r  ", frames)
    # The last one: frames may contain code that names exceptions.
    raised = None
    for match in _RAISED_NAME.finditer(frames, frames.rfind('\r  File "') + 1):
        raised = match
    if raised is None:
        return frames
    return f"{frames[: raised.start()]}\r{frames[raised.start() + 1 :]}"


def find_quoted_rows(texts: Sequence[str]) -> list[bool]:
    """Return for each row whether it reports no failure: it quotes one, or Python ignored it.

    Python prints exceptions of destructors and of callbacks at exit with a traceback, and goes on.
    """
    found = []
    ignored = in_frame = False
    for text in texts:
        if _IGNORED in text:
            # What could not be written at exit was lost.
            ignored = "<_io." not in text
            found.append(ignored)
            continue
        # Below a frame comes its source line, which looks like quoted code and is not.
        found.append(ignored or (not in_frame and _QUOTED.match(text) is not None))
        in_frame = text.lstrip().startswith('File "')
        if text and text[0] not in " \t" and not text.startswith(_TRACEBACK):
            ignored = False
    return found


def in_order(lines: Iterable[tuple[int, str]]) -> list[LineState]:
    """Return numbered lines as rows, without prefixes, and grouped by writer."""
    rows = _sort_rows(lines)
    quoted = find_quoted_rows([row.text for row in rows])
    return [row._replace(quoted=said) for row, said in zip(rows, quoted, strict=True)]


def _sort_rows(lines: Iterable[tuple[int, str]]) -> list[LineState]:
    lines = list(lines)
    split = [writer_of(line) for _, line in lines]
    texts = [_write_slashes(text) for _, text in split]
    rows = [
        LineState(english, number, before, line if english is not text else "")
        for (number, line), (before, text), english in zip(
            lines, split, translate_lines(texts), strict=True
        )
    ]
    order = by_writer([row.before for row in rows])
    if order is not None:
        rows = [rows[place] for place in order]
    # Maximum characters before each line of a traceback.
    most_before = 120
    begins = {
        re.sub(r"\d+", r"\\d+", re.escape(row.text[:at]))
        for row in rows
        if 0 < (at := row.text.find(_TRACEBACK)) <= most_before and row.text[:at].strip()
    }
    if not begins:
        return rows
    # For unknown log collectors: the prefix of a traceback's first line is, except for numbers,
    # also the prefix of its other lines.
    before = re.compile("|".join(sorted(begins)))
    found = []
    for row in rows:
        match = before.match(row.text)
        if match is not None:
            row = row._replace(text=row.text[match.end() :], before=row.before + match[0])
        found.append(row)
    return found


def _write_slashes(text: str) -> str:
    """Return a frame of a traceback on Windows with the paths that pages write; other lines as they are."""
    if "\\" in text and _FRAME_LINE.match(text):
        return text.replace("\\", "/")
    return text


def writer_of(line: str) -> tuple[str, str]:
    """Return a line's prefix (its timestamp, and its writer if there are several) and its text."""
    stamp = _STAMP.match(line)
    if stamp is not None:
        start = stamp.end()
    else:
        start = 0
    match = _WRITER.match(line, start)
    if match is not None:
        end = match.end()
    else:
        end = start
    return line[:end], line[end:]


def by_writer(befores: Sequence[str]) -> list[int] | None:
    """Return line indexes grouped by writer, in order of first appearance; None = one writer.

    This reassembles a traceback whose lines are mixed with those of other ranks.
    """
    writers = [_STAMP.sub("", before, count=1) if before else before for before in befores]
    first: dict[str, int] = {}
    for writer in writers:
        first.setdefault(writer, len(first))
    # The usual case: no copy of the lines.
    if len(first) < 2:
        return None
    return sorted(range(len(writers)), key=lambda place: first[writers[place]])


def hits_of(page: HandbookPage, rows: Sequence[LineState], text: str) -> Iterator[LineHit]:
    """Yield the matches of a page's patterns, one per line.

    Args:
        page: The page.
        rows: The lines.
        text: The same, joined by line feeds.
    """
    seen = set()
    for row, name, matched in _iterate_matches(page, rows, text):
        # Several patterns of a page may match one line.
        if row.quoted or row.number in seen or _COMMENT.match(row.text):
            continue
        seen.add(row.number)
        yield LineHit(
            id=page.id,
            line=(row.original or row.before + row.text).strip(),
            line_no=row.number,
            text=row.text.strip(),
            name=name,
            frame=_find_innermost_frame(matched),
        )


def _find_innermost_frame(matched: str) -> str:
    """Return the innermost frame of a traceback, as Python's own tracebacks have it; empty = none."""
    if (frame := _FRAME.match(matched)) is not None:
        return frame[1]
    if (frame := _NOTEBOOK_FRAME.match(matched)) is not None:
        return f'File "{frame[1]}", line {frame[2]}, in {frame[3]}'
    return ""


def _iterate_matches(
    page: HandbookPage, rows: Sequence[LineState], text: str
) -> Iterator[tuple[LineState, str | None, str]]:
    """Yield the row, the first group and the text of each match of a page."""
    for pattern in page.patterns:
        at = place = 0
        for match in compile_pattern(pattern).finditer(text):
            # The end of the match, not its begin: a pattern over several lines ends in the proving
            # one.
            last = max(match.start(), match.end() - 1)
            place += text.count("\n", at, last)
            at = last
            name = None
            if match.re.groups:
                name = match.group(1)
            yield rows[place], name, match[0]
    if page.word_groups:
        for row in rows:
            if matches_words(row.text.lower(), page.word_groups, page.unless):
                yield row, None, ""


def matches_words(
    low: str, lists: Iterable[Iterable[Iterable[str]]], unless: Iterable[str]
) -> bool:
    """Return whether a line in lower case has one word of each group of some list, and none of `unless`."""
    return any(all(_has_any_word(low, group) for group in groups) for groups in lists) and not any(
        word in low for word in unless
    )


def _has_any_word(low: str, words: Iterable[str]) -> bool:
    for word in words:
        at = low.find(word)
        # Only a word that begins with a letter can begin within another one.
        while at > 0 and word[0].isalpha() and low[at - 1].isalpha():
            at = low.find(word, at + 1)
        if at >= 0:
            return True
    return False


def _find_tail_offset(block: bytes, lines: int) -> int:
    """Return the offset of the last `lines` lines of a block."""
    at = len(block) - block.endswith(b"\n")
    for _ in range(lines):
        at = block.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            return 0
    return at + 1


def search_text(text: str | bytes, pages: Iterable[HandbookPage]) -> list[LineHit]:
    """Return the matches in a whole text, by line."""
    searcher = LogSearcher(pages)
    if isinstance(text, bytes):
        data = text
    else:
        data = text.encode("utf-8", "surrogateescape")
    found = [*searcher.feed(data), *searcher.close()]
    return sorted(found, key=lambda hit: hit.line_no)
