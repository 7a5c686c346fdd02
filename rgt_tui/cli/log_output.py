"""Where the bytes of a log go: to standard output as they are, or made harmless for a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import unicodedata
from collections.abc import Callable

from rgt_tui.cli.printing import json_line
from rgt_tui.fleet.exact_log import ExactLog
from rgt_tui.model.plain import clean

LONGEST_LINE = 1 << 20
"""Bytes without a line end that are held back on a terminal."""
LONGEST_ROW = 4096
"""Bytes of a line without an end that are looked at to show its beginning."""
PAUSE_SECONDS = 1.0
"""After this a line without an end is shown as it stands."""


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
    """Writes lines without anything that a terminal would obey. A rewritten line is shown as it was at last.

    A line that has no end yet, such as a progress bar, is shown as it stands about once a second, cut to one row, and
    is written over by what follows.

    Args:
        fd: Where to.
        columns: Returns the width of the terminal.
    """

    def __init__(self, fd: int, columns: Callable[[], int] | None = None) -> None:
        super().__init__(fd)
        self._columns = columns or (lambda: os.get_terminal_size(fd).columns)
        self._rest = b""
        self._drawn = 0
        """Columns of the unfinished line that the terminal shows."""
        self._turn = asyncio.Lock()
        self._drawing: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        async with self._turn:
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > LONGEST_LINE:
                lines, self._rest = [*lines, self._rest], b""
            if lines:
                await super().write(self._wiped() + b"".join(harmless(line) + b"\n" for line in lines))
        if self._drawing is not None and self._drawing.done():
            self._drawing.result()  # the terminal has gone
            self._drawing = None
        if self._rest and self._drawing is None:
            self._drawing = asyncio.create_task(self._draw_soon())

    async def close(self) -> None:
        """Write what is left of a last line."""
        async with self._turn:
            if self._drawing is not None:
                self._drawing.cancel()
            if self._rest:
                await super().write(self._wiped() + harmless(self._rest) + b"\n")
                self._rest = b""

    async def _draw_soon(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        async with self._turn:
            newest = self._rest.rstrip(b"\r").rpartition(b"\r")[2]
            text = one_row(harmless(newest[:LONGEST_ROW]).decode(), self._columns() - 1)
            if text:
                out = self._wiped() + text.encode()
                self._drawn = width(text)
                await super().write(out)

    def _wiped(self) -> bytes:
        """Return what blanks the unfinished line, with nothing but spaces: not every terminal knows sequences."""
        drawn, self._drawn = self._drawn, 0
        return b"\r" + b" " * drawn + b"\r" if drawn else b""


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


def width(text: str) -> int:
    """Return how many columns a text takes at most."""
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)


def one_row(text: str, columns: int) -> str:
    """Return as much of a text as fits into so many columns."""
    text = text[: max(0, columns)]
    while width(text) > columns > 0:
        text = text[:-1]
    return text


def make_output(log: ExactLog, *, raw: bool, as_json: bool) -> ExactOutput:
    """Return the way to standard output: exact, except on a terminal without `raw`."""
    sys.stdout.flush()
    fd = sys.stdout.fileno()
    if as_json:
        return JsonOutput(fd, log)
    return TerminalOutput(fd) if sys.stdout.isatty() and not raw else ExactOutput(fd)
