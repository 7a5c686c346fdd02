"""A step that goes back within one attempt is told, and what only looks like it is not.

The rows are what a training wrote that torchrun started again at step 350, with checkpoints at 100, 200 and 300: one
loop kept its counter beside weights that it had not kept, the other one went on from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.metrics import SourceFinder
from rgt_box.streams import curve_followers
from rgt_box.streams.curve_followers import FoundScalars, ScalarFollower

from rgt_tui.fleet import fold_points, rewind_run
from rgt_tui.health import BoxFacts, facts_of
from rgt_tui.health.rows.conditions_curves import read_back, say_back
from rgt_tui.model import FoundRun, RunState, Scalars
from tests.unit.metrics.makers import FIXTURES
from tests.unit.triage.builders import NOW, box, cell, checkpoints, queue

Row = dict[str, Any]


def captured(name: str) -> list[Row]:
    """Return the rows of a file, by a clock whose last moment is `NOW`."""
    lines = (FIXTURES / "restarts" / f"{name}.jsonl").read_text().splitlines()
    rows: list[Row] = [json.loads(line) for line in lines]
    late = NOW - rows[-1]["time"]
    return [{**row, "time": row["time"] + late} for row in rows]


def as_found(folder: Path, rows: Sequence[Row], monkeypatch: pytest.MonkeyPatch) -> RunState:
    """Return the run as a client has it that watched while the rows were written, by a program that nobody queued."""
    monkeypatch.setattr(curve_followers, "PATIENCE", 0.0)
    scalars = FoundScalars(
        "lstm-b", str(folder), None, {}, SourceFinder(str(folder), clock=lambda: 0.0)
    )
    run = RunState(name="lstm-b", alive=True)
    with (folder / "train_log.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            file.flush()
            for frame in scalars.poll():
                run = told(run, frame)
    return run


def as_cell(folder: Path, rows: Sequence[Row]) -> RunState:
    """Return the same of a cell of a queue, whose own file is read row by row."""
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    follower, run = (
        ScalarFollower("lstm-b", str(folder / "metrics.jsonl"), None),
        RunState(name="lstm-b"),
    )
    while (frame := follower.poll()[0]) is not None:
        run = told(run, frame)
    return run


def told(run: RunState, frame: dict[str, Any]) -> RunState:
    scalars = msgspec.convert(frame, Scalars)
    source = run.cursors.get(scalars.source)
    return fold_points(rewind_run(run, scalars, source), scalars, NOW, 0.0)


def facts(
    run: RunState, rows: Sequence[Row], *saved: int, world: int | None = 2, late: float = 0.0
) -> BoxFacts:
    """Return a box on which the run goes on; its attempt began `late` seconds behind its first row."""
    began = rows[0]["time"] - 1 + late
    kept = (checkpoints(*saved),) if saved else ()
    if run.alive is None:
        return facts_of(
            box(queues=(queue(cell(started=began)),), runs=(run,), checkpoints=kept), NOW
        )
    one = FoundRun(name=run.name, pid=7, started=began, command="torchrun train.py", world=world)
    return facts_of(box(queues=(), found=(one,), runs=(run,), checkpoints=kept), NOW)


def values(view: BoxFacts) -> list[float | None]:
    return [reading.value for reading in read_back(view) or ()]


@pytest.fixture(params=["cell", "found"])
def written(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "cell":
        return lambda rows: as_cell(tmp_path, rows)
    return lambda rows: as_found(tmp_path, rows, monkeypatch)


def test_a_counter_that_goes_back_to_where_no_checkpoint_is_is_told(written: Any) -> None:
    rows = captured("counter_alone")
    view = facts(written(rows), rows, 100, 200, 300)
    (reading,) = read_back(view) or ()
    assert reading.value == 1.0
    assert say_back(view, reading, 0.0) == (
        "lstm-b went back from step 350 to step 175 within one attempt: there is no checkpoint, "
        "and the log shows no resume"
    )


def test_it_is_over_once_the_run_has_caught_up(written: Any) -> None:
    rows = captured("counter_alone")
    last = rows[-1]
    more = [
        {**last, "step": step, "time": last["time"]} for step in range(last["step"] + 5, 360, 5)
    ]
    assert values(facts(written([*rows, *more]), rows, 100, 200, 300)) == [0.0]


def test_a_resume_from_the_last_checkpoint_is_none(written: Any) -> None:
    rows = captured("from_checkpoint")
    run = written(rows)
    assert values(facts(run, rows, 100, 200, 300)) == [0.0]
    assert values(facts(run, rows)) == [0.0], (
        "of a launch with ranks, whose checkpoints nobody knows"
    )


def test_a_few_points_tell_nothing_yet(written: Any) -> None:
    rows = captured("counter_alone")
    fell = next(i for i in range(1, len(rows)) if rows[i]["step"] < rows[i - 1]["step"])
    for more, value in ((4, 0.0), (5, 1.0)):
        assert values(facts(written(rows[: fell + more]), rows, 100, 200, 300)) == [value]


def test_what_began_anew_is_told_as_that(written: Any) -> None:
    rows = captured("counter_alone")
    assert values(facts(written(rows), rows, 100, 200, 400)) == [0.0]


def test_another_attempt_is_none(written: Any) -> None:
    rows = captured("counter_alone")
    fell = next(i for i in range(1, len(rows)) if rows[i]["step"] < rows[i - 1]["step"])
    gone = rows[fell]["time"] - 0.5 - rows[0]["time"] + 1
    assert values(facts(written(rows), rows, 100, 200, 300, late=gone)) == [0.0]


def spaced(steps: Sequence[int], **more: Sequence[Any]) -> list[Row]:
    return [
        {
            "step": step,
            "loss": 2.0 - i / 1000,
            "time": NOW - 100 + i,
            **{key: each[i] for key, each in more.items()},
        }
        for i, step in enumerate(steps)
    ]


HEALTHY: dict[str, list[Row]] = {
    "steps of each epoch": spaced([*range(10, 400, 10), *range(10, 400, 10), *range(10, 200, 10)]),
    "steps of each epoch, with a remainder": spaced([*range(50, 400, 50), *range(30, 400, 50)]),
    "several runs in one log": spaced([*range(10, 900, 10), *range(10, 200, 10)]),
    "an evaluation's own count": spaced([*range(10, 500, 10), *range(1, 40), *range(500, 700, 10)]),
    "accumulation": spaced([step for step in range(10, 300, 10) for _ in range(4)]),
    "ranks that write by turns": spaced(
        [step - (i % 2) * 10 for i, step in enumerate(range(20, 700, 10))]
    ),
    "a few points twice": spaced([*range(10, 700, 10), *range(650, 660, 2)]),
    "a line of a summary": spaced([*range(10, 700, 10), 300, *range(700, 800, 10)]),
}


@pytest.mark.parametrize("rows", HEALTHY.values(), ids=HEALTHY)
@pytest.mark.parametrize("world", [None, 2])
def test_what_counts_otherwise_is_none(rows: list[Row], world: int | None, written: Any) -> None:
    for saved in ((), (20,), (100, 200)):
        assert values(facts(written(rows), rows, *saved, world=world)) == [0.0]


def test_a_single_process_that_goes_back_needs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spaced([*range(10, 700, 10), *range(400, 500, 10)])
    run = as_found(tmp_path, rows, monkeypatch)
    assert values(facts(run, rows, world=None)) == [1.0]
    assert values(facts(run, rows)) == [0.0]


def test_a_rollback_that_says_so_is_none(tmp_path: Path) -> None:
    before, after = spaced(range(10, 700, 10)), spaced(range(400, 500, 10))
    event = {"event": "resume", "step": 390, "reason": "rollback after a spike", "time": NOW - 30}
    rows = [*before, event, *after]
    assert values(facts(as_cell(tmp_path, rows), before, 100)) == [0.0]


def test_steps_that_a_new_epoch_counts_anew_are_none(tmp_path: Path) -> None:
    steps = [*range(100, 400, 10), *range(200, 300, 10)]
    rows = spaced(steps, epoch=[0.0] * 30 + [1.0] * 10)
    assert values(facts(as_cell(tmp_path, rows), rows, 100)) == [0.0]
    assert values(facts(as_cell(tmp_path, spaced(steps)), rows, 100)) == [1.0]
