"""`rgt secret` against a real sshd: the value goes over standard input, and is told by nobody."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec

from rgt_tui.fleet import durable_dirs
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd

VALUE = "hunter2-correct-horse"


def given(rgt: Rgt, *words: str, value: str = f"{VALUE}\n") -> subprocess.CompletedProcess[str]:
    """Run it with a value on its standard input."""
    command = rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:])
    return subprocess.run(
        command,
        input=value,
        cwd=rgt.folder,
        env=rgt.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_secret_comes_by_standard_input_and_goes_again(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    done = given(rgt, "secret", "lab", "HF_TOKEN", "--json")
    assert done.returncode == 0, done.stderr
    path = Path(json.loads(done.stdout)["put"]["path"])
    assert (
        path == real_sshd.folder / "home/.config/rgt/secrets/HF_TOKEN" and path.read_text() == VALUE
    )
    listed = rgt.on("secret", "lab", "--list")
    assert (
        str(path) in listed.stdout
        and VALUE not in done.stdout + done.stderr + listed.stdout + listed.stderr
    )
    assert rgt.on("secret", "lab", "HF_TOKEN", "--remove").returncode == 0 and not path.exists()
    gone = rgt.on("secret", "lab", "HF_TOKEN", "--remove")
    assert gone.returncode == 1 and "no secret of that name" in gone.stderr
    assert given(rgt, "secret", "lab", "HF_TOKEN", value="").returncode == 2


def test_a_secret_for_a_job_by_its_name_and_for_every_job(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    jobs = real_sshd.folder / "home/jobs"
    (jobs / "sweep").mkdir(parents=True, exist_ok=True)
    done = given(rgt, "secret", "lab", "HF_TOKEN", "--job", "sweep")
    assert done.returncode == 0 and f"for the cells of {jobs}/sweep" in done.stdout, done.stderr
    done = given(rgt, "secret", "lab", "HF_TOKEN", "--all-cells", value="every-job\n")
    assert done.returncode == 0 and "for the cells of every job" in done.stdout, done.stderr
    line = "echo $HF_TOKEN | tr a-z A-Z"
    ran = rgt.on("run", "lab", "--name", "any", "--json", "--", line)
    assert json.loads(ran.stdout)["begins"]["first"] == "EVERY-JOB", ran.stdout + ran.stderr
    (jobs / "sweep/queue.txt").write_text("~/jobs/any/any.cmd run\n")
    command = ["sh", "-c", line]
    (jobs / "sweep/job.json").write_text(
        json.dumps({"command": command, "out": str(jobs / "o/{name}")})
    )
    ran = rgt.on("queue", "lab", "run", "--job", "sweep", "--json")
    assert f'"first":"{VALUE.upper()}"' in ran.stdout, "the job's own takes precedence"
    listed = rgt.on("secret", "lab", "--list").stdout
    assert "(cells of every job)" in listed and "every-job" not in listed
    assert rgt.on("secret", "lab", "HF_TOKEN", "--all-cells", "--remove").returncode == 0
    assert rgt.on("secret", "lab", "HF_TOKEN", "--job", "sweep", "--remove").returncode == 0


def test_a_path_that_a_shell_here_expanded_is_named(rgt: Rgt, lab: BoxSpec) -> None:
    done = given(rgt, "secret", "lab", "HF_TOKEN", "--job", f"{rgt.folder}/jobs/sweep")
    assert done.returncode == 1 and "write '~/jobs/sweep' in quotes" in done.stderr
    done = rgt.on("run", "lab", "--in", f"{rgt.folder}/code", "--", "true")
    assert done.returncode == 2 and "write '~/code' in quotes" in done.stderr


def test_a_durable_place_is_refused_in_words(rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd) -> None:
    durable = real_sshd.folder / "home" / "netdisk"
    durable.mkdir()
    rgt.describe([msgspec.structs.replace(lab, durable=str(durable))])
    done = given(rgt, "secret", "lab", "HF_TOKEN", "--to", str(durable / "keys"))
    assert (
        done.returncode == 1
        and "outlives this box" in done.stderr
        and "is suitable (--to" in done.stderr
    )
    assert list(durable.iterdir()) == [] and VALUE not in done.stderr
    assert rgt.on("secret", "lab").returncode == 2
    assert rgt.on("secret", "lab", "A", "--to", "keys").returncode == 2


def test_every_durable_tier_of_a_platform_is_told() -> None:
    autodl = durable_dirs(BoxSpec("a", "h", durable="/mnt/mine"), load_profile("autodl"))
    assert {"/root/autodl-fs", "/mnt/mine"} <= set(autodl) and "/root/autodl-tmp" not in autodl
    assert "/hy-netdisk" in durable_dirs(BoxSpec("a", "h"), load_profile("gpushare"))
