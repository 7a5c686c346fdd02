"""The history as the event loop uses it: nothing here waits for the disk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, Spend
from rgt_tui.store.batch import Batch
from rgt_tui.store.events import AuditRow
from rgt_tui.store.file import HistoryFile
from rgt_tui.store.room import MAX_BYTES
from rgt_tui.store.worker import Worker

CLOSE_SECONDS = 5.0

T = TypeVar("T")


class History:
    """One SQLite file, written by a thread of its own. It is opened with the first thing that is asked of it.

    Args:
        path: The file; its directory is made.
        clock: Epoch seconds.
        max_bytes: What the file may grow to; then the oldest goes.
        audit: The log of billing actions to keep an index of.
        fleet: By what the fleet is known, such as its file: its spend is that of the boxes it has, or had.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_bytes: int = MAX_BYTES,
        audit: Path | None = None,
        fleet: str = "",
    ) -> None:
        self.path = path
        self._clock = clock
        self._file = HistoryFile(path, clock=clock, max_bytes=max_bytes, audit=audit, fleet=fleet)
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._said: list[FleetEvent] = []

    @property
    def spend(self) -> Spend | None:
        """What the boxes cost since local midnight, as of a few seconds ago; None until that is known."""
        return self._worker.spend if self._worker is not None else None

    def adopt(self, specs: Sequence[BoxSpec]) -> None:
        """Say which boxes there are; what is put of others is not kept."""
        self._open().ask(lambda file: file.adopt(specs))

    def put(self, batch: Batch) -> None:
        """Write a batch soon."""
        self._open().put(batch)

    async def recall(self, specs: Sequence[BoxSpec]) -> dict[str, BoxState]:
        """Adopt boxes and return what is known of them.

        Raises:
            HistoryError: nothing can be read; it is said in `news`, too.
        """

        def question(file: HistoryFile) -> dict[str, BoxState]:
            file.adopt(specs)
            return file.recall()

        found = await self._ask(question)
        self._open().prove()
        return found

    async def events(self, count: int) -> tuple[FleetEvent, ...]:
        """Return the last events of the boxes, oldest first.

        Raises:
            HistoryError: nothing can be read.
        """
        return await self._ask(lambda file: file.events(count))

    async def audit(self, count: int) -> tuple[AuditRow, ...]:
        """Return the last billing actions, oldest first.

        Raises:
            HistoryError: nothing can be read.
        """
        return await self._ask(lambda file: file.audit(count))

    def news(self) -> tuple[FleetEvent, ...]:
        """Return, once, what a person should know of the history."""
        with self._lock:
            said, self._said = tuple(self._said), []
        return said

    async def close(self) -> None:
        """Write what is pending and close the file; a disk that does not answer is left to itself."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.close, CLOSE_SECONDS)

    async def _ask(self, question: Callable[[HistoryFile], T]) -> T:
        return await asyncio.wrap_future(self._open().ask(question))

    def _open(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._file, self._say)
        return self._worker

    def _say(self, text: str, level: str) -> None:
        with self._lock:
            self._said.append(FleetEvent(at=self._clock(), box="", text=text, level=level))
