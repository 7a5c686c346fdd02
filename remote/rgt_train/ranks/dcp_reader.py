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
from typing import Any, Dict, Iterable, List, Mapping, NoReturn, Sequence, Tuple, Type, TypeVar

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
from rgt_train.checkpoint.manifest import Damaged, Foreign
from rgt_train.ranks.sharded_state import OBJECTS

METADATA = ".metadata"
"""Name of that file."""
T = TypeVar("T")


class _Seal(type):
    """Metaclass of classes that a pickle may call but never change.

    A pickle can set attributes of any object that it names.
    """

    def __setattr__(cls, name: str, value: Any) -> None:
        raise Damaged(f"{METADATA} sets {name} of a class, which no checkpoint of ours does")


class _Record(metaclass=_Seal):
    """The description of one object in a pickle: arguments and state, unchanged."""

    __slots__ = ("said", "state")
    said: Tuple[Any, ...]
    state: Any

    def __new__(cls, *said: Any) -> "_Record":
        record = super().__new__(cls)
        record.said, record.state = said, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Metadata(_Record): ...


class _Tensor(_Record): ...


class _Bytes(_Record): ...


class _Chunk(_Record): ...


class _Properties(_Record): ...


class _Index(_Record): ...


class _Storage(_Record): ...


class _Saved(_Record):
    """Its path and writer: not needed by a load."""


class _MemoryFormat(_Record): ...


class _Layout(_Record): ...


class _Path(_Record): ...


class _Attribute(_Record):
    """``getattr(owner, name)``: only of the enum of memory formats, and checked when it is used."""


_FORMATS: Dict[Any, torch.memory_format] = {
    0: torch.contiguous_format, "TORCH_CONTIGUOUS_FORMAT": torch.contiguous_format,
    1: torch.channels_last, "TORCH_CHANNELS_LAST": torch.channels_last,
    2: torch.preserve_format, "TORCH_PRESERVE_FORMAT": torch.preserve_format,
}  # fmt: skip
"""By the value and by the name of the enum's members."""
_OWN = "torch.distributed.checkpoint.metadata"
_SHARD = "torch.distributed._shard.sharded_tensor.metadata"
STANDS_FOR: Mapping[Tuple[str, str], Any] = {
    (_OWN, "Metadata"): _Metadata,
    (_OWN, "TensorStorageMetadata"): _Tensor,
    (_OWN, "BytesStorageMetadata"): _Bytes,
    (_OWN, "ChunkStorageMetadata"): _Chunk,
    (_OWN, "TensorProperties"): _Properties,
    (_SHARD, "TensorProperties"): _Properties,
    (_OWN, "MetadataIndex"): _Index,
    (_OWN, "StorageMeta"): _Saved,
    (_OWN, "_MEM_FORMAT_ENCODING"): _MemoryFormat,
    (_SHARD, "MEM_FORMAT_ENCODING"): _MemoryFormat,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Storage,
    ("torch.serialization", "_get_layout"): _Layout,
    ("builtins", "getattr"): _Attribute,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): dict,
    **{
        (module, flavour + "Path"): _Path
        for module in ("pathlib", "pathlib._local")
        for flavour in ("Posix", "PurePosix", "Windows", "PureWindows")
    },
}
"""(Module, name) → its replacement. Every dtype of torch may appear, too."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STANDS_FOR:
            return STANDS_FOR[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise Foreign(
            f"asks for {module}.{name}, which no checkpoint that this version knows holds"
        )


def parse(data: bytes, where: str = METADATA) -> Metadata:
    """Return the metadata of a sharded checkpoint.

    Args:
        data: The file's content.
        where: Its path, for messages.

    Raises:
        Damaged: It is not metadata, or contains something that such a file never has.
        Foreign: It names a class unknown in such files: the checkpoint must not be skipped.
    """
    try:
        return _metadata(_Unpickler(io.BytesIO(data)).load())
    except Foreign as foreign:
        raise Foreign(
            f"{where} {foreign}. It is intact: finish the run with the Python, torch and rgt_train that wrote it, "
            "or give another --out"
        ) from foreign
    except Damaged:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise Damaged(f"{METADATA} cannot be read: {type(error).__name__}: {error}") from error


def _metadata(found: Any) -> Metadata:
    """Make torch's records from ours."""
    if type(found) is not _Metadata:
        _odd("the whole", found)
    tensors: Dict[str, Any] = {}
    for name, entry in _field(found, "state_dict_metadata", dict).items():
        tensors[_be(name, str)] = (
            BytesStorageMetadata() if type(entry) is _Bytes else _tensor(entry)
        )
    where = {
        _index(key): _storage(entry) for key, entry in _field(found, "storage_data", dict).items()
    }
    metadata = Metadata(state_dict_metadata=tensors, storage_data=where)
    version = found.state.get("version")
    if version is not None:
        metadata.version = _be(version, str)
    return metadata


def _tensor(entry: Any) -> TensorStorageMetadata:
    if type(entry) is not _Tensor:
        _odd("an entry", entry)
    chunks: List[ChunkStorageMetadata] = []
    for chunk in _field(entry, "chunks", list):
        if type(chunk) is not _Chunk:
            _odd("a chunk", chunk)
        chunks.append(ChunkStorageMetadata(_size(chunk, "offsets"), _size(chunk, "sizes")))
    return TensorStorageMetadata(
        _properties(_field(entry, "properties", _Properties)), _size(entry, "size"), chunks
    )


