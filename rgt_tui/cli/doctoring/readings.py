"""What one sample says about a box's readiness. Pure."""

from __future__ import annotations

from rgt_tui.cli.doctoring.finding import Status
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.protocol import Disk, Sample
from rgt_tui.profiles.readings import byte_pct, inode_pct, pct

Judged = tuple[Status, str, str]
"""Status, what was found, what to do."""

FULL_PCT, NEARLY_PCT = 97.0, 90.0
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 300.0


def judge(
    sample: Sample, spec: BoxSpec, named: tuple[str, ...], before: float, after: float
) -> dict[str, Judged]:
    """Return what each check makes of a sample.

    Args:
        sample: The sample.
        spec: The box.
        named: The mount points that are expected.
        before: Client clock when the sample was asked for.
        after: Client clock when it was there.
    """
    return {
        "disk": disk(sample.disks),
        "clock-skew": clock(sample.at, before, after),
        "mounts": mounts(sample.disks, named, bool(spec.mounts)),
        "gpu": gpu(sample),
    }


def disk(disks: tuple[Disk, ...]) -> Judged:
    """Bytes and inodes of every file system that can be written to."""
    shares = [
        (share, f"{disk.mount} {pct(share)} of its {what}")
        for disk in disks
        if not disk.read_only and disk.error is None
        for share, what in ((byte_pct(disk), "bytes"), (inode_pct(disk), "inodes"))
        if share is not None
    ]
    if not shares:
        return Status.WARN, "no file system could be read", ""
    worst, text = max(shares)
    if worst >= FULL_PCT:
        return Status.FAIL, f"{text} used", "free some, or have it enlarged: a checkpoint would not fit"
    if worst >= NEARLY_PCT:
        return Status.WARN, f"{text} used", "make room before the next run"
    return Status.OK, f"fullest: {text} used", ""


def clock(at: float, before: float, after: float) -> Judged:
    """The box's clock, as exactly as the time that the question took allows."""
    skew = 0.0 if before <= at <= after else at - (before if at < before else after)
    if abs(skew) >= SKEW_FAIL_S:
        return (
            Status.FAIL,
            f"{skew:+.0f} s against this machine",
            "set the box's clock (chrony), or this machine's",
        )
    if abs(skew) >= SKEW_WARN_S:
        return (
            Status.WARN,
            f"{skew:+.1f} s against this machine",
            "ages are corrected for it; TLS and Slurm are not",
        )
    return Status.OK, f"{skew:+.1f} s", ""


def mounts(disks: tuple[Disk, ...], named: tuple[str, ...], by_person: bool) -> Judged:
    """The mount points that are expected: a missing one is a failure only where the fleet file names it."""
    found = {disk.mount: disk for disk in disks}
    missing = [mount for mount in named if mount not in found or found[mount].error is not None]
    if not missing:
        return Status.OK, ", ".join(named) or "none is named", ""
    reasons = [f"{mount}: {found[mount].error if mount in found else 'not there'}" for mount in missing]
    if by_person:
        return Status.FAIL, "; ".join(reasons), "mount it, or correct `mounts` of this box"
    return Status.WARN, "; ".join(reasons), "the profile expects it; name what is there with `mounts`"


def gpu(sample: Sample) -> Judged:
    """The GPUs."""
    if not sample.gpus:
        return Status.WARN, "no GPU is found", "is this the box without a card, or is its driver missing?"
    broken = [f"GPU {gpu.index}: {gpu.error}" for gpu in sample.gpus if gpu.error]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in sample.gpus))
    text = f"{len(sample.gpus)} × {names}" + (" (replayed from a trace)" if sample.gpus[0].sim else "")
    if broken:
        return (
            Status.FAIL,
            f"{text}; {'; '.join(broken)}",
            "run `nvidia-smi` on the box; a reset or another box may be due",
        )
    return Status.OK, text, ""
