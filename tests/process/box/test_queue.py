"""The cell runner with real processes, real signals and tiny shell commands as cells."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.queue import runner
from rgt_box.queue.queue_file import Job
from rgt_box.queue.queue_state import QueueJournal
from rgt_box.sampling import cgroup

from rgt_tui.cli.work.queue_actions import queue_lines
from rgt_tui.model import protocol, time_of_day
from tests.process.box.harness import Agent, decode, make_job, private_mount, until


def state(job: Path) -> dict[str, dict[str, Any]]:
    cells = json.loads((job / "state.json").read_bytes())["cells"]
    return {cell["name"]: cell for cell in cells}


def master(job: Path) -> list[str]:
    path = job / "master.log"
    return path.read_text().splitlines() if path.exists() else []


def sh(script: str) -> list[str]:
    return ["sh", "-c", script, "{name}", "{out}"]


def queue_frame(agent: Agent, job: Path) -> protocol.QueueState:
    frame = decode(agent.run("queue", "status", "--job", str(job)).stdout)
    assert isinstance(frame, protocol.QueueState)
    return frame


def test_cells_have_the_platforms_environment_where_neither_job_nor_runner_sets_it(
    agent: Agent, tmp_path: Path
) -> None:
    """A client tells it on connecting; another one that says nothing of it leaves it, an empty one takes it away."""
    script = sh('echo "$PLATFORM/$FROM_JOB/$FROM_RUNNER"')
    agent.env.update(FROM_RUNNER="mine")
    told = {"PLATFORM": "p", "FROM_JOB": "p", "FROM_RUNNER": "p"}
    steps: list[tuple[dict[str, Any], str]] = [
        ({}, "/job/mine"),
        ({"job_env": told}, "p/job/mine"),
        ({}, "p/job/mine"),
        ({"job_env": {**told, "PLATFORM": "q"}}, "q/job/mine"),
        ({"job_env": {}}, "/job/mine"),
    ]
    for number, (config, expected) in enumerate(steps):
        agent.watch(interval=10, **config).sync()
        job = make_job(tmp_path / f"job{number}", script, ["a"], env={"FROM_JOB": "job"})
        done = agent.run("queue", "run", "--job", str(job))
        assert done.returncode == 0
        assert (job / "logs" / "a.log").read_text() == f"{expected}\n"
        assert (b"set by the platform's profile: PLATFORM\n" in done.stdout) is (expected[0] != "/")


@pytest.mark.parametrize(
    "damaged", [b"", b"[]", b'{"env": 1}', b'{"env": {"A=B": "x", "C": 1, "D": "\\u0000"}}']
)
def test_a_damaged_memory_of_the_platforms_environment_starts_no_cell_otherwise(
    agent: Agent, tmp_path: Path, damaged: bytes
) -> None:
    agent.watch(interval=10, job_env={"A": "x"}).sync()
    (agent.state / "job-env.json").write_bytes(damaged)
    job = make_job(tmp_path / "job", sh('echo "$A$C$D"'), ["a"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert (job / "logs" / "a.log").read_text() == "\n"


def test_cells_run_in_order_and_a_relaunch_has_nothing_to_do(agent: Agent, tmp_path: Path) -> None:
    job = make_job(
        tmp_path / "job",
        sh('echo "cell $0 epochs {epochs} $RGT_CELL $X"'),
        ["a", "b"],
        env={"X": "y"},
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert master(job) == [
        "START a attempt=1",
        "FINISHED a exit=0",
        "START b attempt=1",
        "FINISHED b exit=0",
        "QUEUE DONE",
    ]
    assert (job / "logs" / "a.log").read_text() == "cell a epochs 20 a y\n"
    assert [cell["state"] for cell in state(job).values()] == ["done", "done"]
    again = agent.run("queue", "run", "--job", str(job))
    assert (again.returncode, b"done already" in again.stdout) == (0, True)
    frame = queue_frame(agent, job)
    assert (frame.done, frame.runner_alive, frame.runner_pid, frame.error) == (
        True,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("script", "fields", "marker", "reason"),
    [
        ("exit 3", {"state": "failed", "exit_code": 3, "signal": None}, 3, "exit 3"),
        (
            "kill -9 $$",
            {"state": "failed", "exit_code": None, "signal": "SIGKILL"},
            137,
            "killed by SIGKILL (9)",
        ),
        (
            "kill -11 $$",
            {"state": "failed", "exit_code": None, "signal": "SIGSEGV"},
            139,
            "killed by SIGSEGV (11)",
        ),
        (
            "sh -c 'kill -9 $$'; exit $?",
            {"state": "failed", "exit_code": 137},
            137,
            "a process inside was killed by SIGKILL",
        ),
        ("no-such-program", {"state": "failed", "exit_code": 127}, 127, "command not found"),
    ],
)
def test_ends_are_told_apart(
    agent: Agent, tmp_path: Path, script: str, fields: dict[str, Any], marker: int, reason: str
) -> None:
    job = make_job(tmp_path / "job", sh(script), ["a"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    cell = state(job)["a"]
    assert {key: cell[key] for key in fields} == fields
    assert reason in cell["reason"]
    assert master(job) == ["START a attempt=1", f"FINISHED a exit={marker}", "QUEUE DONE"]


def test_a_command_that_does_not_exist(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["/no/such/thing"], ["a"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    assert state(job)["a"]["reason"] == "exit 127: command not found"
    assert "No such file" in (job / "logs" / "a.log").read_text()


def test_a_failed_cell_does_not_stop_the_others_and_is_tried_again_at_the_next_launch(
    agent: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", sh('[ "$0" != a ] || [ -e ok ]'), ["a", "b"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    assert {name: cell["state"] for name, cell in state(job).items()} == {
        "a": "failed",
        "b": "done",
    }
    (job / "ok").touch()
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert master(job)[-3:] == ["START a attempt=2", "FINISHED a exit=0", "QUEUE DONE"]
    assert state(job)["a"]["reason"] is None


def test_retries_use_the_identical_command_and_are_counted(agent: Agent, tmp_path: Path) -> None:
    job = make_job(
        tmp_path / "job", sh("echo x >> tries; [ $(wc -l < tries) = 3 ]"), ["a"], retries=5
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert state(job)["a"]["attempts"] == 3


def test_a_preempted_cell_stops_the_queue_with_75(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("[ -e ok ] || exit 75"), ["a", "b"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 75
    assert (state(job)["a"]["state"], state(job)["b"]["state"]) == ("interrupted", "waiting")
    assert "preempted" in state(job)["a"]["reason"]
    assert master(job) == ["START a attempt=1", "FINISHED a exit=75"]
    (job / "ok").touch()
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0


def test_lines_appended_while_it_runs_are_picked_up(agent: Agent, tmp_path: Path) -> None:
    job = make_job(
        tmp_path / "job",
        sh('[ "$0" = b ] || { touch b.toml; echo "b.toml lm 7 # more" >> queue.txt; }'),
        ["a"],
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert (list(state(job)), state(job)["b"]["epochs"]) == (["a", "b"], 7)


def test_from_leaves_the_first_cells_alone(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("exit 0"), ["a", "b", "c"])
    assert agent.run("queue", "run", "--job", str(job), "--from", "2").returncode == 4
    assert [cell["state"] for cell in state(job).values()] == ["waiting", "waiting", "done"]
    assert master(job)[-1] == "QUEUE NOT DONE: left out with --from: a, b"
    assert not json.loads(agent.run("queue", "status", "--job", str(job)).stdout)["done"]
    assert agent.run("queue", "run", "--job", str(job), "--from", "9").returncode == 2
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert master(job)[-1] == "QUEUE DONE"


def test_from_means_the_same_cell_whatever_is_commented_out(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh('[ "$0" != b ]'), ["a", "b", "c", "7"])
    prose = "# two words\n#\n# see the notes in a.toml\n"
    (job / "queue.txt").write_text(prose + "# a.toml lm\nb.toml lm\n  #c.toml lm 3\n./7.toml lm\n")
    run = ("queue", "run", "--job", str(job), "--from")
    assert agent.run(*run, "3").returncode == 4
    assert [cell["state"] for cell in state(job).values()] == ["waiting", "done"]
    assert agent.run(*run, "4").returncode == 4, "past the last one there is nothing to run"
    for start in ("c", "7", "./7.toml", "c.toml"):
        (job / "state.json").unlink()
        assert agent.run(*run, start).returncode == 4, start
        assert [cell["state"] for cell in state(job).values()] == ["waiting", "done"], start
    assert agent.run(*run, "b").returncode == 1, "it failed"
    assert agent.run(*run, "7").returncode == 0, "b has had its turn"
    for start, words in (
        ("x", "no cell has this name"),
        ("5", "and the queue has only 4"),
        ("-1", "no cell"),
    ):
        done = agent.run(*run, start)
        assert (done.returncode, words in done.stderr.decode()) == (2, True), done.stderr
    (job / "0.toml").touch()
    with (job / "queue.txt").open("a") as file:
        file.write("0.toml lm\n")
    done = agent.run(*run, "0")
    assert (done.returncode, b"give the config as it is written in the queue" in done.stderr) == (
        2,
        True,
    )
    assert agent.run(*run, "0.toml").returncode == 0


def test_all_problems_are_told_at_once(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    (job / "queue.txt").write_bytes(
        b"a.toml lm\r\nsub/a.toml lm\nmissing.toml lm\nlonely\nx.toml lm many\n# only a comment\n"
    )
    (job / "job.json").write_text('{"out": "/x", "retries": "many", "keep": ["../.."]}')
    done = agent.run("queue", "check", "--job", str(job), "--json")
    problems = "\n".join(json.loads(done.stdout)["problems"])
    assert done.returncode == 2
    for words in (
        "sed -i",
        "already taken by line 1",
        "missing.toml does not exist",
        "1 words",
        "'many'",
        "{name}",
        "retries",
        "keep",
    ):
        assert words in problems
    run = agent.run("queue", "run", "--job", str(job))
    assert (run.returncode, len(run.stderr.splitlines())) == (2, len(problems.splitlines()))
    assert not (job / "state.json").exists()
    assert agent.run("queue", "check", "--job", str(tmp_path / "nowhere")).returncode == 2


def test_there_is_never_a_second_runner(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("read x < go"), ["a"])
    os.mkfifo(job / "go")
    runner = agent.start("queue", "run", "--job", str(job))
    until(lambda: (job / "state.json").exists() and state(job)["a"]["state"] == "running")
    second = agent.run("queue", "run", "--job", str(job))
    assert (second.returncode, b"already active" in second.stderr) == (3, True)
    frame = queue_frame(agent, job)
    assert (frame.runner_alive, frame.runner_pid, frame.cells[0].state) == (
        True,
        runner.pid,
        "running",
    )
    (job / "go").write_text("\n")
    assert runner.wait(60) == 0
    assert runner.stdout is not None
    runner.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_stopped_runner_lets_the_cell_save(
    agent: Agent, tmp_path: Path, number: signal.Signals
) -> None:
    script = "trap 'echo saved; exit 0' TERM INT; echo up; while :; do sleep 0.05; done"
    job = make_job(tmp_path / "job", sh(script), ["a"])
    runner = agent.start("queue", "run", "--job", str(job))
    log = job / "logs" / "a.log"
    until(lambda: log.exists() and "up" in log.read_text())
    runner.send_signal(number)
    runner.communicate(timeout=90)
    cell = state(job)["a"]
    assert runner.returncode == 128 + number
    # It ended with 0, so it may well be done: what it left decides.
    assert cell["state"] == "done"
    assert log.read_text() == "up\nsaved\n"


def test_status_says_that_a_cell_holds_for_room_and_when_that_is_over(
    agent: Agent, tmp_path: Path
) -> None:
    hold = {"event": "hold", "step": 1900, "unsaved": 81, "limit_s": 1800, "time": 1.79e9}
    script = f"mkdir -p $1; echo '{json.dumps(hold)}' > $1/metrics.jsonl; echo up; exec sleep 1000"
    job = make_job(tmp_path / "job", sh(script), ["a"])
    runner = agent.start("queue", "run", "--job", str(job))
    until(lambda: (job / "logs" / "a.log").exists() and (job / "logs" / "a.log").read_text())
    frame = queue_frame(agent, job)
    (cell,) = frame.cells
    assert cell.state == "running" and cell.wait is not None
    assert (cell.wait.what, cell.wait.step, cell.wait.unsaved, cell.wait.until) == (
        "disk",
        1900,
        81,
        1.79e9 + 1800,
    )
    (shown, _) = queue_lines(msgspec.structs.replace(frame, at=1.79e9 + 600), 1.79e9 + 600)
    assert shown.startswith("holding     a (lm")
    assert shown.endswith(
        ": at step 1,900, no room to save, 81 steps not saved, gives up at "
        + time_of_day(1.79e9 + 1800, 1.79e9)
    )
    with (job / "out" / "a" / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 1901, "loss": 1.0, "time": 1790001000.0}\n')
    (cell,) = queue_frame(agent, job).cells
    assert cell.state == "running" and cell.wait is None, "the training has gone on"
    runner.terminate()
    runner.communicate(timeout=90)
    (cell,) = queue_frame(agent, job).cells
    assert cell.state == "interrupted" and cell.wait is None


def test_a_cell_that_dies_of_the_signal_is_interrupted(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("echo up; exec sleep 1000"), ["a", "b"])
    runner = agent.start("queue", "run", "--job", str(job))
    until(lambda: (job / "logs" / "a.log").exists() and (job / "logs" / "a.log").read_text())
    runner.terminate()
    runner.communicate(timeout=90)
    assert runner.returncode == 143
    cell = state(job)["a"]
    assert (cell["state"], cell["signal"], state(job)["b"]["state"]) == (
        "interrupted",
        "SIGTERM",
        "waiting",
    )
    assert master(job) == ["START a attempt=1", "FINISHED a exit=143"]


def test_a_cell_that_ignores_the_signal_is_killed_in_the_end(agent: Agent, tmp_path: Path) -> None:
    job = make_job(
        tmp_path / "job", sh("trap '' TERM; echo up; while :; do sleep 0.05; done"), ["a"]
    )
    runner = agent.start("queue", "run", "--job", str(job), env={"RGT_STOP_GRACE": "0.2"})
    until(lambda: (job / "logs" / "a.log").exists() and (job / "logs" / "a.log").read_text())
    runner.terminate()
    runner.communicate(timeout=90)
    assert state(job)["a"]["signal"] == "SIGKILL"


def test_after_the_runner_is_killed_the_next_one_waits_for_the_orphan_and_goes_on(
    agent: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", sh("echo $$ >> pids; read x < go"), ["a"])
    os.mkfifo(job / "go")
    first = agent.start("queue", "run", "--job", str(job))
    until(lambda: (job / "pids").exists() and (job / "pids").read_text().endswith("\n"))
    first.kill()
    first.communicate()
    frame = queue_frame(agent, job)
    assert (frame.runner_alive, frame.cells[0].state) == (False, "interrupted")
    second = agent.start("queue", "run", "--job", str(job))
    until(lambda: "waiting for it to end" in (state(job)["a"].get("reason") or ""))
    assert len((job / "pids").read_text().split()) == 1
    (job / "go").write_text("\n")
    until(lambda: len((job / "pids").read_text().split()) == 2)
    (job / "go").write_text("\n")
    second.communicate(timeout=90)
    assert second.returncode == 0
    assert (state(job)["a"]["state"], state(job)["a"]["attempts"]) == ("done", 2)


def test_a_runner_killed_together_with_its_cell_is_repaired(agent: Agent, tmp_path: Path) -> None:
    job = make_job(
        tmp_path / "job", sh("[ -e ok ] || { touch ok; kill -9 $PPID; kill -9 $$; }"), ["a", "b"]
    )
    agent.run("queue", "run", "--job", str(job))
    assert (
        queue_frame(agent, job).cells[0].reason
        == "the runner has ended; launch it again to continue"
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert [cell["state"] for cell in state(job).values()] == ["done", "done"]


def test_the_lock_is_not_inherited_by_cells(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("ls -l /proc/self/fd"), ["a"])
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert "runner.lock" not in (job / "logs" / "a.log").read_text()
    with (job / "runner.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


OUTPUTS = """mkdir -p "$1/best" && echo weights > "$1/best/model.pt" && echo '{"value": 1.5}' > "$1/best.json\""""


