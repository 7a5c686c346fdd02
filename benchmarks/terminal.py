"""A program in a pseudo-terminal of a known size, with a reader that behaves like a terminal.

What the program writes is drained at once and counted, and the queries that a terminal answers are
answered. So the program never waits for its screen, and its output is what a real terminal would
get.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

COLUMNS, LINES = 120, 34

ANSWERS = {
    b"\x1b[c": b"\x1b[?62;22c",  # primary device attributes
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # synchronized output: known
    b"\x1b[?2048$p": b"\x1b[?2048;0$y",  # in-band resize reports: unknown
    b"\x1b[?u": b"",  # the Kitty keyboard protocol: not spoken
}

ESCAPES = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    rb"|\x1b[P_^X][^\x1b]*\x1b\\"  # DCS, APC, PM, SOS
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\x1b[ -/]*[0-~]"
)

KEPT = 262_144
"""Bytes of output kept to look for text; older ones are only counted."""


def text_of(output: bytes) -> str:
    """What is left of the output without its control sequences."""
    return ESCAPES.sub(b"", output).decode("utf-8", errors="replace")


NOT_INHERITED = ("LINES", "COLUMNS", "NO_COLOR", "PYTHONDONTWRITEBYTECODE")
"""The last is set in many containers: the program would be compiled at each start, as no installed
one is.
"""


class Terminal:
    """Runs a command in a pseudo-terminal; a context manager that leaves no process behind.

    Args:
        command: What to run.
        environment: What it has besides the environment of this process.
        patience: Seconds in which it may end at its own quit key before it is killed; 0 for one
            that has none.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        patience: float = 30,
    ) -> None:
        self._patience = patience
        self.written = 0
        """Bytes that the program has written so far."""
        self._tail = b""
        self._lock = threading.Lock()
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        self.started = time.time()
        """Wall clock at the start, to compare with what the program writes of itself."""
        self._process = subprocess.Popen(
            command,
            stdin=side,
            stdout=side,
            stderr=side,
            close_fds=True,
            start_new_session=True,
            env={
                **inherited,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                **(environment or {}),
            },
        )
        os.close(side)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return self._process.poll() is None

    def _drain(self) -> None:
        while True:
            try:
                chunk = os.read(self._main, 65_536)
            except OSError:  # the last program closed its side
                return
            if not chunk:
                return
            with self._lock:
                self.written += len(chunk)
                self._tail = (self._tail + chunk)[-KEPT:]
            for query, answer in ANSWERS.items():
                if answer and query in chunk:
                    with contextlib.suppress(OSError):
                        os.write(self._main, answer)

    def text(self) -> str:
        """The text that was painted lately, in the order in which it was painted."""
        with self._lock:
            tail = self._tail
        return text_of(tail)

    def since(self, written: int) -> bytes:
        """The output after so many bytes, as far as it is kept."""
        with self._lock:
            count = self.written - written
            if count:
                return self._tail[-count:]
            return b""

    def send(self, keys: bytes) -> None:
        """Types the keys."""
        with contextlib.suppress(OSError):
            os.write(self._main, keys)

    def wait_until(
        self, condition: Callable[[], bool], seconds: float, every: float = 0.005
    ) -> float | None:
        """Wall clock when the condition came true, or None when it did not or the program ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = not self.running
            if ended:
                # What it wrote last may still be on its way to the reader.
                self._reader.join(timeout=1)
            if condition():
                return time.time()
            if ended:
                return None
            time.sleep(every)
        return None

    def wait_for(self, pattern: str, seconds: float) -> float | None:
        """Wall clock when text that matches was painted, or None."""
        wanted = re.compile(pattern)
        return self.wait_until(lambda: wanted.search(self.text()) is not None, seconds)

    def close(self) -> None:
        """Ends the program: by its own quit key, then by SIGTERM to it, and by SIGKILL to its group."""
        seconds = self._patience
        self.send(b"\x11")
        if not self._ended(seconds / 3):
            self.send(b"\x11")
            if not self._ended(seconds / 3):
                self._process.terminate()
                self._ended(seconds / 3)
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # A child that outlives the program may hold the terminal: the reader must not wait for
        # that.
        self._reader.join(timeout=1)
        with contextlib.suppress(OSError):
            os.close(self._main)

    def _ended(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def __enter__(self) -> Terminal:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the program."""
        self.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads, none of its children."""
    try:
        # Linux names the CPU clock of a whole process so (clock_getcpuclockid); it counts
        # nanoseconds.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything, blanks and parentheses too.
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
