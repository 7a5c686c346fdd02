"""trackio's ``<project>.db`` (run, 0.43): one row a log call, its metrics as JSON, non-finite values as words.

The column ``step`` counts calls; where the trainer logs its own step, that one is the axis. The time is the batch's.
"""

from __future__ import annotations

from rgt_box.metrics import rows
from rgt_box.metrics.base import MAX_TAGS
from rgt_box.metrics.databases import MAX_JSON, Database
from rgt_box.metrics.jsonl import decode_row
from rgt_box.metrics.numbers import flatten
from rgt_box.metrics.rows import Layout, Upgrade

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from rgt_box.metrics.base import Batch

LAYOUT = Layout(carry=True, call_counter="_step")
ROWS = """
    SELECT id, timestamp, run_name, step, CASE WHEN length(metrics) <= ? THEN metrics END FROM metrics
    WHERE id > ? ORDER BY id
"""
MAX_RUNS = 200
"""Runs of one project whose axis is remembered."""


class TrackioDatabase(Database):
    """All runs of one project; the group of a point is the run's name."""

    source = "trackio"

    def _query(self, db: sqlite3.Connection, state: dict[str, Any], batch: Batch, limit: int) -> None:
        runs: dict[str, dict[str, Any]] = {name: dict(each) for name, each in state.get("runs", {}).items()}
        state["runs"] = runs
        for key, stamp, run, step, metrics in db.execute(ROWS, (MAX_JSON, state["id"])):
            if len(batch.points) >= limit:
                batch.more = True
                return
            state["id"] = key
            data = metrics.encode("utf-8", "replace") if isinstance(metrics, str) else metrics
            row = decode_row(data) if isinstance(data, bytes) else None
            if row is None:
                batch.problem(key, "row %d holds no JSON object" % key)
                continue
            row = flatten(row, MAX_TAGS)
            row["_step"] = step
            row["timestamp"] = seconds(stamp)
            group = str(run)[:500]
            axis = runs.setdefault(group, {}) if len(runs) < MAX_RUNS else runs.get(group, {})
            try:
                where = rows.place(row, LAYOUT, axis)
            except Upgrade as upgrade:
                axis["key"] = upgrade.key
                raise
            if where is not None:
                rows.add(row, where, LAYOUT, batch, key, group)

    def _anew(self, upgrade: Upgrade, state: dict[str, Any]) -> None:
        runs = state["runs"]
        state.clear()
        state.update(id=0, runs={name: {"key": each["key"]} for name, each in runs.items() if "key" in each})


def seconds(stamp: Any) -> float | None:
    """Return epoch seconds of an ISO time."""
    from datetime import datetime, timezone

    try:
        found = datetime.fromisoformat(str(stamp))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
