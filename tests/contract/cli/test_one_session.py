"""A box whose sshd allows one session per connection: every errand gets by with one channel at a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from rgt_tui.fleet import connected
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import NoCommands, run_command
from rgt_tui.ssh.remote_cat import open_pipe
from tests.contract.cli.conftest import Rgt
from tests.contract.cli.test_doctor import words
from tests.contract.ssh.conftest import RealSshd, fresh_sshd


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    with fresh_sshd(tmp_path_factory.mktemp("one"), "MaxSessions 1") as running:
        yield running


@pytest.fixture
def lab(rgt: Rgt, one: RealSshd) -> BoxSpec:
    spec = msgspec.structs.replace(one.spec, name="lab", pattern="^no such training$")
    rgt.describe([spec])
    return spec


def test_a_log_is_printed_and_listed(rgt: Rgt, lab: BoxSpec) -> None:
    log = rgt.folder / "train.log"
    log.write_bytes(b"one\ntwo\n")
    for more in ((str(log),), (str(log), "--list"), (str(log),)):
        done = rgt.on("logs", "lab", *more)
        assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("one\ntwo\n", "")


def test_the_newest_log_is_found(rgt: Rgt, lab: BoxSpec) -> None:
    (rgt.folder / "train.log").write_bytes(b"one\ntwo\n")
    rgt.describe([msgspec.structs.replace(lab, logs=(f"{rgt.folder}/*.log",))])
    done = rgt.on("logs", "lab")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


def test_the_status_is_that_of_a_whole_agent(rgt: Rgt, lab: BoxSpec) -> None:
    line = msgspec.json.decode(rgt.on("status", "--json").stdout)
    assert (line["link"], line["limited"]) == ("live", [])


async def test_what_needs_a_second_session_is_told_why_there_is_none(
    lab: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgt_tui.ssh.remote_command.FREED", (0.1, 0.1))
    async with connected(lab) as connection:
        channel, pipe = await open_pipe(connection, "echo there; cat")
        assert await pipe.readline() == b"there\n"
        with pytest.raises(NoCommands, match=r"no more sessions.*open failed.*raise MaxSessions"):
            await run_command(connection, "true")
        monkeypatch.setattr("rgt_tui.ssh.remote_command.FREED", (0.1,) * 300)
        channel.close()
        assert (await run_command(connection, "echo again", seconds=60)).out == b"again\n"


def test_the_doctor_finds_the_agent_and_tmux(rgt: Rgt, lab: BoxSpec) -> None:
    results = words(rgt.on("doctor", "--json"), "lab")
    assert {check: results[check] for check in ("python", "agent", "mounts")} == dict.fromkeys(
        ("python", "agent", "mounts"), "ok"
    )
    assert "skip" not in (results["tmux"], results["disk"], results["clock-skew"])
