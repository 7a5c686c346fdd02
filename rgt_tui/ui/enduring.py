"""Keeps the app alive when a screen fails: the failure is named in a line, its traceback goes to a file.

Textual ends the app at the first exception of any handler or widget. A dashboard that is left alone for days with what
boxes send must not: the polling and the alerts hang on it.
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
from rgt_tui.model import clean

LONGEST_WORDS = 200
MOST_BYTES = 1 << 20
"""Of the file; it then begins anew."""
NO_TERMINAL = frozenset({errno.EIO, errno.EPIPE, errno.EBADF})
"""The terminal is gone: then there is nothing to go on for."""

OPENING = (Compose, Mount, ScreenResume)
"""Behind these Textual itself has something to do: a screen that fails at one is not laid out."""


@runtime_checkable
class Endures(Protocol):
    """The app, to those who fail in it."""

    def endure(self, who: MessagePump, error: Exception, *, opening: bool = False) -> bool:
        """Say that `who` failed, perhaps while it came up; False where the fault must end the app."""
        ...


class Enduring(MessagePump):
    """A screen or a widget whose handlers may fail without ending it: the next message finds it alive."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if not endured(self, error, opening=isinstance(message, OPENING)):
                raise


def endured(who: MessagePump, error: Exception, *, opening: bool = False) -> bool:
    """Tell the app that `who` failed; return False where the error has to go on."""
    app = who if isinstance(who, Endures) else who.app
    return isinstance(app, Endures) and app.endure(who, error, opening=opening)


def words(error: BaseException) -> str:
    """Return what an error says, in one line."""
    said = clean(" ".join(str(error).split()))[:LONGEST_WORDS]
    if said:
        return f"{type(error).__name__}: {said}"
    return type(error).__name__


def report_path(env: Mapping[str, str]) -> Path:
    """Return where faults are reported: in the state directory."""
    return state_directory(env) / "faults.log"


def short(path: Path) -> str:
    """Return a path as a person types it: it has to fit into a line."""
    with contextlib.suppress(ValueError, RuntimeError):
        inside = path.relative_to(Path.home())
        if inside.parts:
            return f"~/{inside}"
        return "~"
    return str(path)


def report(path: Path, who: str, error: BaseException) -> bool:
    """Append an error with its traceback, without the values of any variable; tell whether that was possible."""
    lines = "".join(traceback.format_exception(error))
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    text = f"{when}  {who}\n{lines}\n".encode(errors="replace")
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
