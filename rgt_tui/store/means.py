"""Samples into one-minute means, on their way to the file. Pure but for what it adds up."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rgt_tui.model.box import BoxState
from rgt_tui.model.protocol import Sample
from rgt_tui.profiles.readings import byte_pct, inode_pct, memory_pct, percent

WIDTH = 60
LATE_SECONDS = 10.0
"""A minute is closed this long after its end: what is on its way then may still come."""
MOST_MOUNTS = 24
LONGEST_MOUNT = 512
"""A longer mount point is no name to keep by the minute."""
MOST_PERCENT = 1e6
"""No share is larger: a reading beyond it is nonsense, and some fit no column of the file."""
LATEST = 1e11
"""Epoch seconds, in the year 5138: a sample of a later time, or of one before 1970, belongs to no minute."""


class Mean(msgspec.Struct, frozen=True):
    """One box over one stretch of time."""

    box: str
    slot: int
    """Number of the stretch since the epoch."""
    count: int
    """Samples in it."""
    values: dict[str, float]
    """Name, as in `rgt_tui.model.box.Past` → mean; what was never read is left out."""
    width: int = WIDTH


def readings(sample: Sample) -> Iterator[tuple[str, float]]:
    """Yield what of a sample is kept, in percent, by name."""
    for name, value in _shares(sample):
        if 0.0 <= value <= MOST_PERCENT:  # what is no number is neither
            yield name, float(value)


def _shares(sample: Sample) -> Iterator[tuple[str, float]]:
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    if utils:
        yield "util", sum(utils) / len(utils)
    vram = percent(sum(g.vram_used or 0 for g in sample.gpus), sum(g.vram_total or 0 for g in sample.gpus))
    if vram is not None:
        yield "vram", vram
    cgroup = memory_pct(sample.mem)
    if cgroup is not None:
        yield "cgroup", cgroup
    for disk in sample.disks[:MOST_MOUNTS]:
        if len(disk.mount) > LONGEST_MOUNT:
            continue
        for what, share in (("disk", byte_pct(disk)), ("inodes", inode_pct(disk))):
            if share is not None:
                yield f"{what}:{disk.mount}", share


class _Sum:
    __slots__ = ("counts", "sums", "total")

    def __init__(self) -> None:
        self.total = 0
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}


class Means:
    """Adds up samples per box and minute."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Sum] = {}

    def take(self, box: BoxState) -> None:
        """Count the newest sample of a box; what cannot be true of it is left out."""
        if box.sample is None or box.sample_at is None or not 0.0 <= box.sample_at < LATEST:
            return
        found = dict(readings(box.sample))
        key = (box.spec.name, int(box.sample_at // WIDTH))
        each = self._open.get(key)
        if each is None:
            each = self._open[key] = _Sum()
        each.total += 1
        for name, value in found.items():
            each.sums[name] = each.sums.get(name, 0.0) + value
            each.counts[name] = each.counts.get(name, 0) + 1

    def closed(self, now: float | None) -> tuple[Mean, ...]:
        """Return, once, the minutes that are over; all of them when `now` is None."""
        over = [key for key in self._open if now is None or (key[1] + 1) * WIDTH + LATE_SECONDS <= now]
        # A minute of the future is of a clock that has since been set back: it closes at once.
        over += [key for key in self._open if now is not None and key[1] * WIDTH > now + WIDTH]
        found = []
        for key in over:
            each = self._open.pop(key)
            values = {name: total / each.counts[name] for name, total in each.sums.items()}
            found.append(Mean(key[0], key[1], each.total, values))
        return tuple(found)
