"""Checks GGUF files: the header, the metadata, and that every tensor lies within the file as declared.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; how many bytes a block of each type
takes is in gguf's constants (https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py,
``GGML_QUANT_SIZES``, read in gguf 0.19). It has no checksums: the places are all that can be right.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rgt_tui.profiles import how_many
from rgt_tui.transfer.file_stretch import Refused, Stretch

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = b"general.alignment"
_MOST_STRING = 64 << 20
_MOST_NESTED = 4
_READ = 1 << 16
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Type of a value → its bytes."""
_UINT32, _STRING, _ARRAY = 4, 8, 9
_TYPES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Type of a tensor → elements of a block, bytes of a block."""


class _Tensor(NamedTuple):
    offset: int
    bytes: int
    name: str


def examine(whole: Stretch) -> tuple[str, ...]:
    """Look at the header; return the types of tensors whose length is not known, and was not looked at.

    Raises:
        Refused: it is damaged, cut off, or a tensor lies outside of the file or in another one.
        OSError: it cannot be read.
    """
    at = _Cursor(whole)
    if at.take(4) != MAGIC:
        raise Refused(
            "it does not begin as a GGUF file: its first bytes are damaged, or it is something else"
        )
    version = at.number(4)
    if not version & 0xFFFF:  # written by a machine whose numbers begin with the other end
        at.order = "big"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in _VERSIONS:
        raise Refused(f"it has the version {version}: {' and '.join(map(str, _VERSIONS))} are known")
    tensors, pairs = at.number(8), at.number(8)
    alignment = 32
    for _ in range(pairs):
        key, kind = at.text(), at.number(4)
        if key == _ALIGNMENT and kind == _UINT32:
            alignment = at.number(4)
        else:
            at.skip_value(kind)
    if alignment < 8 or alignment % 8 or alignment > 1 << 30:
        raise Refused(f"its alignment is {alignment}, which is not one that the format has")
    found, unknown = _tensors(at, tensors, alignment)
    begin = _padded(at.place, alignment)
    end = 0
    for tensor in sorted(found):
        if tensor.offset < end:
            raise Refused(
                f"tensor {tensor.name!r} begins at {tensor.offset}, the one before it ends at {end}"
            )
        end = tensor.offset + tensor.bytes
    if begin + end > whole.length and found:
        raise Refused(f"it is cut off: its tensors end at byte {begin + end}, {whole.length} are there")
    last = begin + _padded(end, alignment)
    if whole.length > last and not unknown:
        raise Refused(f"after its end: {how_many(whole.length - last, 'byte')}")
    return tuple(f"type {kind}" for kind in sorted(unknown))


def _padded(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _tensors(at: _Cursor, count: int, alignment: int) -> tuple[list[_Tensor], set[int]]:
    found: list[_Tensor] = []
    unknown: set[int] = set()
    names = set()
    for _ in range(count):
        raw = at.text()
        name = raw.decode(errors="replace")[:80]
        if raw in names:
            raise Refused(f"two tensors are called {name!r}")
        names.add(raw)
        dimensions = at.number(4)
        if dimensions > 8:
            raise Refused(f"tensor {name!r} claims to have {dimensions} dimensions")
        shape = [at.number(8) for _ in range(dimensions)]
        kind, offset = at.number(4), at.number(8)
        if offset % alignment:
            raise Refused(f"tensor {name!r} begins at {offset}, which is not a multiple of {alignment}")
        if kind not in _TYPES:
            unknown.add(kind)
            found.append(_Tensor(offset, 0, name))
            continue
        block, width = _TYPES[kind]
        if shape and shape[0] % block:
            raise Refused(f"tensor {name!r} has rows of {shape[0]}, which are not whole blocks of {block}")
        elements = 1
        for size in shape:
            elements *= size
        found.append(_Tensor(offset, elements // block * width, name))
    return found, unknown


class _Cursor:
    """Reads a file from its beginning, a piece in advance."""

    def __init__(self, whole: Stretch) -> None:
        self.place = 0
        self.order: Literal["big", "little"] = "little"
        self._whole = whole
        self._held = b""
        self._from = 0

    def take(self, length: int) -> bytes:
        """Return the next bytes.

        Raises:
            Refused: the file ends before.
        """
        if self.place + length > self._whole.length:
            raise Refused(f"it is cut off in its header, at byte {self._whole.length}")
        begin = self.place - self._from
        if begin < 0 or begin + length > len(self._held):
            most = min(max(length, _READ), self._whole.length - self.place)
            self._held, self._from, begin = self._whole.read(self.place, most), self.place, 0
        self.place += length
        return self._held[begin : begin + length]

    def number(self, length: int) -> int:
        """Return the next unsigned number."""
        return int.from_bytes(self.take(length), self.order)

    def text(self) -> bytes:
        """Return the next string."""
        length = self.number(8)
        if length > _MOST_STRING:
            raise Refused(f"its header claims a text of {length} bytes")
        return self.take(length)

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Leave a value out.

        Raises:
            Refused: it has a type that is none.
        """
        if kind == _STRING:
            self.text()
        elif kind == _ARRAY:
            inner, count = self.number(4), self.number(8)
            if inner in _SCALARS:
                self._skip(_SCALARS[inner] * count)
                return
            if depth > _MOST_NESTED:
                raise Refused("its header is damaged: arrays in arrays")
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        elif kind in _SCALARS:
            self._skip(_SCALARS[kind])
        else:
            raise Refused(f"its header is damaged: a value has the type {kind}")

    def _skip(self, length: int) -> None:
        if self.place + length > self._whole.length:
            raise Refused(f"it is cut off in its header, at byte {self._whole.length}")
        self.place += length
