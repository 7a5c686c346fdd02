"""Drive the real agent in the tests: build it, run its verbs, read its frames strictly."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.sampling import cgroup

from rgt_tui.model import protocol
from rgt_tui.ssh.channel import PackedLines

PATIENCE = 60.0
"""Seconds after which something that was awaited counts as never coming."""

RECORDING = (("watch",), ("record",), ("autostop",))
"""The verbs that start the recorder."""

INTERPRETERS = Path(__file__).parents[3] / ".interpreters"
"""Where set-up puts a Python of every version that the agent supports."""


def pythons(*wanted: int, between: pytest.MarkDecorator | None = None) -> list[Any]:
    """Return the interpreters 3.8 to 3.13 (or of these minors) as parameters; one that is absent skips its test.

    `between` is a mark for all but the oldest and the newest.
    """
    paths = [INTERPRETERS / f"python3.{minor}" for minor in wanted or range(8, 14)]
    missing = [pytest.mark.skip(f"no {path.name}: see scripts/interpreters.sh") for path in paths]
    return [
        pytest.param(
            str(path),
            id=path.name,
            marks=[
                *([] if path.exists() else [skip]),
                *([between] if between and path not in (paths[0], paths[-1]) else []),
            ],
        )
        for path, skip in zip(paths, missing, strict=True)
    ]


def decode(line: bytes) -> Any:
    """Decode a frame and insist that the agent sent no field that the structs lack."""
    assert len(line) <= protocol.MAX_FRAME_BYTES
    frame = msgspec.json.decode(line, type=protocol.Frame)
    raw = json.loads(line)
    raw.pop("t")
    assert_known(raw, msgspec.to_builtins(frame), type(frame).__name__)
    return frame


def assert_known(raw: Any, known: Any, where: str) -> None:
    """Fail when `raw` has a key that decoding dropped."""
    if isinstance(raw, dict):
        for key, value in raw.items():
            assert key in known, f"{where} has no field {key}"
            assert_known(value, known[key], f"{where}.{key}")
    elif isinstance(raw, list):
        assert len(raw) == len(known), where
        for left, right in zip(raw, known, strict=True):
            assert_known(left, right, where)


def until(
    condition: Callable[[], Any], what: str = "the condition", patience: float = PATIENCE
) -> Any:
    """Poll for something that another process does; returns its first true value."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        began = time.monotonic()
        found = condition()
        if found:
            return found
        # A condition that starts a process takes half of a core at most: what it waits for needs the other.
        time.sleep(max(0.005, time.monotonic() - began))
    raise AssertionError(f"{what} did not come about")


class Agent:
    """One agent file on one pretended box (a state directory of its own)."""

    def __init__(self, path: Path, state: Path, python: str = sys.executable) -> None:
        self.path, self.state, self.python = path, state, python
        self.env = dict(os.environ, RGT_STATE_DIR=str(state), RGT_RING_BYTES=str(1 << 20))
        self.env["RGT_READ_SECONDS"] = (
            "50"  # a sample of a busy machine lacks nothing that was only slow
        )
        self.env.pop("TMUX", None)
        self.channels: list[Channel] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._records = False

    def command(self, *words: str) -> list[str]:
        self._records = self._records or words[:1] in RECORDING
        return [self.python, "-I", "-S", str(self.path), *words]

    def run(
        self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*words),
            input=stdin,
            capture_output=True,
            env=self.env | (env or {}),
            timeout=60,
            check=False,
        )

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.env | (env or {}),
        )
        self._started.append(process)
        return process

    def watch(self, **config: Any) -> Channel:
        self.channels.append(Channel(self, config))
        return self.channels[-1]

    def recorder_pid(self) -> int | None:
        try:
            status = json.loads((self.state / "recorder.json").read_bytes())
        except (OSError, ValueError):
            return None
        pid = status.get("pid")
        return pid if isinstance(pid, int) and Path(f"/proc/{pid}").exists() else None

    def stop(self) -> None:
        """End what still runs: a watch that a failed test left open would start the recorder again."""
        for channel in self.channels:
            channel.process.kill()
            channel.process.wait()
        for process in self._started:  # a runner whose cell ends only when it is told to
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)
        # Each file of the recorder begins with its name: without one no process has to be asked to end it.
        if self._records or any(self.state.glob("recorder*")):
            self.stop_recorder()

    def stop_recorder(self) -> None:
        """Stop it; the verb waits for some seconds alone, and on a busy machine it may take longer to end."""
        until(lambda: self.run("record", "--stop").returncode == 0, "the end of the recorder")


