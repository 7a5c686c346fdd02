"""Turns rows of named values into points.

A row of named values → points: where it stands on the x axis, and what in it is a metric.

Numbers as training programs spell them, and rows of them.

The NaN that transformers hides as a zero loss, where loss and gradient norm come as separate records.

`logging_nan_inf_filter` (transformers 5.23, on by default) adds zero for a NaN loss, but logs the NaN of the
gradient norm, right after the loss and for the same step. A zero is held until its step is over.
"""

from __future__ import annotations

import math

from rgt_box.metrics.metric_names import STEP_KEYS
from rgt_box.metrics.reader_base import EPOCH, MAX_TAG, MAX_TAGS, STEP, Point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.reader_base import Batch

CLOCK_KEYS = ("time", "timestamp", "_timestamp", "wall_time", "ts")
CLOCK_FLOOR = 1e9
"""A smaller ``time`` is a duration (mmengine, detectron2, Ultralytics), no clock."""
MAX_DIGITS = 400
"""No spelling of a float is longer."""
DEPTH = 4
"""Levels of nested objects that are joined with ``/``."""


def number(value: Any) -> float | None:
    """Return a number as a float, NaN and infinities kept; None for what is no number (null, '', true)."""
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
    if kind is str and value and len(value) <= MAX_DIGITS and "_" not in value:
        try:
            return float(value.replace(",", ""))
        except ValueError:
            return None
    return None


