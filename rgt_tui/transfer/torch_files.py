"""Examines files of ``torch.save`` without loading them: zip files, and pickles before torch 1.6.

In a zip file every record is compared with its CRC-32. The older form, and files saved with
checksums disabled, have none: only lengths are compared, and the result says that the content is
unproven.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from rgt_tui.model import how_many
from rgt_tui.transfer import safe_names
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection
from rgt_tui.transfer.pickle_values import (
    MOST_BYTES,
    BeyondCheckpoint,
    MadeObject,
    PairList,
    PickleContents,
    PickleName,
    StorageReference,
    read_pickle,
    skip_pickle,
)
from rgt_tui.transfer.zip_records import MAGIC, ZipRecord, read_records

LEGACY_NUMBER = 0x1950A86A20F9469CFC6C
"""The first pickle of the older form (torch/serialization.py, ``MAGIC_NUMBER``)."""
_PROTOCOL = b"\x80"
_EMBEDS = "joblib."
"""Prefix of modules that write an array's bytes between the opcodes of a pickle."""
_TAR_NAMES = (b"sys_info", b"pickle", b"storages", b"tensors")
_REBUILDS = {("torch._utils", f"_rebuild_tensor{suffix}") for suffix in ("", "_v2", "_v3")}


class TorchFile(NamedTuple):
    """The result for an undamaged file."""

    checked: bool
    """Every byte of the content was compared with a checksum."""
    legacy: bool
    not_loadable: tuple[str, ...]
    """Contents that ``weights_only`` loading does not accept."""
    zero_ranks: int = 0
    """Ranks among which DeepSpeed's ZeRO divided the optimizer, which is in files of its own; 0 =
    none.
    """


def examine_torch_file(whole: FileSection) -> TorchFile:
    """Check a whole file of ``torch.save``.

    Raises:
        FileRefused: it is damaged, cut off, of another format, or loading it would run code.
        OSError: it cannot be read.
    """
    head = whole.read(0, min(512, whole.length))
    if not head:
        raise FileRefused("it is empty")
    if head.startswith(MAGIC):
        return _zip_file(whole)
    if head.startswith(_PROTOCOL):
        return _examine_legacy(whole)
    if head.split(b"\0", 1)[0] in _TAR_NAMES:
        raise FileRefused("it is a tar file of torch before 0.2, which rgt does not check")
    raise FileRefused(
        "it does not begin like a torch.save file: its first bytes are damaged, or it is another "
        "format"
    )


def _zip_file(whole: FileSection) -> TorchFile:
    found = read_records(whole)
    # torch reads the first folder's records; a second one could hold what other readers see.
    folders = {name.partition("/")[0] for name in found}
    if len(folders) != 1 or not all("/" in name for name in found):
        raise FileRefused("its records are not in one folder, as torch writes them")
    (folder,) = folders
    inner = {name.partition("/")[2]: record for name, record in found.items()}
    # By this record torch.load itself recognises TorchScript.
    if "constants.pkl" in inner:
        raise FileRefused("it is a TorchScript archive, which contains code: it is not loaded")
    if "data.pkl" not in inner or "version" not in inner:
        raise FileRefused(f"it has no record {folder}/data.pkl, or none that says its version")
    # torch.serialization.set_crc32_options(False) writes 0 in every record; chance does not.
    checked = any(record.crc for record in inner.values())
    for record in inner.values() if checked else ():
        record.check_crc()
    pickle = inner["data.pkl"].data
    if pickle.length > MOST_BYTES:
        raise FileRefused(
            f"its pickle has {pickle.length} bytes, more than a checkpoint's may ({MOST_BYTES})"
        )
    # After the checksums: a damaged byte is then reported as damage and not as a strange pickle.
    said = read_pickle(pickle.read_head(MOST_BYTES), safe_names.CHECKPOINT)
    if said.end != pickle.length:
        raise FileRefused("there is something after the end of its pickle")
    _records_of_storages(said, inner)
    return TorchFile(checked, False, _not_loadable(said), _count_zero_ranks(said.value))


def _count_zero_ranks(value: Any) -> int:
    """Return the ranks in the model's file of DeepSpeed (``_save_checkpoint`` in its engine.py)."""
    if type(value) is not PairList or type(value.get("ds_version")) is not str:
        return 0
    ranks = value.get("dp_world_size")
    # It holds the optimizer itself, without ZeRO.
    is_divided = value.get("optimizer") is None and value.get("param_shapes") is not None
    if is_divided and _is_count(ranks):
        return int(ranks)
    return 0


