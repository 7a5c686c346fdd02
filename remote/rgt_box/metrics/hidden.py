"""The NaN that transformers hides as a zero loss, where loss and gradient norm come as separate records.

`logging_nan_inf_filter` (transformers 5.23, on by default) adds zero for a NaN loss, but logs the NaN of the
gradient norm, right after the loss and for the same step. A zero is held until its step is over.
"""

from __future__ import annotations

from rgt_box.metrics.rows import HIDING, NAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

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
        """A zero stands at the end of the batch whose meaning is not known yet."""
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
        """Return where the next read goes on: `offset`, or before the zero that is still held."""
        if not self._tag:
            return offset
        del self._batch.points[self._index :]
        return self._offset
