"""What a watched process runs: hands its calls over to the supervisor, then does one of the jobs below.

Run by the zygote of the tests in a fork of its own. RGT_TORTURE is JSON: `socket`, `job`, `words`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from rgt_train import cli
from rgt_train.checkpoint import diskio

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.torture.train import drill
from tests.torture.train.syscalls import hand_over


def _command(words: list[str]) -> int:
    return cli.main(words)


def _hasty(words: list[str]) -> int:
    """Train, without the seconds of patience with a disk that does not answer."""
    diskio.PAUSES = (0.01, 0.01, 0.01)
    return cli.main(words)


def _script(words: list[str]) -> int:
    os.chdir(os.path.dirname(words[0]))
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    return 0


JOBS: dict[str, Callable[[list[str]], int]] = {
    "train": _command,
    "hasty": _hasty,
    "script": _script,
    "save": drill.save,
    "survive": drill.survive,
}


def main() -> None:
    """Do the job."""
    task = json.loads(os.environ.pop("RGT_TORTURE"))
    if task["socket"]:
        hand_over(task["socket"])
    sys.exit(JOBS[task["job"]](task["words"]))


if __name__ == "__main__":
    main()
