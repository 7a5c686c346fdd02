"""Which columns the fleet table has at which width. Each breakpoint adds, by importance; none takes away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rgt_tui.ui.widgets import fleet_row as cells
from rgt_tui.ui.widgets.fleet_row import Row
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, fit, line, merged


@dataclass(frozen=True)
class Column:
    """One column."""

    key: str
    title: str
    width: int
    since: int
    """Width of the table from which on the column is there."""
    cell: Callable[[Row, int], Line]
    right: bool = True
    more: int = 0
    """Cells it can use besides, where they are left over."""


COLUMNS: tuple[Column, ...] = (
    Column("name", "  box", 14, 0, cells.name_cell, right=False, more=4),
    Column("state", "state", 11, 0, cells.state_cell, right=False, more=2),
    Column("gpu", "gpu", 8, 80, cells.gpu_cell),
    Column("vram", "vram", 6, 120, cells.vram_cell, right=False, more=2),
    Column("disk", "disk", 4, 120, cells.disk_cell),
    Column("inode", "inode", 5, 0, cells.inode_cell),
    Column("cgroup", "cgroup", 6, 0, cells.cgroup_cell),
    Column("cell", "cell", 4, 0, cells.cell_cell, more=1),
    Column("step", "ep·step", 8, 120, cells.step_cell, more=2),
    Column("age", "age", 6, 0, cells.age_cell, more=1),
    Column("loss", "loss", 6, 120, cells.loss_cell, more=7),
    Column("rate", "/h", 6, 120, cells.rate_cell, more=1),
    Column("spent", "spent", 6, 120, cells.spent_cell, more=1),
    Column("clock", "clock", 6, 120, cells.clock_cell, more=1),
    Column("why", "alerts", 0, 80, cells.why_cell, right=False),
)
"""The last column takes what the others leave, if that is enough to say something."""

LEAST_WHY = 12
WIDEN_FIRST = ("loss", "name", "gpu", "step", "state")


def layout(width: int) -> list[tuple[Column, int]]:
    """Return the columns of a table `width` cells wide, each with its width."""
    chosen = {column.key: column.width for column in COLUMNS[:-1] if width >= column.since}
    if width < 80:
        chosen["name"] = 12
        chosen["name"] += max(0, min(6, width - 2 - sum(chosen.values()) - len(chosen)))
    elif width >= 120:
        chosen["gpu"] = 12
    spare = width - 2 - sum(chosen.values()) - len(chosen)
    if width >= 120:
        by_key = {column.key: column for column in COLUMNS}
        rest = [key for key in chosen if key not in WIDEN_FIRST]
        for key in (*WIDEN_FIRST, *(rest if spare >= 60 else ())):
            more = min(by_key[key].more, spare)
            if more >= 4 or more == by_key[key].more:
                chosen[key] += more
                spare -= more
    if width >= COLUMNS[-1].since and spare - 1 >= LEAST_WHY:
        chosen["why"] = spare - 1
    return [(column, chosen[column.key]) for column in COLUMNS if column.key in chosen]


def heading(columns: Sequence[tuple[Column, int]], sort: str) -> Line:
    """Return the line of titles; the one that the rows are sorted by stands out."""
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        gap = "" if index == 0 else " "
        pad = " " if column.key == "why" else ""
        text = "gpu 1m" if column.key == "gpu" and width > 8 else column.title
        if column.key == "loss":
            text = text.rjust(6)
        title = fit(pad + text, width, right=column.right and column.key != "loss")
        out.append(Span(gap + title, Tone.ACCENT if column.key == sort else Tone.DIM))
    return tuple(out)


def row_line(row: Row, columns: Sequence[tuple[Column, int]]) -> Line:
    """Return one box as a line; all but its mark is dim when its values are old."""
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        if index:
            out.append(Span(" "))
        if column.key == "why":
            out.append(Span(" "))
            width -= 1
        made = column.cell(row, width)
        if row.verdict.stale and column.key not in {"name", "state", "age", "why", "clock"}:
            made = tuple(dim(span.text) for span in made)
        out.extend(clip(made, width))
    return merged(out) if out else line(EMPTY)
