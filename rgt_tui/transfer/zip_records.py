"""The records of a zip file as torch and NumPy write it: stored back to back, each with a CRC-32.

The layout is PKWARE's APPNOTE (sections 4.3 and 4.5). It is read far more strictly than by a zip
tool: every byte before the central directory belongs to exactly one record, a record's own header
agrees with the directory, and nothing is compressed, except the arrays of
``numpy.savez_compressed``. So there is no second directory for another reader to find, and no two
readers see different files.

Some header fields are ignored by every reader: versions, dates, attributes, and the padding to a
multiple of 64. Torch's writer (miniz, since torch 1.6) always writes the same values in them. If
most headers of a file match those values, a header that differs in a few fields was damaged, and is
refused. Other writers, such as tools that repack a file, use values of their own, which prove
nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rgt_tui.model import how_many
from rgt_tui.transfer.file_stretch import PIECE, FileRefused, FileSection

MAGIC = b"PK\x03\x04"
END_MAGIC = b"PK\x05\x06"
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_WIDE, _SHORT = 0xFFFFFFFF, 0xFFFF
_DESCRIPTOR, _UTF8 = 0x8, 0x800
_TORCH_END = 0x031E, 0x002D
"""The versions in the 64-bit directory end of torch's writer; it writes 0 in every other header."""
_PADDING, _FILLER = b"FB", b"Z"
"""Kind of the extra field with which torch's writer pads to the start of the content."""
_FEW = 4
"""Maximum number of differing fields in a damaged header; another writer's header has more."""
_MOST_RECORDS = 1 << 20
_DEFLATED = 8


class ZipRecord(NamedTuple):
    """One record; the CRC is verified only by `check_crc`."""

    name: str
    data: FileSection
    """The stored bytes in the file."""
    crc: int
    size: int
    """Bytes of its unpacked content."""
    deflated: bool = False

    def iterate_pieces(self) -> Iterator[bytes]:
        """Yield its content, unpacked; never more than the declared size.

        Raises:
            FileRefused: it unpacks to another size, or not at all.
        """
        if not self.deflated:
            yield from self.data.iterate_pieces()
            return
        unpacking, left = zlib.decompressobj(-zlib.MAX_WBITS), self.size
        try:
            for packed in self.data.iterate_pieces():
                while packed or unpacking.unconsumed_tail:
                    # In pieces: a small record can unpack to more than the memory.
                    piece = unpacking.decompress(packed or unpacking.unconsumed_tail, PIECE)
                    packed = b""
                    left -= len(piece)
                    if left < 0 or unpacking.unused_data:
                        raise FileRefused(
                            f"record {self.name} has more data than its header states"
                        )
                    yield piece
                    # All of this piece is in the decompressor's state, and it needs more input.
                    if not piece and not unpacking.unconsumed_tail:
                        break
        except zlib.error as error:
            raise FileRefused(f"record {self.name} cannot be unpacked: {error}") from None
        if left or not unpacking.eof:
            raise FileRefused(f"record {self.name} has less data than its header states")

    def check_crc(self) -> None:
        """Compare the content with the checksum.

        Raises:
            FileRefused: it differs.
        """
        found = 0
        for piece in self.iterate_pieces():
            found = zlib.crc32(piece, found)
        if found != self.crc:
            raise FileRefused(
                f"record {self.name}: its CRC-32 is {found:08x}, {self.crc:08x} was written"
            )


class _ZipEntry(NamedTuple):
    name: bytes
    flags: int
    crc: int
    packed: int
    size: int
    offset: int
    deflated: bool
    odd: tuple[str, ...]
    """Header fields that readers ignore and whose value differs from torch's writer."""


def read_records(whole: FileSection, *, deflated: bool = False) -> dict[str, ZipRecord]:
    """Return the records of a zip file by name, in file order.

    Args:
        whole: The file.
        deflated: Whether records may be compressed, as NumPy's may.

    Raises:
        FileRefused: it is cut off, or anything in it is not as torch (or NumPy) writes it.
    """
    begin, stop, count, odd_end = _directory(whole)
    entries = _parse_entries(
        whole.read(begin, stop - begin), count, (0, _DEFLATED) if deflated else (0,)
    )
    found: dict[str, ZipRecord] = {}
    odd = {"its directory end": odd_end}
    at = 0
    # In file order, so that gaps and overlaps show: hidden data would be in one of them.
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset != at:
            raise FileRefused(f"bytes {at} to {entry.offset} belong to no record, or to two")
        name = _decode_name(entry.name)
        if name in found:
            raise FileRefused(f"two records are called {name!r}")
        data, at, words = _read_local_header(whole, entry, begin)
        found[name] = ZipRecord(name, data, entry.crc, entry.size, entry.deflated)
        odd[f"record {name}"] = (*entry.odd, *words)
    if at != begin:
        raise FileRefused(f"bytes {at} to {begin} belong to no record")
    _refuse_odd_header(odd)
    return found


