"""End one process, and never another one that got its number."""

from __future__ import annotations

import os
import select
import signal
import time

from rgt_box import procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

POLITE, HARD = 5.0, 5.0
"""Seconds for SIGTERM and, after that, for SIGKILL: a driver may take its time to free the memory."""


def end(pid: int, start: int) -> str | None:
    """End the process `pid` that started at `start` (clock ticks).

    With a pidfd (Linux 5.3, Python 3.9) the number cannot be given to another process between the check and the
    signal; without one the check is made right before each signal.

    Returns:
        None when it has ended, else why not.
    """
    fd = _open(pid)
    try:
        if not procstat.is_alive(pid, start):
            return "it has already ended, or it is another process now"
        for number, patience in ((signal.SIGTERM, POLITE), (signal.SIGKILL, HARD)):
            try:
                _send(fd, pid, number)
            except ProcessLookupError:
                return None
            except PermissionError:
                return "it belongs to another user"
            if _await(fd, pid, start, patience):
                return None
        return "it does not end: it hangs in the kernel, only a restart of the machine or container helps"
    finally:
        if fd is not None:
            os.close(fd)


def _open(pid: int) -> int | None:
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        fd: int = opener(pid)
        return fd
    except OSError:
        return None


def _send(fd: int | None, pid: int, number: int) -> None:
    if fd is None:
        os.kill(pid, number)
    else:
        sender: Any = getattr(signal, "pidfd_send_signal")  # noqa: B009 (Python 3.8 lacks it)
        sender(fd, number)


def _await(fd: int | None, pid: int, start: int, patience: float) -> bool:
    """Wait for the end; a zombie counts, it holds no memory."""
    if fd is not None:
        return bool(select.select([fd], [], [], patience)[0])
    deadline = time.monotonic() + patience
    while procstat.is_alive(pid, start):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
