"""Reads TensorBoard event files, individually and by directory.

Files are named ``events.out.tfevents.<unix>.<host>…`` (TFRecord framing, tested with tensorboard
2.21). `rgt_wire.event_records` has the framing. A writer may stop anywhere inside a record
(tensorboardX cuts at 4 KiB): a short tail is left for the next read.

Fields are from event.proto, summary.proto and tensor.proto of TensorFlow. Three ways to write a
scalar were tested: ``simple_value`` (torch, tensorboardX), a tensor with ``float_val`` or
``double_val`` (torch ``new_style``), and a tensor with ``tensor_content`` (TF2, Keras).

The protobuf wire format is implemented as needed for reading
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import os
from struct import calcsize, unpack_from

from rgt_wire.event_records import FRAME, HEADER, data_length, masked_crc

from rgt_box.metrics.reader_base import (
    BUDGET,
    EPOCH,
    MAX_TAG,
    MAX_TAGS,
    SAMPLES,
    STEP,
    AppendedFileReader,
    MetricPoint,
    MetricReader,
)
from rgt_box.metrics.rows import ZeroLossCheck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import Cursor, FileWindow, ReadBatch

    class TensorBoardEvent(NamedTuple):
        """One decoded record.

        Attributes:
            wall: Wall time.
            step: Its step.
            start: The session was restarted here.
            values: Tag and value of each scalar.
        """

        wall: float
        step: int
        start: bool
        values: list[tuple[str, float]]
else:
    from collections import namedtuple

    TensorBoardEvent = namedtuple("TensorBoardEvent", "wall step start values")


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the offset after it.

    Raises:
        ValueError: when it is longer than 64 bits allow.
        IndexError: when the data ends inside it.
    """
    # Most numbers of an event fit into one byte.
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + 1
    raise ValueError("varint too long")


