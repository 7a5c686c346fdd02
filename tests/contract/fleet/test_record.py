"""A real agent behind a real sshd, recorded with a reconnect in between; the replay ends where it ended."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import Fleet
from rgt_tui.model import BoxState, FleetState, LinkState, MachineLife, ReceivedTimes
from rgt_tui.recordings import FULL, FleetRecorder, LineFile, ReplayFleet
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd

replace = msgspec.structs.replace


PATIENCE_S = 300.0
"""On a machine that does much else, a box is connected, watched and stored only after a minute."""


async def until(fleet: Fleet | ReplayFleet, condition: Callable[[FleetState], bool]) -> FleetState:
    """Wait for a state."""
    reached = asyncio.Event()
    unsubscribe = fleet.subscribe(lambda state: reached.set() if condition(state) else None)
    try:
        if not condition(fleet.state):
            async with asyncio.timeout(PATIENCE_S):
                await reached.wait()
    finally:
        unsubscribe()
    return fleet.state


def box(state: FleetState) -> BoxState:
    return state.boxes[0]


class Job:
    """A run directory that grows under the test's hands."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "run"
        self.out.mkdir()
        self.log = folder / "train.log"
        self.log.touch()
        self.step = 0

    def grow(self, count: int) -> None:
        with (self.out / "metrics.jsonl").open("a") as metrics, self.log.open("a") as log:
            for _ in range(count):
                self.step += 1
                loss = "NaN" if self.step == 7 else repr(1 / self.step)
                metrics.write(f'{{"step": {self.step}, "time": {time.time()}, "loss": {loss}}}\n')
                log.write(f"step {self.step}\n")


def has(step: int) -> Callable[[FleetState], bool]:
    """Everything up to a step has come, its line in the log included."""

    def check(state: FleetState) -> bool:
        # Trainings of other tests on this machine may be found as well.
        steps = [run.step for run in box(state).runs if run.name == "run"]
        lines = [view.lines[-1:] for view in box(state).logs if view.path.endswith("/train.log")]
        return (
            box(state).link is LinkState.LIVE and steps == [step] and lines == [(f"step {step}",)]
        )

    return check


def kill_agent(state: BoxState) -> None:
    assert state.hello is not None
    os.kill(state.hello.pid, signal.SIGKILL)


@pytest.mark.serial  # the trainings of other tests would be found, and triaged at other moments live and replayed
@pytest.mark.parametrize("name", ["box.jsonl", "box.jsonl.gz"])
async def test_a_replay_ends_in_the_state_that_was_recorded(
    real_sshd: RealSshd, tmp_path: Path, name: str
) -> None:
    job = Job(tmp_path)
    spec = replace(
        real_sshd.spec, interval=0.2, runs=(str(job.out),), logs=(str(job.log),), per_hour=2.0
    )
    job.grow(5)
    path = tmp_path / name
    recorder = FleetRecorder(LineFile(path), [spec], time.time())
    fleet = Fleet([spec], audit=tmp_path / "audit", observers=[recorder], tap=recorder.record_line)
    await fleet.start()
    try:
        kill_agent(box(await until(fleet, has(5))))
        await until(fleet, lambda state: box(state).link is LinkState.UNREACHABLE)
        job.grow(5)
        fleet.retry_box(spec.name)
        await until(fleet, has(10))
        seen = box(fleet.state).counters.samples
        await until(fleet, lambda state: box(state).counters.samples > seen + 2)
    finally:
        await fleet.stop()
    fleet.publish_now()  # what came with the last breath
    live = fleet.state
    assert recorder.failure is None

    replayed = ReplayFleet(path, speed=FULL)
    await replayed.start()
    await asyncio.wait_for(replayed.over.wait(), 60)
    again = replayed.state
    await replayed.stop()
    assert replayed.skipped == []
    assert plain(box(again)) == nearly(plain(box(live)))
    assert box(again).counters.connects == 2
    assert [event.text.split(" after ")[0] for event in again.events] == [
        event.text.split(" after ")[0] for event in live.events
    ]
    text = (gzip.open if name.endswith(".gz") else open)(path, "rt").read()
    assert str(real_sshd.folder / "id") not in text.splitlines()[0]
    assert '"known_hosts":null' in text.splitlines()[0]


CLOCKS = ("since", "sample_at", "retry_at", "clock_skew", "progressed_at")
"""Measured by the client when it handled a frame, microseconds after the recorder had noted the time."""


def plain(state: BoxState) -> dict[str, Any]:
    """A state as plain values, without what a recording leaves out on purpose.

    So `seen`: it is of a clock of this computer, by which nothing that was recorded can be judged.
    """
    state = replace(
        state,
        spec=state.spec.without_secrets(),
        alerts=(),
        alerts_kept=False,
        life=MachineLife(),
        seen=ReceivedTimes(),
    )
    curves = {
        run.name: {name: repr(list(s)) for name, s in run.series.items()} for run in state.runs
    }
    bare = replace(state, runs=tuple(replace(run, series={}) for run in state.runs))
    values = json.loads(json.dumps(msgspec.to_builtins(bare)), object_hook=undated)
    return {**values, "curves": curves}


def undated(values: dict[str, Any]) -> dict[str, Any]:
    values.pop("at", None) if "lines" in values else None
    return values


def nearly(value: Any) -> Any:
    """The same, with clocks that are equal to what is a moment later or earlier."""
    if isinstance(value, list):
        return [nearly(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: pytest.approx(each, abs=2.0)
        if key in CLOCKS and isinstance(each, float)
        else nearly(each)
        for key, each in value.items()
    }
