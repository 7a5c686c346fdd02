"""The trainer's side of the writer process: start it, hand it a snapshot, hear how that went."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Callable, Optional, Sequence

from rgt_train import wire
from rgt_train.helper import Helper
from rgt_train.store import Store
from rgt_train.writing import DIED, Done, Job


class WriterClient:
    """Keeps one writer process running.

    Args:
        store: Where it writes.
        keep: Descriptors the process holds while it lives (the lock of the run).
        started: Called with the process id of each one that is started.
    """

    def __init__(self, store: Store, keep: Sequence[int], started: Callable[[int], None]) -> None:
        self._store, self._keep, self._started = store, keep, started
        self._helper: Optional[Helper] = None
        self._memory: Optional[int] = None

    def start(self) -> None:
        """Start the process if it is not running.

        Raises:
            OSError: It cannot be started.
        """
        if self._helper is not None and self._helper.ended() is None:
            return
        self._forget()
        self._helper = Helper("rgt_train.writer", self._keep)
        self._memory = None
        self._started(self._helper.pid)
        store, policy = self._store, self._store.policy
        wire.send(
            self._helper.sock,
            {"do": "store", "out": store.out, "attempt": store.attempt, "anchor": store.anchor,
             "last": policy.last, "hours": policy.hours},
        )  # fmt: skip

    def submit(self, job: Job, inline: bytes, fd: int, size: int) -> None:
        """Hand over a snapshot to the process that was started. Where that is dead, `poll` will tell.

        Args:
            job: What to make of it.
            inline: The file that is not in the memory.
            fd: The memory.
            size: Its length in bytes.
        """
        assert self._helper is not None, "started before"
        with suppress(wire.Closed):
            if self._memory != fd:
                wire.send(self._helper.sock, {"do": "memory", "size": size}, fd=fd)
                self._memory = fd
            wire.send(self._helper.sock, {"do": "save", "job": job.as_plain()}, inline)

    def judge(self, *, good: bool) -> None:
        """Say whether the snapshot that was handed over last may be published."""
        if self._helper is not None:
            with suppress(wire.Closed):
                wire.send(self._helper.sock, {"do": "judge", "good": good})

    def poll(self, *, block: bool) -> Optional[Done]:
        """Return how the job ended; None while it goes on."""
        assert self._helper is not None, "polled after a submit"
        try:
            message = self._helper.reader.read(block=block)
        except wire.Closed:
            code = self._end()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Done(error=(DIED, None, f"the writer process died ({how})", None))
        if message is None:
            return None
        fields = message[0]
        return Done(**{**fields, "notes": tuple(fields["notes"])})

    def forget_memory(self) -> None:
        """Say that the memory given so far is gone; a descriptor of the same number will be another one."""
        self._memory = None

    def close(self) -> None:
        """Let it finish what it does, and end it."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def _end(self) -> int:
        helper, self._helper = self._helper, None
        assert helper is not None, "there was one"
        helper.close(kill=True)
        return helper.ended() or 0

    def _forget(self) -> None:
        if self._helper is not None:
            self._helper.close(kill=True)
            self._helper = None
