"""The agent's ``cat``: the exact bytes of a file on a box, piece by piece, in bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import asyncssh
import msgspec

from rgt_tui.ssh.command import run
from rgt_tui.ssh.deploy import Deployed
from rgt_tui.ssh.errors import BoxError, Unreachable
from rgt_tui.ssh.noise import record
from rgt_tui.ssh.pipe import Pipe, open_pipe
from rgt_tui.ssh.refusing import lost, not_opened

T = TypeVar("T")

KEPT = 1024
"""Bytes before a position that prove it, as the agent counts them."""
LONGEST_PIECE = 1 << 20
AT_ONCE = 64 << 10
MOST_GREETINGS = 1000
"""Lines that a login shell may print before the agent speaks."""


class CatFailed(BoxError):
    """The agent could not read the file, or said something that cannot be."""


class FileBegins(msgspec.Struct, frozen=True, tag_field="t", tag="file"):
    """What follows is of this file."""

    path: str
    inode: int
    start: int
    size: int
    why: str | None = None
    """None at first, else resumed, rotated, truncated, replaced or removed."""


class FileListed(msgspec.Struct, frozen=True):
    """A file that is there."""

    path: str
    size: int
    mtime: float


class _Data(msgspec.Struct, frozen=True, tag_field="t", tag="data"):
    n: int


class _Error(msgspec.Struct, frozen=True, tag_field="t", tag="error"):
    text: str


class _End(msgspec.Struct, frozen=True, tag_field="t", tag="end"):
    pass


_decode = msgspec.json.Decoder(FileBegins | _Data | _Error | _End).decode


class Place:
    """Up to where a file has been received; survives the connection.

    Attributes:
        inode: Of the file; None before the first piece.
        offset: Byte behind the last that was received.
    """

    def __init__(self) -> None:
        self.inode: int | None = None
        self.offset = 0
        self._before = b""

    def begin(self, file: FileBegins) -> None:
        """Go over to a file; one that is merely resumed keeps what was received of it."""
        if (file.why, file.start) != ("resumed", self.offset):
            self._before = b""
        self.inode, self.offset = file.inode, file.start

    def advance(self, data: bytes) -> None:
        """Count a piece as received."""
        self.offset += len(data)
        self._before = (self._before + data)[-KEPT:]

    def cursor(self) -> str | None:
        """Return what the agent goes on from; None before the first piece."""
        if self.inode is None:
            return None
        digest = hashlib.sha256(self._before).hexdigest()
        return f"{self.inode}:{self.offset}:{len(self._before)}:{digest}"


async def cat(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, *words: str, silence: float | None = None
) -> AsyncIterator[FileBegins | bytes]:
    """Yield what the agent prints: which file, then its bytes in pieces; ends when the agent says that it was all.

    Args:
        connection: An open connection.
        deployed: The agent on the box.
        words: Its command line, see ``cat --help`` of the agent.
        silence: Seconds that the agent may say nothing; None = for ever, for a file that is followed.

    Raises:
        CatFailed: the file cannot be read.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost, or nothing came for as long as `silence`.
        EOFError: it ended without a word.
    """
    command = deployed.command("cat", *words)
    try:
        channel, pipe = await _soon(open_pipe(connection, command), silence)
    except asyncssh.ChannelOpenError as error:
        raise not_opened(connection, error, "to run commands") from error
    try:
        said = await _first(pipe, silence)
        while True:
            try:
                found = _decode(said)
            except (msgspec.DecodeError, RecursionError) as error:
                raise CatFailed(f"the agent said what is no record: {error}") from error
            if isinstance(found, _End):
                return
            if isinstance(found, _Error):
                raise CatFailed(found.text)
            if isinstance(found, FileBegins):
                yield found
            else:
                async for data in _received(pipe, found.n, silence):
                    yield data
            said = await _soon(pipe.readline(), silence)
    except EOFError as error:
        last = pipe.words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise EOFError(f"the agent ended: {last}" if last else "the connection ended") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    finally:
        channel.close()


async def _first(pipe: Pipe, silence: float | None) -> bytes:
    """Return the first record, behind what the start-up files of the login shell print."""
    for _ in range(MOST_GREETINGS):
        line = record(await _soon(pipe.readline(), silence))
        if line:
            return line
    raise CatFailed("the login shell on the box prints without end, and the agent does not come to speak")


async def _received(pipe: Pipe, left: int, silence: float | None) -> AsyncIterator[bytes]:
    """Yield a piece as it arrives: on a slow line that breaks often, every byte that came counts."""
    if not 0 < left <= LONGEST_PIECE:
        raise CatFailed(f"the agent announced a piece of {left} bytes")
    while left:
        data = await _soon(pipe.read(min(left, AT_ONCE)), silence)
        left -= len(data)
        yield data


async def _soon(coming: Awaitable[T], silence: float | None) -> T:
    late = asyncio.timeout(silence)
    try:
        async with late:
            return await coming
    except TimeoutError:
        if not late.expired():
            raise
        raise Unreachable(
            f"the box has sent nothing for {silence:g} s, though the connection stands: a disk or network file system "
            "there may hang"
        ) from None


async def listed(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, patterns: tuple[str, ...]
) -> tuple[FileListed, ...]:
    """Return the files of these paths and globs that are there, the one written last first.

    Raises:
        CatFailed: the agent's answer cannot be used.
        CommandFailed: it took too long, or is longer than anyone wants.
        NoCommands: the box runs no commands.
        Unreachable: the connection was lost.
    """
    words = [word for pattern in patterns for word in ("--list", pattern)]
    done = await run(connection, deployed.command("cat", *words), name="listing the files")
    lines = [line for raw in done.out.splitlines() if (line := record(raw))]
    try:
        return tuple(msgspec.json.decode(line, type=FileListed) for line in lines)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CatFailed(f"the agent's list of files cannot be used: {error}") from error
