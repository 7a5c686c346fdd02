"""Check whether the results will fit: ``checkpoint × cells + scratch``, on every disk used.

Both bytes and inodes count. Free space is queried so that a dead mount cannot hang the queue. The
newest existing checkpoint gives the size of one checkpoint.
"""

from __future__ import annotations

import os

from rgt_wire import size_text

from rgt_box.checkpoint_search import CheckpointSearch, count_bytes_and_inodes
from rgt_box.queue import queue_state
from rgt_box.queue.queue_file import Job, QueueLine
from rgt_box.sampling import free_space
from rgt_box.sampling.free_space import FreeSpace


def newest_checkpoint(outs: list[str]) -> tuple[str, int, int] | None:
    """Return (path, bytes, inodes) of the newest checkpoint in the run directories.

    Return None without one.
    """
    found = []
    for out in outs:
        checkpoints = CheckpointSearch(out, waits=False).poll_checkpoints()
        found.extend([one for one in checkpoints if not one.unfinished])
    newest = max(found, key=lambda one: one.at, default=None)
    if newest is None:
        return None
    return (newest.path, newest.bytes, newest.inodes)


def largest_cell(job: Job) -> tuple[str, int, int] | None:
    """Return (path, bytes, inodes) of the finished cell that wrote most; None without one.

    Bytes that were removed since are counted, too.
    """
    found: list[tuple[str, int, int]] = []
    for cell in queue_state.load_state(job)["cells"]:
        if cell.get("state") == "done" and cell.get("out"):
            total, inodes = count_bytes_and_inodes(str(cell["out"]))
            found.append((str(cell["out"]), total + int(cell.get("pruned") or 0), inodes))
    return max(found, key=lambda one: one[1], default=None)


NEITHER = (
    "%s: the budget in %s is not checked: no checkpoint found and no %s; set it (rgt run: "
    "--ckpt-size)"
)
"""Note shown when the size of a checkpoint is unknown."""


class CheckpointSize:
    """What one checkpoint uses of one resource.

    Attributes:
        each: The amount; None if unknown. With ``prune``, of a whole cell once one is finished.
        one: What the newest checkpoint uses, or None.
        source: Description of where the figure comes from.
    """

    __slots__ = ("each", "one", "scratch", "source", "unit")

    def __init__(
        self,
        job: Job,
        unit: str,
        found: tuple[str, int, int] | None,
        cell: tuple[str, int, int] | None = None,
    ) -> None:
        self.unit = unit
        self.scratch = int(job.settings[f"scratch_{unit}"] or 0)
        self.each: int | None = job.settings[f"ckpt_{unit}"]
        self.one: int | None = None if found is None else found[1] if unit == "bytes" else found[2]
        self.source = f'"ckpt_{unit}" in job.json'
        measured = found
        what = "newest checkpoint"
        if cell is not None:
            measured = cell
            what = "largest finished cell"
        if self.each is None and measured is not None:
            if unit == "bytes":
                self.each = measured[1]
            else:
                self.each = measured[2]
            if cell is not None:
                self.each += (
                    self.one or 0
                )  # a checkpoint that replaces another is written next to it
            self.source = f'the {what}, {measured[0]}; "ckpt_{unit}" in job.json overrides it'

    def format_amount(self, number: int) -> str:
        """Return an amount as text with its unit."""
        if self.unit == "bytes":
            return size_text(number)
        return "%d inodes" % number


class DiskDemand:
    """What the cells will need on one file system."""

    def __init__(self, where: FreeSpace) -> None:
        self.where = where
        self.keys: list[str] = []
        self.amounts = {"bytes": 0, "inodes": 0}
        self.words: dict[str, list[str]] = {"bytes": [], "inodes": []}

    def free_amount(self, unit: str) -> int | None:
        """Return the free amount; None if there is no limit."""
        if unit == "bytes":
            return self.where.free_bytes
        return self.where.free_inodes


