"""The agent's ``cat`` verb: the exact bytes of a file on a box, in pieces, in bounded memory.

asyncssh's own reader reopens the window by more than was consumed whenever reading pauses between
two deliveries, and then buffers hundreds of megabytes of a fast sender. Here reading pauses late
and resumes only when all received data fits, so that the window bounds the buffer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import asyncssh
import msgspec

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ssh.box_transport import BoxChannel, BoxError, BoxTransport, Unreachable
from rgt_tui.ssh.deployment import DeployedAgent
from rgt_tui.ssh.remote_command import (
    channel_open_error,
    connection_lost_error,
    extract_record,
    open_session,
    run_command,
)

WINDOW = 256 << 10
"""Bytes that may be in flight."""
HIGH, LOW = 4 * WINDOW, WINDOW
STDERR_BYTES = 4096
LONGEST_LINE = 64 << 10


class OutputPipe(asyncssh.SSHClientSession[bytes]):
    """A session whose output can be awaited.

    Attributes:
        words: The end of standard error.
    """

    def __init__(self) -> None:
        self.words = b""
        self._data = bytearray()
        self._chan: BoxChannel | None = None
        self._paused = self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def connection_made(self, chan: BoxChannel) -> None:
        """Keep the channel, for its flow control."""
        self._chan = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Buffer received data."""
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.words = (self.words + data)[-STDERR_BYTES:]
            return
        # Also while reading is paused: data in flight still arrives, up to the window.
        self._data += data
        self._news.set()
        if len(self._data) >= HIGH and not self._paused and self._chan is not None:
            self._paused = True
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        """Record that no more data will arrive."""
        self._ended = True
        self._news.set()
        # The channel stays open, so that the exit status and standard error still arrive.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that no more data will arrive, perhaps because of an error."""
        self._ended, self._error = True, exc
        self._news.set()

    async def read(self, most: int) -> bytes:
        """Return buffered data, at most `most` bytes; wait for the first byte.

        Raises:
            EOFError: no more data will arrive.
            asyncssh.Error: the connection was lost.
        """
        await self._wait_for_more(0)
        # Through a view: a slice of the bytearray would copy the data twice.
        data = bytes(memoryview(self._data)[:most])
        self._drop_bytes(len(data))
        return data

    async def readline(self) -> bytes:
        """Return the next line with its line feed.

        Raises:
            EOFError: it has no end, or is longer than expected.
            asyncssh.Error: the connection was lost.
        """
        # When more of a long line arrives, only the new part is searched.
        searched = 0
        while (end := self._data.find(b"\n", searched)) < 0:
            searched = len(self._data)
            if searched > LONGEST_LINE:
                raise EOFError("a line without an end")
            await self._wait_for_more(searched)
        line = bytes(memoryview(self._data)[: end + 1])
        self._drop_bytes(len(line))
        return line

    async def _wait_for_more(self, than: int) -> None:
        while len(self._data) <= than:
            if self._ended:
                # Only when the buffer is used up: data that has arrived is valid.
                raise self._error or EOFError("the command ended")
            self._news.clear()
            await self._news.wait()

    def _drop_bytes(self, count: int) -> None:
        del self._data[:count]
        if self._paused and len(self._data) <= LOW and self._chan is not None:
            self._paused = False
            self._chan.resume_reading()


async def open_pipe(connection: BoxTransport, command: str) -> tuple[BoxChannel, OutputPipe]:
    """Start a command on a box; its standard input stays open until the channel is closed.

    Raises:
        asyncssh.Error: it cannot be started.
    """
    pipe = OutputPipe()
    channel = await open_session(connection, lambda: pipe, command, window=WINDOW)
    return channel, pipe


T = TypeVar("T")

KEPT = 1024
"""Bytes before a position that identify it; the same as in the agent."""
LONGEST_PIECE = 1 << 20
AT_ONCE = 64 << 10


class CatFailed(BoxError):
    """The agent could not read the file, or sent an invalid answer."""


class FileBegins(FrozenStruct, tag_field="t", tag="file"):
    """The following data belongs to this file."""

    path: str
    inode: int
    start: int
    size: int
    why: str | None = None
    """None at first, else resumed, rotated, truncated, replaced or removed."""


class FileListed(FrozenStruct):
    """An existing file."""

    path: str
    size: int
    mtime: float


class _DataRecord(FrozenStruct, tag_field="t", tag="data"):
    n: int


class _ErrorRecord(FrozenStruct, tag_field="t", tag="error"):
    text: str


class _EndRecord(FrozenStruct, tag_field="t", tag="end"):
    pass


_decode = msgspec.json.Decoder(FileBegins | _DataRecord | _ErrorRecord | _EndRecord).decode


