"""A tmux server may order whoever connects to it to run a command: only this user's own is ever asked.

Real second users, real sockets, real tmux, and the real agent as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rgt_box import ownership
from rgt_box.discovery import found_run

from rgt_tui.model import protocol
from tests.process.box.harness import PATIENCE, Agent, make_job, master_log, until
from tests.security.conftest import NOBODY, training

READY, LOCK, PROTOCOL = 207, 206, 8
"""Of tmux's protocol: the client is attached; it is to run a command. tmux-protocol.h"""
pytestmark = [
    pytest.mark.serial,  # the agent looks at every process there is: other tests' trainings would be in the way
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]


class EvilServer:
    """Listens as nobody and orders every client to leave a mark; a real client obeys."""

    def __init__(self, path: Path) -> None:
        self.path, self.mark, self.connections = path, path.with_name("mark"), 0
        self._socket = socket.socket(socket.AF_UNIX)
        # The kernel notes who calls listen(2), for SO_PEERCRED.
        os.seteuid(NOBODY)
        try:
            self._socket.bind(str(path))
            self._socket.listen(16)
        finally:
            os.seteuid(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            order = f"id > {self.mark}".encode() + b"\0"
            with client, contextlib.suppress(OSError):
                for kind, data in ((READY, b""), (LOCK, order)):
                    client.sendall(
                        struct.pack("=IHHII", kind, 16 + len(data), 0, PROTOCOL, os.getpid()) + data
                    )
                client.settimeout(5)
                while client.recv(65536):
                    pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def evil(home_of_nobody: Path) -> Iterator[EvilServer]:
    server = EvilServer(home_of_nobody / "default")
    yield server
    server.close()


def found(agent: Agent, pid: int) -> protocol.FoundRun:
    """Watch until the training was found, and for some looks more; what is told of it last."""
    agent.env["RGT_FIND_SECONDS"] = "0.5"
    channel = agent.watch(interval=0.2, find=True)
    runs: dict[int, protocol.FoundRun] = {}
    looks = 0
    for frame in channel.frames():
        if isinstance(frame, protocol.FoundRuns):
            runs = {run.pid: run for run in frame.runs}
        looks += pid in runs
        if looks > 20:
            break
    channel.kill()
    return runs[pid]


def test_the_evil_server_bites(evil: EvilServer) -> None:
    """What the other tests rest on: a tmux of root that connects there runs the command as root."""
    words = ["tmux", "-S", str(evil.path), "list-panes", "-a"]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False)
    assert evil.connections == 1
    until(lambda: evil.mark.exists() and "uid=0(root)" in evil.mark.read_text(), "the mark of root")


@pytest.mark.parametrize("effective", [NOBODY, 0], ids=["plain", "set-user-ID"])
def test_the_tmux_of_another_user_is_never_connected_to(
    agent: Agent, evil: EvilServer, home_of_nobody: Path, effective: int
) -> None:
    """Nor where a program of root's was started by another user, who has chosen its environment."""
    with training(home_of_nobody, str(evil.path), effective=effective) as pid:
        assert ownership.process_uids(pid) == (NOBODY, effective, effective, effective)
        run = found(agent, pid)
    assert (evil.connections, evil.mark.exists()) == (0, False)
    assert (run.user, run.session, run.place, run.log) == ("nobody", "tmux", "%7", None)
    assert any("a tmux of another user or container" in note for note in run.notes)


def test_a_socket_of_another_user_in_the_environment_of_ones_own_process_is_left_alone(
    agent: Agent, evil: EvilServer, home_of_nobody: Path
) -> None:
    """``sudo -E python train.py`` in a colleague's tmux."""
    with training(home_of_nobody, str(evil.path), real=0, effective=0) as pid:
        run = found(agent, pid)
    assert (evil.connections, evil.mark.exists(), run.user, run.log) == (0, False, "root", None)


