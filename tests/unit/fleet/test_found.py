"""What the client makes of trainings that were found."""

from __future__ import annotations

import msgspec

from rgt_tui.fleet import apply_frame
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    FoundRun,
    FoundRuns,
    RunState,
    ScalarPoint,
    Scalars,
    clean_decoded,
)


def told(*runs: FoundRun) -> FoundRuns:
    return FoundRuns(boot="boot", at=100.0, runs=runs)


def points(run: str) -> Scalars:
    return Scalars(
        run=run,
        source=f"found:{run}#loss",
        inode=5,
        start=0,
        end=1,
        points=(ScalarPoint(step=1, at=99.0, epoch=None, values={"loss": 2.0}),),
    )


def test_a_found_run_has_its_place_among_the_runs_before_its_first_point() -> None:
    state = apply_frame(
        BoxState(spec=BoxSpec("a", "h")),
        told(FoundRun(name="exp/train", pid=7, started=50.0, command="python train.py")),
        1.0,
    )
    assert state.runs == (RunState("exp/train", alive=True),)
    state = apply_frame(state, points("exp/train"), 2.0)
    (run,) = state.runs
    assert (run.loss, run.alive, run.ended) == (2.0, True, None)
    gone = FoundRun(
        name="exp/train",
        pid=7,
        started=50.0,
        command="python train.py",
        alive=False,
        seen=90.0,
        ended=100.0,
    )
    state = apply_frame(state, told(gone), 3.0)
    (run,) = state.runs
    assert (run.loss, run.alive, run.ended) == (2.0, False, 100.0)
    assert state.found[0].exit_code is None


def test_runs_below_one_training_live_as_long_as_it() -> None:
    state = apply_frame(
        BoxState(spec=BoxSpec("a", "h")),
        told(FoundRun(name="exp/train", pid=7, started=50.0, command="x")),
        1.0,
    )
    for name in ("exp/train/fold1", "exp/trainer", "cell"):
        state = apply_frame(state, points(name), 2.0)
    alive = {run.name: run.alive for run in state.runs}
    assert alive == {"exp/train": True, "exp/train/fold1": True, "exp/trainer": None, "cell": None}


def test_text_of_a_box_is_stripped_of_control_characters() -> None:
    run = FoundRun(
        name="n",
        pid=7,
        started=5.0,
        command="a\x1b[31mb",
        why="w\x07",
        user="u\x1b]0;t\x07",
        place="p\x9b1m",
        notes=("n\x1b[2J",),
    )
    (plain,) = apply_frame(BoxState(spec=BoxSpec("a", "h")), clean_decoded(told(run)), 1.0).found
    assert not any(
        ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in msgspec.json.encode(plain).decode()
    )
