"""Phase 0: what is this box, and will the work fit on it?"""

from __future__ import annotations

from rgt_tui.health.facts import CHECKPOINTS_AHEAD, DISK_ERROR_PCT, DISK_WARN_PCT, FILES_PER_CHECKPOINT, Facts
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, waiting, warn
from rgt_tui.profiles.readings import disk_of, inode_pct, pct, size


def profile_known(view: Facts) -> Verdict:
    """The platform is known, and its worst danger is on the screen."""
    if view.profile.id != view.box.spec.profile:
        return warn(
            f"no profile '{view.box.spec.profile}'; {view.profile.name} is used: {view.profile.top_danger}"
        )
    return passed(f"{view.profile.name}: {view.profile.top_danger}")


def inodes(view: Facts) -> Verdict:
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


def memory_limit(view: Facts) -> Verdict:
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


def gpu_seen(view: Facts) -> Verdict:
    """A card answers. A replayed trace is called what it is, and proves nothing."""
    if view.box.sample is None:
        return waiting("no sample yet")
    gpus, at = view.box.sample.gpus, view.box.sample_at
    if not gpus:
        return failed("no GPU is seen on this box", at)
    broken = [gpu for gpu in gpus if gpu.error is not None]
    if broken:
        return failed(f"GPU {broken[0].index}: {broken[0].error}", at)
    names = f"{len(gpus)} × {gpus[0].name}"
    if any(gpu.sim for gpu in gpus):
        return warn(f"SIM: {names} replayed from a trace, no real GPU was seen", at)
    source = view.box.hello.gpu_source if view.box.hello is not None else "?"
    return passed(f"{names}, by {source}", at)


def checkpoint_budget(view: Facts) -> Verdict:
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
