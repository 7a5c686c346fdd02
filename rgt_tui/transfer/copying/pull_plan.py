"""The plan of a pull and its progress: which copies are good, which to compare or fetch, and in what pieces."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from rgt_tui.transfer.copying.box_listing import (
    PARTS,
    SMALL_PART,
    Listing,
    ListingError,
    Refused,
    RemoteFile,
    beneath,
)
from rgt_tui.transfer.ledger import FileRow, Ledger, Stamp, sha256_of

WHOLE_BYTES = 2 << 20
"""A file up to this comes in one piece, with its hash; it is not resumed but sent anew."""
RANGE_BYTES = 8 << 20
"""Of a larger one: so much is lost when the connection breaks."""
LEFT_S = 3600.0
"""A small copy that was not finished and is older belongs to no pull that is at work."""


class Course(enum.StrEnum):
    """How a file of the box that has no verified copy here yet will be fetched."""

    COMPARE = "compare"
    """Something of its size stands at its place, and may be it."""
    FETCH = "fetch"


class Step(msgspec.Struct, frozen=True, gc=False):
    """One file of the box, and where it goes."""

    file: RemoteFile
    local: str
    """Where it goes, unless something that is not to be replaced stands there."""
    course: Course


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull does."""

    steps: tuple[Step, ...]
    """That which is not the same, the small files of one directory together."""
    same: tuple[FileRow, ...]
    refused: tuple[Refused, ...]
    bytes: int = 0
    """Of the steps."""
    present: int = 0
    """Of those, bytes that stand in unfinished copies already, if they prove good."""

    @property
    def needed(self) -> int:
        """Bytes that the destination must have room for."""
        return max(0, self.bytes - self.present)


def part_path(destination: Path, path: str) -> str:
    """Return where the unfinished copy of a large file of the box is kept."""
    return f"{parts_folder(destination)}/{hashlib.sha256(os.fsencode(path)).hexdigest()[:40]}"


def parts_folder(destination: Path) -> Path:
    """Return where unfinished copies are kept."""
    return destination / PARTS


def remove_left_parts(destination: Path) -> None:
    """Remove the small copies that a killed pull left; what cannot be removed stays."""
    for folder, _, names in os.walk(destination):
        for name in filter(SMALL_PART.fullmatch, names):
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                if (
                    time.time() - path.lstat().st_ctime > LEFT_S
                ):  # its mtime is that of the original
                    path.unlink()


def plan(
    listing: Listing,
    ledger: Ledger,
    destination: Path,
    instance: str = "",
    note: Callable[[FileRow], None] = lambda row: None,
) -> Plan:
    """Compare what the box has with what is here. It blocks: copies that were touched are hashed.

    Args:
        listing: What the box has.
        ledger: What was pulled before.
        destination: Where to, absolute.
        instance: What the provider calls the machine.
        note: Called with the new row of a copy that was only touched.
    """
    steps: list[Step] = []
    same: list[FileRow] = []
    refused = list(listing.refused)
    present = 0
    for file in listing.files:
        try:
            local = beneath(destination, file.path)
        except ListingError as error:
            refused.append(Refused(file.path, str(error)))
            continue
        row = _verified(file, ledger, instance, destination, note)
        if row is not None:
            same.append(row)
            continue
        course = Course.COMPARE if _size(local) == file.there.size else Course.FETCH
        steps.append(Step(file, local, course))
        if file.there.size > WHOLE_BYTES:
            present += min(_size(part_path(destination, file.path)) or 0, file.there.size)
    return Plan(
        steps=tuple(steps),
        same=tuple(same),
        refused=tuple(refused),
        bytes=sum(step.file.there.size for step in steps),
        present=present,
    )


def _verified(
    file: RemoteFile,
    ledger: Ledger,
    instance: str,
    destination: Path,
    note: Callable[[FileRow], None],
) -> FileRow | None:
    """Return the row of a file whose copy, below this destination, is what the box still has."""
    row = ledger.file(file.path)
    if row is None or row.there != file.there or row.instance != instance:
        return None
    if not row.local.startswith(f"{destination}/"):
        return None
    try:
        found = os.lstat(row.local)
        if not stat.S_ISREG(found.st_mode):
            return None
        if Stamp.of(found) == row.here:
            return row
        if found.st_size != row.here.size:
            return None
        digest, stamp = sha256_of(Path(row.local))
    except OSError:
        return None
    if digest != row.sha256:
        return None
    again = msgspec.structs.replace(row, here=stamp)
    note(again)
    return again


def _size(path: str) -> int | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    return None


def ranges(size: int, length: int = RANGE_BYTES) -> tuple[tuple[int, int], ...]:
    """Return the pieces in which a file of this size is fetched, as ``(start, end)``."""
    return tuple((start, min(start + length, size)) for start in range(0, size, length))


WINDOW_S = 10.0
"""The rate is that of so many seconds: steady enough to read, quick enough to show that a line has become slow."""
SHORTEST_S = 0.5


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pull under way."""

    phase: str
    """``connecting``, ``listing``, ``comparing``, ``pulling``, ``closing`` or ``done``."""
    files: int = 0
    """To be taken in this run."""
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    """Of these; what a run before has left and proved good counts as well."""
    rate: float | None = None
    """Bytes per second of what really came; None = too early to tell."""
    eta: float | None = None
    """Seconds; None = cannot be told."""
    path: str = ""
    """The file that was begun last."""
    problems: int = 0
    """Refused, changed or failed by now."""

    @property
    def share(self) -> float:
        """Of the bytes, 0 to 1."""
        if self.bytes:
            return min(1.0, self.bytes_done / self.bytes)
        return float(self.phase == "done")


class Rate:
    """Bytes per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, total: int) -> float | None:
        """Take a reading; return the rate.

        Args:
            now: Seconds of a clock that only goes forward.
            total: Bytes by now.
        """
        self._seen.append((now, total))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        begun, first = self._seen[0]
        if now - begun >= SHORTEST_S:
            return max(0, total - first) / (now - begun)
        return None


def time_to_go(left: int, rate: float | None) -> float | None:
    """Return the seconds that so many bytes take; None where that cannot be told."""
    if left <= 0:
        return 0.0
    if rate and math.isfinite(rate):
        return left / rate
    return None
