"""ProxyCommand: a program whose standard input and output are the connection. Its stderr never reaches the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping

from rgt_tui.model import clean
from rgt_tui.ssh.ssh_errors import Unreachable

KEPT_BYTES = 2048
ENDING = "proxy-command-ends"
"""Name of the task that ends a ProxyCommand."""


class Proxy:
    """A running ProxyCommand. asyncssh closes it with the connection that it carries."""

    def __init__(self, process: asyncio.subprocess.Process, near: socket.socket) -> None:
        self.socket = near
        self._process = process
        self._words = b""
        self._listening = asyncio.create_task(self._listen())
        self._closing: asyncio.Task[None] | None = None

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(KEPT_BYTES):
            self._words = (self._words + data)[-KEPT_BYTES:]

    async def last_words(self) -> str:
        """Return what it said on its way out, with its exit status."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), 0.5)
            await asyncio.wait_for(asyncio.shield(self._listening), 0.5)
        lines = self._words.decode(errors="replace").strip().splitlines()
        said = clean(lines[-1])[:300] if lines else ""
        status = self._process.returncode
        ended = "" if status is None else f"it ended with {status}"
        return ": ".join(part for part in (ended, said) if part)

    def close(self) -> None:
        """End it, and what it started."""
        self.socket.close()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end(), name=ENDING)

    async def _end(self) -> None:
        if self._process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), 2.0)
                    break
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def wait_closed(self) -> None:
        """Wait until it has ended."""
        if self._closing is not None:
            await self._closing


async def open_proxy(command: str, env: Mapping[str, str]) -> Proxy:
    """Start a ProxyCommand with the user's shell, as OpenSSH does.

    Raises:
        Unreachable: the shell cannot be started.
    """
    near, far = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            env.get("SHELL") or "/bin/sh",
            "-c",
            f"exec {command}",
            stdin=far.fileno(),
            stdout=far.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        near.close()
        raise Unreachable(f"ssh: the ProxyCommand {command!r} cannot be started: {error.strerror}") from error
    finally:
        far.close()
    near.setblocking(False)
    return Proxy(process, near)
