"""Read what should be in a directory, as a manifest in it says: ours, or the one in a checkpoint of the trainer."""

from __future__ import annotations

import os

from rgt_box import files, jsonline
from rgt_box.queue.durable_copy import MANIFEST
from rgt_box.verbs import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHECKPOINT = "manifest.json"


class Listing:
    """What should be there.

    Attributes:
        entries: Relative path, raw bytes → (size, SHA-256).
        problem: Why the list itself cannot be trusted; None = it can.
        found: Whether there is any manifest at all.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[int, str]] = {}
        self.problem: str | None = None
        self.found = False

    def add(self, path: bytes, size: Any, digest: Any, where: str) -> None:
        """Take in one file."""
        if isinstance(size, int) and isinstance(digest, str) and len(digest) == 64:
            self.entries[path] = (size, digest)
        else:
            self.problem = "%s is damaged" % where


def read(folder: str, paths: list[bytes]) -> Listing:
    """Return what should be in `folder`.

    Args:
        folder: A durable copy.
        paths: What is in it.
    """
    listing = Listing()
    if MANIFEST.encode() in paths:
        _read_ours(folder, listing)
        return listing
    suffix = CHECKPOINT.encode()
    for path in paths:
        if path == suffix or path.endswith(b"/" + suffix):
            _read_checkpoint(folder, path, listing)
    return listing


def _read_ours(folder: str, listing: Listing) -> None:
    listing.found = True
    ended = False
    for raw in (files.read(os.path.join(folder, MANIFEST), 256 << 20) or b"").splitlines():
        row = jsonline.loads_dict(raw) or {}
        path = tree.raw_name(row)
        ended = row.get("end") is True
        if path is not None and "sha256" in row:
            listing.add(path, row.get("size"), row.get("sha256"), MANIFEST)
    if not ended:
        listing.problem = "%s is cut off" % MANIFEST


def _read_checkpoint(folder: str, path: bytes, listing: Listing) -> None:
    content = files.read_json(os.path.join(folder, os.fsdecode(path))) or {}
    listed = content.get("files")
    if not isinstance(listed, dict):
        return  # some other program's manifest.json
    # The trainer's steps have checksums of their own; only what leaves the box (`best`) has the digest compared here.
    listed = {
        name: facts
        for name, facts in listed.items()
        if not (isinstance(facts, dict) and _has_only_crc(facts))
    }
    if not listed:
        return
    listing.found = True
    base = path[: -len(CHECKPOINT)]
    for name, facts in listed.items():
        known = facts if isinstance(facts, dict) else {}
        listing.add(base + os.fsencode(name), known.get("size"), known.get("sha256"), os.fsdecode(path))


def _has_only_crc(facts: dict[str, Any]) -> bool:
    return "crc32" in facts and "sha256" not in facts
