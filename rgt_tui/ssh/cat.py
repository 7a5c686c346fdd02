"""The agent's ``cat``: the exact bytes of a file on a box, piece by piece, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import asyncssh
import msgspec

from rgt_tui.ssh.deploy import Deployed
from rgt_tui.ssh.errors import BoxError
from rgt_tui.ssh.pipe import Pipe, open_pipe

KEPT = 1024
"""Bytes before a position that prove it, as the agent counts them."""
LONGEST_PIECE = 1 << 20
AT_ONCE = 64 << 10


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
    connection: asyncssh.SSHClientConnection, deployed: Deployed, *words: str
) -> AsyncIterator[FileBegins | bytes]:
    """Yield what the agent prints: which file, then its bytes in pieces; ends when the agent says that it was all.

    Args:
        connection: An open connection.
        deployed: The agent on the box.
        words: Its command line, see ``cat --help`` of the agent.

    Raises:
        CatFailed: the file cannot be read.
        asyncssh.Error: the connection was lost.
        EOFError: it ended without a word.
    """
    channel, pipe = await open_pipe(connection, deployed.command("cat", *words))
    try:
        while True:
            try:
                record = _decode(await pipe.readline())
            except msgspec.DecodeError as error:
                raise CatFailed(f"the agent said what is no record: {error}") from error
            except EOFError as error:
                said = pipe.words.decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise EOFError(f"the agent ended: {said}" if said else "the connection ended") from error
            if isinstance(record, _End):
                return
            if isinstance(record, _Error):
                raise CatFailed(record.text)
            if isinstance(record, FileBegins):
                yield record
            else:
                async for data in _received(pipe, record.n):
                    yield data
    finally:
        channel.close()


async def _received(pipe: Pipe, left: int) -> AsyncIterator[bytes]:
    """Yield a piece as it arrives: on a slow line that breaks often, every byte that came counts."""
    if not 0 < left <= LONGEST_PIECE:
        raise CatFailed(f"the agent announced a piece of {left} bytes")
    while left:
        data = await pipe.read(min(left, AT_ONCE))
        left -= len(data)
        yield data


async def listed(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, patterns: tuple[str, ...]
) -> tuple[FileListed, ...]:
    """Return the files of these paths and globs that are there, the one written last first.

    Raises:
        CatFailed: the agent's answer cannot be used.
    """
    words = [word for pattern in patterns for word in ("--list", pattern)]
    done = await connection.run(deployed.command("cat", *words), encoding=None, timeout=30)
    said = done.stdout or b""
    try:
        return tuple(
            msgspec.json.decode(line, type=FileListed)
            for line in (said.encode() if isinstance(said, str) else said).splitlines()
        )
    except msgspec.DecodeError as error:
        raise CatFailed(f"the agent's list of files cannot be used: {error}") from error
