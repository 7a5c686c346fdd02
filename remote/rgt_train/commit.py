"""The commit protocol of a checkpoint, the same whoever writes its files.

New directory → files, each fsynced → manifest with their checksums, fsynced → fsync of the directory → rename →
fsync of the parent → pointer → only then anything older goes. Killed anywhere, what was published before is untouched.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Mapping, Optional

from rgt_train import manifest
from rgt_train.durable import fsync_dir, remove, replace_file, write_file
from rgt_train.reading import Unreadable
from rgt_train.space import read_space, reserve
from rgt_train.store import POINTER, Checkpoint, Store, describe


class Draft:
    """A checkpoint that is being made.

    Attributes:
        path: The temporary directory; whoever writes a file there fsyncs it.

    Args:
        store: Where it will be published.
        kind: ``step`` or ``best``.
        step: Optimizer steps done.
        path: The directory of `create`.
    """

    def __init__(self, store: Store, kind: str, step: int, path: str) -> None:
        self._store, self._kind, self._step, self.path = store, kind, step, path
        self._facts: Optional[Mapping[str, Any]] = None

    @classmethod
    def create(cls, store: Store, kind: str, step: int, need_bytes: int, need_inodes: int) -> "Draft":
        """Look whether there is room, and make the temporary directory.

        Raises:
            OSError: There is no room, or no directory can be made; nothing is left behind.
        """
        path = store.temporary(kind, step)
        if not (store.rooted and os.path.isdir(store.root)):
            os.makedirs(store.root, exist_ok=True)
            fsync_dir(store.out)  # also where it is there: whoever made it may have been killed before this
            store.rooted = True
        store.sweep()
        # Looked at before the directory takes an inode of its own.
        short = read_space(store.root).short_of(need_bytes, need_inodes)
        os.mkdir(path)
        if short:
            try:
                reserve(path, need_bytes)
            except OSError:
                remove(path)
                raise
        return cls(store, kind, step, path)

    def seal(self, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        """Write the manifest and make the directory durable.

        Args:
            files: Name → what `rgt_train.digest.facts` says of it.
            about: Further facts for the manifest.

        Raises:
            OSError: The draft can only be dropped.
        """
        data = manifest.encode(self._step, files, about)
        write_file(os.path.join(self.path, manifest.NAME), data)
        fsync_dir(self.path)
        try:
            self._facts = manifest.read(self.path, pauses=())
        except Unreadable as refused:
            raise refused.error from refused
        except manifest.Damaged as damage:  # written a moment ago: the disk's failure, and told as one
            number = getattr(damage.__cause__, "errno", None) or errno.EIO
            place = os.path.join(self.path, manifest.NAME)
            raise OSError(number, os.strerror(number), place) from damage

    def publish(self) -> Checkpoint:
        """Give it its name, durably, and move the pointer to it.

        Raises:
            OSError: It was not published; what was there before is in its place.
        """
        assert self._facts is not None, "sealed before published"
        store = self._store
        if self._kind == "best":
            self._swap_best()
            return describe(store.best, self._facts)
        target = store.new_path(self._step)
        os.rename(self.path, target)
        try:
            fsync_dir(store.root)
        except OSError:
            os.rename(target, self.path)
            raise
        self._point_at(target)
        return describe(target, self._facts)

    def drop(self) -> None:
        """Forget it."""
        remove(self.path)

    def _swap_best(self) -> None:
        """``best`` has one name for ever: the old one steps aside for the instant between two renames."""
        store = self._store
        aside = store.aside(store.best)
        try:
            if os.path.isdir(store.best):
                remove(aside)
                os.rename(store.best, aside)
            os.rename(self.path, store.best)
            for parent in (store.root, store.out):
                fsync_dir(parent)
        except OSError:
            if not os.path.isdir(store.best) and os.path.isdir(aside):
                os.rename(aside, store.best)
            raise
        remove(aside)

    def _point_at(self, target: str) -> None:
        """Move ``latest``. It serves people and scripts, a launch does not need it: better none than a wrong one."""
        pointer = os.path.join(self._store.root, POINTER)
        try:
            replace_file(pointer, (os.path.basename(target) + "\n").encode())
        except OSError:
            remove(pointer)
