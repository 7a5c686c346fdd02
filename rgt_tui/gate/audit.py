"""The append-only log of billing actions: who did what to which box, what was shown, the outcome.

One JSON object per line, written with a single ``write`` to a descriptor opened for appending, then
fsynced. The line is written *before* the call: an action that cannot be recorded is not sent. Each
line contains the SHA-256 of the previous one, so that a changed, removed or inserted line is
detected.
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
from rgt_tui.language import record_text, translate
from rgt_tui.model import BillingVerb, FrozenStruct, how_many

ROOM = 64 * 1024
"""Free bytes required before an action: the provider's answer must fit as well."""
FIRST = "0" * 64
"""Used as the previous hash in the first line."""
LONGEST = 16 << 20
"""Maximum bytes of a line; a longer one was not written by rgt."""
BLOCK = 64 * 1024


class AuditFailed(Exception):
    """The log could not be written. Before a call, this refuses the action."""


class AuditEvent(enum.StrEnum):
    """The kind of event in a line."""

    REFUSED = "refused"
    REQUESTED = "requested"
    """Written before the call is sent."""
    ANSWER = "answer"
    """Written with each step that the provider reports."""
    ARMED = "armed"
    """The box will stop itself from now on; requested in the previous line."""
    KEPT = "kept"
    """Its own stop was postponed."""
    DISARMED = "disarmed"


class AuditEntry(FrozenStruct, omit_defaults=True):
    """One line."""

    at: float
    """Client clock, Unix time."""
    event: AuditEvent
    box: str
    verb: BillingVerb | None
    """None = see `deed`."""
    instance: str
    who: str = ""
    """user@host; filled in by the log if empty."""
    shown: str = ""
    """SHA-256 of the review that the person was shown."""
    evidence: str = ""
    """SHA-256 of the evidence behind the permit."""
    typed: str = ""
    text: str = ""
    """The reasons of a refusal, the call about to be sent, or the provider's answer. Never a key.
    """
    deed: str = ""
    """Action without a `verb`, such as ``bid``; empty = a creation."""
    boot: str = ""
    """The boot for which a box is armed to stop itself."""
    before: str = ""
    """SHA-256 of the bytes of the previous line; filled in by the log. Empty: written before the
    chain existed.
    """

    @property
    def deed_text(self) -> str:
        """The verb, or the other kind of action, in a word."""
        if self.verb is not None:
            return self.verb.value
        return self.deed or "rent"


class AuditLine(FrozenStruct):
    """One line of the file."""

    number: int
    """From 1."""
    hash: str
    """SHA-256 of its bytes, without the line feed."""
    entry: AuditEntry | None
    """None if it cannot be decoded."""
    ended: bool = True
    """False for a last line without its line feed."""


class HashChainCheck(FrozenStruct):
    """The result of checking the hashes of the whole file."""

    lines: int = 0
    begins: int | None = None
    """The first line with a hash; earlier lines are older than the chain. None = no line has one.
    """
    broken: int | None = None
    """The first line that differs from what was written; None = the file is intact."""
    reason: str = ""
    torn: tuple[int, ...] = ()
    """Lines written only in part because rgt or the computer crashed; not a violation."""


