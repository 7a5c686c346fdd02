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

from rgt_wire.metric_roles import EVALUATION, LOSS, MEASURES, is_evaluation, position_of, role_of

from rgt_box.files import open_regular
from rgt_box.metrics import rows
from rgt_box.metrics.reader_base import EPOCH, MAX_TAGS, ROW, STEP, FileWindow, MetricReader
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
_NAMES = re.compile(rb"[\"']([^\"'\\]{1,100})[\"']\s*:\s*(\[)?")
"""A name, and whether it has a list."""
_LONG_LIST = re.compile(rb"\s*\{\s*[\"'][^\"'\\]{1,100}[\"']\s*:\s*\[[-+\d.eE,\s]*(?:\Z|\])")
"""A document that begins with a list of numbers: the names of its measures may come later."""
_NUMBERED = re.compile(r"(?:([A-Za-z]{1,12})[ _-]?)?(\d{1,9})", re.ASCII)
"""The name of a numbered row: ``12`` or ``epoch_12``; `str.isdigit` also takes "²"."""
_CALL = re.compile(
    r"\b(?:np\.|torch\.|numpy\.)?(?:float\d{0,2}|int\d{0,2}|array|tensor)"
    r"\(([-+.\deE]{1,40}|nan|inf)"
    r"(?:, ?[a-z_]{1,20}=[\w.'<>]{1,40}){0,3}\)"
)
"""A number as NumPy and PyTorch print it inside of a dictionary."""
_TIMED = re.compile(rb"\s*\[\s*\[\s*\d{10}\.\d")
"""The file that TensorBoard's page writes: time, step and value."""
_WORDS = re.compile(r"\b(None|True|False|nan|inf)\b")
_JSON_WORDS = {"None": "null", "True": "true", "False": "false", "nan": "NaN", "inf": "Infinity"}
_SETS = frozenset((*EVALUATION, "train", "training"))


def decode_document(text: str) -> Any:
    """Return the value of a document; a list of several ones that follow each other.

    A printed Python dictionary counts as JSON.

    Raises:
        ValueError: when it is neither.
    """
    decoder = json.JSONDecoder(parse_int=parse_json_integer)
    text = text.strip()
    is_python = "'" in text[:400] and '"' not in text[:400]
    if is_python:
        text = _CALL.sub(r"\1", text.replace("'", '"')).replace("(", "[").replace(")", "]")
        text = _WORDS.sub(lambda found: _JSON_WORDS[found.group()], text)
    values = []
    end = 0
    while end < len(text):
        value, end = decoder.raw_decode(text, end)
        values.append(value)
        while text[end : end + 1].isspace() or text[end : end + 1] == ",":
            end += 1
    if len(values) == 1:
        return values[0]
    if is_python:
        raise ValueError("a log of dictionaries is one of the console's")
    return values


