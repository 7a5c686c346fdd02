"""The bell and the desktop note, on a real pseudo terminal and with real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rgt_tui.health import BellSink, DesktopSink, SinkError, notification_sequence, write_tty
from rgt_tui.model import SinkSettings
from tests.contract.alerts.samples import EVENT
from tests.pseudo_terminal import PseudoTerminal

BELL = SinkSettings("bell")
DESKTOP = SinkSettings("desktop")

RING = """
import asyncio
from rgt_tui.health.alert_sinks import BellSink
from rgt_tui.model.box import SinkSettings
from tests.contract.alerts.samples import EVENT
asyncio.run(BellSink(SinkSettings("bell"), {}).send(EVENT))
"""


def test_the_bell_rings_on_the_terminal_that_controls_the_program() -> None:
    """Its own input and output are elsewhere, as those of a program in a pipe are; a shell keeps the terminal open."""
    elsewhere = 'exec 9<&0; exec "$@" </dev/null >/dev/null 2>&1'
    with PseudoTerminal(["sh", "-c", elsewhere, "sh", sys.executable, "-c", RING]) as terminal:
        assert terminal.ended() == 0
        assert terminal.said == b"\a"


def test_without_a_terminal_it_says_so() -> None:
    code = "from rgt_tui.health.alert_sinks import write_tty; write_tty(b'x')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SinkError: rgt runs without a terminal" in done.stderr


async def test_good_news_do_not_ring() -> None:
    rung: list[bytes] = []
    await BellSink(BELL, {}, rung.append).send(msgspec.structs.replace(EVENT, what="resolved"))
    assert rung == []


@pytest.mark.parametrize(
    ("env", "starts", "ends"),
    [
        ({"TERM": "xterm-256color"}, b"\x1b]9;vast-1: inodes: /data", b"\x07"),
        ({"TERM": "foot"}, b"\x1b]777;notify;vast-1: inodes;/data", b"\x1b\\"),
        (
            {"TERM": "tmux-256color", "TMUX": "/tmp/x"},
            b"\x1bPtmux;\x1b\x1b]9;vast-1",
            b"\x07\x1b\\",
        ),
    ],
)
def test_sequences(env: dict[str, str], starts: bytes, ends: bytes) -> None:
    made = notification_sequence(EVENT, env)
    assert made.startswith(starts)
    assert made.endswith(ends)


def test_a_text_cannot_end_the_sequence() -> None:
    evil = msgspec.structs.replace(
        EVENT, title="a\x07\x1b]0;x\x07", text="b\x1b\\\n\x9cc" + "x" * 999
    )
    made = notification_sequence(evil, {"TERM": "xterm"})
    assert made.count(b"\x07") == 1
    assert made.count(b"\x1b") == 1
    assert len(made) < 1000


def script(folder: Path, name: str) -> Path:
    target = folder / f"{name}.said"
    program = folder / name
    program.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >"{target}"\n')
    program.chmod(0o755)
    return target


@pytest.mark.parametrize(
    ("name", "platform", "env"),
    [("notify-send", "linux", {"DISPLAY": ":0"}), ("osascript", "darwin", {})],
)
async def test_the_desktops_own_program(
    tmp_path: Path, name: str, platform: str, env: dict[str, str]
) -> None:
    said = script(tmp_path, name)
    written: list[bytes] = []
    desktop = DesktopSink(
        DESKTOP, {"PATH": f"{tmp_path}:{os.environ['PATH']}", **env}, written.append, platform
    )
    await desktop.send(msgspec.structs.replace(EVENT, title='-x "; do shell script "id'))
    words = said.read_text().splitlines()
    assert words[-2:] == ['-x "; do shell script "id', EVENT.text]
    assert written == []


@pytest.mark.parametrize("env", [{}, {"DISPLAY": ":0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}])
async def test_through_the_terminal_where_there_is_no_desktop_or_it_is_elsewhere(
    tmp_path: Path, env: dict[str, str]
) -> None:
    said = script(tmp_path, "notify-send")
    written: list[bytes] = []
    await DesktopSink(DESKTOP, {"PATH": f"{tmp_path}", **env}, written.append, "linux").send(EVENT)
    assert len(written) == 1
    assert not said.exists()


def test_the_terminal_is_the_only_way_out() -> None:
    assert BellSink(BELL, {})._write is write_tty
    assert issubclass(SinkError, Exception)
