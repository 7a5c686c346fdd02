"""The identical launch again and again, SIGKILLed at random instants, until it has finished."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.torture.train.instants import Saves
from tests.torture.train.launched import Launched
from tests.torture.train.watched import descendants

MODES = ("all", "one", "all", "helper")
"""Who is killed: all processes; only the one that was launched, or only one rank; or first the writer process, which
the launch survives, and then all."""
LONGEST_SAVE_S = 0.004
INSIDE_WANTED = 0.5
"""Share of the kills that are aimed at a save."""
LEAST = 0.3
"""So many of the kills that are asked for must have hit a save: there are more of them until that is so."""
FEW = 10
"""Of fewer kills chance may let too few hit a save."""
_never = threading.Event()


@dataclass
class Tally:
    """What was done and what was seen.

    Attributes:
        kills: Launches that were killed.
        inside: Those of them that left a save half done on the disk.
        helpers: Kills of a helper alone, which the launch survived.
        rounds: Runs that were finished in spite of it.
        modes: How often who was killed.
        log: One line for each kill.
    """

    kills: int = 0
    inside: int = 0
    helpers: int = 0
    rounds: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    def enough(self, kills: int) -> bool:
        """Say whether there were so many kills, and enough of them inside a save where chance allows to ask for it."""
        wanted = LEAST * kills if kills >= FEW else 0
        return self.kills >= kills and (self.inside >= wanted or self.kills >= 10 * kills)

    def told(self) -> str:
        """Return it for a person."""
        return (
            f"{self.kills} kills ({self.inside} inside a save) of {dict(self.modes)}, {self.helpers} helpers killed, "
            f"{self.rounds} runs finished"
        )


def half_done(out: Path) -> list[str]:
    """Return what a kill left in the middle: the proof that it hit a save."""
    with suppress(FileNotFoundError):
        return sorted(
            name for name in os.listdir(out / "checkpoints") if name.startswith((".tmp-", ".old-"))
        )
    return []


def holders(out: Path) -> list[str]:
    """Return the processes that have a file of the run directory open for writing: their number, command and state.

    Whoever only reads is somebody who follows the training, such as an agent that found it.
    """
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        process = Path("/proc", name)
        with suppress(OSError):
            if any(_writes(process, fd, f"{out}/") for fd in os.listdir(process / "fd")):
                words = (process / "cmdline").read_bytes().split(b"\0")
                found.append(f"{name} {words[:2]} {words[-3:]}")
    return found


def _writes(process: Path, fd: str, below: str) -> bool:
    with suppress(OSError):  # closed in the meantime
        if os.readlink(process / "fd" / fd).startswith(below):
            info = (process / "fdinfo" / fd).read_text().splitlines()
            flags = next(line for line in info if line.startswith("flags:"))
            return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def shared_memory() -> set[str]:
    """Return what of a trainer could be left in shared memory or among the temporary files."""
    places = [place for place in ("/dev/shm", "/tmp") if os.path.isdir(place)]
    return {
        f"{place}/{name}" for place in places for name in os.listdir(place) if "rgt-arena" in name
    }


def until_finished(
    launch: Callable[[], Launched], out: Path, kills: int, draw: random.Random, tally: Tally, *, lines: int = 40,
    ended: Callable[[int], bool] = lambda code: code == -signal.SIGKILL,
) -> None:  # fmt: skip
    """Launch, kill, launch again, until it ends by itself; from `kills` kills in all on it is left alone.

    Args:
        launch: Starts it; always the same.
        out: Its run directory.
        kills: How many kills are wanted in `tally`, over all runs.
        draw: Where chance comes from.
        tally: What was done is added to it.
        lines: Lines of output after which a kill comes at the latest where it is not aimed at a save.
        ended: Whether a launch that was killed may end with an exit code.

    Raises:
        AssertionError: It ended in any other way than by our signal, or with success.
    """
    saves = Saves(out)
    while True:
        trainer = launch()
        if tally.enough(kills):
            break
        aimed = tally.inside < INSIDE_WANTED * (tally.kills + 1)
        mode = draw.choice(MODES)
        if not (aimed and saves.wait(partial(_ended, trainer))):
            trainer.wait_more_lines(draw.randint(1, lines))
        _never.wait(draw.random() * LONGEST_SAVE_S)
        if mode == "helper":
            tally.helpers += _kill_one(trainer, draw)
            trainer.wait_more_lines(3)
            mode = "all"
        before = trainer.code
        assert before in (None, 0), f"ended with {before} before it was killed:\n{trainer.text()}"
        kill(trainer, mode, draw)
        code = trainer.wait()
        if code == 0:
            tally.rounds += 1
            return
        assert ended(code), f"ended with {code} after a kill of {mode}:\n{trainer.text()}"
        tally.kills += 1
        tally.modes[mode] += 1
        left = half_done(out)
        tally.inside += bool(left)
        last = trainer.lines[-1][:70] if trainer.lines else "(at start)"
        tally.log.append(f"kill {tally.kills} of {mode}: {last} | left {left}")
    assert trainer.wait() == 0, trainer.text()
    tally.rounds += 1


def kill(trainer: Launched, mode: str, draw: random.Random) -> None:
    """SIGKILL a launch that is still there: with its helpers (``all``), or one of its processes."""
    if trainer.code is not None:
        return
    launched = pids_of(trainer)
    victims = launched if mode == "all" else [draw.choice(launched)]
    family = [child for pid in launched for child in descendants(pid)] if mode == "all" else []
    for pid in [*victims, *family]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ended(trainer: Launched) -> bool:
    return trainer.code is not None


def pids_of(trainer: Launched) -> list[int]:
    """Return what was launched: one process, or each rank."""
    found: list[int] = getattr(trainer, "pids", [trainer.pid])
    return found


def _kill_one(trainer: Launched, draw: random.Random) -> int:
    """Kill the writer (a Python without site-packages); a loader's worker is the user's, its death ends a training."""
    for pid in [child for launched in pids_of(trainer) for child in descendants(launched)]:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"-S" in words:
                os.kill(pid, signal.SIGKILL)
                return 1
    return 0
