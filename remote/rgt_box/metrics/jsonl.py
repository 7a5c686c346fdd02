"""JSON Lines, and the list of rows in transformers' ``trainer_state.json``.

JSON Lines: our own ``metrics.jsonl``, several frameworks, and any file with a step in every row.
From source: LLaMA-Factory ``trainer_log.jsonl``, detectron2 ``metrics.json``, verl's file logger,
torchtune JSONL. Tested: mmengine ``vis_data/*.json``.

``trainer_state.json`` (tested with 5.23) is rewritten at every save, with the complete history.

Its cursor is ``{"version", "start", "offset", "crc", "done"}``: the file's version, where its list
of rows began, how far it was read, and the checksum of the bytes between. If a new version has the
same bytes from its (moved) start of the list, it has the same rows, and only later ones are
decoded. Other bytes mean another history: a resume from an older checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import zlib

from rgt_box.files import open_regular
from rgt_box.metrics import rows
from rgt_box.metrics.metric_names import STEP_KEYS
from rgt_box.metrics.reader_base import (
    BUDGET,
    MAX_TAGS,
    STEP,
    TOTAL,
    WINDOW,
    FileWindow,
    LineReader,
    MetricPoint,
    MetricReader,
)
from rgt_box.metrics.rows import (
    RowLayout,
    flatten_row,
    parse_json_integer,
    to_epoch_seconds,
    to_position,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch


decode = json.JSONDecoder(parse_int=parse_json_integer).decode

LAYOUTS = {
    # Custom loops may write the seconds since their start as ``time``.
    "rgt": RowLayout(tuple(dict.fromkeys(("step", *STEP_KEYS))), drop=("time",)),
    "jsonl": RowLayout(),
    "llamafactory": RowLayout(("current_steps",)),
    # A validation row has no iter, and its step is its epoch; it follows the last iteration of that
    # epoch.
    "mmengine": RowLayout(("iter",), carry=True, drop=("step",), once=("time", "data_time")),
    "detectron2": RowLayout(("iteration",)),
    "verl": RowLayout(("step",), null_is_nan=True),
}
"""Source → layout of its rows."""


class JsonLines(LineReader):
    """A file with one row per line. `source` is a key of `LAYOUTS`."""

    reads_several = True

    def __init__(self, path: str, source: str = "jsonl") -> None:
        super().__init__(path)
        self.source = source
        self._layout = LAYOUTS[source]

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        if not state["offset"]:
            first = [decode_row(raw) for raw in window.head.split(b"\n")[:12]]
            known = [row for row in first if row is not None]
            if rows.counts_epochs_only(known, self._layout):
                state["key"] = ""
            names = (name for row in known for name in flatten_row(row, MAX_TAGS))
            if self.source == "jsonl" and rows.has_no_position(names):
                state["count"] = 0

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        row = decode_row(raw)
        if row is None:
            if raw.strip():
                batch.add_problem(offset, "not a JSON object")
            return
        if self.source == "rgt" and "event" in row:
            if row["event"] == "resume":
                batch.add_restart(to_position(row.get("step")), str(row.get("reason", ""))[:500])
            return
        if self.source == "verl" and isinstance(row.get("data"), dict):
            row = dict(row["data"], step=row.get("step"))
        if dict in map(type, row.values()):
            row = flatten_row(row, MAX_TAGS)
        if str in map(type, row.values()):
            row = rows.name_values(row)
        if not rows.AXES.intersection(row):
            row = {rows.axis_name(key): value for key, value in row.items()}
        where = rows.row_position(row, self._layout, state)
        if where is not None:
            batch.rows.append(len(batch.points))
            rows.add_row_points(row, where, self._layout, batch, offset)


class RunMetrics(JsonLines):
    """A run's ``metrics.jsonl``, sent row by row.

    A read ends after `limit` rows, and before a resume.
    """

    reads_several = False
    budget = WINDOW
    mark = b'"resume"'

    def __init__(self, path: str) -> None:
        super().__init__(path, "rgt")

    def _is_full(self, batch: ReadBatch, limit: int) -> bool:
        return len(batch.rows) >= limit

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        if b'"event"' in raw:
            row = decode_row(raw)
        else:
            row = None
        if row is not None:
            kind = row.get("event")
        else:
            kind = None
        if row is None or not isinstance(kind, str):
            if batch.wait is not None:
                batch.wait = {"what": ""}  # a point: training has continued
            super()._parse_line(raw, offset, state, batch)
            return
        step = to_position(row.get("step"))
        at = to_epoch_seconds(row.get("time"))
        batch.wait = read_wait(row, step or 0.0, at) or batch.wait
        if kind == "resume":
            super()._parse_line(raw, offset, state, batch)
            return
        total = to_position(row.get("total_steps"))
        if kind == "start" and step is not None and total is not None:
            batch.rows.append(len(batch.points))
            batch.points.append(MetricPoint(TOTAL, STEP, step, total, at))
        elif kind in EVENTS and EVENTS[kind].level is not None and step is not None:
            text = describe_event(row, step)
            batch.events.append({"kind": kind, "level": EVENTS[kind].level, "at": at, "text": text})


def read_last_wait(path: str) -> JsonObject | None:
    """Return what the trainer waits for, from the end of its ``metrics.jsonl``; or None."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        with os.fdopen(descriptor, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - CHUNK))
            lines = stream.read(CHUNK).split(b"\n")
    except OSError:
        return None
    found: JsonObject | None = None
    for raw in lines:  # the first line may be cut off and the last incomplete: neither decodes
        row = decode_row(raw)
        if row is None:
            continue
        if not isinstance(row.get("event"), str):
            found = None  # a point: training has continued
            continue
        waits = read_wait(
            row, to_position(row.get("step")) or 0.0, to_epoch_seconds(row.get("time"))
        )
        if waits is not None:
            if waits["what"]:
                found = waits
            else:
                found = None
    return found


