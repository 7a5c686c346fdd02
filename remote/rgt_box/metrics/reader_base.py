"""The base of all readers of scalars: their input and output, and reading growing files.

A reader handles one file. `MetricReader.read` resumes from a cursor (a small JSON-compatible
dictionary that is sent to the client and back) and returns a `ReadBatch`. It never raises because
of a file's
content: damage is a `ReadProblem` with the file and offset. An incomplete tail is left for the next
read.

Append-only files are read from an offset, and from the start if the file was replaced.

Their cursor is ``{"inode", "offset", "head"}`` plus the fields of the format. ``head`` is the
checksum of the first bytes: a file that was truncated and rewritten keeps its inode and may be
longer than the offset.
"""

from __future__ import annotations

import os
import re
import time
import zlib

from rgt_box.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from rgt_wire import JsonObject

    Cursor = JsonObject

    class MetricPoint(NamedTuple):
        """One value. Points are keyed by ``(group, tag, x_kind, x)``; the last one wins."""

        tag: str
        x_kind: str
        """``step``, ``epoch`` or ``samples``."""
        x: float
        y: float
        """May be NaN or infinite."""
        at: float | None
        """Wall time, if the file has it."""
        group: str = ""
        """The run inside a file with several runs (databases); otherwise empty."""

    class RunRestart(NamedTuple):
        """The run was restarted, according to the file: older points from `x` on are overtaken."""

        before: int
        """It comes before ``points[before]`` of its batch."""
        x: float | None
        """None: the x of the next point."""
        why: str

    class ReadProblem(NamedTuple):
        """A part that could not be read, and where."""

        path: str
        offset: int
        reason: str
else:
    from collections import namedtuple

    MetricPoint = namedtuple("MetricPoint", "tag x_kind x y at group", defaults=("",))
    RunRestart = namedtuple("RunRestart", "before x why")
    ReadProblem = namedtuple("ReadProblem", "path offset reason")


TOTAL = "rgt/total_steps"
"""Tag of the planned number of steps, sent when it changes; 0 = no longer known."""
STEP, EPOCH, SAMPLES, ROW = "step", "epoch", "samples", "row"
"""What an axis counts. `ROW`: only how many rows or lines were logged, because they name no position.
"""
FROM_START = -1.0
"""The x of a restart that hides all earlier points."""
POINTS = 5000
"""Points after which a read ends; the current record is still read completely."""
PROBLEMS = 8
"""Problems reported per batch; further ones are only counted."""
MAX_TAG = 300
"""Maximum length of a tag; longer ones are ignored."""
MAX_TAGS = 2000
"""Metrics per row or record; further ones are ignored."""


