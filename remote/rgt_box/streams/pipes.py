"""The two ends of a channel: control lines in, frames out, and nobody ever waits for the reader."""

from __future__ import annotations

import os
import zlib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

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
"""A sample is told by the one before, which has to lie within 8 KiB; as much does the client hold for each box.

One of eight GPUs has 2.4 KB, and takes 98 bytes with any window from 4 KiB up, six times as many below.
"""


class Closed(Exception):
    """The reader is gone."""


class Outbox:
    """Frames on their way to a descriptor, which is made non-blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._parts: list[bytes] = []
        self._pending = 0
        self._zlib: Any = None

    def compress(self) -> None:
        """Make one zlib stream of all that is put from now on."""
        self._zlib = zlib.compressobj(wbits=WINDOW_BITS)

    def put(self, line: bytes) -> None:
        """Queue one line (with its newline), so that the reader can have it whole."""
        if self._zlib is not None:
            line = self._zlib.compress(line) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
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
