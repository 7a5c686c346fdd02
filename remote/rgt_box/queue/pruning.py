"""Frees room on a box: removes checkpoints of finished cells whose copy on durable storage is proved once more.

Only files of checkpoints are removed, never the best checkpoint of a cell, and a checkpoint goes only if each of its
files has, at that moment, the SHA-256 that the copy's manifest says, here and there.
"""

from __future__ import annotations

import os
import stat

from rgt_wire.shared_text import size_text

from rgt_box import files
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.commands import hashing
from rgt_box.queue import durable_copy
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Removable(NamedTuple):
        """A checkpoint that could be removed."""

        cell: str
        path: str
        files: tuple[tuple[str, str, int, str], ...]
        """(file, its copy, bytes, SHA-256), absolute."""

        @property
        def bytes(self) -> int:
            """What its files hold."""
            return sum(size for _, _, size, _ in self.files)
else:
    from collections import namedtuple

    class Removable(namedtuple("Removable", "cell path files")):
        """A checkpoint that could be removed; see above."""

        @property
        def bytes(self):  # noqa: ANN201, D102
            return sum(size for _, _, size, _ in self.files)


def removable(job: Job, cells: list[dict[str, Any]]) -> list[Removable]:
    """Return the checkpoints that could be removed, by name and size alone; those of the oldest cell come first."""
    if not job.settings["prune"]:
        return []
    done = [cell for cell in cells if cell.get("state") == "done" and cell.get("durable") == "verified"]
    found: list[Removable] = []
    for cell in sorted(done, key=lambda cell: float(cell.get("ended") or 0.0)):
        out, copy = cell.get("out"), cell.get("durable_path")
        if isinstance(out, str) and isinstance(copy, str) and not _overlap(out, copy):
            found += _of_cell(str(cell.get("name")), out, copy)
    return found


def _overlap(one: str, other: str) -> bool:
    one, other = os.path.realpath(one), os.path.realpath(other)
    return files.is_below(one, other) or files.is_below(other, one)


def _of_cell(name: str, out: str, copy: str) -> list[Removable]:
    saved = [one for one in CheckpointSearch(out, waits=False).poll() if not one.unfinished]
    kept = [one for one in saved if one.best] or saved[-1:]
    stays = {path for one in kept for path in one.files}
    listing = durable_copy.read_manifest(copy)
    if listing.problem:
        return []  # half a manifest proves nothing
    found = []
    for one in saved:
        if one in kept or stays.intersection(one.files):
            continue
        rows = [_row(path, out, copy, listing.entries) for path in one.files]
        complete = [row for row in rows if row is not None]
        if len(complete) == len(rows):
            found.append(Removable(name, one.path, tuple(complete)))
    return found


def _row(
    path: str, out: str, copy: str, listed: dict[bytes, tuple[int, str]]
) -> tuple[str, str, int, str] | None:
    """Return a file with its copy; None if the copy's manifest does not have it in this size."""
    name = os.path.relpath(path, out)
    try:
        status = os.lstat(path)
    except OSError:
        return None
    size, sha256 = listed.get(os.fsencode(name), (-1, ""))
    if not stat.S_ISREG(status.st_mode) or size != status.st_size:
        return None
    return path, os.path.join(copy, name), size, sha256


def remove(one: Removable) -> str | None:
    """Remove a checkpoint after each of its files was proved; return why it was not removed, None if it was."""
    for path, copy, _, sha256 in one.files:
        try:
            if os.path.samefile(path, copy):
                return "%s is the same file as its copy" % path
            if hashing.of_path(copy) != sha256:
                return "%s is not what was copied there" % copy
            if hashing.of_path(path) != sha256:
                return "%s is not what was copied" % path
        except OSError as error:
            return "%s: %s" % (error.filename or copy, error.strerror or error)
    for path, _, _, _ in one.files:
        try:
            os.unlink(path)
        except OSError as error:
            return "%s: %s" % (path, error.strerror or error)
    if os.path.isdir(one.path):
        for folder, _, _ in os.walk(one.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # something else is in it
    return None


def summary(found: list[Removable]) -> str:
    """Return what could be removed, in words."""
    cells = len({one.cell for one in found})
    count = len(found)
    return "%d checkpoint%s of %d finished cell%s, %s" % (
        count,
        "" if count == 1 else "s",
        cells,
        "" if cells == 1 else "s",
        size_text(sum(one.bytes for one in found)),
    )
