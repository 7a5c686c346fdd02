"""Holders of a GPU that its driver does not know: listed by default, ended only by pid and start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import procstat
from rgt_box.commands import reap as reap_verb

from tests.process.box.harness import Agent
from tests.process.box.nvml_driver import HOLD, STUBBORN, Hold, build_driver, holding, make_devices


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def hold() -> Iterator[Hold]:
    with holding() as hold:
        yield hold


ENDED = (-signal.SIGTERM, -signal.SIGKILL)
"""The second where the machine left a process no turn to end of the first within the verb's five seconds."""


class Box:
    """The agent on a box with one GPU."""

    def __init__(self, agent: Agent, driver: Path, folder: Path) -> None:
        self.agent = agent
        self.devices = make_devices(folder)
        self.env = {
            "LD_LIBRARY_PATH": str(driver),
            "STUB_COUNT": "1",
            "RGT_NVIDIA_DEVICES": self.devices,
        }

    def reap(self, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
        done = self.agent.run("reap", *words, env=self.env | env)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def box(agent: Agent, driver: Path, tmp_path: Path) -> Box:
    agent.state.mkdir()
    return Box(agent, driver, tmp_path)


def name_of(process: subprocess.Popen[bytes]) -> str:
    return f"{process.pid}:{procstat.start_ticks(process.pid)}"


def test_by_default_nothing_is_touched(box: Box, hold: Hold) -> None:
    working, orphan = hold(box.devices + "0"), hold(box.devices + "0")
    hold(box.devices + "ctl")  # what every program opens is no card
    code, report = box.reap(STUB_USERS=f"{working.pid}:{10 << 30}")
    found = {holder["pid"]: holder for holder in report["holders"]}
    assert code == 1
    assert {pid: holder["orphan"] for pid, holder in found.items()} == {
        working.pid: False,
        orphan.pid: True,
    }
    assert found[orphan.pid]["kill"] == name_of(orphan)
    assert (found[orphan.pid]["cards"], report["ended"], report["why"]) == ([0], [], None)
    assert working.poll() is None and orphan.poll() is None


def test_an_orphan_is_ended_by_pid_and_start(box: Box, hold: Hold) -> None:
    working, orphan = hold(box.devices + "0"), hold(box.devices + "0")
    name = name_of(orphan)
    code, report = box.reap("--kill", name, STUB_USERS=f"{working.pid}:{10 << 30}")
    assert (code, report["ended"], report["refused"]) == (0, [name], [])
    assert orphan.wait(60) in ENDED
    assert working.poll() is None


def test_all_else_is_refused(box: Box, hold: Hold) -> None:
    working, orphan = hold(box.devices + "0"), hold(box.devices + "0")
    training, stranger = hold(box.devices + "0", "rgt_train"), hold(os.devnull)
    start = procstat.start_ticks(orphan.pid)
    names = [
        name_of(working),
        name_of(training),
        name_of(stranger),
        f"{orphan.pid}:{(start or 0) + 1}",
        "1:1",
    ]
    words = [word for name in names for word in ("--kill", name)]
    code, report = box.reap(*words, STUB_USERS=f"{working.pid}:{10 << 30}")
    assert (code, report["ended"]) == (1, [])
    assert [refused["why"].split(":")[0] for refused in report["refused"]] == [
        "the driver lists it",
        "it is the training",
        "it has no GPU open",
        "it is another process now",
        "it has no GPU open",
    ]
    assert all(process.poll() is None for process in (working, orphan, training, stranger))


@pytest.mark.parametrize("name", ["123", "123:", ":5", "a:b", "-1:5"])
def test_a_pid_alone_is_no_process(box: Box, name: str) -> None:
    done = box.agent.run("reap", "--kill", name, env=box.env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"PID:START" in done.stderr


def test_where_orphans_cannot_be_told_it_takes_another_word(box: Box, hold: Hold) -> None:
    """The driver lists a number that is no holder here: it counts by another namespace, or hides a user."""
    holder = hold(box.devices + "0")
    lost = {"STUB_COUNT": "2"}  # GPU 1 does not answer, so its users are unknown
    code, report = box.reap(**lost)
    assert (code, report["holders"][0]["orphan"]) == (2, None)
    assert "incomplete" in report["why"]
    name = name_of(holder)
    code, report = box.reap("--kill", name, **lost)
    assert (code, report["ended"]) == (1, [])
    assert holder.poll() is None
    code, report = box.reap("--kill", name, "--unverified", **lost)
    assert (code, report["ended"]) == (0, [name])
    assert holder.wait(60) in ENDED


def test_the_running_cell_of_a_queue_is_never_ended(box: Box, hold: Hold, tmp_path: Path) -> None:
    cell = hold(box.devices + "0")
    cells = [{"name": "a", "state": "done"}, {"name": "b", "state": "running"}]
    state = {"cell_pid": cell.pid, "cell_ticks": procstat.start_ticks(cell.pid), "cells": cells}
    (tmp_path / "state.json").write_text(json.dumps(state))
    _, report = box.reap("--job", str(tmp_path), "--kill", name_of(cell))
    assert (report["holders"][0]["run"], report["refused"][0]["why"]) == ("b", "it is the training")
    assert cell.poll() is None


def test_without_a_driver_it_says_that_it_cannot_tell(agent: Agent) -> None:
    done = agent.run("reap", env={"RGT_NVIDIA_DEVICES": "/no/such/nvidia"})
    assert (done.returncode, json.loads(done.stdout)["why"]) == (2, "no NVIDIA driver answers")


@pytest.mark.parametrize("pidfd", [True, False])
@pytest.mark.parametrize(
    ("code", "polite", "number"), [(STUBBORN, 0.1, signal.SIGKILL), (HOLD, 60.0, signal.SIGTERM)]
)
def test_one_that_ignores_the_polite_signal_is_killed(
    monkeypatch: pytest.MonkeyPatch, hold: Hold, pidfd: bool, code: str, polite: float, number: int
) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr(reap_verb, "POLITE", polite)
    monkeypatch.setattr(reap_verb, "HARD", 60.0)
    process = hold(os.devnull, code=code)
    start = procstat.start_ticks(process.pid)
    assert start is not None
    assert "another process" in str(reap_verb.end_process(process.pid, start + 1))
    assert reap_verb.end_process(process.pid, start) is None
    assert process.wait(60) == -number
    assert "already ended" in str(reap_verb.end_process(process.pid, start))
