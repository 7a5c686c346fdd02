"""The ``grep`` verb: a bounded search in logs, newest lines first."""

from __future__ import annotations

import glob
import os
import re
import signal
import sys

from rgt_box import files, jsonline
from rgt_box.background import describe
from rgt_box.commands import file_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

BLOCK = 256 << 10
LONGEST = 1 << 20
"""Bytes without a line end after which a line is broken in two."""

_END = re.compile(rb"\r\n|\n|\r")


class Budget:
    """How many bytes may still be read."""

    def __init__(self, left: int) -> None:
        self.left, self.read, self.cut = left, 0, False


def lines_backwards(fd: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, line without its end), the last line first.

    A progress bar rewrites its line with ``\r``: each of its states counts as a line.

    Args:
        fd: A regular file.
        budget: Bytes that may be read; `Budget.cut` says afterwards that it ended before the file did.
    """
    end = os.fstat(fd).st_size
    held = b""  # the beginning of what follows `end`: its first line may go on further up
    last = True
    while end > 0:
        size = min(BLOCK, end, budget.left)
        if size <= 0:
            budget.cut = True
            return
        block = os.pread(fd, size, end - size)
        if not block:
            return
        # A file that was cut meanwhile gives less; what is left is then read as its end.
        end = end - size
        budget.left -= len(block)
        budget.read += len(block)
        data = block + held
        spans = [match.span() for match in _END.finditer(data)]
        if spans and spans[0][0] == 0 and end > 0 and data[:1] == b"\n":
            spans = spans[1:]  # its "\r" may be the last byte of the block before: look again with it
        stop = len(data)
        for left, right in reversed(spans):
            if not (last and right == len(data)):
                yield end + right, data[right:stop]
            last = False
            stop = left
        held = data[:stop]
        if len(held) > LONGEST:
            yield end, held
            held, last = b"", True
    if held or not last:
        yield 0, held


HELP = """
usage: grep PATTERN PATH... [--max N] [--context N] [--ignore-case] [--limit-mib N] [--timeout S]

Search logs from their end: the newest lines come first. PATTERN is a regular expression of Python, PATH a file, a
glob, or a directory (all files below it, the newest file first). Prints one JSON line for each match,
{"path", "offset", "text", "before", "after"}, and at the end {"end": true, "matches", "files", "read", "complete",
"stopped", "problems"}. "offset" is the byte in the file; "complete" is false when something was not searched, and
"stopped" says why. Lines of more than 16 KiB are shown cut.

  --max N         stop after N matches (default 100)
  --context N     lines before and after each match (default 0, at most 50)
  --ignore-case   upper and lower case are the same
  --limit-mib N   read at most N MiB of all files together (default 256)
  --timeout S     stop after S seconds (default 20): some patterns take for ever

Exit status: 0 something matched, 1 nothing did, 2 wrong command line, a pattern that is none, or nothing to search.

