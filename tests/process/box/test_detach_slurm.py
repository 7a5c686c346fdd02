"""Detached by a real Slurm of one node, started for the test: submitted, cancelled, submitted again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.slurm.cluster import running
from tests.process.box.harness import Agent, decode, make_job, until

SCRIPT = "[ -e ok ] && exit 0; trap 'echo saved; exit 75' TERM; echo $SECRET; while :; do sleep 0.05; done"


@pytest.fixture
def cluster(agent: Agent, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose Slurm is its own."""
    with running(tmp_path / "slurm") as slurm:
        agent.env.update(slurm.env)
        yield agent


def queue_is_empty(agent: Agent) -> bool:
    """Whether Slurm says so: a controller that is slow to answer says nothing, and that is no empty queue."""
    done = subprocess.run(
        ["squeue", "-h"], env=agent.env, capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and not done.stdout


def detach(agent: Agent, job: Path) -> dict[str, Any]:
    done = agent.run("detach", "--job", str(job), env={"SECRET": "handed on"})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_cancelled_job_lets_the_cell_save_and_the_next_one_goes_on(
    cluster: Agent, tmp_path: Path
) -> None:
    job = make_job(
        tmp_path / "my job", ["sh", "-c", SCRIPT], ["a", "b"], detach="slurm", sbatch=["--time=10"]
    )
    first = detach(cluster, job)
    assert first["how"] == "slurm"
    log, master = job / "logs" / "a.log", job / "master.log"
    until(lambda: log.exists() and log.read_text() == "handed on\n")
    assert detach(cluster, job)["how"] == "running"
    (seen,) = decode(cluster.run("sample").stdout).session.slurm
    assert (seen.id, seen.state) == (first["session"], "RUNNING")
    subprocess.run(["scancel", first["session"]], env=cluster.env, check=True)
    until(lambda: "FINISHED a exit=75" in master.read_text())
    assert log.read_text().endswith("saved\n")
    until(lambda: queue_is_empty(cluster), "the end of the job")
    (job / "ok").touch()
    assert detach(cluster, job)["session"] != first["session"]
    until(lambda: master.read_text().endswith("QUEUE DONE\n"))
    cells = json.loads((job / "state.json").read_bytes())["cells"]
    assert [(cell["state"], cell["attempts"]) for cell in cells] == [("done", 2), ("done", 1)]
