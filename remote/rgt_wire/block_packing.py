"""Packing blocks on the way between client and box, where they then arrive sooner."""

from __future__ import annotations

import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BlockPacker:
    """Decides for each block whether packing it makes it arrive sooner.

    Args:
        window: Bytes on the line over which its speed is measured: more than pipes and sockets
            buffer.
    """

    def __init__(self, window: int = 16 << 20) -> None:
        self._window = window
        self._line_bytes = 0.0
        self._line_s = 0.0
        self._skip = 0
        self._next_skip = 1
        self.saved_bytes = 0
        """By packing, so far."""

    def pack_block(self, block: Any) -> bytes | None:
        """Return the packed block, or None if it is sent sooner as it is."""
        if self._skip:
            self._skip -= 1
            return None
        began = time.monotonic()
        # Level 1: higher ones gain little and cost several times as much.
        packed = zlib.compress(block, 1)
        packing_s = time.monotonic() - began
        saved = len(block) - len(packed)
        # Saved bytes times seconds per byte on the line, against the seconds of packing.
        if self._line_s and saved > 0 and saved * self._line_s > packing_s * self._line_bytes:
            self._next_skip = 1
            self.saved_bytes += saved
            return packed
        # Checkpoints are packed already or are random bits: at most every 32nd block is tried.
        most_skipped = 32
        self._skip = self._next_skip
        # A block that did shrink came too early, before the line's speed was known: try again soon.
        if saved < len(block) / 8:
            self._next_skip = min(most_skipped, 2 * self._next_skip)
        return None

    def count_line(self, size: int, seconds: float) -> None:
        """Count bytes on the line, and the time that their write took."""
        self._line_bytes += size
        self._line_s += seconds
        if self._line_bytes > self._window:
            # Halved, not reset: older speeds count less and less.
            self._line_bytes = self._line_bytes / 2
            self._line_s = self._line_s / 2
