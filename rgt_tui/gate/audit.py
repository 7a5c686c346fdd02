"""The append-only record of billing actions: who did what to which box, what was shown, and what came of it.

One JSON object a line, written by a single ``write`` on a descriptor opened for appending, then fsynced. It
is written *before* the call goes out: an action that cannot be recorded is not sent. Each line carries the
SHA-256 of the one before, so that a line that was changed, taken out or put in is found.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hashlib
import os
import pwd
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.files import state_directory, sync_folder
from rgt_tui.model import Verb
from rgt_tui.profiles import how_many

ROOM = 64 * 1024
"""Bytes that must be free before an action: the provider's answer has to fit as well."""
FIRST = "0" * 64
"""What stands for the line before the first one."""
LONGEST = 16 << 20
"""Bytes of a line; a longer one was not written by rgt."""
BLOCK = 64 * 1024
UNREADABLE = "it cannot be read"


class AuditFailed(Exception):
    """The record could not be written. Before a call this refuses the action."""


class AuditEvent(enum.StrEnum):
    """What a line records."""

    REFUSED = "refused"
    REQUESTED = "requested"
    """Written before the call is sent."""
    ANSWER = "answer"
    """Written with each step that the provider reports."""
    ARMED = "armed"
    """A box stops itself from now on; asked for in the line before."""
    KEPT = "kept"
    """Its own stop was put off."""
    DISARMED = "disarmed"


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    at: float
    """Client clock, epoch seconds."""
    event: AuditEvent
    box: str
    verb: Verb | None
    """None = see `deed`."""
    instance: str
    who: str = ""
    """user@host; filled in by the log where it is empty."""
    shown: str = ""
    """SHA-256 of what the person was shown."""
    evidence: str = ""
    """SHA-256 of the evidence that the permit rests on."""
    typed: str = ""
    text: str = ""
    """The reasons of a refusal, the call about to be sent, or the provider's answer. Never a key."""
    deed: str = ""
    """What was done without a `verb`, such as ``bid``; empty = a creation."""
    boot: str = ""
    """Of a box that is armed to stop itself: for which boot."""
    before: str = ""
    """SHA-256 of the bytes of the line before; filled in by the log. Empty: written before there was a chain."""

    @property
    def deed_text(self) -> str:
        """The verb, or what else was done, in a word."""
        if self.verb is not None:
            return self.verb.value
        return self.deed or "rent"


class AuditLine(msgspec.Struct, frozen=True):
    """One line of the file."""

    number: int
    """From 1."""
    hash: str
    """SHA-256 of its bytes, without the line feed."""
    entry: AuditEntry | None
    """None where it cannot be read."""
    ended: bool = True
    """False for a last line without its line feed."""


class Chain(msgspec.Struct, frozen=True):
    """What the hashes say about the whole file."""

    lines: int = 0
    begins: int | None = None
    """The first line that carries a hash; what stands before it is older than the chain. None = no line does."""
    broken: int | None = None
    """The first line at which the file is not as it was written; None = it is whole."""
    reason: str = ""
    torn: tuple[int, ...] = ()
    """Lines of which only a part was written, since rgt or the computer ended at that moment; no breach."""


