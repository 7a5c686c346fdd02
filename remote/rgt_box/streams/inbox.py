"""Lines from the client, read without ever waiting for them."""

from __future__ import annotations

import os

from rgt_box.streams.config import MAX_LINE


class Inbox:
    """The control side of a channel.

    Attributes:
        ended: True once the client has closed its side.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._buffer = b""

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
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self.ended = True  # nobody who speaks this protocol sends such a line
        return lines
