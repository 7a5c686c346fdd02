"""Points of a curve as bytes. Pure."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence

from rgt_tui.store.errors import Damaged

CHUNK = 512
"""Points in a full chunk."""
_PLAIN, _ZLIB = 0, 1
_LARGEST = 2**63 - 1


def pack(xs: Sequence[int], ys: Sequence[float]) -> bytes:
    """Return the points as bytes; a full chunk, which will hardly be written again, is compressed."""
    steps = array("q", [min(_LARGEST, max(-_LARGEST, x)) for x in xs])
    values = array("d", ys)
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    data = steps.tobytes() + values.tobytes()
    return bytes([_ZLIB]) + zlib.compress(data, 1) if len(steps) >= CHUNK else bytes([_PLAIN]) + data


def unpack(body: bytes) -> tuple[list[int], list[float]]:
    """Return steps and values.

    Raises:
        Damaged: these are no bytes of `pack`.
    """
    try:
        data = zlib.decompress(body[1:]) if body[0] == _ZLIB else body[1:]
        half = len(data) // 2
        steps, values = array("q"), array("d")
        steps.frombytes(data[:half])
        values.frombytes(data[half:])
    except (zlib.error, ValueError, IndexError) as error:
        raise Damaged(f"a piece of a curve cannot be read: {error}") from error
    if len(steps) != len(values):
        raise Damaged("a piece of a curve has not as many steps as values")
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    return steps.tolist(), values.tolist()