def spelled(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and infinities as words."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    if value > 0:
        return "inf"
    return "-inf"


def whole(text: str) -> int | float:
    """Decode a JSON integer in bounded time: what exceeds 64 bits is a float anyway."""
    if len(text) < 20:
        return int(text)
    return float(text[:MAX_DIGITS])


def position(value: Any) -> float | None:
    """Return a finite x; None otherwise."""
    found = number(value)
    if found is not None and abs(found) < 2.0**63:
        return found
    return None


def clock(value: Any) -> float | None:
    """Return epoch seconds from seconds or milliseconds; None for what is no time of day."""
    found = number(value)
    if found is None or not CLOCK_FLOOR < found < 1e15:
        return None
    if found > 1e11:
        return found / 1000.0
    return found


def flatten(row: dict[str, Any], limit: int, joint: str = "/") -> dict[str, Any]:
    """Return `row` with nested objects as joined keys, at most `limit` values."""
    found: dict[str, Any] = {}
    stack = [("", row, DEPTH)]
    while stack:
        prefix, part, depth = stack.pop()
        for key, value in part.items():
            if len(found) >= limit:
                return found
            if type(value) is dict:
                if depth > 1:
                    stack.append((prefix + key + joint, value, depth - 1))
            else:
                found[prefix + key] = value
    return found


EPOCH_KEYS = ("epoch", "train/epoch")
FIRM = ("train/global_step", "trainer/global_step", "global_step")
"""Keys that are the trainer's own step wherever they occur; the others may be anything."""
AXES = frozenset(STEP_KEYS + EPOCH_KEYS)
NAN = float("nan")


def axis_name(name: str) -> str:
    """Return the normalised key if `name` gives a row's position, however it is written (``Step``)."""
    lower = name.lower()
    if lower in AXES:
        return lower
    return name


class Layout:
    """How one dialect of rows is to be read.

    Args:
        steps: Keys that say the step, the surest first.
        carry: A row without a step belongs to the step before it.
        call_counter: The key that only counts log calls: the trainer's own step is taken over it, for the whole
            file, as soon as one row has it.
        null_is_nan: A null stands for a NaN (verl); elsewhere it is a missing value.
        drop: Further keys that are no metrics.
        once: Keys that a carried row must not say again for the step before it (its own durations).
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
        self.steps, self.carry, self.call_counter = steps, carry, call_counter
        self.null_is_nan, self.once = null_is_nan, once
        self.drop = frozenset(steps + drop)


class Upgrade(Exception):
    """A row names the trainer's own step for the first time: the file must be read again along it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def place(row: dict[str, Any], layout: Layout, state: dict[str, Any]) -> tuple[str, float] | None:
    """Return a row's position ``(x_kind, x)``, or None when it has none.

    The key is chosen once per file and kept in ``state["key"]``, so that two counters are never mixed.

    Raises:
        Upgrade: when `layout` has a call counter and this row a firmer key than the one in use.
    """
    used = state.get("key")
    if used is None or (layout.call_counter and used not in FIRM):
        for key in layout.steps:
            if position(row.get(key)) is not None:
                if used is not None and key in FIRM:
                    raise Upgrade(key)
                used = state.setdefault("key", key)
                break
    if used is not None:
        x = position(row.get(used))
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
        x = position(row.get(key))
        if x is not None:
            return EPOCH, x
    return None


def add(
    row: dict[str, Any],
    where: tuple[str, float],
    layout: Layout,
    batch: Batch,
    offset: int,
    group: str = "",
) -> None:
    """Add every metric of `row` to `batch` as a point at `where`; the hidden NaN of transformers is uncovered."""
    kind, x = where
    at = wall(row)
    hidden = hides_nan(row)
    count = 0
    for tag, value in row.items():
        if tag in layout.drop or (kind == EPOCH and tag in EPOCH_KEYS):
            continue
        y = NAN if value is None and layout.null_is_nan else number(value)
        if y is None or len(tag) > MAX_TAG or (tag in CLOCK_KEYS and clock(y) is not None):
            continue
        if hidden and tag in HIDING:
            y = NAN
        count += 1
        if count > MAX_TAGS:
            batch.problem(offset, "more than %d metrics in one row" % MAX_TAGS)
            return
        batch.points.append(Point(tag, kind, x, y, at, group))


def wall(row: dict[str, Any]) -> float | None:
    """Return the wall time that a row says."""
    for key in CLOCK_KEYS:
        if key in row:
            at = clock(row[key])
            if at is not None:
                return at
    return None


HIDING = {"loss": "grad_norm", "train/loss": "train/grad_norm"}
"""Loss → the gradient norm that gives it away."""


def hides_nan(row: dict[str, Any]) -> bool:
    """Tell whether a NaN loss was logged as zero.

    transformers (5.23, `logging_nan_inf_filter`, on by default) adds zero for a loss that is NaN or infinite, but
    logs the NaN of the gradient norm as it is.
    """
    for loss, norm in HIDING.items():
        if loss in row and norm in row and number(row[loss]) == 0.0:
            found = number(row[norm])
            if found is not None and found != found:
                return True
    return False


NORMS = {norm: loss for loss, norm in HIDING.items()}


class Held:
    """Watches the points of one file go by.

    ``state["norms"]`` of the cursor is 1 in a file with gradient norms and 0 in one whose losses come without:
    there a zero is a zero and is not held.

    Args:
        state: The cursor in the making.
        batch: Where the points go.
    """

    def __init__(self, state: dict[str, Any], batch: Batch) -> None:
        self._state, self._batch = state, batch
        self._tag = ""
        self._x = 0.0
        self._index = self._offset = 0

    @property
    def waiting(self) -> bool:
        """A zero at the end of the batch whose meaning is not known yet."""
        return bool(self._tag)

    def see(self, tag: str, x: float, y: float, offset: int) -> float:
        """Return the value of the next point, which is read from the record at `offset`."""
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
                self._tag, self._x, self._offset = tag, x, offset
                self._index = len(self._batch.points)
            elif "norms" not in self._state:
                self._state["norms"] = 0
        return y

    def settle(self, offset: int) -> int:
        """Return where the next read starts: `offset`, or before the zero that is still held."""
        if not self._tag:
            return offset
        del self._batch.points[self._index :]
        self._batch.starts = [start for start in self._batch.starts if start.before <= self._index]
        return self._offset
