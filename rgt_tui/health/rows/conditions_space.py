"""Conditions of space: bytes and inodes per mount, how soon they run out, and the container's memory."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.health.condition import (
    NOTHING,
    YES,
    YES_ERROR,
    AlertRung,
    Condition,
    Covered,
    LifecycleCheck,
    Reading,
    Verdict,
    failed_verdict,
    level_of_value,
    passed_verdict,
    unread_mount,
    unread_verdict,
    verdict_of_level,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.facts import LIMITS, BoxFacts
from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    DiskReading,
    Finding,
    format_duration,
    memory,
    pct,
    size,
)
from rgt_tui.profiles import (
    byte_pct,
    disk_of,
    inode_pct,
    is_absent,
    memory_pct,
    path_survives,
    saved_point,
    tier_of,
)

DISK = (
    AlertRung("warn", LIMITS.disk_warn_pct, LIMITS.disk_warn_pct - LIMITS.disk_margin_pct),
    AlertRung("error", LIMITS.disk_error_pct, LIMITS.disk_error_pct - LIMITS.disk_margin_pct),
)
MEMORY = (
    AlertRung("warn", LIMITS.memory_warn_pct, LIMITS.memory_warn_pct - LIMITS.memory_margin_pct),
    AlertRung("error", LIMITS.memory_error_pct, LIMITS.memory_error_pct - LIMITS.memory_margin_pct),
)


def _list_disks(view: BoxFacts) -> tuple[DiskReading, ...]:
    sample = view.box.sample
    if sample is not None:
        return sample.disks
    return ()


def read_inodes(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of used inodes per writable mount."""
    return [
        # A mount with an error keeps its reading: left out, its alert would end without any free
        # space.
        Reading(disk.mount, inode_pct(disk) if disk.error is None else None, disk)
        for disk in _list_disks(view)
        # Images such as squashfs are always 100% full, and nothing will be written there.
        if not disk.read_only
    ]


