"""A pull's connection to its box, and the pipe to the agent's ``send`` that answers its requests.

The pipe is a channel of rgt's own connection. A large pull over a short line gets a process of the
system's ``ssh`` instead, where that can be restricted to the verified host key and login. The
methods of both kinds of pipe block, and are called from one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rgt_tui.fleet.errands import connected_agent
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, clean_text
from rgt_tui.ssh import (
    BoxError,
    BoxTransport,
    BulkChannel,
    BulkClient,
    DeployedAgent,
    HostKeyRefused,
    NotCarried,
    Unreachable,
    bulk_client,
    open_bulk,
    refuses_host,
)
from rgt_tui.transfer.copying import StreamError

SILENCE_S = 120.0
"""A box that sends nothing for this long while a request is open is given up."""
CHECK_S = 1.0
"""Seconds between two checks whether the caller has given up."""
ENDING_S = 5.0
"""Seconds for an `ssh` process to exit once its command has ended."""


def silence_error(seconds: float = SILENCE_S) -> Unreachable:
    """Return the error for a box that has sent nothing for too long."""
    return Unreachable(
        translate(
            "the box has sent nothing for {seconds:g} s, though the connection is up: a disk or "
            "network file system there may hang",
            seconds=seconds,
        )
    )


class BoxPipe(Protocol):
    """A running ``send`` of the agent."""

    @property
    def line_bytes(self) -> int:
        """Bytes that came over the line so far."""

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""

    def write(self, data: bytes) -> None:
        """Send requests.

        Raises:
            NotCarried: as `ending_error`.
            HostKeyRefused: as `ending_error`.
            Unreachable: as `ending_error`.
        """

    def has_output(self) -> bool:
        """Wait up to `CHECK_S` for output, or for its end."""

    def read(self, buffer: bytearray | memoryview) -> int:
        """Read available output into `buffer`; return the byte count, 0 at the end."""

    def ending_error(self) -> Exception:
        """Return the error that describes why it ended."""

    def kill(self) -> None:
        """End it now; called from the event loop."""

    def close(self) -> None:
        """Close its input, so that it ends; called from the event loop."""


class UnpackingPipe:
    """Unpacks what ``send --pack`` of a box writes.

    Args:
        pipe: To that command.
        most: Bytes of an unpacked block, and of a frame: a box could send more to fill the memory.
    """

    def __init__(self, pipe: BoxPipe, most: int = 1 << 20) -> None:
        self._pipe, self._most = pipe, most
        self._raw, self._frames = bytearray(256 << 10), bytearray()
        self._ready: deque[memoryview] = deque()
        self._ended = False
        self.line_bytes = self.data_bytes = 0
        """Received over the line, and after unpacking."""
        self.write, self.ending_error = pipe.write, pipe.ending_error
        self.kill, self.close = pipe.kill, pipe.close

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._pipe.is_alive

    def has_output(self) -> bool:
        """Wait for output, and unpack it."""
        if not self._ready and not self._ended and self._pipe.has_output():
            count = self._pipe.read(self._raw)
            self._ended = not count
            self.line_bytes += count
            self._frames += memoryview(self._raw)[:count]
            self._unpack_frames()
        return bool(self._ready) or self._ended

    def _unpack_frames(self, head: int = 5) -> None:
        at = 0
        while len(self._frames) - at >= head:
            kind = bytes(self._frames[at : at + 1])
            size = int.from_bytes(self._frames[at + 1 : at + head], "big")
            # Before the frame is complete: a box must not make this side wait for gigabytes.
            if kind not in (b"r", b"z") or size > self._most:
                raise StreamError(translate("a frame of no kind, or too long"))
            if len(self._frames) - at - head < size:
                break
            body = bytes(self._frames[at + head : at + head + size])
            at += head + size
            if kind == b"z":
                body = self._unpack_block(body)
            self.data_bytes += len(body)
            if body:
                self._ready.append(memoryview(body))
        del self._frames[:at]

    def _unpack_block(self, body: bytes) -> bytes:
        stream = zlib.decompressobj()
        try:
            # With a limit, because a small block can unpack to any length.
            block = stream.decompress(body, self._most)
        except zlib.error as error:
            raise StreamError(
                translate("a packed block is damaged: {error}", error=error)
            ) from None
        if not stream.eof or stream.unused_data:
            raise StreamError(translate("a packed block is longer than allowed"))
        return block

    def read(self, buffer: bytearray | memoryview) -> int:
        """Read unpacked output."""
        view, count = memoryview(buffer), 0
        while self._ready and count < len(view):
            block = self._ready.popleft()
            room = len(view) - count
            if len(block) > room:
                self._ready.appendleft(block[room:])
                block = block[:room]
            view[count : count + len(block)] = block
            count += len(block)
        return count


class SshPipe:
    """A process of the system's `ssh`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.process = process
        self._requests, self._output = process.stdin.fileno(), process.stdout.fileno()
        self._errors = process.stderr.fileno()
        self.line_bytes = 0
        self._error_text = b""
        # Both outputs at once: an unread standard error that is full would stop ssh.
        self._poll = select.poll()
        for fd in (self._output, self._errors):
            self._poll.register(fd, select.POLLIN)

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self.process.poll() is None

    def write(self, data: bytes) -> None:
        """Send requests."""
        view = memoryview(data)
        try:
            while view:
                # A pipe may take only a part.
                view = view[os.write(self._requests, view) :]
        except BrokenPipeError:
            raise self.ending_error() from None

    def has_output(self) -> bool:
        """Wait for output."""
        found = {fd for fd, _ in self._poll.poll(CHECK_S * 1000)}
        # A closed descriptor is always ready, so it would spin.
        if self._errors in found and not self._read_errors():
            self._poll.unregister(self._errors)
        return self._output in found

    def read(self, buffer: bytearray | memoryview) -> int:
        """Read available output."""
        count = os.readv(self._output, [buffer])
        self.line_bytes += count
        return count

    def _read_errors(self) -> bool:
        """Keep the end of standard error; False = it is closed."""
        stderr_bytes = 4096
        data = os.read(self._errors, stderr_bytes)
        self._error_text = (self._error_text + data)[-stderr_bytes:]
        return bool(data)

    def ending_error(self) -> Exception:
        """Return why it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDING_S)
        with contextlib.suppress(OSError):
            # A child of ssh may hold the pipe open, and reading to its end would hang.
            os.set_blocking(self._errors, False)
            while self._read_errors():
                pass
        text = self._error_text.decode("utf-8", "replace").strip()
        last = clean_text(text.rpartition("\n")[2])[:300]
        # Before the exit status: a key that changed is no network problem.
        if refuses_host(text):
            return HostKeyRefused(
                translate(
                    "the box showed one host key when rgt logged in, and another one to ssh just "
                    "now: someone may be intercepting the connection; nothing more was taken"
                )
            )
        # ssh's own exit status; any other is the remote command's.
        not_connected = 255
        if not self.line_bytes and self.process.returncode == not_connected:
            return NotCarried(
                translate(
                    "ssh does not get there ({last})", last=last or translate("it says nothing")
                )
            )
        if last:
            return Unreachable(translate("the connection was lost ({last})", last=last))
        return Unreachable(translate("the connection was lost"))

    def kill(self) -> None:
        """End it."""
        self.process.kill()

    def close(self) -> None:
        """Close its input."""
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def wait(self) -> None:
        """Wait for the closed process; kill it after `ENDING_S`."""
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ChannelPipe:
    """A channel of rgt's own connection, which the event loop receives.

    Args:
        most_bytes: Unread bytes at which the channel pauses; it resumes at a quarter.
    """

    def __init__(self, most_bytes: int = 8 << 20) -> None:
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._received = self._read = 0
        self._paused = self._will_wake = False
        self._news = threading.Event()
        self._channel: BulkChannel | None = None
        self._end: asyncio.Future[None] | None = None

    async def open(self, connection: BoxTransport, command: str, window: int) -> None:
        """Start the command.

        Raises:
            BoxError: it cannot be started.
        """
        self._channel = await open_bulk(connection, command, self._add, window)
        self._end = asyncio.ensure_future(self._channel.wait())
        self._end.add_done_callback(lambda _: self._news.set())

    def _add(self, data: bytes) -> None:
        self._chunks.append(data)
        self._received += len(data)
        if self._received - self._read > self._most_bytes and self._channel is not None:
            self._paused = True
            self._channel.pause()
        if not self._will_wake:
            # Once per read of the socket, which has several packets.
            self._will_wake = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._will_wake = False
        self._news.set()

    def _resume(self) -> None:
        self._paused = False
        if self._channel is not None:
            self._channel.resume()

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._end is not None and not self._end.done()

    @property
    def line_bytes(self) -> int:
        """Bytes that were read so far."""
        return self._read

    def write(self, data: bytes) -> None:
        """Send requests."""
        if data and self._channel is not None:
            self._loop.call_soon_threadsafe(self._channel.write, data)

    def has_output(self) -> bool:
        """Wait for output."""
        if not self._chunks:
            self._news.clear()
            # Once more after `clear`: data that came in between has set the event before.
            if not self._chunks and self.is_alive:
                # It may have paused after `read` has looked: with nothing left to read, only this
                # resumes it.
                if self._paused:
                    self._loop.call_soon_threadsafe(self._resume)
                self._news.wait(CHECK_S)
        return bool(self._chunks) or not self.is_alive

    def read(self, buffer: bytearray | memoryview) -> int:
        """Read available output."""
        view, count = memoryview(buffer), 0
        while self._chunks and count < len(view):
            chunk = self._chunks.popleft()
            room = len(view) - count
            if len(chunk) > room:
                self._chunks.appendleft(chunk[room:])
                chunk = chunk[:room]
            view[count : count + len(chunk)] = chunk
            count += len(chunk)
        self._read += count
        if self._paused and self._received - self._read < self._most_bytes // 4:
            self._loop.call_soon_threadsafe(self._resume)
        return count

    def ending_error(self) -> Exception:
        """Return why it ended."""
        error = None
        if self._end is not None and self._end.done() and not self._end.cancelled():
            error = self._end.exception()
        if isinstance(error, BoxError):
            return error
        text = ""
        if self._channel is not None:
            text = self._channel.last_error_line
        if text:
            return Unreachable(translate("the agent ended: {words}", words=text))
        return Unreachable(translate("the agent ended"))

    def kill(self) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """Close its input."""
        if self._channel is not None:
            self._channel.close()


def round_trip_s(connection: BoxTransport) -> float | None:
    """Return the round trip that the kernel measured; None = unknown."""
    found = connection.get_extra_info("socket")
    if found is None or sys.platform != "linux":
        return None
    try:
        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 72)
        return float(struct.unpack_from("=I", info, 68)[0]) / 1e6  # tcpi_rtt of tcp(7)
    except (OSError, struct.error):
        return None


def may_pack(connection: BoxTransport, from_s: float) -> bool:
    """Return whether blocks may be packed: the line is long, or its length is unknown.

    Args:
        connection: To the box.
        from_s: Round trip from which a line counts as long.
    """
    # Through a jump host, the kernel measures only the connection to the jump host.
    if connection.get_extra_info("rgt_below") is not None:
        return True
    round_trip = round_trip_s(connection)
    return round_trip is None or round_trip >= from_s


class BoxConnection:
    """The connection to a box, opened on demand and reopened when lost.

    Args:
        spec: The box.
        accept_new_host_keys: Accept an unknown host key.
    """

    def __init__(self, spec: BoxSpec, *, accept_new_host_keys: bool = False) -> None:
        self._spec, self._accept = spec, accept_new_host_keys
        self._stack = contextlib.AsyncExitStack()
        self._open: tuple[BoxTransport, DeployedAgent] | None = None
        self._client: BulkClient | None = None
        self._pipes: list[SshPipe] = []
        self.no_ssh = ""
        """Why the system's `ssh` cannot be used although it would be faster; empty = it can, or
        was not tried."""
        self.packed: list[UnpackingPipe] = []
        """The pipes whose output was packed where that pays."""

    async def open(self, verb: str, on_data: Callable[[bytes], None], *words: str) -> BulkChannel:
        """Start a verb of the agent.

        Raises:
            BoxError: there is no connection.
        """
        connection, deployed = await self.reach()
        return await open_bulk(connection, deployed.build_command(verb, *words), on_data)

    async def reach(self) -> tuple[BoxTransport, DeployedAgent]:
        """Return the connection and the deployed agent, connecting if needed.

        Raises:
            BoxError: there is no connection.
        """
        if self._open is None or self._open[0].is_closed():
            # First close the old one: a stack of lost connections would be closed only at the end.
            await self._disconnect()
            there = connected_agent(self._spec, accept_new_host_keys=self._accept)
            self._open = await self._stack.enter_async_context(there)
        return self._open

    async def open_pipe(
        self, *, is_large: bool, long_s: float = 0.03, pack_from_s: float = 0.003
    ) -> BoxPipe:
        """Start a `send` that waits for requests.

        Args:
            is_large: Enough will be received to make up for one more login.
            long_s: Round trip from which a line counts as long: `ssh` has at most 2 MB on the way,
                so it would bring less there than rgt's own client.
            pack_from_s: Round trip from which the box may pack what it sends: over a shorter line,
                a file goes to the socket without being copied.

        Raises:
            BoxError: there is no connection.
            NotCarried: `ssh` cannot be started.
        """
        connection, deployed = await self.reach()
        round_trip = round_trip_s(connection)
        packs = may_pack(connection, pack_from_s)
        command = deployed.build_command("send", *(["--pack"] * packs))
        is_short = round_trip is not None and round_trip < long_s
        if is_large and is_short and await self._has_client(connection):
            assert self._client is not None
            process = await asyncio.to_thread(self._client.start_command, command)
            self._pipes.append(SshPipe(process))
            return self._unpack_output(self._pipes[-1], packs)
        pipe = ChannelPipe()
        # Over a short line, 16 MB on the way halved the speed.
        await pipe.open(connection, command, 4 << 20 if is_short else 16 << 20)
        return self._unpack_output(pipe, packs)

    def _unpack_output(self, pipe: BoxPipe, packs: bool) -> BoxPipe:
        if not packs:
            return pipe
        self.packed.append(UnpackingPipe(pipe))
        return self.packed[-1]

    async def _has_client(self, connection: BoxTransport) -> bool:
        if self._client is None and not self.no_ssh:
            try:
                self._client = await asyncio.to_thread(bulk_client, connection)
            except NotCarried as error:
                self.no_ssh = str(error)
            except OSError as error:
                self.no_ssh = translate(
                    "no file can be made for it ({strerror})", strerror=error.strerror or error
                )
        return not self.no_ssh

    async def _disconnect(self) -> None:
        self._open = None
        with contextlib.suppress(BoxError):
            await self._stack.aclose()

    async def close(self) -> None:
        """Disconnect, and wait for the `ssh` processes."""
        for pipe in self._pipes:
            pipe.close()
            await asyncio.to_thread(pipe.wait)
        await self._disconnect()
        if self._client is not None:
            self._client.close()
