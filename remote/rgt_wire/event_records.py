"""The records of TensorBoard event files, and their CRC-32C (Castagnoli).

A record is ``u64 length, u32 masked CRC of these 8 bytes, data, u32 masked CRC of the data``,
little endian (TensorFlow, core/lib/io/record_writer.h).
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

FRAME = 16
"""Bytes of a record in addition to its data."""
HEADER = 12
"""Bytes of the length and its checksum."""
_ONES = 0xFFFFFFFF
_LENGTH_AND_CRC = struct.Struct("<QI")


def _build_crc_table() -> "tuple[int, ...]":
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            if value & 1:
                # The polynomial of CRC-32C; zlib.crc32 uses another one.
                value = (value >> 1) ^ 0x82F63B78
            else:
                value = value >> 1
        table.append(value)
    return tuple(table)


TABLE = _build_crc_table()
"""Contribution of each byte value; the polynomial is reflected."""


def continue_crc(value: int, data: bytes) -> int:
    """Return the checksum's state after more bytes; the first and last state are inverted."""
    table = TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`, at about 50 ns a byte."""
    return continue_crc(_ONES, data) ^ _ONES


def mask_crc(crc: int) -> int:
    """Return a checksum in its stored form, so that data with its own checksum stays checkable."""
    # Rotation and constant of TensorFlow's core/lib/hash/crc32c.h.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


def masked_crc(data: bytes) -> int:
    """Return the checksum of `data` in its stored form."""
    return mask_crc(crc32c(data))


def data_length(header: bytes) -> "int | None":
    """Return the length of a record's data from its 12-byte header.

    Return None if its checksum is wrong.
    """
    length: int
    length, crc = _LENGTH_AND_CRC.unpack(header)
    if masked_crc(header[:8]) == crc:
        return length
    return None


def encode_header(length: int) -> bytes:
    """Return the header of a record with this many bytes of data."""
    head = length.to_bytes(8, "little")
    return head + masked_crc(head).to_bytes(4, "little")


def encode_record(data: bytes) -> bytes:
    """Return a complete record."""
    return encode_header(len(data)) + data + masked_crc(data).to_bytes(4, "little")
