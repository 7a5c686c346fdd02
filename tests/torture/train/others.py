"""The same kills for the plain loop, transformers' Trainer, Lightning and this trainer.

``python -m tests.torture.train.others`` prints a Markdown table (``--quick`` with three kills each); `make torture`
does, too. It needs `make frameworks`. A launch that fails by itself is counted, and then repaired as a
person would: what it choked on (the newest checkpoint) is removed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.process.train.frameworks import PYTHON
from tests.process.train.harness import ENV
from tests.torture.train.killing import kill
from tests.torture.train.launched import Launched, Piped

SCRIPT = Path(__file__).with_name("contenders.py")
NAMES = {
    "plain": "`torch.save(path)`", "huggingface": "transformers `Trainer`", "lightning": "Lightning",
    "ours": "rgt_train",
}  # fmt: skip
LAST = 40
"""A launch is not killed any more once it has made this step, the last one: its result may be there already."""
LONGEST_S = 0.25
MOST_LINES = 6
KILLS, FEW = 15, 3
"""Kills of each in the full and in the quick form."""
HEAD = """\
| | kills | launches that failed | began at step 0 again | steps made again | runs | final weights |
|---|---|---|---|---|---|---|"""
_never = threading.Event()

Launch = Callable[[str, Path], Launched]
"""Starts a contender, by its name, in a directory."""


@dataclass
class Score:
    """What befell one contender.

    Attributes:
        kills: SIGKILLs of a launch.
        failed: Launches that ended by themselves with an error, until something was removed by hand.
        redone: Steps that were made again, over all launches.
        restarted: Launches that began at step 0 although there had been checkpoints.
        runs: Runs that were finished.
        equal: Those of them whose final weights are those of the uninterrupted run.
        errors: Their last lines.
    """

    kills: int = 0
    failed: int = 0
    redone: int = 0
    restarted: int = 0
    runs: int = 0
    equal: int = 0
    errors: tuple[str, ...] = ()


def launch(name: str, out: Path) -> Launched:
    """Start a contender where all the libraries are installed."""
    offline = {"HF_HUB_OFFLINE": "1", "HOME": str(out.parent), "TOKENIZERS_PARALLELISM": "false"}
    return Piped([str(PYTHON), str(SCRIPT), name, str(out)], {**ENV, **offline})


def steps_of(lines: Sequence[str]) -> list[int]:
    """Return the steps that the lines of an output tell."""
    words = [line.split() for line in lines]
    return [
        int(word[1]) for word in words if len(word) > 1 and word[0] == "step" and word[1].isdigit()
    ]


def until_finished(
    start: Callable[[], Launched], out: Path, kills: int, draw: random.Random, score: Score
) -> None:
    """Launch, kill and repair until the final weights are there; from `kills` kills in `score` on it is left alone."""
    highest = 0
    while not (out / "final").exists():
        kept = bool(checkpoints(out))
        process = start()
        if score.kills < kills:
            while not checkpoints(out) and process.wait_more_lines(1):
                pass  # a kill before the first save has nothing to lose
            limit = draw.randint(1, MOST_LINES)
            while len(steps_of(process.lines)) < limit and process.wait_more_lines(1):
                pass
            _never.wait(draw.random() * LONGEST_S)
            if max(steps_of(process.lines), default=0) < LAST:
                kill(process, "all", draw)
        code = process.wait()
        made = steps_of(process.lines)
        if made:
            score.redone += max(0, highest - made[0] + 1)
            score.restarted += made[0] == 1 and kept
            highest = max(highest, *made)
        if code == -signal.SIGKILL:
            score.kills += 1
        elif code:
            score.failed += 1
            lines = process.lines or ["?"]
            score.errors += (
                next((line for line in reversed(lines) if "Error" in line), lines[-1]),
            )
            if not repair(out):
                raise RuntimeError("\n".join(lines[-20:]))


def compare(
    names: Sequence[str], kills: int, seed: int, start: Launch = launch
) -> Iterator[tuple[str, Score]]:
    """Yield name and score of each contender, whose uninterrupted run is what its weights are compared with."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="rgt-others-") as folder:
            calm, draw, score = Path(folder, "calm"), random.Random(seed), Score()
            calm.mkdir()
            until_finished(partial(start, name, calm), calm, 0, draw, Score())
            while score.kills < kills:  # a run has no more than 40 steps to be killed at
                killed = Path(folder, f"killed{score.runs}")
                killed.mkdir()
                until_finished(partial(start, name, killed), killed, kills, draw, score)
                score.runs += 1
                score.equal += (calm / "final").read_text() == (killed / "final").read_text()
        yield name, score


def row(name: str, score: Score) -> str:
    """Return a line of the table below `HEAD`."""
    result = (
        "bit-equal"
        if score.equal == score.runs
        else f"other in {score.runs - score.equal} of {score.runs}"
    )
    counts = (score.kills, score.failed, score.restarted, score.redone, score.runs)
    return f"| {NAMES[name]} | {' | '.join(map(str, counts))} | {result} |"


def checkpoints(out: Path) -> list[Path]:
    """Return the checkpoints of a contender, under whatever name."""
    ours = out.glob("checkpoints/step-*")
    return [*out.glob("checkpoint.pt"), *out.glob("hf/checkpoint-*"), *out.glob("pl/*.ckpt"), *ours]


def repair(out: Path) -> bool:
    """Remove the newest checkpoint by hand; False where there is none."""
    found = checkpoints(out)
    if not found:
        return False
    newest = max(found, key=lambda path: path.stat().st_mtime)
    shutil.rmtree(newest) if newest.is_dir() else newest.unlink()
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument(
        "--quick", action="store_const", const=FEW, dest="kills", help=f"--kills {FEW}"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=list(NAMES))
    o = parser.parse_args()
    if not PYTHON.exists():
        sys.exit("needs .venv-frameworks: make frameworks")
    print(HEAD, flush=True)
    for name, score in compare(o.only, o.kills, o.seed):
        print(row(name, score), flush=True)
        for error in sorted(set(score.errors)):
            print(f"  {name}: {error[:160]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
