"""Launching a process whose file operations a test decides on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.train.harness import TINY, Trainer, Zygote
from tests.torture.train import syscalls
from tests.torture.train.supervisor import Call, Decide, Supervisor

ENTRY = Path(__file__).with_name("entry.py")


def require() -> None:
    """Skip the test where the kernel hands no calls over (Linux before 5.5)."""
    if not syscalls.supported():
        pytest.skip("this kernel has no seccomp user notification (Linux 5.5)")


class Watched:
    """A process of `entry.py`, and the supervisor of all it starts."""

    def __init__(
        self,
        zygote: Zygote,
        place: Path,
        decide: Decide,
        job: str,
        *words: str,
        background: bool = True,
    ) -> None:
        self.supervisor = Supervisor(place, decide)
        task = json.dumps({"socket": self.supervisor.path, "job": job, "words": list(words)})
        self.trainer: Trainer = zygote.launch_script(
            ENTRY, background=background, env={"RGT_TORTURE": task}
        )

    def wait(self) -> int:
        """Wait for its end and that of all it started; return the exit code, negative for a signal."""
        code = self.trainer.wait()
        self.supervisor.close()
        return code

    def kill_all(self) -> None:
        """SIGKILL it and all it started, in the same moment as far as that can be."""
        for pid in [self.trainer.pid, *descendants(self.trainer.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the processes that `pid` started, and those that they started."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            for child in map(int, children):
                found += [child, *descendants(child)]
    return found


def below(call: Call, root: Path) -> bool:
    """Say whether a call is about something in the folder `root`."""
    return any(path == str(root) or path.startswith(f"{root}/") for path in call.paths())


class Nth:
    """Decides on the calls that `counts`: the `deadly`-th gets `what`, all others pass.

    Args:
        deadly: Which one, from 1; 0 for none.
        counts: Whether a call is counted.
        what: Decides on it.
    """

    def __init__(self, deadly: int, counts: Callable[[Call], bool], what: Decide) -> None:
        self.deadly, self.counts, self.what = deadly, counts, what
        self.seen: list[str] = []

    def __call__(self, call: Call) -> int:
        if not self.counts(call):
            return 0
        self.seen.append(f"{call.name} {' '.join(call.paths())}")
        return self.what(call) if len(self.seen) == self.deadly else 0

    @property
    def hit(self) -> bool:
        """Whether there was such a call."""
        return len(self.seen) >= self.deadly


def words(out: Path, values: Mapping[str, object]) -> list[str]:
    """Return the arguments of a `harness.TINY` training in `out`."""
    pairs = {**TINY, **values}.items()
    return [
        "--out",
        str(out),
        *(word for key, value in pairs for word in ("--set", f"{key}={value}")),
    ]
