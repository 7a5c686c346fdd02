"""Lines of ``metrics.jsonl`` → scalar points, resumes and events. Pure."""

from __future__ import annotations

import math

from rgt_box import jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AXES = ("step", "epoch", "time")
WORDS = ("nan", "inf", "-inf")
EVENTS = {"checkpoint-failed": "error", "checkpoint-recovered": "info", "done": "info"}
"""Events of a run that the client gets as ``event`` frames, with their level."""


class Parsed:
    """What some lines held, in file order."""

    __slots__ = ("events", "points", "resumes")

    def __init__(self) -> None:
        self.points: list[list[Any]] = []
        self.resumes: list[list[Any]] = []
        self.events: list[dict[str, Any]] = []


def parse(lines: list[bytes]) -> Parsed:
    """Parse lines; what is no JSON object, or has no step, is left out."""
    found = Parsed()
    for raw in lines:
        # Three million empty lines are three megabytes: asking the decoder about each takes half a minute.
        row = jsonline.loads_dict(raw) if b"{" in raw else None
        step = whole(row.get("step")) if row else None
        if row is None or step is None:
            continue
        kind = row.get("event")
        if kind is None:
            found.points.append([step, number(row.get("time")), number(row.get("epoch")), metrics(row)])
        elif kind == "resume":
            found.resumes.append([step, str(row.get("reason", ""))[:500]])
        elif kind == "start" and whole(row.get("total_steps")) is not None:
            found.points.append(
                [step, number(row.get("time")), None, {"total_steps": float(row["total_steps"])}]
            )
        elif isinstance(kind, str) and kind in EVENTS:
            found.events.append(
                {"kind": kind, "level": EVENTS[kind], "at": row.get("time"), "text": words(row, step)}
            )
    return found


def words(row: dict[str, Any], step: int) -> str:
    """Return an event of a run in words."""
    text = "step %d" % step
    if row.get("error"):
        text += ": %s" % row["error"]
    if row.get("resource"):
        text += " (%s of %s)" % (row["resource"], row.get("mount") or "the disk")
    return text[:2000]


def metrics(row: dict[str, Any]) -> dict[str, Any]:
    """Return metric name → value; what is no number is left out."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key in AXES:
            continue
        if value is None:
            found[key] = None
        elif isinstance(value, str):
            if value.lower() in WORDS:
                found[key] = value.lower()
        else:
            converted = spelled(value)
            if converted is not None:
                found[key] = converted
    return found


def spelled(value: Any) -> float | str | None:
    """Return a number as a float, NaN and infinities as words; None for what is no number."""
    if not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    if math.isfinite(found):
        return found
    return "nan" if math.isnan(found) else ("inf" if found > 0 else "-inf")


def number(value: Any) -> float | None:
    """Return a finite number; None for all else."""
    found = spelled(value)
    return found if isinstance(found, float) else None


def whole(value: Any) -> int | None:
    """Return a step: a whole number of sane size, also when it was written as a float."""
    found = number(value)
    return int(found) if found is not None and found == int(found) and abs(found) < 2**53 else None
