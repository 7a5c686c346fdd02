"""The history for the event loop: a thread does all reading and writing.

So no call blocks the event loop on disk.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from rgt_tui.files import state_directory
from rgt_tui.language import show_recorded
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    EventFilter,
    FleetEvent,
    FleetMoment,
    FleetSpend,
    Happenings,
    NightFacts,
    Timeline,
    time_of_day,
)
from rgt_tui.store.database import HistoryDamaged, HistoryError, HistoryRefused, HistoryUnavailable
from rgt_tui.store.happenings import OWN
from rgt_tui.store.history_file import MAX_BYTES, Batch, HistoryFile, merge_batches
from rgt_tui.store.look_back import HistoryReader

CLOSE_SECONDS = 5.0
RETRY_SECONDS = 30.0
SPEND_SECONDS = 20.0
OFF = ("off", "none", "0", "")
ENV = "RGT_HISTORY"

T = TypeVar("T")


def history_path(env: Mapping[str, str], named: str | None = None) -> Path | None:
    """Return the history's file; None = no history.

    Args:
        env: The environment; ``RGT_HISTORY`` is a path or ``off``.
        named: The path on the command line.
    """
    said = named if named is not None else env.get(ENV)
    if said is not None:
        if said.lower() in OFF:
            return None
        return Path(said).expanduser()
    return state_directory(env) / "history.db"


class FleetHistory:
    """One SQLite file, written by a thread of its own. It is opened at first use.

    Args:
        path: The file; its directory is created.
        clock: Epoch seconds.
        max_bytes: Maximum size of the file; beyond it, the oldest rows are deleted.
        fleet: Identifies the fleet, such as the path of its file: its spend covers present and
            former boxes.
        retry_seconds: Between two attempts after a disk error.
        spend_seconds: Maximum age of `spend`.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_bytes: int = MAX_BYTES,
        fleet: str = "",
        retry_seconds: float = RETRY_SECONDS,
        spend_seconds: float = SPEND_SECONDS,
    ) -> None:
        self.path = path
        self.spend: FleetSpend | None = None
        """Costs since local midnight, as of a few seconds ago; None = not known yet."""
        self._clock = clock
        self._file = HistoryFile(path, clock=clock, max_bytes=max_bytes, fleet=fleet)
        self._retry_seconds = retry_seconds
        self._spend_seconds = spend_seconds
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._inbox: Batch = {}
        self._said: list[FleetEvent] = []
        self._thread: threading.Thread | None = None
        # Used only by the thread.
        self._pending: Batch = {}
        self._retry_at = 0.0
        self._spend_at = 0.0
        self._trouble = ""
        self._left_out: set[tuple[str, str]] = set()
        """Boxes and parts of them that could not be stored, as already reported."""
        self._no_backup = ""
        self._over = False

    def adopt_boxes(self, specs: Sequence[BoxSpec]) -> None:
        """Set the boxes of the fleet; data about others is not stored."""
        self._query_file(lambda file: file.adopt_boxes(specs))

    def put_batch(self, batch: Batch) -> None:
        """Write a batch as soon as possible. While a disk hangs, batches are merged, not queued."""
        with self._lock:
            # A job is already queued for what waits, and takes this batch along.
            waiting = bool(self._inbox)
            self._inbox = merge_batches((self._inbox, batch))
        if not waiting:
            self._queue_job(self._write_pending)

    async def recall_states(self, specs: Sequence[BoxSpec]) -> dict[str, BoxState]:
        """Adopt boxes and return their saved states.

        Raises:
            HistoryError: the file cannot be read; `take_events` reports it as well.
        """

        def adopt_and_recall(file: HistoryFile) -> dict[str, BoxState]:
            file.adopt_boxes(specs)
            return file.recall_states()

        return await asyncio.wrap_future(self._query_file(adopt_and_recall))

    # Methods of `rgt_tui.fleet.fleet_source.Chronicle`; each raises HistoryError if the file cannot
    # be read.

    async def read_event_page(
        self, wanted: EventFilter, before: int | None, count: int
    ) -> Happenings:
        """Return the last `count` wanted events numbered below `before`; None = no upper bound."""
        return await self._look_back(lambda past: past.read_event_page(wanted, before, count))

    async def read_night(self, since: float, until: float, box: str | None) -> NightFacts:
        """Return the facts of a time span, of one box or of all."""
        return await self._look_back(lambda past: past.read_night(since, until, box))

    async def read_timeline(self) -> Timeline:
        """Return all recorded moments."""
        return await self._look_back(lambda past: past.read_timeline())

    async def read_moment(self, n: int, at: float, full: frozenset[str]) -> FleetMoment:
        """Return the state of the fleet at a moment."""
        return await self._look_back(lambda past: past.read_moment(n, at, full))

    async def _look_back(self, question: Callable[[HistoryReader], T]) -> T:
        self._queue_job(self._write_pending)  # pending data must be included
        return await asyncio.wrap_future(
            self._query_file(lambda file: file.query_history(question))
        )

    def take_events(self) -> tuple[FleetEvent, ...]:
        """Return messages about the history, each once."""
        with self._lock:
            said, self._said = tuple(self._said), []
        return said

    async def close(self) -> None:
        """Write pending data and close the file.

        A disk that hangs for `CLOSE_SECONDS` is abandoned.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            # After everything queued, so that the thread writes that first.
            self._jobs.put(None)
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    def _query_file(self, question: Callable[[HistoryFile], T]) -> Future[T]:
        answer: Future[T] = Future()

        def run_question() -> None:
            # The caller has gone, so the file need not be read.
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._run_with_restore(lambda: question(self._file)))
            except BaseException as error:
                answer.set_exception(error)

        self._queue_job(run_question)
        return answer

    def _queue_job(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if self._thread is None:
            # A daemon: a disk that hangs must not keep rgt from exiting.
            self._thread = threading.Thread(target=self._run_jobs, name="rgt-history", daemon=True)
            self._thread.start()

    # Runs in the thread.

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except HistoryError:
                pass  # already reported
            # An error in our code must not end the thread and fill the queue.
            except Exception as error:
                self._report_trouble(f"history: {type(error).__name__}: {error}")
        self._retry_at = 0.0
        try:
            self._write_pending()
        finally:
            self._file.close()

    def _write_pending(self) -> None:
        with self._lock:
            inbox, self._inbox = self._inbox, {}
        # The file belongs to a newer rgt, or to another person: it is not touched again.
        if self._over:
            return
        self._pending = merge_batches((self._pending, inbox))
        # A full disk stays full for a while; each attempt would cost a transaction.
        if time.monotonic() < self._retry_at:
            return
        try:
            self._commit_pending()
            if self._trouble:
                self._trouble = ""
                self._add_message("the history is being kept again", "info")
            no_backup = self._run_with_restore(self._file.run_upkeep) or ""
            if no_backup and no_backup != self._no_backup:
                self._add_message(no_backup, "warn")
            self._no_backup = no_backup or self._no_backup
            if time.monotonic() >= self._spend_at:
                self._spend_at = time.monotonic() + self._spend_seconds
                self.spend = self._run_with_restore(self._file.read_spend)
        except HistoryError:
            pass  # already reported; pending data is tried again

    def _commit_pending(self) -> None:
        try:
            left_out = self._run_with_restore(lambda: self._file.commit_batch(self._pending))
        except HistoryError:
            raise
        except Exception:
            self._pending = {}  # it would fail again and block all later data
            raise
        self._pending = {}
        for each in left_out:
            # The same part fails with every batch; one message is enough.
            if (each.box, each.part) not in self._left_out:
                self._left_out.add((each.box, each.part))
                self._add_message(
                    f"{each.box}: its {each.part} cannot be stored in the history and are left "
                    f"out: {each.why}",
                    "warn",
                )

    def _run_with_restore(self, work: Callable[[], T]) -> T:
        """Do some work on the file. If it is damaged, restore the backup and try once more."""
        try:
            try:
                return work()
            except HistoryDamaged as error:
                self._restore_backup(error)
                return work()
        except HistoryRefused as error:
            self._over = True
            self._pending = {}
            self._report_trouble(str(error))
            raise
        except (HistoryUnavailable, HistoryDamaged) as error:
            self._retry_at = time.monotonic() + self._retry_seconds
            self._report_trouble(f"no history is kept for now: {error}")
            raise

    def _restore_backup(self, error: HistoryDamaged) -> None:
        restored = self._file.restore_backup()
        if restored is None:
            return
        now = self._clock()
        if restored.backup_at is None:
            what = (
                "there is no backup of it yet, so a new one begins, and its totals lack what "
                "was spent before"
            )
        else:
            hours = max(0.0, now - restored.backup_at) / 3600
            what = (
                f"the backup from {time_of_day(restored.backup_at, now)} took its place; the "
                f"{hours:.1f} h since then are lost, so what they cost is a lower bound"
            )
        self._add_message(
            f"the history was damaged ({error}); it is in {restored.aside.name}; {what}", "warn"
        )

    def _add_message(self, text: str, level: str) -> None:
        with self._lock:
            self._said.append(
                FleetEvent(
                    at=self._clock(), box="", text=show_recorded(text), level=level, about=OWN
                )
            )

    def _report_trouble(self, text: str) -> None:
        # A disk that stays full would otherwise report every few seconds.
        if text != self._trouble:
            self._trouble = text
            self._add_message(text, "warn")
