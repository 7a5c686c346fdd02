"""The ``cat`` verb: prints exact bytes of a file from any offset, so a reader can reconnect."""

from __future__ import annotations

import hashlib
import os
import select
import sys

from rgt_box import files, jsonline, options
from rgt_box.streams.follows import expand_glob
from rgt_box.streams.log_follower import list_rotated_files, successor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

BLOCK = 256 << 10
COUNTED = 1 << 20
"""Bytes in which lines are counted at a time."""
KEPT = 1024
"""Bytes before a cursor whose hash shows that the file still has the same text."""


class UnreadableFileError(Exception):
    """The file cannot be read; the message says why."""


class FileCursor:
    """A reader's position, and a hash of the bytes right before it.

    Args:
        inode: Inode of the file.
        offset: Offset after the last byte that was read.
        length: Number of bytes before `offset` that `digest` covers.
        digest: Their SHA-256 in hexadecimal.
    """

    def __init__(self, inode: int, offset: int, length: int, digest: str) -> None:
        self.inode = inode
        self.offset = offset
        self.length = length
        self.digest = digest

    @classmethod
    def parse(cls, text: str) -> FileCursor:
        """Parse ``INODE:OFFSET:LENGTH:DIGEST``.

        Raises:
            ValueError: when the text is not a valid cursor.
        """
        inode, offset, length, digest = text.split(":")
        cursor = cls(int(inode), int(offset), int(length), digest)
        # A cursor comes from the client: unchecked, its length would decide how much is read.
        if cursor.offset < 0 or not 0 <= cursor.length <= min(KEPT, cursor.offset):
            raise ValueError(text)
        return cursor

    def matches_file(self, fd: int) -> bool:
        """Return whether an open file has the same text before the cursor."""
        if os.fstat(fd).st_size < self.offset:
            return False
        if self.length:
            before = os.pread(fd, self.length, self.offset - self.length)
        else:
            before = b""
        return hashlib.sha256(before).hexdigest() == self.digest


class ExactReader:
    """Reads the file at one path, from any offset, across rotation.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.inode = self.offset = self.size = 0
        self._fd = -1
        self._tail = b""
        self._seen = (0, 0)

    def open(self) -> None:
        """Open the file at the path, at its first byte.

        Raises:
            UnreadableFileError: when it does not exist or cannot be read.
        """
        try:
            self._use_file(files.open_regular(self.path))
        except OSError as error:
            raise UnreadableFileError(f"{self.path}: {error.strerror}") from error

    def resume_after(self, cursor: FileCursor) -> str | None:
        """Resume after a cursor, in the file at the path or in the one it was moved or copied to.

        Returns:
            None, or why the text after the cursor is gone: ``truncated`` or ``replaced``. The file
                at the path is then read from its first byte.

        Raises:
            UnreadableFileError: when there is no file to read.
        """
        try:
            self.open()
        except UnreadableFileError:
            if not self._open_moved_file(cursor):
                raise
            return None
        # Both: an inode is used again for the next file, and copytruncate keeps it with new text.
        if self.inode == cursor.inode and cursor.matches_file(self._fd):
            self._seek_to(cursor)
            return None
        inode = self.inode
        if self._open_moved_file(cursor):
            return None
        if inode == cursor.inode:
            return "truncated"
        return "replaced"

    def last_lines(self, count: int) -> None:
        """Seek to the start of the last `count` lines; an unfinished line counts."""
        self.size = os.fstat(self._fd).st_size
        self.offset = last_lines(self._fd, self.size, count)

    def nth_line(self, number: int) -> None:
        """Seek to the start of a line, counted from 1; to the end if there are fewer lines."""
        left = number - 1
        at = 0
        while left > 0:
            data = os.pread(self._fd, COUNTED, at)
            if not data:
                break
            # Counting a whole block is far cheaper than finding each of its line ends.
            found = data.count(b"\n")
            if found < left:
                left -= found
                at += len(data)
                continue
            place = -1
            for _ in range(left):
                place = data.index(b"\n", place + 1)
            at = at + place + 1
            left = 0
        self.size = os.fstat(self._fd).st_size
        self.offset = at

    def count_lines(self, until: int) -> int:
        """Return how many lines end before a byte."""
        found = at = 0
        while at < until:
            data = os.pread(self._fd, min(COUNTED, until - at), at)
            if not data:
                break
            found += data.count(b"\n")
            at += len(data)
        return found

    def read(self, limit: int | None = None) -> bytes:
        """Return the next bytes, up to the file offset `limit`; empty if no more exist yet."""
        if limit is None:
            end = os.fstat(self._fd).st_size
        else:
            end = min(limit, os.fstat(self._fd).st_size)
        data = os.pread(self._fd, min(BLOCK, max(0, end - self.offset)), self.offset)
        self.offset += len(data)
        # Kept to notice a rewrite that leaves the file at least as long as before.
        self._tail = (self._tail + data)[-KEPT:]
        return data

    def restarted(self) -> bool:
        """Return whether the file was truncated or rewritten; if so, restart from offset 0."""
        found = os.fstat(self._fd)
        seen = self._seen
        self._seen = (found.st_size, found.st_mtime_ns)
        self.size = found.st_size
        length = len(self._tail)
        # Size and mtime first: comparing the text costs a read at each poll.
        if self.size >= self.offset and (
            seen == self._seen or os.pread(self._fd, length, self.offset - length) == self._tail
        ):
            return False
        self.offset = 0
        self._tail = b""
        return True

    def next_file(self) -> str | None:
        """Switch to the next file after rotation, once this one was read to its end.

        Returns:
            ``rotated`` if another file is open now, ``removed`` if no new file exists yet, or None.
        """
        mine = os.fstat(self._fd)
        if mine.st_size > self.offset:
            return None
        try:
            named = os.stat(self.path)
        except OSError:
            if mine.st_nlink > 0:
                return None  # renamed; the writer may continue with it until a new file exists
            self.close()
            return "removed"
        if named.st_ino == mine.st_ino and named.st_dev == mine.st_dev:
            return None
        # A rotation creates the new file first: until it has text, the writer may still use the old
        # one.
        if named.st_size == 0 and mine.st_nlink > 0:
            return None
        # Several rotations may have passed since the last poll: nothing between them is skipped.
        between = successor(self.path, mine)
        try:
            if between is not None:
                following = between
            else:
                following = files.open_regular(self.path)
        except OSError:
            return None
        self._use_file(following)
        return "rotated"

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _use_file(self, fd: int) -> None:
        self.close()
        found = os.fstat(fd)
        self._fd = fd
        self.inode = found.st_ino
        self.size = found.st_size
        self.offset = 0
        self._tail = b""

    def _seek_to(self, cursor: FileCursor) -> None:
        self.offset = cursor.offset
        self._tail = os.pread(self._fd, cursor.length, cursor.offset - cursor.length)

    def _open_moved_file(self, cursor: FileCursor) -> bool:
        """Find the cursor's text among the rotated files, by inode first, then by content."""
        found = list(list_rotated_files(self.path))
        # Minimum hashed bytes that distinguish a copy of the text from another file.
        enough = 16
        # By content only after every inode was compared: the copy and the original have the same
        # text.
        for sure in (True, False):
            for candidate, status in found:
                if (status.st_ino == cursor.inode) is not sure or not (
                    sure or cursor.length >= enough
                ):
                    continue
                try:
                    fd = files.open_regular(candidate)
                except OSError:
                    continue
                if cursor.matches_file(fd):
                    self._use_file(fd)
                    self._seek_to(cursor)
                    return True
                os.close(fd)
        return False


