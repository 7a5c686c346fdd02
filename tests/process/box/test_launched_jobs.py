"""The recorder learns of a job from its launch, not from a client that names it."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.recorder import state_files

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, make_job, until

TRAIN = """
import os, sys, time
go = sys.argv[1]
for step in range(1000000):
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    if os.path.exists(go):
        sys.exit(int(open(go).read()))
    time.sleep(0.05)
"""


@pytest.fixture
def box(agent: Agent, tmp_path: Path) -> Agent:
    agent.env.update(HOME=str(tmp_path), RGT_FIND_SECONDS="0.5")
    return agent


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory of a name that no other test on this machine has, with somebody's training script."""
    folder = tmp_path / f"exp{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture
def job(code: Path) -> Iterator[Path]:
    go = code / "go"
    made = make_job(
        code / "job",
        [sys.executable, str(code / "train.py"), str(go)],
        ["a"],
        detach="setsid",
        retries=0,
    )
    yield made
    end(code, 0)
    until(lambda: not is_running(made), "the end of the job")


def is_running(job: Path) -> bool:
    try:
        state = json.loads((job / "state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return "cell_pid" in state and Path(f"/proc/{state['cell_pid']}").exists()


def end(code: Path, status: int) -> None:
    (code / "go.part").write_text(str(status))
    os.replace(code / "go.part", code / "go")


def found_of(code: Path, frame: Any) -> list[protocol.FoundRun]:
    """The runs of a frame that work in the code's directory; others train on this machine as well."""
    if not isinstance(frame, protocol.FoundRuns):
        return []
    return [run for run in frame.runs if run.cwd == str(code / "job")]


@pytest.mark.parametrize("status", [0, 3])
def test_how_a_run_ended_is_known_although_no_client_named_its_job(
    box: Agent, code: Path, job: Path, status: int
) -> None:
    watcher = box.watch(interval=0.1, find=True)
    watcher.sync()
    assert box.run("launch", "--job", str(job), "--seconds", "20").returncode == 0
    watcher.expect(
        lambda frame: [run for run in found_of(code, frame) if run.alive], "the run is found"
    )
    watcher.kill()
    end(code, status)
    until(lambda: not is_running(job), "the end of the run")

    later = box.watch(interval=0.1, find=True)
    frame = later.expect(
        lambda frame: [run for run in found_of(code, frame) if not run.alive],
        "the run is known to have ended",
    )
    (run,) = found_of(code, frame)
    assert run.exit_code == status
    later.kill()

    named = box.watch(interval=0.1, find=True, jobs=[str(job)])
    cells = named.expect(lambda frame: isinstance(frame, protocol.QueueState), "the queue").cells
    assert [(cell.state, cell.exit_code) for cell in cells] == [
        ("failed" if status else "done", status)
    ]
    until(
        lambda: code.name not in (box.state / "found.json").read_text(),
        "the found run gives way to the queue's",
    )


def test_the_recorder_says_how_the_cells_of_an_unnamed_job_end(
    box: Agent, code: Path, job: Path
) -> None:
    watcher = box.watch(interval=0.1, find=True)
    watcher.sync()
    end(code, 0)
    assert box.run("launch", "--job", str(job), "--seconds", "20").returncode == 0
    seen = []
    for frame in watcher.frames():
        if isinstance(frame, protocol.BoxEvent):
            seen.append(frame)
            if frame.kind == "queue-done":
                break
    texts = [event.text for event in seen]
    assert "a: running, attempt 1" in texts and "a: done, exit 0" in texts


def test_a_smoke_command_is_no_run(box: Agent, code: Path, job: Path) -> None:
    settings = json.loads((job / "job.json").read_bytes())
    settings["smoke"] = [sys.executable, str(code / "train.py"), str(code / "smoked")]
    (job / "job.json").write_text(json.dumps(settings))
    watcher = box.watch(interval=0.1, find=True)
    watcher.sync()
    launch = box.start("launch", "--job", str(job), "--seconds", "20")
    try:
        watcher.expect(
            lambda frame: (
                isinstance(frame, protocol.Sample)
                and any(proc.run == "job (smoke)" for proc in frame.procs)
            ),
            "the smoke command is a process of its job",
        )
        looks = until(lambda: count_looks(watcher, code), "looks at the processes")
        assert looks == [[]] * len(looks)
    finally:
        (code / "smoked").write_text("0")
        launch.communicate()
    frame = watcher.expect(lambda frame: found_of(code, frame), "the run itself is found")
    assert [run.alive for run in found_of(code, frame)] == [True]
    report = json.loads((box.state / "found.json").read_bytes())
    mine = [run for run in report["runs"] if run.get("cwd") == str(code / "job")]
    assert [run["cell"] for run in mine] == ["a"]


def count_looks(watcher: Any, code: Path) -> list[list[str]]:
    """What was found of the code in each of the next samples, until the finder has looked more than once."""
    found: list[list[str]] = []
    for frame in watcher.frames():
        if isinstance(frame, protocol.FoundRuns):
            found.append([run.name for run in found_of(code, frame)])
        if isinstance(frame, protocol.Sample):
            found.append(
                [proc.run or "" for proc in frame.procs if proc.run and code.name in proc.run]
            )
        if len(found) > 30:
            return found
    return found


def test_the_newest_jobs_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_STATE_DIR", str(tmp_path / "state"))
    for number in range(state_files.MOST_JOBS + 3):
        state_files.register_job(f"/jobs/{number}")
    state_files.register_job("/jobs/5")
    kept = state_files.LaunchedJobs(str(tmp_path / "state")).read()
    assert len(kept) == state_files.MOST_JOBS and "/jobs/5" in kept and "/jobs/0" not in kept
