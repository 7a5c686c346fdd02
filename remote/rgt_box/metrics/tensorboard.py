"""TensorBoard event files ``events.out.tfevents.<unix>.<host>…`` (TFRecord framing, run with tensorboard 2.21).

A record is ``u64 length, u32 masked CRC of these 8 bytes, data, u32 masked CRC of the data``, little endian. A writer
may stop anywhere inside (tensorboardX cuts at 4 KiB): a short tail is not there yet.
"""

from __future__ import annotations

import os
from struct import unpack_from

from rgt_box.metrics import events
from rgt_box.metrics.appended import BUDGET, Appended
from rgt_box.metrics.base import MAX_TAGS, Point
from rgt_box.metrics.crc32c import masked
from rgt_box.metrics.hidden import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.appended import Window
    from rgt_box.metrics.base import Batch

WINDOW = 256 << 10
LARGE = 64 << 10
"""A longer record is a graph or an image, and is passed over unread."""
ABSURD = 1 << 31
"""No record is longer; TensorFlow itself refuses it."""
FRAME = 16
LOWER, UPPER = 3, bytes(5)
"""The length of a record that is worth finding fits in three bytes; the other five are zero."""
NEARBY = 1 << 20
TRIES = 2000
_lengths: dict[bytes, int] = {}
"""Headers whose checksum was found right: their number is small, as lengths repeat."""


def length_of(header: bytes) -> int | None:
    """Return the data length that a 12-byte record header tells; None when its checksum is wrong."""
    length = _lengths.get(header)
    if length is None:
        length, crc = unpack_from("<QI", header)
        if masked(header[:8]) != crc:
            return None
        if len(_lengths) < 2048:
            _lengths[header] = length
    return length


class EventFile(Appended):
    """One event file."""

    source = "tensorboard"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._axes: dict[str, str] = {}

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        offset = first = state["offset"]
        held = Held(state, batch)
        base, data = offset, b""
        while window.size - offset >= 12:
            if (len(batch.points) >= limit or offset - first >= BUDGET) and not held.waiting:
                batch.more = True
                break
            at = offset - base
            if len(data) - at < 12:
                base, at, data = offset, 0, window.at(offset, WINDOW)
            length = length_of(data[at : at + 12])
            if length is None or length > ABSURD:
                found = self._damage(length, offset, window, state, batch)
                if found is None:
                    break
                offset, base, data = found, found, b""
                continue
            after = offset + FRAME + length
            if after > window.size:
                break
            if length <= LARGE:
                if after - base > len(data):
                    base, at, data = offset, 0, window.at(offset, WINDOW)
                record = data[at + 12 : at + 12 + length]
                self._record(record, unpack_from("<I", data, at + 12 + length)[0], offset, batch, held)
            offset = after
        state["offset"] = held.settle(offset)

    @staticmethod
    def _damage(
        length: int | None, offset: int, window: Window, state: dict[str, Any], batch: Batch
    ) -> int | None:
        """Return where to go on behind a header that is wrong; None when that is not known (yet)."""
        if state.get("stuck") == window.size:
            return None
        batch.problem(offset, "record header damaged" if length is None else "record of %d bytes" % length)
        found = resync(window, offset)
        if found is None:
            state["stuck"] = window.size  # look again when there is more
        return found

    def _record(self, record: bytes, crc: int, offset: int, batch: Batch, held: Held) -> None:
        """Take the scalars of one record; the checksum is only worth its time for a record that has some."""
        try:
            event, wrong = events.decode(record), ""
        except (ValueError, IndexError) as error:
            event, wrong = events.NOTHING, "no event: %s" % error
        if not (event.values or event.start or wrong):
            return
        if masked(record) != crc:
            wrong = "record damaged"
        if wrong:
            batch.problem(offset, wrong)
            return
        if event.start:
            batch.start(float(event.step), "session started again")
        x = float(event.step)
        for tag, y in event.values[:MAX_TAGS]:
            kind = self._axes.get(tag)
            if kind is None:
                kind = events.axis(tag)
                if len(self._axes) < MAX_TAGS:
                    self._axes[tag] = kind
            batch.points.append(Point(tag, kind, x, held.see(tag, x, y, offset), event.wall or None))


def resync(window: Window, offset: int) -> int | None:
    """Return the place of the next record behind damage at `offset`; None when none is found nearby."""
    data = window.at(offset + 1, NEARBY)
    at = -1
    for _ in range(TRIES):
        at = data.find(UPPER, at + 1)
        place = at - LOWER
        if at < 0 or place > len(data) - 12:
            return None
        if place < 0:
            continue
        if data.startswith(bytes(12), place):  # a hole: look at its end
            at += len(data) - at - len(data[at:].lstrip(b"\0")) - len(UPPER) - 1
            continue
        length = length_of(data[place : place + 12])
        if length is not None and offset + 1 + place + FRAME + length <= window.size:
            return offset + 1 + place
    return None


def order(path: str) -> tuple[int, str]:
    """Sort key of the event files of one directory: by the time in the name, then by name."""
    name = os.path.basename(path)
    stamp = name.partition("tfevents.")[2].partition(".")[0]
    return (int(stamp) if stamp.isdigit() and len(stamp) < 20 else 0), name
