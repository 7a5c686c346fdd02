"""`rgt run` on a login node of a real Slurm: submitted once, followed, and told as what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.cli.conftest import Rgt
from tests.contract.slurm.cluster import Cluster, running
from tests.contract.ssh.conftest import RealSshd, running_sshd, stop_recorder
from tests.process.box.harness import until


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealSshd, Cluster]]:
    """A box from which jobs are submitted."""
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        folder = tmp_path_factory.mktemp("login")
        with running_sshd(folder) as sshd:
            # The profile's own line is for clusters that have modules; a login shell has this file, too.
            for name in (".bashrc", ".bash_profile"):
                module = 'module() { echo "module $*"; }'
                (folder / "home" / name).write_text(
                    f"export SLURM_CONF={cluster.env['SLURM_CONF']}\n{module}\nexport -f module\n"
                )
            yield sshd, cluster
            stop_recorder(sshd)


def test_it_is_submitted_once(rgt: Rgt, login: tuple[RealSshd, Cluster]) -> None:
    sshd, cluster = login
    home = sshd.folder / "home"
    rgt.describe(
        [msgspec.structs.replace(sshd.spec, name="lab", profile="slurm", pattern="^none$")]
    )
    line = "echo run >> ~/count; while [ ! -e ~/go ]; do sleep 0.1; done"
    first = rgt.on("run", "lab", "--name", "job", "--probe", "1s", "--json", "--", line)
    assert first.returncode == 0, first.stdout + first.stderr
    told = json.loads(first.stdout)
    number = told["start"]["session"]
    assert told["start"]["how"] == "slurm" and number.isdigit()
    assert told["begins"]["verdict"] in ("queued", "alive")
    until(lambda: (home / "count").exists())
    second = rgt.on("run", "lab", "--name", "job", "--probe", "1s", "--json", "--", line)
    again = json.loads(second.stdout)
    assert second.returncode == 0 and "start" not in again
    assert (again["begins"]["verdict"], again["begins"]["first"]) == ("alive", "module load cuda")
    assert cluster.states(number) == ["RUNNING"]
    (home / "go").touch()
    done = rgt.on("run", "lab", "--name", "job", "--wait", "--", line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / "count").read_text() == "run\n"


def test_one_that_only_waits_is_queued(
    rgt: Rgt, login: tuple[RealSshd, Cluster], tmp_path: Path
) -> None:
    """Both cores are taken: it is submitted, waits, and that is no death."""
    sshd, cluster = login
    rgt.describe(
        [msgspec.structs.replace(sshd.spec, name="lab", profile="slurm", pattern="^none$")]
    )
    blocker = cluster.submit(tmp_path, "sleep 600\n", "--ntasks=2")
    until(lambda: cluster.states(blocker) == ["RUNNING"])
    waits = rgt.on("run", "lab", "--name", "waits", "--probe", "1s", "--", "echo hi")
    assert waits.returncode == 0, waits.stdout + waits.stderr
    assert "lab: QUEUED it waits in Slurm's queue (" in waits.stdout and "PENDING" in waits.stdout
    again = rgt.on("run", "lab", "--name", "waits", "--probe", "1s", "--", "echo hi")
    assert again.returncode == 0 and "start  nothing" in again.stdout
    assert len(cluster.ask("squeue", "-h", "-n", "rgt-waits").splitlines()) == 1
    waiting = rgt.start("run", "lab", "--name", "waits", "--probe", "1s", "--wait", "--", "echo hi")
    until(lambda: rgt.on("exec", "lab", "--", "pgrep -f '[q]ueue wait'").returncode == 0)
    cluster.ask("scancel", blocker)
    out, said = waiting.communicate(timeout=120)
    assert waiting.returncode == 0 and b"done   waits" in out, (out, said)
