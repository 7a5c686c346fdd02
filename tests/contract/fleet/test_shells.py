"""A shell on a box from the screen: where its ssh leads, and the window that it gets inside tmux."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from rgt_tui.fleet import Fleet, NotOffered
from rgt_tui.model import LinkState
from rgt_tui.ui.shells import CannotOpenShell, open_in_terminal, page_from, shell_in
from tests.contract.fleet.test_record import until
from tests.contract.ssh.conftest import RealSshd, keygen

NO_APP = cast("Any", None)
"""Inside tmux the app is not asked for anything."""


async def run_words(words: Sequence[str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return cast("int", process.returncode), out.decode()


async def test_ssh_reaches_the_box_by_the_verified_key_alone(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    fleet = Fleet([real_sshd.spec], audit=tmp_path / "audit", env={"XDG_STATE_HOME": str(tmp_path)})
    name = real_sshd.spec.name
    with pytest.raises(NotOffered, match="is not connected"):
        fleet.shell_words(name)
    await fleet.start()
    try:
        await until(fleet, lambda state: state.boxes[0].link is LinkState.LIVE)
        folder = tmp_path / "a b"
        folder.mkdir()
        (folder / "own.log").write_text("one\ntwo\nthree\n")
        *words, line = fleet.shell_words(name, f"{shell_in(str(folder))} -c pwd")
        status, out = await run_words([*words, line])
        assert (status, out.strip()) == (0, str(folder))
        *words, line = fleet.shell_words(name, page_from(str(folder / "own.log"), 2))
        assert "three" in (await run_words([*words, line]))[1]
        before = fleet.shell_words(name, "true")
        verified = tmp_path / "rgt" / "verified-hosts" / name
        other = tmp_path / "other"
        keygen(other)
        key = other.with_suffix(".pub").read_text().split()[:2]
        verified.write_text(f"rgt-verified {' '.join(key)}\n")
        assert (await run_words(before))[0] == 255, "another host key"
    finally:
        await fleet.stop()


@pytest.fixture
def tmux_environment() -> Iterator[dict[str, str]]:
    """A tmux server of its own, and the variables that a program inside it has."""
    socket = Path(f"/tmp/rgt-{uuid.uuid4().hex[:12]}")  # a longer path is none of a socket
    tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", "cat"], check=True)
    yield {**os.environ, "TMUX": f"{socket},1,0"}
    subprocess.run([*tmux, "kill-server"], check=False)
    socket.unlink(missing_ok=True)


async def test_inside_tmux_it_gets_a_window_with_the_name_of_the_box(
    tmux_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", tmux_environment["TMUX"])
    out = tmp_path / "it's out"
    code = f"open({str(out)!r}, 'w').write('ran'); input()"
    said = await open_in_terminal(NO_APP, "lab", [sys.executable, "-c", code], tmux_environment)
    assert said == "lab: a shell in a new tmux window"
    async with asyncio.timeout(30):
        while not (out.exists() and out.read_text() == "ran"):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    tmux = ["tmux", "-S", tmux_environment["TMUX"].split(",")[0]]
    names = await run_words([*tmux, "list-windows", "-F", "#W"])
    assert "lab" in names[1].split()


async def test_a_tmux_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"{tmp_path}/none,1,0"
    monkeypatch.setenv("TMUX", gone)
    with pytest.raises(CannotOpenShell, match="tmux: "):
        await open_in_terminal(NO_APP, "lab", ["true"], {**os.environ, "TMUX": gone})
