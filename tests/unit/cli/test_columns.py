"""Rows of text: plain where there is no terminal, wrapped below themselves where there is one."""

from __future__ import annotations

import io
import sys

import pytest

from rgt_tui.cli import format_row, wait_indicator
from rgt_tui.model import clean_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_row_is_one_plain_line() -> None:
    assert (
        format_row([("ok", 4, "green"), ("client.python", 16, "")], "Python 3.11")
        == "ok    client.python     Python 3.11\n"
    )


def test_on_a_terminal_a_long_text_wraps_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    _, *more = format_row([("fail", 4, "bold red")], "word " * 20).splitlines()
    assert len(more) > 1
    assert all(line.startswith(" " * 6) and len(line) <= 40 for line in more)
    assert "[red]as it is[/red]" in format_row([("", 4, "")], "[red]as it is[/red]")


def test_on_a_terminal_a_fingerprint_stays_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = "SHA256:" + "x" * 43
    cells = [("fail", 4, "bold red"), ("box.lab.hostkey", 26, "")]
    printed = format_row(cells, f"its host key is unknown (shown: ssh-ed25519 {shown}); compare it")
    lines = clean_text(printed.replace("\n", "|")).split("|")
    assert "box.lab.hostkey" in lines[0]
    assert any(shown in line for line in lines[1:])
    assert all(len(line) <= 80 for line in lines)


def test_waiting_says_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with wait_indicator("for boxes"):
        pass
    assert capsys.readouterr() == ("", "")
