"""The kernel log, followed at one system call per tick: ``/dev/kmsg``, else ``dmesg``.

Form of a record: the kernel's ``Documentation/ABI/testing/dev-kmsg``.
"""

from __future__ import annotations

import os
import re

from rgt_box import background
from rgt_box.sampling import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    Records = List[Tuple[int, str]]

RECORD = 1 << 14
"""Bytes of a read: a shorter one than the record is refused by the kernel."""

MOST = 20000
"""Records read at once, so that a flood holds up no sample; more than any kernel keeps by default."""

DMESG_EVERY, DMESG_TIMEOUT = 60.0, 5.0
_ROW = re.compile(r"^(?:<\d+>)?\[\s*(\d+)\.(\d{6})\] (.*)$")


class Unreadable(Exception):
    """The kernel log cannot be read here; the message says why."""


def path() -> str:
    """Return the device; ``RGT_KMSG`` names a file that plays it."""
    return os.environ.get("RGT_KMSG") or "/dev/kmsg"


class Kmsg:
    """The device: each read gives one record, and says when there is no more.

    Args:
        device: Its path.
        word: Records without it are left out at once: a kernel's whole log in memory would be a lot for the agent.

    Raises:
        OSError: when it cannot be opened or read.
    """

    def __init__(self, device: str, word: bytes) -> None:
        self._word = word
        self._rest = b""
        self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._first: bytes | None = None
        try:
            self._first = self._read()  # opening is allowed in more places than reading
        except OSError:
            os.close(self._fd)
            raise

    def _read(self) -> bytes | None:
        """Return the next bytes, b"" at the end (of a file), None when nothing is there (of the device)."""
        try:
            return os.read(self._fd, RECORD)
        except BlockingIOError:
            return None
        except (
            BrokenPipeError
        ):  # records were overwritten before they were read; the next read goes on after them
            return self._read()

    def records(self) -> Records:
        """Return the messages since the last call, as (microseconds of the kernel's clock, text)."""
        found: Records = []
        data, self._first = self._first, None
        for _ in range(MOST):
            data = data or self._read()
            if not data:
                break
            *rows, self._rest = (self._rest + data).split(b"\n")
            rows = [row for row in rows if self._word in row]
            found += [record for record in map(parse_record, rows) if record is not None]
            data = None
        return found

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)


def parse_record(row: bytes) -> tuple[int, str] | None:
    """Parse ``6,339,5140900,-;message``; None for a continuation line (it begins with a blank) or nonsense."""
    head, separator, text = row.partition(b";")
    words = head.split(b",")
    if not separator or row[:1] == b" " or len(words) < 3 or not words[2].isdigit():
        return None
    return int(words[2]), text.decode("utf-8", "replace")


class Dmesg:
    """The program, asked every minute in a thread: some containers forbid the device but not the system call.

    Args:
        word: Records without it are left out.

    Raises:
        OSError: when there is no such program, or it is not allowed to read either.
    """

    def __init__(self, word: bytes) -> None:
        self._word = word.decode()
        if programs.which("dmesg") is None:
            raise FileNotFoundError("dmesg")
        self._first: Records | None = self._ask()
        self._job = background.Background(self._ask, DMESG_EVERY, DMESG_TIMEOUT * 2)
        self._seen: Records | None = None

    def _ask(self) -> Records:
        text = programs.attempt(["dmesg"], DMESG_TIMEOUT)
        if text is None:
            raise PermissionError("dmesg")
        return [record for record in parse_dmesg(text) if self._word in record[1]]

    def records(self) -> Records:
        """Return the messages that are new since the last call."""
        if self._first is not None:
            found, self._first = self._first, None
            self._job.poll()
            return found
        found, error = self._job.poll()
        if error or not found or found is self._seen:
            return []
        before, self._seen = self._seen, found
        last = before[-1][0] if before else -1
        return [record for record in found if record[0] > last]


def parse_dmesg(text: str) -> Records:
    """Parse rows like ``[   12.345678] message``; others are left out."""
    found = []
    for row in text.splitlines():
        match = _ROW.match(row)
        if match:
            found.append((int(match.group(1)) * 1000000 + int(match.group(2)), match.group(3)))
    return found


def open_log(word: bytes) -> Kmsg | Dmesg:
    """Open the kernel log for the records that hold `word`.

    Raises:
        Unreadable: when neither way is open.
    """
    try:
        return Kmsg(path(), word)
    except OSError as error:
        reason = background.describe(error)
    try:
        return Dmesg(word)
    except (OSError, TimeoutError):
        raise Unreadable("the kernel log is unreadable (%s)" % reason) from None
