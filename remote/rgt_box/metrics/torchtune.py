"""torchtune's ``log_<unix>.txt``: ``Step 1 | loss:2.34 lr:2e-05`` (read in source)."""

from __future__ import annotations

from rgt_box.metrics import rows
from rgt_box.metrics.appended import Lines
from rgt_box.metrics.base import STEP
from rgt_box.metrics.numbers import position
from rgt_box.metrics.rows import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

LAYOUT = Layout(())


class TorchtuneLog(Lines):
    """One step a line; other lines are left out."""

    source = "torchtune"

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        head, bar, rest = raw.decode("utf-8", "replace").partition(" | ")
        if not bar or not head.startswith("Step "):
            return
        step = position(head[5:])
        if step is None:
            batch.problem(offset, "no step")
            return
        row: dict[str, Any] = {}
        for item in rest.split():
            name, colon, value = item.rpartition(":")
            if colon:
                row[name] = value
        rows.add(row, (STEP, step), LAYOUT, batch, offset)
