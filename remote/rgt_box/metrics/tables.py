"""Text tables: CSV files with a header, and torchtune's log.

CSV dialects: Lightning, Fabric, Ultralytics, Keras, DeepSpeed, and any file with a step or epoch.

Tested with lightning 2.6.6 (sparse rows; a new metric rewrites the file with another header),
ultralytics 8.4 (older versions pad names and cells with blanks) and keras 3.15. Written from
source: DeepSpeed's csv_monitor (repeats its header at every restart; its step counts samples).

torchtune's ``log_<unix>.txt`` has lines such as ``Step 1 | loss:2.34 lr:2e-05`` (written from
source).
"""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache

from rgt_wire.metric_roles import MEASURES, position_of, role_of

from rgt_box.metrics import rows
from rgt_box.metrics.reader_base import EPOCH, ROW, SAMPLES, STEP, LineReader
from rgt_box.metrics.rows import CHECKPOINT, RowLayout, to_number, to_position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import FileWindow, ReadBatch

LAYOUTS = {
    "csv": RowLayout(),
    "lightning": RowLayout(("step",)),
    "ultralytics": RowLayout(()),
    "keras": RowLayout(()),
    "deepspeed": RowLayout(("step",)),
    "optuna": RowLayout(("number",)),
}
"""Source → layout of its rows; without step keys, each row is one epoch."""

SUMS = {"ultralytics": (("train/loss", "train/"), ("val/loss", "val/"))}
"""Source → totals that it does not write: (name, prefix of the losses to add up)."""

DELIMITERS = ",\t;|"
_COMMENT = "#%"
"""What begins a comment line before or among the rows."""
_COMMA = re.compile(r"^\s*(-?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$")
_THOUSANDS = re.compile(r"^\s*-?[1-9]\d{0,2}(?:,\d{3})+\s*$")
_MISSING = frozenset(("", "n/a", "na", "none", "null", "?"))
"""Cells of a value that is not known."""
_MONITOR = {"r": "reward", "l": "episode_length", "t": "seconds"}
"""Columns of Stable-Baselines' ``monitor.csv``: one row per episode."""


class TableHeader:
    """The names of a table's columns, and how its lines are cut.

    Attributes:
        names: One per column; "" for a column without a name.
        delimiter: "" for any number of blanks.
        is_strict: The rows below the names are numbers and nothing else, and as many.
    """

    __slots__ = ("delimiter", "is_strict", "names")

    def __init__(self, names: list[str], delimiter: str, is_strict: bool) -> None:
        self.names = names
        self.delimiter = delimiter
        self.is_strict = is_strict


@lru_cache(maxsize=4)
def find_header(head: bytes) -> TableHeader | None:
    """Return the header in the first bytes of a file; None if it has none.

    Comments may precede it, or it is a comment itself (NumPy's savetxt).
    """
    # Spreadsheet programs write a byte order mark, which would become part of the first name.
    lines = [
        line.rstrip("\r") for line in head.decode("utf-8-sig", "replace").split("\n")[:-1][:50]
    ]
    texts = [line for line in lines if line.strip()]
    comments = []
    while texts and texts[0].lstrip()[0] in _COMMENT:
        comments.append(texts.pop(0).lstrip("#% "))
    if not texts and comments:
        texts.append(comments.pop())
    if not texts:
        return None
    if not read_numbers(texts[0]):
        return _cut_header(texts[0], texts[1:6])
    for comment in reversed(comments):
        found = _cut_header(comment, texts[:5])
        if found is not None and found.is_strict:
            return found
    return None


def _cut_header(text: str, rows_below: list[str]) -> TableHeader | None:
    """Return the names in a line, cut as the rows below it are."""
    best: TableHeader | None = None
    for delimiter in (*DELIMITERS, ""):
        if delimiter not in text:
            continue
        names = [name.strip().strip('"') for name in split_cells(text.strip(), delimiter)]
        cells = [split_cells(row, delimiter) for row in rows_below]
        for row in cells:
            while len(row) > len(names) and not row[-1].strip():
                row.pop()  # a delimiter at the end of each row
        if delimiter in ("", "\t", ",") and _has_row_names(names, cells, rows_below, delimiter):
            names = ["", *names]
        is_strict = all(
            len(row) == len(names)
            and all(_is_number(cell) or cell.strip(" -").lower() in _MISSING for cell in row)
            for row in cells
        ) and any(_is_number(cell) for row in cells for cell in row)
        if delimiter in ("", "|") and not (is_strict and len(rows_below) > 2):
            continue  # they divide the words of any text
        found = TableHeader(names, delimiter, is_strict)
        if best is None or (is_strict and not best.is_strict):
            best = found
    return best


