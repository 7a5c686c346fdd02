"""Run one command on a box: a limit on time and on output, and no encoding that could fail."""

from __future__ import annotations

import asyncio

import asyncssh
import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.ssh.errors import CommandFailed
from rgt_tui.ssh.refusing import lost, not_opened, open_session

SECONDS = 30.0
MOST_BYTES = 4 << 20


class Done(msgspec.Struct, frozen=True):
    """What a command gave."""

    status: int | None
    """None = it was ended by a signal, or the box did not say."""
    out: bytes
    words: str
    """Its standard error, printable."""


class _Collector(asyncssh.SSHClientSession[bytes]):
    def __init__(self, most: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: int | None = None
        self.out = bytearray()
        self.err = bytearray()
        self.overflow = False
        self._most = most
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        target = self.err if datatype == asyncssh.EXTENDED_DATA_STDERR else self.out
        if self.overflow or len(target) + len(data) > self._most:
            self.overflow = True
            if self._channel is not None:
                self._channel.abort()
            return
        target += data

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        if exc is not None and not self.overflow:
            self.ended.set_exception(exc)
        else:
            self.ended.set_result(None)


async def run(
    connection: asyncssh.SSHClientConnection,
    command: str,
    *,
    data: bytes = b"",
    seconds: float = SECONDS,
    most_bytes: int = MOST_BYTES,
    name: str = "a command",
) -> Done:
    """Run a command and wait for its end.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        data: Its standard input.
        seconds: How long it may take; it is then hung up on.
        most_bytes: How much it may print, on each of its two outputs.
        name: What messages call it.

    Raises:
        CommandFailed: it took too long or printed too much.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost.
    """
    collector = _Collector(most_bytes)
    try:
        async with asyncio.timeout(seconds):
            try:
                channel = await open_session(connection, lambda: collector, command)
            except asyncssh.ChannelOpenError as error:
                raise not_opened(connection, error, "to run commands") from error
            except (asyncssh.Error, OSError) as error:
                raise lost(connection) from error
            try:
                channel.write(data)
                channel.write_eof()
            except BrokenPipeError:
                pass  # it has ended without reading: its status tells why
            try:
                await asyncio.shield(collector.ended)
            except (asyncssh.Error, OSError) as error:
                raise lost(connection) from error
            finally:
                channel.abort()
    except TimeoutError:
        raise CommandFailed(f"{name} did not end within {seconds:g} s on the box") from None
    if collector.status is None and connection.is_closed():
        # A server that says goodbye before it goes raises nothing; what the command printed is a part of it.
        raise lost(connection)
    if collector.overflow:
        raise CommandFailed(f"{name} printed more than {most_bytes / 2**20:g} MiB on the box; it was cut off")
    lines = bytes(collector.err).decode(errors="replace").strip().splitlines()
    words = " ".join(clean(line) for line in lines[-5:])[:1000]
    return Done(collector.status, bytes(collector.out), words)
