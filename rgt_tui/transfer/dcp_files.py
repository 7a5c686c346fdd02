"""Checkpoints of torch.distributed.checkpoint: a pickled ``.metadata`` and parts in ``*.distcp``.

The pickle is only inspected (`rgt_tui.transfer.pickle_values`), and has no checksum. Each part
inside a ``.distcp`` is a file of ``torch.save`` with checksums of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rgt_tui.profiles import how_many
from rgt_tui.transfer import safe_names, torch_files
from rgt_tui.transfer.file_stretch import OpenStretch, Refused, Stretch, Trouble
from rgt_tui.transfer.pickle_values import Made, Pairs

METADATA = ".metadata"
SUFFIX = ".distcp"
_OWN = "torch.distributed.checkpoint.metadata"


class Part(NamedTuple):
    """Where one part of a checkpoint is."""

    file: str
    offset: int
    length: int


def parts(metadata: Stretch) -> tuple[Part, ...]:
    """Return all parts named in a metadata file, after checking that they cover every tensor.

    Raises:
        Refused: it is damaged, not as torch writes it, or loading it would run code.
        OSError: it cannot be read.
    """
    whole = torch_files.pickled(metadata, safe_names.SHARDED_METADATA).value
    state = _state(whole, "Metadata")
    entries, places = state.get("state_dict_metadata"), state.get("storage_data")
    if type(entries) is not Pairs or type(places) is not Pairs:
        raise Refused("its list of parts or their positions is missing")
    there: dict[tuple[str, tuple[int, ...] | None], None] = {}
    found = []
    for key, value in places.items:
        index = _state(key, "MetadataIndex")
        name = index.get("fqn")
        if type(name) is not str:
            raise Refused("a part of it has no name")
        offset = index.get("offset")
        there[name, None if offset is None else _shape(offset)] = None
        found.append(_part(value))
    for name, entry in entries.items:
        if type(name) is not str or type(entry) is not Made:
            raise Refused("an entry of it is not valid")
        for wanted in _wanted(name, entry):
            if wanted not in there and (name, None) not in there:
                raise Refused(f"the position of a part of {name[:80]!r} is missing")
    return tuple(found)


def _state(record: Any, kind: str) -> Pairs:
    if type(record) is not Made or record.what != (_OWN, kind) or type(record.state) is not Pairs:
        raise Refused(f"it has another value in place of a {kind}")
    return record.state


def _part(record: Any) -> Part:
    if (
        type(record) is not Made
        or record.what.name != "_StorageInfo"
        or type(record.state) is not Pairs
    ):
        raise Refused("something else is where the place of a part belongs")
    file, offset, length = (record.state.get(key) for key in ("relative_path", "offset", "length"))
    if type(file) is not str or not file or "/" in file or "\0" in file or file in (".", ".."):
        raise Refused(f"a part of it is in {str(file)[:80]!r}, which is not a file next to it")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise Refused(f"a part in {file[:80]!r} has no position")
    if record.state.get("transform_descriptors"):
        raise Refused(f"a part in {file[:80]!r} is transformed, which rgt does not check")
    return Part(file, offset, length)


def _wanted(name: str, entry: Made) -> list[tuple[str, tuple[int, ...] | None]]:
    """Return the parts that an entry needs: those of a tensor, or one for anything else."""
    if entry.what == (_OWN, "BytesStorageMetadata"):
        return [(name, None)]
    state = _state(entry, "TensorStorageMetadata")
    size, chunks = _shape(state.get("size")), state.get("chunks")
    if type(chunks) is not list:
        raise Refused(f"the parts of {name[:80]!r} are missing")
    covered = 0
    wanted: list[tuple[str, tuple[int, ...] | None]] = []
    for chunk in chunks:
        about = _state(chunk, "ChunkStorageMetadata")
        offsets, sizes = _shape(about.get("offsets")), _shape(about.get("sizes"))
        if (
            len(offsets) != len(size)
            or len(sizes) != len(size)
            or any(
                offset + length > whole
                for offset, length, whole in zip(offsets, sizes, size, strict=True)
            )
        ):
            raise Refused(f"a part of {name[:80]!r} is outside of it")
        covered += _product(sizes)
        wanted.append((name, offsets))
    if covered != _product(size):
        raise Refused(f"the parts of {name[:80]!r} do not cover it completely")
    return [
        each
        for each, chunk in zip(wanted, chunks, strict=True)
        if _product(_shape(chunk.state.get("sizes")))
    ]


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is Made and value.what == ("torch", "Size") and len(value.arguments) == 1:
        value = value.arguments[0]
    if (
        type(value) in (tuple, list)
        and len(value) <= 64
        and all(type(number) is int and 0 <= number < 1 << 63 for number in value)
    ):
        return tuple(value)
    raise Refused("something else is where a size belongs")


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def examine(folder: Path) -> tuple[str, ...]:
    """Check all parts of the checkpoint in a directory.

    Return the files whose content has checksums.

    Raises:
        Trouble: one of its files is missing, damaged, or not as torch writes it.
        OSError: one cannot be read.
    """
    by_file: dict[str, list[Part]] = {}
    try:
        with OpenStretch(folder / METADATA) as metadata:
            for part in parts(metadata):
                by_file.setdefault(part.file, []).append(part)
    except FileNotFoundError:
        raise Trouble(METADATA, "it is missing: the positions of the parts are unknown") from None
    except Refused as refused:
        raise Trouble(METADATA, str(refused)) from None
    if not by_file and any(path.suffix == SUFFIX for path in folder.iterdir()):
        raise Trouble(METADATA, "it names none of the parts next to it")
    for name, wanted in sorted(by_file.items()):
        try:
            with OpenStretch(folder / name) as whole:
                _file(whole, wanted)
        except FileNotFoundError:
            raise Trouble(
                name, f"it is missing: by {METADATA} it has {how_many(len(wanted), 'part')}"
            ) from None
        except Refused as refused:
            raise Trouble(name, str(refused)) from None
    return tuple(sorted(by_file))


def _file(whole: Stretch, wanted: list[Part]) -> None:
    at = 0
    for part in sorted(set(wanted), key=lambda part: (part.offset, part.length)):
        if part.offset + part.length > whole.length:
            raise Refused(
                f"it is truncated: a part ends at byte {part.offset + part.length}, the file at {whole.length}"
            )
        if part.offset != at:
            raise Refused(f"bytes {at} to {part.offset} belong to no part, or to two")
        at = part.offset + part.length
        try:
            torch_files.examine(whole.part(part.offset, part.length))
        except Refused as refused:
            raise Refused(f"the part at byte {part.offset}: {refused}") from None
    if at != whole.length:
        raise Refused(f"bytes {at} to {whole.length} belong to no part")
