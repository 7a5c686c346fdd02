"""Which storage tier each mount of a box is on: the one answer for screens, checks, the teardown and the gate.

Three sources say it: the fleet file (`tiers`), the provider, and the box's own mounts. Where they disagree, the tier
that is less safe for the verb counts, and the disagreement is reported as a `Doubt`. No storage outlives the box by
somebody's word alone: the box's mount table has to show that it is no part of the root, and not in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from rgt_tui.model import BoxState, Cell, Mounted, Profile, Tier, Verb
from rgt_tui.profiles.loader import ProfileError, load_profile
from rgt_tui.profiles.readings import quoted
from rgt_tui.profiles.survival import (
    IN_MEMORY,
    NOT_MOUNTED,
    ON_ROOT,
    missing_storage,
    path_survives,
    tiers_of,
    unmounted,
    worse,
)


class Doubt(NamedTuple):
    """Two sources that disagree about one mount."""

    mount: str
    text: str
    by_box: bool = False
    """The box's own mounts contradict the profile; else the fleet file and the provider differ."""
    if_used: bool = False
    """It matters only where results lie: of the many mounts below the root, most hold none."""


class Storage(NamedTuple):
    """The storage of a box, judged for one verb."""

    known: dict[str, str]
    """Mount point → tier name; an empty name where nobody knows the disk."""
    doubts: tuple[Doubt, ...] = ()

    def doubts_at(self, path: str) -> tuple[Doubt, ...]:
        """Return the doubts about the mount that `path` is on."""
        mount = max((one for one in self.known if holds(one, path)), key=len, default="")
        return tuple(doubt for doubt in self.doubts if doubt.mount == mount)


def storage_of(
    box: BoxState, profile: Profile | None, verb: Verb, mounts: Sequence[Mounted] | None = None
) -> Storage:
    """Return the storage tier of each mount point of a box.

    Args:
        box: Its fleet-file description, the provider's newest reading and its mounts.
        profile: Its platform; None = unknown: then nobody but the fleet file says anything.
        verb: What the storage would have to outlive; the worse of two tiers depends on it.
        mounts: The box's mount table, for a billing action: what is not in it is no storage. None = judge only the
            mounts that the box samples.
    """
    said = box.spec.tiers
    if profile is None:
        return Storage(dict(said))
    names = {tier.name for tier in profile.tiers}
    # The provider's name for a tier that this profile lacks is of another platform, and says nothing here.
    provided = {mount: name for mount, name in box.meter.tiers.items() if name in names}
    found, doubts = dict(provided), []
    bare = msgspec.structs.replace(profile, tiers=_without_mounts(profile))
    for mount, name in said.items():
        holding = tiers_of(mount, bare, provided)
        theirs = holding[0].name if holding else None
        if theirs is None or theirs == name:
            found[mount] = name
            continue
        counts = found[mount] = worse(profile, verb, name, theirs)
        text = (
            f"{quoted(mount)} is {quoted(name)} by the fleet file and {quoted(theirs)} by the provider; "
            f"the worse counts: {quoted(counts)}"
        )
        doubts.append(Doubt(mount, text))
    for disk in box.sample.disks if box.sample is not None else ():
        for mount, name in unmounted(profile, (disk,), found).items():
            found[mount] = name
            text = f"{quoted(mount)} is not a mount of its own on this box: it is on {quoted(disk.on or '')}"
            text += f" ({quoted(name)})" if name else ", of which nothing is known"
            doubts.append(Doubt(mount, text, by_box=True))
    doubts += _without_witness(box, profile, verb, found, mounts)
    doubts += _within_storage(profile, verb, found, mounts or ())
    return Storage(found, tuple(doubts))


def sampled_mounts(box: BoxState) -> tuple[Mounted, ...]:
    """Return what a box samples of its mount table."""
    disks = box.sample.disks if box.sample is not None else ()
    return tuple(
        Mounted(path=disk.on or disk.mount, kind=disk.kind or "") for disk in disks if disk.error is None
    )


