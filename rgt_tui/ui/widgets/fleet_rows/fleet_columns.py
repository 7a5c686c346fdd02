"""The columns of the fleet table as data, which of them fit a width, and a box as a line."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len

from rgt_tui.health import LIMITS
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, MoneyAmount
from rgt_tui.profiles import compute_percent as ratio
from rgt_tui.ui.box_status import cells_of, current_cell, current_run
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.widgets.fleet_rows import fleet_cells as cells
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Cell, FleetRow, Read
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    make_line,
    merge_spans,
)


class FilterUnit(enum.StrEnum):
    """How a number is written in a filter."""

    PERCENT = "percent"
    TIME = "time"
    MONEY = "money"
    PLAIN = "number"


class FilterValue(NamedTuple):
    """A number of a box that rows can be filtered and sorted by."""

    read: Read
    """Returns None if unknown, which is neither small nor large."""
    unit: FilterUnit
    words: str
    """Description of the value."""
    step: float = 0.0
    """Smaller differences do not reorder rows, so that a value that changes each second does not
    make them jump."""
    rising: bool = False
    """Sort the smallest first, unless the person reverses it."""
    currency: Callable[[FleetRow], str] | None = None
    """Currency of an amount: amounts in different currencies are not compared."""


def percent_value(
    read: Read, words: str, step: float = 0.0, *, rising: bool = False
) -> FilterValue:
    """Return the value of a percentage column."""
    return FilterValue(read, FilterUnit.PERCENT, words, step, rising)


def amount_value(read: Callable[[FleetRow], MoneyAmount | None], words: str) -> FilterValue:
    """Return the value of an amount column."""

    def read_amount(row: FleetRow) -> float | None:
        amount = read(row)
        if amount is None:
            return None
        return amount.value

    return FilterValue(
        read_amount, FilterUnit.MONEY, words, currency=lambda row: row.box.meter.currency
    )


def _cell_progress(row: FleetRow) -> float | None:
    total = len(cells_of(row.box))
    current = current_cell(row.box)
    if total:
        count = 0
        if current:
            count = current[0]
        return ratio(count, total)
    return None


def _current_step(row: FleetRow) -> float | None:
    run = current_run(row.box)
    if run is None or run.step is None:
        return None
    return float(run.step)


def _current_loss(row: FleetRow) -> float | None:
    run = current_run(row.box)
    if run is None:
        return None
    return run.loss


def _data_age(row: FleetRow) -> float | None:
    verdict = row.verdict
    if verdict.stale:
        return verdict.sample_age
    return verdict.progress_age


def _count_gpus(row: FleetRow) -> float | None:
    if row.box.sample:
        return float(len(row.box.sample.gpus))
    return None


WISHED = 1_000_000
"""`since` of a column that is shown only if room is left, see `FleetColumn.wishes`."""
WIDEST_NAME = 40


class FleetColumn(FrozenStruct):
    """One column. The table, its order, the filter, the help and the page in ``docs`` use this."""

    key: str
    title: str
    width: int
    since: int
    """Minimum width of the table to show the column."""
    cell: Cell
    means: str
    """Description for the help and the documentation."""
    value: FilterValue | None = None
    right: bool = True
    word: str = ""
    """Name of the value in the filter, if it is not the key."""
    narrow: int = 0
    """Rank for being added to a table of 80 to 119 cells; 0 = never."""
    wishes: tuple[tuple[int, int], ...] = ()
    """(rank, cells) pairs for dividing the spare cells of a table of 120 and more."""
    keeps_tone: bool = False
    """Keep its colour in a row whose values are old."""
    sort_letter: str = ""
    """The key after ``o`` that sorts by it; empty = the first free letter."""

    @property
    def shown_title(self) -> str:
        """The title in the person's language, with the blanks before it."""
        name = self.title.lstrip()
        return " " * (len(self.title) - len(name)) + translate(name)


_DISK_PCT = (LIMITS.disk_warn_pct, LIMITS.disk_error_pct)
_MEMORY_PCT = (LIMITS.memory_warn_pct, LIMITS.memory_error_pct)

