"""How much a checkpoint weighs, by the newest one that is there."""

from __future__ import annotations

import os
import re

_FOLDER = re.compile(r"(?:(?:step|checkpoint|global_step|epoch|iter)[-_=]?\d+|(?:best|last|latest)\w*$)")
_FILE = re.compile(r".\.(pt|pth|ckpt|bin|safetensors|pkl|npz|tar|h5|keras)$")

MOST = 20000
"""Entries looked at below one run directory: a check must not become a crawl."""

DEEP = 3


def newest(outs: list[str]) -> tuple[str, int, int] | None:
    """Return (path, bytes, inodes) of the newest checkpoint in any of the run directories; None = there is none."""
    found: tuple[float, str] | None = None
    for out in outs:
        for path in _checkpoints(out):
            try:
                at = os.stat(path).st_mtime
            except OSError:
                continue
            if found is None or at > found[0]:
                found = (at, path)
    return None if found is None else (found[1],) + of(found[1])


def _checkpoints(out: str) -> list[str]:
    found = []
    seen = 0
    for folder, names, files in os.walk(out):
        depth = folder[len(out) :].count(os.sep)
        seen += len(names) + len(files)
        if seen > MOST:
            break
        chosen = [name for name in names if _FOLDER.match(name)]
        found += [os.path.join(folder, name) for name in chosen]
        found += [os.path.join(folder, name) for name in files if _FILE.search(name)]
        # What is inside a checkpoint is part of it, and what is being written is none yet.
        names[:] = [
            name
            for name in names
            if depth + 1 < DEEP and name not in chosen and not name.startswith((".", "tmp"))
        ]
    return found


def of(path: str) -> tuple[int, int]:
    """Return (bytes, inodes) of a file or a tree; (0, 0) where there is nothing."""
    try:
        total, entries = os.lstat(path).st_size if not os.path.isdir(path) else 0, 1
    except OSError:
        return 0, 0
    for folder, names, files in os.walk(path):
        entries += len(names) + len(files)
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
        if entries > MOST:
            break
    return total, entries
