"""Experiment trackers: MLflow, trackio, ai-toolkit.

MLflow's ``mlflow.db`` (tested with 3.17; the default since 3.7) has one row per value, and a NaN as
zero with a flag. Infinities are stored as the largest double. If the caller gives no step, all
steps are zero, and the order of the rows is used instead.

MLflow's file store is ``mlruns/<experiment>/<run>/metrics/<key>``, one appended file per metric
(tested with 3.17). A line is ``<ms> <value> <step>``; older and newer versions write two or five
fields.

trackio's ``<project>.db`` (tested with 0.43) has one row per log call, with its metrics as JSON and
non-finite values as strings; its table ``alerts`` has the calls of ``trackio.alert()``. The column
``step`` counts calls; if the trainer logs its own step, that is the x axis. The time is that of the
batch.

ai-toolkit's ``loss_log.db`` (from source) has one row per step and metric. A resume deletes the
later steps. SQLite stores a NaN as NULL.

"""

from __future__ import annotations

from rgt_box.metrics import rows
from rgt_box.metrics.jsonl import decode_row
from rgt_box.metrics.reader_base import MAX_TAG, MAX_TAGS, STEP, LineReader, MetricPoint
from rgt_box.metrics.rows import (
    NAN,
    FirmStepFound,
    RowLayout,
    ZeroLossCheck,
    flatten_row,
    to_epoch_seconds,
    to_number,
    to_position,
)
from rgt_box.metrics.sqlite_files import MAX_JSON, DatabaseReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch

MLFLOW_ROWS = """
    SELECT rowid, key, value, timestamp, run_uuid, step, is_nan FROM metrics
    WHERE rowid > ? AND key NOT LIKE 'system/%' ORDER BY rowid LIMIT ?
"""
EARLIER = "SELECT count(*), max(step) FROM metrics WHERE key = ? AND run_uuid = ? AND rowid < ?"