COLUMNS: list[FleetColumn] = [
    FleetColumn("name", "  box", 14, 0, cells.name_cell, "the box, as named in the fleet file",
                right=False,
           wishes=((1, WIDEST_NAME),), keeps_tone=True, sort_letter="n"),
    FleetColumn("state", "state", 11, 0, cells.state_cell,
                "its state in one word; +2 = two more alerts", right=False,
           wishes=((6, 2), (16, 1)), keeps_tone=True, sort_letter="s"),
    FleetColumn("gpu", "gpu", 8, 80, cells.gpu_cell,
           "the last minute of utilisation, and the newest mean; 1/8 = one of eight GPUs is dead "
           "or idle; sorted by the worst GPU",
           percent_value(cells.worst_util, "utilisation of the worst GPU", 10.0, rising=True),
           wishes=((15, 4),),
           sort_letter="g"),
    FleetColumn("vram", "vram", 6, 120, cells.vram_cell, "GPU memory in use, of all GPUs together",
           percent_value(cells.vram_pct, "video memory", 5.0), right=False, sort_letter="v"),
    FleetColumn("temp", "temp", 4, WISHED, cells.number_cell(cells.hottest_gpu, cells.heat_text),
                "the hottest GPU",
           FilterValue(cells.hottest_gpu, FilterUnit.PLAIN, "temperature", 5.0), wishes=((8, 0),),
           sort_letter="t"),
    FleetColumn("power", "power", 5, WISHED, cells.power_cell, "power of all GPUs together",
           FilterValue(cells.total_watts, FilterUnit.PLAIN, "power", 20.0), wishes=((9, 0),),
           sort_letter="w"),
    FleetColumn("disk", "disk", 4, 120, cells.full_cell(cells.bytes_full, *_DISK_PCT),
           "the fullest file system, in bytes", percent_value(cells.bytes_full, "disk"),
           sort_letter="d"),
    FleetColumn("inode", "inode", 5, 0, cells.full_cell(cells.inodes_full, *_DISK_PCT),
           "the fullest file system, in inodes: at 100% no new file can be created, even with free "
           "bytes",
           percent_value(cells.inodes_full, "inodes"), sort_letter="i"),
    FleetColumn("cgroup", "cgroup", 6, 0, cells.full_cell(cells.memory_full, *_MEMORY_PCT),
           "memory of the container against its limit, not that of the host",
           percent_value(cells.memory_full, "memory", 2.0), sort_letter="m"),
    FleetColumn("cell", "cell", 4, 0, cells.cell_cell,
                "the current line of the queue, and the number of lines",
           percent_value(_cell_progress, "share of its cells"), sort_letter="q"),
    FleetColumn("step", "ep·step", 8, 120, cells.step_cell, "epoch and step of the current run",
           FilterValue(_current_step, FilterUnit.PLAIN, "step"), wishes=((4, 2),), sort_letter="p"),
    FleetColumn("eta", "eta", 6, WISHED, cells.eta_cell,
                "time to the last step of the current run, at its own pace",
           FilterValue(cells.seconds_to_end, FilterUnit.TIME, "time to the last step", 60.0,
                       rising=True), narrow=2,
           wishes=((3, 0),), sort_letter="e"),
    FleetColumn("age", "age", 6, 0, cells.age_cell,
           "since the run last made progress; for old values, how old they are",
           FilterValue(_data_age, FilterUnit.TIME, "time without progress", 10.0),
           wishes=((10, 1),), keeps_tone=True,
           sort_letter="a"),
    FleetColumn("loss", "loss", 6, 120, cells.loss_cell, "the newest loss, and the whole curve",
           FilterValue(_current_loss, FilterUnit.PLAIN, "loss"), narrow=3, wishes=((2, 7),),
           sort_letter="l"),
    FleetColumn("rate", "/h", 6, 120, cells.money_cell(cells.hourly_cost), "price per hour now",
           amount_value(cells.hourly_cost, "price per hour"), word="cost", narrow=1,
           wishes=((11, 1),),
           sort_letter="r"),
    FleetColumn("per1k", "/1k", 6, WISHED, cells.money_cell(cells.thousand_steps),
           "cost of 1,000 steps of the current run",
           amount_value(cells.thousand_steps, "cost of 1,000 steps"),
           wishes=((7, 0),), sort_letter="1"),
    FleetColumn("spent", "spent", 6, 120, cells.money_cell(cells.cost_so_far),
                "cost of the box so far",
           amount_value(cells.cost_so_far, "spent"), wishes=((12, 1),), sort_letter="c"),
    FleetColumn("clock", "clock", 6, 120, cells.clock_cell,
           "time until the platform or the box stops or deletes something",
           FilterValue(lambda row: cells.next_end(row).seconds, FilterUnit.TIME,
                       "time to the next clock", rising=True),
           wishes=((13, 14),), keeps_tone=True, sort_letter="k"),
    FleetColumn("why", "alerts", 0, 80, cells.why_cell,
                "the worst alert; else what the box is doing", right=False,
           wishes=((5, 24), (14, 60)), keeps_tone=True),
]  # fmt: skip
"""The last column gets the cells left over by the others, if they suffice for a useful text."""
CARDS = FilterValue(_count_gpus, FilterUnit.PLAIN, "GPUs")
"""``cards`` in a filter; no column shows it."""


