from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue.detach import session_name

from tests.process.box.harness import Agent, make_job, master_log, until


@pytest.fixture
def tmux(agent: Agent, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose tmux server is its own."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    agent.env["TMUX_TMPDIR"] = str(tmp_path)
    yield agent
    subprocess.run(["tmux", "kill-server"], env=agent.env, capture_output=True, check=False)


def detach(agent: Agent, job: Path, **env: str) -> dict[str, Any]:
    done = agent.run("detach", "--job", str(job), env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def waiting_job(folder: Path) -> Path:
    job = make_job(folder, ["sh", "-c", "echo $SECRET > seen; read x < go"], ["a"])
    os.mkfifo(job / "go")
    return job


def finish(job: Path) -> None:
    (job / "go").write_text("\n")
    until(lambda: master_log(job).endswith("QUEUE DONE\n"))


def test_the_runner_lives_in_a_tmux_session_named_after_the_job(
    tmux: Agent, tmp_path: Path
) -> None:
    subprocess.run(
        ["tmux", "new-session", "-d", "-s", "other", "sleep 1000"], env=tmux.env, check=True
    )
    job = waiting_job(tmp_path / "my.job")
    found = detach(tmux, job, SECRET="from us, by no argv")
    assert (found["how"], found["session"]) == ("tmux", "rgt-my-job")
    assert b"from us" not in Path(f"/proc/{found['pid']}/cmdline").read_bytes()
    until(lambda: (job / "seen").exists() and (job / "seen").read_text())
    assert (job / "seen").read_text() == "from us, by no argv\n"
    again = detach(tmux, job)
    assert (again["how"], again["pid"]) == ("running", found["pid"])
    sample = json.loads(tmux.run("sample").stdout)
    assert sorted(sample["session"]["tmux"]) == ["other", "rgt-my-job"]
    assert not list(tmux.state.glob("env-*"))
    finish(job)


def test_a_session_of_that_name_that_is_not_ours_is_left_alone(tmux: Agent, tmp_path: Path) -> None:
    subprocess.run(
        ["tmux", "new-session", "-d", "-s", "rgt-job", "sleep 1000"], env=tmux.env, check=True
    )
    job = waiting_job(tmp_path / "job")
    assert detach(tmux, job)["session"] == "rgt-job-2"
    finish(job)


def test_without_tmux_it_is_a_session_of_its_own(agent: Agent, tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "sh").symlink_to("/bin/sh")
    job = waiting_job(tmp_path / "job")
    found = detach(agent, job, PATH=str(bin_dir))
    assert (found["how"], found["session"]) == ("setsid", None)
    assert os.getsid(found["pid"]) not in (os.getsid(0), 0)
    finish(job)


def test_a_queue_that_cannot_run_is_refused_in_the_foreground(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    (job / "a.toml").unlink()
    done = agent.run("detach", "--job", str(job))
    assert (done.returncode, b"does not exist" in done.stderr) == (2, True)


def test_a_queue_that_is_over_at_once_is_no_error(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    assert detach(agent, job, PATH="/nonexistent:/bin:/usr/bin", TMUX_TMPDIR=str(tmp_path))[
        "how"
    ] in (
        "tmux",
        "ended",
    )
    until(lambda: master_log(job).endswith("QUEUE DONE\n"))


@pytest.mark.parametrize(
    ("folder", "name"), [("/a/b.c:d", "rgt-b-c-d"), ("/", "rgt-job"), ("/x/ok_1", "rgt-ok_1")]
)
def test_session_names(folder: str, name: str) -> None:
    assert session_name(folder) == name


SBATCH = """#!/bin/sh
cp "$2" $FAKE/script
[ -e $FAKE/refuse ] && { echo "sbatch: error: no such partition" >&2; exit 1; }
echo "$*" >> $FAKE/calls
sh "$2" > $FAKE/out 2>&1 &
echo $! > $FAKE/pid
echo "42;cluster"
"""
SQUEUE = """#!/bin/sh
kill -0 $(cat $FAKE/pid) 2>/dev/null && echo RUNNING || { [ -e $FAKE/held ] && echo PENDING; }
exit 0
"""


@pytest.fixture
def slurm(agent: Agent, tmp_path: Path) -> Path:
    """A stand-in for Slurm: sbatch starts the script at once, squeue says whether it runs."""
    fake = tmp_path / "fake"
    fake.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        (fake / name).write_text(text)
        (fake / name).chmod(0o755)
    agent.env.update(PATH=f"{fake}:/usr/bin:/bin", FAKE=str(fake))
    return fake


def slurm_job(folder: Path, **settings: Any) -> Path:
    job = make_job(
        folder, ["sh", "-c", "echo $SECRET > seen; read x < go"], ["a"], detach="slurm", **settings
    )
    os.mkfifo(job / "go")
    return job


def test_slurm_runs_the_batch_script_once(agent: Agent, slurm: Path, tmp_path: Path) -> None:
    job = slurm_job(tmp_path / "my job", sbatch=["--gres=gpu:1", "--time=1:00:00"])
    found = detach(agent, job, SECRET="handed on")
    assert found == {"how": "slurm", "session": "42", "pid": None}
    script = (slurm / "script").read_text()
    assert script.startswith("#!/bin/sh\n#SBATCH --job-name=rgt-my-job\n")
    assert f'#SBATCH --output="{job}/runner.out"\n' in script
    assert "#SBATCH --gres=gpu:1\n#SBATCH --time=1:00:00\nexec " in script
    assert script == agent.run("detach", "--job", str(job), "--print", "slurm").stdout.decode()
    until(lambda: (job / "seen").exists() and (job / "seen").read_text())
    assert (job / "seen").read_text() == "handed on\n"
    assert detach(agent, job)["how"] == "running"
    finish(job)
    assert (slurm / "calls").read_text().count("runner.sbatch") == 1


def test_a_job_that_waits_in_slurms_queue_is_not_submitted_again(
    agent: Agent, slurm: Path, tmp_path: Path
) -> None:
    job = slurm_job(tmp_path / "job")
    (job / "runner.slurm").write_text('{"id": "41"}')
    (slurm / "held").touch()
    (slurm / "pid").write_text("0x")
    assert detach(agent, job)["session"] == "41"
    assert not (slurm / "calls").exists()


def test_slurm_that_refuses_or_is_not_there_starts_nothing(
    agent: Agent, slurm: Path, tmp_path: Path
) -> None:
    job = slurm_job(tmp_path / "job")
    (slurm / "refuse").touch()
    done = agent.run("detach", "--job", str(job))
    assert (done.returncode, b"no such partition" in done.stderr) == (2, True)
    agent.env["PATH"] = "/nowhere"
    done = agent.run("detach", "--job", str(job))
    assert (done.returncode, b"sbatch: No such file or directory" in done.stderr) == (2, True)
    assert not (job / "state.json").exists()


def test_a_kubernetes_job_is_printed(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "My Job", ["true"], ["a"])
    words = ["detach", "--job", str(job), "--print", "k8s"]
    done = agent.run(
        *words,
        "--image",
        'reg/i"m:1',
        "--claim",
        f"data:{tmp_path}",
        "--gpus",
        "2",
        "--agent",
        "/a.pyz",
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert 'apiVersion: "batch/v1"\nkind: "Job"\nmetadata:\n  name: "rgt-my-job-' in text
    for part in (
        '\n          image: "reg/i\\"m:1"\n',
        '\n            - "/a.pyz"\n            - "queue"\n            - "run"\n',
        "\n              nvidia.com/gpu: 2\n",
        '\n            claimName: "data"',
        '\n          operator: "In"\n          values:\n            - 1\n',
    ):
        assert part in text, (part, text)
    for wrong in (
        [],
        ["--image", "i"],
        ["--image", "i", "--claim", "x"],
        ["--image", "i", "--claim", "x:/other"],
        ["--image", "i", "--claim", f"X_y:{tmp_path}"],
        ["--image", "i", "--claim", f"x:{tmp_path}:ro"],
        ["--image", "i", "--claim", f"x:{tmp_path}", "--claim", f"y:{tmp_path}/"],
    ):
        assert agent.run(*words, *wrong).returncode == 2, wrong


def test_a_job_that_wants_tmux_gets_nothing_else(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"], detach="tmux")
    done = agent.run("detach", "--job", str(job), env={"PATH": "/nowhere"})
    assert (done.returncode, b"asks for tmux" in done.stderr) == (2, True)
    assert not (job / "state.json").exists()