class MlflowDatabase(DatabaseReader):
    """All runs of one tracking store; the group of a point is the run ID."""

    source = "mlflow"

    def _query_rows(
        self, db: sqlite3.Connection, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        # With fewer rows, a read might end with a held zero every time, and get no further.
        least = 100
        limit = max(limit, least)
        held = ZeroLossCheck(state, batch)
        counts: dict[tuple[str, str], int] = {}
        last = state["id"]
        found = 0
        largest = 1.797e308
        for rowid, key, value, stamp, run, step, is_nan in db.execute(MLFLOW_ROWS, (last, limit)):
            found += 1
            before = last
            last = rowid
            y = to_number(value)
            if is_nan:
                y = NAN
            if y is None or not isinstance(key, str) or len(key) > MAX_TAG:
                continue
            if abs(y) >= largest:
                if y > 0:
                    y = float("inf")
                else:
                    y = float("-inf")
            x = float(step or 0)
            run = str(run)[:500]
            series = (str(key), run)
            if not step:
                # Step 0 is a first step, or the caller gives no steps: the latter as long as the
                # series has no other step.
                if series not in counts:
                    count, highest = db.execute(EARLIER, (key, run, rowid)).fetchone()
                    counts[series] = -1 if highest else count
                if counts[series] >= 0:
                    x = float(counts[series])
                    counts[series] += 1
            else:
                counts[series] = -1
            y = held.check_point(key, x, y, before)
            batch.points.append(MetricPoint(key, STEP, x, y, to_epoch_seconds(stamp), run))
        batch.more = found >= limit
        state["id"] = held.next_offset(last)


class MetricFile(LineReader):
    """The history of one metric."""

    source = "mlflow_files"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.tag = tag_of_path(path)

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        fields = raw[:500].decode("utf-8", "replace").split()
        if len(fields) >= 2:
            y = to_number(fields[1])
        else:
            y = None
        if y is None:
            batch.add_problem(offset, "no metric line")
            return
        if len(fields) > 2:
            step = to_position(fields[2])
        else:
            step = 0.0
        count = state["n"] = state.get("n", 0) + 1
        if step:
            state["stepped"] = True
        x = step or (0.0 if state.get("stepped") else count - 1.0)
        batch.points.append(MetricPoint(self.tag, STEP, x, y, to_epoch_seconds(fields[0])))


def tag_of_path(path: str) -> str:
    """Return the metric of a file: its path below the run's ``metrics`` directory."""
    parts = path.split("/")
    directories = [place for place, part in enumerate(parts[:-1]) if part == "metrics"]
    if not directories:
        return parts[-1]
    if "mlruns" in parts:
        inside = [place for place in directories if place > parts.index("mlruns")]
        return "/".join(parts[(inside or directories)[0] + 1 :])
    return "/".join(parts[directories[-1] + 1 :])


LAYOUT = RowLayout(carry=True, call_counter="_step")
TRACKIO_ROWS = """
    SELECT id, timestamp, run_name, step, CASE WHEN length(metrics) <= ? THEN metrics END FROM metrics
    WHERE id > ? ORDER BY id
"""


TRACKIO_ALERTS = """
    SELECT id, timestamp, run_name, title, text, level, step FROM alerts
    WHERE id > ? ORDER BY id LIMIT 50
"""
ALERT_LEVELS = ("info", "warn", "error")


class TrackioDatabase(DatabaseReader):
    """All runs of one project; the group of a point is the run name."""

    source = "trackio"

    def _query_rows(
        self, db: sqlite3.Connection, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        self._query_alerts(db, state, batch)
        runs: dict[str, JsonObject] = {
            name: dict(each) for name, each in state.get("runs", {}).items()
        }
        state["runs"] = runs
        # Runs of one project whose x axis is remembered.
        max_runs = 200
        for key, stamp, run, step, metrics in db.execute(TRACKIO_ROWS, (MAX_JSON, state["id"])):
            if len(batch.points) >= limit:
                batch.more = True
                return
            state["id"] = key
            if isinstance(metrics, str):
                data = metrics.encode("utf-8", "replace")
            else:
                data = metrics
            if isinstance(data, bytes):
                row = decode_row(data)
            else:
                row = None
            if row is None:
                batch.add_problem(key, "row %d has no JSON object" % key)
                continue
            row = flatten_row(row, MAX_TAGS)
            row["_step"] = step
            row["timestamp"] = parse_iso_time(stamp)
            group = str(run)[:500]
            if len(runs) < max_runs:
                axis = runs.setdefault(group, {})
            else:
                axis = runs.get(group, {})
            try:
                where = rows.row_position(row, LAYOUT, axis)
            except FirmStepFound as upgrade:
                axis["key"] = upgrade.key
                raise
            if where is not None:
                rows.add_row_points(row, where, LAYOUT, batch, key, group)

    def _restart_state(self, upgrade: FirmStepFound, state: JsonObject) -> None:
        runs = {}
        for name, each in state["runs"].items():
            if "key" in each:
                runs[name] = {"key": each["key"]}
        alert = state.get("alert", 0)
        state.clear()
        state.update(id=0, runs=runs, alert=alert)

    def _query_alerts(self, db: sqlite3.Connection, state: JsonObject, batch: ReadBatch) -> None:
        """Add the alerts that the training raised as events."""
        try:
            found = db.execute(TRACKIO_ALERTS, (state.get("alert", 0),)).fetchall()
        except Exception as error:
            # An older trackio has no such table; sqlite3 is imported late, hence by name.
            if type(error).__name__ != "OperationalError" or "no such" not in str(error):
                raise
            return
        for key, stamp, run, title, text, level, step in found:
            state["alert"] = key
            at = parse_iso_time(stamp)
            if at is None:
                continue
            if level not in ALERT_LEVELS:
                level = "warn"
            said = f"{run}: {title}" + (f": {text}" if text else "")
            if isinstance(step, int):
                said += f" (step {step})"
            batch.events.append(
                {
                    "kind": f"tracker-{level}",
                    "level": level,
                    "at": at,
                    "text": said[:2000],
                }
            )


def parse_iso_time(stamp: Any) -> float | None:
    """Return epoch seconds of an ISO time; None if invalid."""
    from datetime import datetime, timezone

    try:
        found = datetime.fromisoformat(str(stamp))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


AITOOLKIT_ROWS = """
    SELECT m.step, m.key, m.value_real, m.value_text, s.wall_time
    FROM metrics m JOIN steps s ON s.step = m.step WHERE m.step > ? ORDER BY m.step, m.key
"""


class AiToolkitDatabase(DatabaseReader):
    """One job. The cursor's ``id`` is a step and ``wall`` its time, which a resume changes."""

    source = "aitoolkit"

    def _is_continuation(self, db: sqlite3.Connection, state: JsonObject) -> bool:
        if not state.get("wall"):
            return True
        found = db.execute(
            "SELECT wall_time FROM steps WHERE step = ?", (state.get("id"),)
        ).fetchone()
        return found is not None and found[0] == state["wall"]

    def _query_rows(
        self, db: sqlite3.Connection, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        last = state["id"] = state.get("id", -1) if state.get("wall") else -1
        for step, key, real, text, wall in db.execute(AITOOLKIT_ROWS, (last,)):
            # Only between two steps: the cursor is a step, so the rest of one would be skipped.
            if step != last and len(batch.points) >= limit:
                batch.more = True
                return
            last = state["id"] = step
            state["wall"] = wall
            y = NAN if real is None and text is None else to_number(text if real is None else real)
            if y is not None and isinstance(key, str) and len(key) <= MAX_TAG:
                batch.points.append(MetricPoint(key, STEP, float(step), y, to_epoch_seconds(wall)))
