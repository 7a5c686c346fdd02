"""A child process that lives exactly as long as we hold its standard input."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path

from rgt_tui.demo.errors import DemoError

READY_SECONDS = 20
END_SECONDS = 5


class Keeper:
    """Starts a script that prints ``ready`` and ends when its standard input does.

    `pid` is the pid of the script itself, not of a wrapper such as ``unshare --fork`` around it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, argv: list[str], env: dict[str, str]) -> None:
        """Start and wait for ``ready``.

        Raises:
            DemoError: when the script ends first; its own words are passed on.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            # Ctrl-C in the terminal must reach the demo alone, which then takes its boxes down in order.
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)
        except TimeoutError:
            await self.stop()
            raise DemoError(f"{self.name} did not start within {READY_SECONDS} s") from None
        except BaseException:
            await self.stop()
            raise
        if not line.startswith(b"ready"):
            words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            await self.stop()
            raise DemoError(f"cannot make {self.name}: {words[-1] if words else 'no reason given'}")
        self.pid = await asyncio.to_thread(_innermost, process.pid)

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.returncode is None

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _innermost(pid: int) -> int:
    """Follow the only-child chain ``nsenter → unshare → script`` down to the script."""
    while True:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return pid
        if not children:
            return pid
        pid = int(children[0])
