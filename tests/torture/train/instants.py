"""Choosing the moment of a kill: some while after a trainer has begun to write a checkpoint, or any time at all."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Callable
from pathlib import Path

_CREATED, _MOVED_FROM = 0x100, 0x40
_HEAD = struct.Struct("iIII")
_LOOK_S = 0.1


class Saves:
    """Tells when a save begins in the run directory `out`, by inotify."""

    def __init__(self, out: Path) -> None:
        self._root = out / "checkpoints"
        self._libc = ctypes.CDLL(None, use_errno=True)

    def wait(self, over: Callable[[], bool]) -> bool:
        """Wait for the next temporary of a checkpoint; False where there is no folder yet, or `over` says so."""
        fd = self._libc.inotify_init1(os.O_CLOEXEC)
        try:
            mask = _CREATED | _MOVED_FROM
            if fd < 0 or self._libc.inotify_add_watch(fd, os.fsencode(self._root), mask) < 0:
                return False
            while not over():
                if select.select([fd], [], [], _LOOK_S)[0] and self._begun(os.read(fd, 65536)):
                    return True
            return False
        finally:
            if fd >= 0:
                os.close(fd)

    @staticmethod
    def _begun(events: bytes) -> bool:
        at = 0
        while at < len(events):
            _, mask, _, length = _HEAD.unpack_from(events, at)
            name = events[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
            if mask & _CREATED and name.startswith(b".tmp-"):
                return True
            at += _HEAD.size + length
        return False
