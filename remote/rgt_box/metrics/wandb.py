"""Reads W&B run files.

The history records of ``run-<id>.wandb`` are read (tested with wandb 0.31; fields from
wandb_internal.proto). Files appear 15 s late and grow by whole chunks. ``_step`` only counts log
calls: if the trainer logs its own step, that is the x axis of the whole file.

The framing is a LevelDB log. After 7 bytes (``:W&B``, ``E1 BE``, version 0) come blocks of 32 KiB,
counted from the first byte of the file. A chunk is ``u32 crc, u16 length, u8 type`` and its
payload; the checksum is zlib's, over type and payload. A record is one full chunk, or a first,
middle ones and a last. Less than 7 bytes at the end of a block are left empty.

"""

from __future__ import annotations

from struct import unpack_from
from zlib import crc32

from rgt_box.metrics import rows
from rgt_box.metrics.jsonl import decode_row
from rgt_box.metrics.reader_base import BUDGET, MAX_TAG, MAX_TAGS, AppendedFileReader
from rgt_box.metrics.rows import FirmStepFound, RowLayout, flatten_row
from rgt_box.metrics.tensorboard import BYTES, VARINT, iterate_fields, read_varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import FileWindow, ReadBatch

    class WandbChunk(NamedTuple):
        """One chunk, or a gap in its place.

        Attributes:
            kind: 1 full, 2 first, 3 middle, 4 last, 0 empty (the rest of the block is zeros), -1
                damaged.
            payload: Its payload bytes.
            end: File offset of the next chunk.
        """

        kind: int
        payload: bytes
        end: int
else:
    from collections import namedtuple

    WandbChunk = namedtuple("WandbChunk", "kind payload end")


MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32 << 10
HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
EMPTY, DAMAGED = 0, -1


def read_chunk(data: bytes, base: int, offset: int) -> WandbChunk | None:
    """Return the chunk at `offset` of the file.

    Args:
        data: Bytes of the file, starting at `base`.
        base: File offset of `data`.
        offset: File offset of the chunk.

    Returns:
        The chunk; None if it is incomplete in `data`.
    """
    left = BLOCK - offset % BLOCK
    if left < HEADER:
        offset = offset + left
        left = BLOCK
    at = offset - base
    if at + HEADER > len(data):
        return None
    crc, length, kind = unpack_from("<IHB", data, at)
    next_block = offset + left
    # Zeros may still be overwritten until the next block has begun.
    if kind == EMPTY and not crc and not length:
        if next_block - base < len(data):
            return WandbChunk(EMPTY, b"", next_block)
        return None
    if not FULL <= kind <= LAST or HEADER + length > left:
        return WandbChunk(DAMAGED, b"", next_block)
    end = at + HEADER + length
    if end > len(data):
        return None
    if crc32(data[at + 6 : end]) != crc:
        return WandbChunk(DAMAGED, b"", next_block)
    return WandbChunk(kind, data[at + HEADER : end], offset + HEADER + length)


LAYOUT = RowLayout(carry=True, call_counter="_step", drop=("_runtime",))
HISTORY = 2
"""Field number in Record of a row of metrics."""
UNKNOWN = -1
WINDOW = 256 << 10
MAX_RECORD = 1 << 20
MAX_VALUE = 64 << 10


