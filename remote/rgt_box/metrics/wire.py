"""The protobuf wire format, as far as reading needs it (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the place behind it.

    Raises:
        ValueError: when it is longer than 64 bits can be.
        IndexError: when the data ends inside.
    """
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


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message in ``data[at:end]``.

    Yields:
        Number, wire type, and where the value lies: ``start, stop`` in `data`. Of a varint, `start` is the value.

    Raises:
        ValueError: when this is no message.
        IndexError: when the data ends inside a field.
    """
    while at < end:
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield key >> 3, kind, value, at
            continue
        if kind == BYTES:
            length, at = varint(data, at)
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


def signed(value: int) -> int:
    """Return an int32 or int64 from its varint."""
    return value - (1 << 64) if value >> 63 else value
