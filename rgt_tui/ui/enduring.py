"""Keeps the app alive when a screen fails: shows the error, and writes its traceback to a file.

Textual ends the app at the first exception in any handler or widget. A dashboard that runs
unattended for days must survive bad data from boxes, because polling and alerts depend on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from textual.events import Compose, Mount, ScreenResume
from textual.message import Message
from textual.message_pump import MessagePump

from rgt_tui.files import state_directory
from rgt_tui.model import clean_text

MOST_BYTES = 1 << 20
"""Maximum size of the file; it is then truncated."""
NO_TERMINAL = frozenset({errno.EIO, errno.EPIPE, errno.EBADF})
"""Errors of a lost terminal, after which the app has to end."""

OPENING = (Compose, Mount, ScreenResume)
"""Textual does further work after these messages: a screen that fails in one is not laid out."""


@runtime_checkable
class ScreenFaultReporter(Protocol):
    """The app, as seen by the widgets that fail in it."""

    def report_screen_fault(
        self, who: MessagePump, error: Exception, *, opening: bool = False
    ) -> bool:
        """Report that `who` failed, perhaps while opening.

        Return False if the error must end the app.
        """
        ...


class FaultTolerant(MessagePump):
    """A screen or widget that survives exceptions in its handlers."""

    # Textual calls it for every message of a pump; an exception that leaves it ends the app.
    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if not report_fault_to_app(self, error, opening=isinstance(message, OPENING)):
                raise


def report_fault_to_app(who: MessagePump, error: Exception, *, opening: bool = False) -> bool:
    """Report to the app that `who` failed; return False if the error must be raised again."""
    # The app is a pump that can fail, too.
    app = who if isinstance(who, ScreenFaultReporter) else who.app
    return isinstance(app, ScreenFaultReporter) and app.report_screen_fault(
        who, error, opening=opening
    )


def describe_error(error: BaseException) -> str:
    """Return an error's type and message in one line."""
    longest_words = 200
    # The message may quote text from a box.
    said = clean_text(" ".join(str(error).split()))[:longest_words]
    if said:
        return f"{type(error).__name__}: {said}"
    return type(error).__name__


def report_path(env: Mapping[str, str]) -> Path:
    """Return the file for error reports, in the state directory."""
    return state_directory(env) / "faults.log"


def shorten_path(path: Path) -> str:
    """Return a path with ``~`` for the home directory, to fit into a line."""
    # `relative_to` raises ValueError outside the home directory, `home` RuntimeError without one.
    with contextlib.suppress(ValueError, RuntimeError):
        inside = path.relative_to(Path.home())
        if inside.parts:
            return f"~/{inside}"
        return "~"
    return str(path)


def append_traceback(path: Path, who: str, error: BaseException) -> bool:
    """Append an error with its traceback, without variable values; return whether that worked."""
    lines = "".join(traceback.format_exception(error))
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    text = f"{when}  {who}\n{lines}\n".encode(errors="replace")
    # A link in the file's place is refused, and opening a FIFO there does not block.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(OSError, RuntimeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, flags, 0o600)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return False
            if found.st_size > MOST_BYTES:
                os.ftruncate(file, 0)
            return os.write(file, text) == len(text)
        finally:
            os.close(file)
    return False
