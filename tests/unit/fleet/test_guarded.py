"""Work that must not end in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rgt_tui.fleet import (
    MOST_TOLD,
    FaultReporter,
    FleetAlerting,
    FleetMeters,
    HistoryRecorder,
    connector,
    engine,
    run_guarded,
)
from rgt_tui.fleet import event_loop as module
from rgt_tui.fleet import meters as meters_module
from rgt_tui.model import BoxSpec, BoxState, FleetState, LinkState, Meter
from rgt_tui.store import Batch, CostMetering, FleetHistory
from rgt_tui.store import spending as metering_module
from tests.unit.fleet.test_publisher import World


class Work:
    """Fails as often as it is told to, then waits to be cancelled."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.begun = 0
        self.waits = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        if self.faults:
            raise self.faults.pop(0)
        self.waits.set()
        await asyncio.Event().wait()


async def test_work_that_fails_is_said_once_and_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    said: list[tuple[str, str]] = []

    def say(text: str, level: str) -> None:
        said.append((text, level))

    work = Work(OSError("no room"), OSError("no room"), ValueError("\x1b[31mred"))
    running = asyncio.create_task(run_guarded("counting", work.run, say))
    async with asyncio.timeout(90):
        await work.waits.wait()
    assert work.begun == 4
    assert said == [
        ("counting failed: OSError: no room; this is a fault of rgt", "error"),
        ("counting failed: ValueError: red; this is a fault of rgt", "error"),
    ]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_who_is_told_does_not_end_it_and_work_that_is_done_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    done: list[int] = []

    async def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise ValueError

    def say(text: str, level: str) -> None:
        raise OSError

    await run_guarded("counting", work, say)
    assert done == [0, 1]


def test_a_fault_is_said_once_and_there_is_an_end_to_different_ones() -> None:
    said: list[str] = []
    faults = FaultReporter(lambda text, _: said.append(text))
    for number in range(2 * MOST_TOLD):
        for _ in range(2):
            faults.report_fault("counting", ValueError(number))
    assert len(said) == MOST_TOLD


def boxes(*names: str) -> tuple[BoxState, ...]:
    return tuple(
        BoxState(spec=BoxSpec(name=name, host="h", per_hour=1.0), link=LinkState.LIVE, since=0.0)
        for name in names
    )


def fails_for(name: str, really: Callable[..., Any]) -> Callable[..., Any]:
    def call(box: BoxState, *rest: Any) -> Any:
        if box.spec.name == name:
            raise OverflowError("int too large")
        return really(box, *rest)

    return call


def test_what_one_box_costs_is_counted_although_that_of_another_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        metering_module, "hourly_price", fails_for("a", metering_module.hourly_price)
    )
    ticks = iter((0.0, 5.0))
    counts = CostMetering(lambda: next(ticks))
    assert counts.meter_boxes(boxes("a", "b"), 0.0) == ()
    ((name, error),) = counts.meter_boxes(boxes("a", "b"), 5.0)
    assert (name, type(error)) == ("a", OverflowError)
    costs, _ = counts.take_new_costs()
    assert {name: [cost.seconds for cost in each] for name, each in costs.items()} == {"b": [5.0]}


def test_a_meter_that_fails_leaves_the_others_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        meters_module, "build_local_meter", fails_for("a", lambda *_: Meter(spent=7.0))
    )
    said: list[str] = []
    world = World()
    for session in world.sessions.values():
        session.state = msgspec.structs.replace(
            session.state, spec=msgspec.structs.replace(session.state.spec, per_hour=1.0)
        )
    meters = FleetMeters(
        world.sessions, seconds=1.0, clock=lambda: 0.0, say=lambda text, _: said.append(text)
    )
    for _ in range(2):
        meters.count_prices()
    assert world.sessions["b"].state.meter.spent == 7.0
    assert said == [
        "counting what a costs failed: OverflowError: int too large; this is a fault of rgt"
    ]


async def test_the_history_goes_on_after_a_fault_and_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    again = asyncio.Event()
    works = HistoryRecorder._build_batch

    def batch(self: HistoryRecorder, now: float | None) -> Batch:
        if not again.is_set():
            again.set()
            raise KeyError("a")
        return works(self, now)

    monkeypatch.setattr(HistoryRecorder, "_build_batch", batch)
    memory = HistoryRecorder(FleetHistory(tmp_path / "history.db"), seconds=0.0)
    state = FleetState(boxes("a"), at=5.0)
    memory.published(state, ((state.boxes[0], state.boxes[0]),))
    async with asyncio.timeout(90):
        await again.wait()
    await memory.close()
    assert [event.text for event in memory.take_events()] == [
        "keeping the history failed: KeyError: 'a'; this is a fault of rgt"
    ]
    assert await FleetHistory(tmp_path / "history.db").recall_states([state.boxes[0].spec])


async def test_the_fleet_goes_on_looking_at_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(engine, "ENGINE_PACES", replace(engine.ENGINE_PACES, clock_s=0.0))
    answers = iter((OverflowError("too far"), connector.ClockJump(moved=7.0)))

    def jump(*_: connector.ClockTimes) -> connector.ClockJump | None:
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(connector, "clock_jump", jump)
    told: list[float] = []
    monkeypatch.setattr(FleetAlerting, "clock_set", lambda _, seconds: told.append(seconds))
    fleet = engine.Fleet(
        [BoxSpec(name="a", host="127.0.0.1", port=1, ssh_config="none")], audit=tmp_path / "audit"
    )
    said = asyncio.Event()
    fleet.subscribe(
        lambda state: said.set() if "clock went forward 7s" in str(state.events) else None
    )
    await fleet.start()
    try:
        async with asyncio.timeout(90):
            await said.wait()
    finally:
        await fleet.stop()
    assert told == [7.0], "alerts hold for as long as before"
    texts = [event.text for event in fleet.state.events if not event.box]
    assert texts[0] == "looking at the clock failed: OverflowError: too far; this is a fault of rgt"
