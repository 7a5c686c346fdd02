"""Where a log went that was renamed, and what was written between it and the file that stands there now."""

from __future__ import annotations

import os
import re

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

MOST = 64
_SUFFIX = re.compile(r"[.\-_](?:\d{1,9}|\d{4}-?\d\d-?\d\d[-_T.:\d]*)$")
"""``.1``, ``-20261121``, ``.2026-11-21_10``: what rotation adds, and a copy or a packed file does not."""


def siblings(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files whose names continue that of `path`."""
    folder, base = os.path.split(path)
    try:
        names = [name for name in os.listdir(folder or ".") if name.startswith(base) and name != base]
    except OSError:
        return
    for name in sorted(names)[-MOST:]:
        candidate = os.path.join(folder, name)
        try:
            yield candidate, os.stat(candidate)
        except OSError:
            continue


def find_rotated(path: str, cursor: tuple[int, int]) -> int | None:
    """Open the file that `path` was renamed to while nobody followed (``train.log`` → ``train.log.1``), by inode."""
    for candidate, stat in siblings(path):
        if stat.st_ino == cursor[0] and stat.st_size >= cursor[1]:
            try:
                return files.open_regular(candidate)
            except OSError:
                return None
    return None


def successor(path: str, left: os.stat_result) -> int | None:
    """Open the file that was rotated away next after the one that was read to its end, if there is such a one.

    Args:
        path: The followed path.
        left: The file that was read to its end.
    """
    try:
        current = os.stat(path).st_ino
    except OSError:
        current = 0
    later = [
        (stat.st_mtime_ns, candidate)
        for candidate, stat in siblings(path)
        if stat.st_ino not in (left.st_ino, current)
        and stat.st_mtime_ns > left.st_mtime_ns
        and _SUFFIX.search(candidate[len(path) :])
    ]
    for _, candidate in sorted(later):
        try:
            return files.open_regular(candidate)
        except OSError:
            continue
    return None
