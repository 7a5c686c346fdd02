"""Runs a command on a box with this process's own standard streams, or with bulk data.

Threads read and write the streams: a paused reader (a pager) must stop neither the event loop nor
the keepalives of the connection, and the terminal must keep its mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import threading
from collections.abc import AsyncIterator, Callable

import asyncssh

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ssh.box_transport import BoxChannel, BoxTransport, CommandFailed
from rgt_tui.ssh.remote_command import (
    CommandSession,
    RemoteCommandResult,
    channel_open_error,
    connection_lost_error,
    open_session,
    run_first_script,
)

BLOCK = 64 << 10
HIGH, LOW = 4 << 20, 1 << 20
"""Unwritten bytes at which reading from the box pauses, and below which it resumes."""
STDOUT, STDERR = 1, 2
MOST_OUTPUT = 1 << 20
SILENCE_S = 120.0
"""Seconds without any progress of the box after which it is given up."""


class StreamedResult(FrozenStruct):
    """The result of a command."""

    status: int | None
    """128 plus the number of a signal that ended it; None = the box did not report it."""
    error: OSError | None = None
    """Why its output could not be written here; the command was then disconnected."""


class _StreamsSession(asyncssh.SSHClientSession[bytes]):
    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: int | None = None
        self.error: OSError | None = None
        self.may_send = threading.Event()
        self.may_send.set()
        self._loop = asyncio.get_running_loop()
        self._channel: BoxChannel | None = None
        self._pieces: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._paused = False
        self._fault: Exception | None = None
        threading.Thread(target=self._write_all, daemon=True, name="rgt-output").start()

    def connection_made(self, chan: BoxChannel) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._waiting += len(data)
        self._pieces.put((STDERR if datatype == asyncssh.EXTENDED_DATA_STDERR else STDOUT, data))
        if self._waiting > HIGH and not self._paused and self._channel is not None:
            self._paused = True
            self._channel.pause_reading()

    def pause_writing(self) -> None:
        self.may_send.clear()

    def resume_writing(self) -> None:
        self.may_send.set()

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.status = 128 + signal_number(signal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fault = exc
        self.may_send.set()
        self._pieces.put(None)

    def _write_all(self) -> None:
        """Write the output in order; runs in its own thread."""
        while (piece := self._pieces.get()) is not None:
            descriptor, data = piece
            try:
                left = memoryview(data)
                while left and self.error is None:
                    left = left[os.write(descriptor, left) :]
            except OSError as error:
                self.error = error
            self._call_in_loop(self._count_written, len(data))
        self._call_in_loop(self._finish_session)

    def _call_in_loop(self, function: Callable[..., None], *given: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter left
            self._loop.call_soon_threadsafe(function, *given)

    def _count_written(self, count: int) -> None:
        self._waiting -= count
        if self._channel is None:
            return
        if self.error is not None:
            self._channel.abort()
        elif self._paused and self._waiting < LOW:
            self._paused = False
            self._channel.resume_reading()

    def _finish_session(self) -> None:
        if self.ended.done():
            return
        if self._fault is not None and self.error is None:
            self.ended.set_exception(self._fault)
            self.ended.exception()  # marks it as retrieved, as in `CommandSession`
        else:
            self.ended.set_result(None)


def signal_number(name: str) -> int:
    """Return the number of a signal by its SSH name, such as ``KILL``.

    0 if this system lacks it.
    """
    if name.isascii():
        return getattr(signal, f"SIG{name.partition('@')[0]}", 0)
    return 0


def _send_all(
    loop: asyncio.AbstractEventLoop,
    session: _StreamsSession,
    channel: BoxChannel,
) -> None:
    """Send standard input until it ends; runs in its own thread."""

    def send_piece(data: bytes) -> None:
        if not session.ended.done():
            # the command ended without reading it
            with contextlib.suppress(BrokenPipeError, OSError):
                channel.write(data) if data else channel.write_eof()

    with contextlib.suppress(RuntimeError, OSError):
        while not session.ended.done():
            session.may_send.wait()
            data = os.read(0, BLOCK)
            loop.call_soon_threadsafe(send_piece, data)
            if not data:
                return


async def pass_through(
    connection: BoxTransport, command: str, interrupted: asyncio.Event | None = None
) -> StreamedResult:
    """Run a command with this process's own standard streams.

    Args:
        connection: To the box.
        command: For the login shell of the box.
        interrupted: When set, the command gets a SIGINT, and is disconnected if that does not end
            it.

    Raises:
        NoCommands: the box runs no commands, so this one did not run.
        Unreachable: the connection was lost; whether the command still runs there is unknown.
    """
    await run_first_script(connection, needs_sh=False)
    session = _StreamsSession()
    try:
        channel = await open_session(connection, lambda: session, command)
    except asyncssh.ChannelOpenError as error:
        raise channel_open_error(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=_send_all, args=(loop, session, channel), daemon=True, name="rgt-input"
    ).start()
    if interrupted is None:
        asking = None
    else:
        asking = loop.create_task(_interrupt(interrupted, session, channel))
    try:
        await asyncio.shield(session.ended)
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    finally:
        if asking is not None:
            asking.cancel()
        channel.abort()
    given_up = interrupted is not None and interrupted.is_set()
    if session.status is None and session.error is None and not given_up and connection.is_closed():
        raise connection_lost_error(connection)
    return StreamedResult(session.status, session.error)


async def _interrupt(
    interrupted: asyncio.Event, session: _StreamsSession, channel: BoxChannel
) -> None:
    await interrupted.wait()
    with contextlib.suppress(asyncssh.Error, OSError):
        channel.send_signal("INT")
    # Seconds that a command gets to end after a SIGINT. OpenSSH forwards no signal to root's
    # commands, because a server that has kept its privileges does not (``session_signal_req``).
    grace_s = 1.0
    await asyncio.wait([session.ended], timeout=grace_s)
    if not session.ended.done():
        session.ended.set_result(None)


# A command on a box with much output or input, passed on as it arrives, at the reader's pace.
#
# asyncssh reopens the window by more than was consumed whenever reading pauses between two
# deliveries (see `rgt_tui.ssh.remote_cat`): so reading pauses late, and resumes when little is
# left.


class _BulkSession(CommandSession):
    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        super().__init__()
        self.words = b""
        self.fault: Exception | None = None
        self._on_data = on_data

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            stderr_bytes = 4096
            self.words = (self.words + data)[-stderr_bytes:]
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
        connection: BoxTransport,
        channel: BoxChannel,
        session: _BulkSession,
    ) -> None:
        self._connection, self._channel, self._session = connection, channel, session
        self._paused = False

    @property
    def has_ended(self) -> bool:
        """Whether no more output will arrive, or a callback failed."""
        return self._session.ended.done()

    @property
    def status(self) -> int | None:
        """Exit status of the command; None = it ended otherwise."""
        return self._session.status

    @property
    def last_error_line(self) -> str:
        """The last line of its standard error, printable."""
        lines = self._session.words.decode("utf-8", "replace").strip().splitlines()
        if lines:
            return clean_text(lines[-1])
        return ""

    def write(self, data: bytes) -> None:
        """Send to its standard input; ignored if it has ended."""
        if data and not self.has_ended:
            with contextlib.suppress(BrokenPipeError, OSError):
                self._channel.write(data)

    def close_input(self) -> None:
        """Close its standard input."""
        if not self.has_ended:
            with contextlib.suppress(BrokenPipeError, OSError):
                self._channel.write_eof()

    def pause(self) -> None:
        """Stop reading, except for data already in the window."""
        if not self._paused and not self.has_ended:
            self._paused = True
            self._channel.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._paused:
            self._paused = False
            self._channel.resume_reading()

    async def wait(self) -> None:
        """Wait for the end of its output.

        Raises:
            Unreachable: the connection was lost.
            Exception: raised by `on_data`.
        """
        try:
            await asyncio.shield(self._session.ended)
        except (asyncssh.Error, OSError) as error:
            raise connection_lost_error(self._connection) from error
        if self._session.fault is not None:
            raise self._session.fault
        if self.status is None and self._connection.is_closed():
            raise connection_lost_error(self._connection)

    def close(self) -> None:
        """Disconnect."""
        if not self._session.ended.done():
            self._session.ended.set_result(None)
        self._channel.abort()


async def open_bulk(
    connection: BoxTransport,
    command: str,
    on_data: Callable[[bytes], None],
    window: int = 4 << 20,
) -> BulkChannel:
    """Start a command on a box.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        on_data: Called from the event loop with its output.
        window: Bytes on their way. 4 MB carry 100 MB/s over 40 ms.

    Raises:
        NoCommands: the box runs no commands, or no further one on this connection.
        Unreachable: the connection was lost.
    """
    session = _BulkSession(on_data)
    try:
        channel = await open_session(connection, lambda: session, command, window=window)
    except asyncssh.ChannelOpenError as error:
        raise channel_open_error(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    return BulkChannel(connection, channel, session)


# Feeds a command on a box with bulk data, at the pace at which the box reads it.


class _FeedingSession(CommandSession):
    def __init__(self) -> None:
        super().__init__()
        self.takes = asyncio.Event()
        self.takes.set()
        self.out = bytearray()
        self.words = bytearray()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            target = self.words
        else:
            target = self.out
        if len(target) < MOST_OUTPUT:
            target += data

    def pause_writing(self) -> None:
        self.takes.clear()

    def resume_writing(self) -> None:
        self.takes.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.takes.set()
        super().connection_lost(exc)


async def feed_command(
    connection: BoxTransport,
    command: str,
    pieces: AsyncIterator[bytes],
    *,
    name: str,
    silence: float = SILENCE_S,
) -> RemoteCommandResult:
    """Run a command, feed it from an iterator, and wait for its end.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        pieces: Its standard input; not consumed further once the command has ended.
        name: Its name in messages.
        silence: Seconds without progress of the box that are allowed, also after the end of the
            input.

    Raises:
        CommandFailed: it stops reading, or does not end.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost.
    """
    session = _FeedingSession()
    try:
        channel = await open_session(connection, lambda: session, command)
    except asyncssh.ChannelOpenError as error:
        raise channel_open_error(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
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
        raise CommandFailed(
            translate(
                "{name}: the box has accepted no data for {silence:g} s", name=name, silence=silence
            )
        ) from None
    except BrokenPipeError:
        pass  # it ended without reading everything: its status says why
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    finally:
        channel.abort()
    if session.status is None and connection.is_closed():
        raise connection_lost_error(connection)
    lines = bytes(session.words).decode(errors="replace").strip().splitlines()
    return RemoteCommandResult(
        session.status, bytes(session.out), " ".join(clean_text(line) for line in lines[-5:])[:1000]
    )
