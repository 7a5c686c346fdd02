"""Runs a command on a box with this process's own standard streams, and keeps its exit status.

Threads read and write them: a reader that pauses (a pager) must stop neither the event loop nor the signs of life of
the connection, and a terminal must not be left in another mode than it was in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable

import asyncssh
import msgspec

from rgt_tui.ssh.remote_command import lost, not_opened, open_session

BLOCK = 64 << 10
HIGH, LOW = 4 << 20, 1 << 20
"""Bytes that wait to be written: above the one nothing more is taken from the box, until they are below the other."""
STDOUT, STDERR = 1, 2


class Passed(msgspec.Struct, frozen=True):
    """How a command ended."""

    status: int | None
    """128 and the number of the signal where one ended it; None = the box did not say."""
    error: OSError | None = None
    """Why its output could not be written here; it was hung up on then."""


class _Session(asyncssh.SSHClientSession[bytes]):
    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: int | None = None
        self.error: OSError | None = None
        self.may_send = threading.Event()
        self.may_send.set()
        self._loop = asyncio.get_running_loop()
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._pieces: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._paused = False
        self._fault: Exception | None = None
        threading.Thread(target=self._write_all, daemon=True, name="rgt-output").start()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
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
        """Write what comes, in its order; runs in a thread of its own."""
        while (piece := self._pieces.get()) is not None:
            descriptor, data = piece
            try:
                left = memoryview(data)
                while left and self.error is None:
                    left = left[os.write(descriptor, left) :]
            except OSError as error:
                self.error = error
            self._call(self._written, len(data))
        self._call(self._end)

    def _call(self, function: Callable[..., None], *given: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *given)

    def _written(self, count: int) -> None:
        self._waiting -= count
        if self._channel is None:
            return
        if self.error is not None:
            self._channel.abort()
        elif self._paused and self._waiting < LOW:
            self._paused = False
            self._channel.resume_reading()

    def _end(self) -> None:
        if self.ended.done():
            return
        if self._fault is not None and self.error is None:
            self.ended.set_exception(self._fault)
        else:
            self.ended.set_result(None)


def signal_number(name: str) -> int:
    """Return the number of a signal as SSH names it, such as ``KILL``; 0 where this system has none of that name."""
    return getattr(signal, f"SIG{name.partition('@')[0]}", 0) if name.isascii() else 0


def _send_all(
    loop: asyncio.AbstractEventLoop, session: _Session, channel: asyncssh.SSHClientChannel[bytes]
) -> None:
    """Send standard input to its end; runs in a thread of its own."""

    def send(data: bytes) -> None:
        if not session.ended.done():
            with contextlib.suppress(BrokenPipeError, OSError):  # it has ended without reading
                channel.write(data) if data else channel.write_eof()

    with contextlib.suppress(RuntimeError, OSError):
        while not session.ended.done():
            session.may_send.wait()
            data = os.read(0, BLOCK)
            loop.call_soon_threadsafe(send, data)
            if not data:
                return


async def pass_through(
    connection: asyncssh.SSHClientConnection, command: str, interrupted: asyncio.Event | None = None
) -> Passed:
    """Run a command with this process's own standard streams.

    Args:
        connection: To the box.
        command: For the login shell of the box.
        interrupted: Once it is set the command gets a SIGINT, and is hung up on where it does not end by that.

    Raises:
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost; whether the command still runs there is not known.
    """
    session = _Session()
    try:
        channel = await open_session(connection, lambda: session, command)
    except asyncssh.ChannelOpenError as error:
        raise not_opened(connection, error, "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    loop = asyncio.get_running_loop()
    threading.Thread(target=_send_all, args=(loop, session, channel), daemon=True, name="rgt-input").start()
    asking = None if interrupted is None else loop.create_task(_interrupt(interrupted, session, channel))
    try:
        await asyncio.shield(session.ended)
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    finally:
        if asking is not None:
            asking.cancel()
        channel.abort()
    given_up = interrupted is not None and interrupted.is_set()
    if session.status is None and session.error is None and not given_up and connection.is_closed():
        raise lost(connection)
    return Passed(session.status, session.error)


GRACE_S = 1.0
"""What a command has to end in after a SIGINT, before it is hung up on. OpenSSH hands on no signal to root's commands:
a server that has kept its privileges does not (``session_signal_req``)."""


async def _interrupt(
    interrupted: asyncio.Event, session: _Session, channel: asyncssh.SSHClientChannel[bytes]
) -> None:
    await interrupted.wait()
    with contextlib.suppress(asyncssh.Error, OSError):
        channel.send_signal("INT")
    await asyncio.wait([session.ended], timeout=GRACE_S)
    if not session.ended.done():
        session.ended.set_result(None)
