"""The ``grep`` verb: a bounded search in logs, newest lines first."""

from __future__ import annotations

import glob
import os
import re
import signal
import sys
import time

from rgt_wire import CUT, MAX_LINE

from rgt_box import files, jsonline
from rgt_box.background import error_text
from rgt_box.commands import file_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

BLOCK = 256 << 10
LONGEST = 1 << 20
"""Bytes without a line end after which a line is split."""

_END = re.compile(rb"\r\n|\n|\r")


class ReadBudget:
    """The number of bytes that may still be read."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.read = 0
        self.cut = False


def lines_backwards(fd: int, budget: ReadBudget) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, line without its end), the last line first.

    A progress bar rewrites its line with ``\r``: each of its states counts as a line.

    Args:
        fd: A regular file.
        budget: Bytes that may be read; `ReadBudget.cut` is set if it ran out before the start of
            the file.
    """
    end = os.fstat(fd).st_size
    held = b""  # bytes from `end` whose first line may begin further up
    last = True
    while end > 0:
        size = min(BLOCK, end, budget.left)
        if size <= 0:
            budget.cut = True
            return
        block = os.pread(fd, size, end - size)
        if not block:
            return
        # A file truncated meanwhile returns fewer bytes; the rest is then treated as its end.
        end = end - size
        budget.left -= len(block)
        budget.read += len(block)
        data = block + held
        spans = [match.span() for match in _END.finditer(data)]
        if spans and spans[0][0] == 0 and end > 0 and data[:1] == b"\n":
            spans = spans[
                1:
            ]  # its "\r" may be the last byte of the previous block: retry with that block
        stop = len(data)
        for left, right in reversed(spans):
            if not (last and right == len(data)):
                yield end + right, data[right:stop]
            last = False
            stop = left
        held = data[:stop]
        if len(held) > LONGEST:
            yield end, held
            held = b""
            last = True
    if held or not last:
        yield 0, held


PIECE = 4 << 20
"""Bytes searched at a time when no context lines are requested."""
_ALONE = re.compile(rb"\\[AZB]|\(\?")
"""Patterns with one of these must be matched line by line; others may be tried on many lines at
once."""


def regions_backwards(fd: int, end: int, budget: ReadBudget) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, complete lines) of a file up to a byte, the last piece first.

    Args:
        fd: A regular file.
        end: Where to begin; an unfinished line before it counts.
        budget: Bytes that may be read.
    """
    held = b""
    while end > 0:
        size = min(PIECE, end, budget.left)
        if size <= 0:
            budget.cut = True
            return
        data = os.pread(fd, size, end - size)
        if not data:
            return
        end -= size
        budget.left -= len(data)
        budget.read += len(data)
        first = 0
        if end > 0:
            first = data.find(b"\n") + 1
        if end > 0 and not first:
            held = data + held
            # A line of any length must not be collected without a limit; it is split here.
            if len(held) <= PIECE + LONGEST:
                continue
        else:
            yield end + first, data[first:] + held
            held = data[:first]
            continue
        yield end, held
        held = b""
    if held:
        yield end, held


def quick_search(
    pattern: str, fixed: bool, fold: bool
) -> tuple[bytes, re.Pattern[bytes] | None] | None:
    """Return a (text, bytes regex) that searches many lines at once; None to match line by line."""
    raw = pattern.encode("utf-8", "replace")
    # Lower case of bytes covers ASCII only.
    if fixed and not (fold and not pattern.isascii()):
        return (raw.lower() if fold else raw), None
    if fixed or not pattern.isascii() or _ALONE.search(raw):
        return None
    try:
        # MULTILINE: ^ and $ have to match at each line of the piece.
        return b"", re.compile(raw, (re.IGNORECASE if fold else 0) | re.MULTILINE)
    except (re.error, RecursionError, OverflowError):
        return None


HELP = """
usage: grep PATTERN PATH... [--max N] [--context N] [--ignore-case] [--limit-mib N] [--timeout S] [--fixed] [--count]
            [--progress S] [--cut N] [--most-kib N] [--nice]

Search logs from their end: the newest lines come first. PATTERN is a Python regular expression, PATH a file, a
glob, or a directory (all files below it, the newest file first). Prints one JSON line for each match,
{"path", "offset", "inode", "text", "before", "after"}, and at the end {"end": true, "matches", "files", "read",
"complete", "stopped", "problems"}. "offset" is the byte in the file; "complete" is false when something was not
searched, and "stopped" says why. Lines of more than 16 KiB are cut.

  --max N         stop after N matches (default 100)
  --context N     lines before and after each match (default 0, at most 50)
  --ignore-case   match upper and lower case alike
  --limit-mib N   read at most N MiB of all files together (default 256)
  --timeout S     stop after S seconds (default 20): some patterns take forever
  --fixed         PATTERN is plain text
  --count         count further matches after --max instead of printing them
  --progress S    print {"progress": true, "read", "matches"} every S seconds
  --cut N         cut lines of more than N characters
  --most-kib N    print at most N KiB of matches, and count the rest
  --nice          run at low priority

Exit status: 0 something matched, 1 nothing did, 2 wrong command line, an invalid pattern, or nothing to search.

