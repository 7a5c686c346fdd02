from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue import detach, queue_state
from rgt_box.queue.queue_file import Job

from tests.process.box.harness import Agent, decode, make_job, until

SLOW = "[ -e ok ] && exit 0; trap 'exit 75' TERM; while :; do sleep 0.02; done"


def status(agent: Agent, job: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agent.run("queue", "status", "--job", str(job)).stdout)
    return found


def named(frame: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {cell["name"]: (cell["state"], cell["attempts"]) for cell in frame["cells"]}


def lane(agent: Agent, job: Path, index: int) -> subprocess.Popen[bytes]:
    process = agent.start("queue", "cell", "--job", str(job), "--index", str(index))
    name = "abc"[index]
    until(lambda: named(status(agent, job))[name][0] == "running", f"{name} to run")
    return process


def cell_pid(job: Path, name: str) -> int:
    """Return the pid of a lane's cell: it stands there a moment later than that the cell runs."""
    state = job / "lanes" / f"{name}.json"
    return int(until(lambda: json.loads(state.read_bytes()).get("cell_pid"), "the pid of the cell"))


def end(process: subprocess.Popen[bytes]) -> int:
    process.communicate()
    return process.returncode


def test_lanes_run_side_by_side_and_the_last_one_closes_the_queue(
    agent: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", SLOW], ["a", "b", "c"])
    first, second = lane(agent, job, 0), lane(agent, job, 1)
    frame = status(agent, job)
    assert frame["runner_alive"]
    assert named(frame) == {"a": ("running", 1), "b": ("running", 1), "c": ("waiting", 0)}
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        assert end(process) == 128 + signal.SIGTERM
    assert named(status(agent, job)) == {
        "a": ("interrupted", 1),
        "b": ("interrupted", 1),
        "c": ("waiting", 0),
    }
    assert not status(agent, job)["runner_alive"]
    (job / "ok").touch()
    master = job / "master.log"
    for index in (2, 0):
        assert agent.run("queue", "cell", "--job", str(job), "--index", str(index)).returncode == 0
        assert "QUEUE DONE" not in master.read_text()
    assert agent.run("queue", "cell", "--job", str(job), "--index", "1").returncode == 0
    assert master.read_text().endswith("QUEUE DONE\n")
    frame = status(agent, job)
    assert frame["done"]
    assert named(frame) == {"a": ("done", 2), "b": ("done", 2), "c": ("done", 1)}
    assert agent.run("queue", "cell", "--job", str(job), "--index", "1").returncode == 0
    assert master.read_text().count("QUEUE DONE") == 1, "done is done"


def test_a_killed_lane_is_shown_as_interrupted_and_goes_on(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", SLOW], ["a", "b"])
    process = lane(agent, job, 0)
    pid = cell_pid(job, "a")
    process.kill()
    process.communicate()
    os.killpg(pid, signal.SIGKILL)
    assert named(status(agent, job))["a"][0] == "interrupted"
    (job / "ok").touch()
    assert agent.run("queue", "cell", "--job", str(job), "--index", "0").returncode == 0
    assert named(status(agent, job))["a"] == ("done", 2)


def test_nobody_runs_a_cell_twice_at_once(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", SLOW], ["a", "b"])
    process = lane(agent, job, 0)
    again = agent.run("queue", "cell", "--job", str(job), "--index", "0")
    assert (again.returncode, b"lane is locked" in again.stderr) == (3, True)
    whole = agent.run("queue", "run", "--job", str(job))
    assert (whole.returncode, b"running in separate lanes: a" in whole.stderr) == (3, True)
    process.send_signal(signal.SIGTERM)
    end(process)
    runner = agent.start("queue", "run", "--job", str(job))
    until(lambda: named(status(agent, job))["a"] == ("running", 2))
    other = agent.run("queue", "cell", "--job", str(job), "--index", "1")
    assert (other.returncode, b"on the queue of" in other.stderr) == (3, True)
    runner.send_signal(signal.SIGTERM)
    end(runner)


def test_a_runner_of_the_whole_queue_knows_what_the_lanes_did(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b"])
    assert agent.run("queue", "cell", "--job", str(job), "--index", "1").returncode == 0
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    starts = [
        line for line in (job / "master.log").read_text().splitlines() if line.startswith("START")
    ]
    assert starts == ["START b attempt=1", "START a attempt=1"]


def test_a_failed_cell_that_runs_once_more_closes_the_queue_once_more(
    agent: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", "[ -e ok ]"], ["a"])
    assert agent.run("queue", "cell", "--job", str(job), "--index", "0").returncode == 1
    assert status(agent, job)["done"]
    (job / "ok").touch()
    assert agent.run("queue", "cell", "--job", str(job), "--index", "0").returncode == 0
    assert named(status(agent, job)) == {"a": ("done", 2)}
    assert status(agent, job)["done"]


@pytest.mark.parametrize("name", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_the_engine_says_which_cell(agent: Agent, tmp_path: Path, name: str) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b"])
    assert agent.run("queue", "cell", "--job", str(job), env={name: "1"}).returncode == 0
    assert named(status(agent, job)) == {"a": ("waiting", 0), "b": ("done", 1)}


@pytest.mark.parametrize("index", ["2", "-1", "x", "auto"])
def test_a_number_that_is_no_cell_is_refused(agent: Agent, tmp_path: Path, index: str) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b"])
    done = agent.run("queue", "cell", "--job", str(job), "--index", index)
    assert done.returncode == 2
    assert b"the queue has the cells 0 to 1" in done.stderr


def test_a_watch_sees_the_cells_of_all_lanes(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", SLOW], ["a", "b"])
    channel = agent.watch(proto=1, jobs=[str(job)], interval=0.1)
    process = lane(agent, job, 1)
    seen = channel.expect(
        lambda f: getattr(f, "cells", ()) and f.cells[1].state == "running", "b running"
    )
    assert seen.runner_alive
    pid = cell_pid(job, "b")
    sample = channel.expect(
        lambda f: any(p.pid == pid for p in getattr(f, "procs", ())), "its process"
    )
    assert next(p.run for p in sample.procs if p.pid == pid) == "b"
    process.send_signal(signal.SIGTERM)
    end(process)
    channel.expect(
        lambda f: getattr(f, "cells", ()) and f.cells[1].state == "interrupted", "b interrupted"
    )
    channel.close()


def test_of_two_accounts_of_a_cell_the_one_written_last_counts() -> None:
    old = [{"name": "a", "state": "waiting"}, {"name": "b", "state": "done"}]
    lane_of_a = {"at": 20.0, "cells": [{"name": "a", "state": "running"}]}
    assert queue_state.overlay_cells(old, 10.0, {"a": lane_of_a})[0]["state"] == "running"
    assert queue_state.overlay_cells(old, 30.0, {"a": lane_of_a})[0]["state"] == "waiting"
    assert queue_state.overlay_cells([], None, {"a": lane_of_a}) == lane_of_a["cells"]


def test_a_damaged_lane_is_passed_over(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path / "job", ["true"], ["a"])))
    Path(queue_state.lanes_folder(job)).mkdir()
    Path(queue_state.lane_state_path(job, "a")).write_text('{"cells": [')
    assert queue_state.load_state(job)["cells"] == []
    Path(queue_state.lane_state_path(job, "a")).write_text('{"at": 5, "cells": [3, {"name": "b"}]}')
    assert queue_state.load_state(job)["cells"] == []


def test_ranges_as_sbatch_takes_them() -> None:
    assert detach.sbatch_ranges([0, 1, 2, 3, 7]) == "0-3,7"
    assert detach.sbatch_ranges([5, 4, 4]) == "4-5"
    assert detach.sbatch_ranges([9]) == "9"


def test_the_array_holds_what_is_not_done(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b", "c"], detach="slurm", parallel=2)
    assert agent.run("queue", "cell", "--job", str(job), "--index", "1").returncode == 0
    done = agent.run("detach", "--job", str(job), "--print", "slurm")
    script = done.stdout.decode()
    assert "#SBATCH --array=0,2%2\n" in script
    assert "#SBATCH --requeue\n" in script
    assert " queue cell --job " in script


def test_a_line_commented_out_moves_no_other_cell(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b", "c"], detach="slurm", parallel=2)
    assert agent.run("queue", "cell", "--job", str(job), "--index", "1").returncode == 0, (
        "places, before any"
    )
    assert agent.run("detach", "--job", str(job), "--print", "slurm").returncode == 0
    queue = job / "queue.txt"
    queue.write_text("d.toml lm\n# b.toml lm\na.toml lm\nc.toml lm\n")
    (job / "d.toml").touch()
    assert (
        b"#SBATCH --array=0,2-3%2\n"
        in agent.run("detach", "--job", str(job), "--print", "slurm").stdout
    )
    assert json.loads((job / "indexes.json").read_text()) == {"cells": ["a", "b", "c", "d"]}
    for index in "23":
        assert agent.run("queue", "cell", "--job", str(job), "--index", index).returncode == 0
    gone = agent.run("queue", "cell", "--job", str(job), "--index", "1")
    assert (gone.returncode, gone.stdout) == (
        0,
        b"b: its line is no longer in queue.txt; nothing to run\n",
    )
    assert named(status(agent, job)) == {"d": ("done", 1), "a": ("waiting", 0), "c": ("done", 1)}
    pods = agent.run(
        "detach", "--job", str(job), "--print", "k8s", "--image", "i", "--claim", f"x:{tmp_path}"
    )
    assert b"  completions: 4\n" in pods.stdout
    for text in ("", '{"cells": [1]}'):
        (job / "indexes.json").write_text(text)
        refused = agent.run("queue", "cell", "--job", str(job), "--index", "0")
        assert (refused.returncode, b"indexes.json is damaged" in refused.stderr) == (2, True)
        assert agent.run("detach", "--job", str(job), "--print", "slurm").returncode == 2


def test_parallel_needs_an_engine_that_can(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"], detach="tmux", parallel=4)
    done = agent.run("queue", "check", "--job", str(job))
    assert done.returncode == 2
    assert b'"parallel" needs "detach": "slurm"' in done.stdout


def test_an_indexed_job_has_a_pod_for_each_cell(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path / "job", ["true"], ["a", "b", "c"], parallel=2)))
    text = detach.kubernetes_manifest(job, ["python3"], "image", [f"data:{tmp_path}"], 1, 3)
    assert "  completions: 3\n  parallelism: 2\n  backoffLimitPerIndex: 20\n" in text
    assert re.findall('action: "(.*)"', text) == ["FailIndex", "Ignore"]
    assert '  completionMode: "Indexed"' in text


def test_the_pods_of_an_indexed_job_make_it_and_run_their_own_cells(
    agent: Agent, tmp_path: Path
) -> None:
    wait = "echo {name}; while [ ! -e ok ]; do sleep 0.02; done"
    claim, image = tmp_path / "claim", tmp_path / "image"
    image.mkdir()
    for cell in "abc":
        (image / f"{cell}.toml").write_text("")
    lines = ["a.toml lm 2", "b.toml lm", "c.toml lm"]
    asked = {"name": "sweep", "digest": "1", "words": ["sh", "-c", wait, "{out}"],
             "workdir": str(image), "data": str(claim), "jobs": f"{claim}/jobs", "lines": lines}  # fmt: skip
    job = claim / "jobs" / "sweep"
    claim.mkdir()
    (request := tmp_path / "sweep.json").write_text(json.dumps(asked))

    def start_pod(index: int) -> subprocess.Popen[bytes]:
        env = agent.env | {"JOB_COMPLETION_INDEX": str(index)}
        with request.open("rb") as stdin:
            return subprocess.Popen(agent.command("queue", "pod"), stdin=stdin, env=env)

    pods = [start_pod(0), start_pod(1)]
    until(lambda: (job / "lanes").is_dir())
    until(lambda: [state for state, _ in named(status(agent, job)).values()][:2] == ["running"] * 2)
    assert start_pod(1).wait(60) == 75, "the Job tries again"
    agent.run("queue", "take-out", "--job", str(job), "--cell", "c")
    (image / "ok").touch()
    assert [pod.wait(60) for pod in pods] == [0, 0]
    assert named(status(agent, job)) == {"a": ("done", 1), "b": ("done", 1)}
    assert start_pod(2).wait(60) == 0
    assert "c" not in named(status(agent, job)), "a line that was taken out stays out"
    assert (job / "logs" / "b.log").read_text().count("b") == 1
    assert start_pod(3).wait(60) == 2
    request.write_text(json.dumps({**asked, "digest": "2"}))
    refused = agent.run(
        "queue", "pod", stdin=request.read_bytes(), env={"JOB_COMPLETION_INDEX": "0"}
    )
    assert (refused.returncode, b"another command or other code" in refused.stderr) == (2, True)


def test_the_volumes_of_a_pod(tmp_path: Path) -> None:
    """One volume for each claim, whatever its name; and shared memory, of which a container has next to none."""
    job = Job(str(make_job(tmp_path / "job", ["true"], ["a"])))
    claims = [f"team.data:{tmp_path}", "team.data:/models", "vol-0:/other/"]
    text = detach.kubernetes_manifest(job, ["python3"], "image", claims, 0, 1)
    names = [
        line.split('"')[1] for line in text.splitlines() if line.lstrip(" -").startswith("name: ")
    ]
    assert names[1:] == ["runner", "vol-0", "vol-0", "vol-1", "shm", "vol-0", "vol-1", "shm"]
    assert text.count('claimName: "team.data"') == text.count('claimName: "vol-0"') == 1
    assert 'mountPath: "/dev/shm"' in text and 'emptyDir:\n            medium: "Memory"' in text
    assert "shm" not in detach.kubernetes_manifest(
        job, ["python3"], "image", [f"a:{tmp_path}", "b:/dev/shm"], 0, 1
    ).replace("/dev/shm", "")


def test_the_names_of_jobs_and_their_pods() -> None:
    name = detach.job_name
    assert name("/x/run") != name("/y/run"), "one would replace the other"
    assert name("/x/run") == name("/x/run")
    for folder in ("/", "/a/--", "/a/My_Job.é", "/a/" + "x" * 100, "/a/" + "x-" * 40):
        last = f"{name(folder)}-99999"
        assert re.fullmatch(r"rgt-[a-z0-9]([-a-z0-9]*[a-z0-9])?", last)
        assert len(last) <= 63


def test_queue_frames_still_decode(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    assert agent.run("queue", "cell", "--job", str(job), "--index", "0").returncode == 0
    frame = decode(agent.run("queue", "status", "--job", str(job)).stdout)
    assert frame.cells[0].state == "done"