def iterate_fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message in ``data[at:end]``.

    Yields:
        Number, wire type, and the position of the value: ``start, stop`` in `data`. For a varint,
            `start` is the value.

    Raises:
        ValueError: when the data is not a message.
        IndexError: when the data ends inside a field.
    """
    while at < end:
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield key >> 3, kind, value, at
            continue
        if kind == BYTES:
            length, at = read_varint(data, at)
        elif kind == FIXED32:
            length = 4
        elif kind == FIXED64:
            length = 8
        else:
            raise ValueError("wire type %d" % kind)
        stop = at + length
        if stop > end:
            raise ValueError("field beyond its message")
        yield key >> 3, kind, at, stop
        at = stop
    if at > end:
        raise ValueError("field beyond its message")


def to_signed(value: int) -> int:
    """Convert a varint to a signed int32 or int64."""
    if value >> 63:
        return value - (1 << 64)
    return value


NOTHING = TensorBoardEvent(0.0, 0, False, [])
_FORMATS = "1:<f 2:<d 3:<i 4:<B 5:<h 6:<b 9:<q 10:<? 17:<H 19:<e 22:<I 23:<Q"
CONTENT = {
    int(dtype): form for dtype, _, form in (each.partition(":") for each in _FORMATS.split())
}
"""dtype → struct format of one element of ``tensor_content``."""
BFLOAT16, HALF = 14, 19
FLOATS, DOUBLES, HALVES = 5, 6, 13
VALUES = {FLOATS: "<f", DOUBLES: "<d", 7: "", 10: "", 11: "", HALVES: "", 16: "", 17: ""}
"""Field number of TensorProto → its struct format; "" for varints."""
PLUGIN = b"scalars"

AXES = (
    ("* vs samples", SAMPLES),
    ("Train/Samples/*", SAMPLES),
    ("epoch_*", EPOCH),
    ("loss/epoch_average*", EPOCH),
)
"""Tags whose x is not a step: Megatron, DeepSpeed, Keras, kohya."""


def x_kind_of_tag(tag: str) -> str:
    """Return the x kind of a tag."""
    for pattern, kind in AXES:
        if tag.startswith(pattern[:-1]) if pattern[-1] == "*" else tag.endswith(pattern[1:]):
            return kind
    return STEP


def decode_event(data: bytes) -> TensorBoardEvent:
    """Decode an Event.

    Raises:
        ValueError, IndexError: when the data is not an Event.
    """
    wall = 0.0
    step = 0
    start = False
    values: list[tuple[str, float]] = []
    for number, kind, at, stop in iterate_fields(data, 0, len(data)):
        # Event: 1 is wall_time, 2 step, 5 summary, 7 session_log.
        if number == 5 and kind == BYTES:
            for inner, inner_kind, first, last in iterate_fields(data, at, stop):
                if inner == 1 and inner_kind == BYTES:
                    found = decode_scalar(data, first, last)
                    if found is not None:
                        values.append(found)
        elif number == 1 and kind == FIXED64:
            wall = unpack_from("<d", data, at)[0]
        elif number == 2 and kind == VARINT:
            step = to_signed(at)
        elif number == 7 and kind == BYTES:
            # SessionLog.status 1 is START: a writer with ``purge_step`` marks a resume with it.
            start = any(each[:3] == (1, VARINT, 1) for each in iterate_fields(data, at, stop))
    return TensorBoardEvent(wall, step, start, values)


def decode_scalar(data: bytes, at: int, end: int) -> tuple[str, float] | None:
    """Return tag and value of one Summary.Value; None if it is not a scalar."""
    tag = ""
    value = None
    tensor = None
    for number, kind, start, stop in iterate_fields(data, at, end):
        if number == 1 and kind == BYTES:
            if stop - start > MAX_TAG:
                return None
            tag = data[start:stop].decode("utf-8", "replace")
        elif number == 2 and kind == FIXED32:
            value = unpack_from("<f", data, start)[0]
        elif number == 8 and kind == BYTES:
            tensor = start, stop
        elif (
            number == 9
            and kind == BYTES
            # Images, histograms and texts are tensors as well; their metadata name another plugin.
            and decode_plugin_name(data, start, stop) not in (b"", PLUGIN)
        ):
            return None
    if value is None and tensor is not None:
        value = decode_tensor_number(data, tensor[0], tensor[1])
    if value is None:
        return None
    return (tag, value)


def decode_plugin_name(data: bytes, at: int, end: int) -> bytes:
    """Return the plugin name of a SummaryMetadata."""
    for number, kind, start, stop in iterate_fields(data, at, end):
        if number == 1 and kind == BYTES:
            for inner, inner_kind, first, last in iterate_fields(data, start, stop):
                if inner == 1 and inner_kind == BYTES:
                    return data[first:last]
    return b""


def decode_tensor_number(data: bytes, at: int, end: int) -> float | None:
    """Return the single number of a TensorProto; None if it holds anything else."""
    dtype = 0
    content = b""
    found: list[float] = []
    for number, kind, start, stop in iterate_fields(data, at, end):
        if number == 1 and kind == VARINT:
            dtype = start
        elif number == 4 and kind == BYTES:
            # One number has at most 8 bytes: this is a larger tensor.
            if stop - start > 8:
                return None
            content = data[start:stop]
        elif number in VALUES:
            found.extend(decode_numbers(data, VALUES[number], kind, start, stop))
            if len(found) > 1:
                return None
    if dtype == BFLOAT16:
        if len(content) == 2:
            bits = content
        else:
            bits = b"".join(int(each).to_bytes(2, "little") for each in found)
        if bits:
            # A bfloat16 is the upper half of a float32.
            return float(unpack_from("<f", b"\0\0" + bits)[0])
        return None
    if dtype not in CONTENT:
        return None
    if content:
        form = CONTENT[dtype]
        if len(content) == calcsize(form):
            return float(unpack_from(form, content)[0])
        return None
    if not found:
        return None
    if dtype == HALF:
        return float(unpack_from("<e", int(found[0]).to_bytes(2, "little"))[0])
    return float(found[0])


def decode_numbers(data: bytes, form: str, kind: int, at: int, end: int) -> list[float]:
    """Return the first two values of a repeated field, packed or not."""
    if kind == VARINT:
        return [to_signed(at)]
    if form:
        size = calcsize(form)
        return [
            unpack_from(form, data, place)[0] for place in range(at, min(end, at + 2 * size), size)
        ]
    found: list[float] = []
    while at < end and len(found) < 2:
        value, at = read_varint(data, at)
        found.append(to_signed(value))
    return found


WINDOW = 256 << 10
LARGE = 64 << 10
"""A longer record is a graph or an image, and is skipped."""
ABSURD = 1 << 31
"""Longer records are treated as damage; TensorFlow itself refuses them."""
LOWER, UPPER = 3, bytes(5)
"""Resync only finds records whose length fits in three bytes, so that the other five bytes are
zero."""
NEARBY = 1 << 20
_lengths: dict[bytes, int] = {}
"""Headers with a correct checksum. There are few, because lengths repeat."""


def cached_data_length(header: bytes) -> int | None:
    """Return `data_length` of a header, cached."""
    length = _lengths.get(header)
    if length is None:
        length = data_length(header)
        # A file may have any number of lengths.
        if length is not None and len(_lengths) < 2048:
            _lengths[header] = length
    return length


class EventFile(AppendedFileReader):
    """One event file."""

    source = "tensorboard"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._axes: dict[str, str] = {}

    def _consume_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        offset = first = state["offset"]
        held = ZeroLossCheck(state, batch)
        base = offset
        data = b""
        while window.size - offset >= HEADER:
            # A zero whose gradient norm is still to come is decided first, or the next read would
            # begin before it and stop at the same place.
            if (len(batch.points) >= limit or offset - first >= BUDGET) and not held.is_undecided:
                batch.more = True
                break
            at = offset - base
            if len(data) - at < HEADER:
                base = offset
                at = 0
                data = window.read_at(offset, WINDOW)
            length = cached_data_length(data[at : at + HEADER])
            if length is None or length > ABSURD:
                found = self._skip_damage(length, offset, window, state, batch)
                if found is None:
                    break
                offset = found
                base = found
                data = b""
                continue
            after = offset + FRAME + length
            # The writer is in the middle of this record.
            if after > window.size:
                break
            if length <= LARGE:
                if after - base > len(data):
                    base = offset
                    at = 0
                    data = window.read_at(offset, WINDOW)
                record = data[at + HEADER : at + HEADER + length]
                self._add_record(
                    record, unpack_from("<I", data, at + HEADER + length)[0], offset, batch, held
                )
            offset = after
        state["offset"] = held.next_offset(offset)

    @staticmethod
    def _skip_damage(
        length: int | None, offset: int, window: FileWindow, state: JsonObject, batch: ReadBatch
    ) -> int | None:
        """Return the offset to continue at after a damaged header; None if not known yet."""
        # Searched already up to here; wait until the file grows.
        if state.get("stuck") == window.size:
            return None
        batch.add_problem(
            offset, "record header damaged" if length is None else "record of %d bytes" % length
        )
        found = find_next_record(window, offset)
        if found is None:
            state["stuck"] = window.size  # try again when the file has grown
        return found

    def _add_record(
        self, record: bytes, crc: int, offset: int, batch: ReadBatch, held: ZeroLossCheck
    ) -> None:
        """Add the scalars of one record; the checksum is verified only if there are any."""
        try:
            event = decode_event(record)
            wrong = ""
        except (ValueError, IndexError) as error:
            event = NOTHING
            wrong = f"no event: {error}"
        # The checksum is computed in Python, byte by byte: histograms and graphs do not need it.
        if not (event.values or event.start or wrong):
            return
        if masked_crc(record) != crc:
            wrong = "record damaged"
        if wrong:
            batch.add_problem(offset, wrong)
            return
        if event.start:
            batch.add_restart(float(event.step), "session started again")
        x = float(event.step)
        for tag, y in event.values[:MAX_TAGS]:
            kind = self._axes.get(tag)
            if kind is None:
                kind = x_kind_of_tag(tag)
                if len(self._axes) < MAX_TAGS:
                    self._axes[tag] = kind
            batch.points.append(
                MetricPoint(tag, kind, x, held.check_point(tag, x, y, offset), event.wall or None)
            )


def find_next_record(window: FileWindow, offset: int) -> int | None:
    """Return the offset of the next record after damage at `offset`; None if none is nearby."""
    data = window.read_at(offset + 1, NEARBY)
    at = -1
    tries = 2000
    for _ in range(tries):
        # The zeros in the upper bytes of a length are searched first: trying each offset would cost
        # a checksum per byte.
        at = data.find(UPPER, at + 1)
        place = at - LOWER
        if at < 0 or place > len(data) - HEADER:
            return None
        if place < 0:
            continue
        if data.startswith(bytes(12), place):  # a run of zeros: skip to its end
            at += len(data) - at - len(data[at:].lstrip(b"\0")) - len(UPPER) - 1
            continue
        length = cached_data_length(data[place : place + HEADER])
        if length is not None and offset + 1 + place + FRAME + length <= window.size:
            return offset + 1 + place
    return None


def event_file_key(path: str) -> tuple[int, str]:
    """Return the sort key of a directory's event files: the time in the name, then the name."""
    name = os.path.basename(path)
    stamp = name.partition("tfevents.")[2].partition(".")[0]
    return (int(stamp) if stamp.isdigit() and len(stamp) < 20 else 0), name


