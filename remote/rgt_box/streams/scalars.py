"""Follow one run's ``metrics.jsonl`` from its start, point by point, resumable at any byte."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.streams import points

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

POINTS = 500
READ = 256 << 10
MAX_LINE = 1 << 20
"""A longer line is no metrics line; it is skipped."""


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
        self._fd = -1

    def poll(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Return the next ``scalar`` frame (None when there is nothing new) and events of the run.

        At most `POINTS` points; call again until None to catch up. A replaced or shortened file starts anew
        at offset 0: the frame's inode and start say so.
        """
        try:
            if not self._ready():
                return None, []
            data = os.pread(self._fd, READ, self._offset)
            while b"\n" not in data and len(data) >= READ and len(data) < MAX_LINE:
                data = os.pread(self._fd, len(data) * 2, self._offset)
        except OSError:
            self.close()
            return None, []
        end = data.rfind(b"\n") + 1
        if end == 0:
            if len(data) < MAX_LINE:
                return None, []
            end = len(data)  # the rest of an absurd line fails to parse and is left out as well
        lines = data[:end].split(b"\n")[:-1] if data[end - 1 : end] == b"\n" else []
        count = min(len(lines), POINTS, next_resume(lines))
        if count < len(lines):
            lines = lines[:count]
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

    def _ready(self) -> bool:
        """Have the right file open at the right place; False when there is nothing to read."""
        try:
            named = os.stat(self.source)
        except OSError:
            return False
        if self._fd >= 0 and named.st_ino != self._inode:
            self.close()
        if self._fd < 0:
            self._fd = files.open_regular(self.source)
            named = os.fstat(self._fd)
        if named.st_ino != self._inode or named.st_size < self._offset:
            self._inode, self._offset = named.st_ino, 0
        return named.st_size > self._offset

    def close(self) -> None:
        """Close the file; the position is kept."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def next_resume(lines: list[bytes]) -> int:
    """Return how many lines come before the next resume, which begins a frame of its own."""
    for index, line in enumerate(lines):
        if index and b'"resume"' in line and points.parse([line]).resumes:
            return index
    return len(lines)
