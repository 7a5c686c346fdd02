"""The plan of a pull and its progress: which copies are good, what to fetch, and in what pieces."""

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

from rgt_tui.model import FrozenStruct
from rgt_tui.transfer.copying.box_listing import (
    PARTS,
    SMALL_PART,
    BoxListing,
    ListingError,
    RefusedFile,
    RemoteFile,
    destination_path,
)
from rgt_tui.transfer.ledger import FileRow, FileStamp, Ledger, sha256_of

WHOLE_BYTES = 2 << 20
"""A file up to this size is sent in one piece, with its hash; it is never resumed but sent again.
"""
RANGE_BYTES = 8 << 20
"""Size of the ranges of larger files, and so the maximum lost when the connection breaks."""
LEFT_S = 3600.0
"""An unfinished small copy older than this many seconds does not belong to a running pull."""


class FetchCourse(enum.StrEnum):
    """How to fetch a file of the box that has no verified copy here yet."""

    COMPARE = "compare"
    """A file of the same size has its name, and may be the same."""
    FETCH = "fetch"


class PullStep(FrozenStruct, gc=False):
    """One file of the box, and its destination."""

    file: RemoteFile
    local: str
    """The destination, unless a file that must be kept has that name."""
    course: FetchCourse


class PullPlan(FrozenStruct, kw_only=True):
    """What a pull does."""

    steps: tuple[PullStep, ...]
    """Files without a good copy, the small files of one directory together."""
    same: tuple[FileRow, ...]
    refused: tuple[RefusedFile, ...]
    bytes: int = 0
    """Total bytes of the steps."""
    present: int = 0
    """How many of those bytes unfinished copies have already, if they prove good."""

    @property
    def needed_bytes(self) -> int:
        """Free bytes that the destination needs."""
        return max(0, self.bytes - self.present)


def part_path(destination: Path, path: str) -> str:
    """Return the path of the unfinished copy of a large file of the box."""
    return f"{parts_folder(destination)}/{hashlib.sha256(os.fsencode(path)).hexdigest()[:40]}"


def parts_folder(destination: Path) -> Path:
    """Return the directory of unfinished copies."""
    return destination / PARTS


def remove_left_parts(destination: Path) -> None:
    """Delete the small copies that a killed pull left; files that cannot be deleted are skipped."""
    for folder, _, names in os.walk(destination):
        for name in filter(SMALL_PART.fullmatch, names):
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                # its mtime is that of the original
                if time.time() - path.lstat().st_ctime > LEFT_S:
                    path.unlink()


def plan_pull(
    listing: BoxListing,
    ledger: Ledger,
    destination: Path,
    instance: str = "",
    note: Callable[[FileRow], None] = lambda row: None,
) -> PullPlan:
    """Compare the box's files with the local ones. It blocks: copies with a new stamp are hashed.

    Args:
        listing: The files of the box.
        ledger: What was pulled before.
        destination: Local directory, absolute.
        instance: The provider's id of the machine.
        note: Called with the new row of a copy whose stamp changed but not its content.
    """
    steps: list[PullStep] = []
    same: list[FileRow] = []
    refused = list(listing.refused)
    present = 0
    for file in listing.files:
        try:
            local = destination_path(destination, file.path)
        except ListingError as error:
            refused.append(RefusedFile(file.path, str(error)))
            continue
        row = _find_verified_row(file, ledger, instance, destination, note)
        if row is not None:
            same.append(row)
            continue
        if _regular_size(local) == file.there.size:
            # A hash costs less than the transfer, if the file is the same.
            course = FetchCourse.COMPARE
        else:
            course = FetchCourse.FETCH
        steps.append(PullStep(file, local, course))
        if file.there.size > WHOLE_BYTES:
            present += min(_regular_size(part_path(destination, file.path)) or 0, file.there.size)
    return PullPlan(
        steps=tuple(steps),
        same=tuple(same),
        refused=tuple(refused),
        bytes=sum(step.file.there.size for step in steps),
        present=present,
    )


def _find_verified_row(
    file: RemoteFile,
    ledger: Ledger,
    instance: str,
    destination: Path,
    note: Callable[[FileRow], None],
) -> FileRow | None:
    """Return the row of a file whose copy below this destination matches the box's current file."""
    row = ledger.find_file(file.path)
    # A rental reuses paths: the same stamp on another machine proves nothing.
    if row is None or row.there != file.there or row.instance != instance:
        return None
    # The person wants it here; a copy elsewhere does not help.
    if not row.local.startswith(f"{destination}/"):
        return None
    try:
        found = os.lstat(row.local)
        if not stat.S_ISREG(found.st_mode):
            return None
        if FileStamp.from_stat(found) == row.here:
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


def _regular_size(path: str) -> int | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    return None


def split_ranges(size: int, length: int = RANGE_BYTES) -> tuple[tuple[int, int], ...]:
    """Return the pieces in which a file of this size is fetched, as ``(start, end)``."""
    return tuple((start, min(start + length, size)) for start in range(0, size, length))


class PullProgress(FrozenStruct, kw_only=True):
    """The progress of a pull at one moment."""

    phase: str
    """``connecting``, ``listing``, ``comparing``, ``pulling``, ``closing`` or ``done``."""
    files: int = 0
    """Number of files to fetch in this run."""
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    """Bytes done, including those of an earlier run that proved good."""
    rate: float | None = None
    """Bytes per second received; None = too early to know."""
    eta: float | None = None
    """Seconds; None = unknown."""
    path: str = ""
    """The file that was begun last."""
    problems: int = 0
    """Files refused, changed or failed so far."""

    @property
    def done_share(self) -> float:
        """Share of the bytes done, 0 to 1."""
        if self.bytes:
            return min(1.0, self.bytes_done / self.bytes)
        return float(self.phase == "done")


class TransferRate:
    """Bytes per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add_reading(self, now: float, total: int) -> float | None:
        """Add a reading and return the rate.

        Args:
            now: Seconds of a monotonic clock.
            total: Bytes so far.
        """
        self._seen.append((now, total))
        # Seconds over which the rate is measured: stable enough to read, fast enough to show a slow
        # connection.
        window_s = 10.0
        while len(self._seen) > 2 and now - self._seen[1][0] >= window_s:
            self._seen.popleft()
        begun, first = self._seen[0]
        shortest_s = 0.5
        if now - begun >= shortest_s:
            return max(0, total - first) / (now - begun)
        return None


def time_to_go(left: int, rate: float | None) -> float | None:
    """Return the seconds that the remaining bytes take; None = unknown."""
    if left <= 0:
        return 0.0
    if rate and math.isfinite(rate):
        return left / rate
    return None
