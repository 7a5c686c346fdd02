"""Checksums: SQLite proves the shape of its file, not what stands in it.

Every row ends in the CRC-32 of its other columns. A bit that flips on a disk is found, and never shown as a price.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rgt_tui.store.errors import Damaged

_encode = msgspec.msgpack.Encoder().encode


def seal(values: Sequence[Any]) -> int:
    """Return the checksum of a row's values, which must be as SQLite gives them back (REAL as float)."""
    return zlib.crc32(_encode(values))


def checked(table: str, row: Sequence[Any]) -> Sequence[Any]:
    """Return a row whose last value is the checksum of the others.

    Raises:
        Damaged: it is not.
    """
    if seal(row[:-1]) != row[-1]:
        raise Damaged(f"a row of {table} is not what was written")
    return row
