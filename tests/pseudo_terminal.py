"""A program at a terminal of its own, as a person has it: what it shows is read, keys are typed.

No code of ours runs between fork and exec: a test's process has threads (of torch, of asyncio), and a child of such a
process that runs Python can end in a segmentation fault.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE = 120.0
SIZE = (30, 120)
"""Rows and columns."""


class PseudoTerminal:
    """Runs a command in a session of its own that the terminal controls; a context manager that leaves nothing behind.

    Attributes:
        process: The program.
        handle: The terminal's other end: what is written there was typed.
        name: The terminal itself, for who wants to open it as well.
        said: All that was read of it so far.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] = SIZE,
    ) -> None:
        setsid = shutil.which("setsid")
        assert setsid is not None, "setsid of util-linux is missing"
        self.handle, side = pty.openpty()
        self.name = os.ttyname(side)
        termios.tcsetwinsize(side, size)
        self.process = subprocess.Popen(
            [setsid, "--ctty", *command], cwd=cwd, env=env, stdin=side, stdout=side, stderr=side
        )
        os.close(side)
        self.said = b""

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.handle)

    @property
    def text(self) -> str:
        """What was read of it so far, as text."""
        return self.said.decode(errors="replace")

    def read(self, seconds: float = PATIENCE) -> bool:
        """Read what it shows next; tell whether there was anything: no = it has ended, or it was silent so long."""
        if not select.select([self.handle], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.handle, 1 << 16)
        except OSError:  # how Linux says that the last program has closed its side
            return False
        self.said += data
        return bool(data)

    def until(self, words: str) -> None:
        """Read until it has shown these words."""
        end = time.monotonic() + PATIENCE
        while words.encode() not in self.said:
            assert self.read() and time.monotonic() < end, f"{words!r} is not shown: {self.text}"

    def type(self, keys: str) -> None:
        """Type these keys."""
        os.write(self.handle, keys.encode())

    def ended(self) -> int:
        """Read until it has ended; return its exit status."""
        end = time.monotonic() + PATIENCE
        while self.read():
            assert time.monotonic() < end, self.text
        return self.process.wait(PATIENCE)
