"""Where records go: the ring on disk, or, while the disk refuses, a ring in memory that is taken over later."""

from __future__ import annotations

import os
import time

from rgt_box import background, files, ownership
from rgt_box.history import home, segment
from rgt_box.history.layout import RING
from rgt_box.history.reader import RingReader, newest
from rgt_box.history.ring import Ring, ring_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RETRY = 5.0
"""Seconds between two tries to go back to the disk."""


class Store:
    """The writing end of the history. Numbers go on whatever happens to the disk.

    Args:
        folder: The state directory.
        boot: This boot.

    Attributes:
        trouble: Why the disk is not written to; None while it is.
        news: Events to record: ``(kind, text, level)``.

    Raises:
        OSError: when not even memory can be written.
    """

    def __init__(self, folder: str, boot: str) -> None:
        self._folder, self._boot = folder, boot
        self._path = os.path.join(folder, RING)
        self.trouble: str | None = None
        self.news: list[tuple[str, str, str]] = []
        self.last_boot: str | None = None
        self.last_sample: dict[str, Any] = {}
        self._tried = 0.0
        try:
            self._ring = self._take_over() or Ring(self._path, boot, ring_bytes())
            self.last_boot, self.last_sample = self._ring.last_boot, self._ring.last_sample
        except (OSError, ValueError) as error:
            self._ring = self._in_memory(error)
            self.last_boot = self._ring.last_boot or (newest(self._path) or (None, 0))[0]

    def append(self, kind: bytes, frame: dict[str, Any], encode: Any) -> int:
        """Append a frame and return its number; see `Ring.append`.

        Raises:
            OSError: when not even memory takes it.
        """
        if self.trouble is not None:
            self._go_back()
        try:
            return self._ring.append(kind, frame, encode)
        except OSError as error:
            if self.trouble is not None:
                raise
            last = self._ring.last_seq
            self._ring.close()
            self._ring = self._in_memory(error, last)
            return self._ring.append(kind, frame, encode)

    def skip_to(self, seq: int) -> None:
        """Never use numbers up to `seq`."""
        self._ring.skip_to(seq)

    def grow(self) -> bool:
        """Allocate one more segment; see `Ring.grow`."""
        return self._ring.grow()

    def _in_memory(self, error: Exception, last: int = 0) -> Ring:
        memory = home.ram(self._folder, make=True)
        if memory is None:
            raise error
        self.trouble = background.describe(error)
        self._tried = time.monotonic()
        ring = Ring(os.path.join(memory, RING), self._boot, min(home.RAM_BYTES, ring_bytes()))
        found = newest(self._path)
        ring.skip_to(max(last, found[1] if found and found[0] == self._boot else 0))
        text = "%s cannot be written (%s): history is kept in memory until it can" % (
            self._path,
            self.trouble,
        )
        self.news.append(("history-in-memory", text, "warn"))
        return ring

    def _go_back(self) -> None:
        now = time.monotonic()
        if now - self._tried < RETRY:
            return
        self._tried = now
        last = self._ring.last_seq
        try:
            ring = self._take_over()
        except (OSError, ValueError):
            return
        if ring is None:
            return
        self._ring, self.trouble = ring, None
        ring.skip_to(last)
        self.news.append(
            ("history-on-disk", "%s can be written again; nothing was lost" % self._path, "info")
        )

    def _take_over(self) -> Ring | None:
        """Append what memory holds to the ring on disk and empty it; None when memory holds nothing.

        Raises:
            OSError: when the disk does not take all of it. What it took is not copied again.
        """
        ownership.take(self._folder)
        memory = home.ram(self._folder)
        if memory is None or not segment.numbers(os.path.join(memory, RING)):
            return None
        reader = RingReader(os.path.join(memory, RING))
        reader.seek("?", 0)  # an unknown boot: from the oldest record on
        ring: Ring | None = None
        boot = ""
        while True:
            records = reader.read()
            for record in records:
                if ring is None or record.boot != boot:
                    boot, ring = record.boot, Ring(self._path, record.boot, ring_bytes())
                if record.seq > ring.last_seq:
                    kind = segment.SAMPLE if record.is_sample else segment.EVENT
                    ring.put(kind, record.seq, record.payload)
            if not records:
                break
        reader.close()
        if ring is None or boot != self._boot:
            ring = Ring(self._path, self._boot, ring_bytes())
        for name in os.listdir(os.path.join(memory, RING)):
            files.unlink(os.path.join(memory, RING, name))
        os.rmdir(os.path.join(memory, RING))
        return ring
