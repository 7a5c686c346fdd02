"""Which files package managers have installed, by their own lists: dpkg, rpm, apk, pacman, pip and conda.

A box holds some hundred thousand of them, so that only a 64-bit hash of each path is kept: a wrong match is as likely
as one in ten thousand million.
"""

from __future__ import annotations

import array
import bisect
import glob
import json
import os
import re
import subprocess

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

MOST_BYTES = 64 << 20
"""Of one list."""
RPM_SECONDS = 60.0
RPM_FOLDERS = ("var/lib/rpm", "usr/lib/sysimage/rpm")
RPM_DATABASES = ("rpmdb.sqlite", "Packages.db", "Packages")
"""Of rpm 4.16 and later, and the two formats before (rpm.org, *Database backends*, 2026-11)."""
LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Directories at the root that newer systems replace with links into /usr, while the lists keep their old names."""
DIST_INFO = ".dist-info"
_FILES = re.compile(rb'"files"\s*:\s*(\[)')


class PathSet:
    """A set of paths that takes 8 bytes for each."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._hashes = array.array("q", sorted(set(map(hash, paths))))

    def __contains__(self, path: bytes) -> bool:
        wanted = hash(path)
        at = bisect.bisect_left(self._hashes, wanted)
        return at < len(self._hashes) and self._hashes[at] == wanted

    def __len__(self) -> int:
        return len(self._hashes)


def system_packages(root: str) -> PathSet:
    """Return the files of the system's packages below a root directory."""
    return PathSet(_at_root(root, _system_paths(root)))


def python_packages(prefix: str) -> PathSet:
    """Return the files that pip and conda have installed into an environment, or into the directory itself.

    A list claims nothing outside of its own environment.
    """
    return PathSet(_python_paths(os.fsencode(os.path.normpath(prefix))))


def may_be_prefix(folders: list[str]) -> bool:
    """Tell whether a directory with these in it may be one that `python_packages` knows something about."""
    return "lib" in folders or "conda-meta" in folders or any(name.endswith(DIST_INFO) for name in folders)


def _at_root(root: str, paths: Iterable[bytes]) -> Iterator[bytes]:
    moved = {}
    for name in LINKED:
        link = os.path.join(root, name)
        if os.path.islink(link):
            target = os.path.join(
                "/", os.readlink(link)
            )  # from this root, which may be another than the system's
            moved[os.fsencode("/%s/" % name)] = os.fsencode(os.path.normpath(target)) + b"/"
    top = os.fsencode(root.rstrip("/"))
    for path in paths:
        first = path[: path.find(b"/", 1) + 1]
        yield top + (moved[first] + path[len(first) :] if first in moved else path)


def _system_paths(root: str) -> Iterator[bytes]:
    for name in glob.iglob(os.path.join(glob.escape(root), "var/lib/dpkg/info/*.list")):
        yield from (files.read(name, MOST_BYTES) or b"").splitlines()
    folder = b""
    for row in (files.read(os.path.join(root, "lib/apk/db/installed"), MOST_BYTES) or b"").splitlines():
        if row.startswith(b"F:"):
            folder = row[2:]
        elif row.startswith(b"R:"):
            yield b"/" + os.path.join(folder, row[2:])
    for name in glob.iglob(os.path.join(glob.escape(root), "var/lib/pacman/local/*/files")):
        yield from (b"/" + row for row in (files.read(name, MOST_BYTES) or b"").splitlines())
    for database in {os.path.realpath(os.path.join(root, name)) for name in RPM_FOLDERS}:
        # In a directory without a database, rpm would make one.
        if any(os.path.exists(os.path.join(database, name)) for name in RPM_DATABASES):
            yield from _rpm_paths(database)


def _rpm_paths(folder: str) -> list[bytes]:
    """Return what the database in a directory lists: that of the system, where rpm itself may be set to another."""
    try:
        done = subprocess.run(
            ["rpm", "--dbpath", folder, "-qal"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=RPM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def _python_paths(prefix: bytes) -> Iterator[bytes]:
    for name in glob.iglob(os.path.join(glob.escape(prefix), b"conda-meta", b"*.json")):
        for path in conda_files(files.read(os.fsdecode(name), MOST_BYTES) or b""):
            yield os.path.join(prefix, path)
    inside = prefix + b"/"
    for pattern in (b"lib*/python*/*-packages", b""):
        for record in glob.iglob(os.path.join(glob.escape(prefix), pattern, b"*.dist-info", b"RECORD")):
            packages = os.path.dirname(os.path.dirname(record))
            for path in record_files(files.read(os.fsdecode(record), MOST_BYTES) or b""):
                found = os.path.join(packages, path)
                if b".." in path:
                    found = os.path.normpath(found)
                if found.startswith(inside):
                    yield found


def record_files(text: bytes) -> Iterator[bytes]:
    """Yield the paths of a RECORD: ``path,hash,size``, quoted where the path holds a comma (PEP 376)."""
    for row in text.splitlines():
        if row.startswith(b'"'):
            yield row[1:].partition(b'",')[0].replace(b'""', b'"')
        else:
            yield row.partition(b",")[0]


def conda_files(text: bytes) -> list[bytes]:
    """Return the paths of conda's description of a package. It can have megabytes, of which one list is of use."""
    match = _FILES.search(text)
    end = match.start(1) if match is not None else -1
    while match is not None and (end := text.find(b"]", end + 1)) >= 0:
        try:
            found = json.loads(text[match.start(1) : end + 1])
        except ValueError:
            continue  # the bracket belongs to a name
        return [os.fsencode(path) for path in found if isinstance(path, str) and "\0" not in path]
    return []
