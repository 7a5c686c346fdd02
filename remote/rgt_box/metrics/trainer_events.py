"""The events that our trainer writes into ``metrics.jsonl``: what a client is sent of each, and which ones are waits.

`tests/unit/box/test_trainer_events.py` compares this table with the trainer's own code.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NamedTuple

    class Kind(NamedTuple):
        """One kind of event."""

        level: "str | None"
        """Of the ``event`` frame; None = there is none, because another frame says the same."""
        waits_for: str = ""
        """``disk`` or ``mirror``: the training stands still from here on, with its work in memory."""
        ends_wait: bool = False
else:
    from collections import namedtuple

    Kind = namedtuple("Kind", "level waits_for ends_wait", defaults=("", False))

EVENTS = {
    "start": Kind(None, ends_wait=True),  # the scalars have its total_steps
    "resume": Kind(None, ends_wait=True),  # so they have the resumes
    "checkpoint": Kind(None, ends_wait=True),  # a ckpt frame lists it
    "checkpoint-failed": Kind("error"),
    "checkpoint-recovered": Kind("info", ends_wait=True),
    "hold": Kind("error", waits_for="disk"),
    "mirror-wait": Kind("error", waits_for="mirror"),
    "given-up": Kind("error", ends_wait=True),
    "mirrored": Kind(None),  # one for each checkpoint
    "mirror-failed": Kind("warn"),
    "nonfinite": Kind("warn"),
    "spike": Kind("warn"),
    "left-out": Kind("info"),
    "stalled": Kind("error"),
    "stop": Kind("info", ends_wait=True),
    "done": Kind("info", ends_wait=True),
}
MOST = 2000
"""Characters of an event."""


def describe_event(row: dict[str, Any], step: float) -> str:
    """Return an event of a run in words."""
    text = _WORDS.get(row["event"], _failure)(row)
    return ("step %d" % step + (": " + text if text else ""))[:MOST]


def read_wait(row: dict[str, Any], step: float, at: float | None) -> dict[str, Any] | None:
    """Return what an event says of a wait, for a ``scalar`` frame; ``{"what": ""}`` = it is over, None = nothing."""
    kind = EVENTS.get(row["event"])
    if kind is None or not (kind.waits_for or kind.ends_wait):
        return None
    if not kind.waits_for:
        return {"what": ""}
    limit = row.get("limit_s")
    until = at + limit if at is not None and isinstance(limit, (int, float)) else None
    unsaved = row.get("unsaved")
    return {
        "what": kind.waits_for, "step": int(step), "at": at, "until": until,
        "unsaved": unsaved if isinstance(unsaved, int) else None,
    }  # fmt: skip


def _failure(row: dict[str, Any]) -> str:
    text = str(row.get("error") or "")
    if row.get("resource"):
        text += " (%s of %s)" % (row["resource"], row.get("mount") or "the disk")
    return text.strip()


def _hold(row: dict[str, Any]) -> str:
    return "%s steps are not saved; it waits up to %s for room, with its work in memory" % (
        row.get("unsaved", "?"), _minutes(row),
    )  # fmt: skip


def _given_up(row: dict[str, Any]) -> str:
    why = ": %s" % row["error"] if row.get("error") else ""
    return "it gave up saving, %s steps are lost%s" % (row.get("unsaved", "?"), why)


def _mirror_wait(row: dict[str, Any]) -> str:
    return "it waits up to %s for the mirror %s: %s is not there" % (
        _minutes(row), row.get("url", "?"), row.get("left", "a checkpoint"),
    )  # fmt: skip


def _minutes(row: dict[str, Any]) -> str:
    limit = row.get("limit_s")
    if not isinstance(limit, (int, float)):
        return "?"
    return "%.0f s" % limit if limit < 120 else "%.0f min" % (limit / 60)


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "hold": _hold,
    "given-up": _given_up,
    "mirror-wait": _mirror_wait,
    "checkpoint-recovered": lambda row: "saved again",
    "mirror-failed": lambda row: "mirror %s: %s" % (row.get("url", "?"), row.get("error", "?")),
    "nonfinite": lambda row: "skipped, loss %s, gradient norm %s" % (row.get("loss"), row.get("grad_norm")),
    "spike": lambda row: (
        "loss %s, the median is %s: %s" % (row.get("loss"), row.get("median"), row.get("action"))
    ),
    "left-out": lambda row: "left out",
    "stalled": lambda row: "no step for %s s; stacks in %s" % (row.get("seconds"), row.get("path")),
    "stop": lambda row: "stopped: %s" % row.get("reason"),
}
