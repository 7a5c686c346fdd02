"""A login shell whose start-up files print, with and without a line feed: the box is a box like any other."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.cli.set_up.doctor_box import BoxDoctor
from rgt_tui.model import BoxSpec, Frame, Hello, Sample, WatchConfig
from rgt_tui.ssh import (
    FileBegins,
    HostKeyPolicy,
    build_agent,
    build_trainer,
    connect,
    deploy_agent,
    deploy_trainer,
    list_matching_files,
    run_command,
    start_watch,
    stream_cat,
)
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
        watching = await start_watch(
            connection, build_agent(), (sys.executable,), WatchConfig(), take, bad.append
        )
        await asyncio.wait_for(sampled.wait(), 90)
        watching.channel.close()
        deployed = await deploy_agent(connection, build_agent(), (sys.executable,))
        assert deployed.path.startswith(str(tmp_path))
        (found,) = await list_matching_files(connection, deployed, (f"{tmp_path}/*.log",))
        begins, *pieces = [
            piece async for piece in stream_cat(connection, deployed, "--path", found.path)
        ]
        await run_command(connection, deployed.build_command("record", "--stop"))
        pushed = await deploy_trainer(connection, "box", build_trainer(), (sys.executable,))
    assert watching.limited == ()
    assert [frame for frame in frames if isinstance(frame, Hello)]
    assert not bad, (
        "a greeting is no damage of the stream, and would be told as such for as long as rgt runs"
    )
    assert isinstance(begins, FileBegins)
    assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == b"one\n\xfftwo"
    assert pushed.torch is not None
    commands = (tmp_path / "commands").read_text().split("\0")[:-1]
    assert len(commands) == 10
    assert not [command for command in commands if "\n" in command], (
        "csh takes no argument of several lines"
    )


async def doctor(spec: BoxSpec) -> dict[str, str]:
    return {
        found.id.rpartition(".")[2]: found.text
        for found in await BoxDoctor(spec, HostKeyPolicy.ASK).run_checks(90)
    }


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
async def test_the_doctor_hears_what_it_has_asked_for_alone(spec: BoxSpec) -> None:
    texts = await doctor(spec)
    there = ", ".join(name for name in ("tmux", "setsid", "sbatch") if shutil.which(name))
    assert texts["tmux"] == f"there: {there}"
    assert re.fullmatch(r".*: Python [\d.]+\+?", texts["python"])


@pytest.mark.skipif(
    not (shutil.which("fish") and shutil.which("tmux")), reason="there is no fish, or no tmux"
)
async def test_the_doctor_speaks_sh_to_every_login_shell(spec: BoxSpec, tmp_path: Path) -> None:
    (tmp_path / "shell").write_text('#!/bin/sh\nexec fish -c "$SSH_ORIGINAL_COMMAND"\n')
    assert (await doctor(spec))["tmux"].startswith("there: tmux")
