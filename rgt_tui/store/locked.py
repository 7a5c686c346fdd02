"""One process at a time opens, migrates or sets aside a history; reading and writing need no such lock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rgt_tui.files.lock import take
from rgt_tui.store.errors import Trouble

WAIT_SECONDS = 10.0


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside the history at `path`. The kernel frees it when the process ends, however it ends.

    Raises:
        Trouble: another process holds it for too long.
        OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(path.name + ".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            take(fd, WAIT_SECONDS)
        except TimeoutError:
            raise Trouble(f"another rgt has held {lock} for {WAIT_SECONDS:.0f} s") from None
        yield
    finally:
        os.close(fd)
