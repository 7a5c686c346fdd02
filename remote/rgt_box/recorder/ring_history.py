"""The history: written to the ring on disk or in memory, read across both, and summarised."""

from __future__ import annotations

import os
import time
from collections import deque

from rgt_box import background, files, jsonline, ownership
from rgt_box.recorder import state_files
from rgt_box.recorder.ring import (
    EVENT,
    HISTORY,
    SAMPLE,
    HistoryRing,
    RingReader,
    RingRecord,
    newest_position,
    oldest_seq,
    ring_bytes,
    segment_numbers,
)
from rgt_box.recorder.state_files import RING

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

RETRY = 5.0
"""Seconds between two attempts to return to the disk."""


class HistoryStore:
    """The writing end of the history; numbering continues through disk failures.

    Args:
        folder: The state directory.
        boot: This boot.

    Attributes:
        trouble: Why the disk is not written to; None if it is.
        news: Events to record: ``(kind, text, level)``.

    Raises:
        OSError: Not even memory can be written.
    """

    def __init__(self, folder: str, boot: str) -> None:
        self._folder = folder
        self._boot = boot
        self._path = os.path.join(folder, RING)
        self.trouble: str | None = None
        self.news: list[tuple[str, str, str]] = []
        self.last_boot: str | None = None
        self.last_sample: JsonObject = {}
        self._tried = 0.0
        try:
            self._ring = self._move_memory_records() or HistoryRing(self._path, boot, ring_bytes())
            self.last_boot = self._ring.last_boot
            self.last_sample = self._ring.last_sample
        except (OSError, ValueError) as error:
            self._ring = self._new_memory_ring(error)
            self.last_boot = self._ring.last_boot or (newest_position(self._path) or (None, 0))[0]

    def append_frame(self, kind: bytes, frame: JsonObject) -> int:
        """Append a frame and return its number; see `HistoryRing.append_frame`.

        Raises:
            OSError: Not even memory accepts it.
        """
        if self.trouble is not None:
            self._return_to_disk()
        try:
            return self._ring.append_frame(kind, frame)
        except OSError as error:
            if self.trouble is not None:
                raise
            # Numbering goes on in memory, so that a client sees no gap and no duplicate.
            last = self._ring.last_seq
            self._ring.close()
            self._ring = self._new_memory_ring(error, last)
            return self._ring.append_frame(kind, frame)

    def skip_to(self, seq: int) -> None:
        """Never use numbers up to `seq`."""
        self._ring.skip_to(seq)

    def add_segment(self) -> bool:
        """Allocate one more segment; see `HistoryRing.add_segment`."""
        return self._ring.add_segment()

    def _new_memory_ring(self, error: Exception, last: int = 0) -> HistoryRing:
        memory = state_files.memory_folder(self._folder, make=True)
        if memory is None:
            raise error
        self.trouble = background.error_text(error)
        self._tried = time.monotonic()
        ring = HistoryRing(
            os.path.join(memory, RING), self._boot, min(state_files.RAM_BYTES, ring_bytes())
        )
        found = newest_position(self._path)
        ring.skip_to(max(last, found[1] if found and found[0] == self._boot else 0))
        text = (
            f"{self._path} cannot be written ({self.trouble}): history is kept in memory until then"
        )
        self.news.append(("history-in-memory", text, "warn"))
        return ring

    def _return_to_disk(self) -> None:
        now = time.monotonic()
        if now - self._tried < RETRY:
            return
        self._tried = now
        last = self._ring.last_seq
        try:
            ring = self._move_memory_records()
        except (OSError, ValueError):
            return
        if ring is None:
            return
        self._ring = ring
        self.trouble = None
        ring.skip_to(last)
        self.news.append(
            ("history-on-disk", f"{self._path} can be written again; nothing was lost", "info")
        )

    def _move_memory_records(self) -> HistoryRing | None:
        """Move the records in memory to the ring on disk, and return that; None without records.

        Raises:
            OSError: The disk does not accept all of them. Those it accepted are not copied again.
        """
        ownership.ensure_private_folder(self._folder)
        memory = state_files.memory_folder(self._folder)
        if memory is None or not segment_numbers(os.path.join(memory, RING)):
            return None
        reader = RingReader(os.path.join(memory, RING))
        reader.seek_after("?", 0)  # an unknown boot: start at the oldest record
        ring: HistoryRing | None = None
        boot = ""
        while True:
            records = reader.read_records()
            for record in records:
                if ring is None or record.boot != boot:
                    boot = record.boot
                    ring = HistoryRing(self._path, record.boot, ring_bytes())
                # The disk may have accepted a part of them before it became full again.
                if record.seq > ring.last_seq:
                    if record.is_sample:
                        kind = SAMPLE
                    else:
                        kind = EVENT
                    ring.append_numbered(kind, record.seq, record.payload)
            if not records:
                break
        reader.close()
        if ring is None or boot != self._boot:
            ring = HistoryRing(self._path, self._boot, ring_bytes())
        for name in os.listdir(os.path.join(memory, RING)):
            files.unlink_if_exists(os.path.join(memory, RING, name))
        # Removed as soon as possible: training needs this memory.
        os.rmdir(os.path.join(memory, RING))
        return ring


