"""Checks NumPy, HDF5 and GGUF files: headers against lengths, and each CRC-32 in ``.npz``.

The NumPy format is NEP 1 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
An array of objects is a pickle after its header: it is neither unpickled nor examined.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Literal, NamedTuple

from rgt_tui.model import how_many
from rgt_tui.transfer.file_stretch import FileRefused, FileSection
from rgt_tui.transfer.zip_records import ZipRecord, read_records

MAGIC = b"\x93NUMPY"
MOST_HEADER = 1 << 16
"""Maximum bytes of a header; NumPy's own default limit is 10,000."""
_KEYS = {"descr", "fortran_order", "shape"}
_SIMPLE = re.compile(r"[<>|=]?([biufcSUVmM])(\d+)(?:\[\w+\])?")
_OBJECT = re.compile(r"[<>|=]?O\d*")
SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ADDRESSES = {0: (13, 24), 1: (13, 28), 2: (9, 12), 3: (9, 12)}
"""Version of the superblock → offsets of the address size and of the first address. The third
address is the end of file, after the base address and the address of the free space or extension.
"""
GGUF_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = b"general.alignment"
_MOST_STRING = 64 << 20
_READ = 1 << 16
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Type of a value → its bytes."""
_UINT32, _STRING, _ARRAY = 4, 8, 9
_TYPES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66),
    39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Type of a tensor → elements per block, bytes per block."""


class ArrayHeader(NamedTuple):
    """The content of a header."""

    begin: int
    """Bytes before the data."""
    bytes: int | None
    """Bytes of the data; None for objects, whose pickle may have any length."""


def examine_npy(whole: FileSection) -> bool:
    """Check the header of a ``.npy`` file.

    Return whether it is an array of objects, left unexamined.

    Raises:
        FileRefused: it is damaged, cut off, or has data after its end.
        OSError: it cannot be read.
    """
    found = parse_npy_header(whole.read(0, min(MOST_HEADER + 12, whole.length)))
    _check_array_length(found, whole.length)
    return found.bytes is None


def examine_npz(whole: FileSection) -> tuple[str, ...]:
    """Check a whole ``.npz`` file; return the arrays of objects, of which only the CRC was checked.

    Raises:
        FileRefused: a record is damaged, or its header does not match its length.
        OSError: it cannot be read.
    """
    objects = []
    for record in read_records(whole, deflated=True).values():
        record.check_crc()
        if not record.name.endswith(".npy"):
            continue
        try:
            found = parse_npy_header(_read_head(record))
            _check_array_length(found, record.size)
        except FileRefused as refused:
            raise FileRefused(f"record {record.name}: {refused}") from None
        if found.bytes is None:
            objects.append(record.name.removesuffix(".npy"))
    return tuple(objects)


def _read_head(record: ZipRecord) -> bytes:
    head = b""
    for piece in record.iterate_pieces():
        head += piece
        if len(head) >= MOST_HEADER + 12:
            break
    return head


def _check_array_length(found: ArrayHeader, length: int) -> None:
    if found.bytes is None:
        return
    end = found.begin + found.bytes
    if length < end:
        raise FileRefused(f"it is truncated: its array ends at byte {end}, the file at {length}")
    if length > end:
        raise FileRefused(f"after the end of its array: {how_many(length - end, 'byte')}")


def parse_npy_header(head: bytes) -> ArrayHeader:
    """Parse the first bytes of a ``.npy`` file.

    Raises:
        FileRefused: they are not a valid header.
    """
    if not head.startswith(MAGIC) or len(head) < 12:
        raise FileRefused(
            "it does not begin like a NumPy array: its first bytes are damaged, or it is truncated"
        )
    major, minor = head[6], head[7]
    if (major, minor) not in {(1, 0), (2, 0), (3, 0)}:
        raise FileRefused(
            f"its header has the version {major}.{minor}, which is not valid in this format"
        )
    begin = 10 if major == 1 else 12
    length = int.from_bytes(head[8:begin], "little")
    if length > MOST_HEADER:
        raise FileRefused(f"it claims a header of {length} bytes")
    if begin + length > len(head):
        raise FileRefused("it is truncated in its header")
    try:
        said = ast.literal_eval(
            head[begin : begin + length].decode("utf-8" if major == 3 else "latin-1").strip()
        )
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        said = None
    if type(said) is not dict or set(said) != _KEYS or type(said["fortran_order"]) is not bool:
        raise FileRefused(
            "its header is damaged: the description of the array is missing or invalid"
        )
    shape = said["shape"]
    if type(shape) is not tuple or not all(
        type(size) is int and 0 <= size < 1 << 63 for size in shape
    ):
        raise FileRefused("its header is damaged: its shape is not valid")
    count = _element_bytes(said["descr"])
    for size in shape:
        if count is None:
            count = None
        else:
            count = count * size
    return ArrayHeader(begin + length, count)


