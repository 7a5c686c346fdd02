"""Turns rows of named values into points.

It finds a row's position on the x axis, and which of its values are metrics.

It also parses numbers as training programs write them.

`ZeroLossCheck` restores a NaN loss that transformers logs as zero, if loss and gradient norm are
separate records. `logging_nan_inf_filter` (transformers 5.23, on by default) adds zero for a NaN
loss, but logs the NaN of the gradient norm right after the loss, for the same step. A zero is held
back until its step is over.

"""

from __future__ import annotations

import math

from rgt_wire.metric_roles import EVALUATION, LOSS, MEASURES, is_evaluation, position_of, role_of

from rgt_box.metrics.metric_names import STEP_KEYS
from rgt_box.metrics.reader_base import EPOCH, MAX_TAG, MAX_TAGS, ROW, STEP, MetricPoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch

CLOCK_KEYS = ("time", "timestamp", "_timestamp", "wall_time", "ts")
MAX_DIGITS = 400
"""No float needs more characters."""


def to_number(value: Any) -> float | None:
    """Return a number as a float, NaN and infinities included; None for anything else."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            if value > 0:
                return float("inf")
            return float("-inf")
    # Python reads "20240501_1200" as a number.
    if kind is str and value and len(value) <= MAX_DIGITS and "_" not in value:
        try:
            return float(value.replace(",", ""))
        except ValueError:
            return None
    return None


def json_number(value: float) -> float | str:
    """Return a number in a JSON-compatible form: NaN and infinities as strings."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    if value > 0:
        return "inf"
    return "-inf"


def parse_json_integer(text: str) -> int | float:
    """Decode a JSON integer in bounded time: more than 64 bits becomes a float."""
    # Python's own conversion of a long integer takes time that grows with the square of its digits.
    if len(text) < 20:
        return int(text)
    return float(text[:MAX_DIGITS])


def to_position(value: Any) -> float | None:
    """Return a finite x; None otherwise."""
    found = to_number(value)
    if found is not None and abs(found) < 2.0**63:
        return found
    return None


def to_epoch_seconds(value: Any) -> float | None:
    """Return epoch seconds from seconds or milliseconds; None if it is not a timestamp."""
    found = to_number(value)
    # A smaller ``time`` is a duration (mmengine, detectron2, Ultralytics), not a timestamp.
    clock_floor = 1e9
    if found is None or not clock_floor < found < 1e15:
        return None
    # Milliseconds: as seconds, it would be the year 5138 or later.
    if found > 1e11:
        return found / 1000.0
    return found


def flatten_row(row: JsonObject, limit: int, joint: str = "/") -> JsonObject:
    """Return `row` with nested objects flattened to joined keys, with at most `limit` values."""
    found: JsonObject = {}
    # Levels of nested objects whose keys are joined with ``/``.
    depth_limit = 4
    stack = [("", row, depth_limit)]
    while stack:
        prefix, part, depth = stack.pop()
        for key, value in part.items():
            if len(found) >= limit:
                return found
            if type(value) is dict:
                if "mean" in value and _SUMMARY.issuperset(value):
                    found[prefix + key] = value["mean"]
                elif depth > 1:
                    stack.append((prefix + key + joint, value, depth - 1))
            else:
                found[prefix + key] = value
    return found


_SUMMARY = frozenset(("num", "count", "mean", "std", "min", "max", "median"))
"""Keys of an object that sums up one number (StyleGAN's ``stats.jsonl``): its mean counts."""
EPOCH_KEYS = ("epoch", "train/epoch")
FIRM = ("train/global_step", "trainer/global_step", "global_step")
"""Keys that are always the trainer's own step; other keys may mean anything."""
AXES = frozenset(STEP_KEYS + EPOCH_KEYS)
NAN = float("nan")


def axis_name(name: str) -> str:
    """Return `name` in lower case if it is a position key, such as ``Step``; else unchanged."""
    lower = name.lower()
    if lower in AXES:
        return lower
    return name


