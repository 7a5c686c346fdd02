"""Trainings of two ranks: by the real torchrun, or forked with the variables that torchrun would set.

A launch by torchrun takes some five seconds, most of them importing torch three times. The forked ranks run the same
script with the same arguments and find each other in the same way; only who started them differs.
"""

from __future__ import annotations

import json
import signal
import sys

from tests.free_ports import free_port
from tests.process.train.harness import ROOT, Trainer, Zygote
from tests.torture.train.launched import Piped
from tests.torture.train.watched import ENTRY

SCRIPT = ROOT / "tests/process/train/parallel/train_worker.py"
WORLD = 2


class Forked:
    """Two ranks from the zygote."""

    def __init__(self, zygote: Zygote, words: list[str]) -> None:
        port = free_port()
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


class Torchrun(Piped):
    """Two ranks from torchrun, which is what is launched and killed."""

    def __init__(self, words: list[str]) -> None:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
        super().__init__([sys.executable, *launcher, str(SCRIPT), *words])


def ended_by_us(code: int) -> bool:
    """Say whether a launch may end like this after a kill: SIGKILL, or the word of a rank that lost its fellow."""
    return code in (-signal.SIGKILL, 1)
