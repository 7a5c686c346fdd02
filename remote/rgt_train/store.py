"""The checkpoints of a run on disk: their names, which is the newest good one, which go."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from rgt_train import manifest, reading, retention
from rgt_train.durable import StrPath, fsync_dir, remove
from rgt_train.manifest import Damaged
from rgt_train.reading import Unreadable
from rgt_train.retention import Item, Policy
from rgt_train.space import read_space

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


class Store:
    """The directories ``OUT/checkpoints`` and ``OUT/best``.

    Only one live process may write here (see `RunLock`): that is what makes every temporary found at the start a
    stray. Published directories are never written into; they are made by `rgt_train.commit` and go by `drop`.

    Args:
        out: The run directory; it must exist.
        attempt: Number of this incarnation; it is part of every name.
        policy: What stays.
    """

    def __init__(self, out: StrPath, attempt: int, policy: Optional[Policy] = None) -> None:
        self.out = os.path.abspath(out)
        self.root = os.path.join(self.out, "checkpoints")
        self.best = os.path.join(self.out, "best")
        self.attempt = attempt
        """May be raised before anything is written: see `after`."""
        self.policy = policy or Policy()
        self.rooted = False
        """Whether `root` is known to be there for good."""
        self._tight = False
        """Whether the newest, when it was published, left no room for the next."""
        self.anchor = ""
        """Name of the checkpoint this incarnation goes on from, then of the newest it wrote: neither ever goes."""

    def items(self, pauses: Optional[Sequence[float]] = None) -> List[Item]:
        """Return the published step checkpoints, oldest first, unverified.

        Args:
            pauses: Seconds between the attempts to list them; None for those of `rgt_train.reading`.

        Raises:
            Unreadable: They cannot be listed; that does not mean that there are none.
        """
        found = []
        for name in reading.listing(self.root, pauses):
            match = _STEP.match(name)
            if match:
                step, attempt, serial = (int(group or 0) for group in match.groups())
                found.append(Item(step, attempt, serial, name, _written_at(os.path.join(self.root, name))))
        return sorted(found)

    def steps(self) -> List[int]:
        """Return the steps of the published checkpoints, oldest first, unverified."""
        return [item.step for item in self.items()]

    def after(self, loaded: Checkpoint) -> None:
        """Count on from the incarnation that wrote `loaded`, where the ledger that knew it is lost (a wiped disk)."""
        self.attempt = max(self.attempt, int(loaded.manifest.get("attempt", 0)) + 1)

    def places(self) -> List[Tuple[int, str]]:
        """Return step and directory of the published checkpoints, oldest first, unverified."""
        return [(item.step, self.path_of(item)) for item in self.items()]

    def path_of(self, item: Item) -> str:
        """Return the directory of `item`."""
        return os.path.join(self.root, item.name)

    def new_path(self, step: int) -> str:
        """Return the directory that a new checkpoint of `step` gets; there is nothing of that name yet."""
        name = path = os.path.join(self.root, f"step-{step:08d}-a{self.attempt}")
        serial = 0
        while os.path.lexists(path):
            serial += 1
            path = f"{name}.{serial}"
        return path

    def temporary(self, kind: str, step: int) -> str:
        """Return the directory in which a checkpoint is made before it gets its name."""
        label = f"best-{step}" if kind == "best" else str(step)
        return os.path.join(self.root, f".tmp-{label}-{self.attempt}")

    def aside(self, path: str) -> str:
        """Return where `path` waits for its deletion."""
        return os.path.join(self.root, f".old-{os.path.basename(path)}-{self.attempt}")

    def clean(self) -> List[str]:
        """Finish or drop what a dead incarnation left half done; return the names that were removed.

        Raises:
            Unreadable: Nobody can say what is there; nothing was removed.
        """
        strays = [name for name in reading.listing(self.root) if name.startswith((".tmp-", ".old-"))]
        if not reading.is_dir(self.best):
            self._restore_best(strays)
        removed = []
        for name in sorted(strays):
            path = os.path.join(self.root, name)
            if os.path.lexists(path):
                remove(path)
                removed.append(name)
        for name in reading.listing(self.out):
            if name.startswith(".tmp-"):
                remove(os.path.join(self.out, name))
        return removed

    def sweep(self) -> None:
        """Remove what failed saves of this incarnation could not: a disk that refuses to write may refuse to delete.

        To be called where no save is in flight. An old ``best`` that has no successor stays.
        """
        with suppress(Unreadable):
            for name in reading.listing(self.root, ()):
                if name.startswith((".tmp-", ".old-step-")):
                    remove(os.path.join(self.root, name))

    def newest_good(self, use: Callable[[str], T]) -> Tuple[Optional[T], List[str]]:
        """Return what `use` makes of the newest checkpoint that is whole, and one line for each that is not.

        Where one is, damaged ones are moved aside (``.damaged-step-…``), so that nobody takes them for good later;
        `prune` deletes all but one of them once there is a new checkpoint. Where none is, they stay as they are: the
        next launch looks again. Nothing is deleted here. ``best`` is the last resort.

        Args:
            use: Takes the directory of a checkpoint and looks at every byte of it; raises `Damaged`.

        Raises:
            UsageError: The newest is whole but does not belong here.
            Unreadable: The disk does not say whether it is whole: no older one may be taken for the newest.
        """
        complaints: List[str] = []
        damaged: List[str] = []
        for path in [*(self.path_of(item) for item in reversed(self.items())), self.best]:
            if not reading.is_dir(path):
                continue
            try:
                found = use(path)
            except Damaged as damage:
                complaints.append(f"checkpoint {path} is damaged, not used: {damage}")
                damaged.append(path)
                continue
            for other in damaged:
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
        """Take in that the step checkpoint at `path` was published: what need not stay goes, and room is looked at.

        Args:
            path: The newest from now on.
            need_bytes: Bytes of one checkpoint.
            need_inodes: Its inodes.
        """
        self.anchor = os.path.basename(path)
        self.prune()
        with suppress(OSError):
            self._tight = read_space(self.root).short_of(need_bytes, need_inodes) is not None

    def prune(self) -> List[str]:
        """Delete what the policy does not keep; return the names. To be called when a checkpoint was published."""
        with suppress(Unreadable):
            self._forget_damaged()
            gone = retention.doomed(self.items(()), self.policy, self.anchor)
            return [item.name for item in gone if self.drop(item)]
        return []

    def drop(self, item: Item) -> bool:
        """Delete one checkpoint: never a half-deleted directory under a published name, not even after a crash."""
        path = self.path_of(item)
        aside = self.aside(path)
        try:
            remove(aside)
            os.rename(path, aside)
            fsync_dir(self.root)
        except OSError:
            return False
        remove(aside)
        return True

    def make_room(self, *, valuable: bool) -> Optional[str]:
        """Give up the least valuable thing on the disk; return its name, or None where nothing may go.

        What was damaged or half written goes first, then checkpoints by their value; the newest, `anchor` and
        ``best`` stay, and while there is no ``best`` the old one that waits to be put back.

        Args:
            valuable: Whether intact checkpoints may go.
        """
        worthless = (".damaged-", ".old-" if os.path.isdir(self.best) else ".old-step-")
        with suppress(Unreadable):
            for name in sorted(reading.listing(self.root, ())):
                if name.startswith(worthless):
                    remove(os.path.join(self.root, name))
                    return name
            for item in retention.by_value(self.items(()), self.policy, self.anchor) if valuable else []:
                if self.drop(item):
                    return item.name
        return None

    def narrow(self) -> Optional[str]:
        """Keep the newest alone from here on, where the older ones left no room for the next; return what to say.

        None where there was room when the newest was published: then something else fills the disk, and may go again.
        """
        if not self._tight or self.policy.last < 2:
            return None
        text = f"there is no room for keep={self.policy.last}: from here on one checkpoint is kept"
        self.policy = replace(self.policy, last=1)
        return f"{text}; gave up {', '.join(self.prune()) or 'none'}"

    def _restore_best(self, strays: List[str]) -> None:
        """Finish an interrupted swap of ``best``: the new one if it is complete, else the old one."""
        new = [name for name in strays if name.startswith(".tmp-best-")]
        old = [name for name in strays if name.startswith(".old-best-")]
        for name in [*new, *old]:
            path = os.path.join(self.root, name)
            with suppress(Damaged, manifest.Foreign, OSError):
                manifest.verify(path)
                os.rename(path, self.best)
                return
        for name in old:  # it was published once, and its successor never was: nothing else is left of it
            with suppress(OSError):
                os.rename(os.path.join(self.root, name), self.best)

    def _forget_damaged(self) -> None:
        """Keep one damaged step checkpoint and one ``best``: the newest of the last launch that found any."""
        newest: Dict[str, str] = {}
        for name in sorted(reading.listing(self.root, ()), key=_damaged_at):
            match = _DAMAGED.match(name)
            if match:
                before = newest.get(match[1])
                newest[match[1]] = name
                if before is not None:
                    remove(os.path.join(self.root, before))


def verified(path: str) -> Checkpoint:
    """Return the checkpoint at `path` after looking at every byte of it.

    Raises:
        Damaged: A byte is not what was written.
        Foreign: It is of another format.
    """
    return describe(path, manifest.verify(path))


def describe(path: str, facts: Mapping[str, Any]) -> Checkpoint:
    """Return the published checkpoint at `path` with the manifest `facts`."""
    size = sum(int(entry["size"]) for entry in facts["files"].values())
    return Checkpoint(path, int(facts["step"]), size + manifest.length(facts), facts)


def _written_at(path: str) -> float:
    for place in (os.path.join(path, manifest.NAME), path):
        try:
            return os.stat(place).st_mtime
        except OSError:
            continue
    return 0.0


def _damaged_at(name: str) -> Tuple[int, str]:
    """Return what orders the names of damaged checkpoints: the launch that found it, then its own name."""
    match = _DAMAGED.match(name)
    return (int(match[2]) if match else 0, name)