class RowLayout:
    """How to read one dialect of rows.

    Args:
        steps: Keys that hold the step, most reliable first.
        carry: A row without a step belongs to the previous step.
        call_counter: A key that only counts log calls. As soon as one row has the trainer's own
            step, that is used for the whole file instead.
        null_is_nan: A null means NaN (verl); otherwise it is a missing value.
        drop: Further keys that are not metrics.
        once: Keys ignored in a carried row, because the previous step already has them (durations).
    """

    __slots__ = ("call_counter", "carry", "drop", "null_is_nan", "once", "steps")

    def __init__(
        self,
        steps: tuple[str, ...] = STEP_KEYS,
        carry: bool = False,
        call_counter: str = "",
        null_is_nan: bool = False,
        drop: tuple[str, ...] = (),
        once: tuple[str, ...] = (),
    ) -> None:
        self.steps = steps
        self.carry = carry
        self.call_counter = call_counter
        self.null_is_nan = null_is_nan
        self.once = once
        self.drop = frozenset(steps + drop)


class FirmStepFound(Exception):
    """A row has the trainer's own step for the first time: read the file again along it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def row_position(row: JsonObject, layout: RowLayout, state: JsonObject) -> tuple[str, float] | None:
    """Return a row's position ``(x_kind, x)``, or None if it has none.

    The key is chosen once per file and kept in ``state["key"]``, so two counters are never mixed.

    Raises:
        FirmStepFound: when `layout` has a call counter and this row has a firmer key than the one
            in use.
    """
    used = state.get("key")
    if used is None or (layout.call_counter and used not in FIRM):
        for key in layout.steps:
            if to_position(row.get(key)) is not None:
                # Points before this row were placed by a less reliable key: they have to be placed
                # again.
                if used is not None and key in FIRM:
                    raise FirmStepFound(key)
                used = state.setdefault("key", key)
                break
    if used is not None:
        x = to_position(row.get(used))
        if x is not None:
            state["x"] = x
            return STEP, x
        if layout.carry:
            last = state.get("x")
            for key in layout.once:
                row.pop(key, None)
            if last is None:
                return None
            return (STEP, last)
    for key in EPOCH_KEYS:
        x = to_position(row.get(key))
        if x is not None:
            return EPOCH, x
    if used is not None:
        return None
    where = _named_position(row, state)
    if where is None and "count" in state:
        state["count"] += 1
        return ROW, float(state["count"])
    return where


CHECKPOINT = ("checkpoint", "ckpt", "checkpoint_name")
"""Names of a column whose cells end with a step: ``checkpoint-2000``."""
IDENTIFIERS = frozenset((
    "id", "index", "idx", "sample", "label", "image", "file", "filename", "sample_id", "image_id",
))  # fmt: skip
"""Names of a column that identifies a sample."""


def has_no_position(names: Iterable[str]) -> bool:
    """Return whether the rows of a file have to be counted: they have no position, but a loss.

    Measures and nothing else will do as well, such as ``train_acc,val_acc``.
    """
    known = set(names)
    parts = {part for name in known for part in (name, *name.split("/"))}
    if any(map(position_of, parts)) or not parts.isdisjoint(AXES):
        return False
    roles = set(map(role_of, known))
    return LOSS in roles or (bool(roles) and roles <= MEASURES)


def counts_epochs_only(first: list[JsonObject], layout: RowLayout) -> bool:
    """Return whether the first rows rise over epochs, while their step only counts an epoch's batches."""
    found = []
    for row in first:
        epoch, step = (
            to_position(row.get("epoch")),
            next(filter(None, map(row.get, layout.steps)), 0),
        )
        if epoch is not None and type(step) in _NUMBERS:
            found.append((epoch, float(step)))
    return len(found) > 2 and found[-1][0] > found[0][0] and 0 < found[-1][1] <= found[0][1]


_NUMBERS = (int, float)
_NAME_KEYS = ("name", "metric", "tag", "key")
_SET_KEYS = (*_NAME_KEYS, "split", "phase", "mode", "stage", "set", "dataset", "type")


def name_values(row: JsonObject) -> JsonObject:
    """Return a row whose values have their names.

    ``{"name": "loss", "value": 2.5}`` has it in a field, and a row of the validation
    (``"split": "val"``) may have the tags of the training.
    """
    name = next((row[key] for key in _NAME_KEYS if type(row.get(key)) is str), "")
    value = next((key for key in row if key.rpartition("/")[2] == "value"), "")
    if name and value:
        row = dict(row)
        row[name] = row.pop(value)
        return row
    sets = (row[key] for key in _SET_KEYS if type(row.get(key)) is str)
    word = next((each for each in sets if each in EVALUATION), "")
    if not word:
        return row
    named = {}
    for key, y in row.items():
        if role_of(key) in MEASURES and not is_evaluation(key):
            key = f"{word}/{key}"
        named[key] = y
    return named


