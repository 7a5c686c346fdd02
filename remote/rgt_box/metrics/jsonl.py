"""JSON Lines: our own ``metrics.jsonl``, several frameworks, and anything with a step in every row.

Sources read: LLaMA-Factory ``trainer_log.jsonl``, detectron2 ``metrics.json``, verl file logger, torchtune JSONL (by
their source); mmengine ``vis_data/*.json`` (run).
"""

from __future__ import annotations

import json

from rgt_box.metrics import rows
from rgt_box.metrics.appended import WINDOW, Lines
from rgt_box.metrics.base import MAX_TAGS, STEP, TOTAL, Point
from rgt_box.metrics.canonical import STEP_KEYS
from rgt_box.metrics.numbers import clock, flatten, position, whole
from rgt_box.metrics.rows import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

decode = json.JSONDecoder(parse_int=whole).decode

LAYOUTS = {
    # A loop of one's own may write the seconds since its start as the time.
    "rgt": Layout(tuple(dict.fromkeys(("step", *STEP_KEYS))), drop=("time",)),
    "jsonl": Layout(),
    "llamafactory": Layout(("current_steps",)),
    # A validation row has no iter, and its step is its epoch; it comes after the last iteration of that epoch.
    "mmengine": Layout(("iter",), carry=True, drop=("step",), once=("time", "data_time")),
    "detectron2": Layout(("iteration",)),
    "verl": Layout(("step",), null_is_nan=True),
}
"""Source → how its rows are read."""


class JsonLines(Lines):
    """One row a line. `source` is a key of `LAYOUTS`."""

    reads_several = True

    def __init__(self, path: str, source: str = "jsonl") -> None:
        super().__init__(path)
        self.source = source
        self._layout = LAYOUTS[source]

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        row = decode_row(raw)
        if row is None:
            if raw.strip():
                batch.problem(offset, "not a JSON object")
            return
        if self.source == "rgt" and "event" in row:
            if row["event"] == "resume":
                batch.start(position(row.get("step")), str(row.get("reason", ""))[:500])
            return
        if self.source == "verl" and isinstance(row.get("data"), dict):
            row = dict(row["data"], step=row.get("step"))
        if dict in map(type, row.values()):
            row = flatten(row, MAX_TAGS)
        if not rows.AXES.intersection(row):
            row = {rows.axis_name(key): value for key, value in row.items()}
        where = rows.place(row, self._layout, state)
        if where is not None:
            batch.rows.append(len(batch.points))
            rows.add(row, where, self._layout, batch, offset)


EVENTS = {"checkpoint-failed": "error", "checkpoint-recovered": "info", "done": "info"}
"""Events of a run that the client gets as ``event`` frames, with their level."""


class RunMetrics(JsonLines):
    """The ``metrics.jsonl`` of a run, which is sent row by row: a read ends after `limit` rows, and before a resume."""

    reads_several = False
    budget = WINDOW
    mark = b'"resume"'

    def __init__(self, path: str) -> None:
        super().__init__(path, "rgt")

    def _is_full(self, batch: Batch, limit: int) -> bool:
        return len(batch.rows) >= limit

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        row = decode_row(raw) if b'"event"' in raw else None
        kind = row.get("event") if row is not None else None
        if row is None or kind == "resume":
            super()._line(raw, offset, state, batch)
            return
        step = position(row.get("step"))
        total = position(row.get("total_steps"))
        if kind == "start" and step is not None and total is not None:
            batch.rows.append(len(batch.points))
            batch.points.append(Point(TOTAL, STEP, step, total, clock(row.get("time"))))
        elif isinstance(kind, str) and kind in EVENTS and step is not None:
            batch.events.append(
                {"kind": kind, "level": EVENTS[kind], "at": clock(row.get("time")), "text": words(row, step)}
            )


def words(row: dict[str, Any], step: float) -> str:
    """Return an event of a run in words."""
    text = "step %d" % step
    if row.get("error"):
        text += ": %s" % row["error"]
    if row.get("resource"):
        text += " (%s of %s)" % (row["resource"], row.get("mount") or "the disk")
    return text[:2000]


def decode_row(raw: bytes) -> dict[str, Any] | None:
    """Decode a JSON object, NaN and Infinity included; None for anything else, however broken."""
    try:
        row = decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
