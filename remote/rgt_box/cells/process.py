"""One cell as a process: started in its own session, awaited while signals are handled at known points."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from rgt_box import procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
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
    """A running cell.

    Args:
        words: Its command.
        cwd: Where it starts.
        env: Its whole environment.
        log: File that its output is appended to; os.devnull where it cannot be opened.
        nice: Its niceness.

    Raises:
        OSError: when it cannot be started.
    """

    def __init__(self, words: list[str], cwd: str, env: dict[str, str], log: str, nice: int) -> None:
        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, set(STOP) | {signal.SIGCHLD})
            if nice:
                try:
                    os.nice(nice)
                except OSError:
                    pass

        try:
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            out = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._child = subprocess.Popen(
                words,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )
        finally:
            os.close(out)
        self.pid = self._child.pid
        self.ticks = procstat.start_ticks(self.pid)

    def wait(self) -> tuple[int, int | None]:
        """Wait for the end, handing stop signals on.

        Returns:
            (exit status, negative for a signal; the stop signal that the runner got, if any).
        """
        stopped: int | None = None
        deadline = float("inf")
        while self._child.poll() is None:
            got = next_signal(min(1.0, max(0.0, deadline - time.monotonic())))
            if got is not None:
                first, stopped = stopped is None, stopped or got
                signal_group(self.pid, signal.SIGTERM if got == signal.SIGHUP else got)
                deadline = min(deadline, time.monotonic() + grace()) if first else time.monotonic()
            elif time.monotonic() >= deadline:
                signal_group(self.pid, signal.SIGKILL)
        status: int = self._child.returncode
        return status, stopped


def grace() -> float:
    """Return the seconds between asking a cell to stop and killing it."""
    try:
        return float(os.environ.get("RGT_STOP_GRACE", ""))
    except ValueError:
        return GRACE


def signal_group(pid: int, number: int) -> None:
    """Send a signal to the process group of a cell (its leader's pid); a group that is gone is no error."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def wait_for_orphan(pid: int, ticks: Any) -> int | None:
    """Wait for a cell that an earlier runner left running: a second writer would ruin its directory.

    Returns:
        None when it has ended, or the stop signal that came meanwhile (it was handed on to the cell).
    """
    while procstat.is_alive(pid, ticks):
        got = next_signal(0.2)
        if got is not None:
            signal_group(pid, signal.SIGTERM)
            deadline = time.monotonic() + grace()
            while procstat.is_alive(pid, ticks) and time.monotonic() < deadline:
                time.sleep(0.05)
            if procstat.is_alive(pid, ticks):
                signal_group(pid, signal.SIGKILL)
            return got
    return None
