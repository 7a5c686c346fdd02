"""The safetensors file format: a JSON header and the bytes of the tensors, nothing that could be executed.

Eight bytes give the header's length (little endian), the header maps names to dtype, shape and place, the tensors
follow without gaps. Files written here load with the ``safetensors`` package and the other way round.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
from typing import Any, Dict, Mapping, Tuple

import torch

from rgt_train.durable import StrPath, fsync_dir, remove, write_all

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64",
}  # fmt: skip
DTYPES: Dict[str, torch.dtype] = {
    code: getattr(torch, name) for name, code in _NAMES.items() if hasattr(torch, name)
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_LARGEST_HEADER = 100_000_000
_ALIGN = 8


def write(path: StrPath, tensors: Mapping[str, torch.Tensor], about: Mapping[str, str]) -> Tuple[int, int]:
    """Write `tensors` to `path`, replacing a file there only when the new one is completely on disk.

    Args:
        path: The file.
        tensors: Name → tensor, on any device. Tensors that share memory are written once each.
        about: Plain facts for the header's ``__metadata__``.

    Returns:
        The number of tensors and the bytes of the file.

    Raises:
        OSError: Nothing was replaced and no temporary is left.
        ValueError: A tensor's dtype has no name in the format.
    """
    target = os.path.abspath(os.fspath(path))
    temporary = os.path.join(os.path.dirname(target), f".tmp-{os.path.basename(target)}")
    header, order = _header(tensors, about)
    remove(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            write_all(fd, struct.pack("<Q", len(header)) + header, temporary)
            for name in order:
                flat = tensors[name].detach().cpu().contiguous()
                write_all(fd, _memory(flat), temporary)
            os.fsync(fd)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        os.replace(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    fsync_dir(os.path.dirname(target))
    return len(order), size


def read(path: StrPath) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    """Return the tensors of the file at `path`, and its facts.

    Raises:
        ValueError: It is no such file, or its parts do not fit together; nothing is guessed.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else -1
    if not 2 <= size <= min(_LARGEST_HEADER, len(data) - 8):
        raise ValueError(f"{path} is no safetensors file: its header would have {size} bytes of {len(data)}")
    try:
        header: Dict[str, Any] = json.loads(bytes(data[8 : 8 + size]))
        about = {str(k): str(v) for k, v in header.pop("__metadata__", {}).items()}
        tensors: Dict[str, torch.Tensor] = {}
        expected = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            dtype, shape = DTYPES[entry["dtype"]], [int(n) for n in entry["shape"]]
            if (
                begin != expected
                or end - begin != math.prod(shape) * dtype.itemsize
                or 8 + size + end > len(data)
            ):
                raise ValueError(f"{name} lies outside its place")
            tensors[name] = _tensor(data, 8 + size + begin, end - begin, dtype).reshape(shape)
            expected = end
        if 8 + size + expected != len(data):
            raise ValueError(f"{len(data) - 8 - size - expected} bytes belong to no tensor")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return tensors, about


def _header(tensors: Mapping[str, torch.Tensor], about: Mapping[str, str]) -> Tuple[bytes, "list[str]"]:
    for name, tensor in tensors.items():
        if tensor.dtype not in _CODES:
            raise ValueError(f"{name} has the dtype {tensor.dtype}, which the format does not know")
    # Widest first, as the format's own writer does: every tensor then starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: Dict[str, Any] = {"__metadata__": {str(k): str(v) for k, v in about.items()}}
    at = 0
    for name in order:
        tensor = tensors[name]
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGN), order


def _tensor(data: bytearray, offset: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    if not size:
        return torch.empty(0, dtype=dtype)
    raw = torch.frombuffer(data, dtype=torch.uint8, offset=offset, count=size)
    return raw.clone().view(dtype)  # a copy: the place in the file need not be aligned


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor without a copy, and without NumPy, which a box may lack."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")