def test_only_a_verified_copy_makes_a_cell_done(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh(OUTPUTS), ["a"], durable=str(tmp_path / "fs" / "{name}"))
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    cell = state(job)["a"]
    assert (cell["durable"], cell["durable_path"], cell["best"]) == (
        "verified",
        str(tmp_path / "fs" / "a"),
        1.5,
    )
    assert (tmp_path / "fs" / "a" / "best" / "model.pt").read_text() == "weights\n"
    assert os.listdir(tmp_path / "fs") == ["a"]


def test_the_log_of_a_cell_is_in_its_copy(agent: Agent, tmp_path: Path) -> None:
    script = sh(OUTPUTS + "; echo step 1; [ -e again ] || { touch again; exit 1; }")
    job = make_job(
        tmp_path / "job", script, ["a"], durable=str(tmp_path / "fs" / "{name}"), retries=1
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert (tmp_path / "fs" / "a" / "rgt-cell.log").read_text() == "step 1\nstep 1\n", (
        "of all attempts"
    )
    assert json.loads(agent.run("reconcile", "--job", str(job)).stdout)["counts"] == {"ok": 1}


def test_what_an_earlier_attempt_wrote_next_to_the_code_is_in_the_copy(
    agent: Agent, tmp_path: Path
) -> None:
    work = tmp_path / "box" / "work"
    work.mkdir(parents=True)
    for name in ("a", "b"):
        (work / f"{name}.toml").write_text("")
    script = sh("""[ -e "again-$0" ] && echo 2 > "last-$0.pt" && exit 0
        echo 1 > "first-$0.pt"; touch "again-$0"; exit 1""")
    job = make_job(
        tmp_path / "job", script, ["a", "b"], durable=str(tmp_path / "fs" / "{name}"), retries=1,
        workdir=str(work), out=str(tmp_path / "out" / "{name}"),
    )  # fmt: skip
    done = agent.run("queue", "run", "--job", str(job), env={"RGT_ROOTS": str(tmp_path / "box")})
    assert done.returncode == 0, master(job)
    copied = {
        name: {path.name for path in (tmp_path / "fs" / name).rglob("*") if path.suffix == ".pt"}
        for name in ("a", "b")
    }
    assert copied == {name: {f"first-{name}.pt", f"last-{name}.pt"} for name in ("a", "b")}


def test_a_full_durable_storage_fails_the_cell(agent: Agent, tmp_path: Path) -> None:
    big = 'mkdir -p "$1" && head -c 2000000 /dev/zero > "$1/best"'
    mount = tmp_path / "fs"
    mount.mkdir()
    job = make_job(tmp_path / "job", sh(big), ["a"], durable=str(mount / "{name}"))
    enter = private_mount(f"mount -t tmpfs -o size=1m none {mount}")
    done = subprocess.run(
        enter + agent.command("queue", "run", "--job", str(job)),
        env=agent.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    cell = state(job)["a"]
    assert (cell["state"], cell["exit_code"], cell["durable"]) == ("failed", 0, "failed")
    assert "No space left on device" in cell["reason"]
    assert master(job) == ["START a attempt=1", "FINISHED a exit=1", "QUEUE DONE"]


def test_nothing_to_keep_is_no_success(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", sh("exit 0"), ["a"], durable=str(tmp_path / "fs" / "{name}"))
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    assert "left no results" in state(job)["a"]["reason"]


def test_the_book_keeping_survives_a_full_disk(agent: Agent, tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    job = mount / "job"
    script, filler = tmp_path / "script", tmp_path / "filler"
    filler.write_text(f"cat /dev/zero > fill 2>/dev/null; echo $1 >> {tmp_path}/ran")
    script.write_text(
        f"""set -e
mkdir {job}
cd {job}
for c in a b c; do : > $c.toml; echo "$c.toml lm" >> queue.txt; done
echo '{{"command": ["sh", "{filler}", "{{name}}"], "out": "/x/{{name}}"}}' > job.json
"$@" || true
cp state.json master.log {tmp_path}/
"""
    )
    enter = private_mount(f"mount -t tmpfs -o size=200k none {mount}")
    subprocess.run(
        [*enter, "sh", str(script), *agent.command("queue", "run", "--job", str(job))],
        env=agent.env,
        check=True,
        timeout=60,
    )
    assert (tmp_path / "ran").read_text().split() == ["a", "b", "c"]
    saved = json.loads((tmp_path / "state.json").read_bytes())
    assert [cell["state"] for cell in saved["cells"]] == ["done", "done", "done"]
    assert saved["done"]
    assert not [path for path in os.listdir(tmp_path) if "tmp-" in path]


def test_the_last_retry_is_the_last(agent: Agent, tmp_path: Path) -> None:
    """Nothing is announced or compared after it: the config that it changes keeps it from no further attempt."""
    script = "echo run >> ran; [ $(wc -l < ran) -lt 3 ] || echo x >> a.toml; exit 3"
    job = make_job(tmp_path / "job", ["sh", "-c", script], ["a"], retries=2)
    done = agent.run("queue", "run", "--job", str(job))
    assert done.returncode == 1
    assert (job / "ran").read_text() == "run\n" * 3
    assert done.stdout.count(b"trying again") == 2
    cell = state(job)["a"]
    assert (cell["state"], cell["attempts"], cell["exit_code"], cell["reason"]) == (
        "failed",
        3,
        3,
        "exit 3",
    )
    assert master(job)[-2:] == ["FINISHED a exit=3", "QUEUE DONE"]


def test_a_cell_has_ended_before_its_copy_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate takes files up to that time for copied, so none that is written meanwhile may be among them."""
    job = Job(str(make_job(tmp_path / "job", ["true"], ["a"])))
    (tmp_path / "job" / "logs").mkdir()
    clock = [1_000.0]
    monkeypatch.setattr(runner, "clock_seconds", lambda: clock[0])

    def copied(*_: object) -> dict[str, Any]:
        clock[0] += 600.0
        return {"state": "done"}

    monkeypatch.setattr(runner, "copy_finished_run", copied)
    journal = QueueJournal(job)
    journal.reread_queue()
    line = journal.lines[0]
    assert runner.run_attempt(job, line, job.command_of(line), journal) is None
    (cell,) = json.loads((tmp_path / "job" / "state.json").read_bytes())["cells"]
    assert (cell["state"], cell["ended"]) == ("done", 1_000.0)


@pytest.mark.parametrize(("script", "ended"), [("exit 0", "done"), ("exit 4", "failed")])
def test_the_state_says_how_a_cell_ended_as_soon_as_the_marker_does(
    tmp_path: Path, script: str, ended: str
) -> None:
    """A runner that is killed right behind FINISHED must not leave a cell that is called running."""
    job = Job(str(make_job(tmp_path / "job", ["sh", "-c", script], ["a"])))
    (tmp_path / "job" / "logs").mkdir()
    journal = QueueJournal(job)
    journal.reread_queue()
    line = journal.lines[0]
    assert runner.run_attempt(job, line, job.command_of(line), journal) is None
    assert master(tmp_path / "job")[-1].startswith("FINISHED a exit=")
    told = json.loads((tmp_path / "job" / "state.json").read_bytes())
    (cell,) = told["cells"]
    assert (cell["state"], cell["attempts"], cell["ended"] is not None) == (ended, 1, True)
    assert not {"cell_pid", "cell_ticks"} & set(told)


@pytest.mark.parametrize(
    ("command", "given", "threads"),
    [
        ("python train.py", {}, 6),
        ("{py} -m rgt_train --out run", {}, 6),
        ("uv run train.py", {}, 6),
        ("python train.py", {"OMP_NUM_THREADS": "3"}, None),
        ("torchrun --nproc-per-node 4 train.py", {}, None),
        ("python -m torch.distributed.run train.py", {}, None),
        ("bash train.sh", {}, None),
    ],
)
def test_a_python_command_gets_the_threads_of_the_cpu_quota(
    monkeypatch: pytest.MonkeyPatch, command: str, given: dict[str, str], threads: int | None
) -> None:
    cpu = {"quota": 6.5, "cores": 64}
    monkeypatch.setattr(cgroup.CpuSampler, "read", lambda sampler: cpu)
    assert runner.threads_of_quota(command.split(), given) == threads
    for roomy in ({"cores": 64}, {"quota": 64.0, "cores": 64}):
        monkeypatch.setattr(cgroup.CpuSampler, "read", lambda sampler, cpu=roomy: cpu)
        assert runner.threads_of_quota(command.split(), given) is None


def test_a_cell_gets_the_threads_unless_the_job_sets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(
        runner, "threads_of_quota", lambda words, env: 5 if "OMP_NUM_THREADS" not in env else None
    )
    for env, threads in (({}, "5"), ({"OMP_NUM_THREADS": "2"}, "2")):
        job = Job(str(make_job(tmp_path / threads, ["python", "x.py"], ["a"], env=env)))
        line = job.read_lines()[0][0]
        assert runner.cell_environment(job, line)["OMP_NUM_THREADS"] == threads
