"""Will the results fit? ``checkpoint × cells + scratch``, in bytes and in inodes, on every disk that is written to."""

from __future__ import annotations

import os

from rgt_box.cells import room, weight
from rgt_box.cells.jobfile import Job, Line

NEITHER = '%s: the budget in %s is not checked: no checkpoint found and no "ckpt_%s"; give it'
"""Note where nothing tells how large a checkpoint is."""


class Size:
    """What one checkpoint takes of one resource.

    Attributes:
        each: The amount; None = not known.
        source: Where the figure comes from, in words.
    """

    __slots__ = ("each", "scratch", "source", "unit")

    def __init__(self, job: Job, unit: str, found: tuple[str, int, int] | None) -> None:
        self.unit = unit
        self.scratch = int(job.settings["scratch_%s" % unit] or 0)
        self.each: int | None = job.settings["ckpt_%s" % unit]
        self.source = '"ckpt_%s" in job.json' % unit
        if self.each is None and found is not None:
            self.each = found[1] if unit == "bytes" else found[2]
            self.source = 'the newest checkpoint, %s; "ckpt_%s" in job.json overrides it' % (found[0], unit)

    def show(self, number: int) -> str:
        """Return an amount in words."""
        return room.size(number) if self.unit == "bytes" else "%d inodes" % number


class Demand:
    """What is asked of one file system."""

    def __init__(self, where: room.Room) -> None:
        self.where = where
        self.keys: list[str] = []
        self.amounts = {"bytes": 0, "inodes": 0}
        self.words: dict[str, list[str]] = {"bytes": [], "inodes": []}

    def free(self, unit: str) -> int | None:
        """Return what is free, None where that is no limit."""
        return self.where.free_bytes if unit == "bytes" else self.where.free_inodes


def check(job: Job, lines: list[Line]) -> tuple[list[str], list[str]]:
    """Compare what the given cells will write with what is free.

    Args:
        job: The job.
        lines: The cells that are still to run. What they have written already counts as paid for.

    Returns:
        Problems, and notes on what could not be checked.
    """
    outs = [path for path in (job.out(line.name) for line in job.lines()[0]) if path]
    known = [job.settings["ckpt_bytes"], job.settings["ckpt_inodes"]]
    found = weight.newest(outs) if None in known else None
    sizes = [Size(job, unit, found) for unit in ("bytes", "inodes")]
    notes = [NEITHER % (job.source.where("out"), size.unit, size.unit) for size in sizes if size.each is None]
    problems: list[str] = []
    demands: dict[int, Demand] = {}
    for key in ("out", "durable"):
        first = job.out(lines[0].name) if key == "out" else job.durable(lines[0].name)
        if not first:
            continue
        where, error = room.ask(os.path.dirname(first))
        if where is None:
            problems.append(
                '%s: the disk of "%s" (%s) does not answer: %s; mount it again'
                % (job.source.where(key), key, os.path.dirname(first), error)
            )
            continue
        demand = demands.setdefault(where.device, Demand(where))
        demand.keys.append(key)
        for size in sizes:
            _add(demand, size, job, lines, key)
    for demand in demands.values():
        problems += [text for size in sizes for text in _short(demand, size, job)]
    return problems, notes


def _add(demand: Demand, size: Size, job: Job, lines: list[Line], key: str) -> None:
    amount = 0
    if size.each:
        amount = size.each * len(lines)
        demand.words[size.unit].append(
            "%d %s × %s" % (len(lines), "cell" if len(lines) == 1 else "cells", size.show(size.each))
        )
    if key == "out":
        held = _held(size, job, lines)
        amount -= held
        if held:
            demand.words[size.unit].append("less %s that they hold already" % size.show(held))
        amount += size.scratch
        if size.scratch:
            demand.words[size.unit].append("%s scratch" % size.show(size.scratch))
    demand.amounts[size.unit] += amount


def _held(size: Size, job: Job, lines: list[Line]) -> int:
    """Return what the run directories hold already, each at most as much as it may take."""
    if not size.each:
        return 0
    which = 0 if size.unit == "bytes" else 1
    return sum(min(size.each, weight.of(job.out(line.name) or "")[which]) for line in lines)


def _short(demand: Demand, size: Size, job: Job) -> list[str]:
    free, needed = demand.free(size.unit), demand.amounts[size.unit]
    if free is None or needed <= free:
        return []
    stated = job.settings["ckpt_%s" % size.unit] is not None
    return [
        "%s: does not fit: the disk of %s (%s) has %s free, needed are %s (%s; checkpoint size by %s); "
        "free %s there, or take cells out of the queue"
        % (
            job.source.where("ckpt_%s" % size.unit if stated else demand.keys[0]),
            " and ".join('"%s"' % key for key in demand.keys),
            demand.where.mount,
            size.show(free),
            size.show(needed),
            " + ".join(demand.words[size.unit]).replace(" + less", " less"),
            size.source,
            size.show(needed - free),
        )
    ]
