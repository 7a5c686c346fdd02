"""Trainings of two ranks: by the real torchrun, or forked with the variables that torchrun would set.

A launch by torchrun takes some five seconds, most of them importing torch three times. The forked ranks run the same
script with the same arguments and find each other in the same way; only who started them differs.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading

from tests.torture.train.watched import ENTRY
from tests.unit.train.harness import ENV, ROOT, TIMEOUT, Trainer, Zygote

SCRIPT = ROOT / "tests/unit/train/parallel/train_worker.py"
WORLD = 2


class Forked:
    """Two ranks from the zygote."""

    def __init__(self, zygote: Zygote, words: list[str]) -> None:
        port = _free_port()
        self.ranks: list[Trainer] = []
        for rank in range(WORLD):
            task = json.dumps({"socket": "", "job": "script", "words": [str(SCRIPT), *words]})
            env = {
                "RGT_TORTURE": task, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD),
                "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "TORCHELASTIC_RESTART_COUNT": "0",
            }  # fmt: skip
            self.ranks.append(zygote.launch_script(ENTRY, background=True, env=env))
        self.pids = [trainer.pid for trainer in self.ranks]
        self.pid, self.lines = self.pids[0], self.ranks[0].lines

    @property
    def code(self) -> int | None:
        """The first exit code that is not 0 once all have ended."""
        codes = [trainer.code for trainer in self.ranks]
        if any(code is None for code in codes):
            return None
        return next((code for code in codes if code), 0)

    def wait_more_lines(self, count: int) -> bool:
        """Wait for `count` further lines of rank 0."""
        return self.ranks[0].wait_more_lines(count)

    def wait(self) -> int:
        """Wait for the end of all: a rank whose fellow was killed must end by itself."""
        for trainer in self.ranks:
            trainer.wait()
        assert self.code is not None
        return self.code

    def text(self) -> str:
        """Return the output of all ranks."""
        return "\n".join(trainer.text() for trainer in self.ranks)


class Torchrun:
    """Two ranks from torchrun, which is what is launched and killed."""

    def __init__(self, words: list[str]) -> None:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}", str(SCRIPT),
            *words,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV, cwd=ROOT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.pid, self.pids, self.lines = self._process.pid, [self._process.pid], list[str]()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def code(self) -> int | None:
        """Exit code of torchrun."""
        return self._process.poll()

    def wait_more_lines(self, count: int) -> bool:
        """Wait for `count` further lines."""
        target = len(self.lines) + count
        with self._news:
            self._news.wait_for(lambda: len(self.lines) >= target or not self._thread.is_alive(), TIMEOUT)
        return self.code is None

    def wait(self) -> int:
        """Wait for its end, and for that of its ranks."""
        code = self._process.wait(TIMEOUT)
        self._thread.join(TIMEOUT)  # the ranks have its output open
        assert not self._thread.is_alive(), "a rank has outlived torchrun"
        return code

    def text(self) -> str:
        """Return all output."""
        return "\n".join(self.lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()


def ended_by_us(code: int) -> bool:
    """Say whether a launch may end like this after a kill: SIGKILL, or the word of a rank that lost its fellow."""
    return code in (-signal.SIGKILL, 1)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
