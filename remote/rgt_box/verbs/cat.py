"""The ``cat`` verb: the exact bytes of a file, from any byte on, for a reader whose connection may break."""

from __future__ import annotations

import os
import select
import sys

from rgt_box import files, jsonline, options
from rgt_box.streams.follows import expand
from rgt_box.verbs.exact import Cursor, ExactReader, NotThere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: cat --path PATH [--cursor C] [--lines N] [--until BYTE] [--follow]
       cat --list PATH [--list PATH ...]

Print the exact bytes of a file. "~" and globs are expanded; of several files the one written last is taken. Every
piece is announced by a JSON line of its own:
  {"t": "file", "path", "inode", "start", "size", "why"}   what follows is of this file, from byte "start" on; "why" is
                                null at first, else resumed, rotated, truncated, replaced or removed
  {"t": "data", "n": N}         N bytes come right behind this line
  {"t": "error", "text"}        it cannot be read (exit status 1)
  {"t": "end"}                  that was all (never with --follow)
--list prints {"path", "size", "mtime"} for each file that is there, the one written last first.

  --cursor C      INODE:OFFSET:LENGTH:SHA256: go on behind OFFSET; the hash is of the LENGTH (at most 1024) bytes
                  before it, and tells the same text from another
  --lines N       begin with the last N lines (ignored with --cursor)
  --until BYTE    stop there; default without --follow: at the present end
  --follow        go on with what is written, until stdin ends; wait for a file that is not there yet

Exit status: 0 printed, 1 no such file, 2 wrong command line.

Example: cat --path ~/jobs/sweep/logs/a.log --lines 100 --follow
"""
SPEC = {
    "--path": "str", "--list": "list", "--cursor": "str", "--lines": "int", "--until": "int", "--follow": "flag",
}  # fmt: skip
SHORTEST_MS, LONGEST_MS = 20, 500
"""Between two looks at a file that does not grow."""


class Gone(Exception):
    """The reader has left."""


def main(argv: list[str]) -> int:
    """Run the verb; returns its exit status."""
    given = options.parse_or_exit(argv, SPEC, HELP)
    if given["rest"] or bool(given["path"]) == bool(given["list"]):
        print("either --path or --list is needed (--help tells more)", file=sys.stderr)
        return 2
    try:
        cursor = Cursor.parse(given["cursor"]) if given["cursor"] else None
    except ValueError:
        print("--cursor is no INODE:OFFSET:LENGTH:SHA256", file=sys.stderr)
        return 2
    try:
        if given["list"]:
            return _list(given["list"])
        return _print(given, cursor)
    except (Gone, BrokenPipeError, ConnectionResetError):
        return 0


def _list(patterns: list[str]) -> int:
    for path, found in newest(patterns):
        _say({"path": path, "size": found.st_size, "mtime": round(found.st_mtime, 3)})
    return 0


def newest(patterns: list[str]) -> list[tuple[str, os.stat_result]]:
    """Return the files of these paths and globs, the one written last first."""
    found = {}
    for pattern in patterns:
        for path in [os.path.expanduser(pattern), *expand(pattern)]:
            try:
                if os.path.isfile(path):
                    found[path] = os.stat(path)
            except OSError:
                continue
    return sorted(found.items(), key=lambda item: (-item[1].st_mtime, item[0]))


def _print(given: dict[str, Any], cursor: Cursor | None) -> int:
    matches = newest([given["path"]])
    path = matches[0][0] if matches else os.path.expanduser(given["path"])
    reader = ExactReader(path)
    try:
        why = _begin(reader, cursor, given)
    except NotThere as problem:
        _say({"t": "error", "text": str(problem)})
        return 1
    _file(reader, why)
    if given["follow"]:
        _follow(reader)
    until = given["until"] if given["until"] is not None else reader.size
    while _data(reader.read(until)):
        pass
    _say({"t": "end"})
    return 0


def _begin(reader: ExactReader, cursor: Cursor | None, given: dict[str, Any]) -> str | None:
    wait = SHORTEST_MS
    while True:
        try:
            if cursor is not None:
                return reader.resume(cursor) or "resumed"
            reader.open()
            if given["lines"] is not None:
                reader.last_lines(given["lines"])
            return None
        except NotThere:
            if not given["follow"] or os.path.exists(reader.path):
                raise
            given = dict(given, lines=None)  # what appears only now has no history to cut short
            wait = _sleep(wait)


def _follow(reader: ExactReader) -> None:
    """Go on for ever.

    Raises:
        Gone: when the reader has left.
    """
    wait = SHORTEST_MS
    while True:
        if reader.restarted():
            _file(reader, "truncated")
        if _data(reader.read()):
            wait = SHORTEST_MS
            if _ended(0):
                raise Gone
            continue
        moved = reader.next_file()
        if moved == "removed":
            _await(reader)
        if moved is not None:
            _file(reader, moved)
            continue
        wait = _sleep(wait)


def _await(reader: ExactReader) -> None:
    wait = SHORTEST_MS
    while True:
        try:
            return reader.open()
        except NotThere:
            wait = _sleep(wait)


def _file(reader: ExactReader, why: str | None) -> None:
    _say(
        {
            "t": "file",
            "path": reader.path,
            "inode": reader.inode,
            "start": reader.offset,
            "size": reader.size,
            "why": why,
        }
    )


def _data(data: bytes) -> bool:
    if data:
        files.write_all(1, jsonline.line({"t": "data", "n": len(data)}) + data)
    return bool(data)


def _say(record: dict[str, Any]) -> None:
    files.write_all(1, jsonline.line(record))


def _sleep(wait: int) -> int:
    if _ended(wait):
        raise Gone
    return min(LONGEST_MS, 2 * wait)


def _ended(milliseconds: int) -> bool:
    """Wait that long at most; True when standard input has ended, which it does with the connection."""
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    return bool(poller.poll(milliseconds)) and not os.read(0, 4096)