class AuditLog:
    """An audit log in one file of mode 0600."""

    def __init__(self, path: Path | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self.path = path or default_path(os.environ if env is None else env)

    def record_entry(self, entry: AuditEntry) -> str:
        """Append one line, fsync it, and return its SHA-256.

        Raises:
            AuditFailed: it was not written; the file is unchanged.
        """
        # English in every language: a program or another person may read it.
        entry = msgspec.structs.replace(
            entry, who=entry.who or find_user_and_host(), text=record_text(entry.text)
        )
        try:
            # Only before a call is there still a choice; an answer is recorded in the room that is
            # left.
            return self._append_line(entry, room=ROOM if entry.event is AuditEvent.REQUESTED else 0)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise AuditFailed(
                translate(
                    "the audit log {path} cannot be written ({why}); free space or fix its "
                    "permissions",
                    path=self.path,
                    why=why,
                )
            ) from error

    def read_lines(self) -> Iterator[AuditLine]:
        """Read the file from its beginning; a missing file has no lines.

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
                    yield AuditLine(
                        number, _hash_line(bare), _decode_entry(bare), ended=bare != line
                    )
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise AuditFailed(
                translate(
                    "the audit log {path} cannot be read ({why}); fix its permissions",
                    path=self.path,
                    why=why,
                )
            ) from error

    def _append_line(self, entry: AuditEntry, *, room: int) -> str:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # O_NOFOLLOW: a symlink in its place must not make us write to another file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            # Two rgt may act on different boxes; each line must hold the hash of the one that
            # precedes it.
            files.lock_file(fd)
            os.fchmod(fd, 0o600)
            end = os.fstat(fd).st_size
            stat = os.fstatvfs(fd)
            # Some file systems (some FUSE ones) report no blocks at all; skip the check there.
            if stat.f_blocks and stat.f_bavail * stat.f_frsize < room:
                raise OSError(
                    errno.ENOSPC, f"only {stat.f_bavail * stat.f_frsize} bytes left, {room} wanted"
                )
            last, torn = _last_line(fd, end)
            entry = msgspec.structs.replace(
                entry, before=FIRST if last is None else _hash_line(last)
            )
            line = msgspec.json.encode(entry)
            # The torn line is kept: an audit log deletes nothing, and the hash shows that it is
            # torn.
            data = (b"\n" if torn else b"") + line + b"\n"
            try:
                written = os.write(fd, data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.fsync(fd)
                if not end:
                    sync_folder(self.path.parent)
            except OSError:
                # Half a line would corrupt the next one; nothing else is ever truncated.
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)
        return _hash_line(line)


def verify_hash_chain(lines: Iterator[AuditLine]) -> HashChainCheck:
    """Check the hashes of all lines, up to the first that differs from what was written.

    This detects changed, removed and inserted lines. It cannot detect a truncated end, or a file
    rewritten with matching hashes: the journal knows which lines must exist.
    """
    unreadable = translate("it cannot be read")
    count, begins, before = 0, None, FIRST
    torn: list[int] = []
    unread: AuditLine | None = None
    """The previous line, if it could not be decoded: perhaps half a line, confirmed by the next
    line's hash.
    """

    def broken_chain(line: int, why: str) -> HashChainCheck:
        return HashChainCheck(count, begins, line, why, tuple(torn))

    for line in lines:
        count = line.number
        if line.entry is not None and line.entry.before:
            # The hash of this line does not cover the unreadable one: that one was changed.
            if line.entry.before != before and unread is not None:
                return broken_chain(unread.number, unreadable)
            if line.entry.before != before:
                return broken_chain(count, translate("it does not follow the line before it"))
            begins = begins or count
        elif begins is not None and unread is not None:
            return broken_chain(unread.number, unreadable)
        elif begins is not None and line.entry is not None:
            return broken_chain(count, translate("it has no hash, unlike the lines before it"))
        if unread is not None:
            torn.append(unread.number)
        unread, before = (line if line.entry is None else None), line.hash
    if unread is not None and unread.ended and begins is not None:
        return broken_chain(unread.number, unreadable)
    if unread is not None:
        torn.append(unread.number)
    return HashChainCheck(count, begins, torn=tuple(torn))


def _hash_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _decode_entry(line: bytes) -> AuditEntry | None:
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _last_line(fd: int, end: int) -> tuple[bytes | None, bool]:
    """Return the last line of a file of `end` bytes, and whether its line feed is missing."""
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


def find_user_and_host() -> str:
    """Return the real user and this host.

    Taken from the system, as environment variables can be forged.
    """
    try:
        # Not $USER, which anybody can set.
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def describe_chain_check(chain: HashChainCheck) -> str:
    """Return the result of the check as a sentence."""
    if chain.broken is not None:
        return translate(
            "BROKEN at line {broken}: {reason}", broken=chain.broken, reason=chain.reason
        )
    if not chain.lines:
        return translate("no line yet")
    said = translate("complete, {lines}", lines=how_many(chain.lines, "line"))
    if chain.begins is None:
        said = translate("{said}, without hashes: written by an older rgt", said=said)
    elif chain.begins > 1:
        said = translate(
            "{said}; the chain begins at line {begins}, earlier lines by an older rgt cannot be "
            "verified",
            said=said,
            begins=chain.begins,
        )
    if chain.torn:
        torn = ", ".join(map(str, chain.torn))
        said = translate(
            "{said}; torn when rgt or the computer ended: line {torn}", said=said, torn=torn
        )
    return said