def decode_row(raw: bytes) -> JsonObject | None:
    """Decode a JSON object, including NaN and Infinity; None for anything else."""
    try:
        row = decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if isinstance(row, dict):
        return row
    return None


CHUNK = 64 << 10
MAX_ROW = 1 << 20
BETWEEN = " \t\r\n,"
_decode = json.JSONDecoder(parse_int=parse_json_integer).raw_decode


class JsonListRows:
    """Iterates over the objects of a list in a file.

    Attributes:
        at: File offset after the last row.
    """

    def __init__(self, window: FileWindow, at: int) -> None:
        self._window = window
        self.at = at
        self._base = at
        self._text = ""

    def next_object(self) -> JsonObject | None:
        """Return the next object; None at the end of the list. Keys are decoded as Latin-1.

        `ascii_keys` corrects the keys.

        Raises:
            EOFError: when the file ends before the list does.
            ValueError: when the next value is not an object.
        """
        length = CHUNK
        at = self.at
        while True:
            text = self._text
            place = at - self._base
            while place < len(text) and text[place] in BETWEEN:
                place += 1
            at = self._base + place
            if place < len(text):
                if text[place] == "]":
                    return None
                try:
                    row, end = _decode(text, place)
                    if not isinstance(row, dict):
                        raise RecursionError
                    self.at = self._base + end
                    return row
                except RecursionError:
                    raise ValueError("no object") from None
                except ValueError:
                    if self._base + len(text) >= self._window.size or len(text) - place >= MAX_ROW:
                        raise
            elif self._base + len(text) >= self._window.size:
                raise EOFError
            if len(text) - place >= length:
                length *= 2
            self._base, self._text = at, self._window.read_at(at, length).decode("latin-1")
            if not self._text:
                raise EOFError


def ascii_keys(row: JsonObject) -> JsonObject:
    """Return `row` with keys that were UTF-8 corrected."""
    if all(key.isascii() for key in row):
        return row
    return {redecode_as_utf8(key): value for key, value in row.items()}


