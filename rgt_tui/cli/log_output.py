"""Where the bytes of a log go: to standard output as they are, or made harmless for a terminal."""

from __future__ import annotations

import asyncio
import os
import sys

from rgt_tui.cli.json_line import json_line
from rgt_tui.fleet.exact_log import ExactLog
from rgt_tui.model.plain import clean

LONGEST_LINE = 1 << 20
"""Bytes without a line end that are held back on a terminal."""


class ExactOutput:
    """Writes bytes as they are.

    Args:
        fd: Where to.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Write it all; in a thread, because a reader that pauses must not stop the connection.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    async def close(self) -> None:
        """Nothing is held."""


class TerminalOutput(ExactOutput):
    """Writes lines without anything that a terminal would obey. A rewritten line is shown as it was at last."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._rest = b""

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        if lines:
            await super().write(b"".join(harmless(line) + b"\n" for line in lines))

    async def close(self) -> None:
        """Write what is left of a last line."""
        if self._rest:
            await super().write(harmless(self._rest) + b"\n")
            self._rest = b""


class JsonOutput(ExactOutput):
    """Writes an object per line: where it stands, and its text.

    Args:
        fd: Where to.
        log: Whose lines they are.
    """

    def __init__(self, fd: int, log: ExactLog) -> None:
        super().__init__(fd)
        self._log = log
        self._rest = b""
        self._begin = self._end = 0
        self._path = ""

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        out = b""
        if (self._path, self._end) != (self._log.path, self._log.offset):
            out = self._taken()  # another file: the last line of the one before is complete
            self._path, self._begin, self._end = self._log.path, self._log.offset, self._log.offset
        self._end += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            out += self._object(line)
            self._begin += len(line) + 1
        if len(self._rest) > LONGEST_LINE:
            out += self._taken()
        if out:
            await super().write(out)

    async def close(self) -> None:
        """Write what is left of a last line."""
        if self._rest:
            await super().write(self._taken())

    def _taken(self) -> bytes:
        line, self._rest = self._rest, b""
        out = self._object(line) if line else b""
        self._begin += len(line)
        return out

    def _object(self, line: bytes) -> bytes:
        text = line.decode("utf-8", "replace")
        return json_line({"path": self._path, "offset": self._begin, "text": text})


def harmless(line: bytes) -> bytes:
    """Return a line of a log as a terminal may have it."""
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return clean(shown.decode("utf-8", "replace")).encode("utf-8", "replace")


def make_output(log: ExactLog, *, raw: bool, as_json: bool) -> ExactOutput:
    """Return the way to standard output: exact, except on a terminal without `raw`."""
    sys.stdout.flush()
    fd = sys.stdout.fileno()
    if as_json:
        return JsonOutput(fd, log)
    return TerminalOutput(fd) if sys.stdout.isatty() and not raw else ExactOutput(fd)
