"""Lists every file below a directory, without following links out of it, with its first bytes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rgt_wire.checkpoint_names import MANIFEST

from rgt_tui.files import open_regular
from rgt_tui.transfer import checkpoint_groups
from rgt_tui.transfer.copying.box_listing import SMALL_PART
from rgt_tui.transfer.zip_records import END_MAGIC, MAGIC

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_END_BYTES = 22
_MOST_HEAD = 1 << 20


class Listing(NamedTuple):
    """What is below a directory; the names are relative to it."""

    files: dict[str, int]
    """Regular files, and their bytes."""
    problems: list[tuple[str, str]]
    """Names and reasons of what is no file, or cannot be listed."""


def listing(root: Path, left_out: frozenset[str]) -> Listing:
    """List a directory.

    Args:
        root: It.
        left_out: Names directly in it that do not count.

    Raises:
        OSError: it cannot be listed.
    """
    found = Listing({}, [])
    real = Path(os.path.realpath(root, strict=True))
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            if not folder:
                raise
            found.problems.append((folder, f"it cannot be listed: {error.strerror or error}"))
            continue
        for name in names:
            if (not folder and name in left_out) or SMALL_PART.fullmatch(name):
                continue  # what a killed pull left is no copy
            path = f"{folder}/{name}" if folder else name
            try:
                mode = (status := os.lstat(f"{root}/{path}")).st_mode
            except OSError as error:
                found.problems.append((path, f"it cannot be looked at: {error.strerror or error}"))
                continue
            if stat.S_ISDIR(mode):
                waiting.append(path)
            elif stat.S_ISREG(mode):
                found.files[path] = status.st_size
            elif stat.S_ISLNK(mode):
                why = _link(root / path, real)
                if why is not None:
                    found.problems.append((path, why))
            else:
                kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
                found.problems.append((path, f"it is {kind}"))
    return found


def _link(path: Path, real: Path) -> str | None:
    """Return what is wrong with a link; None where it leads to something in the directory `real`."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "it is a link that leads nowhere"
    if not target.is_relative_to(real):
        return "it is a link that leads out of the directory: what it means is not here"
    return None


def heads(folder: Path, files: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Yield, for each file, what `rgt_tui.transfer.checkpoint_groups.plan` has to know of its bytes.

    Args:
        folder: Of them all.
        files: Names, relative to it, and bytes.
    """
    for name, size in files:
        last = name.rpartition("/")[2].lower()
        head = ""
        if last == MANIFEST:
            head = "ours" if checkpoint_groups.is_manifest(_read(folder / name, _MOST_HEAD)) else ""
        elif last.endswith((".bin", ".pkl", ".pickle", ".tar")):
            head = "zip" if _is_zip(folder / name, size) else ""
        yield name, head


def _is_zip(path: Path, size: int) -> bool:
    """Say whether a file is a zip file, also one whose beginning or end was damaged."""
    if _read(path, 4) == MAGIC:
        return True
    return _read(path, _END_BYTES, size - _END_BYTES).startswith(END_MAGIC)


def _read(path: Path, most: int, at: int = 0) -> bytes:
    try:
        with open_regular(path, follow=False) as file:
            return os.pread(file.fileno(), most, max(0, at))
    except OSError:
        return b""  # that it cannot be read is said where it is hashed
