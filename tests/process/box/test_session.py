"""What detached work lives in, and how old the box is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_box import background, procstat
from rgt_box.sampling import sampler
from rgt_box.sampling.sampler import SessionSampler

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, decode, until

SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from rgt_box.sampling.sampler import SessionSampler
print(SessionSampler().read()["uptime_s"])
"""


def test_a_container_is_as_old_as_its_first_process() -> None:
    """In a new pid namespace with its own /proc the host's hours do not count."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    remote = os.path.dirname(os.path.dirname(procstat.__file__))
    argv = [
        "unshare",
        *user,
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        SCRIPT,
        remote,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    with open("/proc/uptime") as file:
        host = float(file.read().split()[0])
    assert 0 <= float(done.stdout) < host


def test_a_machine_counts_from_its_own_start() -> None:
    first = procstat.read_stat(1)
    assert first is not None
    with open("/proc/uptime") as file:
        host = float(file.read().split()[0])
    expected = host - first.start / procstat.CLOCK_TICKS
    assert SessionSampler().read()["uptime_s"] == pytest.approx(expected, abs=60)


def fake_squeue(folder: Path, script: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    tool = folder / "squeue"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


ROWS = """\
4242|RUNNING|1-02:03:04|21:56:56|gpu-node-3|train | with pipes
4243_[1-4]|PENDING|0:00|UNLIMITED|(Priority)|sweep
nonsense
"""


def test_slurm_jobs(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(ROWS)
    env = fake_squeue(tmp_path / "bin", f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/rows')
    session = decode(agent.run("sample", env=env).stdout).session
    assert session.slurm == (
        protocol.SlurmJob(
            id="4242",
            name="train | with pipes",
            state="RUNNING",
            elapsed_s=93784.0,
            left_s=79016.0,
            reason="gpu-node-3",
        ),
        protocol.SlurmJob(
            id="4243_[1-4]",
            name="sweep",
            state="PENDING",
            elapsed_s=0.0,
            left_s=None,
            reason="(Priority)",
        ),
    )
    assert session.slurm_error is None
    assert (tmp_path / "asked").read_text().split()[:3] == ["-h", "-u", str(os.getuid())]


def test_a_slurm_without_a_controller_is_told(agent: Agent, tmp_path: Path) -> None:
    env = fake_squeue(
        tmp_path / "bin", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1"
    )
    session = decode(agent.run("sample", env=env).stdout).session
    assert (session.slurm, session.slurm_error) == (
        (),
        "RuntimeError: squeue failed: no answer from Slurm's controller",
    )


def test_a_box_without_slurm_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(SessionSampler().read(wait=5.0)) == {"uptime_s"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:00", 0),
        ("29:58", 1798),
        ("1:00:01", 3601),
        ("2-00:00:00", 172800),
        ("INVALID", None),
        ("", None),
    ],
)
def test_times_of_slurm(text: str, expected: float | None) -> None:
    assert sampler.slurm_seconds(text) == expected


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Its child keeps the pipe open: ending the wrapper alone would leave the reader waiting."""
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\nwait\n")
    tool.chmod(0o755)
    for seconds in (0.3, 3.0, 30.0):  # a busy machine may take longer to come to the child
        with pytest.raises(TimeoutError, match="did not answer within"):
            background.run_program([str(tool)], seconds)
        if (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"):
            break
    child = int((tmp_path / "child").read_text())
    until(lambda: procstat.start_ticks(child) is None, "the end of the child")
    assert background.try_program(["/no/such/program"], 1.0) is None
    assert (background.try_program(["false"], 60.0), background.run_program(["false"], 60.0)) == (
        None,
        "",
    )


def test_tmux_sessions_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if background.which("tmux") is None:
        pytest.skip("no tmux")
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    assert sampler.tmux_sessions() == []
    subprocess.run(
        ["tmux", "-f", "/dev/null", "new-session", "-d", "-s", "train", "sleep 1000"], check=True
    )
    try:
        assert sampler.tmux_sessions() == ["train"]
    finally:
        subprocess.run(["tmux", "kill-server"], check=True)
