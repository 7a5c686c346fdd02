"""A night at the demo, with keys alone in a real terminal: trouble, its fix, the curve, the journal, the past, the end.

What a person reads on the way is asserted at each step; between the copied fix and the box stands a real ``ssh``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.ui.screens import TOO_SOON
from tests.torture.demo.demo_process import leftovers
from tests.torture.demo.demo_terminal import Terminal, at_the_top

# Each screen of the walk has tests in tests/ui, the trouble and its fix are in `test_stories`, a terminal in
# `test_terminal`, and pull, gate and stop in tests/contract and in `test_whole_chain`.
pytestmark = [pytest.mark.serial, pytest.mark.full]

STORY_S = 150.0
"""Until a story of the demo has happened, on a busy machine."""


def on_the_box(demo: Path, box: str, command: str) -> str:
    """Run a command where a person would: on the box, by ``ssh``, with the demo's own ssh_config."""
    (folder,) = demo.glob("rgt-demo-*/*")
    argv = ["ssh", "-F", str(folder / "ssh_config"), box, command]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def select(terminal: Terminal, name: str) -> None:
    """Put the cursor on a box of the fleet screen."""
    terminal.keys("/")
    terminal.type(name)
    terminal.keys("Enter")
    terminal.until(
        lambda screen: any("▌" in row and name in row for row in screen.splitlines()[:7])
    )


def step_back(terminal: Terminal) -> None:
    """In the time machine, go to the event before, and wait until it is shown."""
    now = terminal.screen().splitlines()[0]
    terminal.keys("Left")
    terminal.until(lambda screen: screen.splitlines()[0] != now)


def press_until(terminal: Terminal, key: str, *, done: Callable[[str], bool]) -> None:
    """Press a key, and again where the dialog says that it came right behind a change."""
    for _ in range(10):
        terminal.keys(key)
        terminal.until(lambda screen: done(screen) or TOO_SOON in screen, STORY_S)
        if terminal.comes(
            lambda screen: TOO_SOON not in screen, 2.0
        ):  # or it is that of the press before
            terminal.until(done, STORY_S)
            return
    raise AssertionError(f"{key} was never taken:\n{terminal.screen()}")


def type_name(terminal: Terminal, name: str) -> None:
    """Type the name that the dialog asks for, and again where a change of the review has emptied the field."""
    for _ in range(10):
        terminal.keys("C-u")
        terminal.type(name)
        if terminal.comes(lambda screen: "ready: the button sends it" in screen, 6.0):
            return
    raise AssertionError(f"the name was never taken:\n{terminal.screen()}")


