"""A pull's request and its connections: asyncssh's, and the system's ``ssh`` for bulk data."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import asyncssh
import msgspec

from rgt_tui.fleet.box_evidence import Wanted
from rgt_tui.fleet.errands import reached
from rgt_tui.fleet.pulls.box_pipe import BoxPipe
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import (
    BoxError,
    BulkChannel,
    BulkClient,
    Deployed,
    NotCarried,
    Unreachable,
    bulk_client,
    open_bulk,
)

PATIENCE_S = 120.0
"""A connection that was lost is tried again for so long."""
SILENCE_S = 120.0
"""A box that sends nothing for so long, while something is asked of it, is given up."""
ENOUGH = 60e6
"""Bytes per second that one `ssh` brings at the least where the line is not what bounds it: its window is 2 MB, so a
slower one may be a long line, which more of them fill better."""
ENDING_S = 2.0
"""An `ssh` whose command has ended, or must, has so long to go."""
SEND = "send"
WAITS = """sh -c 'read -r command && eval "exec $command"'"""
"""For any login shell: runs the command that comes on its standard input. The shell reads no byte beyond its line."""


class PullFailed(Exception):
    """Nothing (more) can be pulled; the message says why. What has arrived is kept for the next pull."""


def silent(seconds: float = SILENCE_S) -> Unreachable:
    """Return the message about a box that has sent nothing for too long."""
    return Unreachable(
        f"the box has sent nothing for {seconds:g} s, though the connection is up: a disk or network file system "
        "there may hang"
    )


UNCLAIMED_BYTES = 1_000_000
"""Unclaimed files of more bytes in all make a pull of a box's results incomplete: a few shell scripts do not."""


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pulled, and how."""

    paths: tuple[str, ...] = ()
    """On the box; empty = what its results are."""
    wanted: Wanted | None = None
    """With it, `paths` are directories of the list of results that was made so, and exactly the files that it counts
    in them are fetched; None = everything below them."""
    destination: Path
    """Absolute."""
    streams: int = 4
    limit: float | None = None
    """Bytes per second; None = as fast as it goes."""
    unclaimed_bytes: float = UNCLAIMED_BYTES
    """Without `paths`: how many bytes of files that no job, run or `results` claims may stay on the box."""
    dry_run: bool = False
    patience: float = PATIENCE_S
    """Seconds for which a lost connection is tried again."""
    accept_new_host_keys: bool = False


class Way:
    """The connection to a box, made when it is needed and made again when it is lost, and the `ssh` next to it.

    Args:
        spec: The box.
        request: How long a lost one is tried again.
    """

    def __init__(self, spec: BoxSpec, request: PullRequest) -> None:
        self._spec, self._request = spec, request
        self._stack = contextlib.AsyncExitStack()
        self._open: tuple[asyncssh.SSHClientConnection, Deployed] | None = None
        self._connecting = asyncio.Lock()
        self._client: BulkClient | None = None
        self._looked = asyncio.Lock()
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._ready: asyncio.Future[BoxPipe] | None = None
        self._idle: list[BoxPipe] = []
        self._standing = asyncio.Event()
        """The first connection stands; the agent may not be in place yet."""
        self._first: asyncssh.SSHClientConnection | None = None
        self.carrier = ""
        """Why bytes do not go through the system's `ssh`, in words; empty = they do, or nobody has asked yet."""

    async def open(self, verb: str, on_data: Callable[[bytes], None], *words: str) -> BulkChannel:
        """Start a verb of the agent on the connection.

        Raises:
            BoxError: it cannot be had.
        """
        connection, deployed = await self.reach()
        return await open_bulk(connection, deployed.command(verb, *words), on_data)

    async def reach(self) -> tuple[asyncssh.SSHClientConnection, Deployed]:
        """Return the connection, and where the agent is.

        Raises:
            BoxError: it cannot be had.
        """
        async with self._connecting:
            if self._open is None or self._open[0].is_closed():
                await self._hang_up()
                there = reached(
                    self._spec,
                    accept_new_host_keys=self._request.accept_new_host_keys,
                    standing=self._stands,
                )
                self._open = await self._stack.enter_async_context(there)
            return self._open

    async def client(self) -> BulkClient | None:
        """Return the system's `ssh`, held to what the first connection has proven; None = it cannot be used.

        Raises:
            BoxError: there is no connection.
        """
        async with self._looked:
            if self._client is None and not self.carrier:
                connection = self._first or (await self.reach())[0]
                try:
                    self._client = await asyncio.to_thread(bulk_client, connection)
                except NotCarried as error:
                    self.carrier = str(error)
                except OSError as error:
                    self.carrier = f"no file can be made for it ({error.strerror or error})"
            if self.carrier:
                return None
            return self._client

    async def piped(self) -> BoxPipe:
        """Return a `send` through the system's `ssh` that waits for requests.

        Raises:
            BoxError: there is no connection.
            NotCarried: it cannot be started, or cannot be used.
        """
        ready, self._ready = self._ready, None
        if ready is not None:
            self.keep(await ready)
        while self._idle:
            pipe = self._idle.pop()
            if pipe.alive:
                return pipe
            self.leave(pipe)
        client = await self.client()
        if client is None:
            raise NotCarried(self.carrier)
        _, deployed = await self.reach()
        return BoxPipe(await asyncio.to_thread(client.start, deployed.command(SEND)), SILENCE_S)

    def get_ready(self) -> None:
        """Connect now, and log `ssh` in while the agent is looked for: what it is to run it is told after that."""
        self._ready = asyncio.ensure_future(self._get_ready())

    async def _get_ready(self) -> BoxPipe:
        connecting = asyncio.ensure_future(self.reach())
        standing = asyncio.ensure_future(self._standing.wait())
        pipe = None
        try:
            await asyncio.wait({connecting, standing}, return_when=asyncio.FIRST_COMPLETED)
            client = await self.client() if self._standing.is_set() else None
            if client is not None:
                pipe = BoxPipe(await asyncio.to_thread(client.start, WAITS), SILENCE_S)
            _, deployed = await connecting
            if pipe is None:
                raise NotCarried(self.carrier)
            await asyncio.to_thread(pipe.write, deployed.command(SEND).encode() + b"\n")
            return pipe
        except BaseException:
            if pipe is not None:
                pipe.process.kill()
                self.leave(pipe)
            raise
        finally:
            standing.cancel()
            if not connecting.done():
                connecting.cancel()
            await asyncio.gather(standing, connecting, return_exceptions=True)

    def keep(self, pipe: BoxPipe) -> None:
        """Take one back that waits for further requests."""
        self._idle.append(pipe)

    def leave(self, pipe: BoxPipe) -> None:
        """Let one end: its input ends now, and it is waited for with `close`."""
        process = pipe.process
        self._leaving.append(process)
        for file in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def dismiss(self) -> None:
        """Let those end that wait: nothing more is asked. They do so while this side goes on."""
        while self._idle:
            self.leave(self._idle.pop())

    def give_up_client(self, why: str) -> None:
        """Do without the system's `ssh` from now on."""
        self.carrier = self.carrier or why

    def _stands(self, connection: asyncssh.SSHClientConnection) -> None:
        self._first = connection
        self._standing.set()

    def _reap(self) -> None:
        until = time.monotonic() + ENDING_S
        for process in self._leaving:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def _hang_up(self) -> None:
        self._open = None
        with contextlib.suppress(BoxError):
            await self._stack.aclose()

    async def close(self) -> None:
        """Hang up."""
        if self._ready is not None:
            self._ready.cancel()
            with contextlib.suppress(asyncio.CancelledError, BoxError, NotCarried):
                self.keep(await self._ready)
        self.dismiss()
        if self._leaving:
            await asyncio.to_thread(self._reap)
        await self._hang_up()
        if self._client is not None:
            self._client.close()
