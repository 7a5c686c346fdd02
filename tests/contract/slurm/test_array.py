"""A queue as a job array on a real Slurm: preempted, requeued, resumed to the same bits; a time limit, a cancel."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_train import cli

from rgt_tui.model import BoxEvent, Sample
from tests.contract.slurm.cluster import Cluster, eventually, running
from tests.process.box.harness import Agent, make_job

pytestmark = (
    pytest.mark.serial
)  # the node has the cores of this machine, and Slurm keeps time by its own clock

ROOT = Path(__file__).parents[3]
TRAIN = [
    sys.executable, "-m", "rgt_train", "--task", "{task}", "--epochs", "{epochs}", "--out", "{out}",
    "--set", "steps_per_epoch=40", "--set", "save_every=10", "--set", "width=16", "--set", "layers=1",
    "--set", "context=16", "--set", "batch=4", "--set", "threads=1",
]  # fmt: skip
PACED = 'if [ -e "$0" ]; then pace=5; else pace=400; fi; exec "$@" --set pace_ms=$pace'
"""So slow that it is preempted in the middle, without a CPU for it, and quick once the file is there."""
EPOCHS = 8
SLOW = "trap 'echo saved; exit 75' TERM; echo up >> {name}.up; while :; do [ -e ok.{name} ] && exit 0; sleep 0.05; done"


@pytest.fixture
def slurm(tmp_path: Path, agent: Agent) -> Iterator[Cluster]:
    """A cluster that the agent's processes can reach."""
    with running(tmp_path / "slurm") as cluster:
        agent.env.update(cluster.env, PYTHONPATH=str(ROOT / "remote"))
        yield cluster


def detach(agent: Agent, job: Path) -> str:
    """Submit a job's queue; returns the array's number."""
    done = agent.run("detach", "--job", str(job))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["how"] == "slurm"
    return str(told["session"])


def cells(agent: Agent, job: Path) -> dict[str, dict[str, Any]]:
    """Return the cells of the queue as an onlooker sees them."""
    frame = json.loads(agent.run("queue", "status", "--job", str(job)).stdout)
    return {cell["name"]: cell for cell in frame["cells"]}


def markers(job: Path) -> list[str]:
    """Return what the runners wrote into master.log."""
    path = job / "master.log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_preempted_array_resumes_to_the_same_bits(
    slurm: Cluster, agent: Agent, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    job = make_job(
        tmp_path / "job",
        ["sh", "-c", PACED, str(seen), *TRAIN, "--seed", "7"],
        ["a", "b"],
        detach="slurm",
        parallel=2,
        default_epochs=EPOCHS,
    )
    (job / "queue.txt").write_text("a.toml char_lm\nb.toml char_lm\n")
    array = detach(agent, job)
    metrics = [job / "out" / name / "metrics.jsonl" for name in "ab"]
    eventually(
        lambda: all(
            path.exists() and '"event": "checkpoint"' in path.read_text() for path in metrics
        ),
        "two saves",
    )
    frame = json.loads(agent.run("queue", "status", "--job", str(job)).stdout)
    assert frame["runner_alive"]
    assert [cell["state"] for cell in frame["cells"]] == ["running", "running"], "both at once"
    until_seen = f"while [ ! -e {seen} ]; do sleep 0.2; done\n"
    urgent = slurm.submit(tmp_path, until_seen, "--partition=high", "--exclusive", "--time=10")
    eventually(lambda: slurm.states(urgent) == ["RUNNING"], "the urgent job")
    assert {cell["state"] for cell in cells(agent, job).values()} == {"interrupted"}
    notice = json.loads((agent.state / "preemption.json").read_bytes())
    assert (notice["source"], notice["action"]) == ("Slurm", "preempted")
    assert notice["asked"] == ["a", "b"]
    assert notice["ends"] - notice["at"] <= 20, "KillWait of the cluster"
    seen.touch()
    eventually(lambda: slurm.states(urgent) == [], "the end of the urgent job")
    eventually(lambda: slurm.states(array) == [], "the end of the array")
    after = cells(agent, job)
    assert [(cell["state"], cell["attempts"]) for cell in after.values()] == [
        ("done", 2),
        ("done", 2),
    ]
    assert markers(job).count("QUEUE DONE") == 1
    assert sorted(line for line in markers(job) if "exit=75" in line) == [
        "FINISHED a exit=75",
        "FINISHED b exit=75",
    ]
    for path in metrics:
        assert '"event": "resume"' in path.read_text()
    straight(tmp_path / "straight")
    expected = final_losses(tmp_path / "straight")
    assert len(expected) == 40 * EPOCHS
    for name in "ab":
        assert final_losses(job / "out" / name) == expected, "the bits of the uninterrupted run"