def say_inodes(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the numbers."""
    disk: DiskReading = reading.about
    detail = translate(
        "{used:,} of {total:,}", used=disk.inodes_used or 0, total=disk.inodes_total or 0
    )
    return translate(
        "{mount} {pct} of its inodes used ({detail})",
        mount=disk.mount,
        pct=pct(reading.value),
        detail=detail,
    )


def read_bytes(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of used bytes per writable mount."""
    return [
        Reading(disk.mount, byte_pct(disk) if disk.error is None else None, disk)
        for disk in _list_disks(view)
        if not disk.read_only
    ]


def say_bytes(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the free bytes."""
    disk: DiskReading = reading.about
    return translate(
        "{mount} {pct} of its bytes used ({bytes_free} free)",
        mount=disk.mount,
        pct=pct(reading.value),
        bytes_free=size(disk.bytes_free),
    )


def read_filling(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the hours until a mount is full, at the growth rate of the last half hour."""
    trends = view.memory.trends
    if not trends:
        return None
    found = []
    # Hours to full for a mount that does not grow.
    far = 1e6
    for disk in _list_disks(view):
        for what, free in (("bytes", disk.bytes_free), ("inodes", _free_inodes(disk))):
            trend = trends.get(f"{what}:{disk.mount}")
            if trend is None or trend.slope is None or free is None:
                continue
            # A number, not None, which would keep an alert up after the growth has ended.
            if trend.slope <= 0:
                hours = far
            else:
                hours = free / trend.slope / 3600.0
            # Bytes and inodes apart: they run out at different times and have different remedies.
            found.append(Reading(f"{what}:{disk.mount}", min(hours, far), (disk, what, free)))
    return found


def say_filling(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the time, and how much is left."""
    disk, what, free = reading.about
    if what == "bytes":
        left = size(free)
    else:
        left = f"{free:,} inodes"
    when = format_duration((reading.value or 0.0) * 3600.0)
    return translate(
        "{mount} runs out of {what} in {when} at the pace of the last half hour ({left} free)",
        mount=disk.mount,
        what=what,
        when=when,
        left=left,
    )


def _free_inodes(disk: DiskReading) -> int | None:
    if disk.inodes_total is None or disk.inodes_used is None:
        return None
    return max(0, disk.inodes_total - disk.inodes_used)


def read_mount(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the mounts that cannot be read."""
    return [
        Reading(disk.mount, 1.0, disk)
        for disk in _list_disks(view)
        # A mount that the profile expects and this box never had is not broken.
        if disk.error is not None and not is_absent(disk, view.box)
    ]


def say_mount(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the error."""
    return translate(
        "{mount} cannot be read: {error}", mount=reading.about.mount, error=reading.about.error
    )


def read_memory(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of the container's memory limit in use, without page cache."""
    sample = view.box.sample
    if sample is not None:
        # Without page cache, which the kernel gives back before it kills.
        share = memory_pct(sample.mem)
    else:
        share = None
    if share is None:
        return None
    return (Reading("", share),)


def say_memory(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the numbers."""
    assert view.box.sample is not None
    mem = view.box.sample.mem
    used = max(0, (mem.used or 0) - (mem.cache or 0))
    return translate(
        "container memory {pct}: {used} of {limit}, without cache",
        pct=pct(reading.value),
        used=memory(used),
        limit=memory(mem.limit),
    )


def read_oom(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the number of OOM kills: the container's counter plus the recorder's events."""
    sample = view.box.sample
    if sample is not None:
        kills = sample.mem.oom_kills
    else:
        kills = None
    news = view.news
    # Both sources: the counter is lost with the container, events with a recorder that was off.
    if kills is None and not news.oom_seq:
        return NOTHING
    if news.oom_at is None:
        ago = None
    else:
        # The event's time is the box's.
        ago = max(0.0, view.box_now - news.oom_at)
    return (Reading("", float((kills or 0) + news.oom_seq), age_s=ago),)


def say_oom(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the time, and the total."""
    sample = view.box.sample
    if sample is not None:
        kills = sample.mem.oom_kills
    else:
        kills = None
    if kills is None:
        count = ""
    else:
        count = translate(" (oom kills {kills})", kills=kills)
    return translate(
        "the kernel killed a process for lack of memory {now} ago{count}",
        now=format_duration(view.now - since),
        count=count,
    )


def check_inodes(view: BoxFacts) -> Verdict:
    """Every mount has inodes to spare. Bytes say nothing about them."""
    sample = view.box.sample
    if sample is None:
        return waiting_verdict(translate("no sample yet"))
    shares = [
        (share, d.mount)
        for d in sample.disks
        if not d.read_only and (share := inode_pct(d)) is not None
    ]
    # Before the shares: "all below 80%" is not true of a mount that was not read.
    unread = [disk.mount for disk in sample.disks if disk.error is not None]
    if unread:
        return warn_verdict(
            translate("cannot be read: {unread}", unread=", ".join(unread)), view.box.sample_at
        )
    if not shares:
        return waiting_verdict(
            translate("no mount with a fixed number of inodes was read"), view.box.sample_at
        )
    worst, mount = max(shares)
    text = translate(
        "{mount} {worst}, the fullest of {shares}",
        mount=mount,
        worst=pct(worst),
        shares=len(shares),
    )
    return verdict_of_level(text, level_of_value(DISK, worst), view.box.sample_at)


def check_memory_limit(view: BoxFacts) -> Verdict:
    """The memory that counts is the container's; the host's belongs to all tenants."""
    if view.box.sample is None:
        return waiting_verdict(translate("no sample yet"))
    mem, at = view.box.sample.mem, view.box.sample_at
    if mem.host_total is None:
        host = ""
    else:
        host = translate(
            "; the host's {host_total} are not yours", host_total=memory(mem.host_total)
        )
    if mem.limit is not None:
        return passed_verdict(
            translate(
                "cgroup v{cgroup} limit {limit}{host}",
                cgroup=mem.cgroup or "?",
                limit=memory(mem.limit),
                host=host,
            ),
            at,
        )
    # No limit visible and no limit set differ: only the second one is a fact.
    if mem.cgroup is None:
        return warn_verdict(translate("no memory controller is visible: the limit is unknown"), at)
    return warn_verdict(
        translate(
            "cgroup v{cgroup} sets no limit here; whether one is set above is not visible",
            cgroup=mem.cgroup,
        ),
        at,
    )


def check_checkpoint_budget(view: BoxFacts) -> Verdict:
    """Three more checkpoints fit, by bytes and by inodes."""
    if view.newest_checkpoint is None or view.box.sample is None:
        return unread_verdict(view, translate("no checkpoint yet: its size is unknown"))
    run, point = view.newest_checkpoint
    disk = disk_of(view.box.sample.disks, point.path)
    if disk is None or disk.bytes_free is None:
        return waiting_verdict(translate("the disk of {path} is not read", path=point.path))
    need, at = LIMITS.checkpoints_ahead * point.bytes, view.box.sample_at
    files = LIMITS.checkpoints_ahead * LIMITS.files_per_checkpoint
    ahead = f"{LIMITS.checkpoints_ahead} × {size(point.bytes)}"
    text = translate(
        "{run}: {ahead}, {bytes_free} free on {mount}",
        run=run,
        ahead=ahead,
        bytes_free=size(disk.bytes_free),
        mount=disk.mount,
    )
    if disk.bytes_free < need:
        return failed_verdict(text, at)
    # Checked apart, since sharded checkpoints are thousands of files.
    if disk.inodes_total is not None and disk.inodes_used is not None:
        free = disk.inodes_total - disk.inodes_used
        text += translate(", {free:,} inodes free", free=free)
        if free < files:
            return failed_verdict(text, at)
    return passed_verdict(text, at)


def check_checkpoints_stay(view: BoxFacts) -> Verdict:
    """Checkpoints land on a disk that a stop leaves alone."""
    if view.newest_checkpoint is None:
        return unread_verdict(view, translate("no checkpoint yet"))
    run, point = view.newest_checkpoint
    at = view.to_client_time(point.at)
    storage = view.storage_for(BillingVerb.PARK)
    tier = tier_of(view.profile, point.path, known=storage.known)
    doubts = "".join(f"; {doubt.text}" for doubt in storage.doubts_at(point.path))
    if tier is None:
        return warn_verdict(
            translate(
                "{run}: {path}; that disk is not in the profile{doubts}",
                run=run,
                path=point.path,
                doubts=doubts,
            ),
            at,
        )
    text = translate("{run}: {point} on {tier}", run=run, point=saved_point(point), tier=tier.name)
    stays = path_survives(point.path, view.profile, storage.known, BillingVerb.PARK)
    if stays is False:
        return failed_verdict(
            translate("{words}, which a stop empties{doubts}", words=text, doubts=doubts), at
        )
    if stays is None:
        return warn_verdict(
            translate(
                "{words}; unknown whether it survives a stop{doubts}", words=text, doubts=doubts
            ),
            at,
        )
    text = translate("{words}, which survives a stop{doubts}", words=text, doubts=doubts)
    # Fleet file, provider or box contradict the profile: that it survives is then not sure.
    if doubts:
        return warn_verdict(text, at)
    return passed_verdict(text, at)


def check_memory(view: BoxFacts) -> Verdict:
    """The container's memory is below its limit, and the kernel killed nothing."""
    if view.box.sample is None:
        return waiting_verdict(translate("no sample yet"))
    mem, at = view.box.sample.mem, view.box.sample_at
    share = memory_pct(mem)
    if mem.oom_kills is None:
        kills = "?"
    else:
        kills = str(mem.oom_kills)
    text = translate(
        "{share} of {limit}, without cache; oom kills {kills}",
        share=pct(share),
        limit=memory(mem.limit),
        kills=kills,
    )
    # A kernel without the counter could have killed unseen.
    if share is None or mem.oom_kills is None:
        return warn_verdict(text, at)
    return verdict_of_level(
        text, level_of_value(MEMORY, share) or ("warn" if mem.oom_kills else None), at
    )


def mount_short_of(what: str) -> Covered:
    """Return a function for the mount that a finding calls short of `what`."""

    def short_mount(finding: Finding) -> str | None:
        # The form in which `fulldisk` writes a resource, e.g. "inodes of /data".
        resource, _, where = finding.resource.partition(" of ")
        if resource == what and where:
            return where
        return None

    return short_mount


def memory_reading(box: BoxState) -> str | None:
    """Return the OOM kills and the memory use of the container now."""
    if box.sample is None:
        return None
    mem = box.sample.mem
    if mem.oom_kills is None:
        kills = "?"
    else:
        kills = str(mem.oom_kills)
    return translate(
        "oom kills {kills}, memory now {mem} of {limit}",
        kills=kills,
        mem=pct(memory_pct(mem)),
        limit=memory(mem.limit),
    )


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "bytes", "A mount is running out of bytes", "disk", read_bytes, say_bytes,
        DISK,
        unit="% used", quiet_s=30.0, gauge=True,
        over="{key} has free space again",
        advice="Free space, old checkpoints and caches first, before the next save fails.",
        findings=("U6", "U7"),
        covered=mount_short_of("bytes"),
        checks=(LifecycleCheck("0.5", "three more checkpoints fit, bytes and inodes",
                               check_checkpoint_budget),),
    ),
    Condition(
        "inodes", "A mount is running out of inodes", "inodes", read_inodes, say_inodes,
        DISK,
        unit="% used", quiet_s=30.0, gauge=True,
        over="{key} has free inodes again",
        advice="Remove directories of many small files; free bytes do not help.",
        findings=("U6", "U7"),
        covered=mount_short_of("inodes"),
        checks=(
            LifecycleCheck("0.2", "inodes below 80% on every mount", check_inodes),
            LifecycleCheck("4.3", "inodes below 80% everywhere", check_inodes),
        ),
    ),
    Condition(
        "filling", "A mount will soon be full", "filling", read_filling, say_filling,
        (AlertRung("warn", 3.0, 4.0), AlertRung("error", 0.5, 0.75)), unit="h to full", below=True,
        hold_s=300.0,
        quiet_s=120.0, gauge=True,
        over="no longer filling up",
        advice="Find the growing files and limit them (retention, logs), or free space in time.",
        see="U6 U7",
    ),
    Condition(
        "mount", "A mount cannot be read", "mount", read_mount, say_mount, YES,
        needs=unread_mount,
        over="{key} can be read again",
        advice="Check the mount on the box; do not start anything that saves there.",
        see="C4",
    ),
    Condition(
        "memory", "The container is running out of memory", "memory", read_memory,
        say_memory,
        MEMORY, unit="% of limit",
        quiet_s=30.0, gauge=True,
        over="the container has free memory again",
        advice="Fewer loader workers or smaller caches in the process; the kernel kills at the "
               "limit.",
        checks=(LifecycleCheck("4.8", "container memory below 90%, no kill", check_memory),),
        see="U9",
    ),
    Condition(
        "oom-kill", "The kernel killed a process for lack of memory", "oom", read_oom,
        say_oom, YES_ERROR,
        unit="more kills", rises=True, quiet_s=LIMITS.oom_recent_s,
        over="no further process was killed for lack of memory",
        advice="Find out which process was killed; reduce its memory before you start it again.",
        findings=("U9",),
        see="U41",
    ),
)  # fmt: skip
"""The rows of the table of conditions that are about space."""