MARK = "tfevents"


class EventDirectory(MetricReader):
    """Event files of one directory, oldest first. The cursor is ``{"files": {name: cursor}}``."""

    source = "tensorboard"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._readers: dict[str, EventFile] = {}

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        names = sorted((name for name in os.listdir(self.path) if MARK in name), key=event_file_key)
        # Files read per directory; the newest are kept.
        max_files = 100
        if len(names) > max_files:
            batch.add_problem(
                0, "%d event files: only the %d newest are read" % (len(names), max_files)
            )
            del names[:-max_files]
        cursors: dict[str, Cursor] = dict((batch.cursor or {}).get("files", {}))
        if set(cursors) - set(names) or not self._read_files(names, cursors, batch, limit):
            # A file was removed or replaced: its points cannot be separated from the others.
            batch.discard_points()
            batch.reset = True
            cursors = {}
            self._read_files(names, cursors, batch, limit)
        batch.cursor = {"files": cursors}

    def _read_files(
        self, names: list[str], cursors: dict[str, Cursor], batch: ReadBatch, limit: int
    ) -> bool:
        """Read new records of each file; returns False if one has to be read from the start."""
        for name in names:
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = EventFile(os.path.join(self.path, name))
            part = reader.read(cursors.get(name), limit - len(batch.points))
            if part.reset:
                return False
            shift = len(batch.points)
            batch.points += part.points
            batch.starts += [start._replace(before=start.before + shift) for start in part.starts]
            batch.add_problems_of(part)
            if part.cursor is not None:
                cursors[name] = part.cursor
            if part.more or len(batch.points) >= limit:
                batch.more = True
                return True
        return True
