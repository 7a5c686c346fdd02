"""Lines from the client, read without ever waiting for them."""

from __future__ import annotations

import os

MAX_LINE = 1 << 20
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
        if self._held > MAX_LINE:
            self.ended = True  # nobody who speaks this protocol sends such a line
        return lines
