"""A run's checkpoints on disk: names, the newest good one, which to delete, and free space.

``OUT/best`` is not in the table: it is a directory of its own and is only ever replaced by a better
one.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Callable, FrozenSet, Mapping, Sequence, TypeVar

from rgt_wire import size_text

from rgt_train.checkpoint import diskio, manifest
from rgt_train.checkpoint.diskio import StrPath, Unreadable, fsync_dir, remove_path
from rgt_train.checkpoint.manifest import CheckpointDamaged


@dataclass(frozen=True, order=True)
class CheckpointItem:
    """A published checkpoint.

    Attributes:
        step: Optimizer steps done.
        attempt: The attempt that wrote it.
        serial: Numbers the checkpoints that one attempt wrote at one step.
        name: Its directory's name.
        at: Time of writing, seconds since the epoch.
    """

    step: int
    attempt: int
    serial: int
    name: str
    at: float


@dataclass(frozen=True)
class KeepPolicy:
    """Which checkpoints to keep.

    Attributes:
        last: Number of newest ones, at least one.
        hours: One more for each period of this many hours; 0 for none.
    """

    last: int = 2
    hours: float = 0.0


Rule = Callable[[Sequence[CheckpointItem], KeepPolicy], FrozenSet[str]]


def _protect_newest(items: Sequence[CheckpointItem], policy: KeepPolicy) -> frozenset[str]:
    """The newest, from which the next launch resumes.

    While a save is in flight, the previous one.
    """
    return frozenset(item.name for item in items[-1:])


def _protect_last(items: Sequence[CheckpointItem], policy: KeepPolicy) -> frozenset[str]:
    # At least one: items[-0:] would be all of them.
    return frozenset(item.name for item in items[-max(1, policy.last) :])


def _protect_hourly(items: Sequence[CheckpointItem], policy: KeepPolicy) -> frozenset[str]:
    """The first of each period: once kept, it stays the kept one."""
    if policy.hours <= 0:
        return frozenset()
    first: "dict[int, str]" = {}
    for item in sorted(items, key=lambda item: (item.at, item)):
        first.setdefault(int(item.at // (3600 * policy.hours)), item.name)
    return frozenset(first.values())


RULES: tuple[tuple[str, Rule], ...] = (
    ("anchor", _protect_newest),
    ("last", _protect_last),
    ("hourly", _protect_hourly),
)
"""By decreasing weight: a checkpoint protected only by a later rule is worth less."""


def find_unprotected(
    items: Sequence[CheckpointItem], policy: KeepPolicy, anchor: str = ""
) -> list[CheckpointItem]:
    """Return the checkpoints that no rule protects, oldest first.

    Args:
        items: The existing ones.
        policy: What stays.
        anchor: Name of one that always stays.
    """
    items = sorted(items)
    protected = frozenset((anchor,)).union(*(rule(items, policy) for _, rule in RULES))
    return [item for item in items if item.name not in protected]


def by_ascending_value(
    items: Sequence[CheckpointItem], policy: KeepPolicy, anchor: str = ""
) -> list[CheckpointItem]:
    """Return the checkpoints that may be deleted on a full disk, the least valuable first.

    Never the newest.

    Args:
        items: The existing ones.
        policy: What stays if there is room.
        anchor: Name of one that always stays.
    """
    items = sorted(items)
    kept: "set[str]" = set()
    ranked: list[CheckpointItem] = []
    for _, rule in RULES:
        chosen = [
            item for item in items if item.name in rule(items, policy) and item.name not in kept
        ]
        kept.update(item.name for item in chosen)
        if rule is not _protect_newest:
            ranked = [item for item in chosen if item not in ranked] + ranked
    rest = [item for item in items if item.name not in kept]
    return [item for item in rest + ranked if item.name != anchor]


@dataclass(frozen=True)
class DiskSpace:
    """One reading of the file system that holds a path.

    Attributes:
        mount: Its mount point.
        bytes_free: Bytes this process may still use.
        bytes_total: Its size in bytes.
        inodes_free: Inodes this process may still use; None if the file system does not count them.
        inodes_total: All inodes; None likewise.
    """

    mount: str
    bytes_free: int
    bytes_total: int
    inodes_free: int | None
    inodes_total: int | None

    def missing_resource(self, need_bytes: int, need_inodes: int) -> str | None:
        """Return ``inodes`` or ``bytes`` if less than needed is free, otherwise None."""
        if self.inodes_free is not None and self.inodes_free < need_inodes:
            return "inodes"
        if self.bytes_free < need_bytes:
            return "bytes"
        return None


def read_space(path: StrPath) -> DiskSpace:
    """Return the space of the file system under `path`, which must exist.

    Raises:
        OSError: `path` cannot be examined.
    """
    facts = os.statvfs(path)
    # Root may use the reserved blocks: by f_bavail a disk would be full that root can still write.
    root = os.geteuid() == 0
    # btrfs and many network file systems report 0: not "none left" but "not counted".
    counted = facts.f_files > 0
    return DiskSpace(
        mount=_mount_of(os.path.realpath(path)),
        bytes_free=(facts.f_bfree if root else facts.f_bavail) * facts.f_frsize,
        bytes_total=facts.f_blocks * facts.f_frsize,
        inodes_free=(facts.f_ffree if root else facts.f_favail) if counted else None,
        inodes_total=facts.f_files if counted else None,
    )


def exhausted_resource(
    error: OSError, space: DiskSpace | None, need_bytes: int, need_inodes: int
) -> str:
    """Return the exhausted resource: ``inodes``, ``bytes``, ``quota``, ``read-only`` or ``other``.

    The kernel returns ENOSPC for blocks and inodes alike; only the counters distinguish them.
    """
    if error.errno == errno.EDQUOT:
        return "quota"
    if error.errno == errno.EROFS:
        return "read-only"
    if error.errno != errno.ENOSPC:
        return "other"
    return (space.missing_resource(need_bytes, need_inodes) if space else None) or "bytes"


def why_failed(error: OSError, space: DiskSpace | None, need_bytes: int, need_inodes: int) -> str:
    """Return a short text for a person: why a save failed and on which mount."""
    what = exhausted_resource(error, space, need_bytes, need_inodes)
    mount = "the disk"
    if space:
        mount = space.mount
    if what == "quota":
        return f"quota exceeded on {mount}"
    if what == "read-only":
        return f"{mount} is read-only"
    if what == "other" or space is None:
        name = errno.errorcode.get(error.errno or 0, "?")
        return f"{name} ({error.strerror}) on {mount}"
    used = _percent_of(space.bytes_total - space.bytes_free, space.bytes_total)
    if what == "inodes" and space.inodes_total is not None and space.inodes_free is not None:
        taken = space.inodes_total - space.inodes_free
        return (
            f"no inodes left on {mount} ({taken:,} of {space.inodes_total:,} used; bytes {used}%)"
        )
    inodes = ""
    if space.inodes_total is not None and space.inodes_free is not None:
        inodes = (
            f"; inodes {_percent_of(space.inodes_total - space.inodes_free, space.inodes_total)}%"
        )
    return (
        f"no bytes left on {mount} (needs {size_text(need_bytes)}, "
        f"{size_text(space.bytes_free)} free{inodes})"
    )


def reserve_space(directory: StrPath, need_bytes: int) -> None:
    """Ask the kernel whether `need_bytes` fit into `directory`, without writing them.

    Used only if the counters show too little space: they can be wrong (network file systems,
    reserved blocks), the kernel's answer cannot, and it costs no half-written checkpoint.

    Raises:
        OSError: They do not fit, or not a single file does.
    """
    if not hasattr(os, "posix_fallocate"):
        return  # macOS: the write itself fails instead
    path = os.path.join(directory, "reserve")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # A length of 0 is an error (EINVAL).
        os.posix_fallocate(fd, 0, max(1, need_bytes))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)
        remove_path(path)


def _percent_of(part: int, whole: int) -> int:
    if whole:
        return round(100 * part / whole)
    return 0


def _mount_of(path: str) -> str:
    while not os.path.ismount(path):
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    return path


T = TypeVar("T")
POINTER = "latest"
_STEP = re.compile(r"step-(\d{8,})(?:-a(\d+)(?:\.(\d+))?)?\Z")
_DAMAGED = re.compile(r"\.damaged-(step|best)-.*?(\d+)\Z")


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint.

    Attributes:
        path: Its directory.
        step: Optimizer steps done.
        size: Bytes of its files, the manifest included.
        manifest: The parsed manifest.
    """

    path: str
    step: int
    size: int
    manifest: Mapping[str, Any]


