"""A log on a terminal: what has no line end yet is seen all the same, and written over by what follows."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from collections.abc import Iterator

import pytest

from rgt_tui.cli import TerminalOutput, count_columns, logs, one_row


class Terminal:
    """The far side of a terminal."""

    def __init__(self) -> None:
        self._leader, self.fd = pty.openpty()
        tty.setraw(self.fd)
        os.set_blocking(self._leader, False)

    async def shows(self, wanted: bytes) -> None:
        """Wait until exactly these bytes have come."""
        loop = asyncio.get_running_loop()
        seen = b""
        while len(seen) < len(wanted):
            came = asyncio.Event()
            loop.add_reader(self._leader, came.set)
            try:
                async with asyncio.timeout(90):
                    await came.wait()
            finally:
                loop.remove_reader(self._leader)
            seen += os.read(self._leader, 4096)
        assert seen == wanted

    def close(self) -> None:
        os.close(self._leader)
        os.close(self.fd)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(logs, "PAUSE_SECONDS", 0.0)
    it = Terminal()
    yield it
    it.close()


async def test_a_progress_bar_is_seen_and_written_over(terminal: Terminal) -> None:
    output = TerminalOutput(terminal.fd, lambda: 20)
    await output.write(b"epoch 1\n 10%\r 20%\r")
    await terminal.shows(b"epoch 1\n 20%")
    await output.write(b" 30%\x1b[2J\r")
    await terminal.shows(b"\r    \r 30%")
    await output.write(b"100%\ndone\n")
    await terminal.shows(b"\r    \r100%\ndone\n")
    await output.close()


async def test_a_long_line_without_an_end_stays_in_its_row_and_comes_whole_at_the_end(
    terminal: Terminal,
) -> None:
    output = TerminalOutput(terminal.fd, lambda: 10)
    await output.write(b"0123456789abc")
    await terminal.shows(b"012345678")
    await output.close()
    await terminal.shows(b"\r         \r0123456789abc\n")


async def test_a_line_that_comes_to_its_end_in_time_is_written_once(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PAUSE_SECONDS", 3600.0)
    output = TerminalOutput(terminal.fd, lambda: 10)
    await output.write(b"begin")
    await output.write(b" end\nrest")
    await output.close()
    await terminal.shows(b"begin end\nrest\n")


@pytest.mark.parametrize(
    ("text", "cut"), [("abcdef", "abcd"), ("你好吗", "你好"), ("a你好", "a你"), ("", "")]
)
def test_wide_characters_take_two_columns(text: str, cut: str) -> None:
    assert one_row(text, 4) == cut
    assert count_columns(cut) <= 4
    assert one_row(text, 0) == one_row(text, -1) == ""
