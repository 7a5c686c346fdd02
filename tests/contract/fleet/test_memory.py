"""rgt is started again: what it knew is there at once, and the box's own stream goes on where the curves end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import Fleet, HistoryRecorder
from rgt_tui.fleet.history import history_keeper
from rgt_tui.model import BoxSpec, FleetState, LinkState
from rgt_tui.store import FleetHistory
from tests.contract.fleet.test_record import PATIENCE_S, Job, has, until
from tests.contract.ssh.conftest import RealSshd
from tests.process.box.harness import make_job

replace = msgspec.structs.replace


class Rgt:
    """One start of rgt, with what came over the wire."""

    def __init__(self, spec: BoxSpec, folder: Path) -> None:
        self.points = 0
        self.memory = HistoryRecorder(
            FleetHistory(folder / "history.db", spend_seconds=0.0), seconds=0.1
        )
        self.fleet = Fleet(
            [spec],
            audit=folder / "audit",
            remember=self.memory.recall_states,
            observers=[self.memory],
            tap=self.tap,
        )

    def tap(self, box: str, at: float, line: bytes) -> None:
        frame = json.loads(line)
        if frame["t"] == "scalar" and frame["run"] == "run":
            self.points += len(frame["points"])


def steps(state: FleetState) -> list[int]:
    run = next((run for run in state.boxes[0].runs if run.name == "run"), None)
    return [] if run is None else [step for step, _ in run.series["loss"]]


def amount(state: FleetState) -> float:
    return sum(spent for _, spent in state.spend.today) if state.spend is not None else 0.0


def kept_texts(rgt: Rgt, recalled: FleetState) -> list[str]:
    """Return what says why something is not there: the events, and the runs that are."""
    runs = [f"{run.name}: {run.step}" for box in recalled.boxes for run in box.runs]
    return [*(event.text for event in rgt.fleet.state.events), *runs]


def described(real: RealSshd, job: Job) -> BoxSpec:
    return replace(
        real.spec,
        interval=0.2,
        runs=(str(job.out),),
        logs=(str(job.log),),
        per_hour=3600.0,
        currency="EUR",
    )


async def test_a_restart_shows_what_was_and_nothing_is_doubled(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    job = Job(tmp_path)
    spec = described(real_sshd, job)
    job.grow(600)
    first = Rgt(spec, tmp_path)
    await first.fleet.start()
    await until(first.fleet, has(600))
    spent = await until(first.fleet, lambda state: amount(state) > 0)
    await first.fleet.stop()
    assert first.points == 600
    assert spent.spend is not None
    assert spent.spend.today[0][0] == "EUR"

    job.grow(7)
    second = Rgt(spec, tmp_path)
    seen: list[FleetState] = []
    second.fleet.subscribe(seen.append)
    await second.fleet.start()
    shown = seen[0].boxes[0]
    assert shown.link is LinkState.CONNECTING
    assert "by an earlier rgt" in shown.reason
    assert shown.sample is not None
    assert shown.remembered_at is not None
    assert steps(seen[0]) == list(range(1, 601)), kept_texts(first, seen[0])
    await until(second.fleet, has(607))
    again = await until(second.fleet, lambda state: amount(state) > 0)
    live = second.fleet.state.boxes[0]
    await second.fleet.stop()
    assert steps(second.fleet.state) == list(range(1, 608))
    assert second.points == 7  # only what is new came over the wire
    assert live.remembered_at is None
    assert amount(again) >= amount(spent)


async def test_a_metrics_file_that_was_replaced_meanwhile_takes_the_place_of_what_is_shown(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    job = Job(tmp_path)
    spec = described(real_sshd, job)
    job.grow(50)
    first = Rgt(spec, tmp_path)
    await first.fleet.start()
    await until(first.fleet, has(50))
    await first.fleet.stop()
    (job.out / "metrics.jsonl").rename(job.out / "old.bak")
    job.step = 0
    job.grow(9)
    second = Rgt(spec, tmp_path)
    await second.fleet.start()
    await until(second.fleet, has(9))
    await second.fleet.stop()
    assert steps(second.fleet.state) == list(range(1, 10))


async def test_an_rgt_that_was_killed_leaves_what_it_had_saved(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    job = Job(tmp_path)
    spec = described(real_sshd, job)
    job.grow(100)
    program = """
        import asyncio, sys
        import msgspec
        from pathlib import Path
        from rgt_tui.fleet.history import history_keeper as memory
        from rgt_tui.fleet import Fleet
        from rgt_tui.model.box import BoxSpec
        from rgt_tui.store import FleetHistory
        memory.KEEPER_PACES = msgspec.structs.replace(memory.KEEPER_PACES, state_s=0.2)

        async def main():
            spec = msgspec.json.decode(sys.argv[1], type=BoxSpec)
            kept = memory.HistoryRecorder(FleetHistory(Path(sys.argv[2]) / "history.db"), seconds=0.1)
            fleet = Fleet([spec], audit=Path(sys.argv[2]) / "audit", remember=kept.recall_states, observers=[kept])
            await fleet.start()
            while True:
                found = await FleetHistory(Path(sys.argv[2]) / "history.db").recall_states([spec])
                box = found.get(spec.name)
                run = next((r for r in box.runs if r.name == "run"), None) if box else None
                if run is not None:
                    print(len(run.series["loss"]), flush=True)
                await asyncio.sleep(0.1)

        asyncio.run(main())
    """
    arguments = [msgspec.json.encode(spec).decode(), str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), *arguments, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        saved = 0
        async with asyncio.timeout(PATIENCE_S):
            while saved < 100:
                saved = int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()
    job.grow(5)
    second = Rgt(spec, tmp_path)
    await second.fleet.start()
    await until(second.fleet, has(105))
    await second.fleet.stop()
    assert steps(second.fleet.state) == list(range(1, 106))
    assert second.points == 5


async def test_a_history_that_hangs_holds_nothing_up(real_sshd: RealSshd, tmp_path: Path) -> None:
    job = Job(tmp_path)
    spec = described(real_sshd, job)
    job.grow(3)
    with (tmp_path / "history.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # opening the history waits for this
        one = Rgt(spec, tmp_path)
        await one.fleet.start()
        await until(one.fleet, has(3))
        assert one.fleet.state.boxes[0].link is LinkState.LIVE
    await one.fleet.stop()
    states = await FleetHistory(tmp_path / "history.db").recall_states([spec])
    recalled = FleetState(boxes=tuple(states.values()))
    assert steps(recalled), kept_texts(one, recalled)


async def test_a_damaged_history_is_told_on_the_event_line_and_goes_on(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    job = Job(tmp_path)
    job.grow(3)
    (tmp_path / "history.db").write_bytes(b"no database " * 1000)
    spec = described(real_sshd, job)
    one = Rgt(spec, tmp_path)
    await one.fleet.start()
    await until(one.fleet, has(3))
    state = await until(
        one.fleet, lambda state: any("history.db.damaged-" in e.text for e in state.events)
    )
    assert [event.level for event in state.events if not event.box] == ["warn"]
    await one.fleet.stop()
    states = await FleetHistory(tmp_path / "history.db").recall_states([spec])
    recalled = FleetState(boxes=tuple(states.values()))
    assert steps(recalled), kept_texts(one, recalled)


async def test_what_the_fleet_file_has_stopped_naming_is_gone_at_once_and_after_a_restart(
    real_sshd: RealSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        history_keeper, "KEEPER_PACES", replace(history_keeper.KEEPER_PACES, state_s=0.1)
    )
    kept = make_job(tmp_path / "jobs" / "kept", ["true"], ["still"])
    dropped = make_job(tmp_path / "jobs" / "dropped", ["true"], ["old"])
    for folder, name in ((kept, "still"), (dropped, "old")):
        out = folder / "out" / name
        (out / "checkpoints" / "step-5").mkdir(parents=True)
        (out / "checkpoints" / "step-5" / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
        (out / "metrics.jsonl").write_text('{"step": 5, "loss": 1.5}\n')
    named = tmp_path / "lone"
    named.mkdir()
    (named / "metrics.jsonl").write_text('{"step": 5, "loss": 1.5}\n')
    spec = replace(
        real_sshd.spec, interval=0.2, jobs=(str(kept), str(dropped)), runs=(str(tmp_path / "l*"),)
    )
    first = Rgt(spec, tmp_path)
    await first.fleet.start()
    await until(
        first.fleet,
        lambda state: (
            shown(state) == ({"kept", "dropped"}, {"still", "old", "lone"}, {"still", "old"})
        ),
    )
    reader = FleetHistory(tmp_path / "history.db")
    async with asyncio.timeout(PATIENCE_S):
        # the runs may be stored after the checkpoints
        while True:
            stored = (await reader.recall_states([spec]))["real"]
            runs = {run.name for run in stored.runs}  # others train on this machine, too
            saved = {one.run for one in stored.checkpoints}
            if {"still", "old", "lone"} <= runs and {"still", "old"} <= saved:
                break
            await asyncio.sleep(0.05)
    await reader.close()
    less = replace(spec, jobs=(str(kept),), runs=())
    await first.fleet.set_boxes([less])
    # In the first state with the new description, before the box has answered.
    after = await until(first.fleet, lambda state: state.boxes[0].spec == less)
    assert shown(after) == ({"kept"}, {"still"}, {"still"})
    await first.fleet.stop()
    second = Rgt(less, tmp_path)
    await second.fleet.start()
    assert shown(second.fleet.state) == ({"kept"}, {"still"}, {"still"})
    await second.fleet.stop()


def shown(state: FleetState) -> tuple[set[str], set[str], set[str]]:
    """The names of the queues, the runs, and the runs with checkpoints; others train on this machine, too."""
    box = state.boxes[0]
    mine = {"still", "old", "lone"}
    return (
        {Path(queue.path).name for queue in box.queues},
        {run.name for run in box.runs} & mine,
        {one.run for one in box.checkpoints} & mine,
    )
