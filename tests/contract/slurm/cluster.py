"""A Slurm of one node that is the test's own: munged, slurmctld and slurmd, without systemd, in one directory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.free_ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
CONFIG = """\
ClusterName=rgt
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6
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
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,bf_interval=1,sched_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
MinJobAge=300
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES State=UP PriorityTier=1 MaxTime=60
PartitionName=high Nodes={host} State=UP PriorityTier=10 PreemptMode=OFF MaxTime=60
"""
"""``cred_expire`` is also how long a requeued job waits before it starts again (slurm.conf(5)); 120 s unless said."""


def eventually(
    condition: Callable[[], object], what: str = "the condition", patience: float = 150.0
) -> None:
    """Look every quarter of a second, as gently as Slurm's own programs allow: nothing there can be waited for."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.25)


class Cluster:
    """How to talk to it.

    Args:
        env: The environment in which Slurm's programs find it.
        log: What its daemons say.
    """

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self.env, self.log = env, log

    def ask(self, *words: str) -> str:
        """Run one of Slurm's programs; returns what it printed."""
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout.strip()

    def submit(self, folder: Path, script: str, *options: str) -> str:
        """Submit a batch script; returns the job's number."""
        path = folder / f"submitted-{len(list(folder.iterdir()))}.sbatch"
        path.write_text("#!/bin/sh\n" + script)
        words = ["sbatch", "--parsable", "--output=/dev/null", *options, str(path)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def states(self, job: str) -> list[str]:
        """Return the states of a job's tasks that Slurm still knows as unfinished, sorted."""
        return sorted(self.ask("squeue", "-h", "-r", "-j", job, "-o", "%T").split())


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Start munged, slurmctld and slurmd below `folder`; everything ends with the block."""
    assert os.geteuid() == 0, "Slurm's daemons need root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    assert not missing, f"missing: {', '.join(missing)}; run make parts"
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True, mode=0o700)
    host = socket.gethostname().partition(".")[0]
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, ports=[free_port(), free_port()]))
    env = dict(os.environ, SLURM_CONF=str(config), PATH=PATH)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    munge = folder / "munge"
    words = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
         f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"],
        ["slurmctld", "-D", "-f", str(config)],
        ["slurmd", "-D", "-f", str(config)],
    ]  # fmt: skip
    log = folder / "daemons.log"
    daemons: list[subprocess.Popen[bytes]] = []
    cluster = Cluster(env, log)
    try:
        with log.open("wb") as said:
            for command in words:
                daemons.append(subprocess.Popen(command, stdout=said, stderr=said, env=env))
                if len(daemons) == 1:
                    eventually(
                        lambda: (folder / "munge.socket").exists() or daemons[0].poll() is not None
                    )
        eventually(
            lambda: (
                "idle" in cluster.ask("sinfo", "-h", "-o", "%T")
                or any(d.poll() is not None for d in daemons)
            )
        )
        dead = [d.args for d in daemons if d.poll() is not None]
        assert not dead, f"{dead} ended: {log.read_text()}"
        yield cluster
    finally:
        if len(daemons) == 3 and all(daemon.poll() is None for daemon in daemons):
            cluster.ask("scancel", "--user=root", "--signal=KILL", "--full")
            cluster.ask("scancel", "--user=root")
            eventually(lambda: not cluster.ask("squeue", "-h"), "the end of all jobs")
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


PATH = os.environ["PATH"] + ":/usr/local/sbin:/usr/sbin:/sbin"
