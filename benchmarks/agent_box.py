"""A box for the agent's benchmark: a real sshd, the packed agent on it, and what its processes cost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import BenchmarkError
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import build_agent

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/id.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel ERROR
SetEnv HOME={folder}/home XDG_CACHE_HOME={folder}/home/.cache RGT_ROOTS={folder}/box
"""

ROW = [97, 21474836480, 61, 410.5, 2505]
"""A GPU at work: percent, bytes, degrees, watts, megahertz."""


def write_trace(path: Path, gpus: int) -> Path:
    """Write a GPU trace in which every second looks a little different."""
    rows = [
        [90 + n % 10, ROW[1], 60 + n % 3, 400 + n % 20 + 0.5, 2400 + 15 * (n % 8)]
        for n in range(60)
    ]
    fixed = {
        "name": "RTX 4090",
        "vram_total": 25757220864,
        "power_limit_w": 450,
        "clock_max_mhz": 2520,
    }
    made = [{"index": index, **fixed, "busy": rows, "idle": rows} for index in range(gpus)]
    path.write_text(json.dumps({"gpus": made}))
    return path


def cpu_seconds(pid: int) -> float:
    """CPU of a process with all its threads: to the nanosecond where the kernel tells, else by its ticks."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    exact = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            exact += int((task / "schedstat").read_text().split()[0]) / 1e9
    return max(ticks - 0.01, exact)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    )


def subprocess_tick_seconds(rounds: int = 100) -> float:
    """CPU of one tick that starts a program and reads its output, as who polls nvidia-smi pays it at the least."""
    words = [shutil.which("true") or "/bin/true"]
    before = os.times()
    for _ in range(rounds):
        subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return sum(b - a for a, b in zip(before[:4], os.times()[:4], strict=True)) / rounds


TRAIN = """
import json, time
step = 0
with open("history.jsonl", "a", buffering=1) as file:
    while True:
        step += 1
        loss = 2 + 3 / step
        file.write(json.dumps({"step": step, "loss": loss, "lr": 0.001}) + "\\n")
        print(f"step {step} | loss {loss:.4f} | lr 1.0e-03", flush=True)
        time.sleep(0.2)
"""


@contextlib.contextmanager
def crowd(folder: Path, count: int) -> Iterator[None]:
    """A box with `count` processes, one of them a training that nobody names: five steps a second."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    idle = [subprocess.Popen(["sleep", "1000"]) for _ in range(count - 1)]
    with (folder / "run.log").open("wb") as log:
        training = subprocess.Popen(
            [sys.executable, "train.py"], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        for process in (*idle, training):
            process.kill()
            process.wait()


class PackedAgent:
    """The agent as a file, with a state directory of its own."""

    def __init__(self, folder: Path) -> None:
        bundle = build_agent()
        self.path = folder / bundle.filename
        self.path.write_bytes(bundle.data)
        self.state = folder / "state"
        self.env = dict(os.environ, RGT_STATE_DIR=str(self.state), RGT_RAM_DIR=str(folder))

    def command(self, *words: str) -> list[str]:
        """The command line of a verb."""
        return [sys.executable, "-I", "-S", str(self.path), *words]

    @contextlib.contextmanager
    def watch(
        self, output: int | None = None, **config: object
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A running ``watch``; its output is discarded unless a descriptor is given."""
        process = subprocess.Popen(
            self.command("watch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if output is None else output,
            env=self.env,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(10)

    def recorder_pid(self) -> int:
        """The recorder, once it is there."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return int(json.loads((self.state / "recorder.json").read_bytes())["pid"])
            time.sleep(0.02)
        raise BenchmarkError("the recorder did not come up")

    def stop(self) -> None:
        """End the recorder."""
        subprocess.run(self.command("record", "--stop"), env=self.env, check=True)


@contextlib.contextmanager
def real_sshd(folder: Path) -> Iterator[BoxSpec]:
    """A real OpenSSH server on the loopback; gives how to log in."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(sshd).exists():
        raise BenchmarkError("no sshd on this machine")
    (folder / "home").mkdir()
    for name in ("host_key", "id"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    (folder / "known_hosts").write_text(
        f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}"
    )
    server = subprocess.Popen(
        [sshd, "-D", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL
    )
    try:
        while True:
            if server.poll() is not None:
                raise BenchmarkError("sshd does not start")
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), 5) as sock,
            ):
                if sock.recv(4) == b"SSH-":
                    break
            time.sleep(0.02)
        if os.geteuid() == 0:
            user = "root"
        else:
            user = os.environ.get("USER", "root")
        yield BoxSpec(
            name="bench", host="127.0.0.1", port=port, user=user, python=sys.executable,
            identity=str(folder / "id"), known_hosts=str(folder / "known_hosts"), ssh_config="none",
        )  # fmt: skip
    finally:
        server.terminate()
        server.wait()
