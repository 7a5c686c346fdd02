"""The `launch` verb: a job made in one step, tried, checked, started once, and its beginning told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rgt_box.queue import launch, queue_file

from tests.process.box.harness import Agent, make_job, master_log, until

Rows = dict[str, dict[str, Any]]


@pytest.fixture
def box(agent: Agent, tmp_path: Path) -> Agent:
    """An agent with a home of its own, and without tmux: its server would outlive the test."""
    (tmp_path / "home").mkdir()
    agent.state.mkdir(exist_ok=True)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").symlink_to(sys.executable)
    for name in ("sh", "bash", "id", "sleep", "cat", "mkdir", "mkfifo"):
        found = subprocess.run(
            ["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True
        )
        (bare / name).symlink_to(found.stdout.strip())
    agent.env.update(HOME=str(tmp_path / "home"), PATH=str(bare))
    return agent


def launched(box: Agent, *words: str, **asked: Any) -> tuple[int, Rows, str]:
    if asked:
        words = ("--make", *words)
    done = box.run("launch", *words, stdin=json.dumps(asked).encode())
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return (
        done.returncode,
        {str(row.get("phase", "detach")): row for row in rows},
        done.stderr.decode(),
    )


def home(box: Agent) -> Path:
    return Path(box.env["HOME"])


def master(box: Agent, name: str) -> str:
    path = home(box) / "jobs" / name / "master.log"
    return path.read_text() if path.exists() else ""


def let_go(box: Agent, name: str = "go") -> None:
    """Let a command that waits for a line go on, once its pipe is there: a file of that name would be no pipe."""
    pipe = home(box) / name
    until(pipe.is_fifo, "the pipe")
    pipe.write_text("\n")


def states(job: Path) -> dict[str, str]:
    """Return the state of each cell, as it stands in the job's directory."""
    found = json.loads((job / "state.json").read_bytes())
    return {cell["name"]: cell["state"] for cell in found["cells"]}


def test_a_command_runs_as_it_was_typed(box: Agent) -> None:
    words = [
        "sh",
        "-c",
        'printf "%s\\n" "$@" > "$RGT_OUT/words"; echo ready',
        "x",
        "a b",
        "{name}",
        "{{out}}",
        "$HOME",
    ]
    code, rows, said = launched(box, name="typed", digest="1", words=words, env={"K": "v {py}"})
    assert code == 0, said
    assert (rows["begins"]["verdict"], rows["begins"]["first"]) == ("done", "ready")
    assert (home(box) / "runs/typed/words").read_text().splitlines() == words[4:]
    assert rows["smoke"]["known"] is False
    cell = json.loads((home(box) / "jobs/typed/state.json").read_text())["cells"][0]
    assert (cell["name"], cell["state"]) == ("typed", "done")


@given(st.text(alphabet="{}$ab_0 ", max_size=24))
def test_no_text_is_taken_for_a_field(text: str) -> None:
    values = dict.fromkeys(queue_file.FIELDS, "X") | {"a": "Y", "b": "Z"}
    template = queue_file.escape_template(text)
    assert queue_file.fill_template(template, values) == text
    assert queue_file.unknown_fields(template) == []


def test_a_line_is_the_shells_and_a_hook_runs_before(box: Agent) -> None:
    hooks = {"env": "export X=42"}
    code, rows, said = launched(
        box, name="hooked", digest="1", line="echo got $X | cat", platform_hooks=hooks
    )
    assert (code, rows["begins"]["first"]) == (0, "got 42"), said
    code, rows, said = launched(
        box,
        name="words",
        digest="words",
        words=["sh", "-c", "echo got $X '$X'"],
        platform_hooks={"env": "export X=43"},
    )
    assert (code, rows["begins"]["first"]) == (0, "got 43 $X"), said


