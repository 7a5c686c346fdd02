"""The two ends of a channel: control lines in, frames out, and nothing ever waits for the reader."""

from __future__ import annotations

import os
import zlib

MAX_CONTROL_LINE = 1 << 20
"""Bytes of a control line."""


class Inbox:
    """The control side of a channel.

    Args:
        fd: Where it comes from.
        buffer: What was read of it already.

    Attributes:
        ended: True once the client has closed its side.
    """

    def __init__(self, fd: int, buffer: bytes = b"") -> None:
        self.fd = fd
        self.ended = False
        self._parts = [buffer]
        self._held = len(buffer)

    def take(self) -> list[bytes]:
        """Return the lines that are complete already, without reading."""
        data = b"".join(self._parts)  # only once a line has ended: a line may come byte by byte
        *lines, rest = data.split(b"\n")
        self._parts, self._held = [rest], len(rest)
        return lines

    def read(self) -> list[bytes]:
        """Read once (call it when the descriptor is readable) and return the lines that became complete."""
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
        lines = self.take() if b"\n" in data else []
        if self._held > MAX_CONTROL_LINE:
            self.ended = True  # nobody who speaks this protocol sends such a line
        return lines


HIGH = 1 << 20
"""Bytes waiting from which on no source is asked for more."""

LOW = 256 << 10

WINDOW_BITS = 13
TOLD_BY = {b'{"t":"sample': 8192, b'{"t":"log","': 1024, b'{"t":"scalar': 1024}
"""How the lines begin that are told by the one before that begins so: both ends hold that, and no more of the past.
And of how many bytes a line is held at most."""
BEGINS = 12
SWIFT, SWIFT_FROM, SWIFT_WINDOW_BITS = 1, 8192, 15
"""The level of zlib for lines of so many bytes and more: a third of the work, and a fifth more on the way. In a small
window it is moved all the time, which costs as much again; the other end holds it for as long as that one line."""
MEMORY = 7
"""zlib's memLevel for shorter lines, which take no byte more by that. What it asks for by default is so much that the
system maps it anew for each line, which costs more than the line itself."""


def packed(line: bytes, told: dict[bytes, bytes]) -> bytes:
    """Return a line as a zlib stream of its own.

    Args:
        line: With its newline.
        told: By how they begin, the lines that the other end holds; this one takes its place among them.
    """
    begins = line[:BEGINS]
    before = told.get(begins)
    kind = zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, WINDOW_BITS, MEMORY
    if len(line) >= SWIFT_FROM:
        kind = SWIFT, zlib.DEFLATED, SWIFT_WINDOW_BITS, zlib.DEF_MEM_LEVEL
    packer = zlib.compressobj(*kind) if before is None else zlib.compressobj(*kind, zdict=before)
    if len(line) <= TOLD_BY.get(begins, 0):
        told[begins] = line
    return packer.compress(line) + packer.flush()


class Closed(Exception):
    """The reader is gone."""


class Outbox:
    """Frames on their way to a descriptor, which is made non-blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._parts: list[bytes] = []
        self._pending = 0
        self._told: dict[bytes, bytes] | None = None

    def compress(self) -> None:
        """Make a zlib stream of each line that is put from now on."""
        self._told = {}

    def put(self, line: bytes) -> None:
        """Queue one line (with its newline), so that the reader can have it whole."""
        if self._told is not None:
            line = packed(line, self._told)
        self._parts.append(line)
        self._pending += len(line)

    @property
    def pending(self) -> int:
        """Bytes that wait."""
        return self._pending

    @property
    def full(self) -> bool:
        """True when no source should be asked for more."""
        return self._pending >= HIGH

    def flush(self) -> None:
        """Write as much as the descriptor takes now.

        Raises:
            Closed: when nobody reads any more.
        """
        while self._parts:
            data = b"".join(self._parts)
            try:
                done = os.write(self.fd, data[:LOW])
            except (BlockingIOError, InterruptedError):
                self._parts = [data]
                return
            except OSError as error:
                raise Closed(str(error)) from None
            rest = data[done:]
            self._parts = [rest] if rest else []
            self._pending = len(rest)

    def restore(self) -> None:
        """Make the descriptor blocking again: it may be shared."""
        try:
            os.set_blocking(self.fd, True)
        except OSError:
            pass
