"""The layout of a state's tensors in safetensors files, and in the shared memory behind them.

The files are ordinary safetensors files (eight bytes of header length, JSON, data without gaps),
whose header is padded so that the data begins on a block. The memory holds the exact bytes of the
files, each beginning on a block.

Measured for 500 MB: the first touch of fresh shared memory takes 1.25 s, copying into it again 36
ms. So a thread touches the pages before the first save, and the same pages are used for the whole
run.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import struct
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import torch

from rgt_train.checkpoint import encoding, manifest
from rgt_train.checkpoint.diskio import (
    ALIGN,
    StrPath,
    fsync_dir,
    open_file,
    read_into,
    remove_path,
    round_up_to_block,
    write_all,
)
from rgt_train.exits import UsageError

__all__ = [
    "ALIGN",
    "ArenaLayout",
    "FileRegion",
    "TensorSlot",
    "TensorSpec",
    "read_tensors",
    "spec_of",
]

NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
    "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64",
}  # fmt: skip
"""torch's name of a dtype → its name in the safetensors format."""
_OTHER = "rgt_dtypes"


@dataclass(frozen=True)
class TensorSpec:
    """The properties that must be equal for a tensor to keep its place."""

    file: str
    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TensorSlot:
    """The place of one tensor: `nbytes` bytes from `offset` in the memory."""

    spec: TensorSpec
    offset: int
    nbytes: int


@dataclass(frozen=True)
class FileRegion:
    """The place of one file: `size` bytes from `offset`, a multiple of the block size; `header` begins it."""

    file: str
    offset: int
    size: int
    header: bytes


