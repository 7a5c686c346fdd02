"""A row of named values → points: where it stands on the x axis, and what in it is a metric."""

from __future__ import annotations

from rgt_box.metrics.base import EPOCH, MAX_TAG, MAX_TAGS, STEP, Point
from rgt_box.metrics.canonical import STEP_KEYS
from rgt_box.metrics.numbers import CLOCK_KEYS, clock, number, position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

EPOCH_KEYS = ("epoch", "train/epoch")
FIRM = ("train/global_step", "trainer/global_step", "global_step")
"""Keys that are the trainer's own step wherever they occur; the others may be anything."""
AXES = frozenset(STEP_KEYS + EPOCH_KEYS)
NAN = float("nan")


def axis_name(name: str) -> str:
    """Return the key that `name` is when it says where a row stands, however it is written (``Step``)."""
    lower = name.lower()
    return lower if lower in AXES else name


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
    """A row names the trainer's own step for the first time: the file has to be read anew along it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def place(row: dict[str, Any], layout: Layout, state: dict[str, Any]) -> tuple[str, float] | None:
    """Return where a row stands: ``(x_kind, x)``, or None when it has no place.

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
            return None if last is None else (STEP, last)
    for key in EPOCH_KEYS:
        x = position(row.get(key))
        if x is not None:
            return EPOCH, x
    return None


def add(
    row: dict[str, Any], where: tuple[str, float], layout: Layout, batch: Batch, offset: int, group: str = ""
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
