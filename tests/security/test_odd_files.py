"""What is no regular file, where one is expected: no reader and no verb waits for it, opens it or walks in circles."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files
from rgt_box.__main__ import VERBS
from rgt_box.commands import cat, hashing, remove
from rgt_box.metrics import BY_KIND, open_source
from rgt_box.push import code_versions
from rgt_box.streams.curve_followers import ScalarFollower
from rgt_box.streams.log_follower import LogFollower

from rgt_tui.cli.renting.up import public_key
from rgt_tui.files import open_named
from rgt_tui.fleet.config import FleetFileError
from tests import warm_rgt
from tests.process.box.harness import Agent, make_job

PATIENCE = 90.0
"""Seconds; each of these ends in milliseconds, or hangs for ever."""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is at most 108 bytes long
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


def device(path: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name(path.name + ".target"))
    path.symlink_to(path.name + ".target")


def link_loop(path: Path) -> None:
    path.symlink_to(path.name + ".other")
    path.with_name(path.name + ".other").symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def folder(path: Path) -> None:
    path.mkdir()


def folder_in_itself(path: Path) -> None:
    path.mkdir()
    for name in ("self", "again"):
        (path / name).symlink_to(".")
    (path / "up").symlink_to("..")


ODD: tuple[Callable[[Path], None], ...] = (
    fifo, listening, device, link_to_device, link_to_fifo, link_loop, dangling, folder, folder_in_itself,
)  # fmt: skip
ALIKE = (listening, link_to_device, link_to_fifo, dangling, folder)
odd = pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def root_for_devices() -> None:
    if os.geteuid():
        pytest.fail("these tests make devices: run them as root")


@contextmanager
def at_once(what: str) -> Iterator[None]:
    """Fail where the block waits."""

    def ring(*_: object) -> None:
        raise AssertionError(f"{what} waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@odd
@pytest.mark.parametrize("kind", BY_KIND)
def test_every_reader_of_metrics(tmp_path: Path, kind: str, make: Callable[[Path], None]) -> None:
    path = tmp_path / "metrics"
    make(path)
    with at_once(kind):
        reader = open_source(kind, str(path))
        batch = reader.read()
        again = reader.read(batch.cursor)
    assert (batch.points, again.points, again.more) == ([], [], False)


def _exact(path: str) -> None:
    reader = cat.ExactReader(path)
    with pytest.raises(cat.UnreadableFileError):
        reader.open()


def _follower(path: str) -> None:
    follower = LogFollower(path, None, 10)
    assert [follower.poll_frame() for _ in range(3)] == [None] * 3


def _own(path: str) -> None:
    assert [ScalarFollower("a", path, None).poll() for _ in range(3)] == [(None, [])] * 3


def _refused(read: Callable[[str], Any]) -> Callable[[str], None]:
    def refuse(path: str) -> None:
        with pytest.raises(OSError):
            read(path)

    return refuse


SMALL: dict[str, Callable[[str], None]] = {
    "file": lambda path: assert_none(files.read_file(path)),
    "json": lambda path: assert_none(files.read_json(path)),
    "lock": lambda path: assert_none(files.is_locked(path) or None),
    "hash": _refused(hashing.hash_path),
    "exact": _exact,
    "follower": _follower,
    "own metrics": _own,
}


def assert_none(value: object) -> None:
    assert value is None


@odd
@pytest.mark.parametrize("name", SMALL)
def test_every_other_reader(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    path = tmp_path / "file.log"
    make(path)
    with at_once(name):
        SMALL[name](str(path))


@pytest.mark.full_matrix
@odd
@pytest.mark.parametrize("name", ["job.json", "queue.txt", "indexes.json"])
def test_who_asks_whether_a_job_names_what_was_pushed(
    tmp_path: Path, name: str, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "find_references", lambda *_: ([], []))
    make(tmp_path / name)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / name).write_text("cd /data/code-0a1b2c3d && python train.py")
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / name).write_text("#" * (remove.LONGEST + 1))
    with at_once("the look"):
        for job in (tmp_path, tmp_path / "large"):
            doubts = code_versions.find_users(["/data/code-0a1b2c3d"], [str(job)]).doubts
            known = make is dangling and job == tmp_path
            assert (
                any(f"the job in {job} names cannot be read" in doubt for doubt in doubts)
                is not known
            )
        found = code_versions.find_users(["/data/code-0a1b2c3d"], [str(tmp_path / "good")])
    assert any("names it" in why for why in found.users_of("/data/code-0a1b2c3d"))


@odd
def test_a_log_that_was_rotated_away_to_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Its successor is looked for among the files beside it."""
    log = tmp_path / "train.log"
    log.write_text("one\n")
    follower = LogFollower(str(log), None, 10)
    reader = cat.ExactReader(str(log))
    reader.open()
    assert reader.read() == b"one\n"
    frame = follower.poll_frame()
    assert frame is not None and frame["lines"] == ["one"]
    log.rename(tmp_path / "train.log.2")
    make(tmp_path / "train.log.1")
    os.utime(tmp_path / "train.log.1", (2e9, 2e9), follow_symlinks=False)
    log.write_text("two\n")
    with at_once("the follower"):
        frame = follower.poll_frame()
        assert reader.next_file() == "rotated"
    assert frame is not None and frame["lines"] == ["two"]
    assert reader.read() == b"two\n"
    inode = os.lstat(tmp_path / "train.log.1").st_ino
    with at_once("the follower"):
        frame = LogFollower(str(log), (inode, 0), 10).poll_frame()
    assert frame is not None and frame["lines"] == ["two"]


