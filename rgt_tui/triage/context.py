"""Which log belongs to which cell, and what is known of that cell's run."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

import msgspec

from rgt_tui.model.box import BoxState, LogView
from rgt_tui.model.protocol import Cell, Checkpoint
from rgt_tui.model.run import RunState
from rgt_tui.triage.scan import Scan, scan, window


class Case(msgspec.Struct, frozen=True):
    """One log to look at, with the cell and the run that wrote it."""

    box: BoxState
    log: str
    scan: Scan
    cell: Cell | None
    run: RunState | None
    checkpoints: tuple[Checkpoint, ...]
    """Newest last."""

    @property
    def name(self) -> str | None:
        """Name of the run; None for a log that no cell owns."""
        return self.cell.name if self.cell is not None else None

    @property
    def goes_on(self) -> bool:
        """The run may still be going: nothing says that it has ended."""
        return self.cell is None or self.cell.state == "running"

    @property
    def last_good(self) -> int | None:
        """Step of the newest good checkpoint, by what is published, else by what the log says."""
        return self.checkpoints[-1].step if self.checkpoints else self.scan.last_good


def cases(box: BoxState) -> Iterator[Case]:
    """Yield the logs of `box` that can say something about work that is not done.

    A log that no cell owns counts only on a box without any queue: elsewhere it is history (``master.log``),
    and an old line in it must not look like news.
    """
    cells = [cell for queue in box.queues for cell in queue.cells]
    runs = {run.name: run for run in box.runs}
    kept = {entry.run: entry.items for entry in box.checkpoints}
    for view in box.logs:
        cell = _owner(view, cells)
        if cell is None and cells:
            continue
        if cell is not None and cell.state not in ("running", "failed", "interrupted"):
            continue
        name = cell.name if cell is not None else None
        run = runs.get(name) if name is not None else None
        found = scan(window(view.lines), (box.spec.name, box.spec.host, view.path))
        yield Case(box, view.path, found, cell, run, kept.get(name or "", ()))


def _owner(view: LogView, cells: list[Cell]) -> Cell | None:
    stem = posixpath.splitext(posixpath.basename(view.path))[0]
    for cell in cells:
        if view.path == cell.log or (cell.out and view.path.startswith(cell.out.rstrip("/") + "/")):
            return cell
    return next((cell for cell in cells if cell.name == stem), None)
