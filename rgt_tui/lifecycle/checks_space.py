"""What the checklist asks of space."""

from __future__ import annotations

from rgt_tui.health.facts import (
    CHECKPOINTS_AHEAD,
    DISK_ERROR_PCT,
    DISK_WARN_PCT,
    FILES_PER_CHECKPOINT,
    MEMORY_ERROR_PCT,
    MEMORY_WARN_PCT,
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, waiting, warn
from rgt_tui.profiles.readings import disk_of, inode_pct, memory_pct, pct, size
from rgt_tui.profiles.survival import survival


def check_inodes(view: Facts) -> Verdict:
    """Every mount has inodes to spare. Bytes say nothing about them."""
    sample = view.box.sample
    if sample is None:
        return waiting("no sample yet")
    shares = [
        (share, d.mount) for d in sample.disks if not d.read_only and (share := inode_pct(d)) is not None
    ]
    unread = [disk.mount for disk in sample.disks if disk.error is not None]
    if unread:
        return warn(f"cannot be read: {', '.join(unread)}", view.box.sample_at)
    if not shares:
        return waiting("no mount with a fixed number of inodes was read", view.box.sample_at)
    worst, mount = max(shares)
    text = f"{mount} {pct(worst)}, the fullest of {len(shares)}"
    if worst >= DISK_ERROR_PCT:
        return failed(text, view.box.sample_at)
    if worst >= DISK_WARN_PCT:
        return warn(text, view.box.sample_at)
    return passed(text, view.box.sample_at)


def check_memory_limit(view: Facts) -> Verdict:
    """The memory that counts is the container's; the host's belongs to all tenants."""
    if view.box.sample is None:
        return waiting("no sample yet")
    mem, at = view.box.sample.mem, view.box.sample_at
    host = "" if mem.host_total is None else f"; the host's {size(mem.host_total)} are not yours"
    if mem.limit is not None:
        return passed(f"cgroup v{mem.cgroup or '?'} limit {size(mem.limit)}{host}", at)
    if mem.cgroup is None:
        return warn("no memory controller is visible: the limit is not known", at)
    return warn(f"cgroup v{mem.cgroup} sets no limit here; whether one is set above is not visible", at)


def check_checkpoint_budget(view: Facts) -> Verdict:
    """Three more checkpoints fit, by bytes and by inodes."""
    if view.newest is None or view.box.sample is None:
        return absent(view, "no checkpoint yet: its size is not known")
    run, point = view.newest
    disk = disk_of(view.box.sample.disks, point.path)
    if disk is None or disk.bytes_free is None:
        return waiting(f"the disk of {point.path} is not read")
    need, at = CHECKPOINTS_AHEAD * point.bytes, view.box.sample_at
    files = CHECKPOINTS_AHEAD * FILES_PER_CHECKPOINT
    text = f"{run}: {CHECKPOINTS_AHEAD} × {size(point.bytes)}, {size(disk.bytes_free)} free on {disk.mount}"
    if disk.bytes_free < need:
        return failed(text, at)
    if disk.inodes_total is not None and disk.inodes_used is not None:
        free = disk.inodes_total - disk.inodes_used
        text += f", {free:,} inodes free"
        if free < files:
            return failed(text, at)
    return passed(text, at)


def check_checkpoints_stay(view: Facts) -> Verdict:
    """Checkpoints land on a disk that a stop leaves alone."""
    if view.newest is None:
        return absent(view, "no checkpoint yet")
    run, point = view.newest
    at = view.client(point.at)
    tier = survival(view.profile, point.path, known=view.box.spec.tiers)
    if tier is None:
        return warn(f"{run}: {point.path}; the profile does not know that disk", at)
    text = f"{run}: step {point.step:,} on {tier.name}"
    if tier.survives_stop is True:
        return passed(f"{text}, which survives a stop", at)
    if tier.survives_stop is False:
        return failed(f"{text}, which a stop empties", at)
    return warn(f"{text}; whether it survives a stop is not known", at)


def check_memory(view: Facts) -> Verdict:
    """The container's memory is below its limit, and the kernel killed nothing."""
    if view.box.sample is None:
        return waiting("no sample yet")
    mem, at = view.box.sample.mem, view.box.sample_at
    share = memory_pct(mem)
    kills = "?" if mem.oom_kills is None else str(mem.oom_kills)
    text = f"{pct(share)} of {size(mem.limit)}, cache left out; oom kills {kills}"
    if share is None or mem.oom_kills is None:
        return warn(text, at)
    if share >= MEMORY_ERROR_PCT:
        return failed(text, at)
    return warn(text, at) if share >= MEMORY_WARN_PCT or mem.oom_kills else passed(text, at)
