"""The dashboard in a real terminal (tmux): it draws, is left by its keys and by signals, and leaves nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.torture.demo.demo_process import leftovers

pytestmark = [pytest.mark.serial, pytest.mark.timeout(120)]

RGT = shlex.join([sys.executable, "-m", "rgt_tui.cli.entry", "demo"])


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path, width: int, height: int, locale: str = "C.UTF-8") -> None:
        self.folder = folder
        self._socket = str(folder / "tmux")
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        status = shlex.quote(str(folder / "status"))
        command = f"{RGT}; echo $? > {status}; exec sleep 1000"
        env = {**os.environ, "TMPDIR": str(self.tmp), "LC_ALL": locale, "LANG": locale}
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

    def until(self, test: Callable[[str], bool], seconds: float = 60) -> str:
        """Wait until the screen passes; fail with what it shows."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if test(screen):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"the screen never passed:\n{self.screen()}")

    def exit_status(self) -> int:
        status = self.folder / "status"
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if status.exists() and status.read_text().strip():
                return int(status.read_text())
            time.sleep(0.05)
        raise AssertionError(f"rgt did not end:\n{self.screen()}")

    def kill(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(width: int, height: int, **options: str) -> Terminal:
        opened.append(Terminal(tmp_path, width, height, **options))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.kill()


def live(screen: str) -> bool:
    """All three boxes are on the screen, and one has been sampled."""
    return all(name in screen for name in ("autodl", "runpod", "vast")) and "%" in screen


def at_the_top(screen: str) -> bool:
    """The fleet screen is the one on top."""
    return "rgt  fleet " in screen and "›" not in screen.splitlines()[0]


def test_a_person_walks_through_the_screens_and_leaves(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(120, 34)
    terminal.until(live)
    terminal.keys("Enter")
    terminal.until(lambda screen: "survives stop" in screen)
    terminal.keys("Escape")
    terminal.until(at_the_top)
    terminal.keys("q")
    terminal.until(lambda screen: "ctrl+q quits" in screen)
    assert at_the_top(terminal.screen())  # q at the top does not leave, it says how to
    terminal.keys("C-q")
    assert terminal.exit_status() == 0
    assert "would go on without rgt" in terminal.screen()
    assert leftovers(terminal.tmp) == []


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20)])
def test_small_terminals_show_the_boxes(
    open_terminal: Callable[..., Terminal], width: int, height: int
) -> None:
    terminal = open_terminal(width, height)
    screen = terminal.until(live)
    assert max(len(line) for line in screen.splitlines()) <= width
    terminal.keys("C-q")
    assert terminal.exit_status() == 0


def test_a_locale_without_utf_8_gets_ascii(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(100, 30, locale="C")
    screen = terminal.until(live)
    terminal.keys("C-q")
    assert terminal.exit_status() == 0
    assert "Traceback" not in terminal.screen()
    assert screen.isascii() or "\ufffd" not in screen


def test_a_signal_ends_it_in_order(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(100, 30)
    terminal.until(live)
    pid = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()
    subprocess.run(["pkill", "-TERM", "-P", pid], check=True)
    terminal.exit_status()
    assert leftovers(terminal.tmp) == []
