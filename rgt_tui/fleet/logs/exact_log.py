"""Reads a file on a box byte by byte across lost connections: no gap, no repeat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import asyncssh
import msgspec

from rgt_tui.fleet.connector import Backoff
from rgt_tui.fleet.errands import reached
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    CatFailed,
    ConfigError,
    DeployFailed,
    FileBegins,
    HostKeyRefused,
    NoCommands,
    NoPython,
    Place,
    Unreachable,
    cat,
)

FOREVER = (CatFailed, AuthFailed, HostKeyRefused, ConfigError)
"""What trying again does not mend."""
INCAPABLE = (NoPython, NoCommands, DeployFailed)
"""What trying again does not mend on a box that has not yet shown that it can: later it is a full disk, or no room for
another process."""
ABSENT_SECONDS = 3.0
"""A file that is followed and of which nothing has come for so long is said to be waited for."""
SILENT_SECONDS = 30.0
"""A connection that stands and brings nothing for so long waits for a disk that hangs."""
NOTES = {
    "rotated": "{path} was rotated; continuing with the file that is there now",
    "truncated": "{path} was truncated or rewritten; continuing from its first byte",
    "removed": "{path} was removed; continuing with the new file",
    "replaced": "{path} is another file now, and the old one cannot be found: what was written to it after byte "
    "{offset:,} is missing here",
}


class Request(msgspec.Struct, frozen=True):
    """What is to be read."""

    path: str
    """On the box; ``~`` and globs are expanded there."""
    follow: bool = False
    lines: int | None = None
    """Begin with the last so many lines; None = with the first byte."""
    patience: float = 60.0
    """Seconds without a connection after which it is given up; while following only until the box was reached once."""
    accept_new_host_keys: bool = False


class ExactLog:
    """Reads one file.

    Args:
        spec: The box.
        request: What of it.
        say: Told in words what the reader should know: losses of the connection, rotation.
    """

    def __init__(self, spec: BoxSpec, request: Request, say: Callable[[str], None]) -> None:
        self._spec, self._request, self._say = spec, request, say
        self._place = Place()
        self._path = request.path
        self._until: int | None = None
        self._known = False
        """The file was found."""
        self._reached = False
        """The box was reached once: a follower goes on trying, whether or not the file was there yet."""

    @property
    def path(self) -> str:
        """On the box, as the agent has expanded it; as it was asked for before the first byte."""
        return self._path

    @property
    def offset(self) -> int:
        """Where the piece that was yielded last begins in its file."""
        return self._place.offset

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they come; each is counted as received when the next one is asked for.

        Raises:
            CatFailed: the file cannot be read.
            BoxError: the box cannot be reached, for longer than the patience lasts or for good.
        """
        backoff = Backoff()
        heard = time.monotonic()
        while True:
            try:
                async with reached(self._spec, accept_new_host_keys=self._request.accept_new_host_keys) as (
                    connection,
                    deployed,
                ):
                    self._reached = True
                    absent = asyncio.get_running_loop().call_later(ABSENT_SECONDS, self._waits)
                    try:
                        async for item in cat(connection, deployed, *self._words(), silence=self._silence()):
                            absent.cancel()
                            if isinstance(item, FileBegins):
                                self._begin(item)
                            else:
                                yield item
                                self._place.advance(item)
                            heard = time.monotonic()
                            backoff.reset()
                    finally:
                        absent.cancel()
                return
            except FOREVER:
                raise
            except (BoxError, asyncssh.Error, OSError, EOFError, TimeoutError) as error:
                if isinstance(error, INCAPABLE) and not self._reached:
                    raise
                words = str(error) or type(error).__name__
                stays = self._request.follow and self._reached
                if not stays and time.monotonic() - heard > self._request.patience:
                    raise error if isinstance(error, BoxError) else Unreachable(words) from error
                wait = backoff.wait()
                self._say(f"{words}; trying again in {wait:.0f} s, from byte {self._place.offset:,}")
                await asyncio.sleep(wait)

    def _waits(self) -> None:
        if self._request.follow and not self._known:
            self._say(f"there is no {self._path} that could be read yet; waiting for it (Ctrl-C ends that)")

    def _silence(self) -> float | None:
        """Return how long nothing may come; a file that is followed may stand still."""
        return None if self._request.follow else max(SILENT_SECONDS, self._request.patience)

    def _words(self) -> list[str]:
        words = ["--path", self._path]
        cursor = self._place.cursor()
        if cursor is not None:
            words += ["--cursor", cursor]
        elif self._request.lines is not None:
            words += ["--lines", str(self._request.lines)]
        if self._until is not None:
            words += ["--until", str(self._until)]
        return [*words, "--follow"] if self._request.follow else words

    def _begin(self, file: FileBegins) -> None:
        if file.why in NOTES:
            note = NOTES[file.why].format(path=file.path, offset=self._place.offset)
            if not self._request.follow:
                raise CatFailed(note)
            self._say(note)
        if not self._known:
            self._known = True
            self._path = file.path
            self._until = None if self._request.follow else file.size
        self._place.begin(file)