def _properties(record: Any) -> TensorProperties:
    dtype, layout, requires_grad, encoding, pin_memory = _be(record.state, tuple)
    if type(layout) is not _Layout or layout.said != ("torch.strided",):
        _odd("a layout", getattr(layout, "said", layout))
    return TensorProperties(
        dtype=_be(dtype, torch.dtype), layout=torch.strided, requires_grad=_be(requires_grad, bool),
        memory_format=_memory_format(encoding), pin_memory=_be(pin_memory, bool),
    )  # fmt: skip


def _memory_format(encoding: Any) -> torch.memory_format:
    if type(encoding) is _MemoryFormat and len(encoding.said) == 1:
        member: Any = _be(encoding.said[0], int)
    elif (
        type(encoding) is _Attribute
        and len(encoding.said) == 2
        and encoding.said[0] is _MemoryFormat
    ):
        member = _be(encoding.said[1], str)
    else:
        _odd("a memory format", getattr(encoding, "said", encoding))
    if member not in _FORMATS:
        _odd("a memory format", member)
    return _FORMATS[member]


def _index(key: Any) -> MetadataIndex:
    if type(key) is not _Index:
        _odd("a place", key)
    offset, index = key.state.get("offset"), key.state.get("index")
    return MetadataIndex(
        _field(key, "fqn", str),
        None if offset is None else _size(key, "offset"),
        None if index is None else _be(index, int),
    )


def _storage(entry: Any) -> _StorageInfo:
    """Return the place of a tensor: in a file of the checkpoint's own, verified directory."""
    if type(entry) is not _Storage:
        _odd("a place", entry)
    name = _field(entry, "relative_path", str)
    if not name.startswith("__") or "/" in name or "\0" in name:
        _odd("a file name", name)
    if entry.state.get("transform_descriptors") is not None:
        _odd("a transformation", entry.state["transform_descriptors"])
    return _StorageInfo(name, _field(entry, "offset", int), _field(entry, "length", int))


def _field(record: Any, name: str, kind: Type[T]) -> T:
    return _be(_be(record.state, dict).get(name), kind)


def _size(record: Any, name: str) -> torch.Size:
    found = _field(record, name, torch.Size)
    if any(type(number) is not int or number < 0 for number in found):
        _odd("a size", found)
    return found


def _be(value: Any, kind: Type[T]) -> T:
    if type(value) is not kind:
        _odd(f"a {kind.__name__}", value)
    found: T = value
    return found


def _odd(what: str, found: Any) -> NoReturn:
    raise Damaged(
        f"{METADATA} holds a {type(found).__name__} ({str(found)[:80]!r}) where {what} belongs"
    )


class SafeReader(FileSystemReader):
    """Torch's reader of a directory, with metadata that is checked first."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata.

        Raises:
            Damaged: See `parse`.
            Foreign: Likewise.
        """
        path = str(self._get_metadata_path(kwargs.get("rank")))
        with open(path, "rb") as file:
            metadata = parse(file.read(), path)
        metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def tensors_in(reader: SafeReader) -> Dict[str, TensorStorageMetadata]:
    """Return the tensors that a sharded checkpoint holds, by name.

    Raises:
        Damaged: See `parse`; or it holds something that is not a tensor and would be unpickled.
        Foreign: See `parse`.
    """
    found: Dict[str, TensorStorageMetadata] = {}
    for name, entry in reader.read_metadata().state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise Damaged(f".metadata: {name} is not a tensor")
        found[name] = entry
    return found


def weights(directory: str, document: Mapping[str, Any]) -> Dict[str, Dict[str, torch.Tensor]]:
    """Return by model the weights and buffers in a checkpoint whose bytes have been verified.

    Args:
        directory: The checkpoint.
        document: Its document of plain values.

    Raises:
        Damaged: Its metadata is not that of a checkpoint.
    """
    found = _read(directory, [f"{model}/" for model in document["models"]])
    result: Dict[str, Dict[str, torch.Tensor]] = {model: {} for model in document["models"]}
    for name, tensor in found.items():
        model, _, key = name.partition("/")
        result[model][key] = tensor
    return result


def objects(directory: str, document: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """Return by name the saved state of parts that are neither models nor optimizers.

    Args:
        directory: The checkpoint.
        document: Its document of plain values.
        names: The parts.

    Raises:
        Damaged: Its metadata is not that of a checkpoint.
    """
    wanted = sorted(names)
    found = _read(directory, [f"{OBJECTS}{name}/" for name in wanted]) if wanted else {}
    return {
        name: encoding.decode(document["objects"][name], lambda key: found[OBJECTS + key])
        for name in wanted
    }


def _read(directory: str, prefixes: Sequence[str]) -> Dict[str, torch.Tensor]:
    reader = SafeReader(directory)
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype, device="cpu")
        for name, entry in tensors_in(reader).items()
        if name.startswith(tuple(prefixes))
    }
    with warnings.catch_warnings():
        # exactly what is intended here
        warnings.filterwarnings("ignore", message=".*single process.*")
        load_sharded(dict(found), storage_reader=reader, no_dist=True)
    return found
