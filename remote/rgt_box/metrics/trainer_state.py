"""transformers' ``trainer_state.json`` (run, 5.23): rewritten whole at every save, with the complete history.

The cursor is ``{"version", "start", "offset", "crc", "done"}``: what the file was, where its list of rows began, how
far it was read, and the checksum between. In a new version the same bytes from the (moved) start of the list mean the
same rows, so only the later ones are decoded; other bytes mean another course (a resume from an older checkpoint).
"""

from __future__ import annotations

import os
import re
import zlib

from rgt_box.files import open_regular
from rgt_box.metrics import rows
from rgt_box.metrics.appended import BUDGET, Window
from rgt_box.metrics.base import MAX_TAGS, STEP, TOTAL, Point, Reader
from rgt_box.metrics.json_rows import JsonRows, ascii_keys
from rgt_box.metrics.numbers import flatten
from rgt_box.metrics.rows import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

LAYOUT = Layout(("step",))
MAX_BYTES = 1 << 30
KEY = b'"log_history"'
PART = 1 << 20
TAIL = 64 << 10
"""Bytes behind the history in which its plan is looked for: the keys are sorted, and the long ones stand before."""
_STEP = re.compile(rb'"global_step": {0,4}(\d{1,15})\b')
_TOTAL = re.compile(rb'"max_steps": {0,4}(\d{1,15})\b')


class TrainerState(Reader):
    """One ``trainer_state.json``. Of several checkpoints' the one written last has everything."""

    source = "hf_trainer"

    def _read(self, batch: Batch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            found = os.fstat(fd)
            version = [found.st_ino, found.st_size, found.st_mtime_ns]
            state = dict(batch.cursor or {})
            if state.get("version") != version:
                if found.st_size > MAX_BYTES:
                    batch.problem(0, "larger than %d MiB" % (MAX_BYTES >> 20))
                    return
                state = renewed(Window(fd), state, batch)
                state["version"] = version
            if state.get("done") is False:
                self._history(Window(fd), state, batch, limit)
                batch.cursor = state
        finally:
            os.close(fd)

    @staticmethod
    def _history(window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        """Read rows from ``state["offset"]`` on."""
        history = JsonRows(window, state["offset"])
        first = state["offset"]
        state["done"] = True
        try:
            row = history.next()
            while row is not None:
                at, state["offset"] = state["offset"], history.at
                state["crc"] = checksum(window, at, history.at, state["crc"])
                row = flatten(ascii_keys(row), MAX_TAGS)
                where = rows.place(row, LAYOUT, {})
                if where is not None:
                    rows.add(row, where, LAYOUT, batch, at)
                if len(batch.points) >= limit or history.at - first >= BUDGET:
                    batch.more, state["done"] = True, False
                    return
                row = history.next()
            planned(window, state, history.at, batch)
        except EOFError:
            pass  # it is being written: the next version has the rest
        except ValueError as error:
            batch.problem(history.at, "log_history: %s" % error)


def planned(window: Window, state: dict[str, Any], at: int, batch: Batch) -> None:
    """Add how many steps the run will have, where the file says it behind its history, which ends at `at`."""
    step = _STEP.search(window.at(0, min(PART, state["start"])))
    total = _TOTAL.search(window.at(at, TAIL))
    if step is None or total is None or int(total.group(1)) in (0, state.get("total")):
        return
    state["total"] = int(total.group(1))
    batch.points.append(Point(TOTAL, STEP, float(step.group(1)), float(state["total"]), None))


def renewed(window: Window, state: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """Return where to go on in a new version of the file; without ``done`` when it is not written completely yet."""
    start = opening(window)
    if start is None or not window.at(max(0, window.size - 64), 64).rstrip().endswith(b"}"):
        return {}
    known = state.get("offset", 0) - state.get("start", 0)
    if known > 0:
        same = start + known <= window.size and checksum(window, start, start + known) == state["crc"]
        if same:
            return {**state, "start": start, "offset": start + known, "done": False}
        if not closes(window, start):
            return {}
        batch.reset = True
    return {"start": start, "offset": start, "crc": 0, "done": False}


def opening(window: Window) -> int | None:
    """Return the place behind the bracket that opens the history; None when it is not there."""
    data = window.at(0, PART)
    at = data.find(KEY)
    if at < 0:
        return None
    at = data.find(b"[", at, at + len(KEY) + 100)
    return None if at < 0 else at + 1


def closes(window: Window, at: int) -> bool:
    """Tell whether the list that begins at `at` is there to its end."""
    history = JsonRows(window, at)
    try:
        while history.next() is not None:
            pass
    except (EOFError, ValueError):
        return False
    return True


def checksum(window: Window, at: int, end: int, crc: int = 0) -> int:
    """Return the checksum of a part of the file, going on from `crc`."""
    while at < end:
        data = window.at(at, min(PART, end - at))
        if not data:
            break
        crc = zlib.crc32(data, crc)
        at += len(data)
    return crc
