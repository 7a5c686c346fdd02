"""Which storage tier a path or mount is on, what survives a stop or destroy, what keeps billing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from rgt_tui.language import speaks_english, translate
from rgt_tui.model import (
    BillingAction,
    BillingVerb,
    BoxState,
    ClockStart,
    DangerClock,
    DiskReading,
    MoneyAmount,
    MountRow,
    Profile,
    QueueCell,
    StorageTier,
    format_duration,
    format_money,
    quote_name,
)
from rgt_tui.profiles.loader import ProfileError, load_profile
from rgt_tui.profiles.prices import describe_tier_prices, project_cost, storage_per_hour
from rgt_tui.profiles.readings import IN_MEMORY

OF_IMAGE = ("overlay", "aufs")
NETWORK = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.")
"""Prefixes of file system types that are stored on other machines."""
NOT_MOUNTED = "nothing is mounted there"
ON_ROOT = "it is on the device of the root"
# Unknown is between: worse than a yes, better than a certain no.
_WORTH = {False: 0, None: 1, True: 2}


def tier_of(
    profile: Profile, path: str, known: Mapping[str, str] | None = None
) -> StorageTier | None:
    """Return the tier of an absolute path on the box; None = unknown.

    If two tiers share the longest mount point (RunPod's ``/workspace`` is the volume disk or a
    network volume), the one that survives less is assumed.

    Args:
        profile: The platform.
        path: A mount point, or any path below one.
        known: Mount point → tier name, if the fleet file gives it.
    """
    return min(
        tiers_of(path, profile, known or {}),
        key=lambda tier: (_WORTH[tier.survives_destroy], _WORTH[tier.survives_stop]),
        default=None,
    )


EVERY_DATA_MOUNT = "*"
"""In the agent's list of mount points: every file system of the box that may contain data."""


def watched_mounts(named: Sequence[str], profile: Profile) -> tuple[str, ...]:
    """Return the mount points that the agent watches.

    Args:
        named: Those of the fleet file. Empty = those of the profile and, if a tier may be mounted
            anywhere, every data mount of the box, so that it is watched before a run writes to it.
        profile: The platform.
    """
    if named:
        return tuple(dict.fromkeys(named))
    if any(not tier.mounts for tier in profile.tiers):
        anywhere = [EVERY_DATA_MOUNT]
    else:
        anywhere = []
    return tuple(
        dict.fromkeys([*(mount for tier in profile.tiers for mount in tier.mounts), *anywhere])
    )


def tiers_of(path: str, profile: Profile, known: Mapping[str, str]) -> tuple[StorageTier, ...]:
    """Return the tiers that may contain `path`: those of the longest mount point above it.

    Args:
        path: Absolute path on the box.
        profile: The platform; several of its tiers may share a mount point.
        known: Mount point → tier name, if another source (the provider) gives it.

    Returns:
        Normally one tier; several if it is unclear which one; none for a path that is not absolute
        and normal, or is outside of all known mounts.
    """
    wanted = PurePosixPath(path)
    # Such a path may lead out of the mount that its beginning names.
    if not wanted.is_absolute() or ".." in wanted.parts or path.startswith("//"):
        return ()
    found: dict[PurePosixPath, list[StorageTier]] = {}
    for tier in profile.tiers:
        for mount in tier.mounts:
            if mount.startswith("/"):
                found.setdefault(PurePosixPath(mount), []).append(tier)
    by_name = {tier.name: tier for tier in profile.tiers}
    for mount, name in known.items():
        if mount.startswith("/"):
            if name in by_name:
                # Replaces the profile's tiers of that mount: a statement about this box beats one
                # about all.
                found[PurePosixPath(mount)] = [by_name[name]]
            else:
                found[PurePosixPath(mount)] = []
    holding = [mount for mount in found if mount == wanted or mount in wanted.parents]
    if holding:
        return tuple(found[max(holding, key=lambda mount: len(mount.parts))])
    return ()


