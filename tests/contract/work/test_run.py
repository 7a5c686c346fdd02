"""`rgt run` as a person types it: a real sshd, a real tmux, real processes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model.box import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.process.box.harness import until


def launched(rgt: Rgt, *words: str) -> tuple[int, dict[str, Any]]:
    done = rgt.on("run", "lab", "--json", *words)
    assert done.stdout, done.stderr
    body = json.loads(done.stdout.splitlines()[0])
    assert body["exit"] == done.returncode or "--wait" in words
    return done.returncode, body


def test_the_command_is_what_was_typed(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    words = ["a b", "$HOME", "it's", '"', "*", "", "--json", "--", "{name}", "\\", "äö\n2"]
    code, body = launched(
        rgt, "--name", "typed", "--", "python3", "-c", "import sys; print(sys.argv[1:])", *words
    )
    assert (code, body["begins"]["verdict"]) == (0, "done"), body
    assert body["begins"]["first"] == repr(words)
    assert body["start"]["how"] in ("tmux", "ended")
    assert body["smoke"] == {"phase": "smoke", "known": False}


def test_it_is_watched_from_then_on(rgt: Rgt, box: BoxSpec) -> None:
    """The fleet file names the job, and stays as it was otherwise."""
    before = rgt.fleet.read_text()
    rgt.fleet.write_text(f"# mine\n{before}  # and this\n")
    done = rgt.on("run", "lab", "--name", "watched", "--", "echo hello from there")
    assert done.returncode == 0, done.stderr
    assert "lab: smoke  no smoke known" in done.stdout
    assert "lab: DONE   watched\n" in done.stdout and "first line: hello from there" in done.stdout
    text = rgt.fleet.read_text()
    assert tomllib.loads(text)["boxes"]["lab"]["jobs"] == ["~/jobs/watched"]
    assert text.startswith("# mine\n") and text.endswith("# and this\n")
    told = json.loads(rgt.on("status", "lab", "--json").stdout)
    assert [(run["name"], run["state"]) for run in told["runs"]] == [("watched", "done")]
    assert rgt.on("logs", "lab", "watched").stdout == "hello from there\n"


def test_the_same_command_again_starts_nothing(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    line = "echo run >> ~/again; mkfifo ~/again.go; read x < ~/again.go"
    code, first = launched(rgt, "--probe", "1", "--", line)
    assert (code, first["begins"]["verdict"], first["begins"]["step"]) == (0, "alive", None)
    code, second = launched(rgt, "--probe", "0.5", "--", line)
    assert (code, second["name"], second["begins"]["pid"]) == (0, first["name"], first["begins"]["pid"])
    assert "start" not in second
    told = rgt.on("run", "lab", "--probe", "0.5", "--", line).stdout
    assert "no step yet" in told and "this is how it is doing" in told
    (home / "again.go").write_text("\n")
    code, _ = launched(rgt, "--wait", "--", line)
    assert code == 0 and (home / "again").read_text() == "run\n"
    other = rgt.on("run", "lab", "--name", first["name"], "--", "echo other")
    assert other.returncode == 2 and "with another command: choose another --name" in other.stdout


def test_the_laptop_dies_before_the_answer(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    line = "echo run >> ~/dies; mkfifo ~/dies.go; read x < ~/dies.go"
    process = rgt.start("run", "lab", "--", line)
    until(lambda: (home / "dies").exists())
    process.kill()
    process.communicate()
    code, body = launched(rgt, "--probe", "0.5", "--", line)
    assert (code, body["begins"]["verdict"], body["begins"]["state"]) == (0, "alive", "running")
    (home / "dies.go").write_text("\n")
    code, _ = launched(rgt, "--wait", "--", line)
    assert (code, (home / "dies").read_text()) == (0, "run\n")


def test_what_died_is_told_with_the_way_out(rgt: Rgt, box: BoxSpec) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. \\033[2JTried to allocate 2.00 GiB"
    line = f"echo start; printf '{error}\\n'; exit 1"
    done = rgt.on("run", "lab", "--name", "oom", "--", line)
    assert done.returncode == 1
    assert "lab: DIED   oom: exit 1" in done.stdout
    assert "| torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert "lab: why    U10:" in done.stdout and "lab: fix    " in done.stdout
    code, body = launched(rgt, "--name", "oom", "--", line)
    assert (code, body["finding"]["gotcha"]) == (1, "U10")


def test_a_smoke_command_that_fails_keeps_it_from_starting(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    words = ("--name", "smoked", "--smoke", "echo no data; exit 5", "--", "touch ~/started")
    done = rgt.on("run", "lab", *words)
    assert done.returncode == 1 and "smoke  FAILED: exit 5" in done.stdout and "| no data" in done.stdout
    assert not (home / "started").exists()
    done = rgt.on("run", "lab", "--no-smoke", *words)
    assert done.returncode == 0 and (home / "started").exists(), done.stdout + done.stderr


def test_environment_directory_and_waiting(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    (home / "code").mkdir()
    line = 'echo "$PWD $A"; case $(cat ~/tries 2>/dev/null) in x) exit 0;; *) echo x > ~/tries; exit 1;; esac'
    words = ("--name", "env", "--env", "A=b c", "--in", "~/code", "--retries", "1", "--wait", "--", line)
    done = rgt.on("run", "lab", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{home}/code b c" in done.stdout and "lab: done   env" in done.stdout
    cell = json.loads((home / "jobs/env/state.json").read_text())["cells"][0]
    assert cell["attempts"] == 2
    assert rgt.on("run", "lab", "--env", "A", "--", "true").returncode == 2
    missing = rgt.on("run", "lab", "--in", "~/nowhere", "--", "true")
    assert missing.returncode == 2 and "is not a directory on the box" in missing.stderr


def test_a_box_that_is_not_there_is_3_and_none_without_a_python(rgt: Rgt, box: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(box, port=1)])
    gone = rgt.on("run", "lab", "--", "true")
    assert (gone.returncode, gone.stdout) == (3, "") and "whether it was started" not in gone.stderr


def test_a_platform_where_nothing_outlives_the_login_says_what_does(rgt: Rgt, box: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(box, profile="kubernetes")])
    done = rgt.on("run", "lab", "--", "true")
    assert done.returncode == 2 and "detach --job DIR --print k8s" in done.stderr


def test_a_line_that_is_lost_meanwhile_says_so(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    """The connection dies while the box looks at the beginning: the same command tells what stands."""
    line = "echo run >> ~/lost; sleep 600"
    process = rgt.start("run", "lab", "--probe", "300", "--", line)
    until(lambda: (home / "lost").exists())
    cut = rgt.on("exec", "lab", "--", "kill -9 $(ps -o ppid= -p $(pgrep -of '[r]gt-box.*launch --make'))")
    assert cut.returncode == 0, cut.stderr
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3 and b"starts nothing twice" in said, said
    code, body = launched(rgt, "--probe", "0.5", "--", line)
    assert (code, body["begins"]["verdict"]) == (0, "alive")
    assert (home / "lost").read_text() == "run\n"
    assert rgt.on("exec", "lab", "--", "kill", str(body["begins"]["pid"])).returncode == 0


def test_pushed_code_is_where_it_starts(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    """Another version is another job: what runs keeps the files that it was started with."""
    code = rgt.folder / "project"
    (code / "sub").mkdir(parents=True)
    (code / "train.py").write_text("print('one')\n")
    words = ("--push", str(code), "--", "python3", "train.py")
    code_1, first = launched(rgt, *words)
    assert (code_1, first["begins"]["first"]) == (0, "one"), first
    (code / "train.py").write_text("print('two')\n")
    code_2, second = launched(rgt, *words)
    assert (code_2, second["begins"]["first"]) == (0, "two")
    assert first["name"] != second["name"] and first["name"].startswith("train-")
    nowhere = rgt.on("run", "lab", "--push", str(code / "missing"), "--", "true")
    assert nowhere.returncode == 2
