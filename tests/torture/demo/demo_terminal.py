"""`rgt demo` in a terminal of its own (tmux), with keys as a person presses them and the screen as a person sees it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RGT = shlex.join([sys.executable, "-m", "rgt_tui.cli.entry", "demo"])


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path, width: int, height: int, locale: str = "C.UTF-8") -> None:
        self.folder = folder
        self._socket = str(folder / "tmux")
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.seen = ""
        status = shlex.quote(str(folder / "status"))
        command = f"{RGT}; echo $? > {status}; exec sleep 1000"
        self.state = folder / "state"
        own = {"XDG_STATE_HOME": str(self.state), "XDG_CONFIG_HOME": str(folder / "config")}
        env = {**os.environ, **own, "TMPDIR": str(self.tmp), "LC_ALL": locale, "LANG": locale}
        utf8 = ["-u"] if "UTF-8" in locale else []
        argv = ["tmux", *utf8, "-f", "/dev/null", "-S", self._socket, "new-session", "-d"]
        argv += ["-x", str(width), "-y", str(height), command]
        subprocess.run(argv, env=env, check=True)

    def tmux(self, *arguments: str) -> str:
        argv = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(argv, capture_output=True, check=True).stdout.decode(errors="replace")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Type a text, letter by letter, as it is."""
        self.tmux("send-keys", "-l", text)

    def until(self, test: Callable[[str], bool], seconds: float = 150) -> str:
        """Wait until the screen passes; fail with what it shows."""
        if self.comes(test, seconds):
            return self.seen
        raise AssertionError(f"the screen never passed:\n{self.screen()}")

    def comes(self, test: Callable[[str], bool], seconds: float) -> bool:
        """Wait until the screen passes; it is then `seen`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.seen = self.screen()
            if test(self.seen):
                return True
            time.sleep(0.05)
        return False

    def exit_status(self) -> int:
        status = self.folder / "status"
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if status.exists() and status.read_text().strip():
                return int(status.read_text())
            time.sleep(0.05)
        raise AssertionError(f"rgt did not end:\n{self.screen()}")

    def kill(self) -> None:
        subprocess.run(
            ["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False
        )


def live(screen: str) -> bool:
    """All three boxes are on the screen, and one has been sampled."""
    return all(name in screen for name in ("autodl", "runpod", "vast")) and "%" in screen


def at_the_top(screen: str) -> bool:
    """The fleet screen is the one on top."""
    return "rgt  fleet " in screen and "›" not in screen.splitlines()[0]
