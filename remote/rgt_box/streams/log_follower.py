"""Follow a log through rotation and renames, resumable at any byte.

A renamed file is read to its end under its new name, then its successor.
"""

from __future__ import annotations

import os
import re
import time

from rgt_wire import CUT, MAX_LINE
from rgt_wire import line_text as clean

from rgt_box import files

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

_SUFFIX = re.compile(r"[.\-_](?:\d{1,9}|\d{4}-?\d\d-?\d\d[-_T.:\d]*)$")
"""``.1``, ``-20261121``, ``.2026-11-21_10``: suffixes of rotated files, but not of copies or
compressed files.
"""


def list_rotated_files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files whose names start with that of `path`."""
    folder, base = os.path.split(path)
    try:
        names = [
            name for name in os.listdir(folder or ".") if name.startswith(base) and name != base
        ]
    except OSError:
        return
    most_siblings = 64
    # The newest by name: rotation numbers or dates them.
    for name in sorted(names)[-most_siblings:]:
        candidate = os.path.join(folder, name)
        try:
            yield candidate, os.stat(candidate)
        except OSError:
            continue


def find_rotated(path: str, cursor: tuple[int, int]) -> int | None:
    """Open the file that `path` was renamed to while not followed (``train.log.1``), by inode."""
    for candidate, stat in list_rotated_files(path):
        # A smaller file with that inode is another one: the number was reused.
        if stat.st_ino == cursor[0] and stat.st_size >= cursor[1]:
            try:
                return files.open_regular(candidate)
            except OSError:
                return None
    return None


def successor(path: str, left: os.stat_result) -> int | None:
    """Open the next rotated file after the one that was read to its end, or None.

    Args:
        path: The followed path.
        left: The file that was read to its end.
    """
    try:
        current = os.stat(path).st_ino
    except OSError:
        current = 0
    later = [
        (stat.st_mtime_ns, candidate)
        for candidate, stat in list_rotated_files(path)
        # The current file is followed anyway, after all older ones.
        if stat.st_ino not in (left.st_ino, current)
        and stat.st_mtime_ns > left.st_mtime_ns
        # Not train.log.bak or train.log.gz: those are copies.
        and _SUFFIX.search(candidate[len(path) :])
    ]
    for _, candidate in sorted(later):
        try:
            return files.open_regular(candidate)
        except OSError:
            continue
    return None


def clean_lines(raw: bytes) -> list[str]:
    """Return cleaned lines from text without a final newline; fast if none needs `clean`."""
    if b"\r" not in raw:
        rows = raw.decode("utf-8", "replace").split("\n")
        # Maximum bytes of a UTF-8 character.
        most_bytes = 4
        if len(max(rows, key=len)) * most_bytes <= MAX_LINE:
            return rows
    return [clean(row) for row in raw.split(b"\n")]


class LineSplitter:
    """Splits a byte stream into complete lines, with bounded memory for lines of any length.

    Attributes:
        done: Bytes fed so far that belong to complete lines.
    """

    def __init__(self) -> None:
        self._head = b""
        self._held = 0
        self.done = 0

    @property
    def partial_line(self) -> str:
        """The unfinished line as it would be shown now, or ""."""
        head = ""
        if self._head:
            head = clean(self._head)
        # Maximum characters shown of an unfinished line, which is sent repeatedly while it grows.
        max_partial = 1024
        if len(head) <= max_partial:
            return head
        return head[:max_partial] + CUT

    def finish_line(self) -> str:
        """Return the unfinished line as a complete one, because nothing will follow it."""
        line = clean(self._head)
        self.done += self._held
        self._head = b""
        self._held = 0
        return line

    @property
    def unfinished_bytes(self) -> int:
        """Size of the unfinished line in bytes."""
        return self._held

    def feed(self, data: bytes) -> list[str]:
        """Add the next bytes; return the lines that became complete."""
        # From the end: everything before it is complete lines.
        end = data.rfind(b"\n")
        if end < 0:
            self._keep_unfinished(data)
            return []
        rows = clean_lines(self._head + data[:end])
        self.done += self._held + end + 1
        self._head = b""
        self._held = 0
        self._keep_unfinished(data[end + 1 :])
        return rows

    def _keep_unfinished(self, data: bytes) -> None:
        """Keep only the visible part of an unfinished line: the start of its last rewrite."""
        self._held += len(data)
        # A progress bar rewrites its line for hours; only the newest version is kept.
        head = self._head + data
        cut = head.rstrip(b"\r").rfind(b"\r")
        if cut >= 0:
            head = head[cut + 1 :]
        # Twice: cutting at each read would copy the line again and again.
        if len(head) > 2 * MAX_LINE:
            ends_with_return = head.endswith(b"\r")
            head = head[: MAX_LINE + 1] + (b"\r" if ends_with_return else b"")
        self._head = head


READ = 256 << 10
"""Maximum bytes read and sent at a time."""
SURE = 144 << 10
"""Bytes of any content that fit into a frame of 1 MiB."""
PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
"""Bytes that are sent unchanged."""

BACKLOG = 4 << 20
"""A reader that lags by more than this skips to the newest lines, and gets the number of missed
lines.
"""


SWIFT = 64 << 10
"""Bytes since the last poll from which on the log is polled again at once: more has probably come
meanwhile.
"""

SCAN = 64 << 20
"""Bytes counted at a time while skipping, so that one huge file does not delay the others."""

MAX_TAIL = 4 << 20

PARTIAL_AFTER = 1.0
"""Seconds that a line must stay unfinished before it is shown as such, and between two updates of
it.
"""


def cut_to_frame(data: bytes) -> bytes:
    """Return the part of `data` that surely fits into a frame, considering JSON escapes."""
    if len(data) <= SURE:
        return data
    # Maximum bytes for one byte in a frame: an escaped control character.
    widest = 6
    # translate removes all plain bytes in C; the rest may grow.
    most = len(data) + (widest - 1) * len(data.translate(None, PLAIN))
    if most <= widest * SURE:
        return data
    return data[:SURE]


class LogFollower:
    """One followed path.

    Args:
        path: The file; it need not exist yet.
        cursor: ``(inode, offset)`` up to which the client has everything; None to start at the last
            `tail` lines.
        tail: Lines of history for a file without a cursor.
        shown: Its name in frames, if that is not `path`.
    """

    def __init__(
        self, path: str, cursor: tuple[int, int] | None, tail: int, shown: str | None = None
    ) -> None:
        self.path = path
        self._shown = path if shown is None else shown
        self._tail = max(0, tail)
        self._cursor = cursor
        self._fd = -1
        self._inode = 0
        self._base = 0
        """File offset at which the splitter began."""
        self._read = 0
        self._splitter = LineSplitter()
        self._reset = False
        self._skipping_to = 0
        self._skipped = 0
        self._missing_before = False
        self._partial = ""
        """The unfinished line as the client shows it."""
        self._changed = 0.0
        self._tells_empty = False
        """The file is new to the client and may stay without a line for hours, so an empty frame
        reports that it is followed.
        """
        self._size = 0
        """Size of the file at the last poll."""
        self._told_age = True
        """False until the age of a newly opened file's end was reported."""
        self._ended = False
        """True once the last line of a file that is being left has been sent."""

    def poll_frame(self) -> JsonObject | None:
        """Return the next ``log`` frame, or None if there is nothing new.

        A frame has at most about `READ` bytes of lines; call again until None to catch up.
        """
        if self._fd < 0 and not self._open_path():
            return None
        try:
            status = os.fstat(self._fd)
            size = status.st_size
            if self._ended:
                return self._switch_file()
            # Truncated, or written again in place: the old offset means nothing.
            if size < self._read or not self._continues():
                self._start_at(0, reset=True)
            frame = self._read_frame(size)
            # Only after everything was read: a renamed file may still get lines.
            if frame is None and not self._skipping_to and self._is_rotated():
                frame = self._read_frame(
                    os.fstat(self._fd).st_size
                )  # lines from before the new file began
                if frame is None and self._read >= os.fstat(self._fd).st_size:
                    return self._switch_file()
            if frame is not None and not self._told_age and self._read >= size:
                self._told_age = True
                frame["age"] = max(0.0, round(time.time() - status.st_mtime, 1))
            return frame or self._unfinished() or self._empty_file_frame(size)
        except OSError:  # a stale handle or a vanished mount: reopen at the next poll
            self._cursor = (self._inode, self._base + self._splitter.done)
            self._close_file()
            return None

    def _switch_file(self) -> JsonObject | None:
        """Switch to the current file at the path.

        The old one's last line counts without a newline.
        """
        # The end of that line will never be written.
        if self._splitter.unfinished_bytes:
            before = self._base + self._splitter.done
            self._ended = True
            return self._build_frame(before, [self._splitter.finish_line()])
        # Between the two there may have been further rotations: read those files as well.
        following = successor(self.path, os.fstat(self._fd))
        self._close_file()
        self._reset = True
        self._ended = False
        if following is not None:
            self._fd, self._inode = following, os.fstat(following).st_ino
            self._start_at(0, reset=True)
            return self.poll_frame()
        if os.path.exists(self.path):
            return self.poll_frame()
        return None

    def _empty_file_frame(self, size: int) -> JsonObject | None:
        """Return one frame without lines for a file that is still empty."""
        if not self._tells_empty:
            return None
        self._tells_empty = False
        if size == 0:
            return self._build_frame(0, [])
        return None

    def _unfinished(self) -> JsonObject | None:
        """Return a frame for a line that stays unfinished, such as a progress bar."""
        text = self._splitter.partial_line
        now = time.monotonic()
        if (
            not text
            or text == self._partial
            or now - self._changed < PARTIAL_AFTER
            or self._skipping_to
        ):
            return None
        frame = self._build_frame(self._base + self._splitter.done, [])
        self._partial = frame["partial"] = text
        return frame

    def _open_path(self) -> bool:
        path = self.path
        cursor = self._cursor
        fresh = not self._reset and not self._missing_before
        try:
            fd = files.open_regular(path)
        except OSError:
            # A file that appears after following began has no history to cut.
            self._missing_before = True
            return False
        status = os.fstat(fd)
        if cursor is not None and status.st_ino != cursor[0]:
            # The file was renamed while it was not followed: its end comes first.
            rotated = find_rotated(path, cursor)
            if rotated is not None:
                os.close(fd)
                fd = rotated
                status = os.fstat(rotated)
        self._fd = fd
        self._inode = status.st_ino
        self._cursor = None
        self._told_age = False
        self._tells_empty = cursor is None and not self._reset
        if cursor is not None:
            if cursor[0] == status.st_ino and cursor[1] <= status.st_size:
                self._start_at(cursor[1], reset=self._reset)
                if not self._continues():
                    if cursor[1] == status.st_size and self._is_rotated():
                        self._ended = True  # it was left with a last line without a newline
                    else:
                        self._start_at(0, reset=True)
            else:
                self._start_at(0, reset=True)
        elif fresh:
            self._start_at(tail_offset(fd, status.st_size, self._tail), reset=False)
        else:
            self._start_at(0, reset=self._reset)
        return True

    def _start_at(self, offset: int, reset: bool) -> None:
        self._base = self._read = offset
        self._splitter = LineSplitter()
        self._reset = reset
        self._skipping_to = self._skipped = 0
        self._changed = time.monotonic()

    def _continues(self) -> bool:
        """Return whether the byte before our lines still ends a line.

        Rarely true after a rewrite in place.
        """
        position = self._base + self._splitter.done
        return position == 0 or os.pread(self._fd, 1, position - 1) == b"\n"

    def _read_frame(self, size: int) -> JsonObject | None:
        if not self._skipping_to and size - self._read > BACKLOG:
            # The unfinished line is counted, too, when its newline is skipped.
            self._base = self._read = self._base + self._splitter.done
            # Number of `READ` blocks left to read after a skip: a log is compressed to a tenth of
            # that for sending.
            newest = 4
            self._splitter = LineSplitter()
            self._skipping_to = size - newest * READ
        if self._skipping_to:
            self._skip_lines()
            if self._skipping_to:
                return None
        before = self._base + self._splitter.done
        self._size = size
        while self._read < size:
            # pread: the offset is ours, so an error leaves nothing half done.
            data = cut_to_frame(os.pread(self._fd, READ, self._read))
            if not data:
                break
            self._read += len(data)
            lines = self._splitter.feed(data)
            if lines:
                return self._build_frame(before, lines)
        return None

    def _skip_lines(self) -> None:
        """Count the lines up to the line start at or after the target, `SCAN` bytes at a time."""
        stop = min(self._skipping_to, self._read + SCAN)
        while self._read < stop:
            data = os.pread(self._fd, min(1 << 20, stop - self._read), self._read)
            if not data:
                break
            self._skipped += data.count(b"\n")
            self._read += len(data)
        if self._read >= self._skipping_to:
            self._read += self._to_line_start()
            self._base, self._splitter, self._skipping_to = self._read, LineSplitter(), 0

    def _to_line_start(self) -> int:
        """Return the number of bytes to the next line's start.

        The line before it counts as skipped.
        """
        if self._read == 0 or os.pread(self._fd, 1, self._read - 1) == b"\n":
            return 0
        ahead = 0
        while True:
            data = os.pread(self._fd, 65536, self._read + ahead)
            if not data:
                return ahead
            end = data.find(b"\n")
            if end >= 0:
                self._skipped += 1
                return ahead + end + 1
            ahead += len(data)

    def _build_frame(self, start: int, lines: list[str]) -> JsonObject:
        frame: JsonObject = {
            "t": "log",
            "path": self._shown,
            "inode": self._inode,
            "start": start,
            "end": self._base + self._splitter.done,
            "lines": lines,
        }
        if self._skipped:
            frame["skipped"] = self._skipped
        if self._reset:
            frame["reset"] = True
        if self._partial and self._splitter.partial_line:
            frame["partial"] = self._splitter.partial_line  # updates the client's line
        self._partial = frame.get("partial", "")
        self._skipped, self._reset, self._changed = 0, False, time.monotonic()
        return frame

    def _is_rotated(self) -> bool:
        """Return whether the path no longer refers to our file.

        After a mere rename the writer may continue to write to it until something appears in a new
        file.
        """
        mine = os.fstat(self._fd)
        try:
            named = os.stat(self.path)
        except OSError:
            # A deleted file is closed: keeping it open would keep its blocks on a disk that may be
            # full.
            return mine.st_nlink == 0 and not os.path.lexists(self.path)
        return named.st_ino != mine.st_ino and (named.st_size > 0 or mine.st_nlink == 0)

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def has_more(self, frame: JsonObject) -> bool:
        """Return whether there is (probably) more after the frame that `poll_frame` has returned."""
        return self._read < self._size or self._ended or frame["end"] - frame["start"] >= SWIFT

    @property
    def cursor(self) -> tuple[int, int] | None:
        """The cursor from which a later follower can resume; None while no file is open."""
        if self._fd >= 0:
            return (self._inode, self._base + self._splitter.done)
        return None

    @property
    def inode(self) -> int:
        """Inode of the open file, or 0."""
        if self._fd >= 0:
            return self._inode
        return 0

    def close(self) -> None:
        """Close the file."""
        self._close_file()


def tail_offset(fd: int, size: int, lines: int) -> int:
    """Return where the last `lines` complete lines begin (searching back 4 MiB at most)."""
    position = size
    found = 0
    oldest = 0
    floor = max(0, size - MAX_TAIL)
    while position > floor:
        step = min(65536, position - floor)
        data = os.pread(fd, step, position - step)
        end = len(data)
        while True:
            newline = data.rfind(b"\n", 0, end)
            if newline < 0:
                break
            # The newest newline ends the last complete line; the wanted one is `lines` further
            # back.
            if found == lines:
                return position - step + newline + 1
            found += 1
            end = newline
            oldest = position - step + newline + 1
        position -= step
    if floor:
        return oldest
    return 0
