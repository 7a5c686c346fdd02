"""Checks safetensors files: the header, that the tensors exactly fill the file, and shard indexes.

The format is https://github.com/huggingface/safetensors (README, "Format"): eight bytes of header
length, a JSON header, and the data without holes. It has no checksums: without another source for
the right bytes, only the offsets can be checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgt_tui.model import how_many
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection
from rgt_tui.transfer.logged_files import examine_json

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64,
    "F64": 64, "I64": 64,
    "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits per element, by the format's name of the dtype."""


def examine_safetensors(whole: FileSection) -> frozenset[str]:
    """Check the header and return the names of the tensors.

    Raises:
        FileRefused: it is damaged, cut off, or its tensors overlap, leave a hole, or do not fill
            the file.
        OSError: it cannot be read.
    """
    if whole.length < 8:
        raise FileRefused(
            f"it is truncated: a safetensors file has more than {how_many(whole.length, 'byte')}"
        )
    length = int.from_bytes(whole.read(0, 8), "little")
    # The library refuses longer headers as well.
    most_header = 100_000_000
    if length > most_header:
        raise FileRefused(f"it claims a header of {length} bytes")
    if 8 + length > whole.length:
        raise FileRefused(
            f"it is truncated in its header: {8 + length} bytes are needed, {whole.length} are "
            "there"
        )
    header = _parse_header(whole.read(8, length))
    # Texts of a user, which have no place in the file.
    header.pop("__metadata__", None)
    room = whole.length - 8 - length
    at = 0
    # By offset: the header's own order is free.
    for begin, end, name in sorted(_parse_entry(name, entry) for name, entry in header.items()):
        if begin != at:
            raise FileRefused(
                f"tensor {name[:80]!r} begins at {begin}, the one before it ends at {at}: a hole "
                "or an overlap"
            )
        at = end
    if at != room:
        if at > room:
            what = "it is truncated"
        else:
            what = "something was added"
        raise FileRefused(f"{what}: its tensors take {at} bytes, {room} are there")
    return frozenset(header)


def _parse_header(raw: bytes) -> dict[str, Any]:
    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # JSON allows duplicates, and readers differ in which one they take.
        found = dict(pairs)
        if len(found) != len(pairs):
            raise FileRefused("a name appears twice in its header")
        return found

    if not raw.startswith(b"{"):
        raise FileRefused("its header is damaged: it does not begin with a brace")
    try:
        header = json.loads(raw.decode(), object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise FileRefused(f"its header is damaged: {str(error)[:120]}") from None
    about = header.get("__metadata__", {})
    if type(about) is not dict or not all(type(value) is str for value in about.values()):
        raise FileRefused("its header is damaged: __metadata__ is not a table of strings")
    found: dict[str, Any] = header
    return found


def _parse_entry(name: str, entry: Any) -> tuple[int, int, str]:
    shown = name[:80]
    if type(entry) is not dict or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FileRefused(f"its header is damaged at tensor {shown!r}")
    # A list here could not be looked up in a dictionary.
    if type(entry["dtype"]) is str:
        bits = BITS.get(entry["dtype"])
    else:
        bits = None
    shape, offsets = entry["shape"], entry["data_offsets"]
    if bits is None:
        raise FileRefused(
            f"tensor {shown!r} has the dtype {str(entry['dtype'])[:40]!r}, which the format does "
            "not have"
        )
    if (
        type(shape) is not list
        or not all(type(size) is int and 0 <= size < 1 << 63 for size in shape)
        or len(shape) > 64
    ):
        raise FileRefused(f"tensor {shown!r} has an invalid shape")
    if (
        type(offsets) is not list
        or len(offsets) != 2
        or not all(type(place) is int for place in offsets)
    ):
        raise FileRefused(f"tensor {shown!r} has no two offsets")
    begin, end = offsets
    for size in shape:
        # In bits, because elements of 4 and 6 bits share bytes.
        bits *= size
    if begin < 0 or end < begin or (end - begin) * 8 != bits:
        raise FileRefused(
            f"tensor {shown!r} has {how_many(end - begin, 'byte')}, its dtype and shape say "
            f"{str(bits // 8)[:30]}"
        )
    return begin, end, name


INDEX_SUFFIX = ".index.json"


def read_shard_index(path: Path) -> dict[str, list[str]]:
    """Return the files that an index names, with the tensors in each.

    Raises:
        FileRefused: it is damaged, or names a file outside of its directory.
        OSError: it cannot be read.
    """
    with OpenFileSection(path) as whole:
        document = examine_json(whole)
    if isinstance(document, dict):
        weights = document.get("weight_map")
    else:
        weights = None
    if not isinstance(weights, dict) or not weights:
        raise FileRefused("it has no weight_map")
    found: dict[str, list[str]] = {}
    for tensor, file in weights.items():
        if (
            not isinstance(file, str)
            or not file
            or "/" in file
            or "\0" in file
            or file in (".", "..")
        ):
            raise FileRefused(
                f"by its index, {tensor[:80]!r} is in {str(file)[:80]!r}, which is not a file next "
                "to it"
            )
        found.setdefault(file, []).append(tensor)
    return found


def examine_index(path: Path) -> None:
    """Check that every shard exists, and, for safetensors, has the tensors that the index names.

    Raises:
        MemberFileError: one is missing, or has other tensors.
        OSError: one cannot be read.
    """
    try:
        found = read_shard_index(path)
    except FileRefused as refused:
        raise MemberFileError(path.name, str(refused)) from None
    for file, tensors in sorted(found.items()):
        try:
            with OpenFileSection(path.parent / file) as whole:
                if file.endswith(".safetensors"):
                    there = examine_safetensors(whole)
                else:
                    there = None
        except FileNotFoundError:
            raise MemberFileError(
                file, f"it is missing: by {path.name} it has {how_many(len(tensors), 'tensor')}"
            ) from None
        except FileRefused as refused:
            raise MemberFileError(file, str(refused)) from None
        if there is not None and there != set(tensors):
            other = sorted(there.symmetric_difference(tensors))[0]
            raise MemberFileError(
                file, f"its tensors are not those that {path.name} names: {other[:80]!r}"
            )