def _not_loadable(*pickles: PickleContents) -> tuple[str, ...]:
    """Return what ``weights_only`` loading rejects: unlisted names, and protocols above 2."""
    names = {name for pickle in pickles for name in pickle.names}
    # torch's own unpickler knows protocol 2.
    newest = max(pickle.protocol for pickle in pickles)
    return (*safe_names.beyond_torch(names), *([f"pickle protocol {newest}"] if newest > 2 else []))


def _records_of_storages(said: PickleContents, inner: dict[str, ZipRecord]) -> None:
    for key, length in _map_storages(said.stored).items():
        record = inner.get(f"data/{key}")
        if record is None:
            raise FileRefused(f"the data of storage {key} are missing")
        if record.data.length != length:
            raise FileRefused(
                f"storage {key} has {record.data.length} bytes, and its tensors need {length}"
            )
    _tensors_fit(said.made)


def _map_storages(stored: Iterable[StorageReference]) -> dict[str, int]:
    """Return the storages that a pickle refers to: key → bytes."""
    found: dict[str, int] = {}
    for storage in stored:
        key, width, count = _parse_storage(storage)
        # Several tensors share a storage, and each names its length.
        if found.setdefault(key, width * count) != width * count:
            raise FileRefused(f"storage {key} has two lengths")
    return found


def _parse_storage(storage: StorageReference) -> tuple[str, int, int]:
    said = storage.said
    if (
        len(said) not in (5, 6)
        or type(said[1]) is not PickleName
        or said[1] not in safe_names.STORAGES
        or type(said[2]) is not str
        or type(said[4]) is not int
        or said[4] < 0
    ):
        raise FileRefused("its pickle refers to a storage in words that torch does not use")
    return said[2], safe_names.STORAGES[said[1]], said[4]


def _tensors_fit(made: Iterable[MadeObject]) -> None:
    """Check that each tensor lies within its storage.

    Raises:
        FileRefused: one does not.
    """
    for call in made:
        if call.what not in _REBUILDS or len(call.arguments) < 4:
            continue
        storage, offset, size, stride = call.arguments[:4]
        if type(storage) is not StorageReference:
            raise FileRefused("a tensor of it has no storage")
        lengths, steps = _parse_shape(size), _parse_shape(stride)
        if lengths is None or steps is None or len(lengths) != len(steps) or not _is_count(offset):
            raise FileRefused("a tensor of it has an invalid shape")
        # An empty tensor touches no element, at any offset.
        if 0 in lengths:
            continue
        # The largest index that its strides reach.
        last = offset + sum(
            (length - 1) * step for length, step in zip(lengths, steps, strict=True)
        )
        if (last + 1) * _element_bytes(call) > _parse_storage(storage)[1] * _parse_storage(storage)[
            2
        ]:
            raise FileRefused(f"a tensor of it reaches beyond storage {_parse_storage(storage)[0]}")


def _element_bytes(call: MadeObject) -> int:
    """Return the bytes per element: of the dtype if given, else of the storage's class."""
    # `_rebuild_tensor_v3` names a dtype: its storage is then untyped, with a width of one byte.
    for said in call.arguments[4:]:
        if type(said) is PickleName and said.module == "torch" and said.name in safe_names.DTYPES:
            return safe_names.DTYPES[said.name]
    return _parse_storage(call.arguments[0])[1]


def _parse_shape(value: Any) -> tuple[int, ...] | None:
    if type(value) is MadeObject and value.what == ("torch", "Size") and len(value.arguments) == 1:
        value = value.arguments[0]
    if type(value) in (tuple, list) and all(_is_count(number) for number in value):
        return tuple(value)
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _examine_legacy(whole: FileSection) -> TorchFile:
    """Check a file from before torch 1.6: five pickles, then each storage's length and bytes."""
    file = whole.read_head(MOST_BYTES)
    first = read_pickle(file, safe_names.CHECKPOINT)
    if first.value != LEGACY_NUMBER:
        return _examine_plain(whole, first)
    # Protocol number, system, the object itself, and the keys of the storages in file order.
    pickles = [read_pickle(file, safe_names.CHECKPOINT) for _ in range(4)]
    version, system, said, keys = pickles
    if type(version.value) is not int or version.value != 1001 or type(keys.value) is not list:
        raise FileRefused("it has an unknown version of torch's old format")
    little = getattr(system.value, "get", lambda _: None)("little_endian")
    if little is not True:
        raise FileRefused("its numbers are big-endian, or their byte order is missing")
    _tensors_fit(said.made)
    lengths = _map_storages(said.stored)
    if len(keys.value) != len(lengths) or not all(
        type(key) is str and key in lengths for key in keys.value
    ):
        raise FileRefused("the storages that it lists are not those that its tensors need")
    counts = {key: count for key, _, count in map(_parse_storage, said.stored)}
    at = keys.end
    for key in keys.value:
        count = int.from_bytes(whole.read(at, 8), "little", signed=True)
        if count != counts[key]:
            raise FileRefused(
                f"storage {key} has {how_many(count, 'element')}, and its tensors need "
                f"{counts[key]}"
            )
        # Eight bytes of length come before the data of each storage.
        at += 8 + lengths[key]
        if at > whole.length:
            raise FileRefused(
                f"it is truncated: storage {key} ends at byte {at}, the file at {whole.length}"
            )
    if at != whole.length:
        raise FileRefused(f"after its end: {how_many(whole.length - at, 'byte')}")
    return TorchFile(False, True, _not_loadable(first, *pickles))


