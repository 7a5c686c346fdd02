"""Which storage tier a path on a box is on, what survives a stop or destroy, and what keeps billing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from rgt_tui.model import Amount, BillingAction, ClockStart, DangerClock, Disk, Mounted, Profile, Tier, Verb
from rgt_tui.profiles.prices import money, price_words, projected
from rgt_tui.profiles.readings import age

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
OF_IMAGE = ("overlay", "aufs")
NETWORK = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.")
"""How the types of file systems begin that other machines hold."""
NOT_MOUNTED = "nothing is mounted there"
ON_ROOT = "it is on the device of the root"
_WORTH = {False: 0, None: 1, True: 2}


def survival(profile: Profile, path: str, known: Mapping[str, str] | None = None) -> Tier | None:
    """Return the tier that an absolute path on the box belongs to; None = not known.

    Where two tiers share the longest mount point (RunPod's ``/workspace`` is the volume disk or a network volume),
    the one that survives less is assumed.

    Args:
        profile: The platform.
        path: A mount point, or any path below one.
        known: Mount point → tier name, where the fleet file says which one it is.
    """
    return min(
        tiers_of(path, profile, known or {}),
        key=lambda tier: (_WORTH[tier.survives_destroy], _WORTH[tier.survives_stop]),
        default=None,
    )


EVERY_DATA_MOUNT = "*"
"""In a list of mount points for the agent: every file system of the box that may hold data."""


def watched_mounts(named: Sequence[str], profile: Profile) -> tuple[str, ...]:
    """Return the mount points that the agent watches.

    Args:
        named: Those of the fleet file. Empty = those of the profile and, where a tier may be mounted anywhere, every
            data mount that the box has: it is watched before a run writes to it.
        profile: The platform.
    """
    if named:
        return tuple(dict.fromkeys(named))
    anywhere = [EVERY_DATA_MOUNT] if any(not tier.mounts for tier in profile.tiers) else []
    return tuple(dict.fromkeys([*(mount for tier in profile.tiers for mount in tier.mounts), *anywhere]))


def tiers_of(path: str, profile: Profile, known: Mapping[str, str]) -> tuple[Tier, ...]:
    """Return the tiers that may hold `path`: those of the longest mount point that contains it.

    Args:
        path: Absolute path on the box.
        profile: The platform; several of its tiers may share a mount point.
        known: Mount point → tier name, where something else (the provider) says which one it is.

    Returns:
        One tier normally; several where it cannot be told which it is; none for a path that is not absolute
        and plain, or lies nowhere that the profile knows.
    """
    wanted = PurePosixPath(path)
    if not wanted.is_absolute() or ".." in wanted.parts or path.startswith("//"):
        return ()
    found: dict[PurePosixPath, list[Tier]] = {}
    for tier in profile.tiers:
        for mount in tier.mounts:
            if mount.startswith("/"):
                found.setdefault(PurePosixPath(mount), []).append(tier)
    by_name = {tier.name: tier for tier in profile.tiers}
    for mount, name in known.items():
        if mount.startswith("/"):
            found[PurePosixPath(mount)] = [by_name[name]] if name in by_name else []
    holding = [mount for mount in found if mount == wanted or mount in wanted.parents]
    return tuple(found[max(holding, key=lambda mount: len(mount.parts))]) if holding else ()


def unmounted(profile: Profile, disks: Iterable[Disk], known: Mapping[str, str]) -> dict[str, str]:
    """Return the profile's mount points that are not mounted on this box, each with the tier it is on instead.

    Not every machine of a platform has all of its storage: without it, the path is a directory of the root disk.

    Args:
        profile: The platform.
        disks: What the box says of its mounts.
        known: Mount point → tier name, where somebody says it; those are left out.

    Returns:
        As `known`; an empty name where nobody knows the disk around it.
    """
    found: dict[str, str] = {}
    for disk in disks:
        own = {tier.name for tier in profile.tiers if disk.mount in tier.mounts}
        if not own or disk.mount in known or disk.on is None or disk.error is not None:
            continue
        if disk.on != "/" and not any(disk.on in tier.mounts for tier in profile.tiers):
            continue  # a link to a mount of its own
        around = survival(profile, disk.on, known)
        if around is None or around.name not in own:
            found[disk.mount] = "" if around is None else around.name
    return found


def missing_storage(mount: str, mounts: Iterable[Mounted], *, at_root: bool = False) -> str:
    """Say why a directory cannot be storage of its own, by the box's mount table; empty = it can.

    A provider's word for what is mounted may be wrong or old, and a person may have written to the directory before
    anything was mounted there.

    Args:
        mount: Where it is said to be.
        mounts: The table.
        at_root: It is said that the root itself is such storage.
    """
    table = {row.path: row for row in mounts}
    found, root = table.get(mount), table.get("/")
    if found is None:
        return NOT_MOUNTED
    if found.kind in IN_MEMORY:
        return f"it is in memory ({found.kind})"
    if at_root:
        return (
            "" if found.kind.startswith(NETWORK) else f"the root is on a disk of the machine ({found.kind})"
        )
    if found.kind in OF_IMAGE:
        return f"it is a layer of the container ({found.kind})"
    if root is not None and found.device and found.device == root.device:
        return ON_ROOT
    return ""


def worse(profile: Profile, verb: Verb, one: str, other: str) -> str:
    """Return which of two tiers, by name, is the less safe one for a verb; one that the profile lacks is unknown."""
    action = action_for(profile, verb)
    by_name = {tier.name: tier for tier in profile.tiers}

    def worth(name: str) -> int:
        return _WORTH[survives(by_name[name], verb, action) if name in by_name else None]

    return min((one, other), key=worth)


def survives(tier: Tier, verb: Verb, action: BillingAction | None = None) -> bool | None:
    """Tell whether the tier outlives the verb; None = the profile does not say.

    Where the action and the tier contradict each other, the worse one counts; what it outlives for some hours only, it
    does not outlive.
    """
    says = tier.survives_stop if verb is Verb.PARK else tier.survives_destroy
    if action is not None and (tier.name in action.loses or tier.name in action.keeps_for_s):
        return False
    if action is not None and tier.name in action.uncertain:
        return False if says is False else None
    if says is None and action is not None and tier.name in action.keeps:
        return True
    return says


def path_survives(path: str, profile: Profile, known: Mapping[str, str], verb: Verb) -> bool | None:
    """Tell whether a path survives the verb: only if every tier that it may be on does."""
    action = action_for(profile, verb)
    answers = {survives(tier, verb, action) for tier in tiers_of(path, profile, known)}
    if False in answers:
        return False
    return True if answers == {True} else None


def action_for(profile: Profile, verb: Verb) -> BillingAction | None:
    """Return the profile's billing action for the verb: of several, the one that stops the GPU meter."""
    fitting = [action for action in profile.billing if action.kind == verb.value]
    return next((action for action in fitting if action.stops_gpu_meter), fitting[0] if fitting else None)


def keeps_billing(profile: Profile | None, verb: Verb) -> tuple[str, ...]:
    """Return what keeps costing money after the verb, a line each, with the platform's prices and their month.

    What the profile leaves open is there as well: unknown is never free.
    """
    if profile is None:
        return ("unknown: the platform has no profile",)
    lines = []
    for tier in profile.tiers:
        price = price_words(tier, running=False)
        if verb is Verb.PARK and tier.bills_while_stopped is True:
            lines.append(f"{tier.name}: {price}")
        elif verb is Verb.PARK and tier.bills_while_stopped is None:
            lines.append(f"{tier.name}, perhaps: the profile does not say; {price}")
        elif (
            verb is Verb.DESTROY
            and tier.survives_destroy is not False
            and tier.bills_while_stopped is not False
        ):
            lines.append(f"{tier.name}, if there is one: it outlives the box; {price}")
    return tuple(lines)


def stop_clock(profile: Profile) -> DangerClock | None:
    """Return the first clock with an end that a stop of a box would start, or None."""
    timed = [clock for clock in profile.clocks if clock.counts_from is ClockStart.STOP and clock.after_s]
    return min(timed, key=lambda clock: clock.after_s or 0.0, default=None)


def until_clock(profile: Profile, per_hour: Amount) -> str:
    """Return what a price adds up to until the clock that a stop starts has run down; empty where there is none."""
    clock = stop_clock(profile)
    if clock is None or not clock.after_s:
        return ""
    sum_ = projected(per_hour, clock.after_s)
    about = "about " if clock.approx else ""
    length = f"{about}{age(clock.after_s)}"
    return f"{money(sum_.value, sum_.currency, sum_.at_least)} until {clock.what} ({length})"


def in_both(action: BillingAction) -> str:
    """Return the platform's own word for a verb, followed by ours if it is not English: ``关机 (stop)``."""
    word = action.native_label
    return word if word.isascii() else f"{word} ({action.verb.replace('-', ' ')})"


def by_hand(action: BillingAction | None) -> tuple[tuple[str, str], ...]:
    """Return how a person stops the meter without rgt, as (label, text): what comes first, the ways, what is told."""
    if action is None:
        return ()
    ways = action.how or (in_both(action),)
    lines = [("first", action.first), *(("by hand", way) for way in ways)]
    lines += [("note", action.note), ("done when", action.confirm_with)]
    return tuple((label, text) for label, text in lines if text)


def lacking(profile: Profile, verb: Verb) -> str:
    """Say that a platform lacks a verb, and what it has instead; empty where it has one."""
    if action_for(profile, verb) is not None:
        return ""
    other = action_for(profile, Verb.DESTROY if verb is Verb.PARK else Verb.PARK)
    text = f"{profile.name} has no action that would {verb.value} a box"
    if not profile.billed:
        return f"{text}: nothing bills there" + (f"; {in_both(other)} ends it" if other is not None else "")
    if verb is Verb.DESTROY:
        return f"{text}: to spend nothing at all takes {profile.stops_all}" if profile.stops_all else text
    if other is None or other.stops_gpu_meter is not True:
        return text
    traps = ", ".join(in_both(action) for action in profile.billing if action.trap)
    does = "do" if ", " in traps else "does"
    return f"{text}: only {in_both(other)} ends the bill" + (f" ({traps} {does} not)" if traps else "")
