"""The values that rows are filtered and sorted by: one number per column, with its unit."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from rgt_tui.profiles import prices
from rgt_tui.profiles.readings import byte_pct, inode_pct, memory_pct
from rgt_tui.profiles.readings import percent as ratio
from rgt_tui.ui.box_status import cells_of, current_cell, current_run
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import (
    Row,
    heat,
    next_end,
    seconds_to_end,
    thousand_steps,
    vram_pct,
    watts,
    worst,
)


class Unit(enum.StrEnum):
    """How a number is written in a filter."""

    PERCENT = "percent"
    TIME = "time"
    MONEY = "money"
    PLAIN = "number"


class Value(NamedTuple):
    """One number of a box."""

    read: Callable[[Row], float | None]
    """None = nobody knows it, which is neither little nor much."""
    unit: Unit
    words: str
    """What it is."""
    step: float = 0.0
    """Rows that differ by less keep their order: what changes every second must not make them jump."""
    rising: bool = False
    """The smallest is first, unless a person reverses it."""
    currency: Callable[[Row], str] | None = None
    """Of an amount: amounts of two currencies are not compared."""


def _currency(row: Row) -> str:
    return row.box.meter.currency


def _util(row: Row) -> float | None:
    """The worst card's, for a mean hides it: one that does not answer does nothing."""
    gpus = row.box.sample.gpus if row.box.sample else ()
    known = [0.0 if gpu.error is not None else gpu.util for gpu in gpus]
    return min((util for util in known if util is not None), default=None)


def _disk(row: Row) -> float | None:
    disks = row.box.sample.disks if row.box.sample else ()
    return worst([byte_pct(disk) for disk in disks if not disk.read_only])


def _inodes(row: Row) -> float | None:
    disks = row.box.sample.disks if row.box.sample else ()
    return worst([inode_pct(disk) for disk in disks if not disk.read_only])


def _memory(row: Row) -> float | None:
    return memory_pct(row.box.sample.mem) if row.box.sample else None


def _cell(row: Row) -> float | None:
    total = len(cells_of(row.box))
    current = current_cell(row.box)
    return ratio(current[0] if current else 0, total) if total else None


def _step(row: Row) -> float | None:
    run = current_run(row.box)
    return None if run is None or run.step is None else float(run.step)


def _loss(row: Row) -> float | None:
    run = current_run(row.box)
    return None if run is None else run.loss


def _age(row: Row) -> float | None:
    verdict = row.verdict
    return verdict.sample_age if verdict.stale else verdict.progress_age


def _rate(row: Row) -> float | None:
    amount = prices.rate(row.box.meter)
    return None if amount is None else amount.value


def _spent(row: Row) -> float | None:
    amount = prices.spent(row.box.meter)
    return None if amount is None else amount.value


def _per_thousand(row: Row) -> float | None:
    amount = thousand_steps(row)
    return None if amount is None else amount.value


def _clock(row: Row) -> float | None:
    return next_end(row).seconds


def _cards(row: Row) -> float | None:
    return float(len(row.box.sample.gpus)) if row.box.sample else None


VALUES: dict[str, Value] = {
    "gpu": Value(_util, Unit.PERCENT, "utilisation of the worst GPU", 10.0, rising=True),
    "vram": Value(vram_pct, Unit.PERCENT, "video memory", 5.0),
    "temp": Value(heat, Unit.PLAIN, "temperature", 5.0),
    "power": Value(watts, Unit.PLAIN, "power", 20.0),
    "disk": Value(_disk, Unit.PERCENT, "disk"),
    "inode": Value(_inodes, Unit.PERCENT, "inodes"),
    "cgroup": Value(_memory, Unit.PERCENT, "memory", 2.0),
    "cell": Value(_cell, Unit.PERCENT, "share of its cells"),
    "step": Value(_step, Unit.PLAIN, "step"),
    "eta": Value(seconds_to_end, Unit.TIME, "time to the last step", 60.0, rising=True),
    "age": Value(_age, Unit.TIME, "time without progress", 10.0),
    "loss": Value(_loss, Unit.PLAIN, "loss"),
    "cost": Value(_rate, Unit.MONEY, "cost of an hour", currency=_currency),
    "per1k": Value(_per_thousand, Unit.MONEY, "cost of 1,000 steps", currency=_currency),
    "spent": Value(_spent, Unit.MONEY, "spent", currency=_currency),
    "clock": Value(_clock, Unit.TIME, "time to the next clock", rising=True),
    "cards": Value(_cards, Unit.PLAIN, "GPUs"),
}
"""By the word of the filter; that of a column is its key, but for ``rate``, which is ``cost``."""
