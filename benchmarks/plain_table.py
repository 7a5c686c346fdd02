"""The alternative to the dashboard: three boxes in a DataTable, refreshed once a second, cell by cell."""

from __future__ import annotations

import math
import random

from textual.app import App, ComposeResult
from textual.widgets import DataTable, Footer, Header

BOXES = ("autodl-demo", "runpod-demo", "vast-demo")
COLUMNS = (
    "box",
    "state",
    "gpu",
    "vram",
    "disk",
    "inode",
    "cgroup",
    "cell",
    "step",
    "age",
    "loss",
    "$/h",
    "spent",
)
LEVELS = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int = 8) -> str:
    """A bar of block characters."""
    full, rest = divmod(share * width, 1)
    return ("█" * int(full) + LEVELS[int(rest * 8)]).ljust(width, "·")[:width]


class PlainTable(App[None]):
    """Shows the same kind of values as the fleet screen, moving as readings do."""

    BINDINGS = [("ctrl+q", "quit", "Quit")]  # noqa: RUF012  # Textual's own way to declare them

    def compose(self) -> ComposeResult:
        """A header, the table, a footer."""
        yield Header()
        yield DataTable[str]()
        yield Footer()

    def on_mount(self) -> None:
        """Fills the table and starts the clock."""
        self.title = "fleet"
        self._tick = 0
        self._random = random.Random(7)
        grid = self.query_one(DataTable)
        for column in COLUMNS:
            grid.add_column(column, key=column, width=8 if column in ("gpu", "vram") else None)
        for box in BOXES:
            grid.add_row(*self._values(box), key=box)
        self.set_interval(1.0, self._refresh)

    def _values(self, box: str) -> list[str]:
        phase = self._tick / 9 + len(box)
        spark = "".join(LEVELS[1 + round(3.5 + 3.5 * math.sin(phase + column / 2))] for column in range(8))
        gpu = 0.85 + 0.1 * self._random.random()
        step = self._tick * 7
        return [
            box,
            "running",
            spark,
            bar(gpu),
            "41%",
            f"{12 + self._tick % 5}%",
            f"{37 + self._random.random():.0f}%",
            "3/4",
            f"{step:,}",
            f"{self._tick % 3}s",
            f"{4 / (1 + step / 500):.3f}",
            "1.98",
            f"{5.12 + self._tick * 0.0006:.4f}",
        ]

    def _refresh(self) -> None:
        self._tick += 1
        grid = self.query_one(DataTable)
        for box in BOXES:
            for column, value in zip(COLUMNS, self._values(box), strict=True):
                grid.update_cell(box, column, value)


if __name__ == "__main__":
    PlainTable().run()