def _named_position(row: JsonObject, state: JsonObject) -> tuple[str, float] | None:
    """Return the position under a framework's own name, chosen once per file."""
    axis = state.get("axis")
    if axis is None:
        found = [(named[1], key) for key in row for named in [position_of(key)] if named]
        if not found or to_position(row[min(found)[1]]) is None:
            return None
        axis = state["axis"] = min(found)[1]
    x = to_position(row.get(axis))
    named = position_of(axis)
    if x is None or named is None:
        return None
    return named[0], x


def add_row_points(
    row: JsonObject,
    where: tuple[str, float],
    layout: RowLayout,
    batch: ReadBatch,
    offset: int,
    group: str = "",
) -> None:
    """Add each metric of `row` to `batch` as a point at `where`; restore a hidden NaN loss."""
    kind, x = where
    at = row_wall_time(row)
    hidden = hides_nan(row)
    count = 0
    for tag, value in row.items():
        # As a curve over itself, the epoch would say nothing.
        if tag in layout.drop or (kind == EPOCH and tag in EPOCH_KEYS):
            continue
        y = to_number(value)
        if value is None and layout.null_is_nan:
            y = NAN
        if (
            y is None
            or len(tag) > MAX_TAG
            or (tag in CLOCK_KEYS and to_epoch_seconds(y) is not None)
        ):
            continue
        if hidden and tag in HIDING:
            y = NAN
        count += 1
        if count > MAX_TAGS:
            batch.add_problem(offset, "more than %d metrics in one row" % MAX_TAGS)
            return
        batch.points.append(MetricPoint(tag, kind, x, y, at, group))


def row_wall_time(row: JsonObject) -> float | None:
    """Return the wall time in a row, or None."""
    for key in CLOCK_KEYS:
        if key in row:
            at = to_epoch_seconds(row[key])
            if at is not None:
                return at
    return None


HIDING = {"loss": "grad_norm", "train/loss": "train/grad_norm"}
"""Loss → the gradient norm that reveals a hidden NaN."""


def hides_nan(row: JsonObject) -> bool:
    """Return whether a NaN loss was logged as zero.

    transformers (5.23, `logging_nan_inf_filter`, on by default) adds zero for a loss that is NaN or
    infinite, but logs the gradient norm's NaN unchanged.
    """
    for loss, norm in HIDING.items():
        if loss in row and norm in row and to_number(row[loss]) == 0.0:
            found = to_number(row[norm])
            if found is not None and found != found:
                return True
    return False


NORMS = {norm: loss for loss, norm in HIDING.items()}


class ZeroLossCheck:
    """Checks the points of one file in order, and restores NaN losses logged as zero.

    ``state["norms"]`` of the cursor is 1 in a file with gradient norms, and 0 in a file without
    them. There a zero is a real zero and is not held back.

    Args:
        state: The cursor being built.
        batch: The batch that receives the points.
    """

    def __init__(self, state: JsonObject, batch: ReadBatch) -> None:
        self._state = state
        self._batch = batch
        self._tag = ""
        self._x = 0.0
        self._index = self._offset = 0

    @property
    def is_undecided(self) -> bool:
        """Whether the batch ends with a zero whose meaning is not known yet."""
        return bool(self._tag)

    def check_point(self, tag: str, x: float, y: float, offset: int) -> float:
        """Return the value of the next point, which was read from the record at `offset`."""
        # The step is over, or the loss is written again, without a gradient norm: this file writes
        # none.
        if self._tag and (x != self._x or tag == self._tag):
            self._tag = ""
            self._state.setdefault("norms", 0)
        if tag in NORMS:
            self._state["norms"] = 1
            if self._tag == NORMS[tag]:
                if y != y:
                    point = self._batch.points[self._index]
                    self._batch.points[self._index] = point._replace(y=NAN)
                self._tag = ""
        elif tag in HIDING:
            if y == 0.0 and self._state.get("norms", 1):
                self._tag = tag
                self._x = x
                self._offset = offset
                self._index = len(self._batch.points)
            elif "norms" not in self._state:
                self._state["norms"] = 0
        return y

    def next_offset(self, offset: int) -> int:
        """Return where the next read starts: `offset`, or before a zero that is still held back."""
        if not self._tag:
            return offset
        # The zero and the points after it: the next read begins before it and returns them again.
        del self._batch.points[self._index :]
        self._batch.starts = [start for start in self._batch.starts if start.before <= self._index]
        return self._offset
