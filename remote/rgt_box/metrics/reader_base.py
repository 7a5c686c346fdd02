"""The base of all readers of scalars: their input and output, and how a growing file is read.

What every reader of scalars takes and gives.

A reader knows one file. `Reader.read` goes on from a cursor (a small JSON-able dictionary that travels to the
client and back) and returns a `Batch`. It never raises for what a file holds: damage is a `Problem` that names
the file and the offset. What is not complete yet (a torn tail) is left for the next read.

Files that only grow: go on at an offset, begin anew when the file is another one.

A cursor is ``{"inode", "offset", "head"}`` and what the format adds; ``head`` is the checksum of the first bytes,
because a file that was emptied and written again keeps its inode and may be longer than the offset.
"""

from __future__ import annotations

import os
import zlib

from rgt_box.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NamedTuple, Optional

    Cursor = Dict[str, Any]

    class Point(NamedTuple):
        """One value. Points are keyed by ``(group, tag, x_kind, x)``; the last one wins."""

        tag: str
        x_kind: str
        """step, epoch or samples."""
        x: float
        y: float
        """NaN and infinities are values."""
        at: Optional[float]
        """Wall time, where the file says it."""
        group: str = ""
        """The run inside a file that holds several (databases); empty elsewhere."""

    class Start(NamedTuple):
        """The file says that the run was started again: older points from `x` on are overtaken."""

        before: int
        """It comes before ``points[before]`` of its batch."""
        x: Optional[float]
        """None: wherever the next point stands."""
        why: str

    class Problem(NamedTuple):
        """What could not be read, and where."""

        path: str
        offset: int
        reason: str
else:
    from collections import namedtuple

    Point = namedtuple("Point", "tag x_kind x y at group", defaults=("",))
    Start = namedtuple("Start", "before x why")
    Problem = namedtuple("Problem", "path offset reason")


TOTAL = "rgt/total_steps"
"""Tag of how many steps the run will have, said when it changes; 0 = it is not known any more."""
STEP, EPOCH, SAMPLES = "step", "epoch", "samples"
POINTS = 5000
"""Points after which a read ends; the record that reaches the limit is read to its end."""
PROBLEMS = 8
"""Problems told per batch; further ones are only counted."""
MAX_TAG = 300
"""Longest tag that is a name and not junk."""
MAX_TAGS = 2000
"""Metrics that one row or record may hold; what exceeds it is left out."""


class Batch:
    """What one read found.

    Attributes:
        points: New points, in file order.
        starts: Restarts that the file tells by itself, in order.
        reset: The file was replaced, cut or rewritten: forget all earlier points of this file.
        cursor: For the next read.
        more: There is more to read right now.
        problems: The first `PROBLEMS` things that could not be read.
        problem_count: All of them.
        rows: Where the rows begin in `points`, and `events` what is told beside them: of `jsonl.RunMetrics` alone.
        wait: What is news of a wait for the disk or the mirror, see `jsonl.read_wait`; the last word counts.
    """

    __slots__ = (
        "cursor", "events", "more", "path", "points", "problem_count", "problems", "reset", "rows", "starts", "wait",
    )  # fmt: skip

    def __init__(self, path: str, cursor: Cursor | None) -> None:
        self.path = path
        self.points: list[Point] = []
        self.starts: list[Start] = []
        self.reset = False
        self.cursor: Cursor | None = cursor
        self.more = False
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.rows: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.wait: dict[str, Any] | None = None

    def problem(self, offset: int, reason: str) -> None:
        """Note what could not be read."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(Problem(self.path, offset, reason[:200]))

    def take_problems(self, other: Batch) -> None:
        """Take over the problems of a part."""
        self.problem_count += other.problem_count
        self.problems += other.problems[: PROBLEMS - len(self.problems)]

    def start(self, x: float | None, why: str) -> None:
        """Note a restart before the next point."""
        self.starts.append(Start(len(self.points), x, why))

    def forget(self) -> None:
        """Discard what was read: it turned out not to be a consistent state. The cursor stays."""
        self.points, self.starts, self.reset, self.more = [], [], False, False


class Reader:
    """One file (or directory, or database) of one source. Subclasses say how in `_read`.

    Args:
        path: The file; it need not exist yet.
    """

    source = ""
    """Kind name, such as ``tensorboard``."""
    reads_several = False
    """It reads several kinds, and is told which."""
    ended = False
    """The program that writes the file has ended: what waits for a later line is given out, too."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, cursor: Cursor | None = None, limit: int = POINTS) -> Batch:
        """Return what is new since `cursor` (None: from the beginning). Never raises.

        Args:
            cursor: `Batch.cursor` of the read before, of this or of an earlier process.
            limit: Points after which to stop; ``more`` then says that there are others.
        """
        batch = Batch(self.path, cursor)
        try:
            self._read(batch, max(1, limit))
        except OSError as error:
            batch.problem(0, error.strerror or str(error))
        except Exception as error:
            # The last line of defence: a file that confuses a reader must not end the agent.
            batch = Batch(self.path, cursor)
            batch.problem(0, f"{type(error).__name__}: {error}")
        return batch

    def _read(self, batch: Batch, limit: int) -> None:
        raise NotImplementedError


