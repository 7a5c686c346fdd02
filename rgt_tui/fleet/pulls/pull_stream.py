"""The stream of a pull: requests go out, answers are written and hashed, and it is resumed."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rgt_tui.fleet.box_evidence import ResultsRequest
from rgt_tui.fleet.pulls.box_pipe import CHECK_S, SILENCE_S, BoxConnection, BoxPipe, silence_error
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    ConfigError,
    HostKeyRefused,
    NoCommands,
    NoPython,
    NotCarried,
)
from rgt_tui.transfer import Ledger
from rgt_tui.transfer.copying import PullFetcher, PullPlan, PullProgress, RequestStream, StreamError

HIGH_BYTES, LOW_BYTES = 16 << 20, 4 << 20
"""Bytes waiting to be written at which reading pauses and resumes."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
HOPELESS = (AuthFailed, HostKeyRefused, ConfigError, NoCommands, NoPython)
"""Errors that a retry cannot fix."""
BUFFERS, BUFFER_BYTES = 8, 512 << 10

OnProgress = Callable[[PullProgress], None]
UNCLAIMED_BYTES = 1_000_000
"""More bytes of unclaimed files make a pull of a box's results incomplete; a few shell scripts do
not."""


class PullFailed(Exception):
    """The pull is impossible or broke off; the message says why.

    Files received so far are kept for the next pull.
    """


class PullRequest(FrozenStruct, kw_only=True):
    """Paths and options of a pull."""

    paths: tuple[str, ...] = ()
    """On the box; empty = its results."""
    wanted: ResultsRequest | None = None
    """If set, `paths` are directories of the list of results made with it, and exactly the files
    counted in them are fetched; None = everything below them."""
    destination: Path
    """Absolute path."""
    limit: float | None = None
    """Bytes per second; None = no limit."""
    unclaimed_bytes: float = UNCLAIMED_BYTES
    """Without `paths`: how many bytes of files that no job, run or `results` claims may stay on the
    box."""
    dry_run: bool = False
    patience: float = 120.0
    """How many seconds to retry a lost connection."""
    accept_new_host_keys: bool = False
    ssh_from: float = 256e6
    """Bytes to fetch from which the system's `ssh` makes up for its login."""
    pack_from_s: float = 0.003
    """Seconds of a round trip from which the box packs what it sends, where that pays."""


