"""Reads files of torch.distributed.checkpoint without letting the metadata build objects.

``.metadata`` is a pickle, and torch's reader loads it without any check (torch 2.13,
distributed/checkpoint/filesystem.py, ``read_metadata``). Here no torch object is built while it is
read: each name in such a file is replaced by a sealed record of ours, which stores its arguments
and can do nothing. Then torch's records are made from those, by the classes of the running torch,
and every field is checked. So a file reads the same for every Python and torch that wrote it; they
differ in the module of a class and in the form of an enum or a path:

- an enum is its class and its value, but in Python 3.11.0 to 3.11.3 ``getattr`` of its class and
  its name;
- a path is of ``pathlib``, but in Python 3.13 of ``pathlib._local``;
- the properties of a tensor are of ``torch.distributed.checkpoint.metadata``, in older torch of
  ``_shard``.

Tensors are already read by ``torch.load(weights_only=True)``, and plain values never go through
this format.
"""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any, Iterable, Mapping, NoReturn, Sequence, TypeVar

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from rgt_train.checkpoint import encoding
from rgt_train.checkpoint.manifest import CheckpointDamaged, UnknownFormat
from rgt_train.ranks.sharded_state import OBJECTS

METADATA = ".metadata"
"""Name of that file."""
T = TypeVar("T")


class _SealedMeta(type):
    """Metaclass of classes that a pickle may call but never change.

    A pickle can set attributes of any object that it names.
    """

    def __setattr__(cls, name: str, value: Any) -> None:
        raise CheckpointDamaged(
            f"{METADATA} sets {name} of a class, which no checkpoint of ours does"
        )


class _PickleRecord(metaclass=_SealedMeta):
    """The description of one object in a pickle: arguments and state, unchanged."""

    __slots__ = ("said", "state")
    said: tuple[Any, ...]
    state: Any

    def __new__(cls, *said: Any) -> "_PickleRecord":
        record = super().__new__(cls)
        record.said = said
        record.state = None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _MetadataRecord(_PickleRecord): ...


class _TensorRecord(_PickleRecord): ...


class _BytesRecord(_PickleRecord): ...


class _ChunkRecord(_PickleRecord): ...


class _PropertiesRecord(_PickleRecord): ...


class _IndexRecord(_PickleRecord): ...


class _StorageRecord(_PickleRecord): ...


class _SavedRecord(_PickleRecord):
    """Its path and writer: not needed by a load."""


class _MemoryFormatRecord(_PickleRecord): ...


class _LayoutRecord(_PickleRecord): ...


class _PathRecord(_PickleRecord): ...


class _AttributeRecord(_PickleRecord):
    """``getattr(owner, name)``: only of the enum of memory formats, and checked when it is used."""