def filter_values() -> dict[str, FilterValue]:
    """Return the values that rows can be filtered by, keyed by their name in the filter."""
    shown = {
        column.word or column.key: column.value for column in COLUMNS if column.value is not None
    }
    return {**shown, "cards": CARDS}


def value_of(key: str) -> FilterValue | None:
    """Return the value that a column is sorted by."""
    return next((column.value for column in COLUMNS if column.key == key), None)


# Called for every drawing, and the arguments rarely change.
@lru_cache(maxsize=64)
def choose_columns(
    width: int, longest: int = 0, clock: int = WISHED, by: str = ""
) -> tuple[tuple[FleetColumn, int], ...]:
    """Return the columns of a table, each with its width.

    Args:
        width: Of the table, in cells.
        longest: Cells of the longest name.
        clock: Cells of the longest clock; the column is not wider, and the alerts get the rest.
        by: The sort column: shown at every width, before the alerts.
    """
    widths = {column.key: column.width for column in COLUMNS}
    chosen = {
        column.key: column.width
        for column in COLUMNS[:-1]
        if width >= column.since or column.key == by
    }
    # Before the name are the glyph and a blank.
    wanted = min(longest + 2, WIDEST_NAME)
    # Below 80 cells, only the width of the name varies.
    if width < 80:
        chosen["name"] = 12
        # Besides the columns there are a blank for each of them, and the margins.
        room = width - 2 - sum(chosen.values()) - len(chosen)
        wished_width = 6
        if wanted > 18:
            wished_width = wanted - 12
        chosen["name"] += max(-2, min(wished_width, room))
    elif width < 120:

        def remaining_width() -> int:
            return width - 2 - sum(chosen.values()) - len(chosen)

        # A percentage alone, without its line: at 80 cells, price, ETA and loss say more.
        percent_cells = 5
        if width < 100:
            chosen["gpu"] = percent_cells
        # In a narrow table the name grows to this many cells before further columns are added.
        narrow_name = 18
        if width < 90:
            chosen["name"] = narrow_name = 13
        chosen["name"] += max(0, min(min(wanted, narrow_name) - chosen["name"], remaining_width()))
        for column in sorted(COLUMNS, key=lambda one: one.narrow):
            if column.narrow and column.key not in chosen and remaining_width() > column.width:
                chosen[column.key] = column.width
        chosen["name"] += max(0, min(wanted - chosen["name"], remaining_width()))
    else:
        chosen["gpu"] += max(0, min(4, width - 2 - sum(chosen.values()) - len(chosen)))
    spare = width - 2 - sum(chosen.values()) - len(chosen)
    # Cells that are reserved for the alerts.
    held = 0
    wishes = sorted((rank, column.key, more) for column in COLUMNS for rank, more in column.wishes)
    least_why = 12
    for _, key, more in wishes if width >= 120 else ():
        if key == "why":
            wished = 0
            if spare - 1 >= least_why:
                wished = min(more, spare - 1)
            held = max(held, wished)
            continue
        if key not in chosen:
            need = widths[key] + 1 + more
        else:
            need = more
        if key == "name":
            need = max(0, min(wanted - chosen["name"], spare - held))
        if key == "clock":
            need = max(0, min(need, clock - chosen["clock"]))
        if key == "loss":
            need = min(need, spare)
            # A curve of fewer than 4 cells shows nothing.
            need = need if need >= 4 else 0
        if need <= spare - held:
            if key not in chosen:
                chosen[key] = need - 1
            else:
                chosen[key] = chosen[key] + need
            spare -= need
    if width >= COLUMNS[-1].since and spare - 1 >= least_why:
        chosen["why"] = spare - 1
    return tuple((column, chosen[column.key]) for column in COLUMNS if column.key in chosen)


