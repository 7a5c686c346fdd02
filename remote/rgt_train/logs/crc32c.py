"""CRC-32C (Castagnoli), the checksum of TFRecord files, without a dependency.

Byte by byte it costs some 50 ns a byte, so that an event of a training step would take longer to check than to
write. But a CRC is linear: that of a record of which only a few bytes change from one step to the next is the CRC of
the fixed part, XORed with one table entry for each byte that changed.
"""

from __future__ import annotations

from typing import List, Sequence

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF


def _table() -> List[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`."""
    value, table = _ONES, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 255] ^ (value >> 8)
    return value ^ _ONES


def masked(crc: int) -> int:
    """Return `crc` the way TFRecord stores it, so that data which hold their own CRC stay checkable."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


class Patched:
    """CRCs of records that differ from `template` in the bytes at `places` only.

    Args:
        template: A record with zero bytes at `places`.
        places: Offsets of the changing bytes, ascending.
    """

    def __init__(self, template: bytes, places: Sequence[int]) -> None:
        self._fixed = crc32c(template)
        self.tables: List[List[int]] = []
        wanted = set(places)
        bits = [_TABLE[1 << bit] for bit in range(8)]  # what each bit of the last byte contributes
        for place in range(len(template) - 1, (min(wanted) if wanted else len(template)) - 1, -1):
            if place in wanted:
                self.tables.append(_spread(bits))
            bits = [_TABLE[value & 255] ^ (value >> 8) for value in bits]  # one byte further from the end
        self.tables.reverse()

    def crc(self, changing: bytes) -> int:
        """Return the CRC of the record that has `changing` at the places."""
        value = self._fixed
        for table, byte in zip(self.tables, changing):  # noqa: B905  Python 3.8; made together
            value ^= table[byte]
        return value


def _spread(bits: List[int]) -> List[int]:
    """Return the contribution of each of the 256 bytes from that of the eight bits."""
    table = [0]
    for value in bits:
        table += [entry ^ value for entry in table]
    return table
