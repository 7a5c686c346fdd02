"""Follow one run's ``metrics.jsonl`` from its start, point by point, resumable at any byte."""

from __future__ import annotations

import os
import time

from rgt_box import files
from rgt_box.streams import points

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

POINTS = 500
READ = 256 << 10
"""A longer line is no metrics line; it is skipped. In a frame (1 MiB) numbers take up to three times that."""
QUIET = 30.0
"""Seconds without news after which a source is looked at once in a while only: a sweep has thousands."""


class ScalarFollower:
    """One metric source.

    Args:
        run: The cell's name.
        source: Path of the file; it need not exist yet.
        cursor: ``(inode, offset)`` up to which the client has everything.
    """

    def __init__(self, run: str, source: str, cursor: tuple[int, int] | None) -> None:
        self.run, self.source = run, source
        self._inode, self._offset = cursor or (0, 0)
        self._news = time.monotonic()

    def poll(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Return the next ``scalar`` frame (None when there is nothing new) and events of the run.

        At most `POINTS` points; call again until None to catch up. A replaced or shortened file starts anew
        at offset 0: the frame's inode and start say so.
        """
        try:
            data = self._read()
        except OSError:
            return None, []
        if not data:
            return None, []
        self._news = time.monotonic()
        end = data.rfind(b"\n") + 1
        if end == 0:
            if len(data) < READ:
                return None, []
            end = len(data)  # the rest of an absurd line fails to parse and is left out as well
        # No more than are taken: a file of empty lines is no reason to cut 256 KiB into pieces 500 at a time.
        lines = data[:end].split(b"\n", POINTS)[:-1] if data[end - 1 : end] == b"\n" else []
        if lines:
            lines = lines[: next_resume(lines)]
            end = sum(len(line) + 1 for line in lines)
        return self._frame(lines, end)

    def _frame(self, lines: list[bytes], length: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        parsed = points.parse(lines)
        start, self._offset = self._offset, self._offset + length
        frame: dict[str, Any] = {
            "t": "scalar",
            "run": self.run,
            "source": self.source,
            "inode": self._inode,
            "start": start,
            "end": self._offset,
            "points": parsed.points,
        }
        if parsed.resumes:
            frame["resumes"] = parsed.resumes
        return frame, parsed.events

    @property
    def is_quiet(self) -> bool:
        """Nothing was written for a while."""
        return time.monotonic() - self._news > QUIET

    def _read(self) -> bytes:
        """Return what comes next; another file, or one that was cut, is read from its start."""
        named = os.stat(self.source)
        if (named.st_ino, named.st_size) == (self._inode, self._offset):
            return b""
        fd = files.open_regular(
            self.source
        )  # and not kept: a sweep has more sources than a process may have files
        try:
            found = os.fstat(fd)
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset = found.st_ino, 0
            return os.pread(fd, READ, self._offset)
        finally:
            os.close(fd)


def next_resume(lines: list[bytes]) -> int:
    """Return how many lines come before the next resume, which begins a frame of its own."""
    for index, line in enumerate(lines):
        if index and b'"resume"' in line and points.parse([line]).resumes:
            return index
    return len(lines)
