"""One trainer per directory: two writers would prune and publish over each other."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from typing import Optional

from rgt_train.durable import StrPath
from rgt_train.exits import UsageError

NAME = "run.lock"


class RunLock:
    """Holds an exclusive `flock` on ``OUT/run.lock`` until `close` or the death of the process.

    The kernel drops it with the process, however that ends, so there is no stale lock to clean. Children made by
    fork (data loader workers) close their copy, or an orphaned worker would lock out the next launch.

    Raises:
        UsageError: Another live trainer holds it; the text names it.
        OSError: The file cannot be made.
    """

    def __init__(self, out: StrPath) -> None:
        self.path = os.path.join(out, NAME)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        self.exclusive = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._holder()
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                self.exclusive = (
                    False  # a file system without locks: better to train unguarded than not at all
                )
            else:
                self.close()
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise UsageError(
                    f"another trainer is running in {os.fspath(out)}{holder}; two would overwrite "
                    f"each other. Wait for it, stop it, or give another --out"
                ) from error
        self._sign()
        _drop_in_children(self)

    def close(self) -> None:
        """Release the lock (again is harmless)."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sign(self) -> None:
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}) + "\n"
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError:
            return  # the lock itself holds; only its label is missing, e.g. on a full disk

    def _holder(self) -> str:
        try:
            facts = json.loads(os.pread(self._fd, 4096, 0))
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(facts["since"])))
            return f" (pid {int(facts['pid'])} on {facts['host']}, since {since})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""


def _drop_in_children(lock: RunLock) -> None:
    reference: "weakref.ref[RunLock]" = weakref.ref(lock)

    def after_fork() -> None:
        held: Optional[RunLock] = reference()
        if held is not None:
            held.close()

    os.register_at_fork(after_in_child=after_fork)
