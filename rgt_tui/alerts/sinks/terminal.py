"""The terminal that rgt runs in: its bell, and a note on the desktop."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping

import msgspec

from rgt_tui.alerts.sinks.base import SinkError
from rgt_tui.alerts.sinks.command import Command
from rgt_tui.model.alert import AlertEvent, SinkSettings
from rgt_tui.model.plain import clean

BELL = b"\a"
URGENCY = {"error": "critical", "warn": "normal", "info": "low"}
NOTIFY_777 = ("foot", "rxvt", "vte")
"""Terminals that know OSC 777 and not OSC 9, by the beginning of TERM."""
MAX_TEXT = 400
_APPLE = (
    "-e", "on run argv",
    "-e", "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e", "end run",
)  # fmt: skip

Write = Callable[[bytes], None]


def write_tty(data: bytes) -> None:
    """Write to the controlling terminal, at once and in one piece, so that nothing lands inside another sequence.

    Raises:
        SinkError: there is none.
    """
    try:
        handle = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        raise SinkError(f"rgt runs without a terminal ({error.strerror}); use another sink") from None
    try:
        os.write(handle, data)
    except OSError as error:
        raise SinkError(f"the terminal does not take it: {error.strerror}") from None
    finally:
        os.close(handle)


class Bell:
    """Rings the terminal's bell; not for good news."""

    def __init__(self, settings: SinkSettings, env: Mapping[str, str], write: Write = write_tty) -> None:
        self._write = write

    async def send(self, event: AlertEvent) -> None:
        """Ring once; see `Sink.send`."""
        if event.what != "resolved":
            self._write(BELL)

    async def close(self) -> None:
        """Nothing is held."""


class Desktop:
    """A desktop note: notify-send or osascript where rgt runs on the desktop itself, else through the terminal."""

    def __init__(
        self,
        settings: SinkSettings,
        env: Mapping[str, str],
        write: Write = write_tty,
        platform: str = sys.platform,
    ) -> None:
        self._settings = settings
        self._env = env
        self._write = write
        self._platform = platform

    async def send(self, event: AlertEvent) -> None:
        """Show one note; see `Sink.send`."""
        program = self._program(event)
        if program is None:
            self._write(sequence(event, self._env))
            return
        settings = msgspec.structs.replace(self._settings, argv=program)
        await Command(settings, self._env).send(event)

    def _program(self, event: AlertEvent) -> tuple[str, ...] | None:
        env = self._env
        if "SSH_CONNECTION" in env or "SSH_TTY" in env:
            return None  # the desktop is at the other end, and the terminal leads there
        title, text = clean(event.title), _short(event.text)
        path = env.get("PATH")
        if self._platform == "darwin" and (found := shutil.which("osascript", path=path)):
            return (found, *_APPLE, title, text)
        desktop = any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if desktop and (found := shutil.which("notify-send", path=path)):
            return (found, "--app-name=rgt", f"--urgency={URGENCY[event.level]}", "--", title, text)
        return None

    async def close(self) -> None:
        """Nothing is held."""
        await asyncio.sleep(0)


def sequence(event: AlertEvent, env: Mapping[str, str]) -> bytes:
    """Return the terminal's sequence for a desktop note: OSC 777 or OSC 9, through tmux where it runs in one.

    https://iterm2.com/documentation-escape-codes.html (OSC 9), https://codeberg.org/dnkl/foot (OSC 777),
    https://github.com/tmux/tmux/wiki/FAQ (passthrough, needs ``set -g allow-passthrough on``).
    """
    title, text = clean(event.title).replace(";", ","), _short(event.text)
    if env.get("TERM", "").startswith(NOTIFY_777):
        made = f"\x1b]777;notify;{title};{text}\x1b\\"
    else:
        made = f"\x1b]9;{title}: {text}\x07"
    if env.get("TMUX"):
        made = "\x1bPtmux;" + made.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return made.encode("utf-8", errors="replace")


def _short(text: str) -> str:
    line = clean(" · ".join(text.splitlines()))
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"
