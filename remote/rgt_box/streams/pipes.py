"""The two ends of a channel: control lines in, frames out, without ever waiting for the reader."""

from __future__ import annotations

import os
import zlib

MAX_CONTROL_LINE = 1 << 20
"""Maximum bytes of a control line."""


class ControlInbox:
    """The control side of a channel.

    Args:
        fd: Descriptor to read from.
        buffer: Data that was already read from it.

    Attributes:
        ended: True once the client has closed its side.
    """

    def __init__(self, fd: int, buffer: bytes = b"") -> None:
        self.fd = fd
        self.ended = False
        self._parts = [buffer]
        self._held = len(buffer)

    def buffered_lines(self) -> list[bytes]:
        """Return the buffered complete lines, without reading."""
        data = b"".join(self._parts)  # only once a line has ended: it may arrive byte by byte
        *lines, rest = data.split(b"\n")
        self._parts, self._held = [rest], len(rest)
        return lines

    def read_lines(self) -> list[bytes]:
        """Read once, if the descriptor is readable, and return the completed lines."""
        try:
            data = os.read(self.fd, 65536)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        self._parts.append(data)
        self._held += len(data)
        if b"\n" in data:
            lines = self.buffered_lines()
        else:
            lines = []
        if self._held > MAX_CONTROL_LINE:
            self.ended = True  # no client of this protocol sends such a line
        return lines


HIGH = 1 << 20
"""Pending bytes from which on no source is polled for more."""

LOW = 256 << 10

TOLD_BY = {b'{"t":"sample': 8192, b'{"t":"log","': 1024, b'{"t":"scalar': 1024}
"""Prefixes of the frames that are compressed with the previous frame of the same prefix as
dictionary, and the maximum bytes of a frame that is kept for that. Both ends keep only this frame.
"""
SWIFT, SWIFT_FROM, SWIFT_WINDOW_BITS = 1, 8192, 15
"""zlib level for frames of at least this many bytes: a third of the CPU time for a fifth more data.
They get a larger window, because a small one is shifted constantly, which costs as much again; the
other end needs it only for that one frame.
"""


def compress_frame(line: bytes, told: dict[bytes, bytes]) -> bytes:
    """Return a frame as its own zlib stream.

    Args:
        line: The frame with its newline.
        told: Previous frame per prefix, which the other end has as well; updated with this one.
    """
    begins_limit = 12
    begins = line[:begins_limit]
    before = told.get(begins)
    window_bits = 13
    # zlib's memLevel for shorter frames, which does not make them larger. The default is so much
    # memory that the system maps it again for each frame, which costs more than the compression.
    memory = 7
    kind = zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, window_bits, memory
    if len(line) >= SWIFT_FROM:
        kind = SWIFT, zlib.DEFLATED, SWIFT_WINDOW_BITS, zlib.DEF_MEM_LEVEL
    if before is None:
        packer = zlib.compressobj(*kind)
    else:
        packer = zlib.compressobj(*kind, zdict=before)
    if len(line) <= TOLD_BY.get(begins, 0):
        told[begins] = line
    return packer.compress(line) + packer.flush()


class ReaderClosed(Exception):
    """The reader has closed its end."""


class FrameOutbox:
    """Frames waiting to be written to a descriptor, which is made non-blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # O_NONBLOCK belongs to the open file, so other users of this pipe get it, too.
        os.set_blocking(fd, False)
        self._parts: list[bytes] = []
        self._pending = 0
        self._told: dict[bytes, bytes] | None = None

    def start_compression(self) -> None:
        """Compress each frame from now on as its own zlib stream."""
        self._told = {}

    def add_frame(self, line: bytes) -> None:
        """Queue one frame (with its newline)."""
        if self._told is not None:
            line = compress_frame(line, self._told)
        self._parts.append(line)
        self._pending += len(line)

    @property
    def pending_bytes(self) -> int:
        """Number of pending bytes."""
        return self._pending

    @property
    def is_full(self) -> bool:
        """Whether no source should be polled for more."""
        return self._pending >= HIGH

    def flush(self) -> None:
        """Write as much as the descriptor accepts now.

        Raises:
            ReaderClosed: The reader has closed its end.
        """
        while self._parts:
            data = b"".join(self._parts)
            try:
                # In pieces: a write of megabytes to a pipe would keep the control lines waiting.
                done = os.write(self.fd, data[:LOW])
            except (BlockingIOError, InterruptedError):
                self._parts = [data]
                return
            except OSError as error:
                raise ReaderClosed(str(error)) from None
            rest = data[done:]
            self._parts = [rest] if rest else []
            self._pending = len(rest)

    def restore_blocking(self) -> None:
        """Make the descriptor blocking again, because it may be shared."""
        try:
            os.set_blocking(self.fd, True)
        except OSError:
            pass