Example: grep 'CUDA out of memory|Traceback' ~/jobs/sweep/logs --context 3 --max 20
"""
SPEC = {
    "--max": "int", "--context": "int", "--ignore-case": "flag", "--limit-mib": "int",
    "--timeout": "float",
    "--fixed": "flag", "--count": "flag", "--progress": "float", "--cut": "int",
    "--most-kib": "int", "--nice": "flag",
}  # fmt: skip
MOST_FILES = 10000


class TimeLimitReached(Exception):
    """The time limit was reached."""


class LogSearch:
    """One search over many files.

    Args:
        pattern: The compiled pattern.
        quick: Result of `quick_search`; None to match line by line.
        given: The parsed options.
    """

    def __init__(
        self,
        pattern: re.Pattern[str],
        quick: tuple[bytes, re.Pattern[bytes] | None] | None,
        given: JsonObject,
    ) -> None:
        self._pattern = pattern
        self._quick = quick
        self._fold = given["ignore-case"]
        self._most = _value_or_default(given["max"], 100)
        self._context = min(50, _value_or_default(given["context"], 0))
        self._counts = given["count"]
        self._cut = _value_or_default(given["cut"], MAX_LINE)
        self._every = given["progress"]
        self._room = _value_or_default(given["most-kib"], 1 << 40) << 10
        self.budget = ReadBudget(_value_or_default(given["limit-mib"], 256) << 20)
        self.matches = self.files = 0
        self.stopped: str | None = None
        self.problems: list[JsonObject] = []
        self._said = time.monotonic()

    def search_file(self, path: str) -> Iterator[JsonObject]:
        """Yield the matches of one file, newest first."""
        try:
            fd = files.open_regular(path)
        except OSError as error:
            self._add_problem(path, error_text(error))
            return
        try:
            self.files += 1
            size = os.fstat(fd).st_size
            if self._context or self._quick is None:
                yield from self._find_with_context(path, fd)
            else:
                yield from self._find_without_context(path, fd, size)
            if os.fstat(fd).st_size < size:
                self._add_problem(path, "was truncated while it was searched")
            if self.budget.cut and self.stopped is None:
                self.stopped = "%d bytes read" % self.budget.read
        except OSError as error:
            self._add_problem(path, error_text(error))
        finally:
            os.close(fd)

    def _find_without_context(self, path: str, fd: int, end: int) -> Iterator[JsonObject]:
        """Yield the matches without context lines, searching many lines at once."""
        inode = os.fstat(fd).st_ino
        for start, region in regions_backwards(fd, end, self.budget):
            for left, right in self._matching_spans(region):
                self.matches += 1
                if self.matches <= self._most and self._room > 0:
                    text = cut_line(region[left:right].decode("utf-8", "replace"), self._cut)
                    found = dict(
                        file_tree.name_fields(os.fsencode(path)),
                        offset=start + left,
                        inode=inode,
                        text=text,
                    )
                    self._room -= len(jsonline.encode_line(found))
                    yield dict(found, before=[], after=[])
                if self.matches >= self._most and not self._counts:
                    self.stopped = "%d matches" % self._most
                    return
            if self._every is not None and time.monotonic() - self._said >= self._every:
                self._said = time.monotonic()
                yield {"progress": True, "read": self.budget.read, "matches": self.matches}

    def _matching_spans(self, region: bytes) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of the matching lines, the last one first."""
        bars = b"\r" in region  # a progress bar: each of its states is a line
        assert self._quick is not None
        # In bytes, "." and character classes match parts of a character, so only ASCII text can be
        # searched this way.
        if self._quick[1] is not None and (bars or not region.isascii()):
            for left, right in reversed(list(_line_spans(region))):
                if self._pattern.search(region[left:right].decode("utf-8", "replace")):
                    yield left, right
            return
        needle, expression = self._quick
        if expression is None:
            if self._fold:
                text = region.lower()
            else:
                text = region
            stop = len(region)
            at = text.rfind(needle, 0, stop)
            while at >= 0:
                left, right = _row_around(region, at, bars)
                # A match may not span two states of a progress bar.
                if at + len(needle) <= right:
                    yield left, right
                    stop = left
                else:
                    stop = at + len(needle) - 1
                at = text.rfind(needle, 0, stop)
            return
        places = []
        at = 0
        while at < len(region):
            match = expression.search(region, at)
            if match is None:
                break
            left, right = _row_around(region, match.start(), bars)
            # The match in the piece may span several lines (``\s``): the line itself has to match.
            if left < len(region) and self._pattern.search(region[left:right].decode()):
                places.append((left, right))
            at = right + 1
        yield from reversed(places)

    def _find_with_context(self, path: str, fd: int) -> Iterator[JsonObject]:
        newer: list[str] = []
        waiting: list[
            JsonObject
        ] = []  # matches still missing context lines before them, which are read later
        inode = os.fstat(fd).st_ino
        for offset, raw in lines_backwards(fd, self.budget):
            text = raw.decode("utf-8", "replace")
            for match in waiting:
                match["before"].insert(0, cut_line(text, self._cut))
            while waiting and len(waiting[0]["before"]) >= self._context:
                yield waiting.pop(0)
            if self.matches < self._most and self._pattern.search(text):
                self.matches += 1
                found = dict(
                    file_tree.name_fields(os.fsencode(path)),
                    offset=offset,
                    inode=inode,
                    text=cut_line(text, self._cut),
                )
                waiting.append(dict(found, before=[], after=list(newer)))
                if not self._context:
                    yield waiting.pop()
            if self.matches >= self._most and not waiting:
                self.stopped = "%d matches" % self._most
                return
            newer = ([cut_line(text, self._cut)] + newer)[: self._context]
        yield from waiting

    def _add_problem(self, path: str, text: str) -> None:
        self.problems.append(dict(file_tree.name_fields(os.fsencode(path)), error=text))

    def summary_row(self) -> JsonObject:
        """Return the final summary row."""
        return {
            "end": True, "matches": self.matches, "files": self.files, "read": self.budget.read,
            "complete": self.stopped is None and not self.problems, "stopped": self.stopped,
            "problems": self.problems[:100],
        }  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    paths, found = file_tree.parse_words(argv, SPEC, HELP)
    if len(paths) < 2:
        return file_tree.print_usage_error("grep: PATTERN and PATH are required")
    try:
        if found["fixed"]:
            text = re.escape(paths[0])
        else:
            text = paths[0]
        pattern = re.compile(text, re.IGNORECASE if found["ignore-case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        return file_tree.print_usage_error(
            f"grep: {paths[0]!r} is not a regular expression: {error}"
        )
    seconds = found["timeout"] or 20.0
    wrong = [
        name
        for name in ("max", "limit-mib", "cut", "most-kib")
        if _value_or_default(found[name], 1) < 1
    ]
    if wrong or _value_or_default(found["context"], 0) < 0 or not 0 < seconds < 1e6:
        return file_tree.print_usage_error(
            "grep: --max, --limit-mib, --cut, --most-kib and --timeout must be above 0, --context "
            "not below 0"
        )
    if found["nice"]:
        os.nice(10)
    search = LogSearch(pattern, quick_search(paths[0], found["fixed"], found["ignore-case"]), found)
    signal.signal(signal.SIGALRM, _raise_timeout)
    # A regular expression can take exponential time, and only a signal ends a match.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        for path in list_files_to_search(paths[1:], search):
            for row in search.search_file(path):
                sys.stdout.buffer.write(jsonline.encode_line(row))
                if "progress" in row:
                    sys.stdout.buffer.flush()
            if search.stopped:
                break
    except TimeLimitReached:
        search.stopped = f"{seconds:g} seconds"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.buffer.write(jsonline.encode_line(search.summary_row()))
    if not search.files and not search.stopped:
        return file_tree.print_usage_error(f"grep: nothing to search in {' '.join(paths[1:])}")
    if search.matches:
        return 0
    return 1


def _value_or_default(value: int | None, default: int) -> int:
    if value is None:
        return default
    return value


def _raise_timeout(*_: object) -> None:
    raise TimeLimitReached


def list_files_to_search(paths: list[str], search: LogSearch) -> list[str]:
    """Return the files to search, in order; missing ones are added to `search.problems`."""
    chosen: list[str] = []
    for path in paths:
        if os.path.lexists(path):
            hits = [path]
        else:
            hits = sorted(glob.glob(os.path.expanduser(path)))
        if not hits:
            search.problems.append(
                dict(file_tree.name_fields(os.fsencode(path)), error="does not exist")
            )
        for hit in hits:
            chosen += _files_newest_first(hit) if os.path.isdir(hit) else [hit]
    if len(chosen) > MOST_FILES:
        search.stopped = "%d files" % MOST_FILES
    return list(dict.fromkeys(chosen))[:MOST_FILES]


def _files_newest_first(folder: str) -> list[str]:
    """Return the regular files of a tree, newest first."""
    found: list[tuple[int, str]] = []
    for entry in file_tree.walk_tree(folder):
        if entry.kind == file_tree.FILE and entry.stat is not None:
            path = os.path.join(folder, os.fsdecode(entry.path))
            found.append((-entry.stat.st_mtime_ns, path))
        # More than are searched, so that the newest are among them; a directory of millions still
        # ends.
        if len(found) > 10 * MOST_FILES:
            break
    return [path for _, path in sorted(found)]


def _row_around(region: bytes, at: int, bars: bool) -> tuple[int, int]:
    """Return (start, end) of the line that contains a byte."""
    left = region.rfind(b"\n", 0, at) + 1
    right = region.find(b"\n", at)
    if right < 0:
        right = len(region)
    if bars:
        left = max(left, region.rfind(b"\r", left, at) + 1)
        end = region.find(b"\r", at, right)
        if end >= 0:
            right = end
    return left, right


def _line_spans(region: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each line of a text."""
    left = 0
    for match in _END.finditer(region):
        yield left, match.start()
        left = match.end()
    if left < len(region):
        yield left, len(region)


def cut_line(text: str, most: int) -> str:
    """Return a line, cut to `most` characters."""
    if len(text) <= most:
        return text
    return text[:most] + CUT