@pytest.fixture
def own_tmux() -> Iterator[str]:
    """A tmux server of root, in /tmp as people have it."""
    path = f"/tmp/rgt-{uuid.uuid4().hex[:12]}"
    words = ["tmux", "-S", path, "-f", "/dev/null"]
    subprocess.run([*words, "new-session", "-d", "-s", "secret", "sleep 1000"], check=True)
    yield path
    subprocess.run([*words, "kill-server"], check=False, stderr=subprocess.DEVNULL)


def test_who_pretends_to_live_in_roots_pane_is_not_shown_what_is_in_it(
    agent: Agent, own_tmux: str, home_of_nobody: Path
) -> None:
    with training(home_of_nobody, own_tmux) as pid:
        run = found(agent, pid)
        life = found_run.find_session(pid, [["tmux: server"]])
        assert (life.socket, life.pane) == (None, None)
    assert run.log is None


def test_ones_own_server_is_asked(own_tmux: str, tmp_path: Path) -> None:
    assert ownership.own_socket(own_tmux) == own_tmux
    assert "%0" in found_run.parse_panes(
        found_run.query_tmux(own_tmux, ["list-panes", "-a", "-F", found_run.PANE_FORMAT], 20)
    )
    (tmp_path / "link").symlink_to(own_tmux)
    (tmp_path / "tmp").symlink_to("/tmp")
    through = tmp_path / "tmp" / os.path.basename(own_tmux)
    assert ownership.own_socket(str(through)) == own_tmux
    assert ownership.own_socket(str(tmp_path / "link")) is None
    assert found_run.query_tmux(str(tmp_path / "link"), ["list-panes", "-a"], 20) == ""


def test_a_socket_in_a_directory_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(ownership, "own_socket", lambda path: path if gate.wait() else None)
    monkeypatch.setattr(found_run, "SOCKET_WAIT", 0.0)
    env = {"TMUX": "/hung/tmux-0/default,1,0", "TMUX_PANE": "%3"}
    child = subprocess.Popen(["sleep", "1000"], env=env)
    try:
        # The kernel closes what `Popen` waits for before the new program's environment can be read.
        until(lambda: found_run.read_environment(child.pid) == env)
        assert found_run.find_session(child.pid, [["tmux: server"]]) == ("tmux", "%3", None, None)
        gate.set()
        monkeypatch.setattr(found_run, "SOCKET_WAIT", PATIENCE)
        assert found_run.find_session(child.pid, [["tmux: server"]])[2:] == (
            "/hung/tmux-0/default",
            "%3",
        )
    finally:
        gate.set()
        child.kill()
        child.wait()


def test_a_socket_that_another_user_can_replace_is_not_used(
    own_tmux: str, home_of_nobody: Path
) -> None:
    mine = home_of_nobody / "default"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(mine))
        server.listen(4)
        assert ownership.own_socket(str(mine)) is None
        os.chown(home_of_nobody, 0, 0)
        assert ownership.own_socket(str(mine)) == str(mine)
        home_of_nobody.chmod(0o777)
        assert ownership.own_socket(str(mine)) is None
        home_of_nobody.chmod(0o1777)
        assert ownership.own_socket(str(mine)) == str(mine)
        home_of_nobody.chmod(0o770)
        os.chown(home_of_nobody, 0, NOBODY)
        assert ownership.own_socket(str(mine)) is None
        os.chown(home_of_nobody, 0, 0)
        assert ownership.own_socket(str(mine)) == str(mine)
        home_of_nobody.parent.chmod(0o777)
        assert ownership.own_socket(str(mine)) is None


def test_a_server_of_another_user_behind_a_socket_given_to_us_is_not_used(
    evil: EvilServer, open_folder: Path
) -> None:
    """Whose the socket is can be changed; who listens cannot."""
    mine = open_folder / "mine"
    mine.mkdir(mode=0o700)
    evil.path.rename(mine / "default")
    os.chown(mine / "default", 0, 0)
    assert ownership.own_socket(str(mine / "default")) is None
    assert found_run.query_tmux(str(mine / "default"), ["list-panes", "-a"], 20) == ""
    assert not evil.mark.exists()