def list_unmounted(
    profile: Profile, disks: Iterable[DiskReading], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the profile's mount points that are not mounted on this box, with their actual tier.

    Not every machine of a platform has all of its storage: without it, the path is a directory of
    the root disk.

    Args:
        profile: The platform.
        disks: The box's mounts.
        known: Mount point → tier name from other sources; those are left out.

    Returns:
        As `known`; an empty name if the surrounding disk is unknown.
    """
    found: dict[str, str] = {}
    for disk in disks:
        own = {tier.name for tier in profile.tiers if disk.mount in tier.mounts}
        if not own or disk.mount in known or disk.on is None or disk.error is not None:
            continue
        if disk.on != "/" and not any(disk.on in tier.mounts for tier in profile.tiers):
            continue  # a link to a separate mount
        around = tier_of(profile, disk.on, known)
        if around is None or around.name not in own:
            if around is None:
                found[disk.mount] = ""
            else:
                found[disk.mount] = around.name
    return found


def missing_storage(mount: str, mounts: Iterable[MountRow], *, at_root: bool = False) -> str:
    """Return why a directory cannot be separate storage by the box's mount table; empty = it can.

    A provider's data about mounts may be wrong or old, and a person may have written to the
    directory before anything was mounted there.

    Args:
        mount: The directory.
        mounts: The table.
        at_root: The root itself is said to be such storage.
    """
    table = {row.path: row for row in mounts}
    found, root = table.get(mount), table.get("/")
    if found is None:
        return NOT_MOUNTED
    if found.kind in IN_MEMORY:
        return translate("it is in memory ({kind})", kind=found.kind)
    if at_root:
        # The root itself as storage: only a network file system can outlive the machine.
        if found.kind.startswith(NETWORK):
            return ""
        return translate("the root is on a disk of the machine ({kind})", kind=found.kind)
    if found.kind in OF_IMAGE:
        return translate("it is a layer of the container ({kind})", kind=found.kind)
    if root is not None and found.device and found.device == root.device:
        return ON_ROOT
    return ""


def choose_less_safe_tier(profile: Profile, verb: BillingVerb, one: str, other: str) -> str:
    """Return the tier, by name, that is less safe for a verb.

    One missing in the profile is unknown.
    """
    action = action_for(profile, verb)
    by_name = {tier.name: tier for tier in profile.tiers}

    def rank_safety(name: str) -> int:
        return _WORTH[tier_survives(by_name[name], verb, action) if name in by_name else None]

    return min((one, other), key=rank_safety)


def tier_survives(
    tier: StorageTier, verb: BillingVerb, action: BillingAction | None = None
) -> bool | None:
    """Return whether the tier survives the verb; None = the profile does not say.

    If the action and the tier contradict each other, the worse one counts; a tier that survives
    only for some hours does not survive.
    """
    if verb is BillingVerb.PARK:
        says = tier.survives_stop
    else:
        says = tier.survives_destroy
    if action is not None and (tier.name in action.loses or tier.name in action.keeps_for_s):
        return False
    if action is not None and tier.name in action.uncertain:
        if says is False:
            return False
        return None
    if says is None and action is not None and tier.name in action.keeps:
        return True
    return says


def path_survives(
    path: str, profile: Profile, known: Mapping[str, str], verb: BillingVerb
) -> bool | None:
    """Return whether a path survives the verb: only if all tiers that it may be on do."""
    action = action_for(profile, verb)
    answers = {tier_survives(tier, verb, action) for tier in tiers_of(path, profile, known)}
    if False in answers:
        return False
    # An empty set is no yes: no tier is known for the path.
    if answers == {True}:
        return True
    return None


def action_for(profile: Profile, verb: BillingVerb) -> BillingAction | None:
    """Return the profile's billing action for the verb.

    Of several, the one that stops the GPU meter.
    """
    fitting = [action for action in profile.billing if action.kind == verb.value]
    first = None
    if fitting:
        first = fitting[0]
    return next((action for action in fitting if action.stops_gpu_meter), first)


def describe_enlargement(
    profile: Profile, disk: DiskReading, known: Mapping[str, str] | None = None
) -> str:
    """Return whether a disk can be enlarged and what that costs, for its owner's decision.

    Empty where the machine is the person's own or no tier is known there.

    Args:
        profile: The platform.
        disk: The full one.
        known: Mount point → tier name, if the fleet file gives it.
    """
    tier = tier_of(profile, disk.mount, known)
    if tier is None or not profile.billed:
        return ""
    price = describe_tier_prices(tier, running=True)
    more_gb = 50
    now_gb = (disk.bytes_total or 0) / 1e9
    before, after = (
        storage_per_hour(profile, tier.name, size_gb, running=True)
        for size_gb in (now_gb, now_gb + more_gb)
    )
    if before is not None and after is not None:
        month_h = 730.0
        added = format_money((after.value - before.value) * month_h, after.currency)
        price = translate(
            "{gb} GB more: {price} a month, {terms}", gb=more_gb, price=added, terms=price
        )
    return translate(
        "Enlarging it is your decision. {tier}: {size}; {price}",
        tier=tier.name,
        size=translate(tier.size or "of unknown size"),
        price=price,
    )


def list_kept_charges(profile: Profile | None, verb: BillingVerb) -> tuple[str, ...]:
    """Return what keeps costing money after the verb, a line each, with prices and their month.

    Parts that the profile leaves open are included: unknown is never free.
    """
    if profile is None:
        return (translate("unknown: the platform has no profile"),)
    lines = []
    for tier in profile.tiers:
        price = describe_tier_prices(tier, running=False)
        if verb is BillingVerb.PARK and tier.bills_while_stopped is True:
            lines.append(f"{tier.name}: {price}")
        elif verb is BillingVerb.PARK and tier.bills_while_stopped is None:
            lines.append(
                translate(
                    "{name}, perhaps: the profile does not say; {price}",
                    name=tier.name,
                    price=price,
                )
            )
        elif (
            verb is BillingVerb.DESTROY
            and tier.survives_destroy is not False
            and tier.bills_while_stopped is not False
        ):
            lines.append(
                translate(
                    "{name}, if there is one: it outlives the box; {price}",
                    name=tier.name,
                    price=price,
                )
            )
    return tuple(lines)


def stop_clock(profile: Profile) -> DangerClock | None:
    """Return the first clock with an end that a stop of a box would start, or None."""
    timed = [
        clock for clock in profile.clocks if clock.counts_from is ClockStart.STOP and clock.after_s
    ]
    return min(timed, key=lambda clock: clock.after_s or 0.0, default=None)


def until_clock(profile: Profile, per_hour: MoneyAmount) -> str:
    """Return a price's total until the clock started by a stop has run down; empty without one."""
    clock = stop_clock(profile)
    if clock is None or not clock.after_s:
        return ""
    sum_ = project_cost(per_hour, clock.after_s)
    length = format_duration(clock.after_s)
    if clock.is_approximate:
        length = translate("about ") + length
    total = format_money(sum_.value, sum_.currency, sum_.at_least)
    return translate("{total} until {what} ({time})", total=total, what=clock.what, time=length)


def bilingual_verb(action: BillingAction) -> str:
    """Return the platform's own word for a verb, with a translation if needed: ``关机 (stop)``."""
    word = action.native_label
    # In another language than English there is only Chinese, which needs none.
    if word.isascii() or not speaks_english():
        return word
    return f"{word} ({action.verb.replace('-', ' ')})"


def list_manual_steps(action: BillingAction | None) -> tuple[tuple[str, str], ...]:
    """Return how a person stops the meter without rgt, as (label, text) rows."""
    if action is None:
        return ()
    ways = action.how or (bilingual_verb(action),)
    lines = [("first", action.first), *(("by hand", way) for way in ways)]
    lines += [("note", action.note), ("done when", action.confirm_with)]
    return tuple((label, text) for label, text in lines if text)


def describe_missing_verb(profile: Profile, verb: BillingVerb) -> str:
    """Return that a platform lacks a verb, and its alternative; empty if it has the verb."""
    if action_for(profile, verb) is not None:
        return ""
    opposite = BillingVerb.PARK
    if verb is BillingVerb.PARK:
        opposite = BillingVerb.DESTROY
    other = action_for(profile, opposite)
    text = translate("{name} has no action that would park a box", name=profile.name)
    if verb is BillingVerb.DESTROY:
        text = translate("{name} has no action that would destroy a box", name=profile.name)
    if not profile.billed:
        return translate("{words}: nothing bills there", words=text) + (
            translate("; {other} ends it", other=bilingual_verb(other)) if other is not None else ""
        )
    if verb is BillingVerb.DESTROY:
        if profile.stops_all:
            return translate(
                "{words}: to spend nothing at all takes {stops_all}",
                words=text,
                stops_all=profile.stops_all,
            )
        return text
    if other is None or other.stops_gpu_meter is not True:
        return text
    traps = ", ".join(bilingual_verb(action) for action in profile.billing if action.trap)
    text = translate("{words}: only {other} ends the bill", words=text, other=bilingual_verb(other))
    if ", " in traps:
        text += translate(" ({traps} do not)", traps=traps)
    elif traps:
        text += translate(" ({traps} does not)", traps=traps)
    return text


# The storage tier of each mount of a box, shared by screens, checks, the teardown and the gate.
#
# Sources are the fleet file (`tiers`), the provider, and the box's own mounts. If they disagree,
# the tier that is less safe for the verb counts, and the disagreement is reported as a
# `MountDoubt`. No storage counts as surviving by a claim alone: the box's mount table must show
# that it is separate from the root, and not in memory.


class MountDoubt(NamedTuple):
    """A disagreement of two sources about one mount."""

    mount: str
    text: str
    by_box: bool = False
    """The box's own mounts contradict the profile; or the fleet file and the provider differ."""
    if_used: bool = False
    """It matters only if results are there: most of the many mounts below the root have none."""


class JudgedStorage(NamedTuple):
    """The storage of a box, judged for one verb."""

    known: dict[str, str]
    """Mount point → tier name; an empty name = unknown."""
    doubts: tuple[MountDoubt, ...] = ()

    def doubts_at(self, path: str) -> tuple[MountDoubt, ...]:
        """Return the doubts about the mount that `path` is on."""
        mount = max((one for one in self.known if is_path_below(one, path)), key=len, default="")
        return tuple(doubt for doubt in self.doubts if doubt.mount == mount)


def storage_of(
    box: BoxState,
    profile: Profile | None,
    verb: BillingVerb,
    mounts: Sequence[MountRow] | None = None,
) -> JudgedStorage:
    """Return the storage tier of each mount point of a box.

    Args:
        box: Its fleet file entry, the provider's newest reading and its mounts.
        profile: Its platform; None = unknown, so only the fleet file counts.
        verb: What the storage would have to survive; the worse of two tiers depends on it.
        mounts: The box's mount table, for a billing action: paths missing in it are no storage.
            None = judge only the mounts that the box samples.
    """
    said = box.spec.tiers
    if profile is None:
        return JudgedStorage(dict(said))
    names = {tier.name for tier in profile.tiers}
    # A tier name from the provider that this profile lacks belongs to another platform, and is
    # ignored.
    provided = {mount: name for mount, name in box.meter.tiers.items() if name in names}
    found, doubts = dict(provided), []
    bare = msgspec.structs.replace(profile, tiers=_without_mounts(profile))
    for mount, name in said.items():
        holding = tiers_of(mount, bare, provided)
        theirs = holding[0].name if holding else None
        if theirs is None or theirs == name:
            found[mount] = name
            continue
        counts = found[mount] = choose_less_safe_tier(profile, verb, name, theirs)
        text = translate(
            "{mount} is {name} by the fleet file and {theirs} by the provider; the worse "
            "counts: {counts}",
            mount=quote_name(mount),
            name=quote_name(name),
            theirs=quote_name(theirs),
            counts=quote_name(counts),
        )
        doubts.append(MountDoubt(mount, text))
    for disk in box.sample.disks if box.sample is not None else ():
        for mount, name in list_unmounted(profile, (disk,), found).items():
            found[mount] = name
            text = translate(
                "{mount} is not a mount of its own on this box: it is on {disk}",
                mount=quote_name(mount),
                disk=quote_name(disk.on or ""),
            )
            text += f" ({quote_name(name)})" if name else translate(", of which nothing is known")
            doubts.append(MountDoubt(mount, text, by_box=True))
    doubts += _without_witness(box, profile, verb, found, mounts)
    doubts += _within_storage(profile, verb, found, mounts or ())
    return JudgedStorage(found, tuple(doubts))


def sampled_mounts(box: BoxState) -> tuple[MountRow, ...]:
    """Return the part of the mount table that a box samples."""
    if box.sample is not None:
        disks = box.sample.disks
    else:
        disks = ()
    return tuple(
        MountRow(path=disk.on or disk.mount, kind=disk.kind or "")
        for disk in disks
        if disk.error is None
    )


def _without_witness(
    box: BoxState,
    profile: Profile,
    verb: BillingVerb,
    found: dict[str, str],
    mounts: Sequence[MountRow] | None,
) -> Iterator[MountDoubt]:
    """Remove storage that would survive by a claim, but not by the box's mount table."""
    disks = {disk.mount: disk for disk in (box.sample.disks if box.sample is not None else ())}
    table = sampled_mounts(box) if mounts is None else mounts
    own_root = {tier.name for tier in profile.tiers if "/" in tier.mounts}
    for mount in sorted({*found, *(mount for tier in profile.tiers for mount in tier.mounts)}):
        if mounts is None and (mount not in disks or disks[mount].error is not None):
            continue
        if mount == "/" and found.get("/", "") in ("", *own_root):
            continue
        if not any(
            path_survives(mount, profile, found, one) is True for one in (verb, BillingVerb.DESTROY)
        ):
            continue
        if mount in disks:
            real = disks[mount].on or mount
        else:
            real = mount
        why = missing_storage(real, table, at_root=mount == "/")
        if not why:
            continue
        claimants = tiers_of(mount, profile, found)
        claimed = " or ".join(tier.name for tier in claimants)
        if mount != "/":
            around = tiers_of(str(PurePosixPath(mount).parent), profile, found)
        else:
            around = ()
        if mount == "/" and own_root:
            del found[mount]
        else:
            is_directory = why in (NOT_MOUNTED, ON_ROOT) and len(around) == 1
            if is_directory and claimants == around:
                continue  # a directory of the root, according to the profile as well
            if is_directory:
                found[mount] = around[0].name
            else:
                found[mount] = ""
        text = translate(
            "{mount} is said to be {claimed}, but by the box's mount table {why}: it does not "
            "count",
            mount=quote_name(mount),
            claimed=quote_name(claimed),
            why=translate(why),
        )
        yield MountDoubt(mount, text, by_box=True)


def _within_storage(
    profile: Profile, verb: BillingVerb, found: dict[str, str], table: Sequence[MountRow]
) -> Iterator[MountDoubt]:
    """Treat mounts inside surviving storage as separate, unknown storage.

    The root itself may survive, with memory or another disk mounted below it.
    """
    rows = {row.path: row for row in table}
    named = {*found, *(mount for tier in profile.tiers for mount in tier.mounts)}
    for mount in sorted(rows.keys() - named - {"/"}):
        around = max((one for one in named if is_path_below(one, mount)), key=len, default="/")
        if around not in rows:
            continue
        outer = max(
            (one for one in rows if one != mount and is_path_below(one, mount)),
            key=len,
            default=around,
        )
        if rows[mount].device and rows[mount].device == rows[outer].device:
            continue
        if not any(
            path_survives(mount, profile, found, one) is True for one in (verb, BillingVerb.DESTROY)
        ):
            continue
        found[mount] = ""
        text = translate(
            "{mount} is a mount of its own within {around}: unknown whether it is kept",
            mount=quote_name(mount),
            around=quote_name(around),
        )
        if rows[mount].kind in IN_MEMORY:
            text = translate(
                "{mount} is in memory ({kind}): it is lost, although {around} is kept",
                mount=quote_name(mount),
                kind=rows[mount].kind,
                around=quote_name(around),
            )
        yield MountDoubt(mount, text, by_box=True, if_used=around == "/")


def copy_survives(
    cell: QueueCell, profile: Profile, known: Mapping[str, str], verb: BillingVerb
) -> bool | None:
    """Return whether a done cell has a verified copy that survives the verb; None = unknown."""
    if cell.state != "done" or cell.durable != "verified":
        return False
    if not cell.durable_path:
        return None
    return path_survives(cell.durable_path, profile, known, verb)


def copies_of(
    box: BoxState, verb: BillingVerb = BillingVerb.DESTROY
) -> Callable[[QueueCell], bool | None]:
    """Return a `copy_survives` for the cells of one box, for callers without a profile."""
    try:
        profile = load_profile(box.spec.profile)
    except ProfileError:
        return lambda cell: None
    known = storage_of(box, profile, verb).known
    return lambda cell: copy_survives(cell, profile, known, verb)


def _without_mounts(profile: Profile) -> tuple[StorageTier, ...]:
    return tuple(msgspec.structs.replace(tier, mounts=()) for tier in profile.tiers)


def is_path_below(mount: str, path: str) -> bool:
    """Return whether a path is a directory, or below it."""
    return path == mount or path.startswith(mount.rstrip("/") + "/")
