"""Tunnels to a box: loopback listeners that stay open while the SSH connection is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence

import asyncssh

from rgt_tui.fleet.connector import Backoff
from rgt_tui.fleet.errands import connected
from rgt_tui.language import translate
from rgt_tui.model import LOOPBACK, BoxSpec, Tunnel
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    ConfigError,
    HostKeyRefused,
    connection_label,
    connection_lost_error,
)

BLOCK = 64 << 10
FINAL = (AuthFailed, HostKeyRefused, ConfigError)
"""Errors that need a person; a retry is useless."""


class CannotListen(OSError):
    """No loopback port is available; the message says why."""


class BoxTunnels:
    """All tunnels of one box.

    Args:
        spec: The box.
        tunnels: The requested tunnels.
        tell: Called with messages, a line each.
        accept_new_host_keys: Write the key of an unknown host to known_hosts.
    """

    def __init__(
        self,
        spec: BoxSpec,
        tunnels: Sequence[Tunnel],
        tell: Callable[[str], None],
        *,
        accept_new_host_keys: bool = False,
    ) -> None:
        self._spec, self._tunnels, self._tell, self._accept = (
            spec,
            tuple(tunnels),
            tell,
            accept_new_host_keys,
        )
        self._connection: asyncssh.SSHClientConnection | None = None
        self._servers: list[asyncio.Server] = []
        self._socks: list[tuple[Tunnel, int]] = []
        self._said: set[str] = set()
        self._busy: set[asyncio.Task[None]] = set()

    async def listen(self) -> list[tuple[Tunnel, int]]:
        """Begin to listen; return the tunnels with their ports.

        If the wanted port is in use, another one is chosen.

        Raises:
            CannotListen: no port is available.
        """
        # All listeners first: their ports are printed before the first connection, and stay.
        found = []
        for tunnel in self._tunnels:
            if tunnel.host:
                port = await self._open_listener(tunnel)
            else:
                port = await self._find_free_port(tunnel.local)
            if not tunnel.host:
                self._socks.append((tunnel, port))
            found.append((tunnel, port))
        return found

    async def _open_listener(self, tunnel: Tunnel) -> int:
        async def serve_connection(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._busy.add(task)
                task.add_done_callback(self._busy.discard)
            await self._forward_connection(tunnel, reader, writer)

        # 0: any free port. A tunnel on another port is better than none, and the port is printed.
        for port in (tunnel.local, 0):
            try:
                server = await asyncio.start_server(serve_connection, LOOPBACK, port)
            except OSError as error:
                # EACCES: ports below 1024 need root.
                if error.errno in (errno.EADDRINUSE, errno.EACCES) and port:
                    continue
                raise CannotListen(
                    error.errno,
                    translate(
                        "cannot listen on {loopback}:{port}: {strerror}",
                        loopback=LOOPBACK,
                        port=port,
                        strerror=error.strerror,
                    ),
                ) from error
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])
        raise AssertionError("a free port was refused as taken")

    async def _find_free_port(self, port: int) -> int:
        """Return the port if it is free, otherwise another free one.

        It is not kept open: asyncssh listens on it with each new connection.
        """
        for wanted in (port, 0):
            try:
                server = await asyncio.start_server(lambda *_: None, LOOPBACK, wanted)
            except OSError as error:
                if wanted:
                    continue
                raise CannotListen(
                    error.errno,
                    translate(
                        "cannot listen on {loopback}: {strerror}",
                        loopback=LOOPBACK,
                        strerror=error.strerror,
                    ),
                ) from error
            found = int(server.sockets[0].getsockname()[1])
            server.close()
            await server.wait_closed()
            return found
        raise AssertionError("a free port was refused as taken")

    async def run(self, up: Callable[[], None]) -> None:
        """Stay connected until cancelled; `up` is called once the first connection is open.

        Raises:
            BoxError: the first attempt failed, or a later one for a reason that only a person can
                change.
        """
        backoff, first = Backoff(), True
        while True:
            try:
                async with connected(self._spec, accept_new_host_keys=self._accept) as connection:
                    if not isinstance(connection, asyncssh.SSHClientConnection):
                        label = connection_label(connection)
                        raise ConfigError(
                            translate(
                                "rgt forwards ports over SSH only; use kubectl port-forward for "
                                "{label}",
                                label=label,
                            )
                        )
                    # With each new connection: asyncssh's listener ends with its connection.
                    await self._socks_of(connection)
                    self._connection = connection
                    if first:
                        up()
                    else:
                        self._tell(translate("connected again"))
                    first = False
                    # Only now: a box that refuses each login must not be asked ever faster.
                    backoff.reset()
                    await connection.wait_closed()
                    raise connection_lost_error(connection)
            except FINAL:
                raise
            except BoxError as error:
                # The first attempt fails at once: a person waits at the command line.
                if first:
                    raise
                wait = backoff.next_wait_s()
                self._tell(
                    translate(
                        "{error}; retrying in {wait:.0f} s, the ports stay", error=error, wait=wait
                    )
                )
            finally:
                self._connection = None
            await asyncio.sleep(wait)

    async def _socks_of(self, connection: asyncssh.SSHClientConnection) -> None:
        for tunnel, port in self._socks:
            try:
                await connection.forward_socks(LOOPBACK, port)
            except OSError as error:
                self._tell(
                    translate(
                        "{tunnel}: cannot listen on {loopback}:{port}: {strerror}",
                        tunnel=tunnel,
                        loopback=LOOPBACK,
                        port=port,
                        strerror=error.strerror or error,
                    )
                )

    async def _forward_connection(
        self, tunnel: Tunnel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward one connection; without a connection to the box it is closed at once."""
        connection = self._connection
        try:
            if connection is None:
                return
            # asyncssh wants an IPv6 address without brackets.
            host = tunnel.host.strip("[]")
            there, back = await connection.open_connection(host, tunnel.port, encoding=None)
        except asyncssh.ChannelOpenError as error:
            # Once: a browser opens many connections, each with this error.
            self._tell_once(
                translate(
                    "{remote_end}: {reason}: is anything listening there?",
                    remote_end=tunnel.remote_end,
                    reason=error.reason,
                )
            )
            return
        except (asyncssh.Error, OSError):
            return
        else:
            # Both to their end: a program may close its sending side and still read the answer.
            await asyncio.gather(
                _copy_stream(reader, back), _copy_stream(there, writer), return_exceptions=True
            )
            back.close()
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncssh.Error):
                await writer.wait_closed()

    def _tell_once(self, words: str) -> None:
        if words not in self._said:
            self._said.add(words)
            self._tell(words)

    async def close(self) -> None:
        """Stop listening, and close all forwarded connections."""
        for server in self._servers:
            server.close()
        for task in list(self._busy):
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)


async def _copy_stream(
    reader: asyncio.StreamReader | asyncssh.SSHReader[bytes],
    writer: asyncio.StreamWriter | asyncssh.SSHWriter[bytes],
) -> None:
    """Copy until the end, at the reader's pace.

    The end of one direction does not close the other.
    """
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
        # Passed on, since many protocols answer only after the end of the request.
        writer.write_eof()
