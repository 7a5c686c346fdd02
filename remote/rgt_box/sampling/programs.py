"""Other programs: found in PATH, run with a hard time limit."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess


def which(program: str) -> str | None:
    """Return the path of a program in PATH (the full ``shutil`` is not worth its import)."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def run(words: list[str], timeout: float) -> str:
    """Return what a program prints; "" when it fails. Raises what `attempt` does."""
    return attempt(words, timeout) or ""


def attempt(words: list[str], timeout: float) -> str | None:
    """Return what a program prints; None when it fails.

    It runs in a session of its own, so that whatever it started is killed with it: a wrapper script whose child
    keeps the pipe open would otherwise hold the reader for ever. One that cannot even be killed (a driver that hangs
    in the kernel) is abandoned.

    Raises:
        TimeoutError: when it had to be killed after `timeout` seconds.
    """
    import subprocess  # here, because most boxes never need it

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
        _end(child)
        raise TimeoutError("%s did not answer within %g s" % (words[0], timeout)) from None
    return out.decode("utf-8", "replace") if child.returncode == 0 else None


def _end(child: subprocess.Popen[bytes]) -> None:
    import subprocess

    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        pass  # it hangs in the kernel; waiting for it is what must not happen
    if child.stdout is not None:
        child.stdout.close()
