"""`rgt run` as a person types it: a real sshd, a real tmux, real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box import procstat

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd
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
    assert "lab: smoke  no smoke command: nothing tests this" in done.stdout
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
    assert (code, second["name"], second["begins"]["pid"]) == (
        0,
        first["name"],
        first["begins"]["pid"],
    )
    assert "start" not in second
    told = rgt.on("run", "lab", "--probe", "0.5", "--", line).stdout
    assert "no step yet" in told and "this is its state" in told
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
    assert (
        "| torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n" in done.stdout
    )
    assert "\x1b" not in done.stdout
    assert "lab: why    U10:" in done.stdout and "lab: fix    " in done.stdout
    code, body = launched(rgt, "--name", "oom", "--", line)
    assert (code, body["finding"]["gotcha"]) == (1, "U10")


def test_a_smoke_command_that_fails_keeps_it_from_starting(
    rgt: Rgt, box: BoxSpec, home: Path
) -> None:
    words = ("--name", "smoked", "--smoke", "echo no data; exit 5", "--", "touch ~/started")
    done = rgt.on("run", "lab", *words)
    assert (
        done.returncode == 1
        and "smoke  FAILED: exit 5" in done.stdout
        and "| no data" in done.stdout
    )
    assert not (home / "started").exists()
    done = rgt.on("run", "lab", "--no-smoke", *words)
    assert done.returncode == 0 and (home / "started").exists(), done.stdout + done.stderr


def test_environment_directory_and_waiting(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    (home / "code").mkdir()
    line = 'echo "$PWD $A"; case $(cat ~/tries 2>/dev/null) in x) exit 0;; *) echo x > ~/tries; exit 1;; esac'
    words = (
        "--name",
        "env",
        "--env",
        "A=b c",
        "--in",
        "~/code",
        "--retries",
        "1",
        "--wait",
        "--",
        line,
    )
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
    cut = rgt.on(
        "exec", "lab", "--", "kill -9 $(ps -o ppid= -p $(pgrep -of '[r]gt-box.*launch --make'))"
    )
    assert cut.returncode == 0, cut.stderr
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3 and b"nothing is started twice" in said, said
    code, body = launched(rgt, "--probe", "0.5", "--", line)
    assert (code, body["begins"]["verdict"]) == (0, "alive")
    assert (home / "lost").read_text() == "run\n"
    assert rgt.on("exec", "lab", "--", "kill", str(body["begins"]["pid"])).returncode == 0


@dataclass
class Project:
    """A directory of code with the fleet file in it, and on the box what its training appends to and waits for."""

    code: Path
    versions: Path
    started: Path
    gate: Path

    @property
    def starts(self) -> int:
        return len(self.started.read_text()) if self.started.exists() else 0


WORDS = ("--push", ".", "--probe", "0.5", "--", "python3", "train.py")


@pytest.fixture
def project(
    rgt: Rgt, box: BoxSpec, home: Path, request: pytest.FixtureRequest
) -> Iterator[Project]:
    """Code of this test alone, as `rgt add` leaves it: a job is known again by its content."""
    name = re.sub(r"\W", "-", request.node.name)
    found = Project(
        rgt.folder / name, home / "rgt-code", home / f"{name}.started", home / f"{name}.go"
    )
    found.code.mkdir()
    rgt.env["HOME"] = str(rgt.folder)
    rgt.fleet = rgt.fleet.rename(found.code / "my-boxes.toml")
    rgt.folder = found.code
    script = f"open('../../{found.started.name}', 'a').write('x')\nopen('../../{found.gate.name}').read()\n"
    (found.code / "train.py").write_text(script)
    os.mkfifo(found.gate)
    yield found
    let_go(found.gate)


def let_go(pipe: Path) -> None:
    """Let everything that waits for the pipe read its end."""
    with suppress(OSError):  # ENXIO: nothing waits
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def test_the_documented_command_twice_is_one_training(
    rgt: Rgt, project: Project, home: Path
) -> None:
    """`rgt run` writes into the fleet file, a pull and an export write next to the code: none of it is code."""
    code, first = launched(rgt, *WORDS)
    assert (code, first["begins"]["verdict"]) == (0, "alive"), first
    assert "jobs" in rgt.fleet.read_text()
    assert rgt.on("pull", "lab", f"{first['job']}").returncode == 0
    assert (project.code / "pulled/lab").is_dir()
    rgt.on("record", "--out", "night.jsonl", "--for", "1")
    assert (project.code / "night.jsonl").exists()
    code, second = launched(rgt, *WORDS)
    assert (code, second["name"], second["begins"]["pid"]) == (
        0,
        first["name"],
        first["begins"]["pid"],
    )
    assert "start" not in second and project.starts == 1
    pushed = json.loads(rgt.on("push", "lab", ".", "--json").stdout)
    assert pushed["files"] == 1, pushed
    left = {each["path"]: each["why"] for each in pushed["left_out"]}
    assert "the fleet file" in left["my-boxes.toml"] and "rgt wrote" in left["night.jsonl"]


def test_other_code_of_a_command_that_runs_is_started_only_if_asked(
    rgt: Rgt, project: Project, home: Path
) -> None:
    _, first = launched(rgt, *WORDS)
    (project.code / "net.py").write_text("WIDTH = 8\n")
    done = rgt.on("run", "lab", *WORDS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert first["name"] in done.stderr and "--again" in done.stderr and "other code" in done.stderr
    assert project.starts == 1
    refused = json.loads(rgt.on("run", "lab", "--json", *WORDS).stdout)
    assert (refused["exit"], refused["job"], refused["others"][0]["name"]) == (
        1,
        None,
        first["name"],
    )
    assert len(list(project.versions.glob(f"{project.code.name}-*"))) == 1, (
        "nothing is pushed before it is known"
    )
    code, other = launched(rgt, "--again", *WORDS)
    assert (code, other["begins"]["verdict"]) == (0, "alive") and other["name"] != first["name"]
    assert project.starts == 2
    code, same = launched(rgt, *WORDS)
    assert (code, same["begins"]["pid"]) == (0, other["begins"]["pid"])
    code, third = launched(rgt, "--again", *WORDS)
    assert code == 0 and third["name"] == f"{other['name']}-2" and project.starts == 3
    jobs = tomllib.loads(rgt.fleet.read_text())["boxes"]["lab"]["jobs"]
    assert set(jobs) == {f"~/jobs/{each['name']}" for each in (first, other, third)}


def test_a_terminal_is_asked(rgt: Rgt, project: Project) -> None:
    launched(rgt, *WORDS)
    (project.code / "net.py").write_text("WIDTH = 8\n")
    command = shlex.join(rgt.command("run", "--fleet", str(rgt.fleet), "lab", *WORDS))
    for answer, started, code in (("n", 1, 1), ("y", 2, 0)):
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"], input=f"{answer}\n", cwd=rgt.folder,
            env=rgt.environment(), capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert (done.returncode, project.starts) == (code, started), done.stdout
        assert "[y/N]" in done.stdout


@pytest.mark.parametrize("other", [False, True], ids=["same", "other code"])
def test_two_at_the_same_moment_start_one(rgt: Rgt, project: Project, other: bool) -> None:
    words = ("--probe", "0.5", "--", "python3", "train.py")
    second = project.code
    if other:
        second = shutil.copytree(project.code, rgt.folder.parent / "copy")
        (second / "net.py").write_text("WIDTH = 8\n")
    both = [rgt.start("run", "lab", "--push", str(path), *words) for path in (project.code, second)]
    said = [process.communicate(timeout=PATIENCE) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes == ([0, 1] if other else [0, 0]), said
    assert project.starts == 1


def test_code_that_was_changed_on_the_box_is_the_same_job(
    rgt: Rgt, project: Project, home: Path
) -> None:
    """The script writes into its own directory: typed again, the command is still the one that runs."""
    (project.code / "state.txt").write_text("0\n")
    _, first = launched(rgt, *WORDS)
    (version,) = project.versions.glob(f"{project.code.name}-*")
    (version / "state.txt").write_text("1\n")
    code, second = launched(rgt, *WORDS)
    assert (code, second["begins"]["pid"]) == (0, first["begins"]["pid"]) and "start" not in second


def test_a_job_that_has_not_begun_takes_new_settings(rgt: Rgt, box: BoxSpec, home: Path) -> None:
    words = ("--name", "later", "--", "echo hi")
    done = rgt.on("run", "lab", "--smoke", "exit 5", *words)
    assert done.returncode == 1 and "FAILED: exit 5" in done.stdout
    code, body = launched(rgt, "--smoke", "true", *words)
    assert (code, body["smoke"]["ok"], body["begins"]["verdict"]) == (0, True, "done")


SHOW = "import sys, os; print(sys.argv[1:], os.environ.get('AT'))"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--out", "$RGT_OUT", "--log=${RGT_OUT}/a.log"], "['--out', 'OUT', '--log=OUT/a.log']"),
        (["--name", "$RGT_CELL", "$HOME"], "['--name', 'NAME', '$HOME']"),
    ],
)
def test_a_variable_in_a_command_without_a_shell_is_filled_in(
    rgt: Rgt, box: BoxSpec, home: Path, words: list[str], shown: str
) -> None:
    code, body = launched(rgt, "--env", "AT=$RGT_OUT/at", "--", "python3", "-c", SHOW, *words)
    assert code == 0, body
    out = str(home / "runs" / body["name"])
    shown = shown.replace("OUT", out).replace("NAME", body["name"])
    assert body["begins"]["first"] == f"{shown} {out}/at"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["prog", "--out", "$RGT_DIR"],
            "rgt sets no $RGT_DIR for a command; it sets $RGT_CELL and $RGT_OUT",
        ),
        (["prog --out $RGT_DIR"], "rgt sets no $RGT_DIR"),
        (["prog --out '$RGT_OUT'"], 'write "$RGT_OUT", in double quotes'),
        (["sh", "-c", "prog --out '${RGT_OUT}/a'"], 'write "${RGT_OUT}/a", in double quotes'),
        (["prog", "$RGT_SMOKE"], "$RGT_SMOKE is set only for the smoke command"),
    ],
)
def test_a_variable_that_would_arrive_literally_is_refused_before_the_push(
    rgt: Rgt, project: Project, words: list[str], why: str
) -> None:
    done = rgt.on("run", "lab", "--push", ".", "--", *words)
    assert done.returncode == 2 and why in done.stderr, done.stdout + done.stderr
    assert not list(project.versions.glob(f"{project.code.name}-*"))


@pytest.mark.parametrize(
    "line",
    [
        "trap 'rm -rf $RGT_OUT/tmp' EXIT; true",
        "RGT_DIR=$RGT_OUT; ls $RGT_DIR",
        "echo ${RGT_MISSING:-nothing} \"it's $RGT_OUT\" '$HOME'",
    ],
)
def test_a_line_in_which_the_shell_does_it_is_left_alone(rgt: Rgt, box: BoxSpec, line: str) -> None:
    code, body = launched(rgt, "--", line)
    assert (code, body["begins"]["verdict"]) == (0, "done"), body


VALUE = "hf_" + "aB3dE5fG7h" * 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--env", f"HF_TOKEN={VALUE}", "--", "true"], "give it with --secret HF_TOKEN"),
        (["--env", "DB_PASSWORD=hunter2", "--", "true"], "by its name"),
        (["--env", f"A={VALUE}", "--", "true"], "looks like a secret"),
        (["--", "prog", "--token", VALUE], "the command seems to contain a secret"),
        (["--smoke", f"prog {VALUE}", "--", "true"], "the command seems to contain a secret"),
    ],
)
def test_a_secret_in_the_environment_or_command_is_refused(
    rgt: Rgt, box: BoxSpec, home: Path, words: list[str], why: str
) -> None:
    done = rgt.on("run", "lab", "--name", "leaky", *words)
    assert done.returncode == 2 and why in done.stderr, done.stdout + done.stderr
    assert VALUE not in done.stderr and not (home / "jobs/leaky").exists()


def test_a_secret_comes_from_here_for_the_first_start_and_never_comes_home(
    rgt: Rgt, box: BoxSpec, home: Path
) -> None:
    rgt.env["HF_TOKEN"] = VALUE
    line = "echo got $HF_TOKEN $MINE | tr a-z A-Z"
    command = rgt.command(
        "run", "--fleet", str(rgt.fleet), "lab", "--name", "keyed", "--secret", "HF_TOKEN", "--secret", "MINE",
        "--json", "--", line,
    )  # fmt: skip
    done = subprocess.run(
        command, input="hunter22\n", cwd=rgt.folder, env=rgt.environment(), capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    body = json.loads(done.stdout)
    assert (done.returncode, body["begins"]["first"]) == (0, f"got {VALUE} hunter22".upper()), (
        done.stderr
    )
    assert VALUE not in done.stdout + done.stderr
    job = home / "jobs/keyed"
    assert (job / "job.json").stat().st_mode & 0o777 == 0o600
    for path in job.rglob("*"):
        assert path.is_dir() or VALUE.encode() not in path.read_bytes(), path
    pulled = rgt.on("pull", "lab", str(home))
    for path in (rgt.folder / "pulled").rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes(), path
    secret = home / ".config/rgt/secrets"
    assert list(secret.rglob("HF_TOKEN")) and "rgt/secrets" not in pulled.stdout + pulled.stderr
    named = rgt.on("pull", "lab", str(secret))
    assert named.returncode == 1 and "stays on the box" in named.stdout + named.stderr
    assert rgt.on("run", "lab", "--secret", "NOPE", "--", "true").returncode == 2


def test_a_missing_python_says_that_python3_is_there(
    rgt: Rgt, box: BoxSpec, home: Path, worker: RealSshd
) -> None:
    bare = home / "bare"
    bare.mkdir()
    for name in ("python3", "bash", "sh", "tmux", "cat", "env"):
        found = shutil.which(name)
        if found:
            (bare / name).symlink_to(found)
    rgt.describe([msgspec.structs.replace(box, python=None)])
    start = (home / ".bashrc").read_text()
    (home / ".bashrc").write_text(f"{start}export PATH={bare}\n")
    try:
        done = rgt.on("run", "lab", "--name", "snake", "--", "python", "train.py")
        assert done.returncode == 2 and f"a {bare}/python3: write python3" in done.stdout, (
            done.stdout
        )
        code, body = launched(rgt, "--name", "snake-2", "--", "python train.py")
        assert code == 1 and "write python3" in body["begins"]["reason"]
    finally:
        (home / ".bashrc").write_text(start)


def test_the_size_of_a_checkpoint_and_what_is_kept_are_options(
    rgt: Rgt, box: BoxSpec, home: Path
) -> None:
    done = rgt.on("run", "lab", "--name", "sized", "--ckpt-size", "2M", "--", "true")
    assert done.returncode == 0 and "note" not in done.stdout, done.stdout
    settings = json.loads((home / "jobs/sized/job.json").read_text())
    assert settings["ckpt_bytes"] == 2_000_000
    done = rgt.on("run", "lab", "--name", "unsized", "--", "true")
    assert done.stdout.count("note") == 1 and "--ckpt-size" in done.stdout, done.stdout
    done = rgt.on("run", "lab", "--name", "huge", "--ckpt-size", "900T", "--", "true")
    assert (
        done.returncode == 2
        and "900.0 TB" in done.stdout
        and not (home / "jobs/huge/state.json").exists()
    )
    done = rgt.on("run", "lab", "--name", "huge", "--ckpt-size", "0", "--", "true")
    assert done.returncode == 0, "it never began: the option is taken"
    durable = home / "netdisk"
    durable.mkdir()
    rgt.describe([msgspec.structs.replace(box, durable=str(durable))])
    line = 'echo a > "$RGT_OUT/best.pt"; echo b > "$RGT_OUT/last.pt"'
    done = rgt.on(
        "run", "lab", "--name", "kept", "--keep", "best.pt", "--ckpt-size", "0", "--", line
    )
    assert done.returncode == 0, done.stdout
    assert (durable / "runs/kept/best.pt").exists() and not (durable / "runs/kept/last.pt").exists()


def test_the_smoke_command_runs_here_before_the_box_is_asked(rgt: Rgt, project: Project) -> None:
    """Without a GPU, in a copy of what a push takes along: what is left out is missing here, too."""
    nowhere = rgt.fleet.read_text().replace("port = ", "port = 1 # ")
    reached = rgt.fleet.read_text()
    rgt.fleet.write_text(nowhere)
    (project.code / ".rgtignore").write_text("data.bin\n")
    (project.code / "data.bin").write_text("x")
    words = ("--push", ".", "--smoke-here", "--smoke")
    done = rgt.on("run", "lab", *words, "cat data.bin", "--", "true")
    assert done.returncode == 1 and "here: smoke  FAILED: exit 1" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "data.bin" in done.stdout
    line = 'echo "${CUDA_VISIBLE_DEVICES-unset} $RGT_SMOKE" > seen; cp seen "$RGT_OUT/seen"; test -e train.py'
    done = rgt.on("run", "lab", *words, line, "--", "true")
    assert done.returncode == 3 and "here: smoke  passed in" in done.stdout, (
        done.stdout + done.stderr
    )
    assert not (project.code / "seen").exists()
    rgt.fleet.write_text(reached)
    done = rgt.on("run", "lab", *words, line, "--", "true")
    assert done.returncode == 0 and "here: smoke  passed before" in done.stdout, (
        done.stdout + done.stderr
    )
    assert rgt.on("run", "lab", "--smoke-here", "--smoke", "true", "--", "true").returncode == 2


def test_a_secret_of_several_lines_is_not_shown_by_a_smoke_command_here(
    rgt: Rgt, project: Project
) -> None:
    rgt.env["KEY"] = "first-line-of-it\nsecond-line-of-it"
    words = ("--push", ".", "--smoke-here", "--smoke", 'echo "$KEY"; exit 3', "--secret", "KEY")
    done = rgt.on("run", "lab", *words, "--", "true")
    assert done.returncode == 1 and "exit 3" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("*** (KEY)") == 2
    assert "line-of-it" not in done.stdout + done.stderr


def test_a_smoke_command_here_ends_with_rgt(rgt: Rgt, project: Project, tmp_path: Path) -> None:
    rgt.env["TMPDIR"] = str(tmp_path)
    line = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    process = rgt.start("run", "lab", "--push", ".", "--smoke-here", "--smoke", line, "--", "true")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    # Ended, whether or not its new parent has collected it: the first process of a test's namespace may never do that.
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not procstat.read_cmdline(pid))
    assert not list(tmp_path.glob("rgt-smoke-*"))


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


def test_dependencies_are_installed_once_in_the_environment_of_the_fleet_file(
    rgt: Rgt, box: BoxSpec, home: Path, tmp_path: Path
) -> None:
    """The script of the code runs with a pip that keeps the image's torch; what is there is listed."""
    stub = tmp_path / "stub"
    stub.mkdir()
    (stub / "python").write_text("#!/bin/sh\necho torch==2.9.0+cu128\n")
    (stub / "python").chmod(0o755)
    path = f"{stub}:{os.environ['PATH']}"
    env = f'env = {{PATH = "{path}", WANDB_ENTITY = "lab"}}\n'
    rgt.fleet.write_text(rgt.fleet.read_text().replace("[boxes.lab]\n", f"[boxes.lab]\n{env}"))
    code = tmp_path / "code"
    (code / "setup").mkdir(parents=True)
    (code / "setup" / "install_deps.sh").write_text(
        'echo "$WANDB_ENTITY $(cat "$PIP_CONSTRAINT")" > "$RGT_OUT/said"\n'
    )
    words = ("run", "lab", "--push", str(code), "--install", "--wait")
    for _ in range(2):
        done = rgt.on(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "installs from setup/install_deps.sh" in done.stderr
    (out,) = (home / "runs").glob("install-*")
    assert (out / "said").read_text() == "lab torch==2.9.0+cu128\n"
    assert (out / "packages.txt").read_text() == "torch==2.9.0+cu128\n"
    assert "already exists" in done.stdout
    (code / "setup" / "install_deps.sh").rename(code / "train.sh")
    done = rgt.on(*words)
    assert (done.returncode, "an install_deps.sh, a lock file" in done.stderr) == (2, True)
