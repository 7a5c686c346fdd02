"""The checksum of POSIX ``cksum``, which every box has: a script that arrives garbled must not be run."""

from __future__ import annotations

_POLYNOMIAL = 0x04C11DB7


def _row(byte: int) -> int:
    value = byte << 24
    for _ in range(8):
        value = (value << 1) ^ (_POLYNOMIAL if value & 0x80000000 else 0)
    return value & 0xFFFFFFFF


_TABLE = tuple(_row(byte) for byte in range(256))


def cksum(data: bytes) -> int:
    """Return the CRC that ``cksum`` prints for `data`."""
    value, size = 0, len(data)
    tail = bytearray()
    while size:
        tail.append(size & 0xFF)
        size >>= 8
    for byte in data + bytes(tail):
        value = (value << 8 & 0xFFFFFFFF) ^ _TABLE[value >> 24 ^ byte]
    return value ^ 0xFFFFFFFF
