"""Taking rgt off a box: all of its own goes, nothing else does, and what somebody can still name stays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import armed_plan
from rgt_box.autostop.idle_clock import ClockReading
from rgt_box.commands import remove as verb
from rgt_box.sampling import disks

from tests.contract.slurm.cluster import running
from tests.process.box.harness import Agent, make_job, until

# It looks at all processes, and one whose files are gone is a doubt: those that other tests leave for a moment.
pytestmark = pytest.mark.serial

OLD = "rgt-box-00000000deadbeef.pyz"
TRAINER = "rgt-train-00000000deadbeef.pyz"


@pytest.fixture
def box(agent_file: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent where it really stands, with older ones beside it."""
    cache = tmp_path / "home/.cache/rgt"
    cache.mkdir(parents=True)
    shutil.copy(agent_file, cache)
    for name in (OLD, TRAINER):
        shutil.copy(agent_file, cache / name)
    agent = Agent(cache / agent_file.name, cache)
    agent.env.update(
        HOME=str(tmp_path / "home"),
        RGT_SPARE_DIRS=str(tmp_path / "spare"),
        RGT_RAM_DIR=str(tmp_path / "ram"),
    )
    agent.env.pop("XDG_CACHE_HOME", None)
    # A PATH without Slurm and the like: what this machine has must not decide.
    (tmp_path / "bin").mkdir()
    for name in ("sh", "sleep", "env"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    agent.env["PATH"] = str(tmp_path / "bin")
    yield agent
    if agent.path.exists():
        agent.stop()


def remove(agent: Agent, *words: str) -> tuple[int, dict[str, Any], dict[str, str | None]]:
    """Return the exit status, the last line, and path below the home → why it is kept."""
    done = agent.run("remove", *words)
    assert not done.stderr, done.stderr
    *things, end = [json.loads(line) for line in done.stdout.splitlines()]
    home = Path(agent.env["HOME"])
    return (
        done.returncode,
        end,
        {os.path.relpath(thing["path"], home): thing["kept"] for thing in things},
    )


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_all_of_it_goes_and_nothing_else(box: Agent, tmp_path: Path) -> None:
    home, cache = tmp_path / "home", box.state
    assert box.run("record").returncode == 0
    recorder = box.recorder_pid()
    (tmp_path / "spare").mkdir()
    (tmp_path / f"spare/rgt-agent-{os.geteuid()}-abc").mkdir(mode=0o700)
    shutil.copy(box.path, tmp_path / f"spare/rgt-agent-{os.geteuid()}-abc")
    box.env.pop("RGT_STATE_DIR")
    box.env["RGT_STATE_DIR"] = str(cache)
    (cache / "hashes.jsonl").write_text("{}\n")
    (cache / "rgt-box-0123456789abcdef.pyz.77.tmp").write_text("torn")
    (home / "run").mkdir()
    (home / "run/step-7.pt").write_text("a checkpoint")
    (home / "results.json").write_text("{}")
    (cache / "ring/of-mine").mkdir()

    before = files(home)
    status, end, seen = remove(box, "--dry-run")
    assert (status, end["refused"], set(seen.values())) == (0, [], {None})
    assert files(home) >= before and box.recorder_pid() == recorder
    assert end["bytes"] > 1 << 20

    status, end, gone = remove(box)
    assert (status, end["refused"], end["failed"]) == (0, [], [])
    assert set(seen) - {".cache/rgt/recorder.json"} <= set(gone)
    assert files(home) == {"run/step-7.pt", "results.json"}
    assert (cache / "ring/of-mine").is_dir(), "a directory that is not rgt's"
    assert not list((tmp_path / "spare").iterdir())
    assert recorder is not None
    until(lambda: not Path(f"/proc/{recorder}").exists(), "the end of the recorder")


def test_what_is_not_rgts_stays_with_its_directory(box: Agent) -> None:
    (box.state / "notes.txt").write_text("mine")
    (box.state / "found.json").symlink_to(box.state.parent.parent / "precious")
    (box.state.parent.parent / "precious").write_text("{}")
    status, _, gone = remove(box)
    assert status == 0
    assert files(box.state) == {"notes.txt", "found.json"}
    assert ".cache/rgt/found.json" not in gone


def test_a_box_that_is_to_stop_itself_keeps_what_would_stop_it(box: Agent) -> None:
    asked = {"mode": "idle", "action": "ask", "boot": "b", "instance": "i", "box": "lab"}
    plan = armed_plan.bind_plan(armed_plan.parse_request(asked), ClockReading(1.0, 1.0, 1.0), None)
    armed_plan.save_plans(str(box.state), {"idle": plan})
    (box.state / "sink.json").write_text('{"token": "secret"}')
    before = files(box.state)
    status, end, _ = remove(box)
    assert status == 1 and files(box.state) >= before
    assert "armed to stop itself (idle)" in end["refused"][0] and "--disarm" in end["refused"][0]
    assert remove(box, "--old")[1]["refused"] == []
    armed_plan.save_plans(str(box.state), {})
    status, end, gone = remove(box)
    assert (status, end["refused"], files(box.state)) == (0, [], set())
    assert ".cache/rgt/sink.json" in gone, "a token is not left behind"


def test_nothing_is_removed_while_a_queue_runs(box: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"], ["a"])
    runner = box.start("queue", "run", "--job", str(job))
    try:
        until(lambda: (job / "runner.lock").exists() and (job / "logs").exists(), "the runner")
        before = files(box.state)
        for words in ([], ["--job", str(job)]):
            status, end, _ = remove(box, *words)
            assert status == 1
            assert any("queue" in why for why in end["refused"]), end
        assert files(box.state) >= before
    finally:
        (job / "go").touch()
        runner.kill()
        runner.wait()


def test_nothing_is_removed_while_another_rgt_watches(box: Agent) -> None:
    box.watch().expect(lambda frame: True, "the hello")
    status, end, _ = remove(box)
    assert (status, "another rgt is watching" in end["refused"][0]) == (1, True)
    assert box.path.exists() and box.recorder_pid()


@pytest.mark.parametrize("how", ["argument", "relative", "environment", "shell"])
def test_a_trainer_that_a_process_names_is_kept(box: Agent, how: str) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    path, env = str(box.state / TRAINER), dict(os.environ)
    words = [
        sys.executable,
        "-c",
        code,
        *([path] if how == "argument" else [TRAINER] if how == "relative" else []),
    ]
    if how == "environment":
        env["PYTHONPATH"] = path
    if how == "shell":
        words = ["sh", "-c", f"echo up; read x; exec python '{path}' --task x"]
    process = subprocess.Popen(
        words, cwd=box.state, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        status, _, seen = remove(box)
    finally:
        process.kill()
        process.communicate()
    kept = {name: why for name, why in seen.items() if why}
    assert (status, list(kept)) == (1, [f".cache/rgt/{TRAINER}"])
    assert f"process {process.pid}" in str(kept[f".cache/rgt/{TRAINER}"])
    assert files(box.state) == {TRAINER}


def test_the_same_version_of_somebody_else_is_another_file(box: Agent, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.copy(box.state / TRAINER, theirs)
    code = "import time; print('up', flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(theirs / TRAINER)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert remove(box)[0] == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("what", ["a look whether it is there", "a file that has gone"])
def test_who_only_asks_or_named_another_file_is_in_no_doubt(
    box: Agent, tmp_path: Path, what: str
) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    look = ["exec(...)", "look", box.path.name, "0" * 64, "1"]
    words = (
        look
        if what.startswith("a look")
        else [str(tmp_path / "ended" / box.path.name), "queue", "run"]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert remove(box)[0] == 0
    finally:
        process.kill()
        process.communicate()


def test_old_takes_older_agents_alone(box: Agent) -> None:
    assert box.run("record").returncode == 0
    status, _, gone = remove(box, "--old")
    assert (status, gone) == (0, {f".cache/rgt/{OLD}": None})
    assert box.path.exists() and (box.state / TRAINER).exists() and box.recorder_pid()


def script(box: Agent, name: str, text: str) -> None:
    path = Path(box.env["PATH"]) / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("program", "text", "words"), [
    ("squeue", "exit 1", "Slurm does not list"),
    ("kubectl", "exit 1", "Kubernetes does not list"),
    ("kubectl", f"echo '{{\"command\": \"python3 /claim/{OLD} queue cell\"}}'", "Kubernetes"),
    ("crontab", f"echo '@reboot python3 ~/.cache/rgt/{OLD} queue run'", "crontab"),
])  # fmt: skip
def test_what_is_named_elsewhere_or_cannot_be_asked_is_kept(
    box: Agent, program: str, text: str, words: str
) -> None:
    script(box, program, text)
    box.env["KUBECONFIG"] = "named"
    status, _, seen = remove(box, "--old")
    assert status == 1 and words in str(seen[f".cache/rgt/{OLD}"])
    assert (box.state / OLD).exists()


def test_programs_without_a_cluster_are_no_doubt(box: Agent) -> None:
    script(
        box,
        "squeue",
        "echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1",
    )
    script(box, "kubectl", "exit 1")
    box.env.pop("KUBECONFIG", None)
    status, _, seen = remove(box, "--old")
    assert (status, seen) == (0, {f".cache/rgt/{OLD}": None})


def test_the_batch_script_of_a_queue_that_is_not_through_names_its_agent(
    box: Agent, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "runner.sbatch").write_text(
        f"#!/bin/sh\nexec python3 /nfs/home/me/.cache/rgt/{OLD} queue run\n"
    )
    status, _, seen = remove(box, "--old", "--job", str(job))
    assert status == 1 and "runner.sbatch" in str(seen[f".cache/rgt/{OLD}"])
    (job / "state.json").write_text('{"done": true, "cells": []}')
    assert remove(box, "--old", "--job", str(job))[0] == 0


def test_a_home_that_other_hosts_share_keeps_its_agents(box: Agent) -> None:
    (box.state / "host-gpu02-0a1b2c3d").mkdir()
    (box.state / "host-gpu02-0a1b2c3d/recorder.json").write_text("{}")
    assert box.run("record").returncode == 0
    status, _, seen = remove(box)
    assert status == 1
    kept = (box.path.name, OLD, TRAINER, "host-gpu02-0a1b2c3d")
    assert {name for name, why in seen.items() if why} == {f".cache/rgt/{name}" for name in kept}
    assert "gpu02" in str(seen[f".cache/rgt/{OLD}"])
    assert files(box.state) == {box.path.name, OLD, TRAINER, "host-gpu02-0a1b2c3d/recorder.json"}


def test_a_job_in_the_queue_of_a_real_slurm_refuses_and_keeps(box: Agent, tmp_path: Path) -> None:
    batch = tmp_path / "sweep.sh"
    batch.write_text(f"#!/bin/sh\nexec python3 {box.state}/{OLD} queue run\n")
    with running(tmp_path / "slurm") as slurm:
        box.env.update({key: slurm.env[key] for key in ("SLURM_CONF", "PATH")})
        held = ["sbatch", "--parsable", "--hold", str(batch)]
        number = subprocess.run(
            held, env=box.env, capture_output=True, text=True, check=True
        ).stdout.strip()
        # Until Slurm answers in time: one that is slow is a doubt of its own, and keeps the file as well.
        until(
            lambda: f"Slurm job {number}" in str(remove(box, "--old")[2][f".cache/rgt/{OLD}"]),
            "its word",
        )
        assert remove(box, "--old")[0] == 1
        status, end, _ = remove(box)
        # The first reason may be another: a Slurm that is slow to answer is a doubt of its own.
        assert status == 1
        assert any(
            f"Slurm job {number} will run the agent" in reason for reason in end["refused"]
        ), end
        subprocess.run(["scancel", number], env=box.env, check=True)
        until(lambda: remove(box, "--old")[0] == 0, "a queue without it")


@pytest.mark.parametrize("whose", ["another-host-is-there", "its-recorder-lives", "nobody's"])
def test_the_history_that_may_be_another_host_s_stays(box: Agent, whose: str) -> None:
    """An earlier rgt kept it right in ``~/.cache/rgt``, whichever host it ran on."""
    cache = box.state
    (cache / "ring").mkdir()
    (cache / "ring/000000000001.seg").write_bytes(b"theirs")
    if whose == "another-host-is-there":
        (cache / "host-gpu02-0").mkdir()
    box.env.pop("RGT_STATE_DIR")
    assert box.run("record").returncode == 0
    with (cache / "recorder.lock").open("w") as held:
        if whose == "its-recorder-lives":
            fcntl.flock(held, fcntl.LOCK_EX)
        status, _, _ = remove(box)
    assert status == (1 if whose == "another-host-is-there" else 0)
    assert (cache / "ring/000000000001.seg").exists() == (whose != "nobody's")
    assert not [path for path in cache.glob("host-*") if "gpu02" not in path.name]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("nfs4", "on nfs4"), ("fuse.sshfs", "on fuse.sshfs"), ("", "on an unknown"), ("ext4", None)],
)
def test_a_home_on_a_mount_that_others_may_have_keeps_its_agents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, why: str | None
) -> None:
    """Another host of that home may have been away for so long that nothing tells of it."""
    monkeypatch.setattr(disks, "mount_table", lambda: [("/", kind)])
    said = verb.why_maybe_shared(str(tmp_path), str(tmp_path / "host-mine"))
    assert (said is None) if why is None else (said is not None and why in said)


def test_what_cannot_be_removed_is_named_and_counts_as_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("000000000001.seg", "000000000002.seg", "000000000003.seg"):
        (tmp_path / name).write_bytes(b"x")
    real = os.unlink

    def refused(path: str) -> None:
        if path.endswith("1.seg"):
            raise PermissionError(1, "Operation not permitted", path)
        real(path)

    failed: list[str] = []
    monkeypatch.setattr(os, "unlink", refused)
    assert verb.remove_item(str(tmp_path), failed) is False
    assert failed == [f"{tmp_path}/000000000001.seg: Operation not permitted"]

    def gone(path: str) -> None:
        real(path)
        if path.endswith("1.seg"):
            raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(os, "unlink", gone)
    assert verb.remove_item(str(tmp_path), failed) is True, (
        "somebody else was quicker with one of them"
    )
    assert not list(tmp_path.iterdir()) and len(failed) == 1
