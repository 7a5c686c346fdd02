"""Checks what a training logged: JSON lines, JSON documents, and TensorBoard event files with their checksums.

An event file is records of ``u64 length, u32 masked CRC-32C of these 8 bytes, data, u32 masked CRC-32C of the data``,
little endian (TensorFlow, core/lib/io/record_writer.h).
"""

from __future__ import annotations

import json
import struct

from rgt_tui.transfer.file_stretch import Refused, Stretch

MOST_JSON = 64 << 20
_MOST_LINE = 64 << 20
_LANE = 1 << 10


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`.

    Byte by byte for what is short; long data are cut into lanes that are summed up side by side, and put together
    by what a lane's length of zeros makes of a checksum.
    """
    lanes = len(data) // _LANE
    if lanes < 16:
        return _plain(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    import numpy as np  # most event files have no record that is so long

    table = np.array(_TABLE, dtype=np.uint32)
    block = np.frombuffer(data, dtype=np.uint8, count=lanes * _LANE).reshape(lanes, _LANE)
    state = np.zeros(lanes, dtype=np.uint32)
    for column in range(_LANE):
        state = table[(state ^ block[:, column]) & 0xFF] ^ (state >> np.uint32(8))
    value = 0xFFFFFFFF
    for each in state.tolist():
        value = _after_zeros(value) ^ each
    return _plain(data[lanes * _LANE :], value) ^ 0xFFFFFFFF


def _plain(data: bytes, value: int) -> int:
    table = _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value


def _shifted() -> list[list[int]]:
    """Return, for each byte of a checksum, what `_LANE` zeros behind it make of it (it is linear in every bit)."""
    return [
        [_plain(bytes(_LANE), byte << shift) if byte else 0 for byte in range(256)]
        for shift in (0, 8, 16, 24)
    ]


_SHIFTED: list[list[int]] = []


def _after_zeros(value: int) -> int:
    if not _SHIFTED:
        _SHIFTED.extend(_shifted())
    first, second, third, fourth = _SHIFTED
    return (
        first[value & 0xFF]
        ^ second[value >> 8 & 0xFF]
        ^ third[value >> 16 & 0xFF]
        ^ fourth[value >> 24 & 0xFF]
    )


def masked(data: bytes) -> int:
    """Return the checksum as an event file stores it."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def examine_events(whole: Stretch) -> None:
    """Look at all records of a TensorBoard event file.

    Raises:
        Refused: a checksum is wrong, or it ends inside a record.
        OSError: it cannot be read.
    """
    at = 0
    while at < whole.length:
        if at + 12 > whole.length:
            raise Refused(f"it ends inside a record, at byte {whole.length}")
        head = whole.read(at, 12)
        length, checksum = struct.unpack("<QI", head)
        if masked(head[:8]) != checksum:
            raise Refused(f"the length of the record at byte {at} is not what was written")
        if at + 16 + length > whole.length:
            raise Refused(f"it ends inside a record, at byte {whole.length}")
        if length > MOST_JSON:
            raise Refused(f"the record at byte {at} has {length} bytes, more than an event has")
        data = whole.read(at + 12, length + 4)
        if masked(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Refused(f"the record at byte {at} is not what was written")
        at += 16 + length
    if not at:
        raise Refused("it is empty")


def examine_lines(whole: Stretch) -> None:
    """Look whether every line is an object of JSON.

    Raises:
        Refused: one is not, or the last one is cut off.
        OSError: it cannot be read.
    """
    number = 0
    rest = b""
    for piece in whole.pieces():
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MOST_LINE:
            raise Refused(f"line {number + 1} has more than {_MOST_LINE} bytes")
        for line in lines:
            number += 1
            _line(number, line)
    if rest:
        _line(number + 1, rest)


def _line(number: int, line: bytes) -> None:
    if not line.strip():
        return
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"line {number} is not a JSON object, or is cut off")


def examine_json(whole: Stretch) -> object:
    """Return the document in a JSON file.

    Raises:
        Refused: it is none.
        OSError: it cannot be read.
    """
    if whole.length > MOST_JSON:
        raise Refused(f"it has {whole.length} bytes, more than are looked at")
    try:
        found: object = json.loads(whole.read(0, whole.length))
    except (ValueError, RecursionError) as error:
        raise Refused(f"it is not JSON: {str(error)[:120]}") from None
    return found
