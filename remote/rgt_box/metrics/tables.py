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

from rgt_box.metrics import rows
from rgt_box.metrics.reader_base import SAMPLES, STEP, LineReader
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
}
"""Source → layout of its rows; without step keys, each row is one epoch."""

SUMS = {"ultralytics": (("train/loss", "train/"), ("val/loss", "val/"))}
"""Source → totals that it does not write: (name, prefix of the losses to add up)."""

DELIMITERS = ",\t;"
_COMMA = re.compile(r"^\s*(-?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$")


class Table(LineReader):
    """A table with one row per line. `source` is a key of `LAYOUTS`."""

    reads_several = True

    def __init__(self, path: str, source: str = "csv") -> None:
        super().__init__(path)
        self.source = source
        self._layout = LAYOUTS[source]
        self._header = b""
        self._names: list[str] = []
        self._delimiter = ","

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        self._header, found, _ = window.head.partition(b"\n")
        if found:
            self._header = self._header.rstrip(b"\r")
        else:
            self._header = b""
        # Spreadsheet programs write a byte order mark, which would become part of the first name.
        # NumPy's savetxt begins the names with a comment mark.
        text = self._header.decode("utf-8-sig", "replace").lstrip("# ")
        self._delimiter = next((each for each in DELIMITERS if each in text), ",")
        self._names = [rows.axis_name(name.strip()) for name in split_cells(text, self._delimiter)]
        if [name.lower() for name in self._names] == ["wall time", "step", "value"]:
            # TensorBoard's page writes one figure into "run-NAME-tag-TAG.csv".
            stem = os.path.splitext(os.path.basename(self.path))[0]
            self._names = ["timestamp", "step", stem.rpartition("-tag-")[2]]
        if rows.has_no_position(self._names):
            # pandas writes the index of its rows without a name.
            if self._names[0].lower() in ("", "unnamed: 0"):
                self._names[0] = "step"
            else:
                state.setdefault("count", 0)

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        if not self._header:
            if offset == 0:
                batch.add_problem(0, "no header that could be read")
            return
        if raw == self._header:
            # DeepSpeed repeats its header at every restart.
            if offset:
                batch.add_restart(None, "header repeated")
            return
        values = split_cells(raw.decode("utf-8", "replace"), self._delimiter)
        if len(values) != len(self._names):
            batch.add_problem(offset, "%d cells under %d names" % (len(values), len(self._names)))
            return
        if self._delimiter == ";":
            # Where a semicolon separates cells, a comma is the decimal point.
            values = [_COMMA.sub(r"\1.\2", value) for value in values]
        row: JsonObject = dict(zip(self._names, values))
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


def split_cells(text: str, delimiter: str) -> list[str]:
    """Split one line of a table into cells."""
    # Without a quote, every delimiter divides two cells, so `csv` need not be imported.
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


class NumberTable(LineReader):
    """Rows of numbers without a header, in a file that has the name of a measure: ``loss.log``."""

    source = "numbers"

    def _begin_lines(self, window: FileWindow, state: JsonObject, batch: ReadBatch) -> None:
        if state["offset"]:
            return
        lines = window.head.decode("utf-8", "replace").split("\n")[:-1]
        known = [row for row in map(read_numbers, lines[:50]) if row]
        state["column"] = find_rising_column(known)
        state["count"] = 0

    def _parse_line(self, raw: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        numbers = read_numbers(raw.decode("utf-8", "replace"))
        if numbers is None:
            return
        state["count"] += 1
        x: float = state["count"]
        column = state.get("column")
        if column is not None:
            if len(numbers) <= max(1, column):
                return  # a torn row
            x = numbers.pop(column)
        stem = os.path.splitext(os.path.basename(self.path))[0]
        row: JsonObject = {stem: numbers[0]} if len(numbers) == 1 else {}
        if not row:
            row = {f"{stem}/{place}": y for place, y in enumerate(numbers, 1)}
        rows.add_row_points(row, (STEP, x), LAYOUT, batch, offset)


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