def _refuse_odd_header(odd: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a file of torch's writer in which one header differs from all others.

    Args:
        odd: Name of the header → its fields that differ from torch's writer.
    """
    # Half of them: damage is local, another writer differs everywhere.
    if 2 * sum(map(bool, odd.values())) >= len(odd):
        return  # made by another writer
    for what, words in odd.items():
        if 0 < len(words) <= _FEW:
            raise FileRefused(
                f"{what} is damaged: torch writes something else as {', '.join(words)} of its head"
            )


def _directory(whole: FileSection) -> tuple[int, int, int, tuple[str, ...]]:
    """Return begin, end and entry count of the central directory, and the odd fields of its end."""
    if whole.length < _END.size:
        raise FileRefused("it is truncated: there is no directory at its end")
    place = whole.length - _END.size
    magic, disk, first, here, count, size, offset, comment = _END.unpack(
        whole.read(place, _END.size)
    )
    # No search for it, as zip tools do: a comment could hold a second directory.
    if magic != END_MAGIC or comment:
        raise FileRefused("it is truncated, or data was appended: there is no directory at its end")
    if disk or first or here != count:
        raise FileRefused("its directory speaks of several disks")
    # Without a 64-bit end it is not torch's writer: more than a few fields then count as different.
    stop, odd = place, ("all",) * (_FEW + 1)
    wide = _wide_directory(whole, place)
    if wide is not None:
        stop, odd = wide[3:]
        for short, long, blank in (
            (count, wide[0], _SHORT),
            (size, wide[1], _WIDE),
            (offset, wide[2], _WIDE),
        ):
            # Writers differ in whether they fill the short field when the number fits.
            if short not in (long, blank):
                raise FileRefused("its two directory ends disagree")
        count, size, offset = wide[:3]
    # Before anything is read for them.
    if count > _MOST_RECORDS:
        raise FileRefused(f"it claims to have {how_many(count, 'record')}")
    if offset + size != stop:
        raise FileRefused(
            f"its directory does not end where its end begins ({offset} + {size} is not {stop})"
        )
    return offset, stop, count, odd


def _wide_directory(
    whole: FileSection, place: int
) -> tuple[int, int, int, int, tuple[str, ...]] | None:
    """Return count, size, offset, start and odd fields of the 64-bit end; None = there is none."""
    at = place - _LOCATOR.size
    if at < 0:
        return None
    magic, disk, where, disks = _LOCATOR.unpack(whole.read(at, _LOCATOR.size))
    if magic != b"PK\x06\x07":
        return None
    if disk or disks != 1 or where + _END64.size != at:
        raise FileRefused("the place of its 64-bit directory end is wrong")
    found = _END64.unpack(whole.read(where, _END64.size))
    if (
        found[0] != b"PK\x06\x06"
        or found[1] != _END64.size - 12
        or found[4]
        or found[5]
        or found[6] != found[7]
    ):
        raise FileRefused("its 64-bit directory end is damaged")
    odd = () if found[2:4] == _TORCH_END else ("the versions",)
    return found[7], found[8], found[9], where, odd


def _parse_entries(raw: bytes, count: int, methods: tuple[int, ...]) -> list[_ZipEntry]:
    entries = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(raw):
            raise FileRefused("its directory ends inside an entry")
        (magic, made, needed, flags, method, time, date, crc, packed, size, name_length,
         extra_length, comment_length,
         disk, internal, external, offset) = _ENTRY.unpack_from(raw, at)  # fmt: skip
        if magic != b"PK\x01\x02":
            raise FileRefused("its directory is damaged")
        at += _ENTRY.size
        stop = at + name_length + extra_length + comment_length
        if stop > len(raw):
            raise FileRefused("its directory ends inside an entry")
        name = raw[at : at + name_length]
        extra = raw[at + name_length : at + name_length + extra_length]
        wide = _wide_numbers(extra)
        size, packed, offset = (
            wide.pop(0) if value == _WIDE and wide else value for value in (size, packed, offset)
        )
        # Also here, because TorchScript compresses its code, and would fail with a less useful
        # message.
        if b"/code/" in name:
            raise FileRefused("it is a TorchScript archive, which holds code: it is not loaded")
        if method not in methods or (not method and packed != size):
            raise FileRefused(
                f"record {_decode_name(name)} is compressed, in a way that its writer never does"
            )
        if flags & ~(_DESCRIPTOR | _UTF8) or disk:
            raise FileRefused(
                f"record {_decode_name(name)} has flags {flags:#x}, which its writer never sets"
            )
        odd = _nonzero_fields(
            {
                "the version that made it": made,
                "the version needed": needed,
                "the flags": flags ^ (_UTF8 | (_DESCRIPTOR if size else 0)),
                "the time": time,
                "the date": date,
                "the internal attributes": internal,
                "the external attributes": external,
                "the comment": comment_length,
                "the extra field": extra != _wide_field(size, packed, offset),
            }
        )
        entries.append(_ZipEntry(name, flags, crc, packed, size, offset, bool(method), odd))
        at = stop
    if at != len(raw):
        raise FileRefused("its directory is longer than its entries")
    return entries


def _nonzero_fields(words: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of the fields that are not 0."""
    if any(words.values()):
        return tuple(name for name, value in words.items() if value)
    return ()


def _wide_field(size: int, packed: int, offset: int) -> bytes:
    """Return the extra field for 64-bit numbers as torch's writer makes it: both or no lengths."""
    lengths = (size, packed) if size >= _WIDE else ()
    numbers = (*lengths, *((offset,) if offset >= _WIDE else ()))
    if numbers:
        return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
    return b""


def _is_padded(extra: bytes, entry: _ZipEntry) -> bool:
    """Return whether the extra field before a content is as torch's writer pads it.

    That writer does not know the packed length yet.
    """
    for packed in (0, entry.packed):
        wide = _wide_field(entry.size, packed, entry.offset)
        padding = extra[len(wide) :]
        length = int.from_bytes(padding[2:4], "little")
        if extra.startswith(wide) and padding[:2] == _PADDING and padding[4:] == _FILLER * length:
            return True
    return False


def _wide_numbers(extra: bytes) -> list[int]:
    """Return the 64-bit numbers of an entry's extra fields."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 1:
            usable = extra[at : at + length]
            return [
                number for (number,) in struct.iter_unpack("<Q", usable[: len(usable) // 8 * 8])
            ]
        at += length
    return []


def _decode_name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise FileRefused("the name of a record is not text") from None
    if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise FileRefused(f"a record is called {name!r}")
    return name


def _read_local_header(
    whole: FileSection, entry: _ZipEntry, limit: int
) -> tuple[FileSection, int, tuple[str, ...]]:
    """Return a record's content, the start of the next record, and the odd fields of its header."""
    shown = _decode_name(entry.name)
    if entry.offset + _LOCAL.size > limit:
        raise FileRefused(f"record {shown} begins behind the records")
    magic, needed, flags, method, time, date, crc, packed, size, name_length, extra_length = (
        _LOCAL.unpack(whole.read(entry.offset, _LOCAL.size))
    )
    at = entry.offset + _LOCAL.size
    if (
        magic != MAGIC
        or (flags, method) != (entry.flags, _DEFLATED if entry.deflated else 0)
        or at + name_length + extra_length + entry.packed > limit
        or whole.read(at, name_length) != entry.name
    ):
        raise FileRefused(
            f"record {shown} says something else of itself than the directory says of it"
        )
    at += name_length
    extra = whole.read(at, extra_length)
    at += extra_length
    data = whole.subsection(at, entry.packed)
    at += entry.packed
    odd = _nonzero_fields(
        {
            "the version needed": needed,
            "the time": time,
            "the date": date,
            "the lengths": crc or packed or size,
            "the padding": not _is_padded(extra, entry),
        }
    )
    if flags & _DESCRIPTOR:
        if crc not in (0, entry.crc):
            raise FileRefused(f"record {shown} has another checksum than in the directory")
        return data, at + _descriptor(whole, entry, at, limit), odd
    wide = _wide_numbers(extra)
    size, packed = (wide.pop(0) if value == _WIDE and wide else value for value in (size, packed))
    if (crc, size, packed) != (entry.crc, entry.size, entry.packed):
        raise FileRefused(
            f"record {shown} says something else of itself than the directory says of it"
        )
    return data, at, odd


def _descriptor(whole: FileSection, entry: _ZipEntry, at: int, limit: int) -> int:
    """Return the length of the data descriptor after a record: checksum and lengths once more."""
    # Writers use either width, and nothing in the file says which.
    for form in ("<4sIII", "<4sIQQ"):
        length = struct.calcsize(form)
        if at + length > limit:
            continue
        if struct.unpack(form, whole.read(at, length)) == (
            b"PK\x07\x08", entry.crc, entry.packed, entry.size
        ):  # fmt: skip
            return length
    raise FileRefused(
        f"what follows record {_decode_name(entry.name)} is not its checksum and its length"
    )
