"""Where each tensor of a state lies: in the files of a checkpoint, and in the memory they are written from.

The files are ordinary safetensors files (eight bytes of header length, JSON, data without gaps), whose header is
padded so that the data begin on a block. The memory holds the very bytes of the files, each beginning on a block.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import torch

from rgt_train.direct import ALIGN, padded

NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64",
}  # fmt: skip
"""torch's name of a dtype → that of the safetensors format."""
_OTHER = "rgt_dtypes"


@dataclass(frozen=True)
class Spec:
    """What must be equal for a tensor to have the same place as before."""

    file: str
    key: str
    dtype: torch.dtype
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """The place of one tensor: `nbytes` bytes from `offset` in the memory."""

    spec: Spec
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Region:
    """The place of one file: `size` bytes from `offset`, a multiple of the block size; `header` begins it."""

    file: str
    offset: int
    size: int
    header: bytes


class Layout:
    """The places of the tensors `specs`.

    Attributes:
        specs: What it was made for; another state needs another layout.
        slots: (file, key) → place.
        regions: The files.
        total: Bytes of memory.
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = tuple(specs)
        self.slots: Dict[Tuple[str, str], Slot] = {}
        self.regions: List[Region] = []
        self.total = 0
        for file in dict.fromkeys(spec.file for spec in self.specs):
            self._place(file, [spec for spec in self.specs if spec.file == file])

    def _place(self, file: str, specs: List[Spec]) -> None:
        # Wide numbers first: without gaps, each still begins at a multiple of its own width.
        ordered = sorted(specs, key=lambda spec: -spec.dtype.itemsize)
        entries: Dict[str, Any] = {}
        other: Dict[str, str] = {}
        ends: List[Tuple[Spec, int, int]] = []
        end = 0
        for spec in ordered:
            count = 1
            for length in spec.shape:
                count *= length
            begin, end = end, end + count * spec.dtype.itemsize
            name = str(spec.dtype).split(".", 1)[1]
            shape = list(spec.shape)
            if (
                name not in NAMES
            ):  # no name in the format: kept as bytes, and told in the metadata what they are
                other[spec.key] = json.dumps([name, shape])
                name, shape = "uint8", [end - begin]
            entries[spec.key] = {"dtype": NAMES[name], "shape": shape, "data_offsets": [begin, end]}
            ends.append((spec, begin, end))
        header = _header(entries, other)
        offset = self.total
        for spec, begin, stop in ends:
            self.slots[spec.file, spec.key] = Slot(spec, offset + len(header) + begin, stop - begin)
        self.regions.append(Region(file, offset, len(header) + end, header))
        self.total = offset + padded(len(header) + end)


def read(view: memoryview) -> Dict[str, torch.Tensor]:
    """Return the tensors in the content `view` of a file, without copying them.

    Raises:
        ValueError: It is not a safetensors file.
    """
    if len(view) < 8:
        raise ValueError("too short for a safetensors file")
    length = int.from_bytes(view[:8], "little")
    if length > len(view) - 8:
        raise ValueError("its header is cut off")
    header: Mapping[str, Any] = json.loads(bytes(view[8 : 8 + length]))
    other = json.loads(header.get("__metadata__", {}).get(_OTHER, "{}"))
    kinds = {short: getattr(torch, name) for name, short in NAMES.items() if hasattr(torch, name)}
    found: Dict[str, torch.Tensor] = {}
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype, shape = kinds[entry["dtype"]], entry["shape"]
        if key in other:
            name, shape = json.loads(other[key])
            dtype = getattr(torch, name)
        found[key] = _tensor(view[begin:end], dtype, shape)
    return found


def spec_of(file: str, key: str, tensor: torch.Tensor) -> Spec:
    """Return the spec of `tensor`."""
    return Spec(file, key, tensor.dtype, tuple(tensor.shape))


def _tensor(view: memoryview, dtype: torch.dtype, shape: Iterable[int]) -> torch.Tensor:
    shape = list(shape)
    if len(view) == 0:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(view, dtype=torch.uint8)  # bytes first: a view may begin anywhere
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).view(shape)


def _header(entries: Mapping[str, Any], other: Mapping[str, str]) -> bytes:
    metadata = {"format": "pt", **({_OTHER: json.dumps(other)} if other else {})}
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    size = padded(8 + len(text))
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8, b" ")


__all__ = ["ALIGN", "Layout", "Region", "Slot", "Spec", "read", "spec_of"]
