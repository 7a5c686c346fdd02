"""However much a box tells, the client holds a bounded part of it: the oldest goes first, counted and said."""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.cli.status_line import status_line
from rgt_tui.fleet import (
    BOX_LIMITS,
    FrameIntake,
    MemoryBudget,
    cap_per_item,
    cut_to_budget,
    describe_dropped,
    estimate_bytes,
    rewind_run,
)
from rgt_tui.fleet import frame_intake as intake_module
from rgt_tui.gate import Situation, gather_evidence
from rgt_tui.health import assess_box
from rgt_tui.model import (
    BillingVerb,
    BoxEvent,
    BoxSpec,
    BoxState,
    Checkpoint,
    Checkpoints,
    DroppedCounts,
    FoundRun,
    FoundRuns,
    Frame,
    LogLines,
    Meter,
    QueueCell,
    QueueState,
    RunResume,
    RunState,
    ScalarPoint,
    Scalars,
    Series,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ui.widgets import limited_lines

replace = msgspec.structs.replace
SPEC = BoxSpec(name="a", host="h")
PROFILE = load_profile("generic-ssh")
NOW = 1_700_000_000.0
MIB = 1 << 20
SMALL = MemoryBudget(
    logs=MIB, queues=MIB, checkpoints=MIB, names=MIB, points=20_000, every=MIB // 4
)  # fmt: skip


def log(number: int, path: str = "/log") -> LogLines:
    return LogLines(
        path=path,
        inode=1,
        start=number,
        end=number + 1,
        lines=tuple(f"{number} {n} " + "x" * 1000 for n in range(100)),
    )


def queue(number: int) -> QueueState:
    cells = tuple(QueueCell(name=f"c{n}", cfg="x" * 200, task="t", state="done") for n in range(50))
    return QueueState(path=f"/q{number}", at=NOW + number, cells=cells)


def checkpoints(number: int) -> Checkpoints:
    items = tuple(
        Checkpoint(path=f"/c/{n}" + "x" * 200, step=n, bytes=n, at=NOW) for n in range(50)
    )
    return Checkpoints(run=f"r{number}", at=NOW + number, items=items)


def curve(number: int) -> Scalars:
    points = tuple(
        ScalarPoint(step=number * 500 + n, at=NOW, epoch=None, values={"loss": float(n)})
        for n in range(500)
    )
    return Scalars(
        run="r",
        source="/d#loss",
        inode=1,
        start=number * 500,
        end=number * 500 + 500,
        points=points,
    )


def names(number: int) -> Scalars:
    point = ScalarPoint(
        step=1, at=NOW + number, epoch=None, values={f"{n} " + "m" * 500: 1.0 for n in range(100)}
    )
    return Scalars(
        run=f"run {number}",
        source=f"/d{number}" + "x" * 500,
        inode=1,
        start=0,
        end=9,
        points=(point,),
    )


def fed(
    make: Callable[[int], Frame], count: int, budget: MemoryBudget = SMALL
) -> tuple[FrameIntake, BoxState]:
    intake, state = FrameIntake(SPEC, PROFILE, budget=budget), BoxState(spec=SPEC)
    for number in range(count):
        state = intake.apply_frame(state, make(number), NOW)
    return intake, state


@pytest.mark.parametrize(
    ("make", "most"),
    [(lambda n: log(n, f"/log{n % 200}"), 4), (queue, 6), (checkpoints, 6), (curve, 4), (names, 6)],
    ids=["logs", "queues", "checkpoints", "points", "names"],
)
def test_memory_is_bounded_however_much_comes(make: Callable[[int], Frame], most: int) -> None:
    tracemalloc.start()
    try:
        _, state = fed(make, 100)
        first = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        intake, state = FrameIntake(SPEC, PROFILE, budget=SMALL), state
        for number in range(100, 300):
            state = intake.apply_frame(state, make(number), NOW)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < most * MIB
    assert peak < 2 * most * MIB
    assert now < 1.5 * first + MIB
    assert describe_dropped(state.left_out)


def test_of_logs_the_largest_lose_their_oldest_lines_and_no_cursor_moves() -> None:
    intake, state = FrameIntake(SPEC, PROFILE, budget=SMALL), BoxState(spec=SPEC)
    state = intake.apply_frame(
        state, LogLines(path="/small", inode=1, start=0, end=5, lines=("precious",)), NOW
    )
    for number in range(200):
        state = intake.apply_frame(state, log(number, f"/log{number % 4}"), NOW)
    views = {view.path: view for view in state.logs}
    assert views["/small"].lines == ("precious",)
    assert views["/small"].dropped == 0
    kept = sum(len(line) for view in state.logs for line in view.lines)
    assert SMALL.logs // 2 < kept < SMALL.logs + SMALL.every
    assert views["/log3"].lines[-1].startswith("199 99 "), "the newest stay"
    told = sum(view.dropped + len(view.lines) for view in state.logs)
    assert told == 200 * 100 + 1, "what is not kept is counted"
    assert 0 < state.left_out.log_lines <= sum(view.dropped for view in state.logs)
    assert intake.build_config(state, 1.0, NOW).log_cursors["/log3"].offset == 200


def test_of_curves_the_longest_lose_their_oldest_points() -> None:
    intake, state = fed(curve, 100)
    (run,) = state.runs
    loss = run.series["loss"]
    assert SMALL.points // 2 < len(loss) <= SMALL.points + SMALL.every // 70 + 500
    assert loss.last_point == (49_999, 499.0)
    assert loss.dropped + len(loss) == 50_000
    assert state.left_out.points == loss.dropped
    assert intake.build_config(state, 1.0, NOW).scalar_cursors["/d#loss"].offset == 50_000
    again = rewind_run(run, replace(curve(99), start=49_800), run.cursors["/d#loss"])
    assert again.series["loss"].last_point == (49_799, 299.0), (
        "a place counts from the first point that ever came"
    )
    assert (
        len(rewind_run(run, replace(curve(0), start=0), run.cursors["/d#loss"]).series["loss"]) == 0
    )


def test_resumes_move_with_the_points() -> None:
    run = RunState(
        "r",
        series={
            "loss": Series().with_points([(n, 1.0) for n in range(100)]),
            "lr": Series().with_points([(1, 1.0)]),
        },
        resumes=(RunResume(5, "x", 5), RunResume(90, "y", 90)),
    )
    state = cut_to_budget(BoxState(spec=SPEC, runs=(run,)), replace(SMALL, points=64))
    (kept,) = state.runs
    assert len(kept.series["lr"]) == 1
    cut = 100 - len(kept.series["loss"])
    assert [resume.index for resume in kept.resumes] == [0, 90 - cut]
    assert state.left_out == DroppedCounts(points=cut)


@pytest.mark.parametrize("make", [queue, checkpoints, names])
def test_of_whole_things_those_go_that_were_silent_for_longest(
    make: Callable[[int], Frame],
) -> None:
    _, state = fed(make, 200)
    paths = [item.path for item in state.queues] or [item.run for item in state.checkpoints]
    paths = paths or [item.name for item in state.runs]
    assert 3 < len(paths) < 199
    assert paths[-1].endswith("199")
    assert [int(path.strip("/qrun ")) for path in paths] == list(range(200 - len(paths), 200))
    left = state.left_out
    assert left.queues + left.checkpoints + left.runs == 200 - len(paths)


def test_what_fits_stays_as_it_is() -> None:
    for make in (log, queue, checkpoints, curve, names):
        _, state = fed(make, 1, MemoryBudget())
        assert cut_to_budget(state, MemoryBudget()) is state
        assert state.left_out == DroppedCounts()


def test_the_gate_knows_that_something_is_missing() -> None:
    _, state = fed(queue, 200)
    _, other = fed(checkpoints, 200)

    def item(
        state: BoxState, key: str, verb: BillingVerb = BillingVerb.DESTROY
    ) -> tuple[bool, str]:
        profile = load_profile("runpod")
        given = Situation(
            state=state,
            meter=Meter(),
            meter_at=0.0,
            profile=profile,
            action="terminate",
            now=NOW,
            ticks=0.0,
        )
        found = [item for item in gather_evidence(given, verb).items if item.kind == key]
        return all(item.ok for item in found), "; ".join(item.text for item in found)

    ok, text = item(state, "queue")
    assert not ok
    assert "not kept of this box: " in text and "the state of their cells is unknown" in text
    assert item(replace(state, left_out=DroppedCounts()), "queue")[0]
    saved = QueueCell(
        name="c", cfg="x", task="t", state="done", durable="verified", durable_path="/workspace/c"
    )
    other = replace(other, checkpoints=(), queues=(QueueState(path="/q", at=NOW, cells=(saved,)),))
    ok, text = item(other, "durable")
    assert not ok
    assert "not kept of this box: " in text


def test_it_is_said_on_the_screen_and_in_the_status() -> None:
    _, state = fed(queue, 200)
    (said,) = describe_dropped(state.left_out)
    assert (
        said
        == f"not kept here: {state.left_out.queues} queues, silent for longest; the state of its cells is unknown"
    )
    shown = ["".join(span.text for span in row) for row in limited_lines(state, 120)]
    assert any(said in row for row in shown)
    assert said in status_line(state, assess_box(state, NOW), NOW).limited
    assert describe_dropped(DroppedCounts(runs=1)) == (
        "not kept here: 1 run, silent for longest; the box has them",
    )
    assert describe_dropped(DroppedCounts()) == ()


def test_too_many_found_trainings_are_counted_as_they_are_now() -> None:
    def found(count: int) -> FoundRuns:
        return FoundRuns(
            boot="b",
            at=NOW,
            runs=tuple(
                FoundRun(name=f"r{n}", pid=n, started=1.0, command="") for n in range(count)
            ),
        )

    intake, state = FrameIntake(SPEC, PROFILE), BoxState(spec=SPEC)
    for count, left in ((BOX_LIMITS.found_runs + 7, 7), (BOX_LIMITS.found_runs + 3, 3), (2, 0)):
        state = intake.apply_frame(state, found(count), NOW)
        assert state.left_out.found == left


def test_a_line_and_an_event_are_cut() -> None:
    intake, state = FrameIntake(SPEC, PROFILE), BoxState(spec=SPEC)
    state = intake.apply_frame(
        state,
        LogLines(path="/l", inode=1, start=0, end=9, lines=("x" * 900_000,), partial="y" * 900_000),
        NOW,
    )
    assert [len(line) for line in state.logs[0].lines] == [
        BOX_LIMITS.line_characters,
        BOX_LIMITS.line_characters,
    ]
    state = intake.apply_frame(
        state, BoxEvent(boot="b", seq=1, at=NOW, kind="k" * 9000, text="t" * 900_000), NOW
    )
    assert (len(state.events[0].text), len(state.events[0].kind)) == (
        BOX_LIMITS.event_characters,
        BOX_LIMITS.event_characters,
    )


def test_places_of_logs_without_number_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MOST_CURSORS", 300)
    intake, state = fed(lambda n: log(n, f"/log{n}"), 900)
    cursors = intake.build_config(state, 1.0, NOW).log_cursors
    assert len(cursors) < 600
    assert {view.path for view in state.logs} <= cursors.keys()


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_a_share_is_the_largest_that_fits(sizes: list[int], most: int) -> None:
    cap = cap_per_item(sizes, most)
    assert sum(min(size, cap) for size in sizes) <= most
    if sum(sizes) > most:
        assert sum(min(size, cap + 1) for size in sizes) > most
    elif sizes:
        assert cap >= max(sizes)


def test_what_replaces_the_old_weighs_nothing() -> None:
    assert (
        estimate_bytes(BoxEvent(boot="b", seq=1, at=NOW, kind="k", text="t"))
        == estimate_bytes(FoundRuns(boot="b", at=NOW))
        == 0
    )
    assert estimate_bytes(curve(1)) > 500 * sys.getsizeof(1.0)
    assert estimate_bytes(log(1)) > 100_000
    assert math.isclose(estimate_bytes(queue(1)), 4 * len(msgspec.msgpack.encode(queue(1))))


def test_nothing_goes_before_the_budget_is_used_up() -> None:
    queues = tuple(queue(number) for number in range(8))
    used = sum(4 * len(msgspec.msgpack.encode(one)) for one in queues)
    state = BoxState(spec=SPEC, queues=queues)
    assert cut_to_budget(state, replace(SMALL, queues=used)) is state
    less = cut_to_budget(state, replace(SMALL, queues=used - 1))
    assert less.queues == queues[-len(less.queues) :]
    assert less.left_out == DroppedCounts(queues=8 - len(less.queues))
    assert 0 < len(less.queues) < 8
