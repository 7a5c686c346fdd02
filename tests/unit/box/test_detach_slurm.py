"""Detached by a real Slurm of one node, started for the test: submitted, cancelled, submitted again."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.box.harness import Agent, decode, make_job, until

CONFIG = """\
ClusterName=rgt
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=p Nodes={host} Default=YES State=UP
"""
SCRIPT = "[ -e ok ] && exit 0; trap 'echo saved; exit 75' TERM; echo $SECRET; while :; do sleep 0.05; done"


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for found in (one, two):
            found.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


@pytest.fixture
def cluster(agent: Agent, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose Slurm is its own."""
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    missing = [
        name for name in ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo") if shutil.which(name) is None
    ]
    assert not missing, f"missing: {', '.join(missing)}; run make parts"
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    config.write_text(CONFIG.format(host=host, folder=folder, ports=free_ports()))
    agent.env["SLURM_CONF"] = str(config)
    daemons = []
    with (folder / "log").open("wb") as log:
        for name in ("slurmctld", "slurmd"):
            words = [name, "-D", "-f", str(config)]
            daemons.append(subprocess.Popen(words, stdout=log, stderr=log, env=agent.env))
    try:
        until(lambda: "idle" in ask(agent, "sinfo", "-h", "-o", "%T") or daemons[0].poll() is not None)
        if daemons[0].poll() is not None:
            pytest.fail(f"Slurm does not start: {(folder / 'log').read_text()}")
        yield agent
    finally:
        if daemons[0].poll() is None:
            ask(agent, "scancel", "--user=root", "--signal=KILL", "--full")
            ask(agent, "scancel", "--user=root")
            until(lambda: not ask(agent, "squeue", "-h"), "the end of all jobs")
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(20)


def ask(agent: Agent, *words: str) -> str:
    return subprocess.run(words, env=agent.env, capture_output=True, text=True, check=False).stdout


def detach(agent: Agent, job: Path) -> dict[str, Any]:
    done = agent.run("detach", "--job", str(job), env={"SECRET": "handed on"})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_cancelled_job_lets_the_cell_save_and_the_next_one_goes_on(cluster: Agent, tmp_path: Path) -> None:
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
    until(lambda: not ask(cluster, "squeue", "-h"))
    (job / "ok").touch()
    assert detach(cluster, job)["session"] != first["session"]
    until(lambda: master.read_text().endswith("QUEUE DONE\n"))
    cells = json.loads((job / "state.json").read_bytes())["cells"]
    assert [(cell["state"], cell["attempts"]) for cell in cells] == [("done", 2), ("done", 1)]
