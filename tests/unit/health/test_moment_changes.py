"""What differs between two moments: on the recording that the demo made, and one reading at a time."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from rgt_tui.health import MomentComparison, compare_moments, recent_level, step_seconds
from rgt_tui.model import TIME, BoxState, FleetState, RunState, Series, protocol
from rgt_tui.recordings import ReplayFleet
from tests.ui.boxes import inode_finding, running_box, sample

RECORDING = Path(__file__).parents[3] / "rgt_tui" / "demo" / "replay.jsonl.gz"
"""Three boxes of the real demo."""


@cache
def recorded(position: float) -> FleetState:
    """Return the fleet at a position of the recording, in seconds."""

    async def play() -> FleetState:
        fleet, there = ReplayFleet(RECORDING, speed=1e-6, skip=position), asyncio.Event()
        wanted = fleet.started + position - 1.0
        fleet.subscribe(lambda state: there.set() if state.at >= wanted else None)
        await fleet.start()
        await asyncio.wait_for(there.wait(), 60)
        state = fleet.state
        await fleet.stop()
        return state

    return asyncio.run(play())


def compared(box: str, before: float, after: float) -> MomentComparison:
    first, second = recorded(before).find_box(box), recorded(after).find_box(box)
    assert first is not None and second is not None
    return compare_moments(first, second)


def test_a_disk_that_filled_up_comes_first() -> None:
    found = compared("vast-demo", 30, 60)
    assert (found.causes[0].what, found.causes[0].note) == ("/workspace inodes", "full")
    assert {"lstm-a loss"} <= {change.what for change in found.effects}


def test_a_resume_and_a_new_boot_come_before_the_learning_rate() -> None:
    found = compared("runpod-demo", 60, 120)
    whats = [change.what for change in found.causes]
    assert whats[:2] == ["spot-lm resumed", "machine"]
    assert whats.index("spot-lm learning rate") > 3
    assert found.causes[0].after == "from step 133 (SIGTERM)"


def test_another_run_is_a_cause() -> None:
    whats = [(change.what, change.after) for change in compared("autodl-demo", 60, 120).causes]
    assert whats[0] == ("run", "gpt-b started")


def test_the_same_moment_has_no_difference() -> None:
    for box in recorded(60).boxes:
        found = compare_moments(box, box)
        assert {change.note for change in found.effects} <= {"no progress"}
        assert found.causes == ()


BOX = running_box("autodl-demo")
SAMPLE = BOX.sample or sample()


def changed(**fields: object) -> BoxState:
    return replace(BOX, sample=replace(SAMPLE, **fields))


def whats(before: BoxState, after: BoxState) -> list[str]:
    return [change.what for change in compare_moments(before, after).causes]


def test_throttling_comes_before_the_clock_and_the_disk() -> None:
    card = SAMPLE.gpus[0]
    slow = replace(
        card, throttle=("sw thermal slowdown",), clock_mhz=(card.clock_mhz or 2000) / 1.5
    )
    first, *others = SAMPLE.disks
    fuller = replace(first, bytes_used=(first.bytes_total or 0) * 9 // 10)
    found = whats(BOX, changed(gpus=(slow,), disks=(fuller, *others)))
    assert found == ["GPU 0 throttled", "GPU 0 clock", f"{first.mount} bytes"]


def test_an_idle_card_is_not_throttled() -> None:
    card = replace(SAMPLE.gpus[0], throttle=("gpu_idle",))
    assert whats(BOX, changed(gpus=(card,))) == []


def test_fewer_loader_workers_are_named() -> None:
    proc = SAMPLE.procs[0]
    assert proc.workers is None
    many = replace(proc, workers=protocol.WorkerSums(count=8, threads=8))
    one = replace(proc, workers=protocol.WorkerSums(count=1, threads=1))
    found = compare_moments(changed(procs=(many,)), changed(procs=(one,))).causes
    assert [(each.before, each.after) for each in found] == [("8", "1")]
    assert "loader workers" in found[0].what


def test_kills_for_lack_of_memory_and_a_read_only_disk_come_first() -> None:
    killed = replace(SAMPLE.mem, oom_kills=(SAMPLE.mem.oom_kills or 0) + 1)
    assert whats(BOX, changed(mem=killed)) == ["killed for lack of memory"]
    first, *others = SAMPLE.disks
    assert whats(BOX, changed(disks=(replace(first, read_only=True), *others))) == [first.mount]


def test_a_run_that_waits_and_a_new_finding_are_causes() -> None:
    waits = replace(BOX.runs[0], wait=protocol.TrainingPause(what="disk"))
    stuck = replace(BOX, runs=(waits,), findings=(inode_finding(),))
    found = compare_moments(BOX, stuck)
    assert [change.what for change in found.causes[:2]] == [
        f"{waits.name} waits to save",
        "U7 inodes of /workspace",
    ]
    assert found.effects[0].note == "no progress"


def test_an_unread_moment_is_unknown_not_equal() -> None:
    found = compare_moments(replace(BOX, sample=None), BOX)
    assert any("no reading" in text for text in found.unknown)


def curve(*seconds: float) -> RunState:
    points = [(10 * (place + 1), at) for place, at in enumerate(seconds)]
    return RunState("a", series={TIME: Series().with_points(points)})


def test_step_time_is_the_median_so_a_pause_does_not_count() -> None:
    assert step_seconds(curve(0, 5, 10, 300, 305, 310)) == pytest.approx(0.5)
    assert step_seconds(curve(1)) is None and step_seconds(RunState("a")) is None


def test_a_level_ignores_what_is_no_number() -> None:
    run = RunState("a", series={"loss": Series([1, 2, 3], [1.0, float("nan"), 3.0])})
    assert recent_level(run) == 2.0 and recent_level(RunState("a")) is None


def test_slower_steps_are_seen() -> None:
    before = replace(BOX, runs=(replace(curve(0, 5, 10), step=30),))
    after = replace(BOX, runs=(replace(curve(0, 5, 10, 40, 70, 100, 130), step=70),))
    found = compare_moments(before, after).effects
    assert [(each.before, each.after, each.note) for each in found] == [("0.5 s", "3 s", "×6.0")]
