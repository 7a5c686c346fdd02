"""Standard output of a command on a box, read as fast as somebody takes it, in bounded memory.

asyncssh's own reader opens the window again by more than was taken from it whenever reading pauses between two
deliveries, and then holds hundreds of megabytes of a fast sender. Here reading pauses late and goes on only when
everything that came meanwhile fits: then the window bounds what is held.
"""

from __future__ import annotations

import asyncio

import asyncssh

from rgt_tui.ssh.refusing import open_session

WINDOW = 256 << 10
"""Bytes that may be on their way."""
HIGH, LOW = 4 * WINDOW, WINDOW
STDERR_BYTES = 4096
LONGEST_LINE = 64 << 10


class Pipe(asyncssh.SSHClientSession[bytes]):
    """A session whose output is awaited.

    Attributes:
        words: The end of standard error.
    """

    def __init__(self) -> None:
        self.words = b""
        self._data = bytearray()
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Keep the channel, for its flow control."""
        self._chan = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Hold what came."""
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.words = (self.words + data)[-STDERR_BYTES:]
            return
        self._data += data
        self._news.set()
        if len(self._data) >= HIGH and not self._paused and self._chan is not None:
            self._paused = True
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        """No more will come."""
        self._ended = True
        self._news.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """No more will come, perhaps because of an error."""
        self._ended, self._error = True, exc
        self._news.set()

    async def read(self, most: int) -> bytes:
        """Return what is there, at most so many bytes; wait for the first.

        Raises:
            EOFError: nothing will come any more.
            asyncssh.Error: because the connection was lost.
        """
        await self._more(0)
        data = bytes(memoryview(self._data)[:most])
        self._drop(len(data))
        return data

    async def readline(self) -> bytes:
        """Return the next line with its end.

        Raises:
            EOFError: it has none, and none will come; or it is longer than any that is expected.
            asyncssh.Error: the connection was lost.
        """
        searched = 0
        while (end := self._data.find(b"\n", searched)) < 0:
            searched = len(self._data)
            if searched > LONGEST_LINE:
                raise EOFError("a line without an end")
            await self._more(searched)
        line = bytes(memoryview(self._data)[: end + 1])
        self._drop(len(line))
        return line

    async def _more(self, than: int) -> None:
        while len(self._data) <= than:
            if self._ended:
                raise self._error or EOFError("the command ended")
            self._news.clear()
            await self._news.wait()

    def _drop(self, count: int) -> None:
        del self._data[:count]
        if self._paused and len(self._data) <= LOW and self._chan is not None:
            self._paused = False
            self._chan.resume_reading()


async def open_pipe(
    connection: asyncssh.SSHClientConnection, command: str
) -> tuple[asyncssh.SSHClientChannel[bytes], Pipe]:
    """Start a command on a box; its standard input stays open until the channel is closed.

    Raises:
        asyncssh.Error: it cannot be started.
    """
    pipe = Pipe()
    channel = await open_session(connection, lambda: pipe, command, window=WINDOW)
    return channel, pipe
