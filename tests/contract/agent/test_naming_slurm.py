"""Trainings that a real Slurm runs: their job, their output file, and how Slurm says that they ended."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.model import protocol
from tests.contract.agent.trainings import Place
from tests.contract.slurm.cluster import Cluster, running
from tests.process.box.harness import Agent


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "slurm") as cluster:
        yield cluster


def found(frame: Any, exp: Place) -> list[protocol.FoundRun]:
    if not isinstance(frame, protocol.FoundRuns):
        return []
    return [run for run in frame.runs if run.cwd == str(exp.folder)]


def test_a_job_is_found_with_its_output_and_its_end(
    agent: Agent, exp: Place, cluster: Cluster
) -> None:
    env = {key: cluster.env[key] for key in ("SLURM_CONF", "PATH")}
    agent.env.update(env, RGT_FIND_SECONDS="0.5")
    folder = exp.folder
    python = shlex.quote(sys.executable)
    script = f"cd {folder} && {python} train.py --to history.jsonl --stop 200 --until seen"
    job = cluster.submit(folder, script, f"--output={folder}/slurm-%j.out", f"--chdir={folder}")
    piped = cluster.submit(
        folder, f"cd {folder} && srun {python} main.py fit", f"--output={folder}/slurm-%j.out"
    )
    channel = agent.watch(find=True, interval=0.5)
    logs = {number: str(folder / f"slurm-{number}.out") for number in (job, piped)}
    seen: dict[str, protocol.FoundRun] = {}
    curves: set[str] = set()
    lines: set[str] = set()

    def told(frame: Any) -> bool:
        seen.update({run.place or "": run for run in found(frame, exp)})
        if isinstance(frame, protocol.Scalars):
            curves.add(frame.run)
        if isinstance(frame, protocol.LogLines):
            lines.add(frame.path)
        return all(
            number in seen
            and seen[number].log == log
            and log in lines
            and seen[number].name in curves
            for number, log in logs.items()
        )

    channel.expect(told, "both jobs with their output and their curve")
    assert {run.session for run in seen.values()} == {"slurm"}
    (folder / "seen").touch()
    channel.expect(
        lambda frame: told(frame) and seen[job].exit_code is not None, "how the job ended"
    )
    assert (seen[job].alive, seen[job].exit_code, seen[job].outcome) == (False, 3, "FAILED")
    assert f"Slurm job {job}: FAILED" in seen[job].notes
    assert (seen[piped].alive, seen[piped].exit_code) == (True, None)
    channel.kill()
