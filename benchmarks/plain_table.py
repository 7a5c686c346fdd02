"""The alternative to the dashboard: the same engine, drawn with Textual's DataTable, refreshed cell by cell.

`python -m benchmarks.plain_table FLEET_FILE`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import DataTable, Footer, Header

from rgt_tui.fleet import Fleet, FleetSource
from rgt_tui.fleet.config import load_fleet
from rgt_tui.model import BoxState, FleetState, RowSparklines, Sample

COLUMNS = (
    *("box", "link", "gpu 1m", "gpu", "vram", "disk", "inode", "cgroup"),
    *("cell", "step", "age", "loss", "curve", "$/h", "spent"),
)
LEVELS = " ▁▂▃▄▅▆▇█"


def bar(share: float | None, width: int = 8) -> str:
    """A bar of block characters."""
    if share is None:
        return "?".ljust(width)
    full, rest = divmod(min(max(share, 0.0), 1.0) * width, 1)
    return ("█" * int(full) + LEVELS[int(rest * 8)].strip()).ljust(width, "·")[:width]


def spark(values: tuple[float | None, ...], width: int = 8) -> str:
    """The newest values as block characters, scaled to the largest."""
    known = [value for value in values[-width:] if value is not None and value == value]
    top = max(known, default=0.0) or 1.0
    return "".join(LEVELS[1 + round(7 * min(max(value / top, 0.0), 1.0))] for value in known).rjust(
        width
    )


def percent(used: int | None, total: int | None) -> str:
    """A share, or a question mark."""
    if used is not None and total:
        return f"{used / total:.0%}"
    return "?"


def cells(box: BoxState, now: float) -> Iterator[str]:
    """The values of one row, in the order of the columns."""
    sample = box.sample or Sample(boot="", seq=0, at=0.0)
    rings: RowSparklines = box.rings
    gpu = sample.gpus[0] if sample.gpus else None
    disk = max(sample.disks, key=lambda each: each.inodes_used or 0, default=None)
    run = next((each for each in reversed(box.runs) if each.step is not None), None)
    queue = box.queues[0] if box.queues else None
    if run:
        loss = [value for _, value in list(run.series.get("loss", ()))[-8:]]
    else:
        loss = []
    yield box.spec.name
    yield str(box.link)
    yield spark(rings.gpu_util)
    yield f"{gpu.util:.0f}%" if gpu and gpu.util is not None else "?"
    yield bar(gpu.vram_used / gpu.vram_total if gpu and gpu.vram_used and gpu.vram_total else None)
    yield percent(disk.bytes_used, disk.bytes_total) if disk else "?"
    yield percent(disk.inodes_used, disk.inodes_total) if disk else "?"
    yield percent(sample.mem.used, sample.mem.limit)
    done = 0
    if queue:
        done = sum(cell.state == "done" for cell in queue.cells)
    yield f"{done}/{len(queue.cells)}" if queue else "–"
    yield f"{run.step:,}" if run and run.step is not None else "–"
    yield f"{now - run.progressed_at:.0f}s" if run and run.progressed_at else "–"
    yield f"{run.loss:.3f}" if run and run.loss is not None else "–"
    yield spark(tuple(loss))
    yield f"{box.meter.per_hour:.2f}" if box.meter.per_hour is not None else "–"
    yield f"{box.meter.spent:.2f}" if box.meter.spent is not None else "–"


class PlainTable(App[None]):
    """Shows the columns of the fleet screen, brought up to date once a second."""

    BINDINGS = [("ctrl+q", "quit", "Quit")]  # noqa: RUF012  # Textual's own way to declare them
    TITLE = "fleet"

    def __init__(self, fleet: FleetSource) -> None:
        """Takes a fleet that has not started."""
        super().__init__()
        self._fleet = fleet

    def compose(self) -> ComposeResult:
        """A header, the table, a footer."""
        yield Header()
        yield DataTable[str]()
        yield Footer()

    async def on_mount(self) -> None:
        """Fills the table, starts the fleet and the clock."""
        grid = self.query_one(DataTable)
        for column in COLUMNS:
            grid.add_column(
                column, key=column, width=8 if column in ("gpu 1m", "vram", "curve") else None
            )
        state: FleetState = self._fleet.state
        for box in state.boxes:
            grid.add_row(*cells(box, self._fleet.now()), key=box.spec.name)
        await self._fleet.start()
        self.set_interval(1.0, self._refresh)

    async def on_unmount(self) -> None:
        """Disconnects."""
        await self._fleet.stop()

    def _refresh(self) -> None:
        grid = self.query_one(DataTable)
        for box in self._fleet.state.boxes:
            for column, value in zip(COLUMNS, cells(box, self._fleet.now()), strict=True):
                if grid.get_cell(box.spec.name, column) != value:
                    grid.update_cell(box.spec.name, column, value, update_width=True)


def main() -> None:
    """Opens the table on a fleet file."""
    specs = load_fleet(Path(sys.argv[1]))
    PlainTable(Fleet(specs, audit=Path(os.devnull))).run()


if __name__ == "__main__":
    main()