def _examine_plain(whole: FileSection, said: PickleContents) -> TorchFile:
    """Accept a pickle without torch tensors, such as settings."""
    if said.end != whole.length:
        raise FileRefused(
            f"after the end of its pickle: {how_many(whole.length - said.end, 'byte')}"
        )
    if said.stored:
        raise FileRefused("its pickle refers to storages that it does not have")
    return TorchFile(False, True, ("a plain pickle",))


def examine_pickle(whole: FileSection) -> str:
    """Check a file of pickles, perhaps not torch's; return why part of it was not examined, or "".

    A pickle with classes that no checkpoint needs may contain the user's own objects: it is not
    damaged, but not loaded either.

    Raises:
        FileRefused: it is damaged, or cut off.
        OSError: it cannot be read.
    """
    if not whole.read(0, min(1, whole.length)).startswith(_PROTOCOL):
        return (
            "it does not begin like a pickle (Python 2.3 or later); compressed files are not "
            "unpacked"
        )
    if whole.length > MOST_BYTES:
        return f"it has {whole.length} bytes, too many to check"
    file = whole.read_head(MOST_BYTES)
    beyond = ""
    while (start := file.tell()) < whole.length:
        try:
            if read_pickle(file, safe_names.CHECKPOINT).value == LEGACY_NUMBER and not start:
                _examine_legacy(whole)
                return ""
        except BeyondCheckpoint as error:
            beyond = beyond or str(error)
            if _EMBEDS in beyond:
                return beyond
            # From its beginning: it was read only as far as the strange name.
            file.seek(start)
            skip_pickle(file)
    return beyond


def read_single_pickle(whole: FileSection, allowed: Iterable[tuple[str, str]]) -> PickleContents:
    """Return the content of a file that is one pickle.

    Raises:
        FileRefused: it is damaged, too long, or has a name that is not allowed.
    """
    if whole.length > MOST_BYTES:
        raise FileRefused(
            f"it has {whole.length} bytes, more than a pickle of names and numbers may "
            f"({MOST_BYTES})"
        )
    file: BytesIO = whole.read_head(MOST_BYTES)
    said = read_pickle(file, frozenset(allowed))
    if said.end != whole.length:
        raise FileRefused(
            f"after the end of its pickle: {how_many(whole.length - said.end, 'byte')}"
        )
    return said


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
    whole = read_single_pickle(metadata, safe_names.SHARDED_METADATA).value
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
        there[name, None if offset is None else _require_shape(offset)] = None
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
    size, chunks = _require_shape(state.get("size")), state.get("chunks")
    if type(chunks) is not list:
        raise FileRefused(f"the parts of {name[:80]!r} are missing")
    covered = 0
    wanted: list[tuple[str, tuple[int, ...] | None]] = []
    for chunk in chunks:
        about = _state_of(chunk, "ChunkStorageMetadata")
        offsets, sizes = _require_shape(about.get("offsets")), _require_shape(about.get("sizes"))
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
        if _product(_require_shape(chunk.state.get("sizes")))
    ]


def _require_shape(value: Any) -> tuple[int, ...]:
    shape = _parse_shape(value)
    if shape is None or len(shape) > 64 or any(number >= 1 << 63 for number in shape):
        raise FileRefused("something else is where a size belongs")
    return shape


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
                f"it is truncated: a part ends at byte {part.offset + part.length}, the file at "
                f"{whole.length}"
            )
        if part.offset != at:
            raise FileRefused(f"bytes {at} to {part.offset} belong to no part, or to two")
        at = part.offset + part.length
        try:
            examine_torch_file(whole.subsection(part.offset, part.length))
        except FileRefused as refused:
            raise FileRefused(f"the part at byte {part.offset}: {refused}") from None
    if at != whole.length:
        raise FileRefused(f"bytes {at} to {whole.length} belong to no part")
