"""A running ``send`` of the agent behind the system's ``ssh``: its pipes, its requests, and why it ended.

It serves one pull from the list of the files to the closing look: a login and a start of the agent cost more than many
small files do. All of it blocks; whoever waits can be told to stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable

import msgspec

from rgt_tui.model import clean
from rgt_tui.ssh import HostKeyRefused, NotCarried, Unreachable, record, refuses_host
from rgt_tui.transfer.copying import LONGEST_LINE, StreamError

LOOK_S, ENDING_S = 1.0, 5.0
STDERR_BYTES = 4096
READ_BYTES = 256 << 10
NOT_CONNECTED = 255
"""ssh's own exit status; every other one is the command's."""
ASKED = 0
"""Number of the requests that are verbs; those for files begin at 1."""
_ANSWER = b'{"id":'


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
        process: It.
        silence: Seconds after which a box that sends nothing of what was asked is given up.
    """

    def __init__(self, process: subprocess.Popen[bytes], silence: float) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
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
        """It waits for requests, or works."""
        return self.process.poll() is None

    @property
    def words(self) -> str:
        """The last line of its standard error, printable."""
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        return clean(lines[-1])[:300] if lines else ""

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
        """Wait for output; False = it is over.

        Raises:
            Unreachable: nothing came for too long.
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
        """Read what has come; 0 = it has ended."""
        count = os.readv(self.out, [buffer])
        self._came = self._came or count > 0
        return count

    def _listen(self) -> bool:
        """Keep the last words; False = there are no more."""
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
        """Run a verb of the agent in it, while nothing else is asked.

        Args:
            verb: ``manifest`` or ``results``.
            words: Its command line.
            take: Called with each line that it prints; what a login shell has printed is dropped.
            stopped: Whether nobody waits any more.
            longest: Bytes that a line may have.

        Returns:
            Its exit status; None where this agent runs no verbs so, or nobody waits.

        Raises:
            NotCarried: as `ended`.
            HostKeyRefused: as `ended`.
            Unreachable: as `ended`, or nothing comes any more.
            StreamError: what came is not what the agent sends.
            Exception: what `take` raises.
        """
        # Names that are no UTF-8 are lone surrogates here, and stay so.
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
        """Return what its end means."""
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
        return Unreachable(f"the connection was lost ({last})" if last else "the connection was lost")


def other_host() -> HostKeyRefused:
    """Return the message for when `ssh` reaches another host than the one that rgt has logged in to."""
    return HostKeyRefused(
        "the box showed one host key when rgt logged in, and another one to ssh just now: someone may be "
        "intercepting the connection; nothing more was taken"
    )
