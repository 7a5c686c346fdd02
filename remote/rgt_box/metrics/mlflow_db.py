"""MLflow's ``mlflow.db`` (run, 3.17; the default since 3.7): one row a value, a NaN as zero with a flag.

Infinities are stored as the largest double. A caller that gives no step leaves them all zero: the order counts then.
"""

from __future__ import annotations

from rgt_box.metrics.base import MAX_TAG, STEP, Point
from rgt_box.metrics.databases import Database
from rgt_box.metrics.hidden import Held
from rgt_box.metrics.numbers import clock, number
from rgt_box.metrics.rows import NAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from rgt_box.metrics.base import Batch

ROWS = """
    SELECT rowid, key, value, timestamp, run_uuid, step, is_nan FROM metrics
    WHERE rowid > ? AND key NOT LIKE 'system/%' ORDER BY rowid LIMIT ?
"""
EARLIER = "SELECT count(*), max(step) FROM metrics WHERE key = ? AND run_uuid = ? AND rowid < ?"
LARGEST = 1.797e308
LEAST = 100


class MlflowDatabase(Database):
    """All runs of one tracking store; the group of a point is the run's id."""

    source = "mlflow"

    def _query(self, db: sqlite3.Connection, state: dict[str, Any], batch: Batch, limit: int) -> None:
        limit = max(limit, LEAST)
        held = Held(state, batch)
        counts: dict[tuple[str, str], int] = {}
        last, found = state["id"], 0
        for rowid, key, value, stamp, run, step, is_nan in db.execute(ROWS, (last, limit)):
            found += 1
            before, last = last, rowid
            y = NAN if is_nan else number(value)
            if y is None or not isinstance(key, str) or len(key) > MAX_TAG:
                continue
            if abs(y) >= LARGEST:
                y = float("inf") if y > 0 else float("-inf")
            x = float(step or 0)
            run = str(run)[:500]
            series = (str(key), run)
            if not step:
                if series not in counts:
                    count, highest = db.execute(EARLIER, (key, run, rowid)).fetchone()
                    counts[series] = -1 if highest else count
                if counts[series] >= 0:
                    x = float(counts[series])
                    counts[series] += 1
            else:
                counts[series] = -1
            y = held.see(key, x, y, before)
            batch.points.append(Point(key, STEP, x, y, clock(stamp), run))
        batch.more = found >= limit
        state["id"] = held.settle(last)