def _without_witness(
    box: BoxState,
    profile: Profile,
    verb: Verb,
    found: dict[str, str],
    mounts: Sequence[Mounted] | None,
) -> Iterator[Doubt]:
    """Take out of `found` all storage that outlives the box by somebody's word, but not by its mount table."""
    disks = {disk.mount: disk for disk in (box.sample.disks if box.sample is not None else ())}
    table = sampled_mounts(box) if mounts is None else mounts
    own_root = {tier.name for tier in profile.tiers if "/" in tier.mounts}
    for mount in sorted({*found, *(mount for tier in profile.tiers for mount in tier.mounts)}):
        if mounts is None and (mount not in disks or disks[mount].error is not None):
            continue
        if mount == "/" and found.get("/", "") in ("", *own_root):
            continue
        if not any(path_survives(mount, profile, found, one) is True for one in (verb, Verb.DESTROY)):
            continue
        real = disks[mount].on or mount if mount in disks else mount
        why = missing_storage(real, table, at_root=mount == "/")
        if not why:
            continue
        claimants = tiers_of(mount, profile, found)
        claimed = " or ".join(tier.name for tier in claimants)
        around = tiers_of(str(PurePosixPath(mount).parent), profile, found) if mount != "/" else ()
        if mount == "/" and own_root:
            del found[mount]
        else:
            is_directory = why in (NOT_MOUNTED, ON_ROOT) and len(around) == 1
            if is_directory and claimants == around:
                continue  # a directory of the root by the profile, too
            found[mount] = around[0].name if is_directory else ""
        text = f"{quoted(mount)} is said to be {quoted(claimed)}, but by the box's mount table {why}: it does not count"
        yield Doubt(mount, text, by_box=True)


def _within_storage(
    profile: Profile, verb: Verb, found: dict[str, str], table: Sequence[Mounted]
) -> Iterator[Doubt]:
    """Take mounts within storage that outlives the box for storage of their own, of which nobody says anything.

    The root itself may be such storage, with memory or another disk mounted below it.
    """
    rows = {row.path: row for row in table}
    named = {*found, *(mount for tier in profile.tiers for mount in tier.mounts)}
    for mount in sorted(rows.keys() - named - {"/"}):
        around = max((one for one in named if holds(one, mount)), key=len, default="/")
        if around not in rows:
            continue
        outer = max((one for one in rows if one != mount and holds(one, mount)), key=len, default=around)
        if rows[mount].device and rows[mount].device == rows[outer].device:
            continue
        if not any(path_survives(mount, profile, found, one) is True for one in (verb, Verb.DESTROY)):
            continue
        found[mount] = ""
        text = (
            f"{quoted(mount)} is a mount of its own within {quoted(around)}: nobody says whether it is kept"
        )
        if rows[mount].kind in IN_MEMORY:
            text = f"{quoted(mount)} is in memory ({rows[mount].kind}): it is lost, although {quoted(around)} is kept"
        yield Doubt(mount, text, by_box=True, if_used=around == "/")


def copy_survives(cell: Cell, profile: Profile, known: Mapping[str, str], verb: Verb) -> bool | None:
    """Tell whether a done cell has a copy that the runner verified and that outlives the verb; None = unknown."""
    if cell.state != "done" or cell.durable != "verified":
        return False
    if not cell.durable_path:
        return None
    return path_survives(cell.durable_path, profile, known, verb)


def copies_of(box: BoxState, verb: Verb = Verb.DESTROY) -> Callable[[Cell], bool | None]:
    """Return what answers `copy_survives` for the cells of one box: for screens and events, which have no profile."""
    try:
        profile = load_profile(box.spec.profile)
    except ProfileError:
        return lambda cell: None
    known = storage_of(box, profile, verb).known
    return lambda cell: copy_survives(cell, profile, known, verb)


def _without_mounts(profile: Profile) -> tuple[Tier, ...]:
    return tuple(msgspec.structs.replace(tier, mounts=()) for tier in profile.tiers)


def holds(mount: str, path: str) -> bool:
    """Tell whether a path is a directory, or below it."""
    return path == mount or path.startswith(mount.rstrip("/") + "/")
