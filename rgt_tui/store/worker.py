"""The thread that does all reading and writing of the history, and what is to be done when that fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TypeVar

from rgt_tui.model.fleet import Spend
from rgt_tui.store.batch import Batch, joined
from rgt_tui.store.errors import Damaged, HistoryError, Refused, Trouble, Unfit
from rgt_tui.store.file import HistoryFile

RETRY_SECONDS = 30.0
SPEND_SECONDS = 20.0
SLICE_PAUSE = 0.02
"""Between two slices of proving the file: nobody should notice it."""

T = TypeVar("T")
_Job = Callable[[], None]


class Worker:
    """Owns a `HistoryFile`. Its methods may be called from any thread, and none of them waits.

    Args:
        file: The file; used by this thread alone from now on.
        say: Called from the thread, with a line for the person who watches: what is wrong, once, and when it is over.
    """

    def __init__(self, file: HistoryFile, say: Callable[[str, str], None]) -> None:
        self.spend: Spend | None = None
        self._file = file
        self._say = say
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._inbox: list[Batch] = []
        self._pending = Batch()
        self._retry_at = 0.0
        self._spend_at = 0.0
        self._trouble = ""
        self._left_out: set[tuple[str, str]] = set()
        """Boxes and what of them fitted no history: it was said."""
        self._over = False
        self._proof: Generator[int] | None = None
        self._thread = threading.Thread(target=self._run, name="rgt-history", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Write a batch as soon as possible. A disk that hangs does not make a heap of them."""
        with self._lock:
            waiting = bool(self._inbox)
            self._inbox = [joined((*self._inbox, batch))]
        if not waiting:
            self._jobs.put(self._write)

    def ask(self, question: Callable[[HistoryFile], T]) -> Future[T]:
        """Let the file answer a question; the future fails with `HistoryError` when it cannot."""
        answer: Future[T] = Future()

        def job() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._guarded(lambda: question(self._file)))
            except BaseException as error:
                answer.set_exception(error)

        self._jobs.put(job)
        return answer

    def close(self, seconds: float) -> bool:
        """Write what is pending and end; tell whether that was done within `seconds`."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            job = self._next()
            if job is None:
                break
            try:
                job()
            except HistoryError:
                pass  # it was said
            except Exception as error:  # a fault of ours must not end the thread and fill the queue
                self._complain(f"history: {type(error).__name__}: {error}")
        self._stop_proving()
        self._retry_at = 0.0
        try:
            self._write()
        finally:
            self._file.close()

    def _next(self) -> _Job | None:
        """Return the next job; between two of them, prove a slice of the file."""
        while self._proof is not None:
            try:
                return self._jobs.get(timeout=SLICE_PAUSE)
            except queue.Empty:
                self._prove()
        return self._jobs.get()

    def _prove(self) -> None:
        proof = self._proof
        if proof is None:
            return
        try:
            self._guarded(lambda: next(proof, None) or self._proved())
        except HistoryError:
            self._stop_proving()

    def _proved(self) -> int:
        self._stop_proving()
        return 0

    def _stop_proving(self) -> None:
        proof, self._proof = self._proof, None
        if proof is not None:
            proof.close()

    def _write(self) -> None:
        with self._lock:
            inbox, self._inbox = self._inbox, []
        if self._over:
            return
        self._pending = joined((self._pending, *inbox))
        if time.monotonic() < self._retry_at:
            return
        try:
            self._commit()
            if self._trouble:
                self._trouble = ""
                self._say("the history is being kept again", "info")
            self._guarded(self._file.upkeep)
            if time.monotonic() >= self._spend_at:
                self._spend_at = time.monotonic() + SPEND_SECONDS
                self.spend = self._guarded(self._file.spend)
        except HistoryError:
            pass  # it was said; what is pending is tried again

    def _commit(self) -> None:
        """Write what is pending. What can never be written is given up, or nothing behind it would be either."""
        while self._pending:
            try:
                self._guarded(lambda: self._file.commit(self._pending))
                self._pending = Batch()
            except Unfit as error:
                self._pending = self._pending.without(error.box, error.part)
                if (error.box, error.part) not in self._left_out:
                    self._left_out.add((error.box, error.part))
                    self._say(str(error), "warn")
            except HistoryError:
                raise
            except Exception:
                self._pending = Batch()
                raise

    def _guarded(self, work: Callable[[], T]) -> T:
        """Do some work on the file; when that finds it damaged, set it aside, begin a new one, and try once more."""
        try:
            return work()
        except Damaged as error:
            self._renew(error)
            return self._guarded_again(work)
        except Refused as error:
            self._over = True
            self._pending = Batch()
            self._complain(str(error))
            raise
        except Trouble as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._complain(f"no history is kept for now: {error}")
            raise

    def _guarded_again(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Unfit:
            raise
        except HistoryError as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._complain(f"no history is kept for now: {error}")
            raise

    def _renew(self, error: Damaged) -> None:
        self._stop_proving()
        try:
            aside, taken = self._file.renew()
        except HistoryError as worse:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._complain(f"no history is kept for now: {worse}")
            raise
        if aside is not None:
            words = (
                f"{taken.rows:,} rows of it were taken over" if taken.rows else "nothing of it could be read"
            )
            left = (
                "" if taken.whole else "; curves and readings that would have taken too long were left there"
            )
            self._say(f"the history was damaged ({error}); it lies in {aside.name}, {words}{left}", "warn")

    def prove(self) -> None:
        """Begin to prove the file, in pauses between other work."""
        self._jobs.put(lambda: setattr(self, "_proof", self._file.verify()))

    def _complain(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._say(text, "warn")
