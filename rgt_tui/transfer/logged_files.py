"""Checks a training's logs: JSON lines, JSON documents, and TensorBoard event files."""

from __future__ import annotations

import json

from rgt_wire.event_records import FRAME, HEADER, TABLE, continue_crc, data_length, mask_crc

from rgt_tui.transfer.file_stretch import FileRefused, FileSection

MOST_JSON = 64 << 20
_MOST_LINE = 64 << 20
_LANE = 1 << 10


def compute_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`.

    Short data is processed byte by byte. Long data is cut into lanes whose checksums are computed
    side by side with NumPy and then combined: CRC is linear, so each lane only shifts the previous
    checksum.
    """
    lanes = len(data) // _LANE
    if lanes < 16:
        return continue_crc(0xFFFFFFFF, data) ^ 0xFFFFFFFF
    import numpy as np  # imported here: most event files have no record that long

    table = np.array(TABLE, dtype=np.uint32)
    block = np.frombuffer(data, dtype=np.uint8, count=lanes * _LANE).reshape(lanes, _LANE)
    state = np.zeros(lanes, dtype=np.uint32)
    for column in range(_LANE):
        state = table[(state ^ block[:, column]) & 0xFF] ^ (state >> np.uint32(8))
    value = 0xFFFFFFFF
    for each in state.tolist():
        value = _after_zeros(value) ^ each
    return continue_crc(value, data[lanes * _LANE :]) ^ 0xFFFFFFFF


def _build_shift_tables() -> list[list[int]]:
    """Return, for each byte of a checksum, its value after `_LANE` zero bytes (CRC is linear)."""
    return [
        [continue_crc(byte << shift, bytes(_LANE)) if byte else 0 for byte in range(256)]
        for shift in (0, 8, 16, 24)
    ]


_SHIFTED: list[list[int]] = []


def _after_zeros(value: int) -> int:
    if not _SHIFTED:
        _SHIFTED.extend(_build_shift_tables())
    first, second, third, fourth = _SHIFTED
    return (
        first[value & 0xFF]
        ^ second[value >> 8 & 0xFF]
        ^ third[value >> 16 & 0xFF]
        ^ fourth[value >> 24 & 0xFF]
    )


def examine_events(whole: FileSection) -> None:
    """Check all records of a TensorBoard event file.

    Raises:
        FileRefused: a checksum is wrong, or it ends inside a record.
        OSError: it cannot be read.
    """
    at = 0
    while at < whole.length:
        if at + HEADER > whole.length:
            raise FileRefused(f"it ends inside a record, at byte {whole.length}")
        length = data_length(whole.read(at, HEADER))
        if length is None:
            raise FileRefused(f"the length of the record at byte {at} is not what was written")
        if at + FRAME + length > whole.length:
            raise FileRefused(f"it ends inside a record, at byte {whole.length}")
        if length > MOST_JSON:
            raise FileRefused(f"the record at byte {at} has {length} bytes, more than an event has")
        data = whole.read(at + HEADER, length + 4)
        if mask_crc(compute_crc32c(data[:-4])) != int.from_bytes(data[-4:], "little"):
            raise FileRefused(f"the record at byte {at} is not what was written")
        at += FRAME + length
    if not at:
        raise FileRefused("it is empty")


def examine_lines(whole: FileSection) -> None:
    """Check that every line is a JSON object.

    Raises:
        FileRefused: one is not, or the last one is cut off.
        OSError: it cannot be read.
    """
    number = 0
    rest = b""
    for piece in whole.iterate_pieces():
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MOST_LINE:
            raise FileRefused(f"line {number + 1} has more than {_MOST_LINE} bytes")
        for line in lines:
            number += 1
            _check_json_line(number, line)
    if rest:
        _check_json_line(number + 1, rest)


def _check_json_line(number: int, line: bytes) -> None:
    if not line.strip():
        return
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FileRefused(f"line {number} is not a JSON object, or is truncated")


def examine_json(whole: FileSection) -> object:
    """Return the document in a JSON file.

    Raises:
        FileRefused: it is not valid JSON, or too long.
        OSError: it cannot be read.
    """
    if whole.length > MOST_JSON:
        raise FileRefused(f"it has {whole.length} bytes, too many to check")
    try:
        found: object = json.loads(whole.read(0, whole.length))
    except (ValueError, RecursionError) as error:
        raise FileRefused(f"it is not JSON: {str(error)[:120]}") from None
    return found
