"""The rules, as a table: each looks at a box and yields the alerts that hold now."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rgt_tui.alerts.assessment import Alert
from rgt_tui.alerts.rules_queue import failed, finished_but_billing, interrupted, stalled, waiting_alone
from rgt_tui.alerts.view import View
from rgt_tui.model.box import Link
from rgt_tui.model.evidence import Severity
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.readings import age, byte_pct, inode_pct, memory_pct, pct, size

DISK_ERROR_PCT = 95.0
DISK_WARN_PCT = 80.0
MEMORY_ERROR_PCT = 97.0
MEMORY_WARN_PCT = 90.0
OOM_RECENT_S = 600.0
"""A kill by the kernel is an alert for this long."""
METER_OLD_S = 600.0
"""A provider that could not be read for this long is an alert."""

BAD = (Severity.FATAL, Severity.SILENT_WRONG)
WORDS = {"inodes": "inodes", "bytes": "disk", "quota": "quota", "space": "disk", "memory": "memory"}
"""A resource's word in a row; for other findings the id of the handbook entry stands there."""

Rule = Callable[[View], Iterator[Alert]]


def findings(view: View) -> Iterator[Alert]:
    """A diagnosis: what ends a run or spoils it unseen is an error until its cause is gone, the rest a warning."""
    for finding in view.box.findings:
        bad = finding.severity in BAD and not finding.cleared
        tail = "cause gone, not saved yet" if finding.cleared else (finding.reading or finding.evidence)
        who = f" · {finding.run}" if finding.run else ""
        yield Alert(
            id=f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}",
            level="error" if bad else "warn",
            text=f"{finding.resource}: {tail} · {finding.gotcha}{who}",
            word=WORDS.get(finding.resource.split(" of ")[0], finding.gotcha),
        )


def _filling(disk: Disk, what: str, share: float | None, detail: str) -> Iterator[Alert]:
    if share is not None and share >= DISK_WARN_PCT:
        level = "error" if share >= DISK_ERROR_PCT else "warn"
        text = f"{disk.mount} {pct(share)} of its {what} used ({detail})"
        yield Alert(id=f"{what}:{disk.mount}", level=level, text=text, word=WORDS[what])


def disks(view: View) -> Iterator[Alert]:
    """Inodes and bytes of every mount that can be written; a mount that cannot be read."""
    named = {finding.resource for finding in view.box.findings}
    for disk in view.box.sample.disks if view.box.sample else ():
        if disk.error is not None:
            yield Alert(f"mount:{disk.mount}", "warn", f"{disk.mount} cannot be read: {disk.error}", "mount")
        if disk.read_only:
            continue
        if f"inodes of {disk.mount}" not in named:
            detail = f"{disk.inodes_used or 0:,} of {disk.inodes_total or 0:,}"
            yield from _filling(disk, "inodes", inode_pct(disk), detail)
        if f"bytes of {disk.mount}" not in named:
            yield from _filling(disk, "bytes", byte_pct(disk), f"{size(disk.bytes_free)} free")


def memory(view: View) -> Iterator[Alert]:
    """The container's memory against its own limit, page cache that can be taken back left out."""
    if view.box.sample is None:
        return
    mem = view.box.sample.mem
    share = memory_pct(mem)
    if share is not None and share >= MEMORY_WARN_PCT:
        level = "error" if share >= MEMORY_ERROR_PCT else "warn"
        used = max(0, (mem.used or 0) - (mem.cache or 0))
        text = f"container memory {pct(share)}: {size(used)} of {size(mem.limit)}, cache left out"
        yield Alert("memory", level, text, "memory")


def oom(view: View) -> Iterator[Alert]:
    """The kernel killed something in the container lately."""
    recent = [e for e in view.box.events if e.kind == "oom-kill" and view.box_now - e.at <= OOM_RECENT_S]
    if recent:
        kills = view.box.sample.mem.oom_kills if view.box.sample else None
        count = "" if kills is None else f" (oom kills {kills})"
        text = f"the kernel killed for memory {age(view.box_now - recent[-1].at)} ago{count}"
        yield Alert("oom-kill", "error", text, "oom")


def host_key(view: View) -> Iterator[Alert]:
    """The box shows another key than the one known."""
    if view.box.link is Link.REFUSED_KEY:
        yield Alert("host-key", "error", f"host key refused: {view.box.reason}", "key")


def meter_unread(view: View) -> Iterator[Alert]:
    """The provider has not been read for a while: nobody knows what the box costs."""
    meter = view.box.meter
    if meter.error is not None and (meter.at is None or view.now - meter.at > METER_OLD_S):
        last = "never read" if meter.at is None else f"last read {age(view.now - meter.at)} ago"
        yield Alert("meter", "warn", f"meter unknown, {last}: {meter.error}", "meter")


LIVE_RULES: tuple[Rule, ...] = (findings, disks, memory, oom, failed, interrupted, stalled, waiting_alone)
"""Need figures of a box that is there; a box that is stopped or gone has none."""
ALWAYS_RULES: tuple[Rule, ...] = (host_key, meter_unread, finished_but_billing)
"""Hold whatever the link is."""
