"""A large file through an `ssh` of its own, which writes it to its part itself, while its bytes are hashed behind it.

In memory of this process no byte is copied but to be hashed, which saves a sixth of the work of both sides. It is for
the good case alone: one `ssh`, a line that is fast enough for it, a file that does not change. Everything else (a
connection that breaks, a disk that is full, a login shell that prints, a wrong hash) ends it, and the file comes in
pieces, of which those that stand here already are compared and not sent again.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable

import msgspec

from rgt_tui.fleet.pulls.box_pipe import other_host
from rgt_tui.ssh import NotCarried, refuses_host
from rgt_tui.transfer import Stamp
from rgt_tui.transfer.copying import Copy, Fetcher, whole_request

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
