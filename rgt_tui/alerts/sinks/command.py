"""A program of yours: it gets the event as JSON on its standard input. No shell is involved."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

import msgspec

from rgt_tui.alerts.sinks.base import SinkError
from rgt_tui.model.alert import AlertEvent, SinkSettings
from rgt_tui.model.plain import clean

MAX_WORDS = 200


class Command:
    """Runs it in a session of its own; after the time limit the whole of it is killed."""

    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env

    async def send(self, event: AlertEvent) -> None:
        """Run it once; see `Sink.send`. An exit status other than 0 is a failure."""
        argv = self._settings.argv
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._env),
                start_new_session=True,
            )
        except OSError as error:
            raise SinkError(f"cannot start {argv[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                words = await _spoken(process, msgspec.json.encode(event) + b"\n")
        except TimeoutError:
            limit = f"{self._settings.timeout_s:g} s"
            raise SinkError(f"{argv[0]} did not end within {limit}, and was killed") from None
        finally:
            await _ended(process)
        if process.returncode:
            last = clean(words.decode(errors="replace").strip().rpartition("\n")[2])[:MAX_WORDS]
            raise SinkError(f"{argv[0]} ended with {process.returncode}" + (f": {last}" if last else ""))

    async def close(self) -> None:
        """Nothing is held."""


async def _spoken(process: asyncio.subprocess.Process, message: bytes) -> bytes:
    """Hand over the message; return the last of what it says on stderr, which is read to its end."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(message)
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()
    process.stdin.close()
    kept = b""
    while part := await process.stderr.read(4096):
        kept = (kept + part)[-4096:]
    await process.wait()
    return kept


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Leave nothing behind: also what the program has started and left running."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
