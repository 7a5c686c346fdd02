"""One stream of a pull: which requests are outstanding, and which answer belongs to which.

Data is written and hashed in threads; a stream with much unwritten data is paused.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from rgt_tui.transfer.copying.fetching import (
    Chunk,
    FetchTask,
    PullFetcher,
    RequestKind,
    WorkerThreads,
)
from rgt_tui.transfer.copying.local_copy import write_failure
from rgt_tui.transfer.copying.piece_stream import (
    AnswerHead,
    AnswerTail,
    FileUnreadable,
    HashingNotice,
    PieceDecoder,
)
from rgt_tui.transfer.copying.pull_plan import RANGE_BYTES

AHEAD_BYTES, AHEAD_TASKS = 4 * RANGE_BYTES, 256
"""How much to request before answers arrive, so that a stream never idles on a slow connection."""
Work = Callable[[FetchTask, list[Chunk]], None]


class RequestStream:
    """One stream of requests and answers.

    Args:
        fetcher: Source of the requests.
        low: Bytes.
        drained: Called, from a thread, when no more than `low` bytes wait to be written.

    Small files are written inline from the received buffer, unless each needs an fsync: handing one
    to another thread costs as much as its rename.

    Attributes:
        held: Bytes received and not yet written.
    """

    def __init__(self, fetcher: PullFetcher, low: int, drained: Callable[[], None]) -> None:
        self.held = 0
        self._fetcher = fetcher
        self._low, self._drained = low, drained
        self._decoder = PieceDecoder()
        self._pending: deque[FetchTask] = deque()
        self._at_once = fetcher.together
        self._ahead = 0
        self._writer = WorkerThreads("write", 1)
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether no answer is outstanding."""
        return not self._pending

    @property
    def wants_requests(self) -> bool:
        """Whether to send more requests."""
        # At half, so that requests go out in batches instead of one per answer.
        return self._ahead < AHEAD_BYTES // 2 and len(self._pending) < AHEAD_TASKS // 2

    def next_requests(self) -> bytes:
        """Return the requests that are due now, many at once; empty = none."""
        lines: list[bytes] = []
        if self._pending and not self.wants_requests:
            return b""
        # At least one, however large it is.
        while len(self._pending) < AHEAD_TASKS and (self._ahead < AHEAD_BYTES or not self._pending):
            task = self._fetcher.next_task()
            if task is None:
                break
            # Before it is sent: an answer that was not announced here ends the stream.
            self._decoder.expected.append((task.number, task.answer_limit))
            self._pending.append(task)
            self._ahead += task.end - task.start
            lines.append(task.request_line())
        return b"".join(lines)

    @property
    def bytes_left(self) -> int:
        """Bytes of file data still to come before the next answer."""
        return self._decoder.bytes_left

    def feed_data(self, data: bytes | bytearray, count: int | None = None) -> None:
        """Process received data.

        Args:
            data: The data. Only views of a `bytearray` are kept, until the work queued with
                `PullFetcher.after_hashing` after this call is done.
            count: How many bytes of it are valid; None = all.

        Raises:
            StreamError: it is not what the agent sends; the stream is unusable from then on.
        """
        with self._fetcher.turn if self._at_once else contextlib.nullcontext():
            self._apply_data(data, count)

    def _apply_data(self, data: bytes | bytearray, count: int | None) -> None:
        for piece in self._decoder.feed_data(data, count):
            task = self._pending[0]
            if isinstance(piece, (bytes, memoryview)):
                self._fetcher.count_received(task, len(piece))
                if task.kind is RequestKind.RANGE:
                    self._fetcher.write_range(task, piece)
                    continue
                # A view is enough only while this call writes it itself.
                task.chunks.append(piece if self._at_once else bytes(piece))
                task.waiting += len(piece)
            elif isinstance(piece, AnswerHead):
                self._fetcher.check_head(task, piece)
            elif isinstance(piece, AnswerTail):
                self._pop_task()
                self._queue_write(task, partial(self._fetcher.end_answer, piece))
            elif isinstance(piece, FileUnreadable):
                self._pop_task()
                self._queue_write(task, partial(self._fetcher.refuse_file, piece))
            else:
                assert isinstance(piece, HashingNotice)
        if (
            self._pending
            and (chunks := self._pending[0].chunks)
            and not isinstance(chunks[-1], bytes)
        ):
            # the caller may overwrite the buffer with the rest of it
            chunks[-1] = bytes(chunks[-1])

    def _pop_task(self) -> None:
        task = self._pending.popleft()
        self._ahead -= task.end - task.start

    def _queue_write(self, task: FetchTask, work: Work) -> None:
        chunks, count = task.chunks, task.waiting
        task.chunks, task.waiting = [], 0
        with self._lock:
            self.held += count
        # One thread, so that the answers of a large file are handled in the order of their arrival.
        if task.kind is not RequestKind.WHOLE:
            self._writer.queue_work(partial(self._run_write, task, chunks, count, work))
        elif self._at_once:
            self._run_write(task, chunks, count, work)
        else:
            self._fetcher.landers.queue_work(partial(self._run_write, task, chunks, count, work))

    def _run_write(self, task: FetchTask, chunks: list[Chunk], count: int, work: Work) -> None:
        try:
            # After a failure the rest is only counted off, so that the stream drains.
            if self._fetcher.failure is None:
                work(task, chunks)
        except OSError as error:
            path, size = task.copy.step.file.path, task.copy.stamp.size
            self._fetcher.fail(write_failure(path, size, self._fetcher.destination, error))
        except Exception as error:
            self._fetcher.fail(error)
        with self._lock:
            before = self.held
            self.held = before - count
        # Once per crossing, not for every write below it.
        if before >= self._low > self.held:
            self._drained()

    def give_back_tasks(self) -> None:
        """Return unanswered requests to the fetcher, after pending writes. It blocks briefly."""
        self._writer.close()
        tasks, self._pending = tuple(self._pending), deque()
        self._fetcher.give_back(tasks)
