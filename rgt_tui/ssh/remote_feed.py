"""Feeds a command on a box with more data than memory should hold, at the pace at which the box reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncssh

from rgt_tui.model import clean
from rgt_tui.ssh.remote_command import CommandSession, Done, lost, not_opened, open_session
from rgt_tui.ssh.ssh_errors import CommandFailed

MOST_OUTPUT = 1 << 20
SILENCE_S = 120.0
"""A box that takes nothing for so long is given up."""


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
