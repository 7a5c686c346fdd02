"""What a tmux can show is asked of it, and nothing else is held up by that."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rgt_tui.cli import choose_ascii_in_tmux

ASKS = """
import os, sys
from rgt_tui.cli import dashboard
from rgt_tui.ui.notation import ASCII, choose_glyphs
dashboard.TMUX_SECONDS = 600.0  # how fast this machine is now is not asked here
dashboard.choose_ascii_in_tmux(os.environ)
drawn = "ascii" if choose_glyphs(os.environ, "utf-8") is ASCII else "unicode"
with open(sys.argv[1], "w") as answer:
    answer.write(drawn)
"""
LOCALES = ("LANG", "LC_ALL", "LC_CTYPE", "TMUX", "TMUX_PANE", "RGT_ASCII")


@contextmanager
def in_tmux(folder: Path, environment: dict[str, str], *options: str) -> Iterator[int]:
    """Run the question in a tmux whose client has this environment; yield where the answer comes."""
    script, answer, socket = folder / "asks.py", folder / "answer", folder / "tmux.sock"
    script.write_text(ASKS)
    os.mkfifo(answer)
    end = os.open(answer, os.O_RDONLY | os.O_NONBLOCK)
    inherited = {name: value for name, value in os.environ.items() if name not in LOCALES}
    main, side = pty.openpty()
    command = ("tmux", *options, "-S", str(socket), "-f", "/dev/null", "new-session",
               sys.executable, str(script), str(answer))  # fmt: skip
    client = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, start_new_session=True, cwd=Path(__file__).parents[3],
        env={**inherited, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(side)
    try:
        yield end
    finally:
        subprocess.run(("tmux", "-S", str(socket), "kill-server"), capture_output=True, check=False)
        client.wait()
        os.close(main)
        os.close(end)


@pytest.mark.parametrize(
    ("environment", "options", "drawn"),
    [
        ({}, (), "ascii"),
        ({}, ("-u",), "unicode"),
        ({"LANG": "C.UTF-8"}, (), "unicode"),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, (), "ascii"),
        ({"RGT_ASCII": "0"}, (), "unicode"),
    ],
    ids=["no locale", "tmux -u", "UTF-8", "console", "forbidden"],
)
def test_ascii_is_drawn_where_the_client_of_tmux_shows_nothing_else(
    environment: dict[str, str], options: tuple[str, ...], drawn: str, tmp_path: Path
) -> None:
    """Over ssh to a jump host there is often no LANG: each glyph was an underscore there, trouble and health alike."""
    with in_tmux(tmp_path, environment, *options) as end:
        assert select.select([end], [], [], 300.0)[0], "no answer"
        assert os.read(end, 100).decode() == drawn


def test_without_tmux_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was asked"))
    asked: tuple[dict[str, str], ...] = ({}, {"TMUX": "/tmp/x,1,0", "RGT_ASCII": "1"}, {"TMUX": ""})
    for environ in asked:
        before = dict(environ)
        choose_ascii_in_tmux(environ)
        assert environ == before


def test_a_tmux_that_is_gone_or_hangs_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"TMUX": str(tmp_path / "nobody,1,0"), "PATH": os.environ["PATH"]}
    choose_ascii_in_tmux(environ)
    assert "RGT_ASCII" not in environ
    program = tmp_path / "bin" / "tmux"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr("rgt_tui.cli.dashboard.TMUX_SECONDS", 0.05)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    choose_ascii_in_tmux({**environ, "PATH": os.environ["PATH"]})
    assert "RGT_ASCII" not in environ
