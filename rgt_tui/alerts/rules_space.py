"""Space: bytes and inodes of each mount, how soon they are used up, and the container's memory."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.alerts.kind import Reading
from rgt_tui.alerts.rules_link import NOTHING
from rgt_tui.health.facts import Facts
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.readings import age, byte_pct, inode_pct, memory_pct, pct, size

FAR = 1e6
"""Hours to full of what does not grow."""


def _disks(view: Facts) -> tuple[Disk, ...]:
    sample = view.box.sample
    return sample.disks if sample is not None else ()


def read_inodes(view: Facts) -> Sequence[Reading] | None:
    """Percent of the inodes in use, per mount that can be written."""
    return [
        Reading(disk.mount, inode_pct(disk) if disk.error is None else None, disk)
        for disk in _disks(view)
        if not disk.read_only
    ]


def say_inodes(view: Facts, reading: Reading, since: float) -> str:
    """Give the share and the numbers."""
    disk: Disk = reading.about
    detail = f"{disk.inodes_used or 0:,} of {disk.inodes_total or 0:,}"
    return f"{disk.mount} {pct(reading.value)} of its inodes used ({detail})"


def read_bytes(view: Facts) -> Sequence[Reading] | None:
    """Percent of the bytes in use, per mount that can be written."""
    return [
        Reading(disk.mount, byte_pct(disk) if disk.error is None else None, disk)
        for disk in _disks(view)
        if not disk.read_only
    ]


def say_bytes(view: Facts, reading: Reading, since: float) -> str:
    """Give the share and what is free."""
    disk: Disk = reading.about
    return f"{disk.mount} {pct(reading.value)} of its bytes used ({size(disk.bytes_free)} free)"


def read_filling(view: Facts) -> Sequence[Reading] | None:
    """Hours until a mount is full, at the pace of the last half hour."""
    trends = view.memory.trends
    if not trends:
        return None
    found = []
    for disk in _disks(view):
        for what, free in (("bytes", disk.bytes_free), ("inodes", _free_inodes(disk))):
            trend = trends.get(f"{what}:{disk.mount}")
            if trend is None or trend.slope is None or free is None:
                continue
            hours = FAR if trend.slope <= 0 else free / trend.slope / 3600.0
            found.append(Reading(f"{what}:{disk.mount}", min(hours, FAR), (disk, what, free)))
    return found


def say_filling(view: Facts, reading: Reading, since: float) -> str:
    """Say when, and how much is left."""
    disk, what, free = reading.about
    left = size(free) if what == "bytes" else f"{free:,} inodes"
    when = age((reading.value or 0.0) * 3600.0)
    return f"{disk.mount} runs out of {what} in {when} at the pace of the last half hour ({left} free)"


def _free_inodes(disk: Disk) -> int | None:
    if disk.inodes_total is None or disk.inodes_used is None:
        return None
    return max(0, disk.inodes_total - disk.inodes_used)


def read_mount(view: Facts) -> Sequence[Reading] | None:
    """Mounts that cannot be read."""
    return [Reading(disk.mount, 1.0, disk) for disk in _disks(view) if disk.error is not None]


def say_mount(view: Facts, reading: Reading, since: float) -> str:
    """Say why."""
    return f"{reading.about.mount} cannot be read: {reading.about.error}"


def read_memory(view: Facts) -> Sequence[Reading] | None:
    """Percent of the container's limit, page cache that can be taken back left out."""
    sample = view.box.sample
    share = memory_pct(sample.mem) if sample is not None else None
    return None if share is None else (Reading("", share),)


def say_memory(view: Facts, reading: Reading, since: float) -> str:
    """Give the share and the numbers."""
    assert view.box.sample is not None
    mem = view.box.sample.mem
    used = max(0, (mem.used or 0) - (mem.cache or 0))
    return f"container memory {pct(reading.value)}: {size(used)} of {size(mem.limit)}, cache left out"


def read_oom(view: Facts) -> Sequence[Reading] | None:
    """How often the kernel has killed: the container's counter and the recorder's events both grow."""
    sample = view.box.sample
    kills = sample.mem.oom_kills if sample is not None else None
    news = view.news
    if kills is None and not news.oom_seq:
        return NOTHING
    ago = None if news.oom_at is None else max(0.0, view.box_now - news.oom_at)
    return (Reading("", float((kills or 0) + news.oom_seq), age_s=ago),)


def say_oom(view: Facts, reading: Reading, since: float) -> str:
    """Say when, and how often in all."""
    sample = view.box.sample
    kills = sample.mem.oom_kills if sample is not None else None
    count = "" if kills is None else f" (oom kills {kills})"
    return f"the kernel killed for memory {age(view.now - since)} ago{count}"
