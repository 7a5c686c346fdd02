"""What the queue itself proves: exit codes, signals, copies that were not verified."""

from __future__ import annotations

from collections.abc import Iterator

from rgt_tui.health.facts import PREEMPTED
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding
from rgt_tui.model.protocol import Cell, QueueState
from rgt_tui.triage.crashes import filled, live_reading
from rgt_tui.triage.handbook import HANDBOOK

KILLED = (137, -9)


def from_cells(box: BoxState, named: set[str | None]) -> Iterator[Finding]:
    """Yield a finding for each cell whose end explains itself; `named` runs have one already."""
    for queue in box.queues:
        for cell in queue.cells:
            if cell.durable == "failed":
                yield _finding(box, queue, cell, "U33", f"{cell.name}: durable copy failed{_why(cell)}")
            if cell.name in named or (id_ := _cause(box, queue, cell)) is None:
                continue
            ended = cell.signal or f"exit {cell.exit_code}"
            yield _finding(box, queue, cell, id_, f"{cell.name} {cell.state}, {ended}{_why(cell)}")


def _cause(box: BoxState, queue: QueueState, cell: Cell) -> str | None:
    if cell.state == "interrupted" and cell.exit_code == PREEMPTED:
        return None if queue.runner_alive else "SP1"
    if cell.state not in ("failed", "interrupted"):
        return None
    if cell.exit_code in KILLED or cell.signal == "SIGKILL":
        kills = box.sample.mem.oom_kills if box.sample is not None else None
        return "U9" if kills else "U3"
    return None


def _why(cell: Cell) -> str:
    return f": {cell.reason}" if cell.reason else ""


def _finding(box: BoxState, queue: QueueState, cell: Cell, id: str, evidence: str) -> Finding:  # noqa: A002
    entry = HANDBOOK[id]
    return Finding(
        gotcha=id,
        title=entry.title,
        severity=entry.severity,
        resource=entry.resource,
        evidence=evidence,
        where=queue.path,
        fixes=filled(entry.fixes, cell.durable_path),
        never=entry.never,
        reading=live_reading(box, id),
        run=cell.name,
    )
