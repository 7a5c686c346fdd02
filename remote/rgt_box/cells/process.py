"""One cell as a process: started in its own session, awaited while signals are handled at known points."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from rgt_box import files, procstat
from rgt_box.cells.outcome import MISSING, NOT_EXECUTABLE, PREEMPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RESTORED = ("SIGPIPE", "SIGXFSZ")
"""Signals that Python ignores and a cell must not inherit so."""

GRACE = 120.0
"""Seconds that a stopped cell gets to save before it is killed; ``RGT_STOP_GRACE`` overrides."""


def block_signals() -> None:
    """Deliver stop signals only where `next_signal` waits for them, never in the middle of book-keeping."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(STOP) | {signal.SIGCHLD})


def next_signal(timeout: float) -> int | None:
    """Wait for a stop signal or the end of a child; returns a stop signal, None for all else."""
    got = signal.sigtimedwait(set(STOP) | {signal.SIGCHLD}, timeout)
    return got.si_signo if got is not None and got.si_signo in STOP else None


class Process:
    """A cell, forked but held back until `release`: its pid is written down before it does anything.

    If the runner dies in between, the cell sees the gate close and ends without having run.

    Args:
        words: Its command.
        cwd: Where it starts.
        env: Its whole environment.
        log: File that its output is appended to; os.devnull where it cannot be opened.
        nice: Its niceness.

    Raises:
        OSError: when no process can be made.
    """

    def __init__(self, words: list[str], cwd: str, env: dict[str, str], log: str, nice: int) -> None:
        try:
            out = files.open_appending(log, 0o644)
        except OSError:
            out = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        gate, self._gate = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _become(words, cwd, env, out, nice, gate, self._gate)
        os.close(out)
        os.close(gate)
        self.ticks = procstat.start_ticks(self.pid)

    def release(self) -> None:
        """Let it run."""
        os.write(self._gate, b"g")
        os.close(self._gate)

    def wait(self) -> tuple[int, int | None]:
        """Wait for the end, handing stop signals on.

        The signal goes to the cell itself, not to its group: loader workers that died of it would spoil the
        saving. What is left of the group after a stop or a failure is swept up, so that it holds no GPU memory.

        Returns:
            (exit status, negative for a signal; the stop signal that the runner got, if any).
        """
        stopped: int | None = None
        deadline = float("inf")
        while True:
            status = self._poll()
            if status is not None:
                break
            got = next_signal(min(1.0, max(0.01, deadline - time.monotonic())))
            if got is not None and stopped is None:
                stopped = got
                deadline = time.monotonic() + grace()
                send(self.pid, signal.SIGTERM if got == signal.SIGHUP else got)
            elif got is not None or time.monotonic() >= deadline:
                send(-self.pid, signal.SIGKILL)
        if stopped or status:
            sweep(self.pid)
        return status, stopped

    def _poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _become(
    words: list[str], cwd: str, env: dict[str, str], out: int, nice: int, gate: int, other: int
) -> None:
    """Turn the forked child into the cell. Never returns."""
    status = NOT_EXECUTABLE
    try:
        os.close(other)
        os.setsid()
        for name in RESTORED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(STOP) | {signal.SIGCHLD})
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, out), (2, out)):
            os.dup2(source, target)
        if nice:
            try:
                os.nice(nice)
            except OSError:
                pass  # raising the priority is not for everyone
        if os.read(gate, 1) != b"g":
            os._exit(PREEMPTED)
        os.chdir(cwd)
        os.execvpe(words[0], words, env)
    except OSError as error:
        status = MISSING if error.errno == errno.ENOENT else NOT_EXECUTABLE
        os.write(2, ("cannot start %s: %s\n" % (words[0], error)).encode("utf-8", "replace"))
    finally:
        os._exit(status)


def grace() -> float:
    """Return the seconds between asking a cell to stop and killing it."""
    try:
        return float(os.environ.get("RGT_STOP_GRACE", ""))
    except ValueError:
        return GRACE


def send(pid: int, number: int) -> bool:
    """Send a signal to a process, or to the group ``-pid``; False when there is none any more."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def sweep(leader: int) -> None:
    """End what is left of a cell's process group: politely, then not."""
    deadline = time.monotonic() + min(5.0, grace())
    send(-leader, signal.SIGTERM)
    while send(-leader, 0):
        if time.monotonic() >= deadline:
            send(-leader, signal.SIGKILL)
            return
        time.sleep(0.02)


def wait_for_orphan(pid: int, ticks: Any) -> int | None:
    """Wait for a cell that an earlier runner left running: a second writer would ruin its directory.

    Returns:
        None when it has ended, or the stop signal that came meanwhile (it was handed on to the cell).
    """
    while procstat.is_alive(pid, ticks):
        got = next_signal(0.2)
        if got is not None:
            send(pid, signal.SIGTERM)
            deadline = time.monotonic() + grace()
            while procstat.is_alive(pid, ticks) and time.monotonic() < deadline:
                time.sleep(0.05)
            sweep(pid)
            return got
    return None