def test_nothing_runs_twice(box: Agent) -> None:
    asked = {
        "name": "once",
        "digest": "1",
        "line": "echo run >> ~/count; mkfifo ~/go; read x < ~/go",
    }
    code, rows, said = launched(box, "--seconds", "0.2", **asked)
    assert (code, rows["begins"]["verdict"], rows["begins"].get("step")) == (0, "alive", None), said
    pid = rows["begins"]["pid"]
    code, rows, _ = launched(box, "--seconds", "0", **asked)
    assert (code, rows["job"]["made"], rows["job"]["same"]) == (0, False, True)
    assert "detach" not in rows and rows["begins"]["pid"] == pid
    let_go(box)
    until(lambda: master(box, "once").endswith("QUEUE DONE\n"))
    code, rows, _ = launched(box, **asked)
    assert (code, rows["begins"]["verdict"]) == (0, "done")
    assert (home(box) / "count").read_text() == "run\n"
    code, rows, _ = launched(box, **{**asked, "digest": "2"})
    assert (code, rows["job"]["same"], list(rows)) == (2, False, ["job"])
    assert (home(box) / "count").read_text() == "run\n"


def test_a_client_killed_before_the_answer_changes_nothing(box: Agent) -> None:
    """Whoever asked is gone between the start and the answer: the next one is told what stands."""
    asked = {
        "name": "gone",
        "digest": "1",
        "line": "echo run >> ~/count; mkfifo ~/go; read x < ~/go",
    }
    process = subprocess.Popen(
        box.command("launch", "--make"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=box.env,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(asked).encode())
    process.stdin.close()
    until(lambda: (home(box) / "count").exists())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    code, rows, _ = launched(box, "--seconds", "0", **asked)
    assert (code, rows["begins"]["verdict"], rows["begins"]["state"]) == (0, "alive", "running")
    let_go(box)
    until(lambda: master(box, "gone").endswith("QUEUE DONE\n"))
    assert (home(box) / "count").read_text() == "run\n"


def test_a_job_that_was_made_and_never_started_is_started(box: Agent) -> None:
    asked = {"name": "later", "digest": "1", "line": "echo hi"}
    code, _, _ = launched(box, **asked, smoke="exit 3")
    assert code == 1
    assert not (home(box) / "jobs/later/state.json").exists()
    code, rows, _ = launched(box, "--no-smoke", **asked)
    assert (code, rows["job"]["made"], rows["begins"]["verdict"]) == (0, False, "done")


def test_a_job_that_is_made_again_stays_in_its_directory(box: Agent) -> None:
    """Another rgt saw it being launched, pushed nothing, and knows no directory; meanwhile its smoke command failed."""
    (home(box) / "code").mkdir()
    asked = {"name": "moved", "digest": "1", "line": "pwd"}
    launched(box, **asked, workdir="~/code", smoke="exit 3")
    code, rows, _ = launched(box, **asked)
    assert (code, rows["begins"]["first"]) == (0, f"{home(box)}/code")


@pytest.mark.parametrize(
    ("smoke", "seconds", "reason"),
    [
        ("echo bad >&2; exit 3", "50", "exit 3"),
        ("sleep 600", "0.3", "did not exit within 0.3 s"),
        ("kill -9 $$", "50", "killed by signal 9"),
    ],
)
def test_a_smoke_command_that_fails_keeps_it_from_starting(
    box: Agent, smoke: str, seconds: str, reason: str
) -> None:
    code, rows, _ = launched(
        box, "--smoke-seconds", seconds, name="s", digest="1", line="touch ~/ran", smoke=smoke
    )
    assert (code, rows["smoke"]["ok"], rows["smoke"]["reason"]) == (1, False, reason)
    assert not (home(box) / "ran").exists()


TRAIN = """
import json, pathlib, sys, zipfile
out, how = pathlib.Path(sys.argv[1]), sys.argv[2]
out.mkdir(parents=True, exist_ok=True)
saved = [int(path.stem[6:]) for path in out.glob("model_*.pt")]
first = 0
if how == "resumes": first = max(saved, default=0)
with open(out / "metrics.jsonl", "a") as metrics:
    for step in range(first + 1, 100):
        print(json.dumps({"step": step, "loss": 1.0}), file=metrics, flush=True)
        if step % 20 == 0: zipfile.ZipFile(out / f"model_{step}.pt", "w").writestr("model/data.pkl", "state_dict")
        if step == 50 and not saved: sys.exit(1)
"""


@pytest.mark.parametrize(("how", "began"), [("resumes", 41), ("forgets", 1)])
def test_the_first_step_after_a_resume_is_compared_with_the_newest_checkpoint(
    box: Agent, tmp_path: Path, how: str, began: int
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [sys.executable, str(tmp_path / "train.py"), "{out}", how]
    job = make_job(tmp_path / "job", command, ["a"], retries=0)
    _, rows, _ = launched(box, "--job", str(job))
    assert rows["begins"]["saved"] is None, "it has not run before"
    until(lambda: states(job)["a"] == "failed", "the end of the first attempt")
    _, rows, said = launched(box, "--job", str(job))
    assert rows["begins"].get("began") == began, said
    assert rows["begins"]["saved"] == [40, str(job / "out/a/model_40.pt")]


def test_a_smoke_writes_where_no_run_resumes_from(box: Agent) -> None:
    smoke = 'test -d "$RGT_OUT" && echo x > "$RGT_OUT/latest.pt" && echo "$RGT_OUT" > ~/out'
    job = make_job(home(box) / "jobs/q", ["sh", "-c", "true {out}"], ["a"], smoke=smoke)
    code, rows, said = launched(box, "--job", str(job))
    assert code == 0, (rows, said)
    asked = {"name": "alone", "digest": "1", "line": 'test ! -e "$RGT_OUT/latest.pt"'}
    code, rows, said = launched(box, **asked, smoke=smoke)
    assert (code, rows["smoke"]["ok"]) == (0, True), said
    until(lambda: states(home(box) / "jobs/alone")["alone"] == "done", "the end of the run")
    assert not Path((home(box) / "out").read_text().strip()).exists()


@pytest.mark.parametrize("call", ["makedirs", "mkdir"])
def test_only_the_parent_of_the_directory_of_a_cell_is_made(box: Agent, call: str) -> None:
    """Many trainers refuse a directory that exists, or resume from it."""
    words = ["python3", "-c", f"import os,sys; os.{call}(sys.argv[1])", "{out}"]
    job = make_job(home(box) / "jobs/q", words, ["a"], retries=0)
    launched(box, "--job", str(job))
    until(lambda: states(job)["a"] in ("done", "failed"), "the end of the cell")
    assert states(job)["a"] == "done", (job / "logs/a.log").read_text()


def test_a_smoke_that_is_cut_off_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue_file.Job(str(make_job(tmp_path / "jobs/q", ["true"], ["a"])))
    scratch = tmp_path / "scratch"

    def make_scratch(parent: str) -> str:
        scratch.mkdir()
        return str(scratch)

    def refuse(*words: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "make_scratch", make_scratch)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(KeyboardInterrupt):
        launch.run_smoke(job, ["true"], 5.0)
    assert not scratch.exists()


def test_a_smoke_command_that_has_passed_is_not_run_again(box: Agent) -> None:
    job = make_job(
        home(box) / "jobs/q", ["sh", "-c", "echo x"], ["a"], smoke="echo tried >> ~/tried"
    )
    for _ in range(2):
        code, rows, said = launched(box, "--job", str(job))
        assert (code, rows["smoke"]["ok"]) == (0, True), said
    assert (home(box) / "tried").read_text() == "tried\n"


def test_a_smoke_command_that_has_passed_with_other_code_is_run_again(box: Agent) -> None:
    folders = [home(box) / f"exp-{digit * 12}" for digit in "12"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "a.toml").write_text("")
        (folder / "fails").write_text(f"exit {number}\n")
    for folder, status in zip((*folders, folders[0]), (0, 1, 0), strict=True):
        job = make_job(
            home(box) / "jobs/q",
            ["sh", "-c", "echo x"],
            ["a"],
            smoke="sh fails",
            workdir=str(folder),
        )
        code, rows, said = launched(box, "--job", str(job))
        assert (code, rows["smoke"]["ok"]) == (status, status == 0), said


def test_a_command_that_dies_is_told_with_its_last_lines(box: Agent) -> None:
    line = 'echo first; python3 -c "1/0"'
    code, rows, _ = launched(box, name="dies", digest="1", line=line)
    found = rows["begins"]
    assert (code, found["verdict"], found["exit_code"], found["traceback"]) == (1, "died", 1, True)
    assert (
        found["tail"][0] == "first" and found["tail"][-1] == "ZeroDivisionError: division by zero"
    )


def test_a_first_step_ends_the_look(box: Agent) -> None:
    # All of it in one piece: of a line that came alone, the step would be told at once.
    said = "".join(rf"step {step} | loss 2.{step} | lr 1e-3\n" for step in (1, 2, 3))
    line = f"printf '{said}'; mkfifo ~/go; read x < ~/go"
    code, rows, _ = launched(box, name="steps", digest="1", line=line)
    assert (code, rows["begins"]["verdict"], rows["begins"]["step"]) == (0, "alive", 3)
    let_go(box)
    written = '{"step": 7, "loss": 1.5, "time": 1.0}'
    line = f"echo '{written}' >> $RGT_OUT/metrics.jsonl; mkfifo ~/go2; read x < ~/go2"
    code, rows, _ = launched(box, name="metrics", digest="metrics", line=line)
    assert (code, rows["begins"]["step"]) == (0, 7)
    let_go(box, "go2")


def test_a_traceback_of_one_that_lives_on_is_trouble(box: Agent) -> None:
    for seconds in ("1", "10", "50"):  # a busy machine may take longer for the traceback
        line = f'python3 -c "1/0"; mkfifo ~/go{seconds}; read x < ~/go{seconds}'
        code, rows, _ = launched(
            box, "--seconds", seconds, name=f"half{seconds}", digest="1", line=line
        )
        let_go(box, f"go{seconds}")
        if rows["begins"].get("tail"):
            break
    assert (code, rows["begins"]["verdict"], rows["begins"]["state"]) == (1, "trouble", "running")


def test_an_older_attempt_does_not_count(box: Agent) -> None:
    job = make_job(
        home(box) / "jobs/q",
        ["sh", "-c", "[ -e ok ] && echo fine || { echo 'Traceback'; exit 1; }"],
        ["a"],
    )
    code, rows, _ = launched(box, "--job", str(job))
    assert (code, rows["begins"]["verdict"]) == (1, "died")
    (job / "ok").touch()
    code, rows, _ = launched(box, "--job", str(job))
    assert (code, rows["begins"]["verdict"], rows["begins"]["tail"]) == (0, "done", ["fine"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "../up", "line": "true"}, "is not a valid job name"),
        ({"name": "a", "line": " "}, "there is no command"),
        ({"name": "a", "words": ["x\0y"]}, "NUL byte"),
        (
            {"name": "a", "line": "true", "workdir": "/nowhere/at all"},
            "is not a directory on the box",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(box: Agent, asked: dict[str, Any], said: str) -> None:
    code, rows, told = launched(box, digest="1", **asked)
    assert (code, rows) == (2, {}) and said in told
    assert not (home(box) / "jobs").exists() or not list((home(box) / "jobs").iterdir())


def test_results_are_kept_where_the_command_names_their_place(box: Agent, tmp_path: Path) -> None:
    durable = tmp_path / "durable"
    durable.mkdir()
    line = 'mkdir -p "$RGT_OUT/deep" && echo weights > "$RGT_OUT/deep/model.pt"'
    code, rows, said = launched(box, name="kept", digest="1", line=line, durable=str(durable))
    assert (code, rows["begins"]["verdict"]) == (0, "done"), said
    assert (durable / "runs/kept/deep/model.pt").read_text() == "weights\n"
    whole = box.run("reconcile", "--job", str(home(box) / "jobs/kept"))
    assert whole.returncode == 0, whole.stdout
    code, rows, _ = launched(
        box, name="empty", digest="empty", line=': "$RGT_OUT"', durable=str(durable)
    )
    assert (code, rows["begins"]["verdict"]) == (1, "died")
    assert "left no results" in rows["begins"]["reason"]
    code, rows, _ = launched(
        box, name="elsewhere", digest="elsewhere", line="true", durable=str(durable)
    )
    assert (code, rows["job"]["durable"]) == (0, None)
    assert "no durable copy" in rows["job"]["notes"][0]


def test_a_durable_directory_that_cannot_be_written_is_refused_before_anything(box: Agent) -> None:
    # /proc refuses root, too, although its permission bits do not.
    asked = {"name": "lost", "digest": "1", "line": 'echo > "$RGT_OUT/a"', "smoke": "touch smoked"}
    for words in (["--make"], ["--find"]):
        done = box.run(
            "launch", *words, stdin=json.dumps({**asked, "durable": "/proc/kept"}).encode()
        )
        said = done.stderr.decode()
        assert (done.returncode, done.stdout) == (2, b""), words
        assert (
            "could not be copied to /proc/kept, the durable directory: /proc: No such file" in said
        )
    assert not (home(box) / "jobs/lost").exists() and not (home(box) / "smoked").exists()


def test_a_data_disk_that_cannot_be_written_is_left_for_the_home_directory(box: Agent) -> None:
    code, rows, said = launched(box, name="data", digest="1", line="true", data="/proc")
    assert (code, rows["job"]["out"]) == (0, str(home(box) / "runs/data")), said
    assert "data disk is not used (/proc: No such file or directory)" in rows["job"]["notes"][0]
    assert not list(Path(box.env["HOME"]).glob("**/.rgt-write-*"))


def lines(box: Agent, job: Path, *added: str) -> tuple[int, Any]:
    done = box.run("queue", "add", "--job", str(job), stdin="\n".join(added).encode())
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


def test_lines_are_added_all_or_none_and_taken_out(box: Agent) -> None:
    job = make_job(home(box) / "jobs/q", ["true"], ["a"])
    (job / "queue.txt").write_text((job / "queue.txt").read_text().rstrip("\n"))
    before = (job / "queue.txt").read_text()
    code, told = lines(box, job, "b.toml t 3  # from elsewhere", "c.toml t")
    assert (code, told) == (0, {"added": ["b", "c"], "there": []})
    assert (job / "queue.txt").read_text() == f"{before}\nb.toml t 3  # from elsewhere\nc.toml t\n"
    assert lines(box, job, "c.toml t", "d.toml t") == (0, {"added": ["d"], "there": ["c"]})
    code, told = lines(box, job, "e.toml t", "b.toml t 4")
    assert code == 2 and "'b' is taken" in told
    code, told = lines(box, job, "e.toml")
    assert code == 2 and "1 words" in told
    assert "e.toml" not in (job / "queue.txt").read_text()
    done = box.run(
        "queue", "take-out", "--job", str(job), "--cell", "b", "--cell", "zz", "--why", "moved"
    )
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        {"out": ["b"], "kept": {}, "absent": ["zz"]},
    )
    assert "\n# moved: b.toml t 3" in (job / "queue.txt").read_text()


def test_a_cell_that_fails_is_told_although_the_next_one_runs(box: Agent) -> None:
    command = ["sh", "-c", "[ {name} = a ] && exit 3; while [ ! -e go ]; do sleep 0.05; done"]
    job = make_job(home(box) / "jobs/q", command, ["a", "b"])
    code, rows, _ = launched(box, "--job", str(job))
    assert (code, rows["begins"]["verdict"], rows["begins"]["cell"]) == (1, "died", "a")
    until(lambda: states(job)["b"] == "running", "the next cell")
    code, rows, _ = launched(box, "--seconds", "0", "--job", str(job))
    assert (code, rows["begins"]["verdict"], rows["begins"]["cell"]) == (0, "alive", "b")
    (job / "go").touch()
    until(lambda: master_log(job).endswith("QUEUE DONE\n"))


def test_a_cell_that_runs_or_is_done_keeps_its_line(box: Agent) -> None:
    command = ["sh", "-c", "[ {name} = a ] || while [ ! -e go ]; do sleep 0.05; done"]
    job = make_job(home(box) / "jobs/q", command, ["a", "b", "c"])
    launched(box, "--seconds", "0", "--job", str(job))
    until(lambda: states(job)["b"] == "running", "the second cell")
    names = [word for name in "abc" for word in ("--cell", name)]
    done = box.run("queue", "take-out", "--job", str(job), *names)
    told = json.loads(done.stdout)
    assert (done.returncode, told["out"], told["kept"]) == (
        1,
        ["c"],
        {"a": "it is done", "b": "it is running"},
    )
    again = box.run("queue", "again", "--job", str(job), "--cell", "a")
    assert again.returncode == 2 and b"a runner is active" in again.stderr
    (job / "go").touch()
    until(lambda: master_log(job).endswith("QUEUE DONE\n"))
    assert "START c" not in (job / "master.log").read_text()


def test_a_home_that_cannot_be_written_names_the_setting_that_moves_it(box: Agent) -> None:
    # sysfs refuses root, too.
    box.env["HOME"] = "/sys/kernel"
    code, _, errors = launched(box, name="job", digest="1", line="true")
    assert code == 2
    assert "/sys/kernel/" in errors
    assert "set HOME for this login" in errors
