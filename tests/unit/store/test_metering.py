"""From states to costs: which seconds were charged, at which price, and whether a run was alive."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    LinkState,
    Meter,
    MeterKind,
    ProviderRef,
    QueueCell,
    QueueState,
    Sample,
    TrainingProcess,
)
from rgt_tui.store import CostMetering, ObservedCost
from rgt_tui.store.spending import SPEND_LIMITS, day_of, has_live_run

NOON = 1_790_000_040.0
replace = msgspec.structs.replace


def box(**changes: object) -> BoxState:
    spec = BoxSpec(name="a", host="h", provider=ProviderRef("runpod", "pod"))
    meter = Meter(kind=MeterKind.COMPUTE_AND_STORAGE, per_hour=3600.0, at=NOON)
    sample = Sample(boot="b", seq=1, at=NOON)
    state = BoxState(spec=spec, link=LinkState.LIVE, meter=meter, sample=sample, sample_at=NOON)
    return replace(state, **changes)


def cost(*looks: tuple[BoxState, float]) -> tuple[float, float]:
    tick = [0.0]
    metering = CostMetering(lambda: tick[0])
    for state, at in looks:
        tick[0] = at
        metering.meter_boxes((state,), NOON + at)
    costs, _ = metering.take_new_costs()
    found = [cost for each in costs.values() for cost in each]
    assert sum(cost.seconds for cost in found) == sum(cost.billed for cost in found)
    return sum(cost.billed for cost in found), sum(cost.idle for cost in found)


def test_time_counts_while_somebody_looks() -> None:
    assert cost((box(), 0), (box(), 5), (box(), 10)) == (10.0, 0.0)
    fresh = box(sample_at=NOON + 4)
    assert cost((fresh, 0), (fresh, 5), (fresh, 10)) == (
        10.0,
        5.0,
    )  # then the sample has grown stale


def test_the_first_look_and_a_sleep_count_nothing() -> None:
    assert cost((box(), 0)) == (0.0, 0.0)
    assert cost((box(), 0), (box(), SPEND_LIMITS.awake_s + 1)) == (0.0, 0.0)
    assert cost((box(), 10), (box(), 5)) == (0.0, 0.0)  # a clock that was set back


def test_a_clock_that_is_set_makes_no_money(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((0.0, 5.0, 10.0, 15.0))
    metering = CostMetering(lambda: next(ticks))
    for wall in (0.0, 45.0, 30.0, 35.0):
        metering.meter_boxes((box(),), NOON + wall)
    costs, _ = metering.take_new_costs()
    assert [cost.seconds for cost in costs["a"]] == [15.0]


def test_days_are_those_of_the_provider_s_clock_where_the_two_differ() -> None:
    ahead = 40 * 86400.0
    meter = replace(
        box().meter, at=NOON + ahead, clock_skew=ahead, spent=3.0, spent_since=NOON - 9.0
    )
    ticks = iter((0.0, 5.0))
    metering = CostMetering(lambda: next(ticks))
    for _ in range(2):
        metering.meter_boxes((box(meter=replace(meter, spent_estimated=True)),), NOON + ahead + 5)
    costs, sums = metering.take_new_costs()
    assert [cost.day for cost in costs["a"]] == [day_of(NOON)]
    assert [(each.at, each.estimated) for each in sums["a"]] == [(NOON, True)]


def test_a_price_that_is_old_or_unknown_counts_nothing() -> None:
    old = replace(box().meter, at=NOON - SPEND_LIMITS.valid_s - 6)
    assert cost((box(meter=old), 0), (box(meter=old), 5)) == (0.0, 0.0)
    unknown = Meter(at=NOON, error="no answer")
    assert cost((box(meter=unknown), 0), (box(meter=unknown), 5)) == (0.0, 0.0)


def costs(state: BoxState) -> list[ObservedCost]:
    ticks = iter((0.0, 5.0))
    metering = CostMetering(lambda: next(ticks))
    for at in (0, 5):
        metering.meter_boxes((state,), NOON + at)
    return [cost for each in metering.take_new_costs()[0].values() for cost in each]


def test_a_price_that_is_a_lower_bound_makes_the_cost_one() -> None:
    assert [each.at_least for each in costs(box())] == [False]
    (cost,) = costs(box(meter=replace(box().meter, at_least=True)))
    assert (cost.billed, cost.at_least) == (5.0, True)


def test_a_box_that_is_there_without_a_price_makes_the_day_a_lower_bound_and_adds_nothing() -> None:
    lab = BoxSpec(name="a", host="h")
    (cost,) = costs(box(spec=lab, meter=Meter()))
    assert (cost.currency, cost.billed, cost.seconds, cost.at_least) == ("", 0.0, 0.0, True)
    assert costs(box(spec=lab, meter=Meter(), link=LinkState.UNREACHABLE)) == [], (
        "nobody knows whether it is there"
    )
    (said,) = costs(box(meter=Meter(MeterKind.COMPUTE_AND_STORAGE, at=NOON)))
    assert said.at_least, "the provider was read and names no price"
    assert costs(box(meter=Meter())) == [], "not read yet"
    assert costs(box(meter=Meter(MeterKind.NONE, at=NOON))) == []
    free = replace(lab, per_hour=0.0)
    assert [each.at_least for each in costs(box(spec=free, meter=Meter()))] == [False]


def test_a_price_that_may_not_be_charged_any_more_counts_nothing() -> None:
    """As of a box without a provider that does not answer: its price is known, whether it is charged is not."""
    unsure = replace(box().meter, kind=MeterKind.UNKNOWN)
    assert cost((box(meter=unsure), 0), (box(meter=unsure), 5)) == (0.0, 0.0)


def test_a_price_of_the_fleet_file_counts_while_the_box_answers() -> None:
    spec = BoxSpec(name="a", host="h", per_hour=3600.0, currency="CNY")
    live = box(spec=spec, meter=Meter())
    assert cost((live, 0), (live, 5))[0] == 5.0
    gone = replace(live, link=LinkState.UNREACHABLE)
    assert cost((gone, 0), (gone, 5))[0] == 0.0


def test_idle_needs_a_box_that_says_so() -> None:
    assert has_live_run(box(), NOON) is False
    assert has_live_run(box(link=LinkState.UNREACHABLE), NOON) is None
    assert has_live_run(box(), NOON + 60) is None
    assert (
        has_live_run(
            box(
                sample=Sample(
                    boot="b",
                    seq=1,
                    at=NOON,
                    procs=(TrainingProcess(pid=1, started=0.0, cmd="train"),),
                )
            ),
            NOON,
        )
        is True
    )
    cell = QueueCell(name="c", cfg="c", task="t", state="running")
    running = QueueState(path="/q", at=NOON, cells=(cell,), runner_alive=True)
    assert has_live_run(box(queues=(running,)), NOON) is True
    assert has_live_run(box(queues=(replace(running, runner_alive=False),)), NOON) is False


@pytest.mark.parametrize(("state", "trains"), [("R", True), ("T", True), ("Z", False)])
def test_a_zombie_is_not_alive_as_for_the_gate_and_the_alerts(state: str, trains: bool) -> None:
    proc = TrainingProcess(pid=7, started=NOON - 60, cmd="python train.py", state=state)
    with_it = box()
    assert with_it.sample is not None
    assert (
        has_live_run(replace(with_it, sample=replace(with_it.sample, procs=(proc,))), NOON)
        is trains
    )


def test_a_reading_of_the_provider_s_sum_is_kept_once() -> None:
    state = box(meter=replace(box().meter, spent=12.0, spent_since=NOON - 7200))
    metering = CostMetering()
    metering.meter_boxes((state,), NOON)
    metering.meter_boxes((state,), NOON + 1)
    _, sums = metering.take_new_costs()
    assert [(each.spent, each.at) for each in sums["a"]] == [(12.0, NOON)]
    metering.meter_boxes((state,), NOON + 2)
    assert metering.take_new_costs()[1] == {}
