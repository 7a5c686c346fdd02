"""The checkpoints of a run on disk: published by rename, verified by hash, pruned after something newer holds."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from rgt_train import manifest
from rgt_train.durable import StrPath, fsync_dir, remove, write_file
from rgt_train.hashing import HashingFile
from rgt_train.manifest import Damaged
from rgt_train.space import read_space, reserve

Writer = Callable[[HashingFile], None]
"""Writes the content of one file of a checkpoint."""

_STEP = re.compile(r"step-(\d{8,})\Z")
_OVERHEAD = 64 * 1024


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint whose every byte has been read back.

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
    """The directory ``OUT/checkpoints`` and ``OUT/best``.

    Only one live process may use it (see `RunLock`): that is what makes every temporary found at the start a stray.

    Args:
        out: The run directory; it must exist.
        attempt: Number of this incarnation; it is part of every temporary name.
        keep: How many step checkpoints stay.
    """

    def __init__(self, out: StrPath, attempt: int, keep: int = 2) -> None:
        self.out = os.path.abspath(out)
        self.root = os.path.join(self.out, "checkpoints")
        self.best = os.path.join(self.out, "best")
        self._attempt = attempt
        self._keep = max(1, keep)
        self.check: Optional[Callable[[str], None]] = None
        """Called once with the directory of the first checkpoint before it is published; may raise."""
        self.need_bytes = _OVERHEAD
        self.need_inodes = 6

    def expect(self, size: int, files: int) -> None:
        """Tell how large the next checkpoint will be: `size` bytes in `files` files."""
        self.need_bytes = size + _OVERHEAD
        self.need_inodes = files + 2  # the manifest and the directory

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

    def steps(self) -> List[int]:
        """Return the steps of the published checkpoints, oldest first, unverified."""
        found = (_STEP.match(name) for name in _names(self.root))
        return sorted(int(match.group(1)) for match in found if match)

    def path_of(self, step: int) -> str:
        """Return the directory of the checkpoint of `step`."""
        return os.path.join(self.root, f"step-{step:08d}")

    def newest_good(self) -> Tuple[Optional[Checkpoint], List[str]]:
        """Return the newest checkpoint of which every byte is right, and one line for each that is not.

        Damaged ones are moved aside (``.damaged-step-…``, the newest of them is kept for an inspection), so that
        their step can be saved again. ``best`` is the last resort.
        """
        complaints: List[str] = []
        for path in [*(self.path_of(step) for step in reversed(self.steps())), self.best]:
            if not os.path.isdir(path):
                continue
            try:
                facts = manifest.verify(path)
            except Damaged as damage:
                complaints.append(f"checkpoint {path} is damaged, not used: {damage}")
                if path != self.best:
                    self._set_aside(path, first=len(complaints) == 1)
            else:
                return _published(path, facts), complaints
        return None, complaints

    def set_best_aside(self) -> None:
        """Keep a damaged ``best`` for an inspection, under another name."""
        if os.path.isdir(self.best):
            self._set_aside(self.best, first=False, keep=True)

    def commit(self, step: int, parts: Mapping[str, Writer], about: Mapping[str, Any]) -> Checkpoint:
        """Publish ``step-XXXXXXXX`` and prune.

        Raises:
            OSError: Nothing was published, no temporary is left, what was good before is untouched.
        """
        target = self.path_of(step)
        temporary, facts = self._write(f".tmp-{step}-{self._attempt}", step, parts, about)
        self._rename(temporary, target, [self.root])
        self._prune()
        return _published(target, facts)

    def commit_best(self, step: int, parts: Mapping[str, Writer], about: Mapping[str, Any]) -> Checkpoint:
        """Publish ``OUT/best`` the same way.

        Raises:
            OSError: The former best is untouched.
        """
        temporary, facts = self._write(f".tmp-best-{step}-{self._attempt}", step, parts, about)
        self._rename(temporary, self.best, [self.root, self.out])
        return _published(self.best, facts)

    def _write(
        self, name: str, step: int, parts: Mapping[str, Writer], about: Mapping[str, Any]
    ) -> Tuple[str, Dict[str, Any]]:
        temporary = os.path.join(self.root, name)
        try:
            if not os.path.isdir(self.root):
                os.mkdir(self.root)
                fsync_dir(self.out)
            remove(temporary)
            # Looked at before the directory takes an inode of its own.
            short = read_space(self.root).short_of(self.need_bytes, self.need_inodes)
            os.mkdir(temporary)
            if short:
                reserve(temporary, self.need_bytes)
            files: Dict[str, Dict[str, Any]] = {}
            for part, write in parts.items():
                file = HashingFile(os.path.join(temporary, part))
                try:
                    write(file)
                except BaseException:
                    file_error = _close_quietly(file)
                    if file_error is not None:
                        raise file_error from None
                    raise
                file.close()
                files[part] = file.facts()
            write_file(os.path.join(temporary, manifest.NAME), manifest.encode(step, files, about))
            fsync_dir(temporary)
            facts = manifest.verify(temporary)
            if self.check is not None:
                self.check(temporary)
                self.check = None
        except Damaged as damage:
            remove(temporary)
            raise OSError(5, f"read back differently: {damage}", temporary) from damage
        except BaseException:
            remove(temporary)
            raise
        self.expect(sum(entry["size"] for entry in files.values()), len(files))
        return temporary, facts

    def _rename(self, temporary: str, target: str, parents: List[str]) -> None:
        aside = os.path.join(self.root, f".old-{os.path.basename(target)}-{self._attempt}")
        try:
            if os.path.isdir(target):
                remove(aside)
                os.rename(target, aside)
            os.rename(temporary, target)
            for parent in parents:
                fsync_dir(parent)
        except OSError:
            if not os.path.isdir(target) and os.path.isdir(aside):
                os.rename(aside, target)
            remove(temporary)
            raise
        remove(aside)

    def _prune(self) -> None:
        for step in self.steps()[: -self._keep]:
            path = self.path_of(step)
            aside = os.path.join(self.root, f".old-{os.path.basename(path)}-{self._attempt}")
            try:
                os.rename(path, aside)  # never a half-deleted directory under a published name
            except OSError:
                continue
            remove(aside)

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
            except (Damaged, OSError):
                continue

    def _set_aside(self, path: str, *, first: bool, keep: bool = False) -> None:
        if first:
            for name in _names(self.root):
                if name.startswith(".damaged-"):
                    remove(os.path.join(self.root, name))
        aside = os.path.join(self.root, f".damaged-{os.path.basename(path)}-{self._attempt}")
        try:
            os.rename(path, aside)
        except OSError:
            return
        if not (first or keep):
            remove(aside)


def _published(path: str, facts: Mapping[str, Any]) -> Checkpoint:
    size = sum(int(entry["size"]) for entry in facts["files"].values())
    size += os.stat(os.path.join(path, manifest.NAME)).st_size
    return Checkpoint(path, int(facts["step"]), size, facts)


def _close_quietly(file: HashingFile) -> Optional[OSError]:
    try:
        file.close(sync=False)
    except OSError as error:
        return error
    return None


def _names(path: str) -> List[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
