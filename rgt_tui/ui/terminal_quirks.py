"""Terminal quirks: suspension, a lost terminal, stderr in a file, escape right before another key.

All patches rely on private parts of Textual 8; if those change, Textual's own behaviour applies.
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
"""Sequences for alt with an arrow, with ``d`` and with backspace, which edit by words."""
_TYPES: list[Callable[[], bool]] = []
"""Callbacks that return whether the person is typing into an entry."""


def know_quirks(types: Callable[[], bool] = lambda: False) -> None:
    """Patch Textual for these quirks.

    Args:
        types: Returns whether the person is typing into an entry. Called in the thread that reads
            the terminal.
    """
    # Replaced, not added: only the newest app of this process reads the terminal.
    _TYPES[:] = [types]
    with contextlib.suppress(ImportError, AttributeError):
        _restore_after_sigstop()
    with contextlib.suppress(ImportError, AttributeError):
        _hear_escape()
    with contextlib.suppress(ImportError, AttributeError):
        _outlive_terminal()
    with contextlib.suppress(ImportError, AttributeError):
        _draw_on_terminal()


def _restore_after_sigstop() -> None:
    """Set the terminal up again after SIGSTOP, as Textual does after SIGTSTP.

    SIGSTOP cannot be caught, so the terminal keeps its mode. Textual would then enter application
    mode *twice*: it would remember raw mode as the mode to restore (leaving a shell that echoes
    nothing after rgt ends), read keys in two threads, and keep what the shell wrote on the screen.
    """
    from textual.drivers.linux_driver import LinuxDriver

    inner = LinuxDriver._sigcont_application
    # Patched already by another app of this process. The same check is in each function below.
    if inner.__module__ == __name__:
        return

    def resume_terminal(self: LinuxDriver, *arguments: object) -> None:
        # Not in application mode: Textual's own handler then has nothing to restore.
        if not self._auto_restart or self._key_thread is None:
            return inner(self, *arguments)
        with contextlib.suppress(OSError):
            # the shell owns the terminal: wait for its `fg`
            if os.tcgetpgrp(self.fileno) != os.getpgrp():
                os.kill(os.getpid(), signal.SIGSTOP)
                return None
        # After SIGSTOP, unlike SIGTSTP, Textual has not left its mode, so it would not enter it
        # again.
        if not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        inner(self, *arguments)
        app: App[None] = self._app
        app.call_later(app.refresh, layout=True)
        return None

    setattr(LinuxDriver, "_sigcont_application", resume_terminal)  # noqa: B010  (a method of another's class)


def _draw_on_terminal() -> None:
    """Draw on stdout if stderr is no terminal, as with ``rgt 2>errors.log``.

    Textual draws on stderr, and would fill the file with escape sequences.
    """
    from textual.drivers.linux_driver import LinuxDriver

    inner = LinuxDriver.__init__
    if inner.__module__ == __name__:
        return

    def init_on_terminal(self: LinuxDriver, *arguments: Any, **settings: Any) -> None:
        # Textual's constructor sets the file that is replaced below.
        inner(self, *arguments, **settings)
        if sys.__stderr__ is None or not sys.__stderr__.isatty():
            self._file = sys.__stdout__

    setattr(LinuxDriver, "__init__", init_on_terminal)  # noqa: B010  (a method of another's class)


def _outlive_terminal() -> None:
    """Discard output to a terminal that is gone, and wait for a slow one.

    Textual's writer thread ends at the first error, after which its queue blocks the whole event
    loop: when an ssh session or a tmux server ends, rgt would survive until SIGKILL. If another
    program has made the terminal non-blocking, every large frame would raise such an error.
    """
    from textual.drivers._writer_thread import WriterThread

    inner = WriterThread.run
    if inner.__module__ == __name__:
        return

    def run_until_lost(self: WriterThread) -> None:
        while True:
            try:
                return inner(self)
            except BlockingIOError:
                os.set_blocking(self.fileno(), True)
            except (OSError, ValueError):  # ValueError: the file is closed
                # Emptied until Textual's end mark: a full queue would block the app at its end.
                while self._queue.get() is not None:
                    pass
                return None

    setattr(WriterThread, "run", run_until_lost)  # noqa: B010  (a method of another's class)


def _hear_escape() -> None:
    """Split an escape and the key right after it, unless the person bound an alt key to a command.

    A terminal sends ``alt+c`` as escape and ``c``. tmux holds an escape for half a second to see
    what follows (nested tmux longer), so leaving a screen and pressing the next key at once would
    do neither. In an entry the word-editing keys stay whole: one of them would otherwise close the
    entry and trigger a command on the screen below.
    """
    from textual._xterm_parser import XTermParser

    inner = XTermParser._sequence_to_key_events
    if inner.__module__ == __name__:
        return

    def key_events(self: XTermParser, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        together = list(inner(self, sequence, alt))
        # With `alt`, the parser has removed the escape already.
        if alt:
            whole = f"{ESCAPE}{sequence}"
        else:
            whole = sequence
        if not alt and whole not in OF_WORDS:
            return together
        chosen = chosen_keys()
        if any(key.startswith("alt+") for key in chosen) or any(
            event.key in chosen for event in together
        ):
            return together
        if whole in OF_WORDS and any(types() for types in _TYPES):
            # the letter of alt+d is not typed
            return [events.Key(event.key, None) for event in together]
        return [events.Key("escape", ESCAPE), *inner(self, whole[1:])]

    setattr(XTermParser, "_sequence_to_key_events", key_events)  # noqa: B010  (a method of another's class)
