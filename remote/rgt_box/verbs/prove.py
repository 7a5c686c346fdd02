"""Is a durable copy whole? Every file that its manifest lists is read and compared."""

from __future__ import annotations

import os

from rgt_box.background import describe
from rgt_box.queue.durable_copy import MANIFEST
from rgt_box.verbs import hashing, listing, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHOWN = 20
"""Files named for each cell; the count is exact."""

OK, MISSING, ZERO, DAMAGED, UNPROVEN, UNREADABLE = (
    "ok", "missing", "zero-byte", "damaged", "unproven", "unreadable",
)  # fmt: skip


def prove(folder: str, keep: list[str]) -> dict[str, Any]:
    """Return ``status``, ``reason``, ``files``, ``bytes`` and the ``paths`` that are to blame.

    Args:
        folder: The durable copy of one cell.
        keep: What the job keeps: of these even a manifest cannot excuse an empty file.
    """
    try:
        entries = [(entry.path, entry.kind, entry.stat, entry.text) for entry in tree.walk(folder)]
    except OSError as error:
        return _say(UNREADABLE, describe(error), [])
    sizes = {path: stat.st_size for path, kind, stat, _ in entries if kind == tree.FILE and stat is not None}
    broken = [path for path, kind, _, _ in entries if kind == tree.ERROR]
    facts = {"files": len(sizes), "bytes": sum(sizes.values())}
    if broken:
        return dict(_say(UNREADABLE, entries[0][3] or "cannot be listed", broken), **facts)
    if not set(sizes) - {MANIFEST.encode()}:
        return dict(_say(MISSING, "the durable directory is empty", []), **facts)
    listed = listing.read(folder, sorted(sizes))
    kept = {os.fsencode(path) for path in keep}
    empty = [
        path
        for path, size in sizes.items()
        if not size and (path in kept or listed.entries.get(path, (1, ""))[0])
    ]
    if empty:
        return dict(_say(ZERO, "%d empty" % len(empty), empty), **facts)
    if listed.problem:
        return dict(_say(DAMAGED, listed.problem, []), **facts)
    if not listed.found:
        return dict(_say(UNPROVEN, "no manifest says what it should hold", []), **facts)
    return dict(_compare(folder, sizes, listed), **facts)


def _compare(folder: str, sizes: dict[bytes, int], listed: listing.Listing) -> dict[str, Any]:
    gone = [path for path in listed.entries if path not in sizes]
    if gone:
        return _say(DAMAGED, "%d of %d files are not there" % (len(gone), len(listed.entries)), gone)
    altered = []
    for path, (size, digest) in sorted(listed.entries.items()):
        try:
            same = sizes[path] == size and hashing.of_path(os.path.join(os.fsencode(folder), path)) == digest
        except OSError as error:
            return _say(UNREADABLE, describe(error), [path])
        if not same:
            altered.append(path)
    if altered:
        return _say(DAMAGED, "%d of %d files differ" % (len(altered), len(listed.entries)), altered)
    return dict(_say(OK, None, []), verified=len(listed.entries))


def _say(status: str, reason: str | None, paths: list[bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {"status": status}
    if reason:
        found["reason"] = reason
    if paths:
        found["paths"] = [tree.named(path) for path in sorted(paths)[:SHOWN]]
    return found
