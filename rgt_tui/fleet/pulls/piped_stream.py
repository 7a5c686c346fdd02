"""One stream of a pull through the system's ``ssh``: a thread that requests, reads into reused memory, and writes.

What has come is written at once and hashed by another thread while it is still in the processor's cache; only then is
its memory read into again, so a slow disk or hash holds the box back.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from rgt_tui.fleet.pulls.box_pipe import BoxPipe
from rgt_tui.transfer.copying import Fetcher, Stream

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
    ) -> None:
        self.bell = threading.Event()
        self.stream = Stream(fetcher, low, self.bell.set, may_block=True)
        self._pipe, self._fetcher, self._throttle, self._high = pipe, fetcher, throttle, high
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
