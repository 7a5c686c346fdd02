"""Samples for a reader that may be slow: history in full, what is live coalesced. Pure."""

from __future__ import annotations

from rgt_box import jsonline
from rgt_box.history.reader import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Coalescer:
    """Turns ring records into frames, leaving samples out while the reader cannot keep up.

    Attributes:
        boot: Boot of the last record that went out.
        seq: Its sequence number: whatever `watch` says by itself carries it, so that it moves no cursor.
    """

    def __init__(self, boot: str, seq: int) -> None:
        self.boot, self.seq = boot, seq
        self._skipped = 0

    def take(self, records: list[Record], lagging: bool) -> list[bytes]:
        """Return the lines for `records`.

        Args:
            records: In order.
            lagging: True to keep only the newest sample (and every event).
        """
        newest = max((index for index, record in enumerate(records) if record.is_sample), default=-1)
        lines = []
        for index, record in enumerate(records):
            self._skipped += record.skipped
            self.boot, self.seq = record.boot, record.seq
            if not record.is_sample:
                lines.append(record.payload + b"\n")
            elif lagging and index != newest:
                self._skipped += 1
            elif self._skipped:
                frame: dict[str, Any] = jsonline.loads_dict(record.payload) or {}
                frame["skipped"] = self._skipped
                self._skipped = 0
                lines.append(jsonline.line(frame))
            else:
                lines.append(record.payload + b"\n")
        return lines
