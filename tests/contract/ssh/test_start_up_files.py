"""A login shell whose start-up files print, with and without a line feed: the box is a box like any other."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model.box import BoxSpec
from rgt_tui.model.protocol import Frame, Hello, Sample, WatchConfig
from rgt_tui.ssh import FileBegins, build_agent, build_trainer, cat, connect, deploy, listed, push, run, watch
from tests.contract.ssh.servers import spec_of, sshd

TITLE = r"printf '\033]0;box\007'"
GREETING = f"echo Welcome; echo; {TITLE}"


@pytest.fixture(params=[TITLE, GREETING], ids=["title", "greeting"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BoxSpec]:
    (tmp_path / "shell").write_text(
        f"#!/bin/sh\n{request.param}\n"
        f'printf "%s\\0" "$SSH_ORIGINAL_COMMAND" >>{tmp_path}/commands\n'
        'exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    (tmp_path / "shell").chmod(0o755)
    options = (
        f'SetEnv "HOME={tmp_path}" "XDG_CACHE_HOME={tmp_path}/.cache" "PATH={os.environ["PATH"]}"\n'
        f"ForceCommand {tmp_path}/shell\n"
    )
    with sshd(tmp_path, options) as port:
        yield spec_of(tmp_path, port)


async def test_everything_works(spec: BoxSpec, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n\xfftwo")
    frames: list[Frame] = []
    bad: list[int] = []
    sampled = asyncio.Event()

    def take(frame: Frame) -> None:
        frames.append(frame)
        if isinstance(frame, Sample):
            sampled.set()

    async with await connect(spec) as connection:
        watching = await watch(connection, build_agent(), (sys.executable,), WatchConfig(), take, bad.append)
        await asyncio.wait_for(sampled.wait(), 90)
        watching.channel.close()
        deployed = await deploy(connection, build_agent(), (sys.executable,))
        assert deployed.path.startswith(str(tmp_path))
        (found,) = await listed(connection, deployed, (f"{tmp_path}/*.log",))
        begins, *pieces = [piece async for piece in cat(connection, deployed, "--path", found.path)]
        before = (await run(connection, "true")).out.replace(b"\n\n", b"\n")
        await run(connection, deployed.command("record", "--stop"))
        pushed = await push(connection, "box", build_trainer(), (sys.executable,))
    assert watching.limited == ()
    assert [frame for frame in frames if isinstance(frame, Hello)]
    assert sum(bad) == before.count(b"\n"), "a line of its own is counted as one that is no frame"
    assert isinstance(begins, FileBegins)
    assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == b"one\n\xfftwo"
    assert pushed.torch is not None
    commands = (tmp_path / "commands").read_text().split("\0")[:-1]
    assert len(commands) == 11
    assert not [command for command in commands if "\n" in command], "csh takes no argument of several lines"