def straight(out: Path) -> None:
    """Train the same without any interruption."""
    fill = {"{task}": "char_lm", "{epochs}": str(EPOCHS), "{out}": str(out)}
    python, dash_m, module, *words = TRAIN
    assert [python, dash_m, module] == [sys.executable, "-m", "rgt_train"]
    assert cli.main([fill.get(word, word) for word in (*words, "--seed", "7")]) == 0


def final_losses(out: Path) -> dict[int, float]:
    """Return step → loss; of steps that were logged twice the later line counts."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row and "event" not in row}


def test_a_time_limit_puts_every_task_back_and_a_cancelled_one_stays_out(
    slurm: Cluster, agent: Agent, tmp_path: Path
) -> None:
    # Slurm looks at --signal in steps of half a minute: 50 s before a limit of one minute comes within seconds.
    job = make_job(
        tmp_path / "job", ["sh", "-c", SLOW], ["a", "b"], detach="slurm", parallel=1 + 1,
        sbatch=["--time=1", "--signal=B:TERM@50"],
    )  # fmt: skip
    channel = agent.watch(jobs=[str(job)])
    array = detach(agent, job)

    def starts(name: str) -> int:
        path = job / f"{name}.up"
        return path.read_text().count("up") if path.exists() else 0

    eventually(lambda: starts("a") and starts("b"), "two tasks")
    numbers = slurm.ask("squeue", "-h", "-r", "-j", array, "-o", "%A").split()
    assert array in numbers, "one of the two has the number of the array itself"
    event = channel.expect(lambda frame: isinstance(frame, BoxEvent) and frame.kind == "preemption")
    assert event.text.startswith("Slurm takes a job away (time limit) at "), event.text
    sample = channel.expect(
        lambda frame: (
            isinstance(frame, Sample) and frame.notice and frame.notice.asked == ("a", "b")
        )
    )
    assert 0 < sample.notice.ends - sample.notice.at <= 55, "the seconds of --signal"
    eventually(lambda: starts("a") == starts("b") == 2, "both tasks, back after their time was up")
    assert sorted(markers(job))[:2] == ["FINISHED a exit=75", "FINISHED b exit=75"]
    for index in "01":
        assert "requeued in Slurm" in (job / f"runner.out.{index}").read_text()
    subprocess.run(["scancel", f"{array}_1"], env=slurm.env, check=True)
    eventually(lambda: markers(job).count("FINISHED b exit=75") == 2, "the cancelled one to save")
    kept = json.loads((agent.state / "preemption.json").read_bytes())
    assert kept["at"] == sample.notice.at, "a cancel is nobody's preemption"
    (job / "ok.a").touch()
    eventually(lambda: slurm.states(array) == [], "the end of the array")
    after = cells(agent, job)
    assert after["a"]["state"] == "done"
    assert (after["b"]["state"], after["b"]["attempts"]) == ("interrupted", 2)
    assert "QUEUE DONE" not in markers(job)
    assert f"not requeued: job {array}_1 is " in (job / "runner.out.1").read_text()
    (job / "ok.b").touch()
    again = detach(agent, job)
    assert again != array
    assert "--array=1%2" in (job / "runner.sbatch").read_text(), "only what is not done gets a task"
    eventually(lambda: "QUEUE DONE" in markers(job), "the last cell")
