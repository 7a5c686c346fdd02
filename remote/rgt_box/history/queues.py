"""What happens to the cells while nobody watches, as events in the order in which it happened."""

from __future__ import annotations

from rgt_box.history import home
from rgt_box.streams.jobs import JobWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KNOWN = "recorder-queues.json"
LEVELS = {"failed": "error", "interrupted": "warn"}
EVERY = 1.0
"""Seconds between two looks; a look at a queue that has not changed is four system calls."""


class QueueLog:
    """Compares the queues with what was known of them, also across recorders.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, Any] = home.read_json(folder, KNOWN)
        self._jobs: dict[str, JobWatch] = {}

    def look(self, jobs: list[str]) -> list[tuple[str, str, str]]:
        """Return events as ``(kind, text, level)``, in order."""
        self._jobs = {path: self._jobs.get(path) or JobWatch(path) for path in jobs}
        events = []
        changed = False
        for path, job in self._jobs.items():
            frame = job.poll()
            if frame is not None:
                changed = True
                now = standing(frame)
                if path in self._known:  # the first sight of a queue is no news
                    events += transitions(self._known[path], now, frame.get("cells", []))
                self._known[path] = now
        if changed:
            home.write_json(self._folder, KNOWN, self._known)
        return events


def standing(frame: dict[str, Any]) -> dict[str, Any]:
    """Return what of a queue is compared: per cell its state and how often it ran, and whether all is done."""
    cells = {cell["name"]: [cell.get("state"), cell.get("attempts") or 0] for cell in frame.get("cells", [])}
    return {"cells": cells, "done": bool(frame.get("done"))}


def transitions(
    old: dict[str, Any], new: dict[str, Any], cells: list[dict[str, Any]]
) -> list[tuple[str, str, str]]:
    """Return the events that lead from one standing to the next, by the times that the runner wrote down."""
    found: list[tuple[float, tuple[str, str, str]]] = []
    before = old.get("cells") or {}
    for cell in cells:
        name, state, attempts = cell["name"], str(cell.get("state")), cell.get("attempts") or 0
        was, ran = before.get(name) or ["waiting", 0]
        started, ended = float(cell.get("started") or 0.0), float(cell.get("ended") or 0.0)
        if attempts > ran or (state == "running" and was != "running"):
            found.append((started, ("cell-running", "%s: running, attempt %d" % (name, attempts), "info")))
        if state != "running" and (state != was or attempts > ran):
            why = [str(cell[key]) for key in ("reason", "signal") if cell.get(key) and state != "done"]
            if cell.get("exit_code") is not None:
                why.append("exit %d" % cell["exit_code"])
            text = "%s: %s" % (name, ", ".join([state] + why))
            found.append((max(started, ended), ("cell-" + state, text, LEVELS.get(state, "info"))))
    found.sort(key=lambda item: item[0])  # stable: a start stays before the end of the same second
    events = [event for _, event in found]
    if new["done"] and not old.get("done"):
        events.append(("queue-done", "every cell of the queue has had its turn", "info"))
    return events