class Channel:
    """A running ``watch``."""

    def __init__(self, agent: Agent, config: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            agent.command("watch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=agent.env,
            bufsize=0,
        )
        self._buffer = b""
        self._packed: PackedLines | None = None
        self.send(config)

    def send(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")

    def lines(self, patience: float = PATIENCE) -> Iterator[bytes]:
        """Yield complete lines until the channel ends or stays silent for `patience` seconds."""
        for line in self._lines(patience):
            if self._packed is None and b'"packed_lines":true' in line:
                self._packed, packed, self._buffer = PackedLines(), self._buffer, b""
                self._take(packed)
            yield line

    def _take(self, data: bytes) -> None:
        rest: bytes | None = data
        while rest is not None:
            found, rest = (rest, None) if self._packed is None else self._packed.feed_data(rest)
            self._buffer += found

    def _lines(self, patience: float) -> Iterator[bytes]:
        assert self.process.stdout is not None
        while True:
            *whole, self._buffer = self._buffer.split(b"\n")
            for index, line in enumerate(whole):
                rest = whole[index + 1 :]
                held = self._buffer
                self._buffer = b"".join(item + b"\n" for item in rest) + held
                yield line
                break
            if whole:
                continue
            ready, _, _ = select.select([self.process.stdout], [], [], patience)
            data = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            if not data:
                return
            self._take(data)

    def frames(self, patience: float = PATIENCE) -> Iterator[Any]:
        for line in self.lines(patience):
            yield decode(line)

    def expect(self, condition: Callable[[Any], Any], what: str = "a frame") -> Any:
        """Read frames until one satisfies `condition`."""
        deadline = time.monotonic() + PATIENCE
        for frame in self.frames():
            if condition(frame):
                return frame
            if time.monotonic() > deadline:
                break
        raise AssertionError(f"{what} did not come")

    def sync(self, number: int = 1) -> list[Any]:
        """Ping, and return all frames up to the answer."""
        self.send({"op": "ping", "id": number})
        seen: list[Any] = []
        for frame in self.frames():
            seen.append(frame)
            if isinstance(frame, protocol.Pong) and frame.id == number:
                return seen
        raise AssertionError("the pong did not come")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def close(self) -> int:
        """End stdin and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self._end()
        return status

    def _end(self) -> None:
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def private_mount(*commands: str) -> list[str]:
    """Return a command prefix: a mount namespace of its own in which the shell `commands` run first."""
    flags = ["-m"] if os.geteuid() == 0 else ["-U", "-r", "-m"]
    script = " && ".join((*commands, 'exec "$@"'))
    return ["unshare", *flags, "--propagation", "private", "sh", "-c", script, "sh"]


def make_job(folder: Path, command: list[str], cells: list[str], **settings: Any) -> Path:
    """Write a job directory whose cells run `command`; `cells` are config names."""
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        (folder / f"{cell}.toml").write_text("")
    (folder / "queue.txt").write_text("".join(f"{cell}.toml lm\n" for cell in cells))
    job = {"command": command, "out": str(folder / "out" / "{name}")} | settings
    (folder / "job.json").write_text(json.dumps(job))
    return folder


def master_log(job: Path) -> str:
    """Return what a queue's runner has told so far; "" before its first word."""
    path = job / "master.log"
    return path.read_text() if path.exists() else ""


@contextmanager
def memory_group(name: str, limit: int) -> Iterator[Path]:
    """A memory cgroup below our own with a limit in bytes; removed once its last process has gone."""
    place = cgroup.locate_own_controller("memory")
    if place is None:
        pytest.skip("no memory controller")
    folder = Path(place.levels[-1]) / f"{name}-{os.getpid()}"
    try:
        folder.mkdir()
        file = "memory.limit_in_bytes" if place.version == 1 else "memory.max"
        (folder / file).write_text(str(limit))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        until(
            lambda: not (folder / "cgroup.procs").read_text().strip(),
            "the end of the group's processes",
        )
        folder.rmdir()


def enter(group: Path) -> list[str]:
    """What runs a command inside a cgroup."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


class AgentInside(Agent):
    """An agent whose processes live in a cgroup."""

    def __init__(self, path: Path, state: Path, group: Path) -> None:
        super().__init__(path, state)
        self.group = group

    def command(self, *words: str) -> list[str]:
        return [*enter(self.group), *super().command(*words)]