class ChainReader:
    """A read position in the history on disk and in memory; moved records are not returned twice.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._disk = RingReader(os.path.join(folder, RING))
        self._memory: RingReader | None = None
        self._at: tuple[str | None, int] = (None, 0)

    def newest_position(self) -> tuple[str, int] | None:
        """Return (boot, seq) of the newest record, or None."""
        for place in reversed(state_files.state_folders(self._folder)):
            found = newest_position(os.path.join(place, RING))
            if found is not None:
                return found
        return None

    def seek_after(self, boot: str | None, seq: int) -> None:
        """Move to after ``(boot, seq)`` or, without a boot, to the last `HISTORY` records."""
        memory = state_files.memory_folder(self._folder)
        if boot is None and memory is not None:
            found = newest_position(os.path.join(memory, RING))
            if found is not None:
                firsts = [
                    oldest_seq(os.path.join(place, RING), found[0])
                    for place in (self._folder, memory)
                ]
                first = min(number for number in firsts if number is not None)
                boot = found[0]
                seq = max(found[1] - HISTORY, first - 1)
        self._at = (boot, seq)
        self._disk.seek_after(boot, seq)
        self._open_memory_ring()

    def read_records(self, limit: int = 262144) -> list[RingRecord]:
        """Return the next records, about `limit` bytes of them; [] if there is nothing newer."""
        # Disk first: records in memory are always newer.
        found = self._disk.read_records(limit)
        other = self._memory
        if not found and self._open_memory_ring() and self._memory is not None:
            found = self._memory.read_records(limit)
            other = self._disk
        if found:
            self._at = (found[-1].boot, found[-1].seq)
            if other is not None:
                other.skip_received(*self._at)
        return found

    def _open_memory_ring(self) -> bool:
        memory = state_files.memory_folder(self._folder)
        if memory is None:
            return False
        if self._memory is None:
            self._memory = RingReader(os.path.join(memory, RING))
            if self._at[0] is not None:
                self._memory.seek_after(self._at[0], self._at[1])
        return True

    def close(self) -> None:
        """Close the files."""
        for reader in (self._disk, self._memory):
            if reader is not None:
                reader.close()


STEP = 64 << 10
"""Bytes of the ring processed at a time, so that live samples are sent in between."""


class SummaryRow:
    """A time interval: the minimum, sum, maximum and count of each name."""

    __slots__ = ("at", "count", "values")

    def __init__(self) -> None:
        self.at = 0.0
        self.count = 0
        self.values: dict[str, list[float]] = {}

    def add_figures(self, at: float, figures: dict[str, float]) -> None:
        """Add a sample."""
        self.at = at
        self.count = self.count + 1
        for name, value in figures.items():
            have = self.values.setdefault(name, [value, 0.0, value, 0])
            low, total, high, count = have
            have[:] = [min(low, value), total + value, max(high, value), count + 1]

    def to_wire_row(self, names: list[str]) -> list[Any]:
        """Return the row as sent to the client."""
        values = [self.values.get(name) for name in names]
        return [
            self.at,
            self.count,
            [
                have and [round(have[0], 1), round(have[1] / have[3], 1), round(have[2], 1)]
                for have in values
            ],
        ]


class HistorySummary:
    """Rows of equal width on a clock made of the box's uptime and, across reboots, wall-clock time.

    Args:
        seconds: How far back to go.
        points: Maximum number of rows.
    """

    def __init__(self, seconds: float, points: int) -> None:
        self.width = seconds / points
        self._rows: deque[SummaryRow] = deque([SummaryRow()], points)
        self._longest = seconds
        self._elapsed = 0.0
        self._place = 0
        self._last: tuple[str, float, float | None] | None = None
        self._seen = ("", 0)

    def add_sample(self, sample: JsonObject) -> None:
        """Add the next sample."""
        boot = str(sample.get("boot"))
        at = float(sample.get("at") or 0.0)
        up = (sample.get("session") or {}).get("uptime_s")
        if self._last is not None:
            self._elapsed += self._seconds_since_last(boot, at, up)
        self._last = (boot, at, up)
        self._seen = (boot, int(sample.get("seq") or 0))
        place = int(self._elapsed / self.width)
        for _ in range(min(place - self._place, self._rows.maxlen or 0)):
            self._rows.append(SummaryRow())
        self._place = place
        self._rows[-1].add_figures(at, summary_figures(sample))

    def _seconds_since_last(self, boot: str, at: float, up: float | None) -> float:
        assert self._last is not None
        before, then, was = self._last
        if boot == before and up is not None and was is not None:
            # The uptime does not jump when the wall clock is set.
            passed = up - was
        else:
            passed = at - then
        # A clock set by years must not add that many rows.
        return min(max(passed, 0.0), self._longest)

    def build_frame(self) -> JsonObject:
        """Return the ``history`` frame."""
        rows = [row for row in self._rows if row.count or row is not self._rows[0]]
        names = sorted({name for row in rows for name in row.values})
        found = {
            "t": "history",
            "boot": self._seen[0],
            "seq": self._seen[1],
            "width": self.width,
            "names": names,
        }
        return dict(found, rows=[row.to_wire_row(names) for row in rows])


MOST_CARDS = 8
"""Maximum number of cards per box with their own history."""


def summary_figures(sample: JsonObject) -> dict[str, float]:
    """Return a sample's summarised figures: percentages, and °C with several cards."""
    gpus = sample.get("gpus") or []
    utils = [gpu["util"] for gpu in gpus if gpu.get("util") is not None]
    mem = sample.get("mem") or {}
    found: dict[str, float | None] = {
        "util": sum(utils) / len(utils) if utils else None,
        "vram": percentage_of_sums(
            [gpu.get("vram_used") for gpu in gpus], [gpu.get("vram_total") for gpu in gpus]
        ),
        "cgroup": percentage_of_sums(
            # The kernel frees page cache before it kills, so cache is no pressure.
            [max(0, (mem.get("used") or 0) - (mem.get("cache") or 0))],
            [mem.get("limit")],
        ),
    }
    for gpu in gpus[:MOST_CARDS] if len(gpus) > 1 else ():
        card = gpu.get("index")
        found[f"util:{card}"] = gpu.get("util")
        found[f"vram:{card}"] = percentage_of_sums([gpu.get("vram_used")], [gpu.get("vram_total")])
        found[f"temp:{card}"] = gpu.get("temp_c")
        found[f"power:{card}"] = percentage_of_sums(
            [gpu.get("power_w")], [gpu.get("power_limit_w")]
        )
    for disk in sample.get("disks") or []:
        for name, part, whole in (
            ("disk", "bytes_used", "bytes_total"),
            ("inodes", "inodes_used", "inodes_total"),
        ):
            found[f"{name}:{disk.get('mount')}"] = percentage_of_sums(
                [disk.get(part)], [disk.get(whole)]
            )
    return {name: value for name, value in found.items() if value is not None}


def percentage_of_sums(parts: list[Any], wholes: list[Any]) -> float | None:
    """Return the percentage of the sums; None if the total is unknown."""
    whole: float = sum(item or 0 for item in wholes)
    part: float = sum(item or 0 for item in parts)
    if whole:
        return 100.0 * part / whole
    return None


class HistorySummarizer:
    """Summarises the whole history, a part at a time.

    Args:
        folder: The state directory.
        request: ``{"seconds", "points"}``.
    """

    def __init__(self, folder: str, request: JsonObject) -> None:
        self._summary = HistorySummary(request["seconds"], request["points"])
        self._reader = ChainReader(folder)
        self._reader.seek_after("?", 0)

    def summarize_next(self) -> JsonObject | None:
        """Process the next part; return the frame when all is done."""
        records = self._reader.read_records(STEP)
        for record in records:
            if record.is_sample:
                self._summary.add_sample(jsonline.loads_dict(record.payload) or {})
        if records:
            return None
        self._reader.close()
        return self._summary.build_frame()
