"""Deciding on each file operation of a trainer: let it through, let it fail, or kill whoever asks."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.torture.train.syscalls import NAMES

_RECV, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_AT_FDCWD = -100
_PATH = {
    "open",
    "creat",
    "stat",
    "lstat",
    "access",
    "mkdir",
    "rmdir",
    "unlink",
    "statfs",
    "truncate",
}
_AT_PATH = {"openat", "mkdirat", "unlinkat", "newfstatat", "statx"}
_TWO_PATHS = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
KILL = -1
"""What a decision returns to have the process killed instead of the call executed."""


@dataclass(frozen=True)
class Call:
    """One call that waits for a decision.

    Attributes:
        pid: The thread that makes it.
        name: ``openat``, ``fsync``, …
        args: Its arguments.
    """

    pid: int
    name: str
    args: tuple[int, ...]

    def paths(self) -> tuple[str, ...]:
        """Return the absolute paths it is about; for a descriptor the one it was opened by."""
        a = self.args
        with suppress(OSError):
            if self.name in _TWO_PATHS:
                d1, p1, d2, p2 = _TWO_PATHS[self.name]
                return (
                    self._path(_AT_FDCWD if d1 is None else a[d1], a[p1]),
                    self._path(_AT_FDCWD if d2 is None else a[d2], a[p2]),
                )
            if self.name in _PATH:
                return (self._path(_AT_FDCWD, a[0]),)
            if self.name in _AT_PATH:
                return (self._path(a[0], a[1]),)
            return (self._of_fd(a[0]),)
        return ()

    def data(self) -> bytes:
        """Return what a ``write`` or ``pwrite64`` writes."""
        return self._memory(self.args[1], self.args[2])

    def _path(self, folder: int, address: int) -> str:
        text = os.fsdecode(self._string(address))
        number = folder & 0xFFFFFFFF
        number -= (number >> 31) << 32
        base = os.readlink(f"/proc/{self.pid}/cwd") if number == _AT_FDCWD else self._of_fd(number)
        return os.path.normpath(os.path.join(base, text)) if text else base

    def _of_fd(self, number: int) -> str:
        return os.readlink(f"/proc/{self.pid}/fd/{number & 0xFFFFFFFF}").removesuffix(" (deleted)")

    def _string(self, address: int) -> bytes:
        found = b""
        while (
            b"\0" not in found
        ):  # page by page: only the pages that the text lies on are surely there
            at = address + len(found)
            piece = self._memory(at, 4096 - at % 4096)
            if not piece:
                break
            found += piece
        return found.split(b"\0", 1)[0]

    def _memory(self, address: int, length: int) -> bytes:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            found = b""
            while len(found) < length:
                piece = file.read(length - len(found))
                if not piece:
                    break
                found += piece
            return found


Decide = Callable[[Call], int]
"""0 lets the call through, `KILL` kills the process that makes it, any other number is the errno it fails with."""


class Supervisor:
    """Listens at a Unix socket for one process tree (see `rgt`'s `hand_over`), until the last of it has ended.

    Args:
        place: An existing folder for the socket.
        decide: Called in a thread of its own for each call, one at a time.
    """

    def __init__(self, place: Path, decide: Decide) -> None:
        self.path = str(place / f"calls-{os.urandom(4).hex()}")
        self._decide = decide
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(self.path)
        self._sock.listen(1)
        self.trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the end of the tree.

        Raises:
            BaseException: What a decision raised.
        """
        self._thread.join(150)
        assert not self._thread.is_alive(), "a process that was watched is still there"
        os.unlink(self.path)
        if self.trouble is not None:
            raise self.trouble

    def _serve(self) -> None:
        with self._sock:
            other, _ = self._sock.accept()
        with other:
            _, listeners, _, _ = socket.recv_fds(other, 1, 1)
        if not listeners:
            return
        listener = listeners[0]
        try:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            while not any(what & select.POLLHUP for _, what in poll.poll()):
                self._one(listener)
        finally:
            os.close(listener)

    def _one(self, listener: int) -> None:
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECV, request)
        except FileNotFoundError:
            return  # killed while it waited
        number, pid, _ = struct.unpack_from("QII", request)
        which, _, _, *args = struct.unpack_from("iIQ6Q", request, 16)
        what = 0
        if self.trouble is None:
            try:
                what = self._decide(Call(pid, NAMES[which], tuple(args)))
            except BaseException as error:
                self.trouble = error
        if what == KILL:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        answer = struct.pack("QqiI", number, 0, -what, 0 if what else _CONTINUE)
        try:
            fcntl.ioctl(listener, _SEND, bytearray(answer))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS):
                raise
