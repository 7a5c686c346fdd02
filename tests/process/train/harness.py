"""Launching, watching and killing real trainers from a test."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ENV = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "remote"),
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
TIMEOUT = 300.0
END = "\0that was all"
"""Written behind all that a trainer has said, once it has ended."""
TINY = {
    "steps_per_epoch": 40, "epochs": 2, "batch": 2, "width": 8, "layers": 1, "heads": 2, "context": 8,
    "corpus": 4000, "dropout": 0.2, "save_every": 7, "warmup": 3,
}  # fmt: skip
"""A char_lm whose step takes about 2 ms, with dropout and epochs that end between two checkpoints."""


class Trainer:
    """One launched trainer; its output is read by a thread, so that a test waits for lines, not for time."""

    def __init__(self, fifo: Path) -> None:
        self.pid = 0
        self.code: int | None = None
        self.lines: list[str] = []
        self._news = threading.Condition()
        os.mkfifo(fifo)
        # Both ends: no EOF before the trainer has opened it.
        self._fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self._keep: int | None = os.open(fifo, os.O_WRONLY)
        self._all_heard = False
        self._go: int | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def wait_line(self, pattern: str, count: int = 1) -> str:
        """Wait until `count` lines contain the regular expression `pattern`; return the last of them."""
        found = re.compile(pattern)

        def hit() -> list[str]:
            return [line for line in self.lines if found.search(line)]

        self._until(lambda: len(hit()) >= count or self.code is not None, f"{count} x {pattern!r}")
        if self.code is not None:
            self.wait()  # its last lines may come behind the news of its end
        if len(hit()) < count:
            raise AssertionError(
                f"ended with {self.code} before {count} x {pattern!r}:\n{self.text()}"
            )
        return hit()[count - 1]

    def wait_more_lines(self, count: int) -> bool:
        """Wait for `count` further lines; False if it ended before."""
        target = len(self.lines) + count
        self._until(
            lambda: len(self.lines) >= target or self.code is not None, f"{count} more lines"
        )
        return self.code is None

    def wait(self) -> int:
        """Wait for its end, and for all that it has said; return the exit code, negative for a signal."""
        self.go_on()
        self._until(lambda: self.code is not None, "the end")
        keep, self._keep = self._keep, None
        if keep is not None:
            os.write(
                keep, f"{END}\n".encode()
            )  # orphaned data workers may hold the pipe for longer
            os.close(keep)
        if self._go is not None:
            os.close(self._go)
            self._go = None
        self._until(lambda: self._all_heard, "what it said last")
        assert self.code is not None
        return self.code

    def brake(self, fifo: Path) -> None:
        """Make what lets it go on where it was launched with a brake."""
        os.mkfifo(fifo)
        self._go = os.open(
            fifo, os.O_RDWR | os.O_NONBLOCK
        )  # both ends: the word stays until it is read

    def go_on(self) -> None:
        """Let go of the brake; `wait`, `signal` and `kill` do that, too."""
        if self._go is not None:
            os.write(self._go, b".")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal (the zygote has not reaped it while `code` is None, so the pid is its own)."""
        if self.code is None:
            os.kill(self.pid, number)
        self.go_on()

    def kill(self) -> int:
        """SIGKILL it and wait."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def text(self) -> str:
        """Return all output."""
        return "\n".join(self.lines)

    def ended(self, code: int) -> None:
        """Take in the exit code."""
        with self._news:
            self.code = code
            self._news.notify_all()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        with self._news:
            if not self._news.wait_for(reached, TIMEOUT):
                raise AssertionError(f"waited {TIMEOUT:.0f} s for {what}:\n{self.text()}")

    def _read(self) -> None:
        """Collect lines; `_keep` holds the FIFO open until the trainer is gone."""
        os.set_blocking(self._fd, True)
        with os.fdopen(self._fd, encoding="utf-8", errors="replace") as file:
            for line in file:
                text, over, _ = line.rstrip("\n").partition(END)
                with self._news:
                    if text or not over:
                        self.lines.append(text)
                    self._all_heard = self._all_heard or bool(over)
                    self._news.notify_all()


class Zygote:
    """The forking process, plain or behind `prefix` (a command that ends by executing its arguments).

    Under another `python` it has the packages of this one.
    """

    def __init__(
        self, place: Path, prefix: list[str] | None = None, *, python: str = sys.executable
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._count = 0
        self._started: queue.Queue[tuple[int, int]] = queue.Queue()
        self._trainers: dict[int, Trainer] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        command = [*(prefix or []), python, str(Path(__file__).with_name("zygote.py"))]
        env = ENV
        if python != sys.executable:
            packages = sysconfig.get_path("purelib")
            env = ENV | {"PYTHONPATH": os.pathsep.join([ENV["PYTHONPATH"], str(ROOT), packages])}
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd=place,  # in no work tree: each launch would ask git about all of ours
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self._ready = self.process.stdout.readline()
        if self._ready:
            threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it came up."""
        return bool(self._ready)

    def launch(
        self,
        out: Path | str,
        values: dict[str, Any] | None = None,
        *extra: str,
        brake: int | None = None,
    ) -> Trainer:
        """Start ``rgt_train --out OUT --set …`` with TINY and `values`.

        The value `background` is no option: False makes it save exactly at the steps that are due. From the step
        `brake` on each step waits for the test: what is to be killed or stopped must not have ended before.
        """
        argv = ["--out", str(out)]
        values = {**TINY, **(values or {})}
        background = values.pop("background", True)
        for key, value in values.items():
            argv += ["--set", f"{key}={value}"]
        return self.launch_raw([*argv, *extra], background=background, brake=brake)

    def launch_raw(
        self,
        argv: list[str],
        *,
        background: bool = True,
        env: dict[str, str] | None = None,
        brake: int | None = None,
    ) -> Trainer:
        """Start ``rgt_train`` with exactly these arguments."""
        env = {"RGT_TRAIN_BACKGROUND": str(int(background)), **(env or {})}
        return self._launch({"argv": argv, "env": env}, brake)

    def launch_script(
        self,
        path: Path,
        *words: str,
        background: bool = False,
        env: dict[str, str] | None = None,
        brake: int | None = None,
    ) -> Trainer:
        """Start a Python file in its own directory; it saves exactly at the steps that are due by default."""
        env = {"RGT_TRAIN_BACKGROUND": str(int(background)), **(env or {})}
        return self._launch({"script": str(path), "argv": list(words), "env": env}, brake)

    def _launch(self, request: dict[str, Any], brake: int | None) -> Trainer:
        self._count += 1
        fifo = self._place / f"out{self._count}"
        trainer = Trainer(fifo)
        if brake is not None:
            trainer.brake(self._place / f"go{self._count}")
            request = {**request, "brake": brake, "go": str(self._place / f"go{self._count}")}
        assert self.process.stdin is not None
        number = self._count
        self.process.stdin.write(
            json.dumps({**request, "fifo": str(fifo), "number": number}) + "\n"
        )
        self.process.stdin.flush()
        started = 0
        while started != number:  # an earlier answer is of a launch that a test's end has cut off
            trainer.pid, started = self._started.get(timeout=TIMEOUT)
        with self._lock:
            self._trainers[trainer.pid] = trainer
            early = self._early.pop(trainer.pid, None)
        if early is not None:
            trainer.ended(early)
        return trainer

    def close(self) -> None:
        """End it; the kernel ends its trainers."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                message = json.loads(line)
                if "started" in message:
                    self._started.put((message["started"], message["number"]))
                    continue
                with self._lock:
                    trainer = self._trainers.pop(message["ended"], None)
                    if trainer is None:
                        self._early[message["ended"]] = message["code"]
                if trainer is not None:
                    trainer.ended(message["code"])
        except ValueError:
            return  # closed under the reader


@contextmanager
def zygote(place: Path, *, python: str = sys.executable) -> Iterator[Zygote]:
    """Give a running zygote."""
    result = Zygote(place, python=python)
    try:
        yield result
    finally:
        result.close()


class Mounts:
    """A zygote in its own mount namespace, with tmpfs directories that nobody else sees and that vanish with it."""

    def __init__(self, place: Path, mounts: dict[str, str]) -> None:
        self._base = place / "mnt"
        commands = []
        for name, options in mounts.items():
            (self._base / name).mkdir(parents=True)
            commands.append(f"mount -t tmpfs -o {options} none '{self._base / name}'")
        script = " && ".join([*commands, 'exec "$@"'])
        self.zygote = None
        if shutil.which("unshare") is None:
            return
        for flags in (["-m"], ["-U", "-r", "-m"]):
            candidate = Zygote(place / "fifos", ["unshare", *flags, "sh", "-c", script, "sh"])
            if candidate.alive:
                self.zygote = candidate
                break
            candidate.close()
            shutil.rmtree(place / "fifos")

    def inside(self, name: str) -> str:
        """Return the path of a mount as the trainers see it."""
        return str(self._base / name)

    def outside(self, name: str) -> Path:
        """Return a path by which the test sees the same directory."""
        assert self.zygote is not None
        return Path(f"/proc/{self.zygote.process.pid}/root{self._base / name}")

    def cover(self, directory: Path, *, read_only: bool) -> None:
        """Put a read-only bind mount over a directory of a mount (given by its outside path), or take it away."""
        assert self.zygote is not None
        inside = str(directory).removeprefix(f"/proc/{self.zygote.process.pid}/root")
        script = (
            'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
            if read_only
            else 'umount -l "$1"'
        )
        target = ["-t", str(self.zygote.process.pid), "-m"]
        if os.geteuid() != 0:
            target += ["-U", "--preserve-credentials"]
        subprocess.run(
            ["nsenter", *target, "sh", "-c", script, "sh", inside], check=True, timeout=TIMEOUT
        )


def wipe(folder: Path) -> None:
    """Delete a directory in which a helper of a trainer that was killed just now may still end a call of its own."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def metrics(out: Path) -> list[dict[str, Any]]:
    """Return all lines of a run's metrics."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out: Path) -> dict[int, float]:
    """Return step → loss, the last entry of a step wins (what a reader does after a resume)."""
    return {
        line["step"]: line["loss"]
        for line in metrics(out)
        if "loss" in line and "event" not in line
    }


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind."""
    return [line for line in metrics(out) if line.get("event") == kind]