def _element_bytes(descr: Any, depth: int = 0) -> int | None:
    """Return the bytes of an element; None if a part of it is an object."""
    most_nested = 16
    if depth > most_nested:
        raise FileRefused("its header is damaged: its dtype is nested too deep")
    if type(descr) is str:
        if _OBJECT.fullmatch(descr):
            return None
        match = _SIMPLE.fullmatch(descr)
        if match is None or len(match[2]) > 18:
            raise FileRefused(f"its header is damaged: the dtype {descr[:40]!r} is not valid")
        return int(match[2]) * (4 if match[1] == "U" else 1)
    if type(descr) is tuple and len(descr) == 2:  # an array inside a field
        return _multiply_by_shape(_element_bytes(descr[0], depth + 1), descr[1])
    if type(descr) is not list:
        raise FileRefused("its header is damaged: its dtype is not valid")
    total: int | None = 0
    for field in descr:
        if type(field) is not tuple or len(field) not in (2, 3):
            raise FileRefused("its header is damaged: a field of its dtype is not valid")
        width = _element_bytes(field[1], depth + 1)
        if len(field) == 3:
            width = _multiply_by_shape(width, field[2])
        if total is None or width is None:
            total = None
        else:
            total = total + width
    return total


def _multiply_by_shape(width: int | None, shape: Any) -> int | None:
    if type(shape) is tuple:
        sizes = shape
    else:
        sizes = (shape,)
    if not all(type(size) is int and 0 <= size < 1 << 63 for size in sizes):
        raise FileRefused("its header is damaged: a field of its dtype has no shape")
    for size in sizes:
        if width is None:
            width = None
        else:
            width = width * size
    return width


# Checks HDF5 files: the superblock, and the length of the file that it states. Groups and data are
# not examined.
#
# The format is the HDF5 File Format Specification, section II.A
# (https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html).


def examine_hdf5(whole: FileSection) -> None:
    """Check that the file has the length that its superblock states, and was closed.

    Raises:
        FileRefused: it has not, or there is no superblock.
        OSError: it cannot be read.
    """
    place = 0
    while whole.read(place, min(8, whole.length - place)) != SIGNATURE:
        place = place * 2 or 512  # a user block may precede it
        if place >= whole.length:
            raise FileRefused(
                "it does not begin like an HDF5 file: its first bytes are damaged, or it is "
                "another format"
            )
    longest = 96
    head = whole.read(place, min(longest, whole.length - place))
    if len(head) < longest // 2:
        raise FileRefused("it is truncated in its superblock")
    version = head[8]
    if version not in _ADDRESSES:
        raise FileRefused(
            f"its superblock has the version {version}, which is not valid in this format"
        )
    width_at, begin = _ADDRESSES[version]
    width = head[width_at]
    if width not in (2, 4, 8, 16, 32) or begin + 3 * width > len(head):
        raise FileRefused(f"its superblock is damaged: addresses of {width} bytes")
    flags = 11
    open_for_writing = 0x1
    if version == 3 and head[flags] & open_for_writing:
        raise FileRefused("it was not closed: its writer has ended, or is still writing")
    end = int.from_bytes(head[begin + 2 * width : begin + 3 * width], "little")
    if end > whole.length:
        raise FileRefused(
            f"it is truncated: it ends at byte {end} by its superblock, {whole.length} are there"
        )


# Checks GGUF files: the header, the metadata, and that every tensor lies within the file as
# declared.
#
# The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; the bytes per block of
# each type are in gguf's constants
# (https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py,
# ``GGML_QUANT_SIZES``, read in gguf 0.19). It has no checksums: only the positions can be checked.


class _GgufTensor(NamedTuple):
    offset: int
    bytes: int
    name: str


