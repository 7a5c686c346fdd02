"""A pull's streams through the system's ``ssh``: an agent's ``send``, its pipes, their reader.

One process serves a pull from the file list to the final check: a login and a start of the agent
cost more than many small files. All calls block, and can be stopped from another thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from rgt_tui.model import clean
from rgt_tui.ssh import HostKeyRefused, NotCarried, Unreachable, record, refuses_host
from rgt_tui.transfer.copying import LONGEST_LINE, Fetcher, Stream, StreamError

LOOK_S, ENDING_S = 1.0, 5.0
STDERR_BYTES = 4096
READ_BYTES = 256 << 10
NOT_CONNECTED = 255
"""ssh's own exit status; any other is the remote command's."""
ASKED = 0
"""Id of requests for verbs; ids of file requests begin at 1."""
_ANSWER = b'{"id":'
BUFFERS, BUFFER_BYTES = 8, 512 << 10
PAUSE_S = 0.0005
"""How long a pipe fills up before the next read; after longer it would be full, which blocks the
sender."""
CHECK_S = 1.0


class _End(msgspec.Struct, frozen=True):
    id: int
    status: int | None = None


_decode = msgspec.json.Decoder(_End).decode


def _status(line: bytes) -> int | None:
    try:
        end = _decode(line)
    except (ValueError, RecursionError) as error:
        raise StreamError(f"an end that is none: {error}") from error
    if end.id != ASKED:
        raise StreamError(f"an answer to a request that was not made ({end.id})")
    return end.status


class BoxPipe:
    """The pipes of a running ``send``.

    Args:
        process: The ssh process.
        silence: Seconds without requested output after which the box is given up.
    """

    def __init__(self, process: subprocess.Popen[bytes], silence: float) -> None:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        self.process = process
        self.out = process.stdout.fileno()
        self._requests, self._errors = process.stdin.fileno(), process.stderr.fileno()
        self._silence = silence
        self._came = self._spoken = False
        self._words = b""
        self._poll = select.poll()
        for fd in (self.out, self._errors):
            self._poll.register(fd, select.POLLIN)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.poll() is None

    @property
    def words(self) -> str:
        """The last line of its standard error, printable."""
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        if lines:
            return clean(lines[-1])[:300]
        return ""

    def write(self, data: bytes) -> None:
        """Send requests.

        Raises:
            NotCarried: as `ended`.
            HostKeyRefused: as `ended`.
            Unreachable: as `ended`.
        """
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._requests, view) :]
        except BrokenPipeError:
            raise self.ended() from None

    def ready(self, stopped: Callable[[], bool]) -> bool:
        """Wait for output; False = stopped.

        Raises:
            Unreachable: no output for too long.
        """
        until = time.monotonic() + self._silence
        while not stopped():
            found = {fd for fd, _ in self._poll.poll(LOOK_S * 1000)}
            if self._errors in found and not self._listen():
                self._poll.unregister(self._errors)
            if self.out in found:
                return True
            if time.monotonic() > until:
                raise Unreachable(
                    f"the box has sent nothing for {self._silence:g} s, though the connection is up"
                )
        return False

    def read(self, buffer: bytearray | memoryview) -> int:
        """Read available output into `buffer`; return the byte count, 0 at the end."""
        count = os.readv(self.out, [buffer])
        self._came = self._came or count > 0
        return count

    def _listen(self) -> bool:
        """Buffer the end of standard error; False = it is closed."""
        data = os.read(self._errors, STDERR_BYTES)
        self._words = (self._words + data)[-STDERR_BYTES:]
        return bool(data)

    def ask(
        self,
        verb: str,
        words: tuple[str, ...],
        take: Callable[[bytes], None],
        stopped: Callable[[], bool],
        longest: int = LONGEST_LINE,
    ) -> int | None:
        """Run a verb of the agent in this process; no other request may be open.

        Args:
            verb: ``manifest`` or ``results``.
            words: Its command line.
            take: Called with each line that it prints; output of a login shell is dropped.
            stopped: Whether the caller has given up.
            longest: Maximum bytes of a line.

        Returns:
            Its exit status; None if this agent cannot run verbs here, or the caller has given up.

        Raises:
            NotCarried: as `ended`.
            HostKeyRefused: as `ended`.
            Unreachable: as `ended`, or no output for too long.
            StreamError: the output is not the agent's format.
            Exception: raised by `take`.
        """
        # Names that are not UTF-8 contain lone surrogates, which JSON escapes keep.
        self.write(json.dumps({"id": ASKED, "verb": verb, "words": words}).encode() + b"\n")
        buffer, rest = bytearray(READ_BYTES), b""
        view = memoryview(buffer)
        while self.ready(stopped):
            count = self.read(buffer)
            if not count:
                raise self.ended()
            *lines, rest = (rest + bytes(view[:count])).split(b"\n")
            if len(rest) > longest:
                raise StreamError("a line without an end")
            for line in lines:
                found = line if self._spoken else record(line)
                if not found:
                    continue
                self._spoken = True
                if found.startswith(_ANSWER):
                    return _status(found)
                take(found)
        return None

    def ended(self) -> Exception:
        """Return the error that describes why the process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDING_S)
        with contextlib.suppress(OSError):
            os.set_blocking(self._errors, False)
            while self._listen():
                pass
        last = self.words
        if refuses_host(self._words.decode("utf-8", "replace")):
            return other_host()
        if not self._came and self.process.returncode == NOT_CONNECTED:
            return NotCarried(f"ssh does not get there ({last or 'it says nothing'})")
        return Unreachable(
            f"the connection was lost ({last})" if last else "the connection was lost"
        )


def other_host() -> HostKeyRefused:
    """Return the error for when `ssh` reaches another host than rgt's own login did."""
    return HostKeyRefused(
        "the box showed one host key when rgt logged in, and another one to ssh just now: someone may be "
        "intercepting the connection; nothing more was taken"
    )


# One stream of a pull through the system's ``ssh``: a thread that sends requests, reads into reused
# buffers, and writes files.
#
# Received data is written at once and hashed by another thread while it is still in the CPU cache.
# Only then is its buffer reused, so a slow disk or hash slows the box down.


class PipedStream:
    """A running ``send``, and the stream that it serves.

    Args:
        pipe: To it.
        fetcher: Source of the requests.
        throttle: Counts received bytes; returns for how many seconds to pause.
        high: Bytes waiting to be written at which reading pauses.
        low: Bytes at which reading resumes.

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
        """Stop the stream, from another thread.

        Without open requests the process ends at the end of its input, otherwise it is killed.
        """
        self._stopped.set()
        self.bell.set()
        if not self.stream.idle:
            self._pipe.process.kill()

    def run(self) -> None:
        """Request and receive until no request is left.

        Raises:
            NotCarried: ssh could not connect.
            HostKeyRefused: the box shows another host key than the verified one.
            Unreachable: the connection was lost, or no output for too long.
            StreamError: the output is not the agent's format.
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
        self.bell.wait(CHECK_S)
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
                break  # process this data first; the next read sees the end
            count += more
        self.stream.feed(buffer, count)
        self._fetcher.hashed(partial(self._free.put, buffer))
        pause = self._throttle(count)
        if pause > 0:
            self._stopped.wait(pause)

    def _buffer(self) -> bytearray | None:
        while not self._over():
            with contextlib.suppress(queue.Empty):
                return self._free.get(timeout=CHECK_S)
        return None
