"""The frame of a ``.wandb`` file: a LevelDB log (run, wandb 0.31).

After 7 bytes (``:W&B``, ``E1 BE``, version 0) come blocks of 32 KiB, counted from the first byte of the file. A chunk
is ``u32 crc, u16 length, u8 type`` and its payload; the checksum is zlib's, over type and payload. A record is one
full chunk, or a first, middle ones and a last. Less than 7 bytes at the end of a block are left empty.
"""

from __future__ import annotations

from struct import unpack_from
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Chunk(NamedTuple):
        """One chunk, or what stands in its place.

        Attributes:
            kind: 1 full, 2 first, 3 middle, 4 last, 0 nothing (the block goes on with zeros), -1 damage.
            payload: Its bytes.
            end: Place in the file of what comes next.
        """

        kind: int
        payload: bytes
        end: int
else:
    from collections import namedtuple

    Chunk = namedtuple("Chunk", "kind payload end")

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32 << 10
HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
EMPTY, DAMAGED = 0, -1


def chunk(data: bytes, base: int, offset: int) -> Chunk | None:
    """Return the chunk at `offset` of the file.

    Args:
        data: Bytes of the file from `base` on.
        base: Where `data` stands.
        offset: Where the chunk begins.

    Returns:
        None when it is not there completely.
    """
    left = BLOCK - offset % BLOCK
    if left < HEADER:
        offset, left = offset + left, BLOCK
    at = offset - base
    if at + HEADER > len(data):
        return None
    crc, length, kind = unpack_from("<IHB", data, at)
    next_block = offset + left
    if kind == EMPTY and not crc and not length:
        return Chunk(EMPTY, b"", next_block) if next_block - base < len(data) else None
    if not FULL <= kind <= LAST or HEADER + length > left:
        return Chunk(DAMAGED, b"", next_block)
    end = at + HEADER + length
    if end > len(data):
        return None
    if crc32(data[at + 6 : end]) != crc:
        return Chunk(DAMAGED, b"", next_block)
    return Chunk(kind, data[at + HEADER : end], offset + HEADER + length)
