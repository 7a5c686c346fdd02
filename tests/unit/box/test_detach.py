from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.cells.detach import session_name

from tests.unit.box.harness import Agent, make_job, until


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
    until(lambda: (job / "master.log").read_text().endswith("QUEUE DONE\n"))


def test_the_runner_lives_in_a_tmux_session_named_after_the_job(tmux: Agent, tmp_path: Path) -> None:
    subprocess.run(["tmux", "new-session", "-d", "-s", "other"], env=tmux.env, check=True)
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
    subprocess.run(["tmux", "new-session", "-d", "-s", "rgt-job"], env=tmux.env, check=True)
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
    assert detach(agent, job, PATH="/nonexistent:/bin:/usr/bin", TMUX_TMPDIR=str(tmp_path))["how"] in (
        "tmux",
        "ended",
    )
    until(lambda: (job / "master.log").exists() and (job / "master.log").read_text().endswith("QUEUE DONE\n"))


@pytest.mark.parametrize(
    ("folder", "name"), [("/a/b.c:d", "rgt-b-c-d"), ("/", "rgt-job"), ("/x/ok_1", "rgt-ok_1")]
)
def test_session_names(folder: str, name: str) -> None:
    assert session_name(folder) == name
