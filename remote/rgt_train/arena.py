"""The memory that a snapshot is copied into: made once, shared with the writer process, used again for every save.

Measured for 500 MB: the first touch of fresh shared memory takes 1.25 s, copying into it again 36 ms. So the pages are
touched ahead of the first save, by a thread, and the same ones serve the whole run.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
from typing import Any, Dict, Optional, Tuple

import torch

from rgt_train.layout import Layout, Slot

_POPULATE_WRITE = 23
"""``MADV_POPULATE_WRITE``, Linux 5.14: touch pages without writing to them."""
_PIECE = 32 << 20


class Arena:
    """Shared memory laid out for one state.

    Attributes:
        layout: What lies where.
        fd: Its descriptor, for another process to map.

    Args:
        layout: What it is for.
        pinned: Whether a CUDA device copies into it.

    Raises:
        OSError: There is no memory for it.
    """

    def __init__(self, layout: Layout, *, pinned: bool = False) -> None:
        self.layout = layout
        size = max(layout.total, mmap.PAGESIZE)
        self.fd = _open()
        try:
            os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self._base = torch.frombuffer(self._map, dtype=torch.uint8)
        self._views: Dict[Tuple[str, str], torch.Tensor] = {}
        self._pinned = pinned and _pin(self._base)
        self._touching: Optional[threading.Thread] = None
        for region in layout.regions:
            self._map[region.offset : region.offset + len(region.header)] = region.header

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self._map)

    def touch(self) -> None:
        """Begin to touch all pages in the background."""
        self._touching = threading.Thread(target=self._touch, name="rgt-arena", daemon=True)
        self._touching.start()

    def ready(self) -> None:
        """Wait until all pages are touched."""
        if self._touching is not None:
            self._touching.join()
            self._touching = None

    def view(self, slot: Slot) -> torch.Tensor:
        """Return the tensor at the place `slot`, sharing the memory."""
        key = (slot.spec.file, slot.spec.key)
        if key not in self._views:
            flat = self._base[slot.offset : slot.offset + slot.nbytes]
            if slot.nbytes == 0:
                self._views[key] = torch.empty(slot.spec.shape, dtype=slot.spec.dtype)
            else:
                self._views[key] = flat.view(slot.spec.dtype).view(slot.spec.shape)
        return self._views[key]

    def memory(self) -> memoryview:
        """Return all of it as bytes."""
        return memoryview(self._map)

    def close(self) -> None:
        """Let go of the memory; nothing may use a view of it any more."""
        self.ready()
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        if self._pinned:
            _unpin(self._base)
        self._views.clear()
        del self._base
        try:
            self._map.close()
        except BufferError:
            return  # somebody still looks at it: freed with the last look

    def _touch(self) -> None:
        address = self._base.data_ptr()
        advise = _madvise()
        for begin in range(0, self.size, _PIECE):
            length = min(_PIECE, self.size - begin)
            if advise is None or advise(address + begin, length, _POPULATE_WRITE) != 0:
                return  # an older kernel: the first copy touches them


def _open() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rgt-arena", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="rgt-arena-")
    os.unlink(path)
    return fd


def _madvise() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


def _pin(base: torch.Tensor) -> bool:
    """Let the GPU copy into the memory without the CPU; slower, not wrong, where the driver refuses."""
    try:
        status = torch.cuda.cudart().cudaHostRegister(base.data_ptr(), base.numel(), 0)  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, AttributeError):
        return False
    return int(status) == 0


def _unpin(base: torch.Tensor) -> None:
    try:
        torch.cuda.cudart().cudaHostUnregister(base.data_ptr())  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, AttributeError):
        return