class ReadBatch:
    """The result of one read.

    Attributes:
        points: New points, in file order.
        starts: Restarts recorded in the file, in order.
        reset: The file was replaced, truncated or rewritten: discard all earlier points of this
            file.
        cursor: For the next read.
        more: There is more to read right now.
        problems: The first `PROBLEMS` parts that could not be read.
        problem_count: The number of all problems.
        rows: Index in `points` at which each row begins; `events` are reported next to it. Only
            used by `jsonl.RunMetrics`.
        wait: The last change of a wait for disk or mirror, see `jsonl.read_wait`.
    """

    __slots__ = (
        "cursor", "events", "more", "path", "points", "problem_count", "problems", "reset", "rows",
        "starts", "wait",
    )  # fmt: skip

    def __init__(self, path: str, cursor: Cursor | None) -> None:
        self.path = path
        self.points: list[MetricPoint] = []
        self.starts: list[RunRestart] = []
        self.reset = False
        self.cursor: Cursor | None = cursor
        self.more = False
        self.problems: list[ReadProblem] = []
        self.problem_count = 0
        self.rows: list[int] = []
        self.events: list[JsonObject] = []
        self.wait: JsonObject | None = None

    def add_problem(self, offset: int, reason: str) -> None:
        """Record a part that could not be read."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(ReadProblem(self.path, offset, reason[:200]))

    def add_problems_of(self, other: ReadBatch) -> None:
        """Add the problems of a part."""
        self.problem_count += other.problem_count
        self.problems += other.problems[: PROBLEMS - len(self.problems)]

    def add_restart(self, x: float | None, why: str) -> None:
        """Record a restart before the next point."""
        self.starts.append(RunRestart(len(self.points), x, why))

    def discard_points(self) -> None:
        """Discard the result, because it was not a consistent state. The cursor is kept."""
        self.points = []
        self.starts = []
        self.reset = False
        self.more = False


class MetricReader:
    """Reads one file (or directory, or database) of one source. Subclasses implement `_read_into`.

    Args:
        path: The file; it need not exist yet.
    """

    source = ""
    """Kind name, such as ``tensorboard``."""
    reads_several = False
    """It reads several kinds, and receives the kind as its second argument."""
    ended = False
    """The program that writes the file has ended, so values that wait for a later line are returned
    too."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, cursor: Cursor | None = None, limit: int = POINTS) -> ReadBatch:
        """Return the data added since `cursor` (None: from the beginning). Never raises.

        Args:
            cursor: `ReadBatch.cursor` of the previous read, by this or an earlier process.
            limit: Points after which to stop; `ReadBatch.more` is then True if there are others.
        """
        batch = ReadBatch(self.path, cursor)
        try:
            self._read_into(batch, max(1, limit))
        except OSError as error:
            batch.add_problem(0, error.strerror or str(error))
        except Exception as error:
            # Last resort: a file that breaks a reader must not end the agent.
            batch = ReadBatch(self.path, cursor)
            batch.add_problem(0, f"{type(error).__name__}: {error}")
        return batch

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        raise NotImplementedError


def new_reader(dotted: str, path: str, kind: str) -> MetricReader:
    """Return a reader of one file.

    Args:
        dotted: Its module and class; imported now, so that an agent only loads the readers it
            needs.
        path: The file.
        kind: Its kind, for a reader of several kinds.
    """
    from importlib import import_module

    module, _, name = dotted.rpartition(".")
    made = getattr(import_module("rgt_box.metrics." + module), name)
    reader: MetricReader
    if made.reads_several:
        reader = made(path, kind)
    else:
        reader = made(path)
    return reader


HEAD = 16 << 10
"""First bytes that identify a file; large enough for the header of a CSV file."""
BUDGET = 4 << 20
"""Bytes after which a read ends, even if they held no point."""
WINDOW = 128 << 10
MAX_LINE = 1 << 20


