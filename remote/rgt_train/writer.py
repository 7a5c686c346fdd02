"""The writer process: gets a copy of the state in shared memory, puts it onto the disk, tells how that went.

It is started once by ``exec``, never by fork, and imports the standard library and the trainer's own file handling
only. Its interpreter lock and its page faults are its own: whatever it does, the training goes on. It dies with its
trainer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Dict, Optional

from rgt_train import wire
from rgt_train.retention import Policy
from rgt_train.store import Store
from rgt_train.writing import Job, perform

_PR_SET_PDEATHSIG = 1
YIELDS = 10
"""Added to the niceness of the writer: where cores are scarce, the training goes first."""
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def main() -> None:
    """Serve jobs until the trainer closes the connection."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    with suppress(OSError):
        os.nice(YIELDS)
    reader = wire.Reader(sock)
    store: Optional[Store] = None
    memory: Optional[memoryview] = None
    try:
        while True:
            message = reader.read(block=True)
            assert message is not None, "a blocking read returns a message"
            fields, raw, fds = message
            if fields["do"] == "store":
                store = _store(fields)
            elif fields["do"] == "memory":
                memory = _map(fds[0], int(fields["size"]))
            elif fields["do"] == "save":
                assert store is not None and memory is not None, "told where and what before"
                verdict = _Verdict(reader)
                wire.send(sock, asdict(perform(store, _job(fields["job"]), memory, raw, verdict.good)))
    except wire.Closed:
        os._exit(0)


def die_with_parent(parent: int) -> None:
    """Be killed when the trainer dies, however it dies; leave its signals to the trainer, which will close us.

    Args:
        parent: Its process id; where it is gone already, this process ends at once.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, AttributeError):  # not Linux: the end of the connection tells
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class _Verdict:
    """Whether the trainer found the snapshot of one job good; it may tell before the job is written, or after."""

    def __init__(self, reader: wire.Reader) -> None:
        self._reader = reader
        self._told: Optional[bool] = None

    def good(self) -> bool:
        """Wait for it, once.

        Raises:
            Closed: The trainer is gone.
        """
        if self._told is None:
            message = self._reader.read(block=True)
            assert message is not None and message[0]["do"] == "judge", "the next message after a job"
            self._told = bool(message[0]["good"])
        return self._told


def _store(fields: Dict[str, Any]) -> Store:
    policy = Policy(int(fields["last"]), float(fields["hours"]))
    store = Store(fields["out"], int(fields["attempt"]), policy)
    store.anchor = str(fields["anchor"])
    return store


def _map(fd: int, size: int) -> memoryview:
    memory = memoryview(mmap.mmap(fd, size))
    os.close(fd)
    return memory


def _job(fields: Dict[str, Any]) -> Job:
    regions = [(str(name), int(offset), int(size)) for name, offset, size in fields["regions"]]
    return Job(**{**fields, "regions": regions})
