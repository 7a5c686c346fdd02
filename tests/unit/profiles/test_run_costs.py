"""$ per 1,000 steps and the ETA in dollars: from the meter's price and the run's pace, nothing where one is unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    FoundRun,
    LinkState,
    Meter,
    MeterKind,
    MoneyAmount,
    QueueCell,
    QueueState,
    RunResume,
    RunState,
    Series,
)
from rgt_tui.profiles import run_cost, seconds_per_step

NOW = 1_790_000_000.0
replace = msgspec.structs.replace
METER = Meter(MeterKind.COMPUTE_AND_STORAGE, per_hour=3.6, currency="CNY", at=NOW)
CELL = QueueCell(name="a", cfg="a.yaml", task="lm", state="running", started=NOW - 100)
RUN = RunState(name="a", step=200, total_steps=1000)


def box(run: RunState = RUN, cell: QueueCell = CELL, **fields: Any) -> BoxState:
    base = BoxState(
        spec=BoxSpec(name="lab", host="h"),
        link=LinkState.LIVE,
        meter=METER,
        runs=(run,),
        queues=(QueueState(path="q", at=NOW, cells=(cell,)),),
        clock_skew=0.0,
    )
    return replace(base, **fields)


def test_price_and_pace_make_the_cost_of_a_thousand_steps_and_of_the_rest() -> None:
    cost = run_cost(box(), "a", NOW)
    assert cost is not None
    assert cost.per_1000_steps == MoneyAmount(pytest.approx(0.5), "CNY")  # type: ignore[arg-type]
    assert cost.left_s == pytest.approx(400)
    assert cost.to_end == MoneyAmount(pytest.approx(0.4), "CNY")  # type: ignore[arg-type]
    assert cost.short_text == "¥0.50/1k steps, ¥0.40 to go"


def test_a_lower_bound_stays_one() -> None:
    cost = run_cost(box(meter=replace(METER, at_least=True)), "a", NOW)
    assert cost is not None
    assert cost.short_text == "≥ ¥0.50/1k steps, ≥ ¥0.40 to go"


@pytest.mark.parametrize(
    "state",
    [
        box(meter=Meter()),
        box(meter=replace(METER, per_hour=None)),
        box(meter=replace(METER, kind=MeterKind.UNKNOWN)),
        box(meter=replace(METER, kind=MeterKind.STORAGE_ONLY)),
        box(run=replace(RUN, step=None)),
        box(run=replace(RUN, step=0)),
        box(cell=replace(CELL, started=None)),
        box(cell=replace(CELL, started=NOW + 5)),
        box(cell=replace(CELL, state="done")),
        box(run=replace(RUN, resumes=(RunResume(200, "SIGTERM", 3),))),
        box(queues=()),
        box(runs=()),
    ],
)
def test_what_is_not_known_gives_no_cost_rather_than_none(state: BoxState) -> None:
    assert run_cost(state, "a", NOW) is None


def test_without_a_known_end_there_is_no_eta() -> None:
    for total in (None, 100):
        cost = run_cost(box(run=replace(RUN, total_steps=total)), "a", NOW)
        assert cost is not None
        assert (cost.left_s, cost.to_end, cost.short_text) == (None, None, "¥0.50/1k steps")


def test_steps_of_an_earlier_attempt_do_not_make_a_run_look_fast() -> None:
    resumed = replace(RUN, resumes=(RunResume(150, "SIGTERM", 3),))
    assert seconds_per_step(box(run=resumed), "a", NOW) == pytest.approx(2.0)


def test_the_time_of_a_hold_is_not_part_of_the_pace() -> None:
    assert seconds_per_step(box(run=RUN), "a", NOW) == pytest.approx(0.5)
    assert seconds_per_step(box(run=replace(RUN, held_s=60.0)), "a", NOW) == pytest.approx(0.2)


def test_the_clock_of_the_box_counts() -> None:
    state = box(cell=replace(CELL, started=NOW + 900), clock_skew=1000.0)
    assert seconds_per_step(state, "a", NOW) == pytest.approx(0.5)


def test_a_found_training_counts_from_its_process_if_its_steps_are_its_own() -> None:
    found = FoundRun(name="a", pid=1, started=NOW - 100, command="x", session="tmux")
    own = replace(RUN, series={"loss": Series([1, 2], [1.0, 1.0])})
    later = replace(RUN, series={"loss": Series([100, 101], [1.0, 1.0])})
    assert seconds_per_step(box(run=own, queues=(), found=(found,)), "a", NOW) == pytest.approx(0.5)
    assert seconds_per_step(box(run=later, queues=(), found=(found,)), "a", NOW) is None
    resumed = replace(own, resumes=(RunResume(0, "checkpoint", 0),))
    assert seconds_per_step(box(run=resumed, queues=(), found=(found,)), "a", NOW) is None
    cut = replace(RUN, series={"loss": Series([1, 2], [1.0, 1.0], dropped=9)})
    assert seconds_per_step(box(run=cut, queues=(), found=(found,)), "a", NOW) is None
    for few in ({}, {"loss": Series([1], [1.0])}):
        assert (
            seconds_per_step(box(run=replace(RUN, series=few), queues=(), found=(found,)), "a", NOW)
            is None
        )
    ended = replace(found, alive=False, ended=NOW)
    assert seconds_per_step(box(run=own, queues=(), found=(ended,)), "a", NOW) is None
