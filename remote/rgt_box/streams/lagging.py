"""Samples for a reader that may be slow: history in full, what is live coalesced. Pure."""

from __future__ import annotations

from rgt_box import jsonline
from rgt_box.history.reader import Record


class Coalescer:
    """Turns ring records into frames, leaving samples out while the reader cannot keep up.

    Args:
        boot: Boot of the last record that the client has.
        seq: Its number.
        floor: ``(boot, seq)``; samples before it are left out as well. None = none are.

    Attributes:
        boot: Boot of the last record that went out.
        seq: Its sequence number: whatever `watch` says by itself carries it, so that it moves no cursor.
    """

    def __init__(self, boot: str, seq: int, floor: tuple[str, int] | None = None) -> None:
        self.boot, self.seq = boot, seq
        self._floor = floor
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
            elif (lagging and index != newest) or self._is_below(record):
                self._skipped += 1
            else:
                lines.append(_sample(record.payload, self._skipped))
                self._skipped = 0
        return lines

    def _is_below(self, record: Record) -> bool:
        if self._floor is None:
            return False
        if record.boot != self._floor[0]:
            return True  # of an earlier boot: the floor lies in the newest
        if record.seq < self._floor[1]:
            return True
        self._floor = None
        return False


def _sample(payload: bytes, skipped: int) -> bytes:
    if not skipped:
        return payload + b"\n"
    return jsonline.line(dict(jsonline.loads_dict(payload) or {}, skipped=skipped))