class AuditLog:
    """An audit log in one file of mode 0600."""

    def __init__(self, path: Path | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self.path = path or default_path(os.environ if env is None else env)

    def record(self, entry: AuditEntry) -> str:
        """Append one line and wait until it is on the disk; return its SHA-256.

        Raises:
            AuditFailed: it is not there; the file is as it was before.
        """
        if not entry.who:
            entry = msgspec.structs.replace(entry, who=who())
        try:
            return self._append(entry, room=ROOM if entry.event is AuditEvent.REQUESTED else 0)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise AuditFailed(
                f"the audit log {self.path} cannot be written ({why}); make room or correct its rights"
            ) from error

    def lines(self) -> Iterator[AuditLine]:
        """Read the file from its beginning; a file that is not there has no lines.

        Raises:
            AuditFailed: it cannot be read.
        """
        try:
            with (
                contextlib.suppress(FileNotFoundError),
                files.open_regular(self.path, follow=False) as file,
            ):
                number = 0
                while line := file.readline(LONGEST):
                    number += 1
                    bare = line.removesuffix(b"\n")
                    yield AuditLine(number, _hash(bare), _entry(bare), ended=bare != line)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise AuditFailed(
                f"the audit log {self.path} cannot be read ({why}); correct its rights"
            ) from error

    def _append(self, entry: AuditEntry, *, room: int) -> str:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # O_NOFOLLOW: a link put in its place must not make us write into another file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            files.take(fd)
            os.fchmod(fd, 0o600)
            end = os.fstat(fd).st_size
            stat = os.fstatvfs(fd)
            # A file system that reports no blocks at all (some FUSE ones) cannot be asked for its room.
            if stat.f_blocks and stat.f_bavail * stat.f_frsize < room:
                raise OSError(
                    errno.ENOSPC, f"only {stat.f_bavail * stat.f_frsize} bytes left, {room} wanted"
                )
            last, torn = _last_line(fd, end)
            entry = msgspec.structs.replace(entry, before=FIRST if last is None else _hash(last))
            line = msgspec.json.encode(entry)
            data = (b"\n" if torn else b"") + line + b"\n"
            try:
                written = os.write(fd, data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.fsync(fd)
                if not end:
                    sync_folder(self.path.parent)
            except OSError:
                # Half a line would spoil the next one; nothing else is ever cut off.
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)
        return _hash(line)


def verify(lines: Iterator[AuditLine]) -> Chain:
    """Follow the hashes through all lines, up to the first that is not as it was written.

    It finds what was changed, taken out or put in between. It cannot find that the end was cut off, or that somebody
    wrote the whole file anew with hashes that fit: the journal knows which lines must be there.
    """
    count, begins, before = 0, None, FIRST
    torn: list[int] = []
    unread: AuditLine | None = None
    """The line before, where it cannot be read: perhaps the half of one, for which the next one vouches."""

    def broken(line: int, why: str) -> Chain:
        return Chain(count, begins, line, why, tuple(torn))

    for line in lines:
        count = line.number
        if line.entry is not None and line.entry.before:
            if line.entry.before != before and unread is not None:
                return broken(unread.number, UNREADABLE)
            if line.entry.before != before:
                return broken(count, "it does not follow the line before it")
            begins = begins or count
        elif begins is not None and unread is not None:
            return broken(unread.number, UNREADABLE)
        elif begins is not None and line.entry is not None:
            return broken(count, "it carries no hash, as the lines before it do")
        if unread is not None:
            torn.append(unread.number)
        unread, before = (line if line.entry is None else None), line.hash
    if unread is not None and unread.ended and begins is not None:
        return broken(unread.number, UNREADABLE)
    if unread is not None:
        torn.append(unread.number)
    return Chain(count, begins, torn=tuple(torn))


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _entry(line: bytes) -> AuditEntry | None:
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _last_line(fd: int, end: int) -> tuple[bytes | None, bool]:
    """Return the last line of a file of `end` bytes without its line feed, and whether it lacks one."""
    if not end:
        return None, False
    torn = os.pread(fd, 1, end - 1) != b"\n"
    stop = end if torn else end - 1
    tail, start = b"", stop
    while start and b"\n" not in tail and len(tail) < LONGEST:
        size = min(BLOCK, start)
        start -= size
        tail = os.pread(fd, size, start) + tail
    return tail.rpartition(b"\n")[2], torn


def default_path(env: Mapping[str, str]) -> Path:
    """Return the path of the audit log."""
    return state_directory(env) / "audit.jsonl"


def who() -> str:
    """Return the real user and this host; from the system, since an environment variable can say anything."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def chain_words(chain: Chain) -> str:
    """Return what the hashes say, in a sentence."""
    if chain.broken is not None:
        return f"BROKEN at line {chain.broken}: {chain.reason}"
    if not chain.lines:
        return "no line yet"
    said = f"complete, {how_many(chain.lines, 'line')}"
    if chain.begins is None:
        said = f"{said}, none of which carries a hash: an older rgt wrote them"
    elif chain.begins > 1:
        said = f"{said}; the chain begins at line {chain.begins}, nothing vouches for what an older rgt wrote before"
    if chain.torn:
        torn = ", ".join(map(str, chain.torn))
        said = f"{said}; torn when rgt or the computer ended: line {torn}"
    return said
