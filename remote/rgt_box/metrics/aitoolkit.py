"""ai-toolkit's ``loss_log.db`` (read in source): a row a step and metric; a resume deletes the later steps.

SQLite stores a NaN as NULL.
"""

from __future__ import annotations

from rgt_box.metrics.base import MAX_TAG, STEP, Point
from rgt_box.metrics.databases import Database
from rgt_box.metrics.numbers import clock, number
from rgt_box.metrics.rows import NAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from rgt_box.metrics.base import Batch

ROWS = """
    SELECT m.step, m.key, m.value_real, m.value_text, s.wall_time
    FROM metrics m JOIN steps s ON s.step = m.step WHERE m.step > ? ORDER BY m.step, m.key
"""


class AiToolkitDatabase(Database):
    """One job. The cursor's ``id`` is a step, ``wall`` its time: a resumed step has another one."""

    source = "aitoolkit"

    def _goes_on(self, db: sqlite3.Connection, state: dict[str, Any]) -> bool:
        if not state.get("wall"):
            return True
        found = db.execute("SELECT wall_time FROM steps WHERE step = ?", (state.get("id"),)).fetchone()
        return found is not None and found[0] == state["wall"]

    def _query(self, db: sqlite3.Connection, state: dict[str, Any], batch: Batch, limit: int) -> None:
        last = state["id"] = state.get("id", -1) if state.get("wall") else -1
        for step, key, real, text, wall in db.execute(ROWS, (last,)):
            if step != last and len(batch.points) >= limit:
                batch.more = True
                return
            last = state["id"] = step
            state["wall"] = wall
            y = NAN if real is None and text is None else number(text if real is None else real)
            if y is not None and isinstance(key, str) and len(key) <= MAX_TAG:
                batch.points.append(Point(key, STEP, float(step), y, clock(wall)))
