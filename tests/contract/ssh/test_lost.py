"""A connection that goes away in the midst of something is lost, and never taken for a box that refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import pytest

from rgt_tui.fleet import Backoff, ExactLog, ExactLogRequest
from rgt_tui.model import BoxSpec, WatchConfig
from rgt_tui.ssh import (
    DeployedAgent,
    NoCommands,
    Unreachable,
    build_agent,
    connect,
    run_command,
    start_watch,
    stream_cat,
)
from rgt_tui.ssh.login_shell import MARKER
from rgt_tui.ssh.sh_probe import open_shell
from tests.contract.ssh.servers import make_keys, spec_of, trust

Serve = Callable[[asyncssh.SSHServerProcess[bytes]], None]
Errand = Callable[[asyncssh.SSHClientConnection], Coroutine[Any, Any, None]]


class Host(asyncssh.SSHServer):
    """Lets everyone in, and goes away when it is asked for a channel."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> Any:
        return vanish(self._connection)


class Refusing(Host):
    """Opens no channel."""

    def session_requested(self) -> Any:
        return False


def vanish(connection: asyncssh.SSHServerConnection) -> bool:
    connection.abort()
    return False


@asynccontextmanager
async def host(
    folder: Path, kind: type[Host], serve: Serve | None = None
) -> AsyncIterator[BoxSpec]:
    make_keys(folder)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=kind,
        server_host_keys=[str(folder / "host_key")],
        process_factory=serve,
        encoding=None,
    )
    trust(folder, server.get_port())
    try:
        yield spec_of(folder, server.get_port())
    finally:
        server.close()
        await server.wait_closed()


async def commands(connection: asyncssh.SSHClientConnection) -> None:
    await run_command(connection, "true")


async def a_shell(connection: asyncssh.SSHClientConnection) -> None:
    await open_shell(connection, "exit", terminal=False)


async def a_terminal(connection: asyncssh.SSHClientConnection) -> None:
    await open_shell(connection, "exit", terminal=True)


async def the_stream(connection: asyncssh.SSHClientConnection) -> None:
    await start_watch(
        connection, build_agent(), (), WatchConfig(), lambda frame: None, lambda bad: None
    )


async def a_file(connection: asyncssh.SSHClientConnection) -> None:
    async for _ in stream_cat(connection, DeployedAgent("python3", "agent.pyz"), "--path", "x"):
        pass


@pytest.mark.parametrize("errand", [commands, a_shell, a_terminal, the_stream, a_file])
async def test_a_loss_while_a_channel_opens_is_a_loss(tmp_path: Path, errand: Errand) -> None:
    async with host(tmp_path, Host) as spec:
        connection = await connect(spec)
        for _ in range(2):  # in the midst of it, and behind it
            with pytest.raises(Unreachable, match=f"{spec.port}: the connection was lost"):
                await errand(connection)


@pytest.mark.parametrize("errand", [commands, a_shell, a_terminal, the_stream, a_file])
async def test_a_box_that_refuses_is_one_that_refuses(tmp_path: Path, errand: Errand) -> None:
    async with host(tmp_path, Refusing) as spec:
        connection = await connect(spec)
        with pytest.raises(NoCommands, match=r"refuses .*: Session refused"):
            await errand(connection)
        connection.abort()


async def test_a_server_that_takes_its_leave_in_the_midst_of_a_command_is_lost(
    tmp_path: Path,
) -> None:
    def leave(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"only the beginn")
        process.get_extra_info("connection").close()

    async with host(tmp_path, Host, leave) as spec:
        connection = await connect(spec)
        with pytest.raises(Unreachable, match="the connection was lost"):
            await run_command(connection, "cat everything")


@pytest.mark.parametrize(
    "said", [b"", b'{"t":"file","path":"x","inode":1,"start":0,"size":9}\n{"t":"data","n":9}\nonly']
)
async def test_a_disk_that_hangs_is_said(tmp_path: Path, said: bytes) -> None:
    begun = f"\n{MARKER}\n".encode() + said
    async with host(tmp_path, Host, lambda process: process.stdout.write(begun)) as spec:
        connection = await connect(spec)
        received = []
        with pytest.raises(
            Unreachable, match="has sent nothing for 2 s, though the connection is up"
        ):
            async for piece in stream_cat(
                connection, DeployedAgent("python3", "agent.pyz"), "--path", "x", silence=2.0
            ):
                received.append(piece)
        assert received[1:] == ([b"only"] if said else [])
        connection.abort()


async def _run(process: asyncssh.SSHServerProcess[bytes], env: dict[str, str]) -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(
        process.command or "", stdin=pipe, stdout=pipe, env=env
    )
    source, sink = child.stdout, child.stdin
    assert source is not None
    assert sink is not None

    async def feed() -> None:
        with contextlib.suppress(asyncssh.Error, ConnectionError):
            while data := await process.stdin.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()

    feeding = asyncio.create_task(feed())
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            process.stdout.write(data)
    await feeding
    process.exit(await child.wait())


async def test_following_goes_on_behind_losses_and_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next_wait_s", lambda *_: 0.0)
    log = tmp_path / "train.log"
    log.write_bytes(b"first\n")
    channels: list[asyncssh.SSHServerConnection] = []

    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await _run(process, {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})

    class Moody(Host):
        def session_requested(self) -> Any:
            channels.append(self._connection)
            match len(channels):
                case 4:  # the first three looked for a Python, wrote the agent, and read
                    return vanish(self._connection)
                case 5:
                    return False
            return asyncssh.SSHServerProcess(serve, None, 3, False)

    said: list[str] = []
    async with host(tmp_path, Moody) as spec:
        spec = msgspec.structs.replace(spec, python=sys.executable)
        received = b""
        async for piece in ExactLog(
            spec, ExactLogRequest(str(log), follow=True), said.append
        ).stream_pieces():
            received += piece
            if received == b"first\n":
                with log.open("ab") as file:
                    file.write(b"second\n")
                channels[-1].abort()
            if received == b"first\nsecond\n":
                break
    assert len(channels) == 7
    assert "the connection was lost" in said[1]
    assert "refuses to run commands" in said[2]