def _is_number(cell: str) -> bool:
    return to_number(cell.strip()) is not None


def _has_row_names(
    names: list[str], cells: list[list[str]], rows_below: list[str], delimiter: str
) -> bool:
    """Return whether rows begin with their number, as R's write.table writes it: without a name.

    A header with one name too few looks the same, and would name each column wrongly.
    """
    if set(map(len, cells)) != {len(names) + 1}:
        return False
    begins_with_position = position_of(names[0]) is not None
    if begins_with_position and not all((to_number(row[1]) or 0.0) % 1 == 0 for row in cells):
        return False
    if delimiter != "," or all(row.lstrip().startswith('"') for row in rows_below):
        return True
    counted = [str(number) for number in range(1, len(cells) + 1)]
    return not begins_with_position and [row[0].strip() for row in cells] == counted


def _find_thousands(head: bytes, delimiter: str, names: list[str]) -> set[int]:
    """Return the columns whose commas divide thousands; those of the others are decimal points."""
    lines = head.decode("utf-8-sig", "replace").split("\n")[1:-1]
    split = [split_cells(line.strip(), delimiter) for line in lines]
    columns = list(zip(*[row for row in split if len(row) == len(names)]))
    # Commas divide thousands in a file that has two in one number, or a point after one.
    is_sure = any(
        cell.count(",") > 1 or 0 <= cell.find(",") < cell.find(".")
        for column in columns
        for cell in column
        if _is_number(cell)
    )
    found = set()
    for place, column in enumerate(columns):
        whole = [cell.partition(".")[0] for cell in column if "," in cell]
        if (is_sure or position_of(names[place])) and all(map(_THOUSANDS.match, whole)):
            found.add(place)
    return found


class Table(LineReader):
    """A table with one row per line. `source` is a key of `LAYOUTS`."""

    reads_several = True

    def __init__(self, path: str, source: str = "csv") -> None:
        super().__init__(path)
        self.source = source
        self._layout = LAYOUTS[source]
        self._header: list[str] = []
        self._names: list[str] = []
        self._delimiter = ","
        self._thousands: set[int] = set()

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        found = find_header(window.head)
        if found is None:
            self._header = []
            return
        self._delimiter = found.delimiter
        self._header = found.names
        if found.delimiter not in (",", ";"):
            self._thousands = _find_thousands(window.head, found.delimiter, found.names)
        self._names = self._axis_names(state.get("names") or found.names, state)

    def _axis_names(self, header: list[str], state: JsonObject) -> list[str]:
        names = [rows.axis_name(name) for name in header]
        if self.source == "optuna":
            # The parameters of a trial are no figures, and "params_lr" would be taken for a rate.
            return [re.sub(r"^(?!number|value).*", "", name) for name in names]
        if [name.lower() for name in names] == ["wall time", "step", "value"]:
            # TensorBoard's page writes one figure into "run-NAME-tag-TAG.csv".
            stem = os.path.splitext(os.path.basename(self.path))[0]
            names = ["timestamp", "step", stem.rpartition("-tag-")[2]]
        is_monitor = names[:3] == list(_MONITOR)
        if is_monitor:
            names = [_MONITOR.get(name, name) for name in names]
        if is_monitor or rows.has_no_position(names):
            # pandas writes the index of its rows without a name.
            if names[0].lower() in ("", "unnamed: 0"):
                names[0] = "step"
            else:
                state.setdefault("count", 0)
        return names

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        text = raw.decode("utf-8-sig", "replace").strip()
        if not self._header:
            if offset == 0:
                batch.add_problem(0, "no header that could be read")
            return
        if not text or text[0] in _COMMENT:
            return
        values = split_cells(text, self._delimiter)
        if not any(map(_is_number, values)):
            self._apply_header(values, state, batch)
            return
        while len(values) > len(self._names) and not values[-1].strip():
            values.pop()  # a delimiter at the end of each row
        if len(values) != len(self._names):
            batch.add_problem(offset, "%d cells under %d names" % (len(values), len(self._names)))
            return
        if self._delimiter != ",":
            # Where something else separates cells, a comma is the decimal point.
            values = [
                value if place in self._thousands else _COMMA.sub(r"\1.\2", value)
                for place, value in enumerate(values)
            ]
        row: JsonObject = dict(zip(self._names, values))
        row.pop("", None)
        if self._names[0].lower() in CHECKPOINT:
            row["step"] = checkpoint_step(row.pop(self._names[0]))
        for name, prefix in SUMS.get(self.source, ()):
            add_sum(row, name, prefix)
        where = rows.row_position(row, self._layout, state)
        if where is None:
            return
        # Its column "step" counts samples.
        if self.source == "deepspeed":
            where = SAMPLES, where[1]
        rows.add_row_points(row, where, self._layout, batch, offset)

    def _apply_header(self, values: list[str], state: JsonObject, batch: ReadBatch) -> None:
        """Read a line without a number: names of a restart, or new ones; others are skipped."""
        header = [value.strip().strip('"') for value in values]
        if header == self._header[-len(header) :] and not state.get("names"):
            if state.get("headed"):
                # DeepSpeed repeats its header at every restart.
                batch.add_restart(None, "header repeated")
            state["headed"] = True
        elif (
            len(header) > 1
            and "" not in header
            and len(set(header)) == len(header)
            and (header[0] in self._header or not any(map(str.isdigit, "".join(header))))
            and any(position_of(name) or role_of(name) in MEASURES for name in header)
        ):
            state["names"] = header
            self._names = self._axis_names(header, state)


