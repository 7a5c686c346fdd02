"""A pull in progress, without the network: which requests to send, and how to handle the answers.

A file that changes, or arrives damaged, is fetched once more and then reported.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from rgt_tui.transfer.copying.box_listing import TRAINERS_LIST, RefusedFile, size_in_trainers_list
from rgt_tui.transfer.copying.local_copy import (
    OF_ONE,
    BatchThread,
    PartFile,
    group_sync,
    set_mtime,
    settle_part,
    write_failure,
    write_part,
)
from rgt_tui.transfer.copying.piece_stream import (
    AnswerHead,
    AnswerTail,
    FileUnreadable,
    StreamError,
)
from rgt_tui.transfer.copying.pull_plan import (
    WHOLE_BYTES,
    FetchCourse,
    PullPlan,
    PullProgress,
    PullStep,
    TransferRate,
    part_path,
    split_ranges,
    time_to_go,
)
from rgt_tui.transfer.ledger import CODED, FileRow, FileStamp, Ledger, encode_path, sha256_of

MOST_WHOLE = 2 * WHOLE_BYTES
"""A file that was small when it was listed may have grown."""
TRIES = 2
PART = ".rgt-part"
ROWS, ROWS_S = 256, 0.5
"""The ledger is flushed after this many files, or seconds."""


CHANGES = "it changes while it is read"
REPLACED = "it is replaced by another file again and again"
DAMAGED = "what came is not what the box says that it holds"


Chunk = bytes | memoryview


class RequestKind(enum.Enum):
    """What is requested from the box."""

    WHOLE = "whole"
    RANGE = "range"
    CHECK = "check"
    """The hash of a range, to compare with the data left by an earlier run."""
    HASH = "hash"
    """The hash of the whole file."""


HASHES = (RequestKind.CHECK, RequestKind.HASH)


class FetchTask:
    """One request."""

    __slots__ = (
        "chunks",
        "copy",
        "end",
        "got",
        "head",
        "kind",
        "number",
        "offset",
        "start",
        "waiting",
    )

    def __init__(self, copy: FileCopy, kind: RequestKind, start: int, end: int) -> None:
        self.copy, self.kind, self.start, self.end = copy, kind, start, end
        self.number = 0
        self.start_over()

    def start_over(self) -> None:
        """Discard what has arrived for it."""
        self.chunks: list[Chunk] = []
        self.got = self.waiting = 0
        self.offset = self.start

    def request_line(self) -> bytes:
        """Return the request as a line."""
        path = encode_path(self.copy.step.file.path)
        # So that the box refuses a file that replaced the listed one, before it sends a byte of it.
        listed = self.copy.step.file.device, self.copy.stamp.inode
        # Formatted by hand: there may be thousands of small files, and encoding a dict is slower.
        if self.kind is RequestKind.WHOLE and not path.startswith(CODED):
            text = msgspec.json.encode(path)
            words = self.number, text, MOST_WHOLE, *listed
            return b'{"id":%d,"path":%b,"start":0,"end":%d,"listed":[%d,%d]}\n' % words
        if path.startswith(CODED):
            name = {"path_b64": path[len(CODED) :]}
        else:
            name = {"path": path}
        if self.kind is RequestKind.WHOLE:
            # The listed size may be outdated: the box sends the file as it is now, up to this.
            end = MOST_WHOLE
        else:
            end = self.end
        if self.kind in HASHES:
            only = {"hash": True}
        else:
            only = {}
        return (
            msgspec.json.encode(
                {
                    "id": self.number,
                    **name,
                    "start": self.start,
                    "end": end,
                    **only,
                    "listed": listed,
                }
            )
            + b"\n"
        )

    @property
    def answer_limit(self) -> int | None:
        """Maximum bytes of the answer's data; None = no data."""
        if self.kind is RequestKind.WHOLE:
            whole = MOST_WHOLE
        else:
            whole = self.end - self.start
        if self.kind in HASHES:
            return None
        return whole


