"""The same kills for the plain loop, transformers' Trainer, Lightning and this trainer.

``python -m tests.torture.train.others`` prints a Markdown table; it needs `make frameworks`. A launch that fails by
itself is counted, and then repaired as a person would: what it choked on (the newest checkpoint) is removed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.unit.train.frameworks import PYTHON
from tests.unit.train.harness import ENV

SCRIPT = Path(__file__).with_name("contenders.py")
NAMES = {
    "plain": "`torch.save(path)`", "huggingface": "transformers `Trainer`", "lightning": "Lightning",
    "ours": "rgt_train",
}  # fmt: skip
LAST = 40
"""A launch is not killed any more once it has made this step, the last one: its result may be there already."""
LONGEST_S = 0.25
MOST_LINES = 6
_never = threading.Event()


@dataclass
class Score:
    """What befell one contender.

    Attributes:
        kills: SIGKILLs of a launch.
        failed: Launches that ended by themselves with an error, until something was removed by hand.
        redone: Steps that were made again, over all launches.
        restarted: Launches that began at step 0 although there had been checkpoints.
        equal: Whether the final weights are those of the uninterrupted run.
        errors: Their last lines.
    """

    kills: int = 0
    failed: int = 0
    redone: int = 0
    restarted: int = 0
    equal: bool = False
    errors: tuple[str, ...] = ()


def launch(name: str, out: Path) -> subprocess.Popen[str]:
    """Start a contender."""
    offline = {"HF_HUB_OFFLINE": "1", "HOME": str(out.parent), "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.Popen(
        [str(PYTHON), str(SCRIPT), name, str(out)], env={**ENV, **offline}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def step_of(line: str) -> int | None:
    """Return the step that a line of output tells."""
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[0] == "step" and words[1].isdigit() else None


def until_finished(name: str, out: Path, kills: int, draw: random.Random) -> Score:
    """Launch, kill and repair until the final weights are there."""
    score, highest = Score(), 0
    while not (out / "final").exists():
        process = launch(name, out)
        limit = draw.randint(1, MOST_LINES) if score.kills < kills else 10**9
        lines: list[str] = []
        first = None
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            step = step_of(line)
            if step is None:
                continue
            if first is None:
                first = step
                score.redone += max(0, highest - step + 1)
                score.restarted += step == 1 and highest > 1
            highest = max(highest, step)
            limit -= 1
            if limit == 0 and step < LAST:
                _never.wait(draw.random() * LONGEST_S)
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if code == -signal.SIGKILL:
            score.kills += 1
        elif code:
            score.failed += 1
            score.errors += (
                next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "?"),
            )
            if not repair(out):
                raise RuntimeError("\n".join(lines[-20:]))
    return score


def repair(out: Path) -> bool:
    """Remove the newest checkpoint by hand; False where there is none."""
    found = [*out.glob("checkpoint.pt"), *out.glob("hf/checkpoint-*"), *out.glob("pl/*.ckpt")]
    if not found:
        return False
    newest = max(found, key=lambda path: path.stat().st_mtime)
    shutil.rmtree(newest) if newest.is_dir() else newest.unlink()
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=list(NAMES))
    o = parser.parse_args()
    if not PYTHON.exists():
        sys.exit("needs .venv-frameworks: make frameworks")
    print("| | kills | launches that failed | began at step 0 again | steps made again | final weights |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in o.only:
        with tempfile.TemporaryDirectory(prefix="rgt-others-") as folder:
            calm, killed = Path(folder, "calm"), Path(folder, "killed")
            for place in (calm, killed):
                place.mkdir()
            until_finished(name, calm, 0, random.Random(0))
            score = until_finished(name, killed, o.kills, random.Random(o.seed))
            equal = (calm / "final").read_text() == (killed / "final").read_text()
        result = "bit-equal" if equal else "other"
        print(
            f"| {NAMES[name]} | {score.kills} | {score.failed} | {score.restarted} | {score.redone} | {result} |",
            flush=True,
        )
        for error in sorted(set(score.errors)):
            print(f"  {name}: {error[:160]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
