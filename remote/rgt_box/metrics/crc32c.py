"""CRC-32C (Castagnoli), reflected polynomial 0x82F63B78, and the masked form of TensorFlow's record files."""

from __future__ import annotations


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return tuple(table)


TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the checksum of `data`."""
    table, value = TABLE, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """Return the checksum as it is stored beside the data it covers: turned right by 15 bits, plus a constant."""
    value = crc32c(data)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
