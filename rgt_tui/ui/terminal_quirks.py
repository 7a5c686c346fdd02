"""Quirks of terminals: suspension, one that goes away, errors in a file, an escape together with the next key.

All of it builds on private parts of Textual 8; where they are others, Textual's own ways are used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from textual import events

from rgt_tui.ui.commands import chosen_keys

if TYPE_CHECKING:
    from textual.app import App
    from textual.drivers.linux_driver import LinuxDriver

ESCAPE = "\x1b"
OF_WORDS = frozenset({"\x1bb", "\x1bd", "\x1bf", "\x1b\x7f"})
"""What terminals send for alt with an arrow, with ``d`` and with backspace: editing by words."""
_TYPES: list[Callable[[], bool]] = []
"""Tells whether somebody types into an entry."""


def know_quirks(types: Callable[[], bool] = lambda: False) -> None:
    """Have the terminal taken back after a stop, and an escape heard however soon the next key comes.

    Args:
        types: Tells whether somebody types into an entry now. It is asked in the thread that reads the terminal.
    """
    _TYPES[:] = [types]
    with contextlib.suppress(ImportError, AttributeError):
        _take_back()
    with contextlib.suppress(ImportError, AttributeError):
        _hear_escape()
    with contextlib.suppress(ImportError, AttributeError):
        _outlive_terminal()
    with contextlib.suppress(ImportError, AttributeError):
        _draw_on_terminal()


def _take_back() -> None:
    """Begin anew in a terminal after SIGSTOP, as Textual does after SIGTSTP.

    A stop that cannot be caught leaves the terminal as it was. To Textual it is then to be taken *again*: it would
    remember the raw mode as the one to go back to (a shell that shows nothing one types, once rgt has ended), read keys
    in two threads, and leave on the screen what the shell has written meanwhile.
    """
    from textual.drivers.linux_driver import LinuxDriver

    inner = LinuxDriver._sigcont_application
    if inner.__module__ == __name__:
        return

    def sigcont(self: LinuxDriver, *arguments: object) -> None:
        if not self._auto_restart or self._key_thread is None:
            return inner(self, *arguments)
        with contextlib.suppress(OSError):
            if (
                os.tcgetpgrp(self.fileno) != os.getpgrp()
            ):  # the shell has the terminal: wait for its `fg`
                os.kill(os.getpid(), signal.SIGSTOP)
                return None
        if not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        inner(self, *arguments)
        app: App[None] = self._app
        app.call_later(app.refresh, layout=True)
        return None

    setattr(LinuxDriver, "_sigcont_application", sigcont)  # noqa: B010  (a method of another's class)


def _draw_on_terminal() -> None:
    """Draw on standard output where standard error is no terminal: ``rgt 2>errors.log``.

    Textual draws on standard error, and would fill the file with escape sequences.
    """
    from textual.drivers.linux_driver import LinuxDriver

    inner = LinuxDriver.__init__
    if inner.__module__ == __name__:
        return

    def init(self: LinuxDriver, *arguments: Any, **settings: Any) -> None:
        inner(self, *arguments, **settings)
        if sys.__stderr__ is None or not sys.__stderr__.isatty():
            self._file = sys.__stdout__

    setattr(LinuxDriver, "__init__", init)  # noqa: B010  (a method of another's class)


def _outlive_terminal() -> None:
    """Let what is written to a terminal that is gone go nowhere, and wait for one that is slow.

    Textual's writing thread ends at the first fault, and what is handed to it then waits for ever, the whole loop with
    it: where an ssh session or a tmux server ends, an rgt would stay behind that no signal but SIGKILL ends. Where
    another program of the same terminal has switched it to not being waited for, each large frame would be a fault.
    """
    from textual.drivers._writer_thread import WriterThread

    inner = WriterThread.run
    if inner.__module__ == __name__:
        return

    def run(self: WriterThread) -> None:
        while True:
            try:
                return inner(self)
            except BlockingIOError:
                os.set_blocking(self.fileno(), True)
            except (OSError, ValueError):  # ValueError: it is closed
                while self._queue.get() is not None:
                    pass
                return None

    setattr(WriterThread, "run", run)  # noqa: B010  (a method of another's class)


def _hear_escape() -> None:
    """Make an escape and the key right behind it two keys, unless the person has given a command one with alt.

    To a terminal ``alt+c`` is an escape and a ``c``. tmux keeps an escape for half a second to see what follows, two of
    them for longer: whoever leaves a screen and goes on at once would find that neither key did anything. In an entry
    the keys that edit by words stay what they are, or one of them would close it and do something on the screen below.
    """
    from textual._xterm_parser import XTermParser

    inner = XTermParser._sequence_to_key_events
    if inner.__module__ == __name__:
        return

    def key_events(self: XTermParser, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        together = list(inner(self, sequence, alt))
        whole = f"{ESCAPE}{sequence}" if alt else sequence
        if not alt and whole not in OF_WORDS:
            return together
        chosen = chosen_keys()
        if any(key.startswith("alt+") for key in chosen) or any(
            event.key in chosen for event in together
        ):
            return together
        if whole in OF_WORDS and any(types() for types in _TYPES):
            return [
                events.Key(event.key, None) for event in together
            ]  # of alt+d the letter is not typed
        return [events.Key("escape", ESCAPE), *inner(self, whole[1:])]

    setattr(XTermParser, "_sequence_to_key_events", key_events)  # noqa: B010  (a method of another's class)
