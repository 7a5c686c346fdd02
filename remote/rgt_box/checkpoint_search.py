"""Finds the checkpoints of a run in its directories, again and again, at the price of a few calls of stat.

`rgt_wire.checkpoint_layouts` recognises them; here are the walk, the sizes, and whether one is complete.
"""

from __future__ import annotations

import os
import re
import stat
import time

from rgt_wire import checkpoint_layouts

from rgt_box import files
from rgt_box.checkpoint_content import ContentReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, NamedTuple, Optional, Tuple

    from rgt_wire.checkpoint_layouts import Checkpoint

    class Found(NamedTuple):
        """A checkpoint on the disk."""

        path: str
        """Absolute: its directory, or its file of weights."""
        files: "Tuple[str, ...]"
        """Absolute, all of them."""
        group: str
        step: "Optional[int]"
        epoch: "Optional[int]"
        best: bool
        bytes: int
        inodes: int
        at: float
        """When its newest file was written, by the box's clock."""
        unfinished: str
        """Why it is not complete; "" = it is."""
else:
    from collections import namedtuple

    Found = namedtuple("Found", "path files group step epoch best bytes inodes at unfinished")

MOST = 20_000
"""Entries of a directory tree that are listed: a look must not become a crawl."""
MOST_BY_LINK = 5000
"""… where a link led: it may lead to everything."""
MOST_FILES = 20_000
"""Files of one checkpoint that are counted."""
DEPTH = 8
QUIET_S = 3.0
"""Seconds without a change after which a checkpoint whose format has no end of its own counts as complete."""
MOST_FOLDERS = 400
"""Directories whose mtimes are compared at every poll; a larger tree is walked again now and then instead."""
WALK_COST = 50.0
"""A walk that took t seconds is not repeated within so many times t."""
WALK_EVERY_S, LARGE_COST = 10.0, 200.0
"""A tree that is too large to be compared is walked again after these seconds, or after so many times its walk."""
FRESH_NS = 100_000_000
"""A directory that changed within so many nanoseconds is listed again at the next poll."""
SKIPPED = checkpoint_layouts.SKIPPED | {
    ".hg",
    ".svn",
    "site-packages",
    "miniconda3",
    "anaconda3",
    "wandb",
    "mlruns",
}
_ENDS_BY_ITSELF = (".safetensors", ".pt", ".pth", ".ckpt", ".pth.tar", ".keras", ".h5", ".zip", ".pkl")
"""Formats that say where they end: a file that is not cut off is complete."""