def reader_of(dotted: str, path: str, kind: str) -> Reader:
    """Return a reader of one file.

    Args:
        dotted: Its module and class; imported now, so that an agent loads the readers that it needs.
        path: The file.
        kind: What it is, for a reader of several kinds.
    """
    from importlib import import_module

    module, _, name = dotted.rpartition(".")
    made = getattr(import_module("rgt_box.metrics." + module), name)
    reader: Reader = made(path, kind) if made.reads_several else made(path)
    return reader


HEAD = 16 << 10
"""Bytes at the beginning by which a file is known again; the header of a CSV file fits in."""
BUDGET = 4 << 20
"""Bytes after which a read ends even if they held no point."""
WINDOW = 128 << 10
MAX_LINE = 1 << 20


class Window:
    """The part of an open file that may be read now.

    Attributes:
        fd: The open file.
        size: Its size when the read began; nothing beyond is read.
        head: Its first `HEAD` bytes at most.
    """

    __slots__ = ("fd", "head", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.head = os.pread(fd, min(self.size, HEAD), 0)

    def at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`, fewer only at the end."""
        return os.pread(self.fd, max(0, min(length, self.size - offset)), offset)


class Appended(Reader):
    """A file that grows at its end. Subclasses consume whole records in `_consume`."""

    def _read(self, batch: Batch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            inode, window = os.fstat(fd).st_ino, Window(fd)
            state = dict(batch.cursor or {})
            if state and not self._same(state, inode, window):
                state, batch.reset = {}, True
            state.setdefault("offset", 0)
            if state["offset"] < window.size:
                self._consume(window, state, batch, limit)
            state["inode"] = inode
            state["head"] = zlib.crc32(window.head[: state["offset"]])
            batch.cursor = state
        finally:
            os.close(fd)

    @staticmethod
    def _same(state: dict[str, Any], inode: int, window: Window) -> bool:
        offset = state.get("offset")
        return (
            isinstance(offset, int)
            and state.get("inode") == inode
            and 0 <= offset <= window.size
            and state.get("head")
            in (None, zlib.crc32(window.head[:offset]))  # None: a client's, who knows no more
        )

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        """Read complete records from ``state["offset"]``, move it behind the last one, set ``batch.more``."""
        raise NotImplementedError


class Lines(Appended):
    """A text file of lines. Subclasses take one at a time in `_line`."""

    budget = BUDGET
    """Bytes after which a read ends, give or take a window."""
    mark = b""
    """A line with these bytes in it is the first of its read."""

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        self._begin(window, state, batch)
        offset = first = state["offset"]
        length = WINDOW
        while offset < window.size:
            if batch.more or self._is_full(batch, limit) or offset - first >= self.budget:
                batch.more = True
                break
            data = window.at(offset, length)
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) < length:
                    break  # the line is not complete yet
                if length < MAX_LINE:
                    length *= 2
                    continue
                if not state.get("skip"):
                    batch.problem(offset, "line longer than 1 MiB")
                state["skip"] = True
                offset += len(data)
                continue
            length = WINDOW
            offset = self._lines(data[:end], offset, state, batch, limit)
        state["offset"] = offset

    def _lines(
        self, data: bytes, offset: int, state: dict[str, Any], batch: Batch, limit: int
    ) -> int:
        """Take the lines of `data`; return the offset behind the last one that was taken."""
        place = 0
        while place < len(data) and not self._is_full(batch, limit):
            end = data.find(b"\n", place)
            if state.get("skip"):
                del state["skip"]
            elif self.mark and offset + place > state["offset"] and self.mark in data[place:end]:
                batch.more = True
                break
            elif end > place:
                self._line(data[place:end].rstrip(b"\r"), offset + place, state, batch)
            place = end + 1
        return offset + place

    def _is_full(self, batch: Batch, limit: int) -> bool:
        return len(batch.points) >= limit

    def _begin(self, window: Window, state: dict[str, Any], batch: Batch) -> None:
        """Prepare for the lines of one read (the header of a table)."""

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        """Take one complete line without its end."""
        raise NotImplementedError