def test_nor_is_the_tmux_that_su_left_in_the_environment(
    agent: Agent, evil: EvilServer, own_tmux: str, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", "read x < go"], ["a"])
    os.mkfifo(job / "go")
    foreign = {"TMUX": f"{evil.path},1,0", "TMUX_TMPDIR": str(tmp_path)}
    sample = json.loads(agent.run("sample", env=foreign).stdout)
    assert sample["session"].get("tmux", []) == []
    started = agent.run("detach", "--job", str(job), env=foreign)
    assert json.loads(started.stdout)["how"] == "tmux", started.stderr
    (job / "go").write_text("\n")
    until(lambda: master_log(job).endswith("QUEUE DONE\n"), "the end of the queue")
    assert (evil.connections, evil.mark.exists()) == (0, False)
    own = json.loads(agent.run("sample", env={"TMUX": f"{own_tmux},1,0"}).stdout)
    assert own["session"]["tmux"] == ["secret"]


def test_no_socket_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "left"))
    for name in ("none", "file", "fifo", "left", "x" * 200, "none/none", "\0"):
        assert ownership.own_socket(str(tmp_path / name)) is None


def test_a_real_tmux_of_another_user_is_told_of_but_not_asked(
    agent: Agent, open_folder: Path, home_of_nobody: Path
) -> None:
    path, tag = home_of_nobody / "real", uuid.uuid4().hex
    words = [
        "setpriv",
        "--reuid",
        str(NOBODY),
        "--clear-groups",
        "tmux",
        "-vv",
        "-S",
        str(path),
        "-f",
        "/dev/null",
    ]
    program = shutil.copy(shutil.which("sleep") or "", home_of_nobody / f"train-{tag}")
    subprocess.run(
        [*words, "new-session", "-d", "-s", "x", str(program), "1000"],
        check=True,
        cwd=home_of_nobody,
    )
    try:
        (log,) = until(lambda: list(home_of_nobody.glob("tmux-server-*.log")), "the server's log")
        before = log.read_text().count("new client")
        agent.env["RGT_FIND_SECONDS"] = "0.5"
        channel = agent.watch(interval=0.2, find=True, pattern=tag)
        frame = channel.expect(
            lambda frame: isinstance(frame, protocol.FoundRuns) and bool(frame.runs), "the run"
        )
        for _ in range(3):
            channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        channel.kill()
        (run,) = frame.runs
        assert (run.user, run.session, run.place, run.log) == ("nobody", "tmux", "%0", None)
        assert log.read_text().count("new client") == before
    finally:
        subprocess.run([*words, "kill-server"], check=True, cwd=home_of_nobody)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SLURM_JOB_ID", "7", ("slurm", "7")),
        ("SLURM_JOB_ID", "--help", ("slurm", None)),
        ("SLURM_JOB_ID", "7 8", ("slurm", None)),
        ("TMUX_PANE", "%3", ("tmux", "%3")),
        ("TMUX_PANE", "-F", ("tmux", None)),
        ("TMUX_PANE", "%3;kill-server", ("tmux", None)),
    ],
)
def test_what_a_process_says_of_itself_is_never_an_option_of_a_command(
    variable: str, value: str, told: tuple[str, str | None]
) -> None:
    above = "slurmstepd: [1]" if told[0] == "slurm" else "tmux: server"
    env = {"PATH": os.environ["PATH"], variable: value}
    with subprocess.Popen(["sleep", "1000"], env=env) as process:
        try:
            until(lambda: found_run.read_environment(process.pid) == env)
            life = found_run.find_session(process.pid, [[above]])
            assert (life.kind, life.place) == told
            assert life.pane == (life.place if told[0] == "tmux" else None)
        finally:
            process.kill()