def test_a_night_from_trouble_to_the_meter_off(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(120, 34)
    copied = terminal.state / "rgt" / "copied.txt"

    # Trouble stands first, with what to do; each step of the fix is taken along and run on the box.
    terminal.until(lambda screen: "▌✖ vast-demo" in screen and "inodes" in screen, STORY_S)
    terminal.until(lambda screen: "what to do  vast-demo" in screen and "never" in screen)
    terminal.keys("y")
    terminal.until(lambda screen: "copied fix 1 of U7" in screen)
    check = copied.read_text()
    assert check == "df -i -- '/workspace'\n"
    assert "IUse%" in on_the_box(terminal.tmp, "vast-demo", check)
    screen = terminal.until(lambda screen: "$ rm -rf -- " in screen)
    remove = (
        next(row for row in screen.splitlines() if "rm -rf -- " in row)
        .split("$ ")[1]
        .split("│")[0]
        .strip()
    )
    assert remove == "rm -rf -- '/workspace/.cache/viz'"
    on_the_box(terminal.tmp, "vast-demo", remove)
    terminal.until(lambda screen: "✖ vast-demo" not in screen, STORY_S)

    # The curve of what went on.
    select(terminal, "vast-demo")
    terminal.keys("c")
    screen = terminal.until(
        lambda screen: "fleet › vast-demo › curves" in screen and "lstm-a" in screen
    )
    assert any("⣿" in row or "⢸" in row for row in screen.splitlines())
    terminal.keys("q")
    terminal.until(at_the_top)
    terminal.keys("Escape")  # alone: with the next key at once it would be Alt and that key
    terminal.until(lambda screen: " shown " not in screen)

    # The journal tells when it began and that it is over; enter goes to the log of then.
    terminal.keys("J")
    terminal.until(lambda screen: "fleet › journal" in screen and "✖ vast-demo    U7 " in screen)
    terminal.until(
        lambda screen: "nothing known to be lost" in screen
    )  # the report is read beside the rows
    terminal.keys("/")
    terminal.type("U7")
    terminal.keys("Enter")
    terminal.until(lambda screen: sum("U7" in row for row in screen.splitlines()) >= 2)
    terminal.keys("Enter")
    terminal.until(lambda screen: "› log" in screen and ".log" in screen)
    terminal.keys("q")
    terminal.until(lambda screen: "journal" in screen.splitlines()[0])
    terminal.keys("Escape")
    terminal.until(lambda screen: "/U7" not in screen.splitlines()[0])
    terminal.keys("q")
    terminal.until(at_the_top)

    # Back to then: the box stood first with its trouble, and nothing can be done about it there.
    terminal.keys("T")
    terminal.until(
        lambda screen: "fleet › time machine" in screen and "◀" in screen and "▶" in screen
    )
    for _ in range(80):
        if "✖ vast-demo" in terminal.screen():
            break
        step_back(terminal)
    terminal.until(lambda screen: "✖ vast-demo" in screen and "PAST read only" in screen)
    terminal.keys("D")
    terminal.until(
        lambda screen: "read only" in screen.splitlines()[-2] or "past" in screen.splitlines()[-2]
    )
    terminal.keys("Escape")
    terminal.until(lambda screen: at_the_top(screen) and "✖ vast-demo" not in screen)

    # A box whose queue is done bills for nothing: its results are pulled and verified, then its meter is stopped.
    terminal.until(
        lambda screen: any(
            "autodl-demo" in row and "finished" in row for row in screen.splitlines()
        ),
        STORY_S,
    )
    select(terminal, "autodl-demo")
    terminal.keys("D")
    terminal.until(
        lambda screen: (
            "Stop (关机) autodl-demo?" in screen and "the name has not been typed" in screen
        )
    )
    terminal.keys("Tab")  # from Cancel, where the dialog begins, to how the meter is stopped
    for _ in range(
        5
    ):  # one right behind a change of the review is not taken, and one more would change it back
        terminal.keys("Right")
        if terminal.comes(lambda screen: "Destroy (释放) autodl-demo?" in screen, 20.0):
            break
    screen = terminal.until(
        lambda screen: "Destroy (释放) autodl-demo?" in screen and "not pulled" in screen
    )
    assert "locked:" in screen
    terminal.keys("Tab")
    press_until(terminal, "P", done=lambda screen: "verified in " in screen and "✔" in screen)
    terminal.keys("Escape")
    terminal.until(at_the_top)
    terminal.keys("D")
    terminal.until(lambda screen: "Stop (关机) autodl-demo?" in screen and "✔ quiet" in screen)
    type_name(terminal, "autodl-demo")
    for _ in range(10):  # the first goes to the button, and one right behind it does not press it
        terminal.keys("Enter")
        if terminal.comes(lambda screen: "nothing is sent until" not in screen, 1.5):
            break
    terminal.until(lambda screen: "meter off" in screen and "provider confirms" in screen)
    terminal.keys("Escape")
    terminal.until(
        lambda screen: any(
            "autodl-demo" in row and "stopped" in row for row in screen.splitlines()
        ),
        STORY_S,
    )

    terminal.keys("C-q")
    assert terminal.exit_status() == 0
    assert leftovers(terminal.tmp) == []