def redecode_as_utf8(text: str) -> str:
    """Return text that was decoded as Latin-1, decoded as UTF-8 instead."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


LAYOUT = RowLayout(("step",))
MAX_BYTES = 1 << 30
KEY = b'"log_history"'
PART = 1 << 20
TAIL = 64 << 10
"""Bytes after the history that are searched for `max_steps`: keys are sorted, and the long ones
come before it."""
_STEP = re.compile(rb'"global_step": {0,4}(\d{1,15})\b')
_TOTAL = re.compile(rb'"max_steps": {0,4}(\d{1,15})\b')


class TrainerState(MetricReader):
    """One ``trainer_state.json``. Of several checkpoints, the newest has the complete history."""

    source = "hf_trainer"

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            found = os.fstat(fd)
            version = [found.st_ino, found.st_size, found.st_mtime_ns]
            state = dict(batch.cursor or {})
            if state.get("version") != version:
                if found.st_size > MAX_BYTES:
                    batch.add_problem(0, "larger than %d MiB" % (MAX_BYTES >> 20))
                    return
                state = resume_in_new_version(FileWindow(fd), state, batch)
                state["version"] = version
            if state.get("done") is False:
                self._read_history(FileWindow(fd), state, batch, limit)
                batch.cursor = state
        finally:
            os.close(fd)

    @staticmethod
    def _read_history(window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int) -> None:
        """Read rows from ``state["offset"]`` on."""
        history = JsonListRows(window, state["offset"])
        first = state["offset"]
        state["done"] = True
        try:
            row = history.next_object()
            while row is not None:
                at, state["offset"] = state["offset"], history.at
                state["crc"] = window_checksum(window, at, history.at, state["crc"])
                row = flatten_row(ascii_keys(row), MAX_TAGS)
                where = rows.row_position(row, LAYOUT, {})
                if where is not None:
                    rows.add_row_points(row, where, LAYOUT, batch, at)
                if len(batch.points) >= limit or history.at - first >= BUDGET:
                    batch.more, state["done"] = True, False
                    return
                row = history.next_object()
            add_planned_steps(window, state, history.at, batch)
        except EOFError:
            pass  # the file is being written: the next version has the rest
        except ValueError as error:
            batch.add_problem(history.at, f"log_history: {error}")


def add_planned_steps(window: FileWindow, state: JsonObject, at: int, batch: ReadBatch) -> None:
    """Add the planned number of steps, if the file has it after its history, which ends at `at`."""
    step = _STEP.search(window.read_at(0, min(PART, state["start"])))
    total = _TOTAL.search(window.read_at(at, TAIL))
    if step is None or total is None or int(total.group(1)) in (0, state.get("total")):
        return
    state["total"] = int(total.group(1))
    at_step = float(step.group(1))
    batch.points.append(MetricPoint(TOTAL, STEP, at_step, float(state["total"]), None))


def resume_in_new_version(window: FileWindow, state: JsonObject, batch: ReadBatch) -> JsonObject:
    """Return where to resume in a new version of the file; without ``done`` if it is incomplete."""
    start = find_history_start(window)
    if start is None:
        return {}
    end = window.read_at(max(0, window.size - 64), 64)
    if not end.rstrip().endswith(b"}"):
        return {}
    known = state.get("offset", 0) - state.get("start", 0)
    if known > 0:
        same = (
            start + known <= window.size
            and window_checksum(window, start, start + known) == state["crc"]
        )
        if same:
            return {**state, "start": start, "offset": start + known, "done": False}
        if not is_list_complete(window, start):
            return {}
        batch.reset = True
    return {"start": start, "offset": start, "crc": 0, "done": False}


def find_history_start(window: FileWindow) -> int | None:
    """Return the offset after the bracket that opens the history; None if not found."""
    data = window.read_at(0, PART)
    at = data.find(KEY)
    if at < 0:
        return None
    at = data.find(b"[", at, at + len(KEY) + 100)
    if at < 0:
        return None
    return at + 1


def is_list_complete(window: FileWindow, at: int) -> bool:
    """Return whether the list that begins at `at` is complete."""
    history = JsonListRows(window, at)
    try:
        while history.next_object() is not None:
            pass
    except (EOFError, ValueError):
        return False
    return True


def window_checksum(window: FileWindow, at: int, end: int, crc: int = 0) -> int:
    """Return the checksum of a part of the file, continuing from `crc`."""
    while at < end:
        data = window.read_at(at, min(PART, end - at))
        if not data:
            break
        crc = zlib.crc32(data, crc)
        at += len(data)
    return crc


# Events that our trainer writes into ``metrics.jsonl``: how each is reported to a client, and which
# ones are waits. `tests/unit/box/test_trainer_events.py` compares this table with the trainer's own
# code.


if TYPE_CHECKING:

    class EventKind(NamedTuple):
        """How to handle one kind of event."""

        level: "str | None"
        """Level of the ``event`` frame; None if no frame is sent, because another frame reports
        it."""
        waits_for: str = ""
        """``disk`` or ``mirror``: training is paused from here on, with its work in memory."""
        ends_wait: bool = False
else:
    from collections import namedtuple

    EventKind = namedtuple("Kind", "level waits_for ends_wait", defaults=("", False))

EVENTS = {
    "start": EventKind(None, ends_wait=True),  # the scalars include its total_steps
    "resume": EventKind(None, ends_wait=True),  # the scalars include resumes
    "checkpoint": EventKind(None, ends_wait=True),  # reported by a ckpt frame
    "checkpoint-failed": EventKind("error"),
    "checkpoint-recovered": EventKind("info", ends_wait=True),
    "hold": EventKind("error", waits_for="disk"),
    "mirror-wait": EventKind("error", waits_for="mirror"),
    "given-up": EventKind("error", ends_wait=True),
    "mirrored": EventKind(None),  # one per checkpoint
    "mirror-failed": EventKind("warn"),
    "nonfinite": EventKind("warn"),
    "spike": EventKind("warn"),
    "left-out": EventKind("info"),
    "stalled": EventKind("error"),
    "stop": EventKind("info", ends_wait=True),
    "done": EventKind("info", ends_wait=True),
}


def describe_event(row: JsonObject, step: float) -> str:
    """Return a text that describes an event of a run."""
    text = _WORDS.get(row["event"], _failure_text)(row)
    # Maximum characters of an event.
    most_event_text = 2000
    return ("step %d" % step + (": " + text if text else ""))[:most_event_text]


def read_wait(row: JsonObject, step: float, at: float | None) -> JsonObject | None:
    """Return the wait that an event begins or ends, for a ``scalar`` frame.

    ``{"what": ""}`` means that a wait is over, and None that the event changes nothing.
    """
    kind = EVENTS.get(row["event"])
    if kind is None or not (kind.waits_for or kind.ends_wait):
        return None
    if not kind.waits_for:
        return {"what": ""}
    limit = row.get("limit_s")
    if at is not None and isinstance(limit, (int, float)):
        until = at + limit
    else:
        until = None
    unsaved = row.get("unsaved")
    return {
        "what": kind.waits_for, "step": int(step), "at": at, "until": until,
        "unsaved": unsaved if isinstance(unsaved, int) else None,
    }  # fmt: skip


def _failure_text(row: JsonObject) -> str:
    text = str(row.get("error") or "")
    if row.get("resource"):
        text += f" ({row['resource']} of {row.get('mount') or 'the disk'})"
    return text.strip()


def _save_hold_text(row: JsonObject) -> str:
    return "{} steps are not saved; it waits up to {} for free space, with its state in memory".format(
        row.get("unsaved", "?"), _limit_text(row),
    )  # fmt: skip


def _given_up_text(row: JsonObject) -> str:
    why = ""
    if row.get("error"):
        why = f": {row['error']}"
    return f"it stopped trying to save, {row.get('unsaved', '?')} steps are lost{why}"


def _mirror_wait_text(row: JsonObject) -> str:
    return "it waits up to {} for the mirror {}: {} does not exist".format(
        _limit_text(row), row.get("url", "?"), row.get("left", "a checkpoint"),
    )  # fmt: skip


def _limit_text(row: JsonObject) -> str:
    limit = row.get("limit_s")
    if not isinstance(limit, (int, float)):
        return "?"
    if limit < 120:
        return f"{limit:.0f} s"
    return "%.0f min" % (limit / 60)


_WORDS: dict[str, Callable[[JsonObject], str]] = {
    "hold": _save_hold_text,
    "given-up": _given_up_text,
    "mirror-wait": _mirror_wait_text,
    "checkpoint-recovered": lambda row: "saved again",
    "mirror-failed": lambda row: f"mirror {row.get('url', '?')}: {row.get('error', '?')}",
    "nonfinite": lambda row: (
        f"skipped, loss {row.get('loss')}, gradient norm {row.get('grad_norm')}"
    ),
    "spike": lambda row: (
        f"loss {row.get('loss')}, the median is {row.get('median')}: {row.get('action')}"
    ),
    "left-out": lambda row: "left out",
    "stalled": lambda row: f"no step for {row.get('seconds')} s; stacks in {row.get('path')}",
    "stop": lambda row: f"stopped: {row.get('reason')}",
}