def steps_kept(out: Path) -> list[int]:
    """Return the steps of the published checkpoints."""
    return sorted(int(path.name[5:13]) for path in (out / "checkpoints").glob("step-*"))


def checkpoint_of(out: Path, step: int) -> Path:
    """Return the newest checkpoint of `step`."""
    return sorted((out / "checkpoints").glob(f"step-{step:08d}-a*"))[-1]


def final_state(out: Path, step: int) -> tuple[Any, Any]:
    """Return the whole saved state of `step`, weights and the rest."""
    from rgt_train.checkpoint import MODEL_FILE, TRAINER_FILE, LoadedCheckpoint

    loaded = LoadedCheckpoint(str(checkpoint_of(out, step)))
    document = loaded.document
    weights = {name: tensor.clone() for name, tensor in loaded.tensors_of(MODEL_FILE).items()}
    objects = loaded.decode_part(document["objects"], TRAINER_FILE)
    rest = {key: document[key] for key in ("progress", "sampler", "settings", "environment")}
    loaded.close()
    return weights, {**rest, "objects": objects, "rng": document["rng"][0]}


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Assert that two states are equal bit for bit."""
    import torch

    assert type(left) is type(right), where
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert list(left) == list(right), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{where}/{number}")
    else:
        assert left == right, where
