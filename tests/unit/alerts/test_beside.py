"""Trainings beside a queue, several at once, and those that have ended: who is looked at, and who no more."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from rgt_tui.health import AlertState, facts_of, step_alerts
from rgt_tui.model import FoundRun, RunState
from tests.unit.triage.builders import NOW, box, queue, run, sample

replace = msgspec.structs.replace
STOOD = NOW - 900
NAN = [2.0] * 40 + [math.nan] * 3
JUMP = [2.0 + 0.01 * (i % 5) for i in range(60)] + [9.0] * 3


def found(name: str, *, alive: bool = True) -> FoundRun:
    return FoundRun(
        name=name,
        pid=7,
        started=NOW - 9000,
        command="python train.py",
        alive=alive,
        ended=None if alive else NOW - 300,
    )


def training(name: str, *, alive: bool = True, at: float = NOW - 1, **over: Any) -> RunState:
    ended = None if alive else NOW - 300
    return run(name, alive=alive, ended=ended, progressed_at=at, last_at=at, **over)


def raised(**over: Any) -> list[str]:
    return [alert.id for alert in step_alerts(AlertState(), box(**over), NOW).raised]


@pytest.mark.parametrize("losses", [NAN, JUMP], ids=["nan", "spike"])
def test_a_training_that_has_ended_raises_nothing_while_another_one_trains(
    losses: list[float],
) -> None:
    over = training("a/one.py", alive=False, at=NOW - 300, losses=losses)
    goes = training("b/two.py")
    state: dict[str, Any] = {
        "queues": (),
        "found": (found("a/one.py", alive=False), found("b/two.py")),
    }
    assert raised(runs=(over, goes), **state) == ["ended:a/one.py"]
    kind = "loss-nan" if losses is NAN else "loss-spike"
    again = replace(over, alive=True, ended=None, progressed_at=NOW - 1)
    assert raised(runs=(again, goes), **{**state, "found": ()}) == [f"{kind}:a/one.py"]


@pytest.mark.parametrize(
    "queues", [(queue(done=True, runner_alive=False),), (queue(),)], ids=["done", "busy"]
)
def test_a_training_beside_a_queue_is_looked_at(queues: tuple[Any, ...]) -> None:
    state: dict[str, Any] = {"queues": queues, "found": (found("a/one.py"),)}
    cell = run()
    assert raised(runs=(cell, training("a/one.py", at=STOOD)), **state) == ["stalled:a/one.py"]
    assert raised(runs=(cell, training("a/one.py", losses=NAN)), **state) == ["loss-nan:a/one.py"]
    assert raised(runs=(cell, training("a/one.py", losses=JUMP)), **state) == [
        "loss-spike:a/one.py"
    ]


def test_of_several_trainings_each_one_is_looked_at() -> None:
    state = box(
        queues=(),
        found=(found("a/one.py"), found("b/two.py")),
        runs=(training("a/one.py", at=STOOD), training("b/two.py")),
    )
    (alert,) = step_alerts(AlertState(), state, NOW).raised
    assert (alert.id, alert.text) == ("stalled:a/one.py", "a/one.py stuck at step 812 for 15m00")
    assert facts_of(state, NOW).progress_age == 900.0, "the slowest"


def test_a_training_of_several_runs_advances_with_any_of_them() -> None:
    """A sweep in one process: what it has finished stands still, and its loss is no news."""
    swept = (training("a/s.py", at=STOOD, losses=NAN), training("a/s.py/lr-2"))
    assert raised(queues=(), found=(found("a/s.py"),), runs=swept) == []
    stuck = (swept[0], replace(swept[1], progressed_at=STOOD + 5))
    assert raised(queues=(), found=(found("a/s.py"),), runs=stuck) == [
        "stalled:a/s.py/lr-2",
        "loss-nan:a/s.py",
    ]


def test_named_directories_are_looked_at_while_something_trains() -> None:
    old, new = (
        run("runs/1", progressed_at=STOOD - 9999, losses=NAN),
        run("runs/2", progressed_at=STOOD),
    )
    assert raised(queues=(), runs=(old, new)) == ["stalled:runs/2"]
    assert raised(queues=(), runs=(old, new), sample=sample(procs=())) == []
