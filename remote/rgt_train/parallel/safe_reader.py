"""Reads what torch.distributed.checkpoint wrote, without letting its metadata file build arbitrary objects.

``.metadata`` is a pickle; the reader of torch loads it as it comes (torch 2.13, distributed/checkpoint/filesystem.py,
``read_metadata``). Here only the record types that such a file is made of are allowed. Tensors are read by
``torch.load(weights_only=True)`` already, and plain values never go through this format.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Dict

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from rgt_train.manifest import Damaged

METADATA = ".metadata"
"""Name of that file."""
ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties", "MetadataIndex", "StorageMeta",
        "_MEM_FORMAT_ENCODING", "BytesStorageMetadata",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}  # fmt: skip
"""Module → names. Every dtype of torch may appear, too."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise Damaged(f".metadata asks for {module}.{name}, which no checkpoint of ours holds")


def parse(data: bytes) -> Metadata:
    """Return the metadata of a sharded checkpoint.

    Raises:
        Damaged: It is none, or asks for anything beyond the records that such a file is made of.
    """
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except Damaged:
        raise
    except Exception as error:  # whatever a damaged pickle ends in
        raise Damaged(f".metadata cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, Metadata):
        raise Damaged(f".metadata holds a {type(found).__name__}")
    return found


class SafeReader(FileSystemReader):
    """Like torch's reader of a directory, with metadata that is checked first."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata.

        Raises:
            Damaged: See `parse`.
        """
        with open(str(self._get_metadata_path(kwargs.get("rank"))), "rb") as file:
            metadata = parse(file.read())
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def tensors_in(reader: SafeReader) -> Dict[str, TensorStorageMetadata]:
    """Return the tensors that a sharded checkpoint holds, by name.

    Raises:
        Damaged: See `parse`; or it holds something that is no tensor, which would have to be unpickled.
    """
    found: Dict[str, TensorStorageMetadata] = {}
    for name, entry in reader.read_metadata().state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise Damaged(f".metadata: {name} is no tensor")
        found[name] = entry
    return found