def check_budget(
    job: Job, lines: list[QueueLine], reclaimable: tuple[int, int] = (0, 0)
) -> tuple[list[str], list[str]]:
    """Compare what the given cells will write with the free space.

    Args:
        job: The job.
        lines: The cells that still have to run. What they have already written is subtracted.
        reclaimable: Bytes and inodes of finished cells' checkpoints that are removed when a cell
            needs the space.

    Returns:
        Problems, and notes on what could not be checked.
    """
    folders = [job.run_folder(line.name) for line in job.read_lines()[0]]
    outs = [folder for folder in folders if folder]
    known = [job.settings["ckpt_bytes"], job.settings["ckpt_inodes"]]
    if None in known or job.settings["prune"]:
        found = newest_checkpoint(outs)
    else:
        found = None
    cell = None
    if job.settings["prune"]:
        # A cell may keep several checkpoints until it ends: only then can they be removed.
        cell = largest_cell(job)
    sizes = [CheckpointSize(job, unit, found, cell) for unit in ("bytes", "inodes")]
    unknown = [size.unit for size in sizes if size.each is None]
    keys = " and ".join(f'"ckpt_{unit}"' for unit in unknown)
    if unknown:
        notes = [NEITHER % (job.source.line_of_key("out"), " and ".join(unknown), keys)]
    else:
        notes = []
    problems: list[str] = []
    demands: dict[int, DiskDemand] = {}
    for key in ("out", "durable"):
        if key == "out":
            first = job.run_folder(lines[0].name)
        else:
            first = job.durable_folder(lines[0].name)
        if not first:
            continue
        where, error = free_space.measure_free_space(os.path.dirname(first))
        if where is None:
            problems.append(
                f'{job.source.line_of_key(key)}: the disk of "{key}" ({os.path.dirname(first)}) '
                "does not answer: "
                f"{error}; mount it again"
            )
            continue
        # Otherwise only the copy of the first finished cell would show it.
        unwritable = free_space.explain_unwritable(os.path.dirname(first))
        if unwritable:
            problems.append(
                f'{job.source.line_of_key(key)}: "{key}" cannot be written: {unwritable}; make it '
                "writable "
                "(mount it for writing, chown), or name another directory"
            )
        # By device: "out" and "durable" on one disk share its space.
        demand = demands.setdefault(where.device, DiskDemand(where))
        demand.keys.append(key)
        for size in sizes:
            _add_demand(demand, size, job, lines, key)
            if key == "out":
                _subtract_reclaimable(demand, size, reclaimable)
    for demand in demands.values():
        problems += [text for size in sizes for text in _shortage_problems(demand, size, job)]
    return problems, notes


def _add_demand(
    demand: DiskDemand, size: CheckpointSize, job: Job, lines: list[QueueLine], key: str
) -> None:
    amount = 0
    if size.each and key == "out" and job.settings["prune"] and len(lines) > 1:
        rest = min(
            size.each, size.one or 0
        )  # not known before the first one: the check before each cell decides
        amount = size.each + rest * (len(lines) - 1)
        demand.words[size.unit].append(
            "%s for one cell + %d × %s of finished ones"
            % (size.format_amount(size.each), len(lines) - 1, size.format_amount(rest))
        )
    elif size.each:
        amount = size.each * len(lines)
        demand.words[size.unit].append(
            "%d %s × %s"
            % (len(lines), "cell" if len(lines) == 1 else "cells", size.format_amount(size.each))
        )
    if key == "out":
        held = _existing_amount(size, job, lines)
        amount -= held
        if held:
            demand.words[size.unit].append(f"minus {size.format_amount(held)} already there")
        amount += size.scratch
        if size.scratch:
            demand.words[size.unit].append(f"{size.format_amount(size.scratch)} scratch")
    demand.amounts[size.unit] += amount


def _subtract_reclaimable(
    demand: DiskDemand, size: CheckpointSize, reclaimable: tuple[int, int]
) -> None:
    amount = reclaimable[0 if size.unit == "bytes" else 1]
    if amount:
        demand.amounts[size.unit] -= amount
        demand.words[size.unit].append(
            f"minus {size.format_amount(amount)} that finished cells free"
        )


def _existing_amount(size: CheckpointSize, job: Job, lines: list[QueueLine]) -> int:
    """Return what the run directories already contain, at most one checkpoint's size for each."""
    if not size.each:
        return 0
    which = 1
    if size.unit == "bytes":
        which = 0
    return sum(
        # At most one checkpoint's size: an overfull directory must not make room for other cells.
        min(size.each, count_bytes_and_inodes(job.run_folder(line.name) or "")[which])
        for line in lines
    )


def _shortage_problems(demand: DiskDemand, size: CheckpointSize, job: Job) -> list[str]:
    free = demand.free_amount(size.unit)
    needed = demand.amounts[size.unit]
    if free is None or needed <= free:
        return []
    stated = job.settings[f"ckpt_{size.unit}"] is not None
    return [
        "{}: does not fit: the disk of {} ({}) has {} free, {} needed ({}; checkpoint size from "
        "{}); free {} there, or remove cells from the queue".format(
            job.source.line_of_key(f"ckpt_{size.unit}" if stated else demand.keys[0]),
            " and ".join(f'"{key}"' for key in demand.keys),
            demand.where.mount,
            size.format_amount(free),
            size.format_amount(needed),
            " + ".join(demand.words[size.unit]).replace(" + minus", " minus"),
            size.source,
            size.format_amount(needed - free),
        )
    ]
