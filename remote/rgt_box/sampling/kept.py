"""A /proc or cgroup file kept open: re-reading costs one system call instead of three."""

from __future__ import annotations

import os


class KeptFile:
    """A small pseudo file that is read again and again; opened at the first read, re-opened after an error."""

    def __init__(self, path: str, limit: int = 16384) -> None:
        self.path = path
        self._limit = limit
        self._fd = -1

    def read(self) -> bytes | None:
        """Return the content now; None where it cannot be read."""
        for _ in range(2):
            try:
                if self._fd < 0:
                    self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                return os.pread(self._fd, self._limit, 0)
            except OSError:
                self.close()
        return None

    def number(self) -> int | None:
        """Return the content as one number; None for ``max``, text or an unreadable file."""
        data = self.read()
        try:
            return int(data) if data else None
        except ValueError:
            return None

    def fields(self) -> dict[str, int]:
        """Return a file of ``name number`` rows as a dictionary."""
        return parse_fields(self.read() or b"")

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def parse_fields(data: bytes) -> dict[str, int]:
    """Parse rows of ``name number [unit]``; other rows are left out."""
    found = {}
    for row in data.splitlines():
        words = row.split()
        if len(words) >= 2:
            try:
                found[words[0].rstrip(b":").decode("ascii", "replace")] = int(words[1])
            except ValueError:
                continue
    return found
