"""A terminal that was taken from rgt without a warning, and an escape that arrives together with the next key."""

from __future__ import annotations

import errno
import io
import os
import pty
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from rgt_tui.ui import choose_keys, know_quirks
from tests.process.box.harness import PATIENCE
from tests.pseudo_terminal import PseudoTerminal

SHOWS = (
    "from rgt_tui.ui import RgtApp; from tests.ui.fakes import FakeFleet; RgtApp(FakeFleet).run()"
)
ROOT = Path(__file__).parents[3]
BEGINS = b"\x1b[?1049h"
"""Goes to the alternate screen, as whoever takes a terminal does."""


class Shown(PseudoTerminal):
    """An rgt on boxes of a test, in a terminal of its own."""

    def __init__(self, home: Path, words: list[str] | None = None) -> None:
        own = {
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
        }
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("TMUX", "RGT_ASCII", "LC_ALL")
        }
        super().__init__(words or [sys.executable, "-c", SHOWS], cwd=ROOT, env={**kept, **own})
        self.side = os.open(self.name, os.O_RDWR | os.O_NOCTTY)
        self.before = termios.tcgetattr(self.side)

    def when(self, holds: Callable[[], bool]) -> None:
        """Read what it writes until something holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, self.text[-2000:]
            self.read(0.05)

    def stopped(self) -> bool:
        """Whether it has stopped."""
        found, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
        return bool(found) and os.WIFSTOPPED(status)

    def left(self) -> bool:
        """Whether it has left."""
        return self.process.poll() is not None


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    found = Shown(tmp_path)
    with found:
        yield found
        os.close(found.side)


def test_a_terminal_that_was_stopped_in_is_painted_anew_and_given_back_as_it_was(
    shown: Shown,
) -> None:
    """As after `kill -STOP` and `fg`: a shell behind it must show what one types."""
    shown.when(lambda: b"autodl-demo" in shown.said)
    os.kill(shown.process.pid, signal.SIGSTOP)
    shown.when(shown.stopped)
    while shown.read(0.2):
        pass
    shown.said = b""
    os.kill(shown.process.pid, signal.SIGCONT)
    shown.when(lambda: b"autodl-demo" in shown.said.partition(BEGINS)[2])
    shown.type("\x11")
    shown.when(shown.left)
    assert termios.tcgetattr(shown.side)[:4] == shown.before[:4]


def test_errors_may_go_to_a_file_and_the_dashboard_is_drawn_all_the_same(tmp_path: Path) -> None:
    """``rgt demo 2>errors.log``; Textual itself draws on standard error."""
    errors = tmp_path / "errors.log"
    words = [
        sys.executable,
        "-m",
        "rgt_tui.cli.entry",
        "replay",
        "tests/fixtures/recordings/three-boxes.jsonl.gz",
    ]
    shown = Shown(tmp_path, ["sh", "-c", f'exec "$@" 2>{errors}', "sh", *words])
    with shown:
        shown.when(lambda: b"FLEET" in shown.said.partition(BEGINS)[2].upper())
        shown.type("\x11")
        shown.when(shown.left)
        os.close(shown.side)
    assert errors.read_text() == ""


class Gone(io.StringIO):
    """A terminal whose other end is closed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_who_writes_to_a_terminal_that_is_gone_does_not_wait_for_ever() -> None:
    """As where ssh ends, or a tmux server: rgt stayed behind, and no signal but SIGKILL ended it."""
    know_quirks()
    writer = WriterThread(Gone())
    writer.start()

    def write() -> None:
        for _ in range(3 * MAX_QUEUED_WRITES):
            writer.write("x")
        writer.stop()

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(PATIENCE)
    assert not writing.is_alive()


def test_a_terminal_that_another_program_has_switched_is_waited_for(quirks: None) -> None:
    """Whoever shares a terminal shares whether it is waited for; a `node` or `ssh` that was killed leaves it so."""
    master, side = pty.openpty()
    os.set_blocking(side, False)
    writer = WriterThread(os.fdopen(side, "w"))
    writer.start()
    try:
        writer.write("x" * (1 << 20))
        writer.write("the end\n")
        end = time.monotonic() + PATIENCE
        while not os.get_blocking(side):
            assert writer.is_alive() and time.monotonic() < end
            time.sleep(0.01)
        said = b""
        while b"the end" not in said:
            assert select.select([master], [], [], PATIENCE)[0], "nothing comes any more"
            said = said[-100:] + os.read(master, 1 << 16)
    finally:
        os.close(master)
        writer.stop()


def keys_of(data: str) -> list[str]:
    """Return the keys that a terminal's bytes are, when nothing comes behind them."""
    parser = XTermParser()
    found = [*parser.feed(data), *parser.feed("")]
    return [event.key for event in found if isinstance(event, events.Key)]


@pytest.fixture
def quirks() -> Iterator[None]:
    know_quirks()
    yield
    choose_keys({})


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        ("\x1bc", ["escape", "c"]),
        ("\x1bD", ["escape", "D"]),
        ("\x1b/", ["escape", "slash"]),
        ("\x1bb", ["escape", "b"]),
        ("\x1bf", ["escape", "f"]),
        ("\x1b\x7f", ["escape", "backspace"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5D", ["ctrl+left"]),
        ("\x1b[A", ["up"]),
        ("c", ["c"]),
    ],
)
def test_an_escape_and_the_key_right_behind_it_are_two_keys(
    quirks: None, data: str, keys: list[str]
) -> None:
    """So a tmux hands on what comes within half a second of an escape."""
    assert keys_of(data) == keys


def test_who_has_given_a_command_a_key_with_alt_has_that_key(quirks: None) -> None:
    choose_keys({"box.log": ("alt+c",)})
    assert keys_of("\x1bc") == ["alt+c"]
    choose_keys({"box.log": ("ctrl+left",)})
    assert keys_of("\x1bb") == ["ctrl+left"] and keys_of("\x1bc") == ["escape", "c"]


def test_keys_that_edit_by_words_do_not_close_the_entry_that_is_typed_into(quirks: None) -> None:
    know_quirks(lambda: True)
    words = ("\x1bb", "\x1bf", "\x1bd", "\x1b\x7f")
    assert [keys_of(data) for data in words] == [
        ["ctrl+left"],
        ["ctrl+right"],
        ["alt+d"],
        ["ctrl+w"],
    ]
    assert keys_of("\x1bj") == ["escape", "j"]
