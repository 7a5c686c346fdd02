"""A real SSH server for each sandboxed machine, on a loopback port of this process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import asyncssh

from rgt_tui.demo.sandboxes import SandboxMachine, end_process
from rgt_tui.demo.workspace import DemoError

HOST = "127.0.0.1"
CHUNK = 1 << 16
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
"""Paths of OpenSSH's server in various distributions; the machines share this one's /usr."""


def sftp_server() -> str | None:
    """Return the path of the SFTP server, or None: boxes are then *limited*, like real ones."""
    return next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)


class _SshSession(asyncssh.SSHServerProcess[bytes]):
    """A session of a box, where `sftp` is a normal program that sees the box's own disks."""

    def __init__(
        self, serve: Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]
    ) -> None:
        # No SFTP and no scp of asyncssh's own: they would serve this process's file system.
        super().__init__(serve, None, 3, False)

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp" and sftp_server() is not None

    def session_started(self) -> None:
        if self.channel.get_subsystem() != "sftp":
            super().session_started()
            return
        # asyncssh would serve this process's own file system.
        streams = (
            asyncssh.SSHReader[bytes](self, self.channel),
            asyncssh.SSHWriter[bytes](self, self.channel),
            asyncssh.SSHWriter[bytes](self, self.channel, asyncssh.EXTENDED_DATA_STDERR),
        )
        serving = self._start_process(*streams)
        assert isinstance(serving, Coroutine)
        self.channel.get_connection().create_task(serving, self.channel.logger)


class _SshServer(asyncssh.SSHServer):
    """Accepts the demo's only client key, and tracks connections so that they can be dropped."""

    def __init__(self, sshd: BoxSshd) -> None:
        self._sshd = sshd

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._sshd.connections.add(conn)
        self._conn = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self._sshd.connections.discard(self._conn)

    def begin_auth(self, username: str) -> bool:
        # Always with a login: only the demo's key is accepted, as by a real box.
        return True

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], _SshSession]:
        return self._conn.create_server_channel(encoding=None), _SshSession(
            self._sshd.serve_session
        )


class BoxSshd:
    """The SSH server of one machine; it can restart on the same port with the same host key."""

    def __init__(
        self, machine: SandboxMachine, host_key: asyncssh.SSHKey, authorized_keys: Path, port: int
    ) -> None:
        self.machine = machine
        self.port = port
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._host_key = host_key
        self._authorized_keys = authorized_keys
        self._listener: asyncssh.SSHAcceptor | None = None

    async def start(self) -> None:
        """Start listening.

        Raises:
            DemoError: The port is taken.
        """
        try:
            self._listener = await asyncssh.listen(
                HOST,
                self.port,
                server_factory=lambda: _SshServer(self),
                server_host_keys=[self._host_key],
                authorized_client_keys=str(self._authorized_keys),
                # A box boots again on the same port, which is in TIME_WAIT then.
                reuse_address=True,
                # The client under test has its own; two would hide a fault of one.
                keepalive_interval=0,
                login_timeout=20,
            )
        except OSError as error:
            raise DemoError(
                f"cannot listen on {HOST}:{self.port} for {self.machine.box.name}: "
                f"{error.strerror}; is another program on that port? Leave out --port-base to use "
                "any free ports"
            ) from error
        self.port = self._listener.get_port()

    async def drop_connections(self) -> None:
        """Stop listening and cut every connection, like a machine that lost power."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for connection in list(self.connections):
            # Not closed in order: a machine without power sends nothing.
            connection.abort()
        if listener is not None:
            await listener.wait_closed()

    async def serve_session(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a session's command on the machine."""
        # A login to a machine that is being switched off: ssh's own error status.
        if not self.machine.is_running:
            process.exit(255)
            return
        if process.term_type:
            await self._serve_terminal(process)
        else:
            await self._serve_pipes(process)

    async def _serve_pipes(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_exec(
            *self.machine.build_command(
                sftp_server() if process.subsystem == "sftp" else process.command
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        await _copy_streams(
            process,
            child,
            _from_client(process, child.stdin),
            [_to_client(child.stdout, process.stdout), _to_client(child.stderr, process.stderr)],
        )

    async def _serve_terminal(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        master, slave = os.openpty()
        try:
            _resize_terminal(slave, process.term_size)
            child = await asyncio.create_subprocess_exec(
                # A controlling terminal, so that Ctrl-C and job control work in the shell.
                "setsid",
                "--ctty",
                "--wait",
                *self.machine.build_command(process.command, terminal=process.term_type),
                stdin=slave,
                stdout=slave,
                stderr=slave,
            )
        finally:
            # The child has its own; with this one open, the terminal would never report its end.
            os.close(slave)
        loop = asyncio.get_running_loop()
        output = asyncio.StreamReader()
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(os.dup(master), "rb", 0)
        )
        try:
            await _copy_streams(
                process, child, _forward_keys(process, master), [_to_client(output, process.stdout)]
            )
        finally:
            reading.close()
            os.close(master)


async def _copy_streams(
    process: asyncssh.SSHServerProcess[bytes],
    child: asyncio.subprocess.Process,
    feeding: Coroutine[Any, Any, None],
    showing: list[Coroutine[Any, Any, None]],
) -> None:
    """Copy bytes both ways until the command has ended or the client has disconnected."""
    feeder = asyncio.create_task(feeding)
    try:
        await asyncio.gather(*showing)
        code = await child.wait()
        # As a shell reports a signal.
        process.exit(128 - code if code < 0 else code)
    except (OSError, asyncssh.Error):
        pass  # the client has disconnected; the command gets EOF, as with OpenSSH
    finally:
        feeder.cancel()
        if child.returncode is None:
            await end_process(child)


async def _from_client(
    process: asyncssh.SSHServerProcess[bytes], target: asyncio.StreamWriter
) -> None:
    try:
        while data := await process.stdin.read(CHUNK):
            target.write(data)
            await target.drain()
    except (OSError, asyncssh.Error):
        pass
    finally:
        target.close()


async def _to_client(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    # A terminal whose last process has ended reports an error instead of EOF.
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()


async def _forward_keys(process: asyncssh.SSHServerProcess[bytes], master: int) -> None:
    while True:
        try:
            data = await process.stdin.read(CHUNK)
        except asyncssh.TerminalSizeChanged as change:
            _resize_terminal(master, (change.width, change.height, 0, 0))
        except (asyncssh.BreakReceived, asyncssh.SignalReceived):
            continue
        except (OSError, asyncssh.Error):
            return
        else:
            if not data:
                return
            os.write(master, data)


def _resize_terminal(terminal: int, size: tuple[int, int, int, int]) -> None:
    width, height = int(size[0]) or 80, int(size[1]) or 24
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
