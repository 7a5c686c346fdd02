"""Trainings as people start them, and what a client that was told nothing but the host has of them."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from rgt_tui.fleet import Fleet
from rgt_tui.model import BoxSpec, BoxState, FoundRun, RunState

PATIENCE = 90.0
"""Seconds after which something that was awaited counts as never coming."""

SCRIPT = Path(__file__).with_name("pretend_train.py")
"""Writes metrics and lines as trainings do, a step every 50 ms, until it is ended."""


class Place:
    """A directory in which trainings run; all that runs in it is ended with the test.

    Args:
        folder: The directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("train.py", "main.py", "torchrun"):
            shutil.copy(SCRIPT, folder / name)

    def sh(self, line: str, folder: Path | None = None) -> None:
        """Have a shell run a line and leave: what it puts into the background lives on."""
        line = line.replace("python", shlex.quote(sys.executable))
        words = ["sh", "-c", line]
        subprocess.run(
            words, cwd=folder or self.folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env=plain_env(),
        )  # fmt: skip

    def named(self, script: str) -> str:
        """What the run of a script is called here."""
        return f"{self.folder.name}/{script}"

    def pids(self) -> list[int]:
        """The processes that run in it."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and Path(os.readlink(entry / "cwd")).is_relative_to(
                    self.folder
                ):
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Kill everything in it."""
        while pids := self.pids():
            for pid in pids:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def plain_env() -> dict[str, str]:
    """An environment that tells nothing of the one in which the tests run."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("TMUX", "STY", "SLURM"))
    }


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A place for trainings."""
    made = Place(folder)
    try:
        yield made
    finally:
        made.end()


class Client:
    """The real engine with one box of which it knows how to log in, and nothing else."""

    def __init__(self, spec: BoxSpec, folder: Path, audit: Path) -> None:
        bare = BoxSpec(
            name="lab", host=spec.host, port=spec.port, user=spec.user, identity=spec.identity,
            known_hosts=spec.known_hosts, ssh_config="none", interval=0.25,
        )  # fmt: skip
        self.folder = folder
        self.fleet = Fleet([bare], audit=audit)

    @property
    def box(self) -> BoxState:
        """What it knows of the box."""
        (box,) = self.fleet.state.boxes
        return box

    def found(self) -> list[FoundRun]:
        """The trainings of this test: others may run on this machine."""
        return [
            run for run in self.box.found if run.cwd and Path(run.cwd).is_relative_to(self.folder)
        ]

    def run(self, name: str) -> RunState | None:
        """A run by its name."""
        return next((run for run in self.box.runs if run.name == name), None)

    def steps(self, name: str, metric: str = "loss") -> list[int]:
        """The steps of a curve."""
        run = self.run(name)
        return (
            [step for step, _ in run.series[metric]]
            if run is not None and metric in run.series
            else []
        )

    def lines(self, path: str | None) -> tuple[str, ...]:
        """The lines of a log."""
        return next((log.lines for log in self.box.logs if log.path == path), ())

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a state in which `condition` holds."""
        news = asyncio.Event()
        stop = self.fleet.subscribe(lambda _: news.set())
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await news.wait()
                    news.clear()
        except TimeoutError:
            raise AssertionError(f"{what} did not come about\n{self.describe()}") from None
        finally:
            stop()

    def describe(self) -> str:
        """What it has, for a failure's message."""
        curves = {run.name: len(next(iter(run.series.values()), ())) for run in self.box.runs}
        logs = {log.path: len(log.lines) for log in self.box.logs}
        return f"{self.found()}\n{curves}\n{logs}\n{self.box.reason}"

    async def shows(self, count: int = 1) -> list[FoundRun]:
        """Wait until every one of `count` trainings has a sample, lines of its log and a curve."""

        def complete() -> bool:
            found = self.found()
            procs = (
                {proc.pid: proc.run for proc in self.box.sample.procs} if self.box.sample else {}
            )
            return len(found) >= count and all(
                procs.get(run.pid) == run.name
                and len(self.lines(run.log)) > 2
                and len(self.steps(run.name)) > 2
                for run in found
            )

        await self.until(complete, f"sample, log and curve of {count}")
        return self.found()


@asynccontextmanager
async def watching(spec: BoxSpec, exp: Place) -> AsyncIterator[Client]:
    """The real engine, connected, until the block ends."""
    client = Client(spec, exp.folder, exp.folder.parent / "audit.jsonl")
    await client.fleet.start()
    try:
        yield client
    finally:
        await client.fleet.stop()