class VisibleRange(NamedTuple):
    """The range of visible rows, if not all are visible."""

    first: int
    """Counted from 1."""
    last: int
    total: int

    def range_title(self, width: int) -> str:
        """Return the range as a title of the name column, in the longest form that fits."""
        span = f"{self.first}-{self.last}/{self.total}"
        ways = (translate("  box {span}", span=span), f"  {span}", f"  {self.first}/{self.total}")
        return next((one for one in ways if len(one) <= width), ways[-1])


def draw_heading(
    columns: Sequence[tuple[FleetColumn, int]],
    sort: str,
    *,
    rising: bool = False,
    shown: VisibleRange | None = None,
) -> Line:
    """Return the line of titles.

    The sort column is highlighted, with an arrow for its direction.

    Args:
        columns: With their widths.
        sort: Key of the column that the rows are sorted by.
        rising: Whether the smallest is first.
        shown: The range of visible rows; None = all.
    """
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        gap = "" if index == 0 else " "
        pad = " " if column.key == "why" else ""
        # Where the line has room, the title has its length: the last minute.
        if column.key == "gpu" and width > 8:
            text = "gpu 1m"
        else:
            text = column.shown_title
        if column.key == "name" and shown is not None:
            # The arrow of the sorted column needs a cell.
            text = shown.range_title(width - (sort == "name"))
        if column.key == sort:
            if rising:
                arrow = current_glyphs().rising
            else:
                arrow = current_glyphs().opened
            if cell_len(text) < width:
                text += arrow
            else:
                gap = arrow  # before a title that fills its column, so that neither is cut
        if column.key == "loss":
            text = text.rjust(6)
        title = fit_text(pad + text, width, right=column.right and column.key != "loss")
        tone = Tone.DIM
        if column.key == sort:
            tone = Tone.ACCENT
        out.append(Span(gap + title, tone))
    return tuple(out)


def row_line(row: FleetRow, columns: Sequence[tuple[FleetColumn, int]]) -> Line:
    """Draw one box; everything but its state is dimmed if its values are old."""
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        if index:
            out.append(Span(" "))
        if column.key == "why":
            out.append(Span(" "))
            width -= 1
        made = column.cell(row, width)
        if row.verdict.stale and not column.keeps_tone:
            made = tuple(dim_span(span.text) for span in made)
        out.extend(clip_line(made, width))
    if out:
        return merge_spans(out)
    return make_line(EMPTY)


def mark_line(line: Line) -> Line:
    """Return the line of a box with a mark between its state and its name."""
    mark_at = 2  # after the cell of the cursor and the glyph of the state, each one cell wide
    out: list[Span] = []
    begin = 0
    for span in line:
        place = mark_at - begin
        begin += len(span.text)
        if 0 <= place < len(span.text):
            out += [Span(span.text[:place], span.tone), Span("+", Tone.MATCH)]
            span = Span(span.text[place + 1 :], span.tone)
        out.append(span)
    return tuple(span for span in out if span.text)
