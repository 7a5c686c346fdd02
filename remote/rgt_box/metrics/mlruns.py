"""MLflow's file store: ``mlruns/<experiment>/<run>/metrics/<key>``, one appended file per metric (run, 3.17).

A line is ``<ms> <value> <step>``; older and newer versions write two or five fields.
"""

from __future__ import annotations

from rgt_box.metrics.appended import Lines
from rgt_box.metrics.base import STEP, Point
from rgt_box.metrics.numbers import clock, number, position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch


class MetricFile(Lines):
    """The history of one metric."""

    source = "mlflow_files"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.tag = tag_of(path)

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        fields = raw[:500].decode("utf-8", "replace").split()
        y = number(fields[1]) if len(fields) >= 2 else None
        if y is None:
            batch.problem(offset, "no metric line")
            return
        step = position(fields[2]) if len(fields) > 2 else 0.0
        count = state["n"] = state.get("n", 0) + 1
        if step:
            state["stepped"] = True
        x = step or (0.0 if state.get("stepped") else count - 1.0)
        batch.points.append(Point(self.tag, STEP, x, y, clock(fields[0])))


def tag_of(path: str) -> str:
    """Return the metric that a file is named after: what follows the run's ``metrics`` directory."""
    parts = path.split("/")
    directories = [place for place, part in enumerate(parts[:-1]) if part == "metrics"]
    if not directories:
        return parts[-1]
    if "mlruns" in parts:
        inside = [place for place in directories if place > parts.index("mlruns")]
        return "/".join(parts[(inside or directories)[0] + 1 :])
    return "/".join(parts[directories[-1] + 1 :])
