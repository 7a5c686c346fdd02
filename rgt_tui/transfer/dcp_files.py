"""Checkpoints of torch.distributed.checkpoint: a pickled ``.metadata`` and parts in ``*.distcp``.

The pickle is only inspected (`rgt_tui.transfer.pickle_values`), and has no checksum. Each part
inside a ``.distcp`` is a file of ``torch.save`` with checksums of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rgt_tui.profiles import how_many
from rgt_tui.transfer import safe_names, torch_files
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection
from rgt_tui.transfer.pickle_values import MadeObject, PairList

METADATA = ".metadata"
SUFFIX = ".distcp"
_OWN = "torch.distributed.checkpoint.metadata"


class CheckpointPart(NamedTuple):
    """Where one part of a checkpoint is."""

    file: str
    offset: int
    length: int


def read_parts(metadata: FileSection) -> tuple[CheckpointPart, ...]:
    """Return all parts named in a metadata file, after checking that they cover every tensor.

    Raises:
        FileRefused: it is damaged, not as torch writes it, or loading it would run code.
        OSError: it cannot be read.
    """
    whole = torch_files.read_single_pickle(metadata, safe_names.SHARDED_METADATA).value
    state = _state_of(whole, "Metadata")
    entries, places = state.get("state_dict_metadata"), state.get("storage_data")
    if type(entries) is not PairList or type(places) is not PairList:
        raise FileRefused("its list of parts or their positions is missing")
    # A dictionary as an ordered set, by name and offset of a part.
    there: dict[tuple[str, tuple[int, ...] | None], None] = {}
    found = []
    for key, value in places.items:
        index = _state_of(key, "MetadataIndex")
        name = index.get("fqn")
        if type(name) is not str:
            raise FileRefused("a part of it has no name")
        offset = index.get("offset")
        there[name, None if offset is None else _parse_shape(offset)] = None
        found.append(_parse_part(value))
    for name, entry in entries.items:
        if type(name) is not str or type(entry) is not MadeObject:
            raise FileRefused("an entry of it is not valid")
        for wanted in _parts_of_entry(name, entry):
            # An entry that is not split has no offset.
            if wanted not in there and (name, None) not in there:
                raise FileRefused(f"the position of a part of {name[:80]!r} is missing")
    return tuple(found)


def _state_of(record: Any, kind: str) -> PairList:
    if (
        type(record) is not MadeObject
        or record.what != (_OWN, kind)
        or type(record.state) is not PairList
    ):
        raise FileRefused(f"it has another value in place of a {kind}")
    return record.state


def _parse_part(record: Any) -> CheckpointPart:
    if (
        type(record) is not MadeObject
        or record.what.name != "_StorageInfo"
        or type(record.state) is not PairList
    ):
        raise FileRefused("something else is where the place of a part belongs")
    file, offset, length = (record.state.get(key) for key in ("relative_path", "offset", "length"))
    # The name comes from the pickle: it must not lead out of the checkpoint.
    if type(file) is not str or not file or "/" in file or "\0" in file or file in (".", ".."):
        raise FileRefused(f"a part of it is in {str(file)[:80]!r}, which is not a file next to it")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise FileRefused(f"a part in {file[:80]!r} has no position")
    # A part that was transformed, e.g. compressed, is not the bytes of a torch.save file.
    if record.state.get("transform_descriptors"):
        raise FileRefused(f"a part in {file[:80]!r} is transformed, which rgt does not check")
    return CheckpointPart(file, offset, length)


def _parts_of_entry(name: str, entry: MadeObject) -> list[tuple[str, tuple[int, ...] | None]]:
    """Return the parts that an entry needs: those of a tensor, or one for anything else."""
    if entry.what == (_OWN, "BytesStorageMetadata"):
        return [(name, None)]
    state = _state_of(entry, "TensorStorageMetadata")
    size, chunks = _parse_shape(state.get("size")), state.get("chunks")
    if type(chunks) is not list:
        raise FileRefused(f"the parts of {name[:80]!r} are missing")
    covered = 0
    wanted: list[tuple[str, tuple[int, ...] | None]] = []
    for chunk in chunks:
        about = _state_of(chunk, "ChunkStorageMetadata")
        offsets, sizes = _parse_shape(about.get("offsets")), _parse_shape(about.get("sizes"))
        if (
            len(offsets) != len(size)
            or len(sizes) != len(size)
            or any(
                offset + length > whole
                for offset, length, whole in zip(offsets, sizes, size, strict=True)
            )
        ):
            raise FileRefused(f"a part of {name[:80]!r} is outside of it")
        covered += _product(sizes)
        wanted.append((name, offsets))
    # By volume: overlaps are found by the offsets in the files below.
    if covered != _product(size):
        raise FileRefused(f"the parts of {name[:80]!r} do not cover it completely")
    return [
        each
        for each, chunk in zip(wanted, chunks, strict=True)
        # Ranks without a share have empty chunks, for which nothing is stored.
        if _product(_parse_shape(chunk.state.get("sizes")))
    ]


def _parse_shape(value: Any) -> tuple[int, ...]:
    if type(value) is MadeObject and value.what == ("torch", "Size") and len(value.arguments) == 1:
        value = value.arguments[0]
    if (
        type(value) in (tuple, list)
        and len(value) <= 64
        and all(type(number) is int and 0 <= number < 1 << 63 for number in value)
    ):
        return tuple(value)
    raise FileRefused("something else is where a size belongs")


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def examine_checkpoint(folder: Path) -> tuple[str, ...]:
    """Check all parts of the checkpoint in a directory.

    Return the files whose content has checksums.

    Raises:
        MemberFileError: one of its files is missing, damaged, or not as torch writes it.
        OSError: one cannot be read.
    """
    by_file: dict[str, list[CheckpointPart]] = {}
    try:
        with OpenFileSection(folder / METADATA) as metadata:
            for part in read_parts(metadata):
                by_file.setdefault(part.file, []).append(part)
    except FileNotFoundError:
        raise MemberFileError(
            METADATA, "it is missing: the positions of the parts are unknown"
        ) from None
    except FileRefused as refused:
        raise MemberFileError(METADATA, str(refused)) from None
    # No parts at all would pass every check below.
    if not by_file and any(path.suffix == SUFFIX for path in folder.iterdir()):
        raise MemberFileError(METADATA, "it names none of the parts next to it")
    for name, wanted in sorted(by_file.items()):
        try:
            with OpenFileSection(folder / name) as whole:
                _check_part_file(whole, wanted)
        except FileNotFoundError:
            raise MemberFileError(
                name, f"it is missing: by {METADATA} it has {how_many(len(wanted), 'part')}"
            ) from None
        except FileRefused as refused:
            raise MemberFileError(name, str(refused)) from None
    return tuple(sorted(by_file))


def _check_part_file(whole: FileSection, wanted: list[CheckpointPart]) -> None:
    at = 0
    # A set: the same part may be listed for several names.
    for part in sorted(set(wanted), key=lambda part: (part.offset, part.length)):
        if part.offset + part.length > whole.length:
            raise FileRefused(
                f"it is truncated: a part ends at byte {part.offset + part.length}, the file at {whole.length}"
            )
        if part.offset != at:
            raise FileRefused(f"bytes {at} to {part.offset} belong to no part, or to two")
        at = part.offset + part.length
        try:
            torch_files.examine_torch_file(whole.subsection(part.offset, part.length))
        except FileRefused as refused:
            raise FileRefused(f"the part at byte {part.offset}: {refused}") from None
    if at != whole.length:
        raise FileRefused(f"bytes {at} to {whole.length} belong to no part")
