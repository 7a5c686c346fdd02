"""The checkpoints of a run on disk: their names, which is the newest good one, which go."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple, TypeVar

from rgt_train import manifest, retention
from rgt_train.durable import StrPath, fsync_dir, remove
from rgt_train.manifest import Damaged
from rgt_train.retention import Item, Policy

T = TypeVar("T")
POINTER = "latest"
_STEP = re.compile(r"step-(\d{8,})(?:-a(\d+)(?:\.(\d+))?)?\Z")


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

    def items(self) -> List[Item]:
        """Return the published step checkpoints, oldest first, unverified."""
        found = []
        for name in _names(self.root):
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
        """Finish or drop what a dead incarnation left half done; return the names that were removed."""
        strays = [name for name in _names(self.root) if name.startswith((".tmp-", ".old-"))]
        if not os.path.isdir(self.best):
            self._restore_best(strays)
        removed = []
        for name in sorted(strays):
            path = os.path.join(self.root, name)
            if os.path.lexists(path):
                remove(path)
                removed.append(name)
        for name in _names(self.out):
            if name.startswith(".tmp-"):
                remove(os.path.join(self.out, name))
        return removed

    def sweep(self) -> None:
        """Remove what failed saves of this incarnation could not: a disk that refuses to write may refuse to delete.

        To be called where no save is in flight. An old ``best`` that has no successor stays.
        """
        for name in _names(self.root):
            if name.startswith((".tmp-", ".old-step-")):
                remove(os.path.join(self.root, name))

    def newest_good(self, use: Callable[[str], T]) -> Tuple[Optional[T], List[str]]:
        """Return what `use` makes of the newest checkpoint that is whole, and one line for each that is not.

        Damaged ones are moved aside (``.damaged-step-…``, the newest of them is kept for an inspection), so that
        nobody takes them for good later. ``best`` is the last resort.

        Args:
            use: Takes the directory of a checkpoint and looks at every byte of it; raises `Damaged`.

        Raises:
            UsageError: The newest is whole but does not belong here.
        """
        complaints: List[str] = []
        for path in [*(self.path_of(item) for item in reversed(self.items())), self.best]:
            if not os.path.isdir(path):
                continue
            try:
                return use(path), complaints
            except Damaged as damage:
                complaints.append(f"checkpoint {path} is damaged, not used: {damage}")
                if path != self.best:
                    self._set_aside(path, first=len(complaints) == 1)
        return None, complaints

    def set_best_aside(self) -> None:
        """Keep a damaged ``best`` for an inspection, under another name."""
        if os.path.isdir(self.best):
            self._set_aside(self.best, first=False, keep=True)

    def prune(self) -> List[str]:
        """Delete what the policy does not keep; return the names."""
        return [item.name for item in retention.doomed(self.items(), self.policy) if self.drop(item)]

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

        What was damaged or half written goes first, then checkpoints by their value; the newest and ``best`` stay.

        Args:
            valuable: Whether intact checkpoints may go.
        """
        for name in sorted(_names(self.root)):
            if name.startswith((".damaged-", ".old-")):
                remove(os.path.join(self.root, name))
                return name
        for item in retention.by_value(self.items(), self.policy) if valuable else []:
            if self.drop(item):
                return item.name
        return None

    def _restore_best(self, strays: List[str]) -> None:
        """Finish an interrupted swap of ``best``: the new one if it is complete, else the old one."""
        new = [name for name in strays if name.startswith(".tmp-best-")]
        old = [name for name in strays if name.startswith(".old-best-")]
        for name in [*new, *old]:
            path = os.path.join(self.root, name)
            try:
                manifest.verify(path)
                os.rename(path, self.best)
                return
            except (Damaged, manifest.Foreign, OSError):
                continue

    def _set_aside(self, path: str, *, first: bool, keep: bool = False) -> None:
        if first:
            for name in _names(self.root):
                if name.startswith(".damaged-"):
                    remove(os.path.join(self.root, name))
        aside = os.path.join(self.root, f".damaged-{os.path.basename(path)}-{self.attempt}")
        try:
            os.rename(path, aside)
        except OSError:
            return
        if not (first or keep):
            remove(aside)


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
    size += os.stat(os.path.join(path, manifest.NAME)).st_size
    return Checkpoint(path, int(facts["step"]), size, facts)


def _written_at(path: str) -> float:
    for place in (os.path.join(path, manifest.NAME), path):
        try:
            return os.stat(place).st_mtime
        except OSError:
            continue
    return 0.0


def _names(path: str) -> List[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
