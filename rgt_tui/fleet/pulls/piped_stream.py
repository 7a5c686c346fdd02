"""One stream of a pull through the system's ``ssh``: a thread that requests, reads into reused memory, and writes.

What has come is written at once and hashed by another thread while it is still in the processor's cache; only then is
its memory read into again, so a slow disk or hash holds the box back.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from rgt_tui.fleet.pulls.box_pipe import BoxPipe, other_host
from rgt_tui.fleet.pulls.pull_way import ENOUGH, SILENCE_S
from rgt_tui.ssh import NotCarried, refuses_host
from rgt_tui.transfer import Stamp
from rgt_tui.transfer.copying import Copy, Fetcher, Stream, whole_request

BUFFERS, BUFFER_BYTES = 8, 512 << 10
PAUSE_S = 0.0005
"""So long a pipe gathers what one read then takes: more, and it would be full."""
LOOK_S = 1.0


class PipedStream:
    """A running ``send``, and the stream that it serves.

    Args:
        pipe: To it.
        fetcher: Where the requests come from.
        throttle: Counts bytes that came; returns for how many seconds none should be taken.
        high: Bytes that wait to be written, before it waits.
        low: Where it goes on.
        start: Starts an `ssh` that writes to a file; None = that is not to be.

    Attributes:
        bell: Set from outside when there may be new requests, or all is done.
    """

    def __init__(
        self,
        pipe: BoxPipe,
        fetcher: Fetcher,
        throttle: Callable[[int], float],
        high: int,
        low: int,
        start: Start | None = None,
    ) -> None:
        self.bell = threading.Event()
        self.stream = Stream(fetcher, low, self.bell.set, may_block=True)
        self._pipe, self._fetcher, self._throttle, self._high = pipe, fetcher, throttle, high
        self._start = start
        self._stopped = threading.Event()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(bytearray(BUFFER_BYTES))

    def stop(self) -> None:
        """End it, from another thread. Whose requests are all answered ends by itself at the end of them."""
        self._stopped.set()
        self.bell.set()
        if not self.stream.idle:
            self._pipe.process.kill()

    def run(self) -> None:
        """Ask and take until nothing is left to ask for.

        Raises:
            NotCarried: it did not come to speak: the way does not lead there.
            HostKeyRefused: the box shows another host key than the one that was verified.
            Unreachable: the connection was lost, or nothing comes any more.
            StreamError: what came is not what the agent sends.
        """
        while not (self._stopped.is_set() or self._fetcher.finished):
            if (
                self._start is not None
                and self.stream.idle
                and (copy := self._fetcher.take_large()) is not None
            ):
                if not take_whole(self._fetcher, copy, self._start, ENOUGH, SILENCE_S, self._over):
                    self._start = None
                continue
            if self.stream.held > self._high:
                self._wait()
                continue
            self._pipe.write(self.stream.requests())
            if self.stream.idle:
                self._wait()
                if not self._pipe.alive:
                    raise self._pipe.ended()
            elif self._pipe.ready(self._over):
                self._take()

    def _wait(self) -> None:
        self.bell.wait(LOOK_S)
        self.bell.clear()

    def _over(self) -> bool:
        return self._stopped.is_set() or self._fetcher.failure is not None

    def _take(self) -> None:
        buffer = self._buffer()
        if buffer is None:
            return
        count = self._pipe.read(buffer)
        if not count:
            raise self._pipe.ended()
        view = memoryview(buffer)
        enough = min(self.stream.left, BUFFER_BYTES // 2)
        while count < enough:
            time.sleep(PAUSE_S)
            if not self._pipe.ready(self._over):
                return
            more = self._pipe.read(view[count:])
            if not more:
                break  # what has come is taken, and the end seen next time
            count += more
        self.stream.feed(buffer, count)
        self._fetcher.hashed(partial(self._free.put, buffer))
        pause = self._throttle(count)
        if pause > 0:
            self._stopped.wait(pause)

    def _buffer(self) -> bytearray | None:
        while not self._over():
            with contextlib.suppress(queue.Empty):
                return self._free.get(timeout=LOOK_S)
        return None


LOOK_MS = 4
"""Between two looks at how much has come."""
TRIAL_S = 2.0
"""After that the line must have brought `ENOUGH` by the second."""
SAID_BYTES = 64 << 10
ENDING_S = 5.0
Start = Callable[[int], subprocess.Popen[bytes]]
"""Starts ``send --apart`` whose standard output is that descriptor. Raises `NotCarried`."""


class _Said(msgspec.Struct, frozen=True):
    id: int
    n: int | None = None
    stamp: Stamp | None = None
    sha256: str | None = None


_decode = msgspec.json.Decoder(_Said).decode


def take_whole(
    fetcher: Fetcher, copy: Copy, start: Start, enough: float, silence: float, stopped: Callable[[], bool]
) -> bool:
    """Bring one file; tell whether it came, and the next may be tried so. It blocks.

    Args:
        fetcher: Whose file it is; it is told the end in either case.
        copy: The file.
        start: Starts the `ssh`.
        enough: Bytes per second; on a slower line several streams bring more.
        silence: Seconds after which a box that sends nothing is given up.
        stopped: Whether nobody waits any more.

    Raises:
        HostKeyRefused: the box shows another host key than the one that was verified.
    """
    digest = None
    try:
        digest = _brought(fetcher, copy, start, enough, silence, stopped)
    except (NotCarried, OSError):
        pass  # the pieces tell what is wrong
    finally:
        fetcher.written(copy, digest)
    return digest is not None


def _brought(
    fetcher: Fetcher, copy: Copy, start: Start, enough: float, silence: float, stopped: Callable[[], bool]
) -> str | None:
    part = copy.part
    assert part is not None and part.lent is not None
    process = start(part.lent)
    assert process.stdin is not None and process.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            os.write(process.stdin.fileno(), whole_request(copy))
        words = _followed(fetcher, copy, process.stderr.fileno(), enough, silence, stopped)
        if words is None or (process.wait(ENDING_S) and not refuses_host(words)):
            return None
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()  # it has ended, or is to
        process.wait()
        process.stdin.close()
        process.stderr.close()
    if refuses_host(words):
        raise other_host()
    return _told(words, copy) if part.is_full else None


def _followed(
    fetcher: Fetcher, copy: Copy, errors: int, enough: float, silence: float, stopped: Callable[[], bool]
) -> str | None:
    """Hash what comes until the other side has ended; return what it has said, None = it is given up."""
    part = copy.part
    assert part is not None
    poll = select.poll()
    poll.register(errors, select.POLLIN)
    words = b""
    begun = last = time.monotonic()
    came, ended = 0, False
    while not ended:
        if poll.poll(LOOK_MS):
            said = os.read(errors, SAID_BYTES)
            words, ended = words + said, not said
        count = part.follow()
        fetcher.grew(copy, count)
        now = time.monotonic()
        if not came:
            begun = now  # the login does not count
        if count:
            came, last = came + count, now
        slow = now - begun > TRIAL_S and came < enough * (now - begun)
        if stopped() or slow or now - last > silence or len(words) > SAID_BYTES:
            return None
    return words.decode("utf-8", "replace")


def _told(words: str, copy: Copy) -> str | None:
    """Return the hash that the box has told; None where the file is not the one that was listed, or nothing fits."""
    said = []
    for line in words.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            said.append(_decode(line))
    if len(said) != 2 or any(row.stamp != copy.stamp for row in said) or said[0].n != copy.stamp.size:
        return None
    return said[1].sha256
