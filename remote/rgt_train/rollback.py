"""Rolls back to before a loss spike, and skips the steps that led to it.

The decision is written into the run directory before anything else happens, and is carried by every checkpoint from
then on. So a kill at any instant changes nothing: whoever launches next goes back to a checkpoint from before the
first step that is left out, and comes to the same bits as the launch that was not killed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Callable, List, Sequence, Tuple, TypeVar

from rgt_train import exits
from rgt_train.checkpoint.diskio import StrPath, fsync_dir, remove, replace_file
from rgt_train.tracking.report import say

NAME = "left-out.json"

T = TypeVar("T")


class Rollback(exits.Stop):
    """Ends this attempt so that the next one goes back; launched again, it does so by itself."""

    saves = False

    def __init__(self, first: int, last: int) -> None:
        super().__init__(exits.PREEMPTED, f"rollback: steps {first} to {last} are left out")


@dataclass(frozen=True)
class Decision:
    """What the run directory says.

    Attributes:
        steps: Ranges of optimizer steps that are left out, first and last of each, from 1.
        before: Checkpoints of this step and later ones are still to be given up; 0 where there are none.
    """

    steps: "tuple[tuple[int, int], ...]" = ()
    before: int = 0


def read(out: StrPath) -> Decision:
    """Return the decision in `out`; an empty one where none was taken.

    Raises:
        UsageError: The file is there and cannot be understood: going on would train on what was to be left out.
    """
    path = os.path.join(out, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
        return Decision(tuple((int(a), int(b)) for a, b in body["steps"]), int(body["before"]))
    except FileNotFoundError:
        return Decision()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise exits.UsageError(
            f"{path} cannot be read ({error}): it lists the steps that are left out; restore or remove it"
        ) from error


def write(out: StrPath, decision: Decision) -> None:
    """Make `decision` durable.

    Raises:
        OSError: The former one holds.
    """
    body = {"steps": [list(pair) for pair in decision.steps], "before": decision.before}
    replace_file(os.path.join(out, NAME), (json.dumps(body) + "\n").encode())


def give_up(out: StrPath, root: StrPath, places: Sequence[Tuple[int, str]]) -> List[int]:
    """Remove the checkpoints that a rollback goes behind; return their steps.

    Done at the start of a launch, and only once: afterwards the decision no longer asks for it, so that checkpoints
    made later are safe.

    Args:
        out: The run directory.
        root: Directory of the step checkpoints.
        places: Step and directory of those that are there.

    Raises:
        UsageError: It could not be noted that this is done.
    """
    decision = read(out)
    if not decision.before:
        return []
    gone = []
    for step, path in places:
        if step < decision.before:
            continue
        gone.append(step)
        aside = os.path.join(os.fspath(root), f".old-{os.path.basename(path)}-rollback")
        remove(aside)
        os.rename(path, aside)  # never a half-deleted directory under a published name
        remove(aside)
    try:
        if gone:
            fsync_dir(root)
        write(out, Decision(decision.steps, 0))
    except OSError as error:
        raise exits.UsageError(
            f"cannot note the rollback in {out}: {error}; free space and launch again"
        ) from error
    return gone


def decide(out: StrPath, steps: Sequence[int], first: int, last: int, say: Callable[[str], None]) -> bool:
    """Note that the steps from `first` to `last` are left out; False where there is no way back.

    Args:
        out: The run directory.
        steps: Steps of the checkpoints that are there, ascending. Where only later ones are left, nothing is decided:
            the run would have to begin anew.
        first: The first step that is left out.
        last: The last one.
        say: Told why it could not be noted.
    """
    if steps and steps[0] >= first:
        return False
    decision = read(out)
    try:
        write(out, Decision((*decision.steps, (first, last)), first))
    except OSError as error:
        say(f"no rollback, the decision could not be kept: {error}")
        return False
    return True


def until_done(main: Callable[[], T]) -> T:
    """Call `main`, and again after each rollback: it builds everything from scratch and creates the `Run`.

    Returns:
        What `main` returned.
    """
    while True:
        try:
            return main()
        except Rollback as back:
            say(f"going back: {back.cause}")