def is_json_document(path: str, head: bytes) -> bool:
    """Return whether a file is such a document, with rows or lists of a training's numbers."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    is_named = role_of(name_of_file(path)) in MEASURES or _TIMED.match(head) is not None
    if not _may_have_measures(head, is_named) and _LONG_LIST.match(head) is None:
        return False
    text = _read_text(path)
    # A file that is being written is not decoded.
    if len(text) > MAX_BYTES or text.rstrip()[-1:] not in (b"}", b"]", b")", b","):
        return False
    return _may_have_measures(text, is_named) and any(True for _ in _read_rows(path))


def _may_have_measures(text: bytes, is_named: bool) -> bool:
    names = [(name.decode("utf-8", "replace"), opened) for name, opened in _NAMES.findall(text)]
    if not is_named and not any(role_of(name) in MEASURES for name, _ in names):
        return False
    return not any(opened and name.lower() in IDENTIFIERS for name, opened in names)


def counts_rows(path: str) -> bool:
    """Return whether the rows of such a document have no position of their own."""
    found = next(_read_rows(path), None)
    return found is not None and found[1][0] == COUNTED


def _read_rows(path: str) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    try:
        value = decode_document(_read_text(path).decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return
    yield from iterate_rows(value, name_of_file(path))


def _read_text(path: str) -> bytes:
    descriptor = open_regular(path)
    try:
        return FileWindow(descriptor).read_at(0, MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def name_of_file(path: str) -> str:
    """Return the name that a list without one has: that of its file."""
    stem = os.path.splitext(os.path.basename(path))[0].rpartition("-tag-")[2]
    if role_of(stem) == LOSS:
        return "loss"
    return stem


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
                found_rows = iterate_rows(decode_document(text), name_of_file(self.path))
                self._rows = itertools.islice(found_rows, state["done"], None)
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
            values, (kind, x) = row
            if kind == COUNTED:
                kind = ROW
            rows.add_row_points(values, (kind, x), LAYOUT, batch, 0)
            self._done += 1
        state["done"] = self._done
        state["more"] = batch.more = bool(self._version)
        batch.cursor = state


COUNTED = "counted"
"""The axis of a row that has no position; it is shown as a step."""


def iterate_rows(value: Any, stem: str) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    """Yield each row of a document with its position (x kind, x).

    Args:
        value: The decoded document.
        stem: The name of a list that has none.
    """
    if isinstance(value, list):
        if _is_list_of_objects(value):
            yield from _iterate_objects(value, "")
        else:
            timed = all(isinstance(row, list) and len(row) == 3 for row in value)
            yield from _iterate_columns({stem: value}, timed)
        return
    if not isinstance(value, dict):
        return
    numbered = _number_rows(value)
    if numbered:
        yield from _iterate_objects(numbered, "")
        return
    lists = {name: part for name, part in value.items() if _is_list_of_objects(part)}
    for name, part in value.items():
        if isinstance(part, dict) and _number_rows(part):
            lists[name] = _number_rows(part)
    found = False
    for name, part in lists.items():
        prefix = ""
        if len(lists) > 1 and name.lower() in _SETS:
            prefix = name + "/"
        if found and not prefix:
            continue  # another list, such as that of the best results
        for row in _iterate_objects(part, prefix):
            found = True
            yield row
    if not found:
        columns = flatten_row(value, MAX_TAGS)
        if role_of(stem) in MEASURES and not any(
            role_of(name) in MEASURES for name, part in columns.items() if isinstance(part, list)
        ):
            for name in [name for name in columns if name.lower() in _SETS]:
                columns[f"{name}/{stem}"] = columns.pop(name)
        yield from _iterate_columns(columns)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and isinstance(value[0], dict)


def _number_rows(value: JsonObject) -> list[JsonObject]:
    """Return objects by their number as rows with it: ``{"epoch_1": {"loss": 0.5}}``; else []."""
    found: list[JsonObject] = []
    for name, part in value.items():
        number = _NUMBERED.fullmatch(name)
        if number is None or not isinstance(part, dict):
            return []
        word = (number.group(1) or "epoch").lower()
        if position_of(word) is None:
            return []
        found.append({word: int(number.group(2)), **part})
    return found


def _iterate_objects(
    value: list[Any], prefix: str
) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    """Yield the rows of a list of objects; without a position they may be counted."""
    state: JsonObject = {}
    flat = [rows.name_values(flatten_row(row, MAX_TAGS)) for row in value if isinstance(row, dict)]
    if not any(role_of(name) in MEASURES for row in flat[:20] for name in row):
        return
    if flat and IDENTIFIERS.isdisjoint(map(str.lower, flat[0])) and rows.has_no_position(flat[0]):
        if any(isinstance(y, str) for y in flat[0].values()):
            return  # the results of models, or of samples
        state["count"] = 0
    for row in flat:
        where = rows.row_position(row, LAYOUT, state)
        if where is None:
            continue
        if prefix:
            for name in [name for name in row if position_of(name) is None]:
                row[prefix + name] = row.pop(name)
        if "count" in state:
            where = COUNTED, where[1]
        yield row, where


def _iterate_columns(
    columns: JsonObject, is_measured: bool = False
) -> Iterator[tuple[JsonObject, tuple[str, float]]]:
    """Yield the rows of names with a list of values each; without a position, the rows are counted."""
    lists = {name: part for name, part in columns.items() if isinstance(part, list) and part}
    if not is_measured and not any(role_of(name) in MEASURES for name in lists):
        return
    # Each value may have its position: [[10, 0.5], [20, 0.4]], with the time before it in what
    # TensorBoard's page writes.
    for name in list(lists):
        pairs = lists[name]
        if all(isinstance(pair, list) and len(pair) in (2, 3) for pair in pairs):
            del lists[name]
            xs = [rows.to_position(pair[-2]) for pair in pairs]
            if None not in xs and xs == sorted(set(xs)):  # type: ignore[type-var]
                for x, pair in zip(xs, pairs):
                    yield {name: pair[-1]}, (STEP, x or 0.0)
    lists = {
        name: part for name, part in lists.items() if not isinstance(part[0], (list, dict, str))
    }
    if not lists:
        return
    found = [(named[1], name, named[0]) for name in lists for named in [position_of(name)] if named]
    kind = COUNTED
    axis = ""
    if found:
        _, axis, kind = min(found)
    elif any(map(is_evaluation, lists)):
        kind = EPOCH  # Keras' History has one value of each epoch
    for number in range(max(map(len, lists.values()))):
        row = {name: part[number] for name, part in lists.items() if number < len(part)}
        if axis and axis not in row:
            return
        x = rows.to_position(row.pop(axis, number + 1))
        if x is not None:
            yield row, (kind, x)
