"""One stream of a pull through the system's ``ssh``: a thread that asks, reads into memory it uses again, and lands.

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

from rgt_tui.model.plain import clean
from rgt_tui.ssh import HostKeyRefused, NotCarried, Unreachable, refuses_host
from rgt_tui.transfer.copying import Fetcher, Stream

BUFFERS, BUFFER_BYTES = 8, 512 << 10
PAUSE_S = 0.0005
"""So long a pipe gathers what one read then takes: more, and it would be full."""
LOOK_S, ENDING_S = 1.0, 5.0
STDERR_BYTES = 4096


class PipedStream:
    """A running ``send``, and the stream that it serves.

    Args:
        process: It, with pipes.
        fetcher: Where the requests come from.
        throttle: Counts bytes that came; returns for how many seconds none should be taken.
        high: Bytes that wait to be written, before it waits.
        low: Where it goes on.
        silence: Seconds after which a box that sends nothing of what was asked is given up.

    Attributes:
        bell: Set from outside when there may be new requests, or all is done.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        fetcher: Fetcher,
        throttle: Callable[[int], float],
        high: int,
        low: int,
        silence: float,
    ) -> None:
        self.bell = threading.Event()
        self.stream = Stream(fetcher, low, self.bell.set)
        self._process, self._fetcher, self._throttle = process, fetcher, throttle
        self._high, self._silence = high, silence
        self._stopped = threading.Event()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(bytearray(BUFFER_BYTES))
        self._words = b""

    def stop(self) -> None:
        """End it, from another thread. Whose requests are all answered ends by itself at the end of them."""
        self._stopped.set()
        self.bell.set()
        if not self.stream.idle:
            self._process.kill()

    def run(self) -> None:
        """Ask and take until nothing is left to ask for.

        Raises:
            NotCarried: it did not come to speak: the way does not lead there.
            HostKeyRefused: the box shows another host key than the one that was verified.
            Unreachable: the connection was lost, or nothing comes any more.
            StreamError: what came is not what the agent sends.
        """
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._serve(process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno())

    def _serve(self, requests: int, out: int, errors: int) -> None:
        poll = select.poll()
        for fd in (out, errors):
            poll.register(fd, select.POLLIN)
        while not (self._stopped.is_set() or self._fetcher.finished):
            if self.stream.held > self._high:
                self._wait()
                continue
            try:
                self._write(requests, self.stream.requests())
            except BrokenPipeError:
                raise self._ended(errors) from None
            if self.stream.idle:
                self._wait()
                if self._process.poll() is not None:
                    raise self._ended(errors)
                continue
            if self._until_ready(poll, out, errors):
                self._take(poll, out, errors)

    def _wait(self) -> None:
        self.bell.wait(LOOK_S)
        self.bell.clear()

    @staticmethod
    def _write(fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def _until_ready(self, poll: select.poll, out: int, errors: int) -> bool:
        """Wait for output; False = it is over."""
        until = time.monotonic() + self._silence
        while not (self._stopped.is_set() or self._fetcher.failure is not None):
            ready = {fd for fd, _ in poll.poll(LOOK_S * 1000)}
            if errors in ready and not self._listen(errors):
                poll.unregister(errors)
            if out in ready:
                return True
            if time.monotonic() > until:
                raise Unreachable(
                    f"the box has sent nothing for {self._silence:g} s, though the connection is up"
                )
        return False

    def _listen(self, errors: int) -> bool:
        """Keep the last words; False = there are no more."""
        data = os.read(errors, STDERR_BYTES)
        self._words = (self._words + data)[-STDERR_BYTES:]
        return bool(data)

    def _take(self, poll: select.poll, out: int, errors: int) -> None:
        buffer = self._buffer()
        if buffer is None:
            return
        count = os.readv(out, [buffer])
        if not count:
            raise self._ended(errors)
        view = memoryview(buffer)
        enough = min(self.stream.left, BUFFER_BYTES // 2)
        while count < enough:
            time.sleep(PAUSE_S)
            if not self._until_ready(poll, out, errors):
                return
            more = os.readv(out, [view[count:]])
            if not more:
                break  # what has come is taken, and the end seen next time
            count += more
        self.stream.feed(buffer, count)
        self._fetcher.hashed(partial(self._free.put, buffer))
        pause = self._throttle(count)
        if pause > 0:
            self._stopped.wait(pause)

    def _buffer(self) -> bytearray | None:
        while not (self._stopped.is_set() or self._fetcher.failure is not None):
            with contextlib.suppress(queue.Empty):
                return self._free.get(timeout=LOOK_S)
        return None

    def _ended(self, errors: int) -> Exception:
        """Return what its end means."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        with contextlib.suppress(OSError):
            os.set_blocking(errors, False)
            while self._listen(errors):
                pass
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        last = clean(lines[-1])[:300] if lines else ""
        if refuses_host(self._words.decode("utf-8", "replace")):
            return HostKeyRefused(
                "the box showed one host key when rgt logged in, and another one to ssh just now: someone may be "
                "intercepting the connection; nothing more was taken"
            )
        if not self.stream.came and self._process.returncode == NOT_CONNECTED:
            return NotCarried(f"ssh does not get there ({last or 'it says nothing'})")
        return Unreachable(f"the connection was lost ({last})" if last else "the connection was lost")


NOT_CONNECTED = 255
"""ssh's own exit status; every other one is the command's."""