class CheckpointSearch:
    """Finds the checkpoints below one directory.

    Args:
        root: The directory; it need not exist yet.
        since: Only those that were written at or after this time.
        only: Only paths below the root of which one part is this name; "" = all.
        most: Entries that are listed at most.
        depth: Levels of directories.
        waits: Whether what was written a moment ago, in a format without an end of its own, is not complete yet.
    """

    def __init__(
        self,
        root: str,
        since: float = 0.0,
        only: str = "",
        most: int = MOST,
        depth: int = DEPTH,
        waits: bool = True,
    ) -> None:
        self.root, self._since, self._only = root, since, only
        self._most, self._depth, self._waits = most, depth, waits
        self._content = ContentReader(root)
        self._folders: "Dict[str, object]" = {}
        self._paths: List[str] = []
        self._watched: "Dict[str, object]" = {}
        self._found: "List[Found]" = []
        self._seen: "Dict[str, Tuple[object, float]]" = {}
        self._walked = self._took = 0.0
        self._pending = False
        """Some checkpoint may become complete although nothing changes any more."""
        self.cut = False
        """The tree is larger than what was listed."""

    def poll(self) -> "List[Found]":
        """Return all checkpoints there are now, oldest first."""
        now = time.monotonic()
        walk = self._is_changed(now)
        if walk:
            self._walk(now)
        if walk or self._pending or self._are_files_changed():
            self._judge(now)
        if walk:
            self._took = time.monotonic() - now
        return self._found

    def _is_changed(self, now: float) -> bool:
        if not self._walked:
            return True
        since = now - self._walked
        if since < WALK_COST * self._took:
            return False
        if len(self._folders) > MOST_FOLDERS or self.cut:
            return since > max(WALK_EVERY_S, LARGE_COST * self._took)
        return any(files.signature(path) != mark for path, mark in self._folders.items())

    def _are_files_changed(self) -> bool:
        return any(files.signature(path) != mark for path, mark in self._watched.items())

    def _walk(self, now: float) -> None:
        paths: List[str] = []
        folders: "Dict[str, object]" = {}
        level = [(self.root, "", 0)]
        links: "List[Tuple[str, str, int]]" = []
        known: "set[Tuple[int, int]]" = set()
        entries, self.cut = 0, False
        while level or links:
            is_link = not level
            if is_link:  # the widest first: ``last`` leads into what ``checkpoints`` leads to
                links.sort(key=lambda link: len(os.path.realpath(link[0])), reverse=True)
            path, inside, depth = (level or links).pop()
            try:
                status = os.stat(path)
            except OSError:
                folders[path] = None
                continue
            # ``last`` of LeRobot leads to a checkpoint that was seen; ``checkpoints`` may lead to another disk.
            if (status.st_dev, status.st_ino) in known or not stat.S_ISDIR(status.st_mode):
                continue
            known.add((status.st_dev, status.st_ino))
            most = MOST_BY_LINK if is_link else self._most
            mark = files.signature(path)
            # A change within the same tick of the clock as this walk would leave the mtime as it is.
            is_fresh = mark is not None and abs(time.time_ns() - mark[2]) < FRESH_NS
            folders[path] = object() if is_fresh else mark
            try:
                listed = list(os.scandir(path))
            except OSError:
                continue
            entries += len(listed)
            if entries > most:
                self.cut = True
                break
            for entry in listed:
                name = inside + entry.name
                if entry.is_symlink():
                    if depth < self._depth and entry.name not in SKIPPED:
                        links.append((entry.path, name + "/", depth + 1))
                elif entry.is_dir(follow_symlinks=False):
                    if depth < self._depth and entry.name not in SKIPPED:
                        level.append((entry.path, name + "/", depth + 1))
                else:
                    paths.append(name)
        self._folders, self._paths = folders, paths
        self._walked = now

    def _judge(self, now: float) -> None:
        found = []
        self._pending = False
        for one in checkpoint_layouts.find_checkpoints(self._paths, self._content):
            if self._only and self._only not in one.path.split("/")[:-1]:
                continue
            measured = self._measure(one, now)
            if measured is not None and measured.at >= self._since:
                found.append(measured)
        found.sort(key=lambda one: (one.at, -1 if one.step is None else one.step, one.path))
        self._found = found
        self._content.forget_all_but(set(self._paths))
        self._watched = {}
        newest: "Dict[str, Found]" = {}
        for each in found:
            newest[each.group] = each
        # A file that is written over changes no directory: the newest of each series, and what has no number.
        for each in found:
            if newest[each.group] is each or each.unfinished or (each.step is None and each.epoch is None):
                self._watched.update((path, files.signature(path)) for path in each.files[:MOST_FOLDERS])

    def _measure(self, one: Checkpoint, now: float) -> "Optional[Found]":
        path = os.path.normpath(os.path.join(self.root, one.path))
        total, newest = 0, 0.0
        whole = [os.path.join(self.root, name) for name in one.files[:MOST_FILES]]
        for name in whole:
            try:
                status = os.lstat(name)
            except OSError:
                self._pending = True
                continue
            total, newest = total + status.st_size, max(newest, status.st_mtime)
        if not newest:
            return None
        is_folder = one.path not in one.files
        inodes = len(one.files) + (len({os.path.dirname(name) for name in one.files}) if is_folder else 0)
        unfinished = one.unfinished
        if not unfinished and self._waits and not self._is_settled(one, total, newest, now, is_folder):
            unfinished = "it was written to a moment ago"
            self._pending = True
        group = re.sub(r"\d+", "#", path)
        return Found(
            path, tuple(whole), group, one.step, one.epoch, one.best, total, inodes, newest, unfinished
        )

    def _is_settled(self, one: Checkpoint, total: int, newest: float, now: float, is_folder: bool) -> bool:
        if not is_folder and len(one.files) == 1 and one.path.lower().endswith(_ENDS_BY_ITSELF):
            return True
        if is_folder and os.path.join(one.path, "manifest.json") in one.files:
            return True  # ours: the directory takes its name when it is complete
        known = self._seen.get(one.path)
        mark = (total, newest, len(one.files))
        if known is None or known[0] != mark:
            known = self._seen[one.path] = (mark, now)
        age = time.time() - newest
        return age > QUIET_S or now - known[1] > QUIET_S


def weight_of(path: str) -> "Tuple[int, int]":
    """Return (bytes, inodes) of a file or a tree; (0, 0) where there is nothing."""
    try:
        total, entries = os.lstat(path).st_size if not os.path.isdir(path) else 0, 1
    except OSError:
        return 0, 0
    for folder, names, inside in os.walk(path):
        entries += len(names) + len(inside)
        for name in inside:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
        if entries > MOST:
            break
    return total, entries
