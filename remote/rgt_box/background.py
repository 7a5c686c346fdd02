"""Work that may hang: threads that are abandoned instead of joined, and programs with a timeout."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    import subprocess
    from typing import Any, Callable

threading.stack_size(512 * 1024)  # the default of 8 MiB is address space that is not needed

MOMENT = 1.0
"""Seconds that a job gets to finish if this process itself was stopped while it ran."""


def poll_period(usual: float) -> float:
    """Return the seconds between two searches of the processes; ``RGT_FIND_SECONDS`` overrides `usual`."""
    soonest = 0.5
    latest = 3600.0
    try:
        seconds = float(os.environ.get("RGT_FIND_SECONDS", ""))
    except ValueError:
        return usual
    # Not NaN, which min and max would pass on.
    if seconds == seconds:
        return min(max(seconds, soonest), latest)
    return usual


class Background:
    """One repeated job with at most one thread at a time. Not thread-safe.

    Args:
        work: Called without arguments in a thread; its result is the value.
        period: Seconds from one start to the next.
        timeout: Seconds after which a running job counts as hung.
    """

    def __init__(self, work: Callable[[], Any], period: float, timeout: float) -> None:
        self._work = work
        self._period = period
        self._timeout = timeout
        self._value: Any = None
        self._error: str | None = None
        self._started = self._looked = 0.0
        self._finished: threading.Event | None = None
        self._stood_still = False

    def _run_work(self, finished: threading.Event) -> None:
        try:
            self._value = self._work()
            self._error = None
        except Exception as error:  # a failing sampler is reported, and must not end the agent
            self._error = error_text(error)
        finished.set()

    @property
    def is_hanging(self) -> bool:
        """Whether the job has been running for longer than its timeout."""
        return self.is_busy and time.monotonic() - self._started > self._timeout

    @property
    def is_busy(self) -> bool:
        """Whether the job is running."""
        return self._finished is not None and not self._finished.is_set()

    def poll(self, wait: float = 0.0) -> tuple[Any, str | None]:
        """Start the job if it is due, and return its last value.

        Args:
            wait: Seconds that the running job gets to finish first.

        Returns:
            ``(value, error)``. After a failure, or while it hangs, this is the last good value and
            an error.
        """
        now = time.monotonic()
        if self._finished is None or (
            self._finished.is_set() and now - self._started >= self._period
        ):
            self._finished = threading.Event()
            self._started = self._looked = now
            self._stood_still = False
            # A daemon thread: one that hangs in the kernel must not block the exit of the process.
            threading.Thread(target=self._run_work, args=(self._finished,), daemon=True).start()
        if wait and not self._finished.is_set():
            self._finished.wait(wait)
        before = self._looked
        self._looked = time.monotonic()
        if self.is_hanging and self._looked - before > self._timeout / 2 and not self._stood_still:
            # A frozen container stops the job and this clock check together: that is not a hang of
            # the job.
            self._stood_still = True
            self._finished.wait(MOMENT)
        if self.is_hanging:
            return self._value, "no answer for %d s" % (time.monotonic() - self._started)
        return self._value, self._error


def write_error_text(error: OSError, path: str) -> str:
    """Return the text of an error while writing; below the home also how to move rgt's files.

    Args:
        error: The error.
        path: The file, if the error does not name it.
    """
    path = str(error.filename or path)
    text = f"{path}: {error_text(error)}"
    home = os.path.expanduser("~")
    refused = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    if refused and (path == home or path.startswith(home.rstrip("/") + "/")):
        text += (
            "; rgt keeps jobs, code and its state in the home directory: set HOME for this login "
            "(in /etc/environment on the box) to a directory that can be written"
        )
    return text


def error_text(error: BaseException) -> str:
    """Return the text of an exception, with its type if the message alone says little."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if str(error):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


def which(program: str, path: str | None = None) -> str | None:
    """Return the path of a program in PATH, or in `path`.

    The full ``shutil`` is not worth its import time.
    """
    if path is None:
        path = os.environ.get("PATH", os.defpath)
    for folder in path.split(os.pathsep):
        found = os.path.join(folder, program)
        if os.access(found, os.X_OK) and os.path.isfile(found):
            return found
    return None


def run_program(words: list[str], timeout: float) -> str:
    """Return a program's output; "" if it fails. Raises what `try_program` does."""
    return try_program(words, timeout) or ""


def try_program(words: list[str], timeout: float) -> str | None:
    """Return a program's output; None if it fails.

    It runs in its own session, so that its children are killed with it: otherwise a wrapper
    script's child that keeps the pipe open would block the reader forever. A program that cannot be
    killed (because a driver hangs in the kernel) is abandoned.

    Raises:
        TimeoutError: It was killed after `timeout` seconds.
    """
    import subprocess  # here, because most boxes do not need it

    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        out, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill_group(child)
        raise TimeoutError(f"{words[0]} did not answer within {timeout:g} s") from None
    if child.returncode == 0:
        return out.decode("utf-8", "replace")
    return None


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    import subprocess

    try:
        # Its session has the child's pid as group ID.
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        pass  # it hangs in the kernel, so do not wait for it
    if child.stdout is not None:
        # A grandchild may hold the other end open forever.
        child.stdout.close()
