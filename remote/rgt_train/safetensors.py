"""Writing a safetensors file: a JSON header and the bytes of the tensors, nothing that could be executed."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any, Dict, List, Mapping, Tuple

import torch

from rgt_train.durable import StrPath, fsync_dir, remove, write_all
from rgt_train.layout import NAMES

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


def _header(tensors: Mapping[str, torch.Tensor], about: Mapping[str, str]) -> Tuple[bytes, List[str]]:
    # Widest first: without gaps, every tensor still starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: Dict[str, Any] = {"__metadata__": {str(k): str(v) for k, v in about.items()}}
    at = 0
    for name in order:
        tensor = tensors[name]
        kind = NAMES.get(str(tensor.dtype).split(".", 1)[1])
        if kind is None:
            raise ValueError(f"{name} has the dtype {tensor.dtype}, which the format does not know")
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGN), order


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor without a copy, and without NumPy, which a box may lack."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")
