"""`record --list`: every recorder of this user, by the lock that it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.box.harness import Agent, until


@pytest.fixture
def other(agent_file: Path, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(agent_file, tmp_path / "other home" / "state")
    yield agent
    agent.stop()


def listed(agent: Agent) -> dict[str, dict[str, Any]]:
    done = agent.run("record", "--list")
    assert done.returncode == 0, done.stderr
    return {row["folder"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_recorders_of_other_state_directories_are_listed_with_who_uses_them(
    agent: Agent, other: Agent
) -> None:
    for each in (agent, other):
        assert each.run("record").returncode == 0
    found = listed(agent)
    own, foreign = found[str(agent.state)], found[str(other.state)]
    assert (own["own"], foreign["own"]) == (True, False)
    assert foreign["pid"] == other.recorder_pid()
    assert (foreign["watched"], foreign["armed"], foreign["jobs"]) == (False, False, 0)
    assert foreign["unwatched_s"] >= 0.0

    channel = other.watch(interval=0.2)
    until(lambda: listed(agent)[str(other.state)]["watched"], "the client is seen")
    until(lambda: listed(agent)[str(other.state)]["unwatched_s"] is None)
    channel.process.kill()
    channel.process.wait()
    until(lambda: listed(agent)[str(other.state)]["unwatched_s"] is not None, "the client has left")

    assert other.run("record", "--stop").returncode == 0
    assert str(other.state) not in listed(agent)


def test_one_that_is_armed_or_has_a_job_is_said_to(agent: Agent, other: Agent) -> None:
    assert other.run("record").returncode == 0
    (other.state / "sink.json").write_text("{}")
    (other.state / "recorder-queues.json").write_text(
        json.dumps(
            {"/jobs/a": {"cells": {}, "done": False}, "/jobs/b": {"cells": {}, "done": True}}
        )
    )
    row = listed(agent)[str(other.state)]
    assert (row["armed"], row["jobs"]) == (True, 1)


def test_a_process_that_only_looks_like_one_is_none(agent: Agent, other: Agent) -> None:
    """It has the words, and the lock file of a real recorder open: the lock names another process."""
    assert other.run("record").returncode == 0
    script = "import sys, time; open(sys.argv[1]); held = open(sys.argv[1]); print(flush=True); time.sleep(600)"
    words = [
        sys.executable,
        "-c",
        script,
        str(other.state / "recorder.lock"),
        "record",
        "--foreground",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=dict(os.environ)) as pretender:
        try:
            assert pretender.stdout is not None and pretender.stdout.readline()
            assert {row["pid"] for row in listed(agent).values()}.isdisjoint({pretender.pid})
            assert listed(agent)[str(other.state)]["pid"] == other.recorder_pid()
        finally:
            pretender.kill()
