"""What every reader of scalars takes and gives.

A reader knows one file. `Reader.read` goes on from a cursor (a small JSON-able dictionary that travels to the
client and back) and returns a `Batch`. It never raises for what a file holds: damage is a `Problem` that names
the file and the offset. What is not complete yet (a torn tail) is left for the next read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NamedTuple, Optional

    Cursor = Dict[str, Any]

    class Point(NamedTuple):
        """One value. Points are keyed by ``(group, tag, x_kind, x)``; the last one wins."""

        tag: str
        x_kind: str
        """step, epoch, samples or time."""
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
STEP, EPOCH, SAMPLES, TIME = "step", "epoch", "samples", "time"
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
    """

    __slots__ = (
        "cursor", "events", "more", "path", "points", "problem_count", "problems", "reset", "rows", "starts",
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
        """Take back what was read: it turned out to be no consistent state. The cursor stays."""
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
            batch.problem(0, "%s: %s" % (type(error).__name__, error))
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
