"""The dashboard in a real terminal (tmux): it draws, is left by its keys and by signals, and leaves nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.torture.demo.demo_process import leftovers
from tests.torture.demo.demo_terminal import Terminal, at_the_top, live

pytestmark = pytest.mark.serial


def test_a_person_walks_through_the_screens_and_leaves(
    open_terminal: Callable[..., Terminal],
) -> None:
    terminal = open_terminal(120, 34)
    terminal.until(live)
    terminal.keys("Enter")
    terminal.until(lambda screen: "survives stop" in screen)
    terminal.keys("Escape")
    terminal.until(at_the_top)
    for _ in range(10):  # what it says goes away again, perhaps between two looks of a busy machine
        terminal.keys("q")
        if terminal.comes(lambda screen: "ctrl+q quits" in screen, 10.0):
            break
    assert "ctrl+q quits" in terminal.seen
    assert at_the_top(terminal.screen())  # q at the top does not leave, it says how to
    terminal.keys("C-q")
    assert terminal.exit_status() == 0
    assert "keep running without rgt" in terminal.screen()
    assert leftovers(terminal.tmp) == []


@pytest.mark.parametrize(
    ("width", "height"), [pytest.param(80, 24, marks=pytest.mark.full), (60, 20)]
)
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
