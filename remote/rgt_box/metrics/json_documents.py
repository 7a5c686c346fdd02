"""A JSON document: a list of rows, or names with a list of values each.

Keras' ``history.json`` and files that a program rewrites after every epoch. A new version is read
from its beginning, because any part of it may be another one; its rows are kept until all are read.

Its cursor is ``{"version", "done"}``: the file's version, and how many of its rows were read.
"""

from __future__ import annotations

import itertools
import json
import os
import re

from rgt_wire.metric_roles import MEASURES, is_evaluation, position_of, role_of

from rgt_box.files import open_regular
from rgt_box.metrics import rows
from rgt_box.metrics.reader_base import EPOCH, MAX_TAGS, STEP, FileWindow, MetricReader
from rgt_box.metrics.rows import IDENTIFIERS, RowLayout, flatten_row, parse_json_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch

MAX_BYTES = 4 << 20
"""A larger document would be decoded too often while it grows, and its objects take ten times the
memory.
"""
LAYOUT = RowLayout()
_NUMBERED = re.compile(rb'^\s*\{\s*"\d{1,9}"\s*:\s*\{')
"""Objects by their number."""
_ROWS = re.compile(rb'(?:^|":)\s*\[\s*\{|' + _NUMBERED.pattern)
"""A list of objects, or objects by their number."""
_NUMBERS = re.compile(rb'"([^"\\]{1,100})"\s*:\s*(\[\s*)?(?:-?\d|NaN)')
"""A name with a number, or with a list of numbers."""
_NAMES = re.compile(rb'"([^"\\]{1,100})"\s*:\s*(\[)?')
"""A name, and whether it has a list."""
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
"""The number of a row; `str.isdigit` also takes "²", which is no number to `int`."""


def is_json_document(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of such a document."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    in_rows = _ROWS.search(head[:16384]) is not None
    if in_rows and not _NUMBERED.search(head) and not _has_position(head, in_lists=False):
        return False  # such rows are results of samples
    if not in_rows and any(
        opened and name.decode("utf-8", "replace").lower() in IDENTIFIERS
        for name, opened in _NAMES.findall(head)
    ):
        return False
    for name, opened in _NUMBERS.findall(head[:16384]):
        measured = role_of(name.decode("utf-8", "replace")) in MEASURES
        if measured and bool(opened) != in_rows:
            return True
    return False


def counts_rows(path: str, head: bytes) -> bool:
    """Return whether the rows of such a document have no position of their own."""
    if _ROWS.search(head[:16384]) is not None or _has_position(head, in_lists=True):
        return False
    # The list of positions may follow long lists of values.
    descriptor = open_regular(path)
    try:
        text = FileWindow(descriptor).read_at(0, MAX_BYTES)
    finally:
        os.close(descriptor)
    return not _has_position(text, in_lists=True)


def _has_position(text: bytes, in_lists: bool) -> bool:
    """Return whether one of the names is a position, as a list if the document has lists."""
    return any(
        position_of(name.decode("utf-8", "replace")) is not None
        for name, opened in _NAMES.findall(text)
        if opened or not in_lists
    )


class JsonDocument(MetricReader):
    """One document; all of it is decoded at once."""

    source = "json"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._version: list[int] = []
        self._done = 0
        self._rows: Iterator[tuple[JsonObject, tuple[str, float]]] = iter(())

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
            is_reset = bool(state) and state.get("version") != version
            if state.get("version") != version:
                state = {"version": version, "done": 0}
            if [version, state["done"]] != [self._version, self._done]:
                data = FileWindow(descriptor).read_at(0, found.st_size)
                text = data.decode("utf-8-sig", "replace")
                value = json.loads(text, parse_int=parse_json_integer)
                self._rows = itertools.islice(iterate_rows(value), state["done"], None)
                self._version, self._done = version, state["done"]
        except (ValueError, RecursionError):
            return  # it is being written
        finally:
            os.close(descriptor)
        batch.reset = is_reset
        while len(batch.points) < limit:
            row = next(self._rows, None)
            if row is None:
                self._version, self._rows = [], iter(())
                break
            rows.add_row_points(*row, LAYOUT, batch, 0)
            self._done += 1
        state["done"] = self._done
        state["more"] = batch.more = bool(self._version)
        batch.cursor = state


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
        if axis and axis not in row:
            return
        x = rows.to_position(row.pop(axis, number + 1))
        if x is not None:
            yield row, (kind, x)