class FileWindow:
    """The part of an open file that may be read now.

    Attributes:
        fd: The open file.
        size: Its size when the read began; nothing beyond it is read.
        head: Up to `HEAD` first bytes.
    """

    __slots__ = ("fd", "head", "size", "written")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # Read once: a writer that is faster than the reader would keep the read from ever ending.
        found = os.fstat(fd)
        self.size = found.st_size
        self.written = found.st_mtime
        self.head = os.pread(fd, min(self.size, HEAD), 0)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`, fewer only at the end."""
        return os.pread(self.fd, max(0, min(length, self.size - offset)), offset)

    def has_whole_end(self) -> bool:
        """Return whether the last line is complete although it has no end.

        A program that buffers its output may leave half a number for hours. So it has to look like
        a line before it, with as many digits in its last number.
        """
        # Seconds without a write after which the last line is not being written.
        settled = 60.0
        if time.time() - self.written < settled:
            return False
        tail = 8 << 10
        *before, last = _LINE_END.split(self.read_at(max(0, self.size - tail), tail))
        if last.rstrip().endswith(b"}"):
            return True
        form = _NUMBER.sub(b"0", last)
        same = [_count_decimals(line) for line in before if _NUMBER.sub(b"0", line) == form]
        decimals = _count_decimals(last)
        if decimals == 0 and last[-1:].isdigit():
            return False  # a whole number may be the beginning of a longer one
        return bool(same) and decimals >= max(same)


_LINE_END = re.compile(rb"\r?\n|\r")
_NUMBER = re.compile(rb"[-+]?\d[\d.]*(?:[eE][-+]?\d*)?")
_DECIMALS = re.compile(rb"\d[.,](\d{1,40}(?:[eE][-+]?\d*)?)$")


def _count_decimals(line: bytes) -> int:
    """Return the length of what follows the point of a number at the end of a line."""
    found = _DECIMALS.search(line)
    if found is None:
        return 0
    return len(found.group(1))


class AppendedFileReader(MetricReader):
    """A file that grows at its end. Subclasses consume complete records in `_consume_records`."""

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            inode, window = os.fstat(fd).st_ino, FileWindow(fd)
            state = dict(batch.cursor or {})
            if state and not self._is_same_file(state, inode, window):
                state = {}
                batch.reset = True
            state.setdefault("offset", 0)
            if state["offset"] < window.size:
                self._consume_records(window, state, batch, limit)
            state["inode"] = inode
            # An inode is used again for the next file, so the first bytes have to be the same, too.
            # Only those before the offset: later ones may still be written.
            state["head"] = zlib.crc32(window.head[: state["offset"]])
            batch.cursor = state
        finally:
            os.close(fd)

    @staticmethod
    def _is_same_file(state: JsonObject, inode: int, window: FileWindow) -> bool:
        offset = state.get("offset")
        return (
            isinstance(offset, int)
            and state.get("inode") == inode
            and 0 <= offset <= window.size
            and state.get("head")
            # None: a cursor made by a client, which has no checksum
            in (None, zlib.crc32(window.head[:offset]))
        )

    def _consume_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        """Read complete records from ``state["offset"]``, advance it, and set ``batch.more``."""
        raise NotImplementedError


class LineReader(AppendedFileReader):
    """A text file of lines. Subclasses process one line at a time in `_parse_line`."""

    budget = BUDGET
    """Approximate bytes after which a read ends; it may exceed this by one window."""
    mark = b""
    """A line that contains these bytes is always the first of a read."""

    def _consume_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        self._begin_lines(window, state, batch)
        offset = first = state["offset"]
        length = WINDOW
        while offset < window.size:
            if batch.more or self._is_full(batch, limit) or offset - first >= self.budget:
                batch.more = True
                break
            data = window.read_at(offset, length)
            if (
                self.ended
                and offset + len(data) == window.size
                and data[-1:] != b"\n"
                and window.has_whole_end()
            ):
                data += b"\n"  # the program has ended without ending its last line
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) < length:
                    break  # the line is not complete yet
                # A long line is read again with twice the window, so that short lines cost no large
                # buffer.
                if length < MAX_LINE:
                    length *= 2
                    continue
                # The line may span many reads: it is reported once.
                if not state.get("skip"):
                    batch.add_problem(offset, "line longer than 1 MiB")
                state["skip"] = True
                offset += len(data)
                continue
            length = WINDOW
            offset = self._parse_lines(data[:end], offset, state, batch, limit)
        state["offset"] = min(offset, window.size)

    def _parse_lines(
        self, data: bytes, offset: int, state: JsonObject, batch: ReadBatch, limit: int
    ) -> int:
        """Process the lines of `data`; returns the offset after the last processed line."""
        place = 0
        while place < len(data) and not self._is_full(batch, limit):
            end = data.find(b"\n", place)
            if state.get("skip"):
                del state["skip"]
            # Not the first line, or the read would end before it without end.
            elif self.mark and offset + place > state["offset"] and self.mark in data[place:end]:
                batch.more = True
                break
            elif end > place:
                self._parse_line(data[place:end].rstrip(b"\r"), offset + place, state, batch)
            place = end + 1
        return offset + place

    def _is_full(self, batch: ReadBatch, limit: int) -> bool:
        return len(batch.points) >= limit

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        """Prepare for the lines of one read, such as the header of a table."""

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        """Process one complete line without its line end."""
        raise NotImplementedError
