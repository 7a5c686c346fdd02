"""One stream of a pull: which requests are outstanding, and which answer belongs to which.

The answers of the agent's ``send`` are parsed as they arrive: headers, raw bytes, ends. Data is
written and hashed in threads; a stream with much unwritten data is paused.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.transfer.copying.fetching import (
    Chunk,
    FetchTask,
    PullFetcher,
    RequestKind,
    WorkerThreads,
)
from rgt_tui.transfer.copying.local_copy import write_failure
from rgt_tui.transfer.copying.pull_plan import RANGE_BYTES
from rgt_tui.transfer.ledger import FileStamp

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


LONGEST_LINE = 64 << 10
MOST_GREETING = 1 << 20
"""Maximum bytes that a login shell may print before the agent's first record."""
_BEGINS = b'{"'


class StreamError(Exception):
    """The input is not what the agent sends."""


class AnswerHead(FrozenStruct, gc=False):
    """`n` bytes of a file follow."""

    id: int
    n: int
    stamp: FileStamp


class AnswerTail(FrozenStruct, gc=False):
    """The end of an answer."""

    id: int
    stamp: FileStamp
    sha256: str | None = None


class HashingNotice(FrozenStruct):
    """The box is hashing."""

    id: int
    busy: int


class FileUnreadable(FrozenStruct):
    """The box cannot read the file."""

    id: int
    error: str
    stamp: FileStamp | None = None
    """Stamp of the file that has replaced it, if it can be requested instead."""


class _AnswerRow(FrozenStruct, gc=False):
    id: int
    n: int | None = None
    stamp: FileStamp | None = None
    sha256: str | None = None
    busy: int | None = None
    error: str | None = None


_decode = msgspec.json.Decoder(_AnswerRow).decode
Piece = AnswerHead | AnswerTail | HashingNotice | FileUnreadable | bytes | memoryview


class PieceDecoder:
    """Splits the input of one stream into pieces.

    Attributes:
        expected: Id of each request, and the maximum bytes of its answer; None = no data.
    """

    def __init__(self) -> None:
        self.expected: deque[tuple[int, int | None]] = deque()
        self._line = bytearray()
        self._left = 0
        self._headed = self._spoken = False
        self._greeting_left = MOST_GREETING

    @property
    def bytes_left(self) -> int:
        """Bytes of file data still to come in the current answer."""
        return self._left

    def feed_data(self, data: bytes | bytearray, count: int | None = None) -> Iterator[Piece]:
        """Yield the pieces that `data` completes; file data as it arrives.

        Args:
            data: The input. Pieces of a `bytearray` are views of it, without a copy.
            count: How many bytes of it are valid; None = all.

        Raises:
            StreamError: it does not answer a request.
        """
        at, end = 0, len(data) if count is None else count
        source = memoryview(data) if isinstance(data, bytearray) else data
        while at < end:
            if self._left:
                whole = source is data and not at and self._left >= end
                # The usual case: the buffer is passed on without a slice.
                if whole:
                    piece = source
                else:
                    piece = source[at : min(end, at + self._left)]
                at += len(piece)
                self._left -= len(piece)
                yield piece
                continue
            stop = data.find(b"\n", at, end)
            line = bytes(source[at : end if stop < 0 else stop])
            # Kept until its end arrives; only here are bytes copied twice.
            if self._line or stop < 0:
                self._line += line
                line = bytes(self._line)
            # Before the test for an end, so that a line without one cannot grow without a limit.
            if len(line) > LONGEST_LINE:
                raise StreamError("a line without an end")
            if stop < 0:
                return
            at = stop + 1
            self._line.clear()
            found = self._parse_record(line)
            if found is not None:
                yield found

    def _parse_record(self, line: bytes) -> Piece | None:
        if not self._spoken:
            self._greeting_left -= len(line) + 1
            if self._greeting_left < 0:
                raise StreamError(
                    "the login shell on the box prints endlessly, and the agent never gets to speak"
                )
            # A login shell may print a greeting, even in the line of the first record.
            begins = line.find(_BEGINS)
            if begins < 0:
                return None
            line = line[begins:]
        try:
            answer = _decode(line)
        except (ValueError, RecursionError) as error:
            # Still the greeting: it has a brace and a quote, too.
            if not self._spoken:
                return None
            raise StreamError(f"something that is not a record: {error}") from error
        self._spoken = True
        return self._check_answer(answer)

    def _check_answer(self, answer: _AnswerRow) -> Piece:
        if not self.expected or answer.id != self.expected[0][0]:
            raise StreamError(f"an answer to a request that was not made ({answer.id})")
        number, most = self.expected[0]
        # After its head a file can only end: an error then is not what the agent sends.
        if answer.error is not None and not self._headed:
            self.expected.popleft()
            return FileUnreadable(number, clean_text(answer.error)[:500], answer.stamp)
        if answer.busy is not None and most is None:
            return HashingNotice(number, answer.busy)
        if answer.stamp is None:
            raise StreamError("an answer without a stamp")
        if answer.n is not None:
            if most is None or self._headed or not 0 <= answer.n <= most:
                raise StreamError(
                    f"{answer.n} bytes announced where {most or 0} at most were asked for"
                )
            self._headed, self._left = True, answer.n
            return AnswerHead(number, answer.n, answer.stamp)
        # With data there must have been a head, without data there must not.
        if self._headed is (most is None):
            raise StreamError("an end without a beginning")
        self.expected.popleft()
        self._headed = False
        return AnswerTail(number, answer.stamp, answer.sha256)
