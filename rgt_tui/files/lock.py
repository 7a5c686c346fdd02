"""The kernel's lock on an open file, waited for a while and not for ever: a hung rgt must not hang the others."""

from __future__ import annotations

import errno
import fcntl
import time

SECONDS = 10.0
"""Whoever holds such a lock writes a few lines; one that holds it for longer hangs."""
EVERY_SECONDS = 0.02


def take(handle: int, seconds: float = SECONDS) -> None:
    """Lock an open file for this process alone, until it is closed or the process has ended, however that comes.

    It blocks: call it in a thread where others must go on.

    Args:
        handle: Descriptor of the file, or of a directory.
        seconds: How long others may hold it.

    Raises:
        TimeoutError: Another program did not let go of it.
        OSError: The file system has no locks, or they fail.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"another program has held its lock for {seconds:g} s"
                ) from None
            time.sleep(EVERY_SECONDS)
