"""Reads databases in a `confined_child`, because a hostile schema can make SQLite misbehave.

One child serves all databases. A database that crashed it is skipped for a while.
"""

from __future__ import annotations

import os
import time

from rgt_box import files
from rgt_box.confined_child import KEPT, AnswerPending, ChildDied, ConfinedChild
from rgt_box.metrics.reader_base import (
    MetricPoint,
    MetricReader,
    ReadBatch,
    ReadProblem,
    RunRestart,
    new_reader,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

REST, LONGEST_REST = 60.0, 3600.0
"""Seconds for which a database that ended the child is skipped: at first, and the limit after
doubling."""

child = ConfinedChild(__name__)


class ConfinedReader(MetricReader):
    """One database, read by the child.

    Args:
        kind: Its kind.
        path: The file.
        reader: The reader class used in the child, see `new_reader`.
    """

    def __init__(self, kind: str, path: str, reader: str) -> None:
        super().__init__(path)
        self.source = kind
        self._reader = reader
        self._rest = REST
        self._until = 0.0

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        from rgt_box.metrics.sqlite_files import is_unchanged

        # Raises here for a pipe, a device or a missing file, so that no child is started for it.
        os.close(files.open_regular(self.path))
        if is_unchanged(self.path, batch.cursor) or time.monotonic() < self._until:
            return
        path = os.path.abspath(self.path)  # the child has another working directory
        request = {"reader": self._reader, "path": path, "cursor": batch.cursor, "limit": limit}
        try:
            answer = child.request_answer(request)
        except AnswerPending:
            return
        except ChildDied as error:
            self._until = time.monotonic() + self._rest
            batch.add_problem(
                0, "not read for %d s, because reading it failed: %s" % (self._rest, error)
            )
            # A file that crashes SQLite will do so again: without pauses it would cost a child per
            # read.
            self._rest = min(LONGEST_REST, 2 * self._rest)
            return
        self._rest = REST
        unpack_batch(answer, batch)


def tables(path: str) -> str:
    """Return the CREATE TABLE statements of a database; "" if it cannot be read.

    Raises:
        OSError: when reading takes longer; try again.
    """
    try:
        return str(child.request_answer({"path": os.path.abspath(path)})["tables"])
    except AnswerPending:
        raise OSError(0, "it is still being read", path) from None
    except ChildDied:
        return ""


def pack_batch(batch: ReadBatch) -> JsonObject:
    """Return a batch as values for `json` of this program (NaN included)."""
    names = ("points", "starts", "reset", "cursor", "more", "problems", "problem_count", "events")
    return {name: getattr(batch, name) for name in names}


def unpack_batch(packed: JsonObject, batch: ReadBatch) -> None:
    """Fill a batch from the result of `pack_batch`."""
    batch.points = [MetricPoint(*each) for each in packed["points"]]
    batch.starts = [RunRestart(*each) for each in packed["starts"]]
    batch.events = packed["events"]
    batch.problems = [ReadProblem(*each) for each in packed["problems"]]
    batch.reset, batch.more = packed["reset"], packed["more"]
    batch.cursor, batch.problem_count = packed["cursor"], packed["problem_count"]


_readers: dict[tuple[str, str], MetricReader] = {}


def answer(request: JsonObject) -> JsonObject:
    """Answer a request of `ConfinedReader` or `read_table_schema` in the child."""
    if "reader" not in request:
        from rgt_box.metrics.sqlite_files import query_table_schema

        return {"tables": query_table_schema(request["path"])}
    key = request["reader"], request["path"]
    if key not in _readers:
        # A reader only remembers when it may copy again, so dropping the oldest loses little.
        while len(_readers) >= KEPT:
            del _readers[next(iter(_readers))]
        _readers[key] = new_reader(*key, "")
    return pack_batch(_readers[key].read(request["cursor"], request["limit"]))
