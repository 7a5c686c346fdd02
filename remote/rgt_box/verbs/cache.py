"""Hashes that were already computed, so that a second run, or one after a kill, does not read everything again."""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline, ownership, place
from rgt_box.verbs import hashing

MOST = 32 << 20
"""Bytes that the file may grow to; then its older half is dropped."""

RACY_NS = 50 * 10**6
"""A file written this shortly before it was hashed may be written again within one tick of the clock."""


class HashCache:
    """SHA-256 by device, inode, size, mtime and ctime, appended to a file as they are found.

    Args:
        path: The file; None = remember nothing.
    """

    def __init__(self, path: str | None) -> None:
        if path is not None and os.path.lexists(path) and not ownership.is_ours(path):
            path = None  # who may write to it says what every file holds
        self._path = path
        self._known: dict[str, str] = {}
        self._fd = -1
        if path is None:
            return
        for row in (files.read(path, 4 * MOST) or b"").splitlines():
            found = jsonline.loads_dict(row) or {}
            key, digest = found.get("k"), found.get("h")
            if isinstance(key, str) and isinstance(digest, str) and len(digest) == 64:
                self._known[key] = digest
        try:
            ownership.take(os.path.dirname(path) or ".")
            self._shrink(path)
            self._fd = files.open_appending(path)
        except OSError:
            pass  # without a cache everything is hashed, which is slower and no less true

    def _shrink(self, path: str) -> None:
        found = files.signature(path)
        if found is None or found[1] <= MOST:
            return
        kept = list(self._known.items())[len(self._known) // 2 :]
        files.replace(path, b"".join(_row(key, digest) for key, digest in kept))
        self._known = dict(kept)

    def get(self, stat: os.stat_result) -> str | None:
        """Return the hash of a file that has not changed since it was put in."""
        return self._known.get(_key(stat))

    def put(self, stat: os.stat_result, digest: str) -> None:
        """Remember a hash, unless the file is so fresh that its times could not tell the next change."""
        if self._fd < 0 or time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < RACY_NS:
            return
        self._known[_key(stat)] = digest
        try:
            files.write_all(self._fd, _row(_key(stat), digest))
        except OSError:
            self.close()  # a full disk must not end the work; the row cut short is no JSON and is skipped

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _key(stat: os.stat_result) -> str:
    return ":".join("%x" % number for number in hashing.identity(stat))


def _row(key: str, digest: str) -> bytes:
    return jsonline.line({"k": key, "h": digest})


def default_path() -> str:
    """Return where the cache is kept."""
    return os.path.join(place.state_dir(), "hashes.jsonl")
