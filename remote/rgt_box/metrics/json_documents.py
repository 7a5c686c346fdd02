"""A JSON document: a list of rows, or names with a list of values each.

Keras' ``history.json`` and files that a program rewrites after every epoch. A new version is read
from its beginning, because any part of it may be another one.

Its cursor is ``{"version", "done"}``: the file's version, and how many of its rows were read.
"""

from __future__ import annotations

import json
import os
import re

from rgt_wire.metric_roles import MEASURES, is_evaluation, position_of, role_of

from rgt_box.files import open_regular
from rgt_box.metrics import rows
from rgt_box.metrics.reader_base import EPOCH, MAX_TAGS, STEP, FileWindow, MetricReader
from rgt_box.metrics.rows import RowLayout, flatten_row, parse_json_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch

MAX_BYTES = 16 << 20
"""A larger document would be decoded too often while it grows."""
LAYOUT = RowLayout()
_ROWS = re.compile(rb'(?:^|":)\s*\[\s*\{|^\s*\{\s*"\d{1,9}"\s*:\s*\{')
"""A list of objects, or objects by their number."""
_NUMBERS = re.compile(rb'"([^"\\]{1,100})"\s*:\s*(\[\s*)?(?:-?\d|NaN)')
"""A name with a number, or with a list of numbers."""

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
"""The number of a row; `str.isdigit` also takes "²", which is no number to `int`."""


def is_json_document(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of such a document."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    in_rows = _ROWS.search(head[:16384]) is not None
    for name, opened in _NUMBERS.findall(head[:16384]):
        measured = role_of(name.decode("utf-8", "replace")) in MEASURES
        if measured and bool(opened) != in_rows:
            return True
    return False


class JsonDocument(MetricReader):
    """One document; all of it is decoded at once."""

    source = "json"

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        descriptor = open_regular(self.path)
        try:
            found = os.fstat(descriptor)
            version = [found.st_ino, found.st_size, found.st_mtime_ns]
            state = dict(batch.cursor or {})
            if state.get("version") == version and not state.get("more"):
                return
            if found.st_size > MAX_BYTES:
                batch.add_problem(0, "larger than %d MiB" % (MAX_BYTES >> 20))
                return
            data = FileWindow(descriptor).read_at(0, found.st_size)
        finally:
            os.close(descriptor)
        try:
            value = json.loads(data.decode("utf-8-sig", "replace"), parse_int=parse_json_integer)
        except (ValueError, RecursionError):
            return  # it is being written
        if state.get("version") != version:
            batch.reset = bool(state)
            state = {"version": version, "done": 0}
        state["more"] = batch.more = self._add_rows(value, state, batch, limit)
        batch.cursor = state

    @staticmethod
    def _add_rows(value: Any, state: JsonObject, batch: ReadBatch, limit: int) -> bool:
        """Add the rows from ``state["done"]`` on; return whether there are more."""
        for number, (row, where) in enumerate(iterate_rows(value)):
            if number < state["done"]:
                continue
            if len(batch.points) >= limit:
                return True
            rows.add_row_points(row, where, LAYOUT, batch, 0)
            state["done"] = number + 1
        return False


def iterate_rows(value: Any) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    """Yield each row of a document with its position (x kind, x)."""
    if isinstance(value, dict):
        listed = next((part for part in value.values() if _is_list_of_objects(part)), None)
        if listed is not None:
            value = listed
        elif value and all(
            _NUMBER.fullmatch(key) and isinstance(value[key], dict) for key in value
        ):
            value = [{"epoch": int(key), **value[key]} for key in value]
        else:
            yield from _iterate_columns(flatten_row(value, MAX_TAGS))
            return
    if not _is_list_of_objects(value):
        return
    state: JsonObject = {}
    for row in value:
        if not isinstance(row, dict):
            continue
        row = rows.name_values(flatten_row(row, MAX_TAGS))
        where = rows.row_position(row, LAYOUT, state)
        if where is not None:
            yield row, where


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and isinstance(value[0], dict)


def _iterate_columns(columns: JsonObject) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    """Yield the rows of names with a list of values each; without a position, the rows are counted."""
    lists = {name: part for name, part in columns.items() if isinstance(part, list) and part}
    if not any(role_of(name) in MEASURES for name in lists):
        return
    found = [(named[1], name, named[0]) for name in lists for named in [position_of(name)] if named]
    kind = STEP
    if any(map(is_evaluation, lists)):
        kind = EPOCH  # Keras' History has one value of each epoch
    axis = ""
    if found:
        _, axis, kind = min(found)
    for number in range(max(map(len, lists.values()))):
        row = {name: part[number] for name, part in lists.items() if number < len(part)}
        x = rows.to_position(row.pop(axis, number + 1))
        if x is not None:
            yield row, (kind, x)
