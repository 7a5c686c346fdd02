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
"""How long to retry a lost connection."""
SILENCE_S = 120.0
"""A box that sends nothing for this long while a request is open is given up."""
ENOUGH = 60e6
"""Bytes per second that one `ssh` transfers at least, unless latency limits it: its window is 2 MB,
so below this rate the line is probably long, and more connections help."""
ENDING_S = 2.0
"""Seconds for an `ssh` process to exit once its command has ended."""
SEND = "send"
WAITS = """sh -c 'read -r command && eval "exec $command"'"""
"""Runs the command line that it reads from standard input, in any login shell. The shell reads no
byte beyond that line."""


class PullFailed(Exception):
    """The pull is impossible or broke off; the message says why.

    Files received so far are kept for the next pull.
    """


def silent(seconds: float = SILENCE_S) -> Unreachable:
    """Return the error for a box that has sent nothing for too long."""
    return Unreachable(
        f"the box has sent nothing for {seconds:g} s, though the connection is up: a disk or network file system "
        "there may hang"
    )


UNCLAIMED_BYTES = 1_000_000
"""More bytes of unclaimed files make a pull of a box's results incomplete; a few shell scripts do
not."""


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Paths and options of a pull."""

    paths: tuple[str, ...] = ()
    """On the box; empty = its results."""
    wanted: Wanted | None = None
    """If set, `paths` are directories of the list of results made with it, and exactly the files
    counted in them are fetched; None = everything below them."""
    destination: Path
    """Absolute path."""
    streams: int = 4
    limit: float | None = None
    """Bytes per second; None = no limit."""
    unclaimed_bytes: float = UNCLAIMED_BYTES
    """Without `paths`: how many bytes of files that no job, run or `results` claims may stay on the
    box."""
    dry_run: bool = False
    patience: float = PATIENCE_S
    """How many seconds to retry a lost connection."""
    accept_new_host_keys: bool = False


class Way:
    """The connection to a box, opened on demand and reopened when lost, and the system's `ssh`.

    Args:
        spec: The box.
        request: Includes whether to accept new host keys.
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
        """Set when the first connection is open; the agent may not be deployed yet."""
        self._first: asyncssh.SSHClientConnection | None = None
        self.carrier = ""
        """Why bytes are not transferred by the system's `ssh`; empty = they are, or `ssh` was not
        tried yet."""

    async def open(self, verb: str, on_data: Callable[[bytes], None], *words: str) -> BulkChannel:
        """Start a verb of the agent on the connection.

        Raises:
            BoxError: there is no connection.
        """
        connection, deployed = await self.reach()
        return await open_bulk(connection, deployed.command(verb, *words), on_data)

    async def reach(self) -> tuple[asyncssh.SSHClientConnection, Deployed]:
        """Return the connection and the deployed agent, connecting if needed.

        Raises:
            BoxError: there is no connection.
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
        """Return the system's `ssh`, bound to the first connection's host key; None = unusable.

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
        """Return a `send` process through the system's `ssh` that waits for requests.

        Raises:
            BoxError: there is no connection.
            NotCarried: `ssh` cannot be started, or is unusable.
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
        """Connect now, and start `ssh` while the agent is still being deployed.

        `ssh` receives its command line only after that.
        """
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
        """Return an idle process for further requests."""
        self._idle.append(pipe)

    def leave(self, pipe: BoxPipe) -> None:
        """Close a process's pipes so that it ends; `close` waits for it."""
        process = pipe.process
        self._leaving.append(process)
        for file in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def dismiss(self) -> None:
        """Let the idle processes end in the background: no more requests follow."""
        while self._idle:
            self.leave(self._idle.pop())

    def give_up_client(self, why: str) -> None:
        """Stop using the system's `ssh`."""
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
        """Disconnect, and wait for the processes."""
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