def last_lines(fd: int, size: int, count: int) -> int:
    """Return the offset at which the last `count` lines of a file of `size` bytes begin."""
    if count <= 0:
        return size
    end = size
    left = count
    for block, data in _backwards(fd, size):
        stop = len(data)
        if block + stop == size and data[-1:] == b"\n":
            stop -= 1  # this line end closes the last line
        while True:
            stop = data.rfind(b"\n", 0, stop)
            if stop < 0:
                break
            left -= 1
            end = block + stop + 1
            if left == 0:
                return end
    return 0


def _backwards(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    end = size
    while end > 0:
        start = max(0, end - BLOCK)
        data = os.pread(fd, end - start, start)
        if not data:
            return
        yield start, data
        end = start


HELP = """
usage: cat --path PATH [--cursor C] [--lines N | --line N] [--until BYTE] [--follow]
       cat --path PATH --count --until BYTE [--cursor C]
       cat --list PATH [--list PATH ...]

Print the exact bytes of a file. "~" and globs are expanded; of several files the most recently written one is
printed. Each piece follows a JSON line of its own:
  {"t": "file", "path", "inode", "start", "size", "why"}   what follows is from this file, from byte "start" on; "why"
                                is null at first, else resumed, rotated, truncated, replaced or removed
  {"t": "data", "n": N}         N bytes follow this line
  {"t": "error", "text"}        it cannot be read (exit status 1)
  {"t": "end"}                  end of output (never with --follow)
--list prints {"path", "size", "mtime"} for each file that exists, the most recently written one first.

  --cursor C      INODE:OFFSET:LENGTH:SHA256: resume at OFFSET; the hash is of the LENGTH (at most 1024) bytes
                  before it, and shows whether the file is still the same
  --lines N       begin with the last N lines (ignored with --cursor)
  --line N        begin with the N-th line, counted from 1; nothing is printed past the last one
  --count         print {"t": "count", "lines"} instead: how many lines end before --until
  --until BYTE    stop there; default without --follow: the current end
  --follow        keep printing what is written, until stdin ends; wait for a file that does not exist yet

Exit status: 0 printed, 1 no such file, 2 wrong command line.

Example: cat --path ~/jobs/sweep/logs/a.log --lines 100 --follow
"""
SPEC = {
    "--path": "str", "--list": "list", "--cursor": "str", "--lines": "int", "--until": "int",
    "--follow": "flag",
    "--line": "int", "--count": "flag",
}  # fmt: skip
SHORTEST_MS, LONGEST_MS = 20, 500
"""Poll intervals (ms) for a file that does not grow: doubles from the first to the second."""


class ReaderDisconnected(Exception):
    """The reader has disconnected."""


def main(argv: list[str]) -> int:
    """Run the verb; returns its exit status."""
    given = options.parse_or_exit(argv, SPEC, HELP)
    if given["rest"] or bool(given["path"]) == bool(given["list"]):
        print("either --path or --list is needed (see --help)", file=sys.stderr)
        return 2
    try:
        if given["cursor"]:
            cursor = FileCursor.parse(given["cursor"])
        else:
            cursor = None
    except ValueError:
        print("--cursor must be INODE:OFFSET:LENGTH:SHA256", file=sys.stderr)
        return 2
    try:
        if given["list"]:
            return _print_matches(given["list"])
        return _print_file(given, cursor)
    except (ReaderDisconnected, BrokenPipeError, ConnectionResetError):
        return 0


def _print_matches(patterns: list[str]) -> int:
    for path, found in list_newest_first(patterns):
        _print_frame({"path": path, "size": found.st_size, "mtime": round(found.st_mtime, 3)})
    return 0


def list_newest_first(patterns: list[str]) -> list[tuple[str, os.stat_result]]:
    """Return the files of these paths and globs, the one written last first."""
    found = {}
    for pattern in patterns:
        for path in [os.path.expanduser(pattern), *expand_glob(pattern)]:
            try:
                if os.path.isfile(path):
                    found[path] = os.stat(path)
            except OSError:
                continue
    return sorted(found.items(), key=lambda item: (-item[1].st_mtime, item[0]))


def _print_file(given: JsonObject, cursor: FileCursor | None) -> int:
    matches = list_newest_first([given["path"]])
    if matches:
        path = matches[0][0]
    else:
        path = os.path.expanduser(given["path"])
    reader = ExactReader(path)
    try:
        why = _open_at_start(reader, cursor, given)
    except UnreadableFileError as problem:
        _print_frame({"t": "error", "text": str(problem)})
        return 1
    _print_file_frame(reader, why)
    if given["count"]:
        _print_frame({"t": "count", "lines": reader.count_lines(given["until"] or 0)})
        return 0
    if given["follow"]:
        _print_new_data(reader)
    if given["until"] is not None:
        until = given["until"]
    else:
        until = reader.size
    while _print_data_frame(reader.read(until)):
        pass
    _print_frame({"t": "end"})
    return 0


def _open_at_start(reader: ExactReader, cursor: FileCursor | None, given: JsonObject) -> str | None:
    wait = SHORTEST_MS
    while True:
        try:
            if cursor is not None:
                return reader.resume_after(cursor) or "resumed"
            reader.open()
            if given["line"] is not None:
                reader.nth_line(given["line"])
            elif given["lines"] is not None:
                reader.last_lines(given["lines"])
            return None
        except UnreadableFileError:
            if not given["follow"] or os.path.exists(reader.path):
                raise
            given = dict(given, lines=None)  # a file that appears now has no history to cut
            wait = _wait_longer(wait)


def _print_new_data(reader: ExactReader) -> None:
    """Print new data until the reader disconnects.

    Raises:
        ReaderDisconnected: when the reader has disconnected.
    """
    wait = SHORTEST_MS
    while True:
        if reader.restarted():
            _print_file_frame(reader, "truncated")
        if _print_data_frame(reader.read()):
            wait = SHORTEST_MS
            if _is_stdin_closed(0):
                raise ReaderDisconnected
            continue
        moved = reader.next_file()
        if moved == "removed":
            _wait_for_file(reader)
        if moved is not None:
            _print_file_frame(reader, moved)
            continue
        wait = _wait_longer(wait)


def _wait_for_file(reader: ExactReader) -> None:
    wait = SHORTEST_MS
    while True:
        try:
            return reader.open()
        except UnreadableFileError:
            wait = _wait_longer(wait)


def _print_file_frame(reader: ExactReader, why: str | None) -> None:
    _print_frame(
        {
            "t": "file",
            "path": reader.path,
            "inode": reader.inode,
            "start": reader.offset,
            "size": reader.size,
            "why": why,
        }
    )


def _print_data_frame(data: bytes) -> bool:
    if data:
        files.write_all(1, jsonline.encode_line({"t": "data", "n": len(data)}) + data)
    return bool(data)


def _print_frame(record: JsonObject) -> None:
    files.write_all(1, jsonline.encode_line(record))


def _wait_longer(wait: int) -> int:
    if _is_stdin_closed(wait):
        raise ReaderDisconnected
    return min(LONGEST_MS, 2 * wait)


def _is_stdin_closed(milliseconds: int) -> bool:
    """Wait up to `milliseconds`; returns True if stdin was closed, as when the connection ends."""
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    # An empty read is the end of the connection; anything else is ignored.
    return bool(poller.poll(milliseconds)) and not os.read(0, 4096)