class Throttle:
    """Keeps the rate below a limit.

    Args:
        rate: Bytes per second; None = no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = 0.0

    def count_bytes(self, count: int) -> float:
        """Count received bytes; return for how many seconds to pause."""
        if self._rate is None:
            return 0.0
        now = time.monotonic()
        # Time without data is not saved up, or a burst would follow each pause.
        self._due = max(self._due, now) + count / self._rate
        return self._due - now


async def fetch(
    connection: BoxConnection,
    request: PullRequest,
    todo: PullPlan,
    ledger: Ledger,
    instance: str,
    on_progress: OnProgress,
    progress_s: float = 0.2,
) -> PullFetcher:
    """Fetch the planned files. After an error the files received so far are kept.

    Raises:
        BoxError: the box became unreachable.
        PullFailed: it sends invalid data.
        LandingFailed: this machine cannot write it.
    """
    # The stream runs in a thread, which cannot wait for an asyncio event.
    bell = threading.Event()
    fetcher = PullFetcher(todo, ledger, request.destination, instance, bell.set)
    is_large = todo.bytes >= request.ssh_from
    task = asyncio.ensure_future(_keep_receiving(connection, request, fetcher, bell, is_large))
    try:
        while not (fetcher.is_finished or task.done()):
            await asyncio.wait({task}, timeout=progress_s)
            on_progress(fetcher.read_progress())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if fetcher.failure is not None or not fetcher.is_finished:
            await asyncio.to_thread(fetcher.close)
    if fetcher.failure is not None:
        raise fetcher.failure
    return fetcher


async def _keep_receiving(
    connection: BoxConnection,
    request: PullRequest,
    fetcher: PullFetcher,
    bell: threading.Event,
    is_large: bool,
) -> None:
    """Run the stream, reconnecting when needed, until nothing is left to fetch."""
    throttle = Throttle(request.limit)
    wait, lost_at, invalid = FIRST_WAIT_S, 0.0, 0
    # A box that sends invalid data this many times is given up.
    most_invalid = 3
    while not fetcher.is_finished:
        before = fetcher.received_bytes
        try:
            pipe = await connection.open_pipe(is_large=is_large, pack_from_s=request.pack_from_s)
            await _receive(pipe, fetcher, throttle, bell)
        # Once more with rgt's own channel, and without a pause: the box is fine.
        except NotCarried as error:
            connection.no_ssh = str(error)
            continue
        except HOPELESS as error:
            fetcher.fail(error)
        except StreamError as error:
            invalid += 1
            if invalid == most_invalid:
                fetcher.fail(
                    PullFailed(
                        translate("the box sent what its agent does not send: {error}", error=error)
                    )
                )
        except BoxError as error:
            now = time.monotonic()
            # Progress starts the patience over: a connection that breaks every minute still gets
            # there.
            if fetcher.received_bytes > before or not lost_at:
                wait, lost_at = FIRST_WAIT_S, now
            if now - lost_at > request.patience:
                fetcher.fail(error)
        if not fetcher.is_finished:
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT_S, 2 * wait)


async def _receive(
    pipe: BoxPipe, fetcher: PullFetcher, throttle: Throttle, bell: threading.Event
) -> None:
    stream = PullStream(pipe, fetcher, throttle, bell)
    running = asyncio.ensure_future(asyncio.to_thread(stream.run))
    try:
        # A thread cannot be cancelled: it is stopped below, and then awaited.
        await asyncio.shield(running)
    finally:
        stream.stop()
        await asyncio.gather(running, return_exceptions=True)
        pipe.close()
        await asyncio.to_thread(stream.stream.give_back_tasks)


class PullStream:
    """Sends requests, reads answers into reused buffers, and writes files; `run` is a thread's.

    Received data is written at once and hashed by another thread while it is still in the CPU
    cache. Only then is its buffer reused, so a slow disk or hash slows the box down.

    Args:
        pipe: To the agent's `send`.
        fetcher: Source of the requests.
        throttle: Counts received bytes.
        bell: Set when there may be new requests, or all is done.
    """

    def __init__(
        self, pipe: BoxPipe, fetcher: PullFetcher, throttle: Throttle, bell: threading.Event
    ) -> None:
        self.stream = RequestStream(fetcher, LOW_BYTES, bell.set)
        self._pipe, self._fetcher, self._throttle, self._bell = pipe, fetcher, throttle, bell
        self._line_bytes = 0
        self._stopped = threading.Event()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(bytearray(BUFFER_BYTES))

    def stop(self) -> None:
        """Stop the stream, from the event loop.

        Without open requests the agent ends at the end of its input, otherwise it is killed.
        """
        self._stopped.set()
        self._bell.set()
        if not self.stream.is_idle:
            self._pipe.kill()

    def run(self) -> None:
        """Request and receive until no request is left.

        Raises:
            NotCarried: ssh could not connect.
            HostKeyRefused: the box shows another host key than the verified one.
            Unreachable: the connection was lost, or no output for too long.
            StreamError: the output is not the agent's format.
        """
        while not (self._stopped.is_set() or self._fetcher.is_finished):
            # Neither requests nor reads: the box is slowed down by its full window.
            if self.stream.held > HIGH_BYTES:
                self._wait_for_bell()
                continue
            self._pipe.write(self.stream.next_requests())
            if not self.stream.is_idle:
                if self._wait_for_output():
                    self._receive_buffer()
                continue
            self._wait_for_bell()
            if not self._pipe.is_alive:
                raise self._pipe.ending_error()

    def _wait_for_bell(self) -> None:
        # With a limit, because `stop` may set it between two waits.
        self._bell.wait(CHECK_S)
        self._bell.clear()

    def _is_over(self) -> bool:
        return self._stopped.is_set() or self._fetcher.failure is not None

    def _wait_for_output(self) -> bool:
        """Wait for output; False = stopped."""
        until = time.monotonic() + SILENCE_S
        while not self._is_over():
            if self._pipe.has_output():
                return True
            if time.monotonic() > until:
                raise silence_error()
        return False

    def _receive_buffer(self, pause_s: float = 0.0005) -> None:
        """Read a buffer and feed it; `pause_s` lets the pipe fill up, but not until it is full."""
        buffer = self._free_buffer()
        if buffer is None:
            return
        count = self._pipe.read(buffer)
        if not count:
            raise self._pipe.ending_error()
        view = memoryview(buffer)
        # Half a buffer at least: there are few of them, and each is hashed before it is free again.
        enough = min(self.stream.bytes_left, BUFFER_BYTES // 2)
        while count < enough:
            time.sleep(pause_s)
            if not self._wait_for_output():
                return
            more = self._pipe.read(view[count:])
            if not more:
                break  # process this data first; the next read sees the end
            count += more
        self.stream.feed_data(buffer, count)
        self._fetcher.after_hashing(partial(self._free.put, buffer))
        counted, self._line_bytes = self._line_bytes, self._pipe.line_bytes
        pause = self._throttle.count_bytes(self._line_bytes - counted)
        if pause > 0:
            self._stopped.wait(pause)

    def _free_buffer(self) -> bytearray | None:
        while not self._is_over():
            with contextlib.suppress(queue.Empty):
                return self._free.get(timeout=CHECK_S)
        return None