class FileCopy:
    """The state of one file in progress."""

    __slots__ = (
        "asked", "counted", "moved", "open", "part", "replaced", "sha256", "stamp", "step", "tries",
        "why",
    )  # fmt: skip

    def __init__(self, step: PullStep) -> None:
        self.step = step
        self.stamp = step.file.there
        """The box's stamp of the file, by the newest answer."""
        self.tries = 1
        self.open = 0
        """Requests that are unanswered, or whose answers are not written yet."""
        self.part: PartFile | None = None
        self.sha256: str | None = None
        self.moved: FileStamp | None = None
        """The newest differing stamp."""
        self.replaced = 0
        """How often another file had replaced it before a byte of it was sent."""
        self.why = ""
        """Why this try cannot succeed."""
        self.asked = False
        """The hash of the whole is requested separately."""
        self.counted = 0


class WorkerThreads:
    """Threads that run work items; a single thread runs them in order.

    Args:
        name: Name of the threads.
        count: Number of threads.
    """

    def __init__(self, name: str, count: int) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_work, name=f"rgt-{name}", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def queue_work(self, work: Callable[[], None]) -> None:
        """Queue a work item, which must not raise."""
        self._queue.put(work)

    def _run_work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def close(self) -> None:
        """Wait until all work is done, and end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


def _is_plain(step: PullStep) -> bool:
    return step.course is FetchCourse.FETCH and step.file.there.size <= WHOLE_BYTES


class PullFetcher:
    """Carries out a plan.

    Args:
        plan: What to do.
        ledger: Records each finished file.
        destination: Local directory.
        instance: The provider's id of the machine.
        news: Called, from any thread, when there may be new requests, or all is done.
    """

    def __init__(
        self,
        plan: PullPlan,
        ledger: Ledger,
        destination: Path,
        instance: str,
        news: Callable[[], None],
    ) -> None:
        self.landed: list[FileRow] = []
        self.problems: list[RefusedFile] = []
        self.notes: list[RefusedFile] = []
        """Files that were saved under another name, and their place."""
        self.folders: set[str] = set()
        """Directories that were made, or written to."""
        self.failure: Exception | None = None
        self._plan, self._ledger, self.destination, self._instance = (
            plan,
            ledger,
            destination,
            instance,
        )
        self._news = news
        self._steps: deque[PullStep] = deque(plan.steps)
        self._ready: dict[FileCopy, deque[FetchTask]] = {}
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._rows: list[FileRow] = []
        self._written_at = time.monotonic()
        self._parts: dict[FileCopy, PartFile] = {}
        self._numbers = 0
        self._left = len(plan.steps)
        self._done_bytes = self._came = 0
        self._path = ""
        self._rate = TransferRate()
        self._hasher = WorkerThreads("hash", 1)
        self._group = group_sync(destination)
        self._publisher = BatchThread(self._publish_files)
        self.together = self._group is not None
        """Small files are flushed together: writing one does not wait for the disk."""
        self.turn = threading.Lock()
        """Lock for writing and renaming small files. Two threads doing so at once would wait for
        the interpreter at each call, which costs more than the calls.
        """
        # Threads that write small files if each file is fsynced separately; with a group sync there
        # is one.
        landers = 6
        self.landers = WorkerThreads("land", 1 if self.together else landers)

    # Called by the stream.

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to request, or nothing can continue."""
        return self.failure is not None or self._left == 0

    @property
    def received_bytes(self) -> int:
        """Bytes received so far."""
        return self._came

    def next_task(self) -> FetchTask | None:
        """Return the next request; None = none is due now."""
        with self._lock:
            if (
                not self._ready
                and self._steps
                and self.failure is None
                and _is_plain(self._steps[0])
            ):
                return self._small_file_task(self._steps.popleft())
            copy = self._next_copy()
            if copy is None:
                return None
            tasks = self._ready[copy]
            task = tasks.popleft()
            if not tasks:
                del self._ready[copy]
            self._numbers += 1
            task.number = self._numbers
            self._path = copy.step.file.path
            return task

    def _small_file_task(self, step: PullStep) -> FetchTask:
        """Return the only request for a small file without obstacles.

        Fast, as there may be thousands.
        """
        copy = FileCopy(step)
        copy.open = 1
        task = FetchTask(copy, RequestKind.WHOLE, 0, copy.stamp.size)
        self._numbers += 1
        task.number = self._numbers
        self._path = step.file.path
        return task

    def _next_copy(self) -> FileCopy | None:
        """Return the file with the next request."""
        while self.failure is None:
            if self._ready:
                return next(iter(self._ready))
            if not self._steps:
                return None
            step = self._steps.popleft()
            copy = FileCopy(step)
            if step.course is FetchCourse.COMPARE:
                self._queue_tasks(
                    copy, [FetchTask(copy, RequestKind.HASH, 0, copy.stamp.size)], tell=False
                )
            else:
                self._begin_copy(copy, tell=copy.stamp.size > WHOLE_BYTES)
        return None

    def _request_hash(self, copy: FileCopy) -> None:
        """Request the hash of the whole, which the box has not sent in one go."""
        copy.asked = True
        self._queue_tasks(copy, [FetchTask(copy, RequestKind.HASH, 0, copy.stamp.size)], first=True)

    def give_back(self, tasks: Sequence[FetchTask]) -> None:
        """Return the requests of a lost stream to the queue."""
        with self._lock:
            # Reversed, because each is put in front: the order stays as it was.
            for task in reversed(tasks):
                copy = task.copy
                self._count_bytes(copy, -task.got)
                # The hash includes bytes of the torn range, which will be sent again.
                if task.got and copy.part is not None and task.kind is RequestKind.RANGE:
                    self._hasher.queue_work(partial(copy.part.undo_hashing, task.start))
                task.start_over()
                if not copy.why:
                    self._ready.setdefault(copy, deque()).appendleft(task)
        for task in tasks:
            if task.copy.why:
                self._count_answer(task.copy)
        self._news()

    def fail(self, error: Exception) -> None:
        """Stop everything with an error."""
        with self._lock:
            # The first error is the cause; the others follow from it.
            self.failure = self.failure or error
        self._news()

    def read_progress(self, phase: str = "pulling") -> PullProgress:
        """Return the current progress."""
        rate = self._rate.add_reading(time.monotonic(), self._came)
        done = max(0, min(self._done_bytes, self._plan.bytes))
        return PullProgress(
            phase=phase,
            files=len(self._plan.steps),
            files_done=len(self._plan.steps) - self._left,
            bytes=self._plan.bytes,
            bytes_done=done,
            rate=rate,
            eta=time_to_go(self._plan.bytes - done, rate),
            path=self._path,
            problems=len(self.problems) + len(self._plan.refused),
        )

    def close(self) -> None:
        """Write the finished files to the ledger and wait for the threads.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        # In this order: writers fill the hasher and the publisher, so those end last.
        self.landers.close()
        self._hasher.close()
        self._publisher.close()
        for copy in tuple(self._parts):
            self._let_go(copy)
        if self._group is not None:
            self._group.close()
            self._group = None
        self._write_rows()

    # Handle answers; each method may be called from a thread.

    def count_received(self, task: FetchTask, count: int) -> None:
        """Count received bytes."""
        with self._lock:
            self._came += count
        task.got += count
        self._count_bytes(task.copy, count)

    def check_head(self, task: FetchTask, head: AnswerHead) -> None:
        """Check the header of an answer."""
        copy = task.copy
        if head.stamp == copy.stamp:
            if task.kind is RequestKind.WHOLE and head.n != copy.stamp.size:
                raise StreamError(f"{head.n} bytes announced of a file of {copy.stamp.size}")
            return
        if task.kind is RequestKind.WHOLE and head.n == head.stamp.size:
            with self._lock:  # nothing has been written of it yet, so the new version can be used
                self._count_bytes(copy, copy.stamp.size - head.stamp.size)
                copy.stamp = head.stamp
        else:
            self._compare_stamp(copy, head.stamp)
        if head.n < task.end - task.start and task.kind is not RequestKind.WHOLE:
            self._spoil_copy(copy, "it became shorter while it was read")

    def write_range(self, task: FetchTask, piece: Chunk) -> None:
        """Write bytes of a range now, and queue hashing them from memory.

        `after_hashing` tells when that is done.
        """
        part, offset = task.copy.part, task.offset
        if part is None or task.copy.why:
            return
        try:
            task.offset = part.write_chunks(offset, (piece,))
        except OSError as error:
            self.fail(
                write_failure(
                    task.copy.step.file.path, task.copy.stamp.size, self.destination, error
                )
            )
            return
        self._hasher.queue_work(partial(part.hash_piece, task.start, offset, piece))

    def after_hashing(self, then: Callable[[], None]) -> None:
        """Call `then` once everything written so far is hashed."""
        self._hasher.queue_work(then)

    def end_answer(self, tail: AnswerTail, task: FetchTask, chunks: Sequence[Chunk]) -> None:
        """Handle the end of an answer."""
        copy = task.copy
        try:
            self._apply_answer(tail, task, chunks)
        except OSError as error:
            if error.errno not in OF_ONE:
                raise
            self._spoil_copy(
                copy, str(write_failure("it", copy.stamp.size, self.destination, error)), last=True
            )
        self._count_answer(copy)

    def _apply_answer(self, tail: AnswerTail, task: FetchTask, chunks: Sequence[Chunk]) -> None:
        copy = task.copy
        if task.kind is RequestKind.WHOLE:
            self._land_small_file(copy, tail, chunks)
        elif task.kind is RequestKind.RANGE:
            self._compare_stamp(copy, tail.stamp)
            if not copy.why and copy.part is not None:
                copy.part.mark_range(task.start, task.end)
                # Only the answer with the end of the file has the hash of the whole.
                if task.end == copy.stamp.size:
                    self._use_sent_hash(copy, tail)
        elif task.kind is RequestKind.CHECK:
            self._compare_stamp(copy, tail.stamp)
            if not copy.why and copy.part is not None:
                # Read again from the disk: what an earlier run left may be torn by a crash.
                if copy.part.hash_range(task.start, task.end) == tail.sha256:
                    copy.part.mark_range(task.start, task.end)
                    self._count_bytes(copy, task.end - task.start)
                else:
                    self._queue_tasks(
                        copy, [FetchTask(copy, RequestKind.RANGE, task.start, task.end)], first=True
                    )
        else:
            self._use_box_hash(copy, tail)

    def _use_sent_hash(self, copy: FileCopy, tail: AnswerTail) -> None:
        """Use the hash that the box computed while sending the whole.

        Request it without one.
        """
        with self._lock:
            if copy.sha256 is None and not copy.asked:
                if tail.sha256 is not None:
                    copy.sha256 = tail.sha256
                else:
                    self._request_hash(copy)

    def refuse_file(self, answer: FileUnreadable, task: FetchTask, _: Sequence[Chunk]) -> None:
        """Handle the box's report that it cannot read a file, or that another one replaced it."""
        copy = task.copy
        if answer.stamp is None:
            self._spoil_copy(copy, f"the box cannot read it: {answer.error}", last=True)
        else:
            copy.moved = answer.stamp
            if not copy.why:
                copy.replaced += 1
            # Trainers save by renaming: the file that replaced the listed one is as good, unless
            # that goes on forever.
            most_replaced = 5
            self._spoil_copy(copy, REPLACED, last=copy.replaced >= most_replaced)
        self._count_answer(copy)

    # Steps of one file.

    def _begin_copy(self, copy: FileCopy, *, tell: bool = True) -> None:
        size = copy.stamp.size
        if size <= WHOLE_BYTES:
            return self._queue_tasks(copy, [FetchTask(copy, RequestKind.WHOLE, 0, size)], tell=tell)
        self._let_go(copy)
        path = part_path(self.destination, copy.step.file.path)
        try:
            copy.part = self._parts[copy] = PartFile(path, size)
        except OSError as error:
            return self.fail(write_failure(copy.step.file.path, size, self.destination, error))
        present = copy.part.present
        tasks = [
            FetchTask(copy, RequestKind.CHECK if end <= present else RequestKind.RANGE, start, end)
            for start, end in split_ranges(size)
        ]
        # Without the first range the box computes no hash of the whole while it sends.
        copy.asked = tasks[0].kind is RequestKind.CHECK
        if copy.asked:
            # After the first range: the box must read the whole file for it, which takes a while.
            tasks.insert(1, FetchTask(copy, RequestKind.HASH, 0, size))
        return self._queue_tasks(copy, tasks)

    def _let_go(self, copy: FileCopy) -> None:
        part = self._parts.pop(copy, None)
        copy.part = None
        if part is not None:
            part.close()

    def _queue_tasks(
        self, copy: FileCopy, tasks: list[FetchTask], *, first: bool = False, tell: bool = True
    ) -> None:
        """Queue requests. A caller that takes them at once needs no notification (`tell`)."""
        with self._lock:
            copy.open += len(tasks)
            ready = self._ready.setdefault(copy, deque())
            if first:
                ready.extendleft(reversed(tasks))
            else:
                ready.extend(tasks)
        if tell:
            self._news()

    def _compare_stamp(self, copy: FileCopy, stamp: FileStamp) -> None:
        """Compare a stamp with the file's earlier one; growth is tolerated in the last try."""
        if stamp == copy.stamp:
            return
        copy.moved = stamp
        # A log that grows never holds still; what it had when it was listed is complete.
        grew = stamp.inode == copy.stamp.inode and stamp.size >= copy.stamp.size
        if copy.tries < TRIES or not grew:
            self._spoil_copy(copy, CHANGES)

    def _spoil_copy(self, copy: FileCopy, why: str, *, last: bool = False) -> None:
        with self._lock:
            copy.why = copy.why or why
            if last:
                copy.tries = TRIES
            # Requests that are not sent yet are useless now.
            copy.open -= len(self._ready.pop(copy, ()))

    def _count_answer(self, copy: FileCopy) -> None:
        with self._lock:
            copy.open -= 1
            over = copy.open == 0
        if copy.part is not None:
            self._hasher.queue_work(partial(self._hash_guarded, copy, over))
        elif over and copy.why:
            self._retry_or_report(copy)

    def _hash_guarded(self, copy: FileCopy, over: bool) -> None:
        try:
            self._hash_received(copy, over)
        except OSError as error:
            why = write_failure(copy.step.file.path, copy.stamp.size, self.destination, error)
            if error.errno not in OF_ONE:
                self.fail(why)
                return
            copy.tries, copy.why = TRIES, str(why)
            self._retry_or_report(copy)
        except Exception as error:
            self.fail(error)

    def _hash_received(self, copy: FileCopy, over: bool) -> None:
        part = copy.part
        if part is None:
            return
        if not copy.why:
            part.hash_good_ranges()
        if not over:
            return
        digest = part.full_digest()
        if not copy.why and (digest is None or digest != copy.sha256):
            if copy.moved is not None:
                copy.why = CHANGES
            else:
                copy.why = DAMAGED
        if copy.why or digest is None:
            self._retry_or_report(copy)
            return
        # Before it gets its name: a crash must not leave a file that looks complete.
        part.sync()
        self._let_go(copy)
        set_mtime(part.path, copy.stamp.mtime_ns)
        self._settle_copy(copy, part.path, digest)
        self._write_due()

    def _land_small_file(self, copy: FileCopy, tail: AnswerTail, chunks: Sequence[Chunk]) -> None:
        found = hashlib.sha256()
        for chunk in chunks:
            found.update(chunk)
        digest = found.hexdigest()
        self._compare_stamp(copy, tail.stamp)
        if copy.why:
            return
        if digest != tail.sha256:
            self._spoil_copy(copy, DAMAGED)
            return
        # In the final directory: threads that create files in one directory would wait for each
        # other.
        local = copy.step.local
        part = f"{self._ensure_folder(local)}/.{hashlib.sha256(os.fsencode(local)).hexdigest()[:16]}{PART}"
        if write_part(part, chunks, copy.stamp.mtime_ns, self._group):
            self._settle_copy(copy, part, digest)
            self._write_due()
        else:
            self._publisher.add_item((copy, part, digest))

    def _publish_files(self, some: list[tuple[FileCopy, str, str]]) -> None:
        """Flush small files together and rename them, including those written before a failure."""
        copy = some[0][0]
        try:
            assert self._group is not None
            self._group.sync()
            with self.turn:
                for copy, part, digest in some:
                    try:
                        self._settle_copy(copy, part, digest)
                    except OSError as error:
                        if error.errno not in OF_ONE:
                            raise
                        why = str(write_failure("it", copy.stamp.size, self.destination, error))
                        self._spoil_copy(copy, why, last=True)
                        self._retry_or_report(copy)
            self._write_due()
        except OSError as error:
            self.fail(write_failure(copy.step.file.path, copy.stamp.size, self.destination, error))
        except Exception as error:
            self.fail(error)

    def _use_box_hash(self, copy: FileCopy, tail: AnswerTail) -> None:
        self._compare_stamp(copy, tail.stamp)
        if copy.why or tail.sha256 is None:
            return
        if copy.part is not None:
            copy.sha256 = tail.sha256
            return
        # A file of the same size already has its name: compare the hashes.
        local = copy.step.local
        try:
            digest, stamp = sha256_of(Path(local))
        except OSError:
            # It vanished or cannot be read here: fetch it.
            digest, stamp = "", copy.stamp
        if digest == tail.sha256:
            self._count_bytes(copy, copy.stamp.size)
            self._record_copy(copy, local, digest, stamp)
            self._write_due()
        else:
            self._begin_copy(copy)

    def _ensure_folder(self, local: str) -> str:
        """Return the directory of a copy, creating it if needed."""
        folder = local.rpartition("/")[0]
        if folder not in self.folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.folders.add(folder)
        return folder

    def _settle_copy(self, copy: FileCopy, part: str, digest: str) -> None:
        local = copy.step.local
        self._ensure_folder(local)
        landed = settle_part(part, local, digest, copy.stamp, self._ledger.find_copy(local))
        if landed.note is not None:
            self.notes.append(RefusedFile(copy.step.file.path, landed.note))
        self._record_copy(copy, landed.local, digest, landed.stamp)

    def _record_copy(self, copy: FileCopy, local: str, digest: str, here: FileStamp) -> None:
        row = FileRow(
            path=copy.step.file.path,
            local=local,
            sha256=digest,
            there=copy.stamp,
            here=here,
            instance=self._instance,
            at=time.time(),
        )
        with self._lock:
            self._rows.append(row)
            self.landed.append(row)
            if copy.moved is not None:
                self.problems.append(
                    RefusedFile(
                        row.path,
                        "it grows while it is read: what it held when it was listed was taken",
                    )
                )
        self._count_finished()

    def _write_due(self) -> None:
        """Flush finished files to the ledger if there are enough or enough time has passed.

        It runs outside of `turn`, so that no other thread waits for it.
        """
        if len(self._rows) >= ROWS or (self._rows and time.monotonic() - self._written_at > ROWS_S):
            self._write_rows()

    def _write_rows(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            self._written_at = time.monotonic()
        with self._writing:
            self._ledger.append_rows(rows)

    def _retry_or_report(self, copy: FileCopy) -> None:
        with self._lock:
            why, copy.why = copy.why, ""
            self._count_bytes(copy, -copy.counted)
            if copy.tries < TRIES:
                # Such a try cost nothing, so it does not count; `most_replaced` limits them.
                if why != REPLACED:
                    copy.tries += 1
                copy.stamp = copy.moved or copy.stamp
                copy.moved = copy.sha256 = None
                return self._begin_copy(copy)
            self._let_go(copy)
            self.problems.append(RefusedFile(copy.step.file.path, why))
        return self._count_finished()

    def _count_finished(self) -> None:
        with self._lock:
            self._left -= 1
            over = self._left == 0
        if over:
            self._news()

    def _count_bytes(self, copy: FileCopy, count: int) -> None:
        with self._lock:
            copy.counted += count
            self._done_bytes += count


def empty_but_listed(rows: Iterable[FileRow]) -> tuple[RefusedFile, ...]:
    """Return the copies of 0 bytes whose trainer's list, in the same directory, states a size."""
    found = []
    for row in rows:
        if row.there.size:
            continue
        path = Path(row.local)
        if path.name != TRAINERS_LIST:
            with contextlib.suppress(OSError):
                size = size_in_trainers_list(path.with_name(TRAINERS_LIST).read_bytes(), path.name)
                if size:
                    why = f"it has 0 bytes on the box, and {TRAINERS_LIST} next to it says {size:,}"
                    found.append(RefusedFile(row.path, why))
    return tuple(found)