_FORMATS: dict[Any, torch.memory_format] = {
    0: torch.contiguous_format, "TORCH_CONTIGUOUS_FORMAT": torch.contiguous_format,
    1: torch.channels_last, "TORCH_CHANNELS_LAST": torch.channels_last,
    2: torch.preserve_format, "TORCH_PRESERVE_FORMAT": torch.preserve_format,
}  # fmt: skip
"""By the value and by the name of the enum's members."""
_OWN = "torch.distributed.checkpoint.metadata"
_SHARD = "torch.distributed._shard.sharded_tensor.metadata"
STANDS_FOR: Mapping[tuple[str, str], Any] = {
    (_OWN, "Metadata"): _MetadataRecord,
    (_OWN, "TensorStorageMetadata"): _TensorRecord,
    (_OWN, "BytesStorageMetadata"): _BytesRecord,
    (_OWN, "ChunkStorageMetadata"): _ChunkRecord,
    (_OWN, "TensorProperties"): _PropertiesRecord,
    (_SHARD, "TensorProperties"): _PropertiesRecord,
    (_OWN, "MetadataIndex"): _IndexRecord,
    (_OWN, "StorageMeta"): _SavedRecord,
    (_OWN, "_MEM_FORMAT_ENCODING"): _MemoryFormatRecord,
    (_SHARD, "MEM_FORMAT_ENCODING"): _MemoryFormatRecord,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageRecord,
    ("torch.serialization", "_get_layout"): _LayoutRecord,
    ("builtins", "getattr"): _AttributeRecord,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): dict,
    **{
        (module, flavour + "Path"): _PathRecord
        for module in ("pathlib", "pathlib._local")
        for flavour in ("Posix", "PurePosix", "Windows", "PureWindows")
    },
}
"""(Module, name) → its replacement. Every dtype of torch may appear, too."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STANDS_FOR:
            return STANDS_FOR[module, name]
        # dtypes are plain constants, and cannot do anything.
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise UnknownFormat(
            f"asks for {module}.{name}, which no checkpoint that this version knows holds"
        )


def parse_metadata(data: bytes, where: str = METADATA) -> Metadata:
    """Return the metadata of a sharded checkpoint.

    Args:
        data: The file's content.
        where: Its path, for messages.

    Raises:
        CheckpointDamaged: It is not metadata, or contains something that such a file never has.
        UnknownFormat: It names a class unknown in such files: the checkpoint must not be skipped.
    """
    try:
        return _build_metadata(_Unpickler(io.BytesIO(data)).load())
    except UnknownFormat as foreign:
        raise UnknownFormat(
            f"{where} {foreign}. It is intact: finish the run with the Python, torch and rgt_train "
            "that wrote it, or give another --out"
        ) from foreign
    except CheckpointDamaged:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointDamaged(
            f"{METADATA} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _build_metadata(found: Any) -> Metadata:
    """Make torch's records from ours."""
    if type(found) is not _MetadataRecord:
        _raise_damaged("the whole", found)
    tensors: dict[str, Any] = {}
    for name, entry in _typed_field(found, "state_dict_metadata", dict).items():
        if type(entry) is _BytesRecord:
            tensors[_require_type(name, str)] = BytesStorageMetadata()
        else:
            tensors[_require_type(name, str)] = _build_tensor(entry)
    where = {
        _build_index(key): _build_storage(entry)
        for key, entry in _typed_field(found, "storage_data", dict).items()
    }
    metadata = Metadata(state_dict_metadata=tensors, storage_data=where)
    version = found.state.get("version")
    if version is not None:
        metadata.version = _require_type(version, str)
    return metadata


def _build_tensor(entry: Any) -> TensorStorageMetadata:
    if type(entry) is not _TensorRecord:
        _raise_damaged("an entry", entry)
    chunks: list[ChunkStorageMetadata] = []
    for chunk in _typed_field(entry, "chunks", list):
        if type(chunk) is not _ChunkRecord:
            _raise_damaged("a chunk", chunk)
        chunks.append(
            ChunkStorageMetadata(_checked_size(chunk, "offsets"), _checked_size(chunk, "sizes"))
        )
    return TensorStorageMetadata(
        _build_properties(_typed_field(entry, "properties", _PropertiesRecord)),
        _checked_size(entry, "size"),
        chunks,
    )


def _build_properties(record: Any) -> TensorProperties:
    dtype, layout, requires_grad, encoding, pin_memory = _require_type(record.state, tuple)
    if type(layout) is not _LayoutRecord or layout.said != ("torch.strided",):
        _raise_damaged("a layout", getattr(layout, "said", layout))
    return TensorProperties(
        dtype=_require_type(dtype, torch.dtype), layout=torch.strided,
        requires_grad=_require_type(requires_grad, bool),
        memory_format=_build_memory_format(encoding), pin_memory=_require_type(pin_memory, bool),
    )  # fmt: skip


def _build_memory_format(encoding: Any) -> torch.memory_format:
    if type(encoding) is _MemoryFormatRecord and len(encoding.said) == 1:
        member: Any = _require_type(encoding.said[0], int)
    elif (
        type(encoding) is _AttributeRecord
        and len(encoding.said) == 2
        and encoding.said[0] is _MemoryFormatRecord
    ):
        member = _require_type(encoding.said[1], str)
    else:
        _raise_damaged("a memory format", getattr(encoding, "said", encoding))
    if member not in _FORMATS:
        _raise_damaged("a memory format", member)
    return _FORMATS[member]


def _build_index(key: Any) -> MetadataIndex:
    if type(key) is not _IndexRecord:
        _raise_damaged("a place", key)
    offset = key.state.get("offset")
    index = key.state.get("index")
    return MetadataIndex(
        _typed_field(key, "fqn", str),
        None if offset is None else _checked_size(key, "offset"),
        None if index is None else _require_type(index, int),
    )