Example: grep 'CUDA out of memory|Traceback' ~/jobs/sweep/logs --context 3 --max 20
"""
SPEC = {
    "--max": "int", "--context": "int", "--ignore-case": "flag", "--limit-mib": "int", "--timeout": "float",
}  # fmt: skip
WIDEST = 16 << 10
MOST_FILES = 10000


class Slow(Exception):
    """The time is up."""


class Search:
    """One search over many files.

    Args:
        pattern: What to look for.
        most: Matches after which to stop.
        context: Lines to show around each.
        limit: Bytes that may be read.
    """

    def __init__(self, pattern: re.Pattern[str], most: int, context: int, limit: int) -> None:
        self._pattern, self._most, self._context = pattern, most, context
        self.budget = Budget(limit)
        self.matches = self.files = 0
        self.stopped: str | None = None
        self.problems: list[dict[str, Any]] = []

    def file(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the matches of one file, newest first."""
        try:
            fd = files.open_regular(path)
        except OSError as error:
            self._problem(path, describe(error))
            return
        try:
            self.files += 1
            yield from self._lines(path, fd)
        except OSError as error:
            self._problem(path, describe(error))
        finally:
            os.close(fd)

    def _lines(self, path: str, fd: int) -> Iterator[dict[str, Any]]:
        newer: list[str] = []
        waiting: list[dict[str, Any]] = []  # matches that lack lines before them, which are read after them
        for offset, raw in lines_backwards(fd, self.budget):
            text = raw.decode("utf-8", "replace")
            for match in waiting:
                match["before"].insert(0, shown(text))
            while waiting and len(waiting[0]["before"]) >= self._context:
                yield waiting.pop(0)
            if self.matches < self._most and self._pattern.search(text):
                self.matches += 1
                found = dict(file_tree.named(os.fsencode(path)), offset=offset, text=shown(text))
                waiting.append(dict(found, before=[], after=list(newer)))
                if not self._context:
                    yield waiting.pop()
            if self.matches >= self._most and not waiting:
                self.stopped = "%d matches" % self._most
                return
            newer = ([shown(text)] + newer)[: self._context]
        yield from waiting
        if self.budget.cut:
            self.stopped = "%d bytes read" % self.budget.read

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(dict(file_tree.named(os.fsencode(path)), error=text))

    def row(self) -> dict[str, Any]:
        """Return the last line."""
        return {
            "end": True, "matches": self.matches, "files": self.files, "read": self.budget.read,
            "complete": self.stopped is None and not self.problems, "stopped": self.stopped,
            "problems": self.problems[:100],
        }  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    paths, found = file_tree.parse_words(argv, SPEC, HELP)
    if len(paths) < 2:
        return file_tree.refuse("grep: give PATTERN and PATH")
    try:
        pattern = re.compile(paths[0], re.IGNORECASE if found["ignore-case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        return file_tree.refuse("grep: %r is not a regular expression: %s" % (paths[0], error))
    most, context = _given(found["max"], 100), min(50, _given(found["context"], 0))
    limit, seconds = _given(found["limit-mib"], 256), found["timeout"] or 20.0
    if most < 1 or context < 0 or limit < 1 or not 0 < seconds < 1e6:
        return file_tree.refuse(
            "grep: --max, --limit-mib and --timeout must be above 0, --context not below 0"
        )
    search = Search(pattern, most, context, limit << 20)
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        for path in expand(paths[1:], search):
            for row in search.file(path):
                sys.stdout.buffer.write(jsonline.line(row))
            if search.stopped:
                break
    except Slow:
        search.stopped = "%g seconds" % seconds
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.buffer.write(jsonline.line(search.row()))
    if not search.files and not search.stopped:
        return file_tree.refuse("grep: nothing to search in %s" % " ".join(paths[1:]))
    return 0 if search.matches else 1


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _ring(*_: object) -> None:
    raise Slow


def expand(paths: list[str], search: Search) -> list[str]:
    """Return the files to search, in order; what cannot be found is noted in `search`."""
    chosen: list[str] = []
    for path in paths:
        hits = [path] if os.path.lexists(path) else sorted(glob.glob(os.path.expanduser(path)))
        if not hits:
            search.problems.append(dict(file_tree.named(os.fsencode(path)), error="does not exist"))
        for hit in hits:
            chosen += _below(hit) if os.path.isdir(hit) else [hit]
    if len(chosen) > MOST_FILES:
        search.stopped = "%d files" % MOST_FILES
    return list(dict.fromkeys(chosen))[:MOST_FILES]


def _below(folder: str) -> list[str]:
    """Return the regular files of a tree, the newest first."""
    found: list[tuple[int, str]] = []
    for entry in file_tree.walk(folder):
        if entry.kind == file_tree.FILE and entry.stat is not None:
            found.append((-entry.stat.st_mtime_ns, os.path.join(folder, os.fsdecode(entry.path))))
        if len(found) > 10 * MOST_FILES:
            break
    return [path for _, path in sorted(found)]


def shown(text: str) -> str:
    """Return a line as it is shown."""
    return text if len(text) <= WIDEST else text[:WIDEST] + " … [line cut]"