def split_cells(text: str, delimiter: str) -> list[str]:
    """Split one line of a table into cells."""
    # Without a quote, every delimiter divides two cells, so `csv` need not be imported.
    if not delimiter:
        return text.replace('"', "").split()
    if '"' not in text:
        return text.split(delimiter)
    import csv

    try:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return []


def add_sum(row: JsonObject, name: str, prefix: str) -> None:
    """Add the sum of all ``<prefix>*_loss`` to `row`, unless it already has `name`."""
    parts = [to_number(row[key]) for key in row if key.startswith(prefix) and key.endswith("_loss")]
    known = [part for part in parts if part is not None]
    # A sum without one of its parts would be a step down in the curve.
    if known and len(known) == len(parts) and name not in row:
        row[name] = math.fsum(known)


_END_NUMBER = re.compile(r"\D(\d{1,12})(?:\.\w{1,12}|/)?$")


def checkpoint_step(cell: str) -> str:
    """Return the step in the name of a checkpoint; a cell without one is returned as it is."""
    found = _END_NUMBER.search(cell.strip())
    if found is None:
        return cell
    return found.group(1)


LAYOUT = RowLayout(())


def read_numbers(line: str) -> list[float] | None:
    """Return the numbers of a line that has nothing else; None for another line."""
    found = [to_number(cell) for cell in re.split(r"[,;\s]+", line.strip()) if cell]
    numbers = [y for y in found if y is not None]
    if not numbers or len(numbers) < len(found):
        return None
    return numbers


def find_rising_column(rows_read: list[list[float]]) -> int | None:
    """Return the index of the column of rising whole numbers; None without one, or with several."""
    rising = [
        column
        for column, values in enumerate(zip(*rows_read))
        if all(y % 1 == 0 for y in values) and list(values) == sorted(set(values))
    ]
    if len(rising) == 1:
        return rising[0]
    return None