def _build_storage(entry: Any) -> _StorageInfo:
    """Return the place of a tensor: in a file of the checkpoint's own, verified directory."""
    if type(entry) is not _StorageRecord:
        _raise_damaged("a place", entry)
    name = _typed_field(entry, "relative_path", str)
    # torch names its files ``__RANK_NUMBER.distcp``; a path could lead out of the directory.
    if not name.startswith("__") or "/" in name or "\0" in name:
        _raise_damaged("a file name", name)
    # Extensions of torch's format, such as compression: ours writes none.
    if entry.state.get("transform_descriptors") is not None:
        _raise_damaged("a transformation", entry.state["transform_descriptors"])
    return _StorageInfo(
        name, _typed_field(entry, "offset", int), _typed_field(entry, "length", int)
    )


def _typed_field(record: Any, name: str, kind: type[T]) -> T:
    return _require_type(_require_type(record.state, dict).get(name), kind)


def _checked_size(record: Any, name: str) -> torch.Size:
    found = _typed_field(record, name, torch.Size)
    if any(type(number) is not int or number < 0 for number in found):
        _raise_damaged("a size", found)
    return found


def _require_type(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        _raise_damaged(f"a {kind.__name__}", value)
    found: T = value
    return found


def _raise_damaged(what: str, found: Any) -> NoReturn:
    raise CheckpointDamaged(
        f"{METADATA} holds a {type(found).__name__} ({str(found)[:80]!r}) where {what} belongs"
    )


class SafeReader(FileSystemReader):
    """Torch's reader of a directory, with metadata that is checked first."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata.

        Raises:
            CheckpointDamaged: See `parse_metadata`.
            UnknownFormat: Likewise.
        """
        path = str(self._get_metadata_path(kwargs.get("rank")))
        with open(path, "rb") as file:
            metadata = parse_metadata(file.read(), path)
        metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def tensors_in(reader: SafeReader) -> dict[str, TensorStorageMetadata]:
    """Return the tensors that a sharded checkpoint holds, by name.

    Raises:
        CheckpointDamaged: See `parse_metadata`; or it holds something that is not a tensor and
            would be unpickled.
        UnknownFormat: See `parse_metadata`.
    """
    found: dict[str, TensorStorageMetadata] = {}
    for name, entry in reader.read_metadata().state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise CheckpointDamaged(f".metadata: {name} is not a tensor")
        found[name] = entry
    return found


def read_weights(directory: str, document: Mapping[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
    """Return by model the weights and buffers in a checkpoint whose bytes have been verified.

    Args:
        directory: The checkpoint.
        document: Its document of plain values.

    Raises:
        CheckpointDamaged: Its metadata is not that of a checkpoint.
    """
    found = _read_tensors(directory, [f"{model}/" for model in document["models"]])
    result: dict[str, dict[str, torch.Tensor]] = {model: {} for model in document["models"]}
    for name, tensor in found.items():
        model, _, key = name.partition("/")
        result[model][key] = tensor
    return result


def read_objects(
    directory: str, document: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """Return by name the saved state of parts that are neither models nor optimizers.

    Args:
        directory: The checkpoint.
        document: Its document of plain values.
        names: The parts.

    Raises:
        CheckpointDamaged: Its metadata is not that of a checkpoint.
    """
    wanted = sorted(names)
    if wanted:
        found = _read_tensors(directory, [f"{OBJECTS}{name}/" for name in wanted])
    else:
        found = {}
    return {
        name: encoding.decode_value(document["objects"][name], lambda key: found[OBJECTS + key])
        for name in wanted
    }


def _read_tensors(directory: str, prefixes: Sequence[str]) -> dict[str, torch.Tensor]:
    reader = SafeReader(directory)
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype, device="cpu")
        for name, entry in tensors_in(reader).items()
        if name.startswith(tuple(prefixes))
    }
    with warnings.catch_warnings():
        # intended here
        warnings.filterwarnings("ignore", message=".*single process.*")
        load_sharded(dict(found), storage_reader=reader, no_dist=True)
    return found
