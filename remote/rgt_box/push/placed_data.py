"""Puts pushed data into place, file by file and verified; files in use or newer are left alone."""

from __future__ import annotations

import os
import stat

from rgt_box import files
from rgt_box.commands import hashing
from rgt_box.push import file_holders, push_staging
from rgt_box.push.push_staging import Manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Sorted(NamedTuple):
        """The files of a push by what is to become of them."""

        same: list[str]
        """They stand there already, with this very content."""
        going: list[str]
        """They are to be written, or to replace an older one."""
        refused: list[tuple[str, str]]
        """(path, why)."""
else:
    from collections import namedtuple

    Sorted = namedtuple("Sorted", "same going refused")


def sort(manifest: Manifest, cache: hashing.HashCache) -> Sorted:
    """Look at what is in the place of each file.

    Args:
        manifest: What is pushed.
        cache: Hashes of files here that are known.
    """
    found = Sorted([], [], [])
    replaced = []
    for path, size, digest, mtime, _ in manifest.files:
        target = os.path.join(manifest.place, path)
        why = _why_not(manifest.place, target)
        if why:
            found.refused.append((path, why))
            continue
        try:
            seen = os.lstat(target)
        except OSError:
            found.going.append(path)
            continue
        if seen.st_size == size and push_staging.is_right(target, digest, cache):
            found.same.append(path)
        elif seen.st_mtime_ns > mtime and not manifest.replace:
            found.refused.append((path, "the file on the box is newer and differs"))
        else:
            replaced.append((path, target))
    for path, why in _in_use(manifest, replaced):
        found.refused.append((path, why))
    refused = {path for path, _ in found.refused}
    found.going.extend(path for path, _ in replaced if path not in refused)
    for path, wanted in manifest.links:
        why = _why_not(manifest.place, os.path.join(manifest.place, path), wanted)
        if why:
            found.refused.append((path, why))
    return found


def _in_use(manifest: Manifest, replaced: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return which of the files that would be replaced a process uses, or may use."""
    if not replaced:
        return []
    held = file_holders.opened([target for _, target in replaced])
    found = []
    for path, target in replaced:
        why = held.of(target) or ([] if manifest.replace else held.doubts)
        if why:
            found.append((path, why[0]))
    return found


def _why_not(place: str, target: str, link: str | None = None) -> str:
    """Say why nothing can be put at a path; "" where a file may be."""
    folder = os.path.dirname(target)
    real, inside = os.path.realpath(folder), os.path.realpath(place)
    if not files.is_below(real, inside):
        return "%s is a link that leads out of %s" % (folder, place)
    while not os.path.lexists(real):
        real = os.path.dirname(real)
    if not os.path.isdir(real):
        return "%s is not a directory" % real
    try:
        seen = os.lstat(target)
    except OSError:
        return ""
    if link is not None:
        return (
            ""
            if stat.S_ISLNK(seen.st_mode) and os.readlink(target) == link
            else "something else is in its place"
        )
    if not stat.S_ISREG(seen.st_mode):
        return "what is there is not a regular file"
    return ""


def publish(manifest: Manifest, cache: hashing.HashCache) -> Sorted:
    """Put the files that wait into their places, after another look at those.

    Raises:
        OSError: it cannot be written.
    """
    found = sort(manifest, cache)
    going = set(found.going)
    mask = os.umask(0)
    os.umask(mask)
    left: dict[str, int] = {}
    for row in manifest.files:
        if row[0] in going:
            left[row[2]] = left.get(row[2], 0) + 1
    for path, _, digest, mtime, executable in manifest.files:
        if path not in going:
            continue
        target, waiting = os.path.join(manifest.place, path), push_staging.blob(manifest, digest)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        left[digest] -= 1
        source = waiting
        if left[digest]:
            source = waiting + ".one"
            if not push_staging.copy_content(waiting, digest, source):
                raise OSError(5, "what arrived differs from what was sent", path)
        os.chmod(source, (0o777 if executable else 0o666) & ~mask)
        os.utime(source, ns=(mtime, mtime))
        files.sync(source)
        os.rename(source, target)
    refused = {path for path, _ in found.refused}
    for path, wanted in manifest.links:
        target = os.path.join(manifest.place, path)
        if path not in refused and not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(wanted, target)
    for folder in {os.path.dirname(os.path.join(manifest.place, path)) for path in going}:
        hashing.sync_folder(folder)
    return found