class NumberLayout:
    """What the first lines say about rows of numbers.

    Attributes:
        rows: The first rows.
        names: One name per column, from a comment above them; [] without one.
        column: Index of the column of positions; None if the rows have to be counted.
    """

    __slots__ = ("column", "names", "rows")

    def __init__(self, head: bytes) -> None:
        lines = head.decode("utf-8", "replace").split("\n")[:-1][:50]
        texts = [line for line in map(str.strip, lines) if line]
        comments = [line.lstrip("#% ").strip() for line in texts if line[0] in _COMMENT]
        figures = [read_numbers(line) for line in texts if line[0] not in _COMMENT]
        self.rows = [row for row in figures if row is not None]
        if len(self.rows) < len(figures) or len(set(map(len, self.rows))) != 1:
            self.rows = []
        self.column = find_rising_column(self.rows)
        self.names: list[str] = []
        for comment in comments:
            # Octave writes "# name: loss", and the type and size of the matrix after it.
            found = re.fullmatch(r"name: (\S{1,80})", comment)
            if found is not None:
                self.names = [found.group(1)]
        if not self.names and comments and self.rows and len(self.rows[0]) == 1:
            self.names = [comments[-1][:80]]

    def is_table(self, stem: str) -> bool:
        """Return whether the rows are those of a training, in a file with the name `stem`."""
        least_rows, most_columns = 3, 8
        if len(self.rows) < least_rows or len(self.rows[0]) > most_columns:
            return False
        if any(role_of(name) in MEASURES for name in (stem, *self.names)):
            return True
        # Positions that rise by one step, and numbers that are no counts.
        steps = {round(b[0] - a[0], 6) for a, b in zip(self.rows, self.rows[1:])}
        return (
            self.column == 0
            and len(steps) == 1
            and len(self.rows[0]) > 1
            and all(any(row[at] % 1 for row in self.rows) for at in range(1, len(self.rows[0])))
        )


class NumberTable(LineReader):
    """Rows of numbers without a header: of a measure (``loss.log``), or below a rising position."""

    source = "numbers"

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        if state["offset"]:
            return
        found = NumberLayout(window.head)
        state["column"] = found.column
        state["names"] = found.names
        state["count"] = 0

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        numbers = read_numbers(raw.decode("utf-8", "replace"))
        if numbers is None:
            return
        state["count"] += 1
        kind, x = ROW, state["count"]
        column = state.get("column")
        if column is not None:
            if len(numbers) <= max(1, column):
                return  # a torn row
            kind, x = STEP, numbers.pop(column)
        stem = os.path.splitext(os.path.basename(self.path))[0]
        names = state.get("names") or [stem]
        row: JsonObject = {names[0]: numbers[0]} if len(numbers) == 1 else {}
        if not row:
            row = {f"{stem}/{place}": y for place, y in enumerate(numbers, 1)}
        rows.add_row_points(row, (kind, x), LAYOUT, batch, offset)


class YoloResults(LineReader):
    """``results.txt`` of YOLOv7, and of YOLOv5 before its ``results.csv``: rows without names.

    The order is that of YOLOv7's ``train.py`` and of programs derived from YOLOv5's (2026-11): the
    columns of its bar, then precision, recall, mAP and the losses of the validation.
    """

    source = "yolo"
    names = (
        *("train/box_loss", "train/obj_loss", "train/cls_loss", "train/loss", "labels", "img_size"),
        *("metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"),
        *("val/box_loss", "val/obj_loss", "val/cls_loss"),
    )

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        epoch, _, text = raw.decode("utf-8", "replace").strip().partition(" ")
        x = to_position(epoch.partition("/")[0])
        cells = text.split()[1:]  # without the memory
        if x is None or len(cells) != len(self.names):
            batch.add_problem(offset, "no row of YOLO's results")
            return
        row: JsonObject = dict(zip(self.names, cells))
        for count in ("labels", "img_size"):
            del row[count]
        rows.add_row_points(row, (EPOCH, x), LAYOUT, batch, offset)


class TorchtuneLog(LineReader):
    """A log with one step per line; other lines are ignored."""

    source = "torchtune"

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        head, bar, rest = raw.decode("utf-8", "replace").partition(" | ")
        if not bar or not head.startswith("Step "):
            return
        step = to_position(head[5:])
        if step is None:
            batch.add_problem(offset, "no step")
            return
        row: JsonObject = {}
        for item in rest.split():
            name, colon, value = item.rpartition(":")
            if colon:
                row[name] = value
        rows.add_row_points(row, (STEP, step), LAYOUT, batch, offset)
