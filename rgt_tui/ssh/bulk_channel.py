"""A command on a box with much output or input: passed on as it arrives, at the pace of the side that reads it.

asyncssh opens the window again by more than was taken from it whenever reading pauses between two deliveries (see
`rgt_tui.ssh.remote_cat`): whoever takes the data pauses late, and goes on when little is left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import asyncssh

from rgt_tui.model import clean
from rgt_tui.ssh.remote_command import CommandSession, Done, lost, not_opened, open_session
from rgt_tui.ssh.ssh_errors import CommandFailed

WINDOW = 4 << 20
"""Bytes that may be on their way: 100 MB/s over 40 ms. With 16 MB, sshd sent at half the rate over the loopback."""
STDERR_BYTES = 4096
MOST_OUTPUT = 1 << 20
SILENCE_S = 120.0
"""A box that takes nothing for so long is given up."""


class _Bulk(CommandSession):
    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        super().__init__()
        self.words = b""
        self.fault: Exception | None = None
        self._on_data = on_data

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.words = (self.words + data)[-STDERR_BYTES:]
            return
        if self.ended.done():
            return
        try:
            self._on_data(data)
        except Exception as error:
            self.fault = error
            self.ended.set_result(None)


class BulkChannel:
    """A running command."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        channel: asyncssh.SSHClientChannel[bytes],
        session: _Bulk,
    ) -> None:
        self._connection, self._channel, self._session = connection, channel, session
        self._paused = False

    @property
    def ended(self) -> bool:
        """Nothing will come any more, or what came could not be taken."""
        return self._session.ended.done()

    @property
    def status(self) -> int | None:
        """Exit status of the command; None = it was ended otherwise."""
        return self._session.status

    @property
    def words(self) -> str:
        """The last line of its standard error, printable."""
        lines = self._session.words.decode("utf-8", "replace").strip().splitlines()
        return clean(lines[-1]) if lines else ""

    def write(self, data: bytes) -> None:
        """Send to its standard input; nothing where it has ended."""
        if data and not self.ended:
            with contextlib.suppress(BrokenPipeError, OSError):
                self._channel.write(data)

    def finish(self) -> None:
        """End its standard input."""
        if not self.ended:
            with contextlib.suppress(BrokenPipeError, OSError):
                self._channel.write_eof()

    def pause(self) -> None:
        """Take nothing more, apart from what fits the window."""
        if not self._paused and not self.ended:
            self._paused = True
            self._channel.pause_reading()

    def resume(self) -> None:
        """Take again."""
        if self._paused:
            self._paused = False
            self._channel.resume_reading()

    async def wait(self) -> None:
        """Wait for the end of its output.

        Raises:
            Unreachable: the connection was lost.
            Exception: what the taker of the data raised.
        """
        try:
            await asyncio.shield(self._session.ended)
        except (asyncssh.Error, OSError) as error:
            raise lost(self._connection) from error
        if self._session.fault is not None:
            raise self._session.fault
        if self.status is None and self._connection.is_closed():
            raise lost(self._connection)

    def close(self) -> None:
        """Hang up."""
        if not self._session.ended.done():
            self._session.ended.set_result(None)
        elif not self._session.ended.cancelled():
            self._session.ended.exception()  # it was looked at
        self._channel.abort()


async def open_bulk(
    connection: asyncssh.SSHClientConnection, command: str, on_data: Callable[[bytes], None]
) -> BulkChannel:
    """Start a command on a box.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        on_data: Called from the event loop with what it prints.

    Raises:
        NoCommands: the box runs no commands, or no further one on this connection.
        Unreachable: the connection was lost.
    """
    session = _Bulk(on_data)
    try:
        channel = await open_session(connection, lambda: session, command, window=WINDOW)
    except asyncssh.ChannelOpenError as error:
        raise not_opened(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    return BulkChannel(connection, channel, session)


# Feeds a command on a box with more data than memory should hold, at the pace at which the box reads it.


class _Feeding(CommandSession):
    def __init__(self) -> None:
        super().__init__()
        self.takes = asyncio.Event()
        self.takes.set()
        self.out = bytearray()
        self.words = bytearray()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        target = self.words if datatype == asyncssh.EXTENDED_DATA_STDERR else self.out
        if len(target) < MOST_OUTPUT:
            target += data

    def pause_writing(self) -> None:
        self.takes.clear()

    def resume_writing(self) -> None:
        self.takes.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.takes.set()
        super().connection_lost(exc)


async def feed(
    connection: asyncssh.SSHClientConnection,
    command: str,
    pieces: AsyncIterator[bytes],
    *,
    name: str,
    silence: float = SILENCE_S,
) -> Done:
    """Run a command, hand it what an iterator yields, and wait for its end.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        pieces: Its standard input; no more is asked for once the command has ended.
        name: What messages call it.
        silence: Seconds for which the box may take nothing, and go on after the end of its input.

    Raises:
        CommandFailed: it takes nothing any more, or does not end.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost.
    """
    session = _Feeding()
    try:
        channel = await open_session(connection, lambda: session, command)
    except asyncssh.ChannelOpenError as error:
        raise not_opened(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    try:
        async for piece in pieces:
            async with asyncio.timeout(silence):
                await session.takes.wait()
            if session.ended.done():
                break
            channel.write(piece)
        if not session.ended.done():
            channel.write_eof()
        async with asyncio.timeout(silence):
            await asyncio.shield(session.ended)
    except TimeoutError:
        raise CommandFailed(f"{name}: the box has taken nothing for {silence:g} s") from None
    except BrokenPipeError:
        pass  # it ended without reading all of it: its status tells why
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    finally:
        channel.abort()
        if session.ended.done() and not session.ended.cancelled():
            session.ended.exception()  # it was looked at
    if session.status is None and connection.is_closed():
        raise lost(connection)
    lines = bytes(session.words).decode(errors="replace").strip().splitlines()
    return Done(session.status, bytes(session.out), " ".join(clean(line) for line in lines[-5:])[:1000])