class ArenaLayout:
    """The places of the tensors `specs`.

    Attributes:
        specs: The tensors it was made for; another state needs another layout.
        slots: (file, key) → place.
        regions: The files.
        total: Bytes of memory.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.specs = tuple(specs)
        self.slots: dict[tuple[str, str], TensorSlot] = {}
        self.regions: list[FileRegion] = []
        self.total = 0
        for file in dict.fromkeys(spec.file for spec in self.specs):
            self._place_file(file, [spec for spec in self.specs if spec.file == file])

    def _place_file(self, file: str, specs: list[TensorSpec]) -> None:
        # Wide numbers first: without gaps, each still begins at a multiple of its own width.
        ordered = sorted(specs, key=lambda spec: -spec.dtype.itemsize)
        entries: dict[str, Any] = {}
        other: dict[str, str] = {}
        ends: list[tuple[TensorSpec, int, int]] = []
        end = 0
        for spec in ordered:
            count = 1
            for length in spec.shape:
                count *= length
            begin = end
            end = end + count * spec.dtype.itemsize
            name = str(spec.dtype).split(".", 1)[1]
            shape = list(spec.shape)
            if (
                name not in NAMES
            ):  # no name in the format: stored as bytes, with the real dtype in the metadata
                other[spec.key] = json.dumps([name, shape])
                name = "uint8"
                shape = [end - begin]
            entries[spec.key] = {"dtype": NAMES[name], "shape": shape, "data_offsets": [begin, end]}
            ends.append((spec, begin, end))
        header = _encode_header(entries, other)
        offset = self.total
        for spec, begin, stop in ends:
            self.slots[spec.file, spec.key] = TensorSlot(
                spec, offset + len(header) + begin, stop - begin
            )
        self.regions.append(FileRegion(file, offset, len(header) + end, header))
        self.total = offset + round_up_to_block(len(header) + end)


def read_tensors(view: memoryview) -> dict[str, torch.Tensor]:
    """Return the tensors in the content `view` of a file.

    Raises:
        ValueError: It is not a safetensors file.
    """
    if len(view) < 8:
        raise ValueError("too short for a safetensors file")
    length = int.from_bytes(view[:8], "little")
    if length > len(view) - 8:
        raise ValueError("its header is cut off")
    found, memory = _allocate_tensors(bytes(view[: 8 + length]), len(view))
    at = 8 + length
    for piece in memory:
        if piece:
            piece[:] = view[at : at + len(piece)]
        at += len(piece)
    return found


def _allocate_tensors(head: bytes, size: int) -> tuple[dict[str, torch.Tensor], list[memoryview]]:
    """Return empty tensors for a file, and their memory, in the order of the file.

    Args:
        head: The beginning of the file, up to the end of its header.
        size: Length of the file.

    Raises:
        ValueError: It is not a safetensors file.
    """
    header: Mapping[str, Any] = json.loads(head[8:])
    other = json.loads(header.get("__metadata__", {}).get(_OTHER, "{}"))
    kinds = {short: getattr(torch, name) for name, short in NAMES.items() if hasattr(torch, name)}
    found: dict[str, torch.Tensor] = {}
    memory: list[memoryview] = []
    at = len(head)
    entries = [(key, entry) for key, entry in header.items() if key != "__metadata__"]
    for key, entry in sorted(entries, key=lambda pair: pair[1]["data_offsets"]):
        begin, end = (len(head) + offset for offset in entry["data_offsets"])
        dtype = kinds[entry["dtype"]]
        shape = entry["shape"]
        if key in other:
            name, shape = json.loads(other[key])
            dtype = getattr(torch, name)
        # A header may be crafted: no tensor may reach outside of the file or into another one.
        inside = at <= begin <= end <= size
        length = math.prod(shape) * dtype.itemsize
        if not inside or end - begin != length:
            raise ValueError(f"its header gives {key} a place that it cannot have")
        memory.append(memoryview(bytearray(begin - at)))
        found[key] = torch.empty(shape, dtype=dtype, device="cpu")
        memory.append(_tensor_bytes(found[key]))
        at = end
    memory.append(memoryview(bytearray(size - at)))
    return found, memory


def spec_of(file: str, key: str, tensor: torch.Tensor) -> TensorSpec:
    """Return the spec of `tensor`."""
    return TensorSpec(file, key, tensor.dtype, tuple(tensor.shape))


def _encode_header(entries: Mapping[str, Any], other: Mapping[str, str]) -> bytes:
    metadata = {"format": "pt", **({_OTHER: json.dumps(other)} if other else {})}
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    size = round_up_to_block(8 + len(text))
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8, b" ")


def write_tensors(
    path: StrPath, tensors: Mapping[str, torch.Tensor], about: Mapping[str, str]
) -> tuple[int, int]:
    """Write `tensors` to `path`, replacing an existing file only once the new one is on disk.

    Args:
        path: The file.
        tensors: Name → tensor, on any device. Tensors that share memory are written once each.
        about: Plain facts for the header's ``__metadata__``.

    Returns:
        The number of tensors and the bytes of the file.

    Raises:
        OSError: Nothing was replaced and no temporary file is left.
        ValueError: A tensor's dtype has no name in the format.
    """
    target = os.path.abspath(os.fspath(path))
    temporary = os.path.join(os.path.dirname(target), f".tmp-{os.path.basename(target)}")
    header, order = _header_of(tensors, about)
    remove_path(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            write_all(fd, struct.pack("<Q", len(header)) + header, temporary)
            for name in order:
                flat = tensors[name].detach().cpu().contiguous()
                write_all(fd, _tensor_bytes(flat), temporary)
            os.fsync(fd)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        os.replace(temporary, target)
    except BaseException:
        remove_path(temporary)
        raise
    fsync_dir(os.path.dirname(target))
    return len(order), size


def _header_of(
    tensors: Mapping[str, torch.Tensor], about: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    # Widest first: without gaps, every tensor still starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {str(k): str(v) for k, v in about.items()}}
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
    align = 8
    return text + b" " * (-len(text) % align), order


def _tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor without a copy or NumPy, which a box may lack."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


_PIECE = 32 << 20


class SharedArena:
    """Shared memory laid out for one state.

    Attributes:
        layout: The places in it.
        fd: Its descriptor, for another process to map.

    Args:
        layout: The layout of the state.
        pinned: Whether a CUDA device copies into it.

    Raises:
        OSError: There is no memory for it.
    """

    def __init__(self, layout: ArenaLayout, *, pinned: bool = False) -> None:
        self.layout = layout
        # An empty mapping is an error (EINVAL).
        size = max(layout.total, mmap.PAGESIZE)
        self.fd = _open_memory()
        try:
            os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self._base = torch.frombuffer(self._map, dtype=torch.uint8)
        self._views: dict[tuple[str, str], torch.Tensor] = {}
        self._pinned = pinned and _pin_memory(self._base)
        self._touching: threading.Thread | None = None
        for region in layout.regions:
            self._map[region.offset : region.offset + len(region.header)] = region.header

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self._map)

    def touch_pages(self) -> None:
        """Start to touch all pages in the background."""
        self._touching = threading.Thread(target=self._touch_all, name="rgt-arena", daemon=True)
        self._touching.start()

    def wait_touched(self) -> None:
        """Wait until all pages are touched."""
        if self._touching is not None:
            self._touching.join()
            self._touching = None

    def tensor_at(self, slot: TensorSlot) -> torch.Tensor:
        """Return the tensor at the place `slot`, sharing the memory."""
        key = (slot.spec.file, slot.spec.key)
        if key not in self._views:
            shape = slot.spec.shape
            dtype = slot.spec.dtype
            flat = self._base[slot.offset : slot.offset + slot.nbytes]
            if slot.nbytes == 0:
                self._views[key] = torch.empty(shape, dtype=dtype, device="cpu")
            else:
                self._views[key] = flat.view(dtype).view(shape)
        return self._views[key]

    def whole_memory(self) -> memoryview:
        """Return all of it as bytes."""
        return memoryview(self._map)

    def close(self) -> None:
        """Release the memory; no view of it may be used any more."""
        self.wait_touched()
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        if self._pinned:
            _unpin_memory(self._base)
        self._views.clear()
        # The tensor holds the mapping open.
        del self._base
        try:
            self._map.close()
        except BufferError:
            return  # a view is still in use: freed with the last view

    def _touch_all(self) -> None:
        address = self._base.data_ptr()
        advise = _find_madvise()
        # ``MADV_POPULATE_WRITE``, Linux 5.14: touch pages without writing to them.
        populate_write = 23
        for begin in range(0, self.size, _PIECE):
            length = min(_PIECE, self.size - begin)
            if advise is None or advise(address + begin, length, populate_write) != 0:
                return  # an older kernel: the first copy touches them


def _open_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rgt-arena", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="rgt-arena-")
    # Unlinked at once: the memory ends with its last descriptor, also after a kill.
    os.unlink(path)
    return fd


def _find_madvise() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


def _pin_memory(base: torch.Tensor) -> bool:
    """Let the GPU copy into the memory without the CPU.

    Slower, not wrong, if the driver refuses.
    """
    try:
        # torch's own pin_memory() would copy into another buffer.
        status = torch.cuda.cudart().cudaHostRegister(base.data_ptr(), base.numel(), 0)  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, AttributeError):
        return False
    return int(status) == 0


def _unpin_memory(base: torch.Tensor) -> None:
    try:
        torch.cuda.cudart().cudaHostUnregister(base.data_ptr())  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, AttributeError):
        return


MODEL_FILE = "model.safetensors"
"""Weights and buffers of the models."""
TRAINER_FILE = "trainer.safetensors"
"""All other tensors: moments, EMA, gradients of a half-done accumulation."""
STATE_FILE = "state.json"
"""All values that are not tensors, and which tensor belongs where."""
WHOLE, SAMPLED = "whole", "sampled"
"""How the tensors of a checkpoint were compared with those of its step, under ``compared`` in the
document: in full (or copied while nothing else ran), or by samples.
"""


@dataclass(frozen=True)
class StatePart:
    """One tensor of the state.

    Attributes:
        spec: Its file, name, dtype and shape.
        tensor: The live tensor.
        steady: Whether it changes only inside ``optimizer.step()``, as known so far.
    """

    spec: TensorSpec
    tensor: torch.Tensor
    steady: bool


@dataclass
class Collected:
    """A state while it is being collected.

    Attributes:
        parts: Its tensors.
        document: Everything else.
    """

    parts: list[StatePart] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    _names: set[tuple[str, str]] = field(default_factory=set)

    def add_tensor(self, file: str, key: str, tensor: torch.Tensor, steady: bool) -> str:
        """Add a tensor; return its name.

        Raises:
            CannotStore: It is not a plain dense tensor, or its name is already used.
        """
        why = unfit(tensor)
        if why:
            raise encoding.CannotStore(f"{key} {why}")
        if (file, key) in self._names:
            raise encoding.CannotStore(
                f"two tensors would both be kept as {key} in {file}: rename one of them"
            )
        self._names.add((file, key))
        self.parts.append(StatePart(spec_of(file, key, tensor), tensor, steady))
        return key

    def document_bytes(self) -> bytes:
        """Return the document as the content of `STATE_FILE`."""
        return json.dumps(self.document, separators=(",", ":")).encode()


def unfit(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot be stored; empty if it can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "has no shape yet: run one batch through the model before the Run is made"
    if tensor.is_meta:
        return (
            "is on the meta device, without values: materialise it, or make it a "
            "non-persistent buffer"
        )
    if tensor.layout is not torch.strided:
        return f"is a {tensor.layout} tensor, which cannot be stored by a single process"
    if (
        tensor.is_quantized
        or type(tensor).__name__ == "DTensor"
        or hasattr(tensor, "__tensor_flatten__")
    ):
        return f"is a {type(tensor).__name__} tensor, which cannot be stored by a single process"
    return ""


class LoadedCheckpoint:
    """A verified checkpoint, read into memory: every byte is compared while it is read.

    Attributes:
        directory: Its path.
        manifest: Its manifest.
        document: The values that `RunState.collect` stored with the tensors, not yet decoded.

    Args:
        directory: The checkpoint.

    Raises:
        CheckpointDamaged: A byte is not the one written.
        UsageError: It is intact but not one of ours.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._tensors: dict[str, dict[str, torch.Tensor]] = {}
        problems: list[Exception] = []
        heads: dict[str, tuple[bytes, memoryview]] = {}
        contents: dict[str, memoryview] = {}

        def place_file(name: str, path: str, size: int) -> list[memoryview]:
            if not name.endswith(".safetensors"):
                contents[name] = memoryview(bytearray(size))
                return [contents[name]]
            head = _read_head(path, size)
            try:
                self._tensors[name], memory = _allocate_tensors(head, size)
            except OSError:
                raise
            except Exception as error:  # damaged, as its checksum will show, or another's
                problems.append(error)
                return [memoryview(bytearray(size))]
            heads[name] = head, memoryview(bytearray(len(head)))
            return [heads[name][1], *memory]

        self.manifest: Mapping[str, Any] = manifest.verify_checkpoint(
            directory, memory_of=place_file
        )
        for name, (head, verified) in heads.items():
            # The header was read first, to place the tensors; the verified bytes must be the same.
            if verified != head:
                raise manifest.CheckpointDamaged(f"{name}: its header was read in two ways")
        try:
            self.document: dict[str, Any] = json.loads(bytes(contents[STATE_FILE]))
        except (KeyError, ValueError) as error:
            problems.append(error)
        if problems:
            raise UsageError(f"{directory} is intact but cannot be understood: {problems[0]!r}")

    def tensors_of(self, file: str) -> dict[str, torch.Tensor]:
        """Return name → tensor of one file; each has memory of its own."""
        return self._tensors.get(file, {})

    def decode_part(self, encoded: Any, file: str) -> Any:
        """Return a part of the document with its tensors in place.

        Args:
            encoded: The part.
            file: The file of its tensors.
        """
        return encoding.decode_value(encoded, self.tensors_of(file).__getitem__)

    def close(self) -> None:
        """Release the tensors that nothing else uses."""
        self._tensors.clear()


def _read_head(path: str, size: int) -> bytes:
    """Return a file up to the end of its header, or its first bytes if it has none.

    Raises:
        OSError: It cannot be read.
    """
    fd = open_file(path)
    try:
        head = bytearray(min(8, size))
        read_into(fd, 0, memoryview(head))
        length = int.from_bytes(head, "little")
        if length <= size - 8:
            head = bytearray(8 + length)
            read_into(fd, 0, memoryview(head))
    finally:
        os.close(fd)
    return bytes(head)


def load_weights(directory: StrPath) -> dict[str, torch.Tensor]:
    """Return the weights and buffers in the checkpoint `directory`, with every byte verified.

    Raises:
        CheckpointDamaged: A byte is not the one written.
        UnknownFormat: It is of another format.
    """
    return LoadedCheckpoint(str(directory)).tensors_of(MODEL_FILE)