class FileProgress:
    """The position up to which a file has been received; it survives the connection.

    Attributes:
        inode: Inode of the file; None before the first piece.
        offset: Offset after the last received byte.
    """

    def __init__(self) -> None:
        self.inode: int | None = None
        self.offset = 0
        self._before = b""

    def begin_file(self, file: FileBegins) -> None:
        """Switch to a file; one that is merely resumed keeps the received bytes."""
        # The bytes before the position identify the file; those of another one must not.
        if (file.why, file.start) != ("resumed", self.offset):
            self._before = b""
        self.inode, self.offset = file.inode, file.start

    def add_piece(self, data: bytes) -> None:
        """Count a piece as received."""
        self.offset += len(data)
        self._before = (self._before + data)[-KEPT:]

    def resume_cursor(self) -> str | None:
        """Return the cursor for resuming; None before the first piece."""
        if self.inode is None:
            return None
        digest = hashlib.sha256(self._before).hexdigest()
        return f"{self.inode}:{self.offset}:{len(self._before)}:{digest}"


async def stream_cat(
    connection: BoxTransport,
    deployed: DeployedAgent,
    *words: str,
    silence: float | None = None,
) -> AsyncIterator[FileBegins | bytes]:
    """Yield the agent's output: a file record, then its bytes in pieces, until the end record.

    Args:
        connection: An open connection.
        deployed: The agent on the box.
        words: Its command line, see ``cat --help`` of the agent.
        silence: Seconds without output that are allowed; None = unlimited, for a followed file.

    Raises:
        CatFailed: the file cannot be read.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost, or nothing arrived for `silence` seconds.
        EOFError: it ended without an end record.
    """
    command = deployed.build_command("cat", *words)
    try:
        channel, pipe = await _await_within(open_pipe(connection, command), silence)
    except asyncssh.ChannelOpenError as error:
        raise channel_open_error(connection, error, "to run commands") from error
    try:
        said = await _read_first_record(pipe, silence)
        while True:
            try:
                found = _decode(said)
            except (msgspec.DecodeError, RecursionError) as error:
                raise CatFailed(
                    f"the agent sent something that is not a record: {error}"
                ) from error
            if isinstance(found, _EndRecord):
                return
            if isinstance(found, _ErrorRecord):
                raise CatFailed(clean_text(found.text))
            if isinstance(found, FileBegins):
                yield found
            else:
                async for data in _iterate_pieces(pipe, found.n, silence):
                    yield data
            said = await _await_within(pipe.readline(), silence)
    except EOFError as error:
        last = pipe.words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise EOFError(f"the agent ended: {last}" if last else "the connection ended") from error
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    finally:
        channel.close()


async def _read_first_record(pipe: OutputPipe, silence: float | None) -> bytes:
    """Return the first record, after the output of the login shell's start-up files."""
    # Lines that a login shell may print before the agent's first record.
    most_greetings = 1000
    for _ in range(most_greetings):
        line = extract_record(await _await_within(pipe.readline(), silence))
        if line:
            return line
    raise CatFailed("the login shell on the box prints endlessly, so the agent cannot start")


async def _iterate_pieces(
    pipe: OutputPipe, left: int, silence: float | None
) -> AsyncIterator[bytes]:
    """Yield a piece as it arrives: on a slow, unstable connection every received byte counts."""
    # The number comes from the box, and decides how much is read without a record.
    if not 0 < left <= LONGEST_PIECE:
        raise CatFailed(f"the agent announced a piece of {left} bytes")
    while left:
        data = await _await_within(pipe.read(min(left, AT_ONCE)), silence)
        left -= len(data)
        yield data


async def _await_within(coming: Awaitable[T], silence: float | None) -> T:
    # Kept, because a TimeoutError may also come from the connection itself.
    late = asyncio.timeout(silence)
    try:
        async with late:
            return await coming
    except TimeoutError:
        if not late.expired():
            raise
        raise Unreachable(
            translate(
                "the box has sent nothing for {silence:g} s, though the connection is up: a disk "
                "or network file system there may hang",
                silence=silence,
            )
        ) from None


async def list_matching_files(
    connection: BoxTransport, deployed: DeployedAgent, patterns: tuple[str, ...]
) -> tuple[FileListed, ...]:
    """Return the existing files of these paths and globs, the most recently written first.

    Raises:
        CatFailed: the agent's answer cannot be used.
        CommandFailed: it took too long, or is too long.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost.
    """
    words = [word for pattern in patterns for word in ("--list", pattern)]
    done = await run_command(
        connection, deployed.build_command("cat", *words), name="listing the files"
    )
    lines = [line for raw in done.out.splitlines() if (line := extract_record(raw))]
    try:
        return tuple(msgspec.json.decode(line, type=FileListed) for line in lines)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CatFailed(f"invalid file list from the agent: {error}") from error