class CheckpointStore:
    """The directories ``OUT/checkpoints`` and ``OUT/best``.

    Only one live process may write here (see `RunLock`): therefore every temporary directory found
    at the start is stray. Published directories are never changed; `rgt_train.checkpoint.publish`
    makes them, `delete_item` deletes them.

    Args:
        out: The run directory; it must exist.
        attempt: Number of this attempt; it is part of every name.
        policy: What stays.
    """

    def __init__(self, out: StrPath, attempt: int, policy: KeepPolicy | None = None) -> None:
        self.out = os.path.abspath(out)
        self.root = os.path.join(self.out, "checkpoints")
        self.best = os.path.join(self.out, "best")
        self.attempt = attempt
        """May be raised before anything is written: see `continue_attempts`."""
        self.policy = policy or KeepPolicy()
        self.rooted = False
        """Whether `root` is known to exist durably."""
        self._tight = False
        """Whether the newest checkpoint left no room for the next one when it was published."""
        self.anchor = ""
        """Name of the checkpoint that this attempt loaded, then of the newest it wrote: it is never
        deleted.
        """

    def list_items(self, pauses: Sequence[float] | None = None) -> list[CheckpointItem]:
        """Return the published step checkpoints, oldest first, unverified.

        Args:
            pauses: Seconds between the attempts to list them; None for those of
                `rgt_train.checkpoint.diskio`.

        Raises:
            Unreadable: They cannot be listed; that does not mean that there are none.
        """
        found = []
        for name in diskio.list_names(self.root, pauses):
            match = _STEP.match(name)
            if match:
                step, attempt, serial = (int(group or 0) for group in match.groups())
                found.append(
                    CheckpointItem(
                        step, attempt, serial, name, _written_at(os.path.join(self.root, name))
                    )
                )
        return sorted(found)

    def list_steps(self) -> list[int]:
        """Return the steps of the published checkpoints, oldest first, unverified."""
        return [item.step for item in self.list_items()]

    def continue_attempts(self, loaded: Checkpoint) -> None:
        """Continue the attempt count from `loaded` if its run log is lost (a wiped disk)."""
        self.attempt = max(self.attempt, int(loaded.manifest.get("attempt", 0)) + 1)

    def list_paths(self) -> list[tuple[int, str]]:
        """Return step and directory of the published checkpoints, oldest first, unverified."""
        return [(item.step, self.path_of(item)) for item in self.list_items()]

    def path_of(self, item: CheckpointItem) -> str:
        """Return the directory of `item`."""
        return os.path.join(self.root, item.name)

    def new_path(self, step: int) -> str:
        """Return the directory for a new checkpoint of `step`; nothing has that name yet."""
        name = path = os.path.join(self.root, f"step-{step:08d}-a{self.attempt}")
        serial = 0
        # The same attempt may save a step again; published directories are never replaced.
        while os.path.lexists(path):
            serial += 1
            path = f"{name}.{serial}"
        return path

    def temporary(self, kind: str, step: int) -> str:
        """Return the directory in which a checkpoint is made before its rename."""
        if kind == "best":
            label = f"best-{step}"
        else:
            label = str(step)
        return os.path.join(self.root, f".tmp-{label}-{self.attempt}")

    def aside_path(self, path: str) -> str:
        """Return the temporary name of `path` until its deletion."""
        return os.path.join(self.root, f".old-{os.path.basename(path)}-{self.attempt}")

    def remove_leftovers(self) -> list[str]:
        """Finish or delete the partial work of a dead attempt; return the names that were removed.

        Raises:
            Unreadable: The content is unknown; nothing was removed.
        """
        strays = [
            name for name in diskio.list_names(self.root) if name.startswith((".tmp-", ".old-"))
        ]
        # A crash between the two renames of a new best leaves only the old one, under its temporary
        # name.
        if not diskio.is_dir(self.best):
            self._restore_best(strays)
        removed = []
        for name in sorted(strays):
            path = os.path.join(self.root, name)
            if os.path.lexists(path):
                remove_path(path)
                removed.append(name)
        for name in diskio.list_names(self.out):
            if name.startswith(".tmp-"):
                remove_path(os.path.join(self.out, name))
        return removed

    def remove_failed_saves(self) -> None:
        """Remove the remains of failed saves: a disk that refuses to write may refuse to delete.

        Call it only while no save is in flight. An old ``best`` without a successor stays.
        """
        with suppress(Unreadable):
            for name in diskio.list_names(self.root, ()):
                if name.startswith((".tmp-", ".old-step-")):
                    remove_path(os.path.join(self.root, name))

    def newest_good(self, use: Callable[[str], T]) -> tuple[T | None, list[str]]:
        """Return ``use(path)`` of the newest complete checkpoint, and a line for each damaged one.

        If there is one, damaged ones are renamed (``.damaged-step-…``), so that they are never
        taken for good later; `prune_checkpoints` deletes all but one of them once there is a new
        checkpoint. If
        there is none, they stay: the next launch checks again. Nothing is deleted here. ``best`` is
        the last resort.

        Args:
            use: Receives the directory of a checkpoint and checks every byte of it; raises
                `CheckpointDamaged`.

        Raises:
            UsageError: The newest is complete but does not belong here.
            Unreadable: The disk cannot tell whether it is complete: no older one may replace it.
        """
        complaints: list[str] = []
        damaged: list[str] = []
        newest_first = [self.path_of(item) for item in reversed(self.list_items())]
        for path in [*newest_first, self.best]:
            if not diskio.is_dir(path):
                continue
            try:
                found = use(path)
            except CheckpointDamaged as damage:
                complaints.append(f"checkpoint {path} is damaged, not used: {damage}")
                damaged.append(path)
                continue
            for other in damaged:
                # Only once a good one is known: the damaged ones may be all that is left.
                self.set_aside(other)
            return found, complaints
        return None, complaints

    def set_best_aside(self) -> None:
        """Keep a damaged ``best`` for an inspection, under another name."""
        if os.path.isdir(self.best):
            self.set_aside(self.best)

    def set_aside(self, path: str) -> None:
        """Keep a damaged checkpoint for an inspection, under another name."""
        aside = os.path.join(self.root, f".damaged-{os.path.basename(path)}-{self.attempt}")
        with suppress(OSError):
            os.rename(path, aside)

    def published(self, path: str, need_bytes: int, need_inodes: int) -> None:
        """Record the published step checkpoint at `path`: prune, and check the space.

        Args:
            path: The newest from now on.
            need_bytes: Bytes of one checkpoint.
            need_inodes: Its inodes.
        """
        self.anchor = os.path.basename(path)
        self.prune_checkpoints()
        with suppress(OSError):
            self._tight = (
                read_space(self.root).missing_resource(need_bytes, need_inodes) is not None
            )

    def prune_checkpoints(self) -> list[str]:
        """Delete what the policy does not keep; return the names.

        Call it after publishing a checkpoint.
        """
        with suppress(Unreadable):
            self._forget_damaged()
            gone = find_unprotected(self.list_items(()), self.policy, self.anchor)
            return [item.name for item in gone if self.delete_item(item)]
        return []

    def delete_item(self, item: CheckpointItem) -> bool:
        """Delete one checkpoint, never leaving a partial directory under a published name."""
        path = self.path_of(item)
        aside = self.aside_path(path)
        try:
            remove_path(aside)
            os.rename(path, aside)
            fsync_dir(self.root)
        except OSError:
            return False
        remove_path(aside)
        return True

    def make_room(self, *, valuable: bool) -> str | None:
        """Delete the least valuable item on the disk; return its name, or None if nothing may go.

        Damaged or half-written ones go first, then checkpoints by their value; the newest, `anchor`
        and ``best`` stay, and without a ``best`` also the old one that can be restored.

        Args:
            valuable: Whether intact checkpoints may go.
        """
        worthless = (".damaged-", ".old-" if os.path.isdir(self.best) else ".old-step-")
        with suppress(Unreadable):
            for name in sorted(diskio.list_names(self.root, ())):
                if name.startswith(worthless):
                    remove_path(os.path.join(self.root, name))
                    return name
            for item in (
                by_ascending_value(self.list_items(()), self.policy, self.anchor)
                if valuable
                else []
            ):
                if self.delete_item(item):
                    return item.name
        return None

    def keep_only_newest(self) -> str | None:
        """Keep only the newest from now on if the older ones left no room; return the message.

        None if there was room when the newest was published: then something else fills the disk,
        perhaps only for a time.
        """
        if not self._tight or self.policy.last < 2:
            return None
        text = f"there is no room for keep={self.policy.last}: from here on one checkpoint is kept"
        self.policy = replace(self.policy, last=1)
        return f"{text}; gave up {', '.join(self.prune_checkpoints()) or 'none'}"

    def _restore_best(self, strays: list[str]) -> None:
        """Finish an interrupted swap of ``best``: the new one if it is complete, or the old one."""
        new = [name for name in strays if name.startswith(".tmp-best-")]
        old = [name for name in strays if name.startswith(".old-best-")]
        for name in [*new, *old]:
            path = os.path.join(self.root, name)
            with suppress(CheckpointDamaged, manifest.UnknownFormat, OSError):
                manifest.verify_checkpoint(path)
                os.rename(path, self.best)
                return
        # it was published, and its successor never was: nothing else is left of it
        for name in old:
            with suppress(OSError):
                os.rename(os.path.join(self.root, name), self.best)

    def _forget_damaged(self) -> None:
        """Keep one damaged step checkpoint and one ``best``: the newest of the last launch that found any."""
        newest: dict[str, str] = {}
        for name in sorted(diskio.list_names(self.root, ()), key=_damaged_at):
            match = _DAMAGED.match(name)
            if match:
                before = newest.get(match[1])
                newest[match[1]] = name
                if before is not None:
                    remove_path(os.path.join(self.root, before))


def verified_checkpoint(path: str) -> Checkpoint:
    """Return the checkpoint at `path` after verifying every byte of it.

    Raises:
        CheckpointDamaged: A byte is not the one written.
        UnknownFormat: It is of another format.
    """
    return describe_checkpoint(path, manifest.verify_checkpoint(path))


def describe_checkpoint(path: str, facts: Mapping[str, Any]) -> Checkpoint:
    """Return the published checkpoint at `path` with the manifest `facts`."""
    size = sum(int(entry["size"]) for entry in facts["files"].values())
    return Checkpoint(path, int(facts["step"]), size + manifest.manifest_length(facts), facts)


def _written_at(path: str) -> float:
    for place in (os.path.join(path, manifest.NAME), path):
        try:
            return os.stat(place).st_mtime
        except OSError:
            continue
    return 0.0


def _damaged_at(name: str) -> tuple[int, str]:
    """Return the sort key of a damaged checkpoint: the launch that found it, then its own name."""
    match = _DAMAGED.match(name)
    return (int(match[2]) if match else 0, name)
