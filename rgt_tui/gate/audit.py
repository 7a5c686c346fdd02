"""The append-only record of billing actions: who did what to which box, what was shown, and what came of it.

One JSON object a line, written by a single ``write`` on a descriptor opened for appending, then fsynced. It
is written *before* the call goes out: an action that cannot be recorded is not sent.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.model.evidence import Verb

ROOM = 64 * 1024
"""Bytes that must be free before an action: the provider's answer has to fit as well."""


class AuditFailed(Exception):
    """The record could not be written. Before a call this refuses the action."""


class AuditEvent(enum.StrEnum):
    """What a line records."""

    REFUSED = "refused"
    REQUESTED = "requested"
    """Written before the call is sent."""
    ANSWER = "answer"
    """Written with each step that the provider reports."""


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    at: float
    """Client clock, epoch seconds."""
    event: AuditEvent
    box: str
    verb: Verb
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


class AuditLog:
    """An audit log in one file of mode 0600."""

    def __init__(self, path: Path | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self.path = path or default_path(os.environ if env is None else env)

    def record(self, entry: AuditEntry) -> None:
        """Append one line and wait until it is on the disk.

        Raises:
            AuditFailed: it is not there; the file is as it was before.
        """
        if not entry.who:
            entry = msgspec.structs.replace(entry, who=who())
        line = msgspec.json.encode(entry) + b"\n"
        try:
            self._append(line, room=ROOM if entry.event is AuditEvent.REQUESTED else 0)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise AuditFailed(
                f"the audit log {self.path} cannot be written ({why}); make room or correct its rights"
            ) from error

    def _append(self, line: bytes, *, room: int) -> None:
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
                raise OSError(errno.ENOSPC, f"only {stat.f_bavail * stat.f_frsize} bytes left, {room} wanted")
            torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
            data = (b"\n" if torn else b"") + line
            try:
                written = os.write(fd, data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.fsync(fd)
                if not end:
                    _keep_name(self.path.parent)
            except OSError:
                # Half a line would spoil the next one; nothing else is ever cut off.
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)


def _keep_name(folder: Path) -> None:
    """Bring the name of a new file to the disk, too: with the line alone, the file could be gone after a crash."""
    with contextlib.suppress(OSError):  # some file systems cannot
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def default_path(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_STATE_HOME/rgt/audit.jsonl``, by default below ``~/.local/state``.

    https://specifications.freedesktop.org/basedir-spec/latest/: a relative value is ignored.
    """
    state = Path(env.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "rgt" / "audit.jsonl"


def who() -> str:
    """Return the real user and this host; from the system, since an environment variable can say anything."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
