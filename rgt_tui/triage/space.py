"""What a mount is short of, by its live reading. The kernel says *no space* for bytes and inodes alike."""

from __future__ import annotations

from collections.abc import Iterator

from rgt_tui.health.facts import DISK_MARGIN_PCT, short_of
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Fix
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.readings import byte_pct, inode_pct, pct, size
from rgt_tui.triage.fixes import byte_fixes, inode_fixes
from rgt_tui.triage.handbook import HANDBOOK

STORAGE_IDS = ("U6", "U7")
TITLES = {
    "inodes": "No inodes left: there is room, but no file can be made",
    "bytes": "The disk is full",
    "quota": "The quota is used up",
    "space": "No space left on a disk",
}
NEARLY = {
    "inodes": "Nearly all inodes are used: soon no file can be made",
    "bytes": "The disk is nearly full",
}
"""Titles of what a reading alone says while there is something left."""


def reading(disk: Disk, what: str) -> str:
    """Return the live reading beside the evidence, e.g. ``4,096 of 4,096 inodes used (bytes 3 %)``."""
    if what == "inodes":
        used, total = disk.inodes_used or 0, disk.inodes_total or 0
        return f"{used:,} of {total:,} inodes used (bytes {pct(byte_pct(disk))})"
    free = f"{size(disk.bytes_used)} of {size(disk.bytes_total)} used, {size(disk.bytes_free)} free"
    return f"{free} (inodes {pct(inode_pct(disk))})"


def fixes(box: BoxState, what: str, disk: Disk | None, last_good: int | None) -> tuple[Fix, ...]:
    """Return the steps out of it."""
    if disk is None:
        return (Fix("Check both, bytes and inodes", "df -h; df -i"),)
    return inode_fixes(box, disk, last_good) if what == "inodes" else byte_fixes(disk, last_good)


def from_readings(box: BoxState, named: set[str], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield a finding for each mount that is full by its reading alone, but for the `named` resources."""
    standing = {finding.resource for finding in previous if not finding.cleared}
    for disk in box.sample.disks if box.sample is not None else ():
        what = short_of(disk)
        if what is None:
            lower = short_of(disk, DISK_MARGIN_PCT)
            what = lower if f"{lower} of {disk.mount}" in standing else None
        if what is None or f"{what} of {disk.mount}" in named:
            continue
        entry = HANDBOOK["U7" if what == "inodes" else "U6"]
        proof = reading(disk, what)
        yield Finding(
            gotcha=entry.id,
            title=(NEARLY if _left(disk, what) else TITLES)[what],
            severity=entry.severity,
            resource=f"{what} of {disk.mount}",
            evidence=f"{disk.mount}: {proof}",
            where="sample",
            fixes=fixes(box, what, disk, None),
            never=entry.never,
            reading=proof,
        )


def _left(disk: Disk, what: str) -> bool:
    """Say whether anything is left of it."""
    share = inode_pct(disk) if what == "inodes" else byte_pct(disk)
    return share is not None and share < 100
