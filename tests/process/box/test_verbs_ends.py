"""How cells end: out of memory in a real cgroup, a bare "Killed", much too soon, with another config."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue import cell_process, runner

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, AgentInside, decode, make_job, memory_group

LIMIT = 96 << 20
HOG = "held = []\nwhile True:\n    held.append(bytearray(4 << 20))\n"


def state(job: Path) -> dict[str, dict[str, Any]]:
    cells = json.loads((job / "state.json").read_bytes())["cells"]
    return {cell["name"]: cell for cell in cells}


def queue_decoded(agent: Agent, job: Path) -> protocol.QueueState:
    frame = decode(agent.run("queue", "status", "--job", str(job)).stdout)
    assert isinstance(frame, protocol.QueueState)
    return frame


@pytest.fixture
def inside(agent_file: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent that lives in a memory cgroup of its own, with a limit."""
    with memory_group("rgt-cell", LIMIT) as group:
        yield AgentInside(agent_file, tmp_path / "state", group)


def test_the_kernels_kill_is_told_from_any_other(inside: Agent, tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG)
    hog = f"exec {shlex.join([sys.executable, str(tmp_path / 'hog.py')])}"
    cases = {
        "hog": hog,
        "worker": f"{hog[5:]}; exit 1",
        "shot": "kill -9 $$",
    }
    script = (
        "case {name} in " + " ".join(f"{name}) {text};;" for name, text in cases.items()) + " esac"
    )
    job = make_job(tmp_path / "job", ["sh", "-c", script], list(cases))
    assert inside.run("queue", "run", "--job", str(job)).returncode == 1
    cells = state(job)
    where = "out of memory in the container (limit 0.1 GiB)"
    assert cells["hog"]["signal"] == "SIGKILL"
    assert cells["hog"]["reason"] == f"killed by the kernel: {where}"
    assert (
        cells["worker"]["reason"] == f"exit 1: a process inside was killed by the kernel: {where}"
    )
    assert cells["shot"]["reason"] == "killed by SIGKILL (9)"


@pytest.mark.parametrize(
    ("tail", "killed"),
    [
        (b"step 5\nKilled\n", True),
        (b"run.sh: line 3: 12345 Killed                  python train.py\n", True),
        (b"[1]+  Killed                  python train.py\n", True),
        (b"Killed\n" + b"more\n" * 9, False),
        (b"We killed the bug\nKilled by friendly fire\n", False),
        (b"", False),
    ],
)
def test_a_bare_killed(tail: bytes, killed: bool) -> None:
    assert cell_process.ends_with_killed(tail) is killed
    reason = cell_process.classify_exit(1, None, "", tail)["reason"]
    assert ("inside was killed by SIGKILL" in reason) is killed


def test_killed_of_an_earlier_attempt_does_not_count(agent: Agent, tmp_path: Path) -> None:
    script = "[ -e again ] && exit 1; touch again; echo Killed; exit 1"
    job = make_job(tmp_path / "job", ["sh", "-c", script], ["a"], retries=1)
    agent.run("queue", "run", "--job", str(job))
    assert (state(job)["a"]["reason"], state(job)["a"]["attempts"]) == ("exit 1", 2)


def seeded(job: Path, **seconds: float) -> None:
    """Pretend that cells ran before, for so long."""
    cells = [
        {"name": name, "task": "lm", "epochs": 20, "state": "done", "attempts": 1, "seconds": took}
        for name, took in seconds.items()
    ]
    (job / "state.json").write_text(json.dumps({"cells": cells}))


def test_a_cell_that_ends_much_too_soon_is_flagged(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b", "c", "new"])
    (job / "other.toml").touch()
    with (job / "queue.txt").open("a") as file:
        file.write("other.toml lm 3\n")
    seeded(job, a=500.0, b=1000.0, c=7000.0)
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    cells = {cell.name: cell for cell in queue_decoded(agent, job).cells}
    flag = r"ended after \d+ s, where 17 min is usual \(median of 3 done with task lm and 20 epochs\): read its log"
    assert cells["new"].state == "done" and re.fullmatch(flag, cells["new"].flag or "")
    assert (cells["other"].state, cells["other"].flag) == ("done", None)


@pytest.mark.parametrize(
    ("seconds", "others", "flagged"),
    [
        (49.0, [100.0], True),
        (50.0, [100.0], False),
        (1.0, [4.0, 4.0], False),  # too short to tell
        (1.0, [], False),
        (None, [100.0], False),
    ],
)
def test_what_counts_as_too_soon(seconds: float | None, others: list[float], flagged: bool) -> None:
    cells = [{"task": "t", "epochs": 1, "state": "done", "seconds": took} for took in others]
    assert (
        runner.unusual_flag({"task": "t", "epochs": 1, "seconds": seconds}, cells) is not None
    ) is flagged


def test_the_time_of_a_resumed_cell_is_the_sum_of_its_attempts() -> None:
    cell: dict[str, Any] = {}
    runner.add_attempt_time(cell, 40.0)
    runner.add_attempt_time(cell, 30.0)
    assert cell["seconds"] == 70.0
    runner.add_attempt_time(cell, None)
    runner.add_attempt_time(cell, 30.0)
    assert cell["seconds"] is None


def test_a_config_that_changes_between_attempts_is_not_retried_and_is_flagged(
    agent: Agent, tmp_path: Path
) -> None:
    script = "[ -e a.done ] && exit 0; touch a.done; echo 'lr = 1' > a.toml; exit 1"
    job = make_job(tmp_path / "job", ["sh", "-c", script], ["a"], retries=3)
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    cell = state(job)["a"]
    assert (cell["attempts"], cell["reason"]) == (
        1,
        "exit 1; not retried: its config has been changed since",
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    frame = queue_decoded(agent, job)
    assert frame.cells[0].flag is not None
    assert "config changed" in frame.cells[0].flag


def test_a_preempted_cell_is_not_retried(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", "exit 75"], ["a"], retries=5)
    assert agent.run("queue", "run", "--job", str(job)).returncode == 75
    assert state(job)["a"]["attempts"] == 1