def beside(place: Path, make: Callable[[Path], None]) -> Path:
    """A directory with good files and an odd thing under every name that somebody looks for."""
    place.mkdir()
    (place / "good.log").write_text("step 1: loss 1.0\n")
    (place / "good.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    for name in NAMES:
        make(place / name)
    return place


NAMES = (
    "metrics.jsonl", "train.log", "log.txt", "metrics.csv", "events.out.tfevents.1.a", "x.wandb", "mlflow.db",
    "trainer_state.json", "metrics.json", "manifest.json", "best.json", "result.json", ".rgt-manifest.jsonl",
)  # fmt: skip
JOB = (
    "queue.txt", "job.json", "state.json", "runner.lock", "master.log", "logs/a.log", "lanes/a.json",
    "lanes/a.lock", "lanes/closing.lock", "a.toml", "out/a", "logs", "lanes", "out",
)  # fmt: skip
STATE = (
    "recorder.json", "recorder.lock", "recorder-config.json", "found.json", "xid.json", "hashes.jsonl", "ring",
    "watcher-1.json", "ring/000000000001.seg", "ring/spare-000001",
)  # fmt: skip


def job(place: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A job in which the file `name` is an odd thing."""
    made = make_job(
        place, ["sh", "run.sh", "{out}"], ["a"], durable=str(place / "kept" / "{name}"), keep=["r"]
    )
    (made / "run.sh").write_text('mkdir -p "$1" && echo x > "$1/r"\n')
    path = made / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    return made


def _words(*words: str) -> Callable[[Path, Callable[[Path], None]], list[list[str]]]:
    """A verb that takes a path: given a directory of odd things, and each of them by itself."""

    def build(place: Path, make: Callable[[Path], None]) -> list[list[str]]:
        inside = beside(place / "d", make)
        return [
            [word.format(path, target=place / "target" / str(at)) for word in words]
            for at, path in enumerate(
                [inside, inside / "train.log", inside / "mlflow.db", inside / "manifest.json"]
            )
        ]

    return build


def _jobs(
    *words: str, names: tuple[str, ...] = JOB
) -> Callable[[Path, Callable[[Path], None]], list[list[str]]]:
    """A verb that takes a job: given one for each file of it that is an odd thing."""

    def build(place: Path, make: Callable[[Path], None]) -> list[list[str]]:
        made = [job(place / str(at), name, make) for at, name in enumerate(names)]
        return [[word.format(each) for word in words] for each in made]

    return build


def _several(
    *builders: Callable[[Path, Callable[[Path], None]], list[list[str]]],
) -> Callable[[Path, Callable[[Path], None]], list[list[str]]]:
    def build(place: Path, make: Callable[[Path], None]) -> list[list[str]]:
        found = []
        for at, builder in enumerate(builders):
            (place / f"b{at}").mkdir()
            found += builder(place / f"b{at}", make)
        return found

    return build


CALLS: dict[str, Callable[[Path, Callable[[Path], None]], list[list[str]]]] = {
    "sample": lambda *_: [["sample"]],
    "record": lambda *_: [["record", "--status"]],
    "queue": _several(
        _jobs("queue", "status", "--job", "{}"),
        _jobs("queue", "check", "--fix", "--job", "{}", names=(*JOB, "run.sh")),
        _jobs("queue", "run", "--job", "{}"),
        _jobs("queue", "cell", "--index", "0", "--job", "{}"),
    ),
    "launch": _jobs("launch", "--seconds", "0", "--smoke-seconds", "1", "--job", "{}"),
    "detach": _jobs("detach", "--job", "{}", "--help"),
    "remove": _jobs("remove", "--dry-run", "--job", "{}"),
    "manifest": _words("manifest", "{}"),
    "reconcile": _several(
        _jobs("reconcile", "--job", "{}"), _jobs("reconcile", "--job", "{}", "--durable", "{}/out")
    ),
    "results": _several(_words("results", "--run", "{}"), _jobs("results", "--job", "{}")),
    "seal": _jobs("seal", "--job", "{}", "--seconds", "1"),
    "unseal": _jobs("unseal", "{}"),
    "autostop": lambda *_: [
        ["autostop", "--status"],
        ["autostop", "--disarm"],
        ["autostop", "--arm"],
    ],
    "sink": lambda *_: [["sink", "--status"]],
    "mirror": _words("mirror", "{}", "{target}"),
    "cat": _several(_words("cat", "--path", "{}"), _words("cat", "--list", "{}", "--list", "{}/*")),
    "grep": _words("grep", "loss", "{}", "{}/*"),
    "scalars": _words("scalars", "{}"),
    "fix": _words("fix", "--", "{}"),
    "reap": _jobs("reap", "--job", "{}"),
    "stop": _jobs("stop", "--run", "a", "--job", "{}"),
    "gpu-health": lambda *_: [["gpu-health"]],
    "measure": _words("measure", "--dir", "{}", "--bytes", "4194304", "--seconds", "5"),
    "mirrors": lambda *_: [["mirrors", "show"]],
    "secret": _jobs(
        "secret", "find", "--job", "{}", "--durable", "{}", names=(*JOB, ".env", "secrets.env")
    ),
    "push": _several(
        _words("push", "list", "--place", "{}"),
        _words("push", "publish", "--staging", "{}"),
        _jobs("push", "prune", "--dry-run", "--place", "{}/..", "--job", "{}"),
    ),
    "on-start": _several(
        _jobs("on-start", "--job", "{}"), _words("on-start", "--keep-in", "{}", "--file", "{}/hook")
    ),
    "watch": lambda *_: [],  # has tests of its own below
    "send": lambda *_: [],  # likewise
}
"""Verb → its calls with odd things in the place of what it reads."""


def test_every_verb_is_in_the_matrix() -> None:
    assert set(CALLS) == set(VERBS)


RUNNER = """
import gc, json, os, pkgutil, signal, sys, tempfile, traceback
import ctypes, glob, hashlib, resource, shutil, socket, subprocess, threading, uuid, zipfile, zipimport
sys.path.insert(0, sys.argv[1])
import rgt_box
from rgt_box import bytecode
bytecode.install_importer(zipimport.zipimporter(sys.argv[1]))
from rgt_box.__main__ import main
for module in pkgutil.walk_packages(rgt_box.__path__, "rgt_box."):  # else each child imports what its verb does late
    if not module.name.endswith("__main__"):
        __import__(module.name)
bytecode.save_compiled()
gc.freeze()

def start(words):
    out = tempfile.TemporaryFile()
    pid = os.fork()
    if pid:
        return pid, out
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    signal.alarm(int(sys.argv[2]))  # ends it, and what it has become
    status = 99
    try:
        status = main(words) or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)

calls, under_way, answers = list(enumerate(json.load(sys.stdin))), {}, {}
while calls or under_way:
    while calls and len(under_way) < 6:
        at, words = calls.pop(0)
        pid, out = start(words)
        under_way[pid] = at, words, out
    pid, status = os.wait()
    at, words, out = under_way.pop(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    answers[at] = words, status, os.pread(out.fileno(), 1 << 20, 0).decode("utf-8", "replace")
    out.close()
json.dump([answers[at] for at in sorted(answers)], sys.stdout)
"""
"""Runs verbs in forked children of one interpreter, a few at once: of some two thousand calls most wait."""


@pytest.mark.parametrize(
    "make",
    [
        # To `open` and `stat` they are what a fifo, a device, a loop or a directory is; each reader takes them above.
        pytest.param(make, id=make.__name__, marks=pytest.mark.full if make in ALIKE else ())
        for make in ODD
    ],
)
def test_every_verb(tmp_path: Path, agent: Agent, make: Callable[[Path], None]) -> None:
    """Each call ends, with an answer of its own or a refusal in words, and never in a traceback."""
    agent.state.mkdir()
    calls = []
    for verb, build in CALLS.items():
        place = tmp_path / verb
        place.mkdir()
        calls += build(place, make)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUNNER, str(agent.path), str(int(PATIENCE))],
        input=json.dumps(calls).encode(),
        capture_output=True,
        env=agent.env | {"RGT_STOP_GRACE": "1", "RGT_ROOTS": str(tmp_path), "RGT_TERMINALS": ""},
        timeout=PATIENCE * (1 + len(calls)),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    answers = json.loads(done.stdout)
    assert [words for words, _, _ in answers] == calls
    assert [words for words, status, _ in answers if status == signal.SIGALRM] == []
    assert [
        (words, text) for words, _, text in answers if "Traceback" in text or len(text) >= 1 << 20
    ] == []


@odd
def test_send_answers_for_each(tmp_path: Path, agent: Agent, make: Callable[[Path], None]) -> None:
    """What is not a regular file is refused in words, and what comes behind it is sent all the same."""
    inside = beside(tmp_path / "d", make)
    good = tmp_path / "good"
    good.write_text("here")
    paths = [*sorted(inside.iterdir()), good]
    asked = [json.dumps({"id": at, "path": str(path)}) for at, path in enumerate(paths)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(agent.path), "send"],
        input="\n".join(asked).encode(),
        capture_output=True,
        env=agent.env,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"here" in done.stdout
    for at in range(len(paths)):
        assert b'"id":%d,' % at in done.stdout.replace(b": ", b":")


@pytest.mark.full_matrix
@odd
@pytest.mark.parametrize("name", STATE)
def test_every_file_of_the_state_directory(
    tmp_path: Path, agent: Agent, name: str, make: Callable[[Path], None]
) -> None:
    (agent.state / name).parent.mkdir(parents=True)
    make(agent.state / name)
    log = tmp_path / "good.log"
    log.write_text("here\n")
    channel = agent.watch(logs=[str(log)], interval=0.5)
    frame = channel.expect(lambda frame: getattr(frame, "path", None) == str(log), "the log")
    assert frame.lines == ("here",)
    channel.expect(lambda frame: type(frame).__name__ == "Sample", "a sample")
    channel.kill()  # the fixture insists on a good end of the recorder


@odd
def test_watch_goes_on_beside_it(
    tmp_path: Path, agent: Agent, make: Callable[[Path], None]
) -> None:
    """A good log, a good curve and a good queue come, whatever stands beside them."""
    inside = beside(tmp_path / "d", make)
    good = make_job(tmp_path / "good", ["true"], ["a"])
    bad = [str(job(tmp_path / f"job{at}", name, make)) for at, name in enumerate(JOB)]
    out = tmp_path / "good" / "out" / "a"
    out.mkdir(parents=True)
    (out / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0, "time": 1.0}\n')
    channel = agent.watch(
        jobs=[*bad, str(good)],
        logs=[str(inside / "*"), *map(str, inside.iterdir())],
        runs=[str(inside)],
        interval=1.0,
    )
    wanted = {"log", "scalar", "queue", "found scalar"}
    for frame in channel.frames():
        kind = type(frame).__name__
        if kind == "LogLines" and frame.path == str(inside / "good.log"):
            wanted.discard("log")
        if kind == "Scalars" and frame.source == str(out / "metrics.jsonl"):
            wanted.discard("scalar")
        if kind == "Scalars" and frame.source.startswith(str(inside)):
            wanted.discard("found scalar")
        if kind == "QueueState" and frame.path == str(good):
            wanted.discard("queue")
        assert kind != "Event" or frame.kind not in ("files-hang", "follow-failed"), frame
        if not wanted:
            break
    assert not wanted
    channel.kill()


def test_a_pipe_that_is_written_to_keeps_its_writer(tmp_path: Path, agent: Agent) -> None:
    """To open a pipe, and leave again, ends who writes to it: it is not even opened."""
    inside = beside(tmp_path / "d", fifo)
    channel = agent.watch(logs=[str(inside / "*")], runs=[str(inside)], interval=1.0)
    channel.expect(lambda frame: type(frame).__name__ == "Scalars", "a curve")
    for name in NAMES:
        with pytest.raises(OSError, match="No such device"):
            os.open(inside / name, os.O_WRONLY | os.O_NONBLOCK)  # nobody reads it
    channel.kill()


def test_the_durable_copy_of_links_in_circles(tmp_path: Path, agent: Agent) -> None:
    script = (
        'mkdir -p "$1/r/deep" && cd "$1/r" && echo weights > model.pt && echo y > deep/y && ln -s . self && '
        "ln -s .. deep/up && ln -s deep latest && mkfifo pipe && ln -s /dev/zero zero"
    )
    made = make_job(
        tmp_path / "job",
        ["sh", "-c", script, "sh", "{out}"],
        ["a"],
        durable=str(tmp_path / "kept" / "{name}"),
        keep=["r"],
    )
    done = subprocess.run(
        agent.command("queue", "run", "--job", str(made)),
        capture_output=True,
        env=agent.env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    kept = tmp_path / "kept" / "a"
    assert {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()} == {
        ".rgt-manifest.jsonl", "r/model.pt", "r/deep/y", "r/latest/y",
    }  # fmt: skip
    assert not any(path.is_symlink() for path in kept.rglob("*"))
    assert agent.run("reconcile", "--job", str(made)).returncode == 0


def test_the_durable_copy_of_a_maze_of_links_is_refused_by_name(
    tmp_path: Path, agent: Agent
) -> None:
    """Two links a level and thirty levels are a thousand million names: the copy says so instead."""
    script = (
        'mkdir -p "$1/r" && cd "$1/r" && for n in $(seq 30); do mkdir d$n; m=$((n+1)); ln -s ../d$m d$n/a; '
        "ln -s ../d$m d$n/b; done && mkdir d31 && echo x > d31/x"
    )
    made = make_job(
        tmp_path / "job",
        ["sh", "-c", script, "sh", "{out}"],
        ["a"],
        durable=str(tmp_path / "kept" / "{name}"),
        keep=["r"],
    )
    done = subprocess.run(
        agent.command("queue", "run", "--job", str(made)),
        capture_output=True,
        env=agent.env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    state = json.loads((made / "state.json").read_text())
    assert "under more than 8 names" in state["cells"][0]["reason"]
    assert not (tmp_path / "kept" / "a").exists()


FLEET = '[boxes.a]\nhost = "127.0.0.1"\nport = 1\n'
OF_THE_CLIENT: dict[str, tuple[str, ...]] = {
    "--fleet": ("--fleet", "{}", "status"),
    "trust": ("trust", "{}"),
    "trust --yes": ("trust", "--yes", "{}"),
    "trust --revoke": ("trust", "--revoke", "{}"),
    "replay": ("replay", "{}"),
    "replay --headless": ("replay", "{}", "--headless"),
    "record": ("--fleet", "fleet.toml", "record", "--out", "{}", "--for", "1"),
    "triage": ("triage", "{}"),
    "triage --samples": ("triage", "--samples", "{}", "train.log"),
    "verify": ("verify", "{}/{}"),
    "import": ("import", "--config", "{}"),
    "agent build": ("agent", "build", "--out", "{}"),
    "init": ("init", "--path", "{}"),
    "scalars": ("scalars", "{}"),
    "up --job": ("up", "--job", "{}", "--dry-run"),
    "run --job": ("--fleet", "fleet.toml", "run", "a", "--job", "{}"),
}
"""Commands that a person gives a file of this machine."""


@pytest.mark.parametrize("call", OF_THE_CLIENT)
def test_every_command_that_is_given_a_file(tmp_path: Path, call: str) -> None:
    """One that is none is refused at once, in words that name it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "fleet.toml").write_text(FLEET)
    (home / "train.log").write_text("step 1 loss 1.0\n")
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("RGT_", "XDG_"))
    }
    for make in ODD:
        name = f"odd-{make.__name__}"
        make(home / name)
        words = [word.replace("{}", name) for word in OF_THE_CLIENT[call]]
        try:
            done = warm_rgt.rgt(*words, cwd=home, env=env | {"HOME": str(home)}, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{words} waits")
        new = call == "agent build" and make in (
            device,
            link_to_device,
            dangling,
        )  # that can be written to
        assert done.returncode in ((0,) if new else (1, 2)), (words, done.stderr)
        named = name, os.path.realpath(home / name)  # or what it leads to
        assert any(word in done.stdout + done.stderr for word in named), (words, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)


@odd
def test_the_public_key_that_a_rented_machine_lets_in(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "key")
    with at_once("up --key"), pytest.raises(FleetFileError, match=r"key cannot be read"):
        public_key(str(tmp_path / "key"), tmp_path)


def test_a_fleet_may_come_through_what_a_shell_makes_of_a_command(tmp_path: Path) -> None:
    """``rgt --fleet <(…)``: a pipe without a name of its own; and a configuration may be none at all."""
    rgt = Path(sys.executable).with_name("rgt")
    script = f"exec {rgt} --fleet <(echo '[boxes.odd]') status"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "boxes.odd: lacks `host`" in done.stderr, done.stderr
    with open_named(Path(os.devnull)) as file:
        assert file.read() == b""