class WandbFile(AppendedFileReader):
    """Reads the file of one run."""

    source = "wandb"

    def _consume_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        if window.size < len(MAGIC):
            return
        if window.head[: len(MAGIC)] != MAGIC:
            batch.add_problem(0, "not a W&B file")
            return
        while True:
            try:
                self._read_records(window, state, batch, limit)
                return
            # The points so far were placed by ``_step``, which counts log calls.
            except FirmStepFound as upgrade:
                state.clear()
                state.update(offset=0, key=upgrade.key)
                batch.reset = True
                batch.points = []

    def _read_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        """Read records. The offset stays before a record until all of its chunks exist."""
        offset = first = max(state["offset"], len(MAGIC))
        base = offset
        data = b""
        size = 0
        parts: list[bytes] = []
        while True:
            if len(batch.points) >= limit or offset - first >= BUDGET:
                batch.more = True
                break
            piece = read_chunk(data, base, offset)
            if piece is None and base + len(data) < window.size:
                base = offset
                data = window.read_at(offset, WINDOW)
                piece = read_chunk(data, base, offset)
            if piece is None:
                break
            kind = piece.kind
            payload = piece.payload
            if kind == DAMAGED:
                batch.add_problem(offset, "chunk damaged")
            if kind in (DAMAGED, EMPTY) or (kind in (MIDDLE, LAST) and not parts):
                parts = []
                size = 0
            else:
                if kind in (FULL, FIRST):
                    parts = []
                    size = 0
                parts.append(payload)
                # The header counts too, otherwise a record of empty chunks would have no limit.
                size += HEADER + len(payload)
                if size > MAX_RECORD:
                    batch.add_problem(offset, "record longer than 1 MiB")
                    parts = []
                # Known by the first bytes, so large records of other kinds are not collected.
                elif first_field_number(b"".join(part[:99] for part in parts[:3])) not in (
                    HISTORY,
                    UNKNOWN,
                ):
                    parts = []
            offset = piece.end
            if parts and kind in (FULL, LAST):
                self._add_record(b"".join(parts), offset, state, batch)
                parts = []
            if not parts:
                state["offset"] = offset

    @staticmethod
    def _add_record(data: bytes, offset: int, state: JsonObject, batch: ReadBatch) -> None:
        try:
            row = decode_history(data)
        except (ValueError, IndexError) as error:
            batch.add_problem(offset, f"no record: {error}")
            return
        where = rows.row_position(row, LAYOUT, state)
        if where is not None:
            rows.add_row_points(row, where, LAYOUT, batch, offset)


def first_field_number(data: bytes) -> int:
    """Return the number of the first message field.

    0 means that there is no such field, and `UNKNOWN` that it is not in `data` yet.
    """
    at = 0
    try:
        while True:
            key, at = read_varint(data, at)
            if key & 7 == BYTES:
                return key >> 3
            if key & 7 != VARINT:
                return 0
            _, at = read_varint(data, at)
    except IndexError:
        return UNKNOWN
    except ValueError:
        return 0


def decode_history(data: bytes) -> JsonObject:
    """Decode the row of a Record.

    Raises:
        ValueError, IndexError: when the data is not a valid Record.
    """
    row: JsonObject = {}
    for number, kind, at, stop in iterate_fields(data, 0, len(data)):
        if number != HISTORY or kind != BYTES:
            continue
        for inner, inner_kind, first, last in iterate_fields(data, at, stop):
            if inner == 1 and inner_kind == BYTES and len(row) < MAX_TAGS:
                decode_history_item(data, first, last, row)
            elif inner == 2 and inner_kind == BYTES:
                for step, step_kind, value, _ in iterate_fields(data, first, last):
                    if step == 1 and step_kind == VARINT:
                        row.setdefault("_step", value)
    return row


def decode_history_item(data: bytes, at: int, end: int, row: JsonObject) -> None:
    """Add one HistoryItem to `row`: its key (nested keys joined by dots) and its value."""
    keys = []
    value = ""
    for number, kind, start, stop in iterate_fields(data, at, end):
        if kind != BYTES or stop - start > MAX_VALUE:
            continue
        if number in (1, 2):
            keys.append(data[start:stop].decode("utf-8", "replace"))
        elif number == 16:
            value = data[start:stop].decode("utf-8", "replace")
    key = ".".join(each for each in keys if each)
    if not key or len(key) > MAX_TAG or (key[0] == "_" and key not in ("_step", "_timestamp")):
        return
    if value[:1] == "{":
        nested = decode_row(value.encode("utf-8", "replace")) or {}
        # An image, a table or a histogram, described by a dictionary.
        if "_type" not in nested:
            row.update(flatten_row({key: nested}, 100, "."))
    else:
        row[key] = value.strip('"')