def examine_gguf(whole: FileSection) -> tuple[str, ...]:
    """Check the header; return the types of tensors whose length is unknown and was not checked.

    Raises:
        FileRefused: it is damaged, cut off, or a tensor lies outside of the file or overlaps
            another.
        OSError: it cannot be read.
    """
    at = _HeaderCursor(whole)
    if at.take_bytes(4) != GGUF_MAGIC:
        raise FileRefused(
            "it does not begin like a GGUF file: its first bytes are damaged, or it is another "
            "format"
        )
    version = at.read_number(4)
    if not version & 0xFFFF:  # written on a big-endian machine
        at.order = "big"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in _VERSIONS:
        raise FileRefused(
            f"it has the version {version}: {', '.join(map(str, _VERSIONS))} are known"
        )
    tensors, pairs = at.read_number(8), at.read_number(8)
    alignment = 32
    for _ in range(pairs):
        key, kind = at.read_string(), at.read_number(4)
        if key == _ALIGNMENT and kind == _UINT32:
            alignment = at.read_number(4)
        else:
            at.skip_value(kind)
    if alignment < 8 or alignment % 8 or alignment > 1 << 30:
        raise FileRefused(f"its alignment is {alignment}, which is not valid in this format")
    found, unknown = _read_tensors(at, tensors, alignment)
    begin = _align_up(at.place, alignment)
    end = 0
    for tensor in sorted(found):
        if tensor.offset < end:
            raise FileRefused(
                f"tensor {tensor.name!r} begins at {tensor.offset}, the one before it ends at {end}"
            )
        end = tensor.offset + tensor.bytes
    if begin + end > whole.length and found:
        raise FileRefused(
            f"it is truncated: its tensors end at byte {begin + end}, {whole.length} are there"
        )
    last = begin + _align_up(end, alignment)
    if whole.length > last and not unknown:
        raise FileRefused(f"after its end: {how_many(whole.length - last, 'byte')}")
    return tuple(f"type {kind}" for kind in sorted(unknown))


def _align_up(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _read_tensors(
    at: _HeaderCursor, count: int, alignment: int
) -> tuple[list[_GgufTensor], set[int]]:
    found: list[_GgufTensor] = []
    unknown: set[int] = set()
    names = set()
    for _ in range(count):
        raw = at.read_string()
        name = raw.decode(errors="replace")[:80]
        if raw in names:
            raise FileRefused(f"two tensors are called {name!r}")
        names.add(raw)
        dimensions = at.read_number(4)
        if dimensions > 8:
            raise FileRefused(f"tensor {name!r} claims to have {dimensions} dimensions")
        shape = [at.read_number(8) for _ in range(dimensions)]
        kind, offset = at.read_number(4), at.read_number(8)
        if offset % alignment:
            raise FileRefused(
                f"tensor {name!r} begins at {offset}, which is not a multiple of {alignment}"
            )
        if kind not in _TYPES:
            unknown.add(kind)
            found.append(_GgufTensor(offset, 0, name))
            continue
        block, width = _TYPES[kind]
        if shape and shape[0] % block:
            raise FileRefused(
                f"tensor {name!r} has rows of {shape[0]}, which are not whole blocks of {block}"
            )
        elements = 1
        for size in shape:
            elements *= size
        found.append(_GgufTensor(offset, elements // block * width, name))
    return found, unknown


class _HeaderCursor:
    """Reads a file from its beginning with read-ahead."""

    def __init__(self, whole: FileSection) -> None:
        self.place = 0
        self.order: Literal["big", "little"] = "little"
        self._whole = whole
        self._held = b""
        self._from = 0

    def take_bytes(self, length: int) -> bytes:
        """Return the next bytes.

        Raises:
            FileRefused: the file ends before them.
        """
        if self.place + length > self._whole.length:
            raise FileRefused(f"it is truncated in its header, at byte {self._whole.length}")
        begin = self.place - self._from
        if begin < 0 or begin + length > len(self._held):
            most = min(max(length, _READ), self._whole.length - self.place)
            self._held, self._from, begin = self._whole.read(self.place, most), self.place, 0
        self.place += length
        return self._held[begin : begin + length]

    def read_number(self, length: int) -> int:
        """Return the next unsigned number."""
        return int.from_bytes(self.take_bytes(length), self.order)

    def read_string(self) -> bytes:
        """Return the next string."""
        length = self.read_number(8)
        if length > _MOST_STRING:
            raise FileRefused(f"its header claims a text of {length} bytes")
        return self.take_bytes(length)

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Skip a value.

        Raises:
            FileRefused: its type does not exist.
        """
        if kind == _STRING:
            self.read_string()
        elif kind == _ARRAY:
            inner, count = self.read_number(4), self.read_number(8)
            if inner in _SCALARS:
                self._skip_bytes(_SCALARS[inner] * count)
                return
            most_gguf_nested = 4
            if depth > most_gguf_nested:
                raise FileRefused("its header is damaged: arrays in arrays")
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        elif kind in _SCALARS:
            self._skip_bytes(_SCALARS[kind])
        else:
            raise FileRefused(f"its header is damaged: a value has the type {kind}")

    def _skip_bytes(self, length: int) -> None:
        if self.place + length > self._whole.length:
            raise FileRefused(f"it is truncated in its header, at byte {self._whole.length}")
        self.place += length
