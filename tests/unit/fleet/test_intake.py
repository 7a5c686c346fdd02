"""One box's frames into its state: what is kept of each, and what is asked for after a reconnect."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from rgt_tui.fleet import FrameIntake
from rgt_tui.model import (
    BoxEvent,
    BoxSpec,
    BoxState,
    DiskReading,
    FileCursor,
    FoundRun,
    FoundRuns,
    Frame,
    GpuReading,
    Hello,
    HistoryRow,
    LogLines,
    LogView,
    QueueCell,
    QueueState,
    RecordedHistory,
    Sample,
    SampleCursor,
    ScalarPoint,
    Scalars,
)
from rgt_tui.profiles import load_profile

replace = msgspec.structs.replace
SPEC = BoxSpec(name="a", host="h", logs=("/l",), interval=0.5)
PROFILE = load_profile("generic-ssh")
NOW = 6000.0
HELLO = Hello(proto=1, agent="abcdef0123", boot="b", host="h", python="3.11", pid=1, at=NOW)


def sample(seq: int, at: float) -> Sample:
    return Sample(boot="b", seq=seq, at=at, gpus=(GpuReading(index=0, name="g", util=50.0),))


def log(*lines: str, end: int = 9) -> LogLines:
    return LogLines(path="/l", inode=4, start=0, end=end, lines=lines)


def scalars(end: int = 70) -> Scalars:
    point = ScalarPoint(step=3, at=NOW, epoch=None, values={"loss": 1.0})
    return Scalars(run="r", source="/m", inode=5, start=0, end=end, points=(point,))


def taken(
    intake: FrameIntake, *frames: Frame, state: BoxState | None = None, now: float = NOW
) -> BoxState:
    state = state or BoxState(spec=SPEC)
    for frame in frames:
        state = intake.apply_frame(state, frame, now)
    return state


def test_the_first_time_everything_is_asked_for() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    config = intake.build_config(BoxState(spec=SPEC), 0.5, NOW)
    assert (config.interval, config.logs) == (0.5, ("/l",))
    assert config.packed_lines
    assert config.samples_after is None
    assert config.history is not None
    assert (config.log_cursors, config.scalar_cursors) == ({}, {})


def test_a_reconnect_asks_for_what_came_after() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    intake.follow_log("/more")
    state = taken(intake, HELLO, sample(7, NOW), log("x"), scalars())
    config = intake.build_config(state, 0.5, NOW + 10)
    assert config.samples_after == SampleCursor(boot="b", seq=7)
    assert config.log_cursors == {"/l": FileCursor(inode=4, offset=9)}
    assert config.scalar_cursors == {"/m": FileCursor(inode=5, offset=70)}
    assert config.logs == ("/l", "/more")
    assert config.history is None
    assert intake.build_config(state, 0.5, NOW + 1000).history is not None


@pytest.mark.parametrize(("boxes", "has"), [(3, True), (500, False)])
def test_a_large_fleet_keeps_no_past_of_single_cards(boxes: int, has: bool) -> None:
    told = RecordedHistory(
        boot="b", seq=1, width=60.0, names=("util", "util:1"),
        rows=(HistoryRow(at=NOW - 60.0, count=60, values=((1.0, 1.0, 1.0), (2.0, 2.0, 2.0))),),
    )  # fmt: skip
    gpus = tuple(GpuReading(index=number, name="g", util=50.0) for number in range(2))
    seen = (Sample(boot="b", seq=seq, at=NOW + seq, gpus=gpus) for seq in range(2, 200))
    intake = FrameIntake(SPEC, PROFILE, boxes=boxes)
    state = taken(intake, HELLO, told)
    assert ("util:1" in state.past.names, "util" in state.past.names) == (has, True)
    for frame in seen:
        state = intake.apply_frame(state, frame, frame.at)
    assert ("util:1" in state.recent.names, "util" in state.recent.names) == (has, True)


def test_a_cell_s_own_place_in_its_metrics_counts_not_that_of_a_training_found_there() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    cell = QueueCell(name="r", cfg="r", task="t")
    found = replace(scalars(30), run="found")
    state = taken(intake, HELLO, found, scalars(70), QueueState(path="/q", at=NOW, cells=(cell,)))
    assert [run.name for run in state.runs] == ["r", "found"]
    assert intake.build_config(state, 0.5, NOW).scalar_cursors == {
        "/m": FileCursor(inode=5, offset=70)
    }


def test_of_two_runs_that_are_told_from_one_file_none_begins_anew_in_its_middle() -> None:
    """A run directory of the fleet file and the training that is found there: both read the same metrics."""
    intake = FrameIntake(SPEC, PROFILE)
    here = FoundRuns(
        runs=(FoundRun(name="found", pid=7, started=NOW, command="x"),), boot="b", at=NOW
    )
    state = taken(intake, HELLO, here, replace(scalars(30), run="found"), scalars(70))
    assert intake.build_config(state, 0.5, NOW).scalar_cursors == {}
    assert intake.build_config(replace(state, found=()), 0.5, NOW).scalar_cursors == {}, (
        "as after a start of rgt"
    )
    same = taken(intake, HELLO, here, replace(scalars(70), run="found"), scalars(70))
    assert intake.build_config(same, 0.5, NOW).scalar_cursors == {
        "/m": FileCursor(inode=5, offset=70)
    }


def test_a_frame_that_cannot_be_taken_in_is_left_behind() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    state = taken(intake, HELLO, sample(7, NOW))
    for frame in (
        sample(8, NOW + 1),
        BoxEvent(boot="b", seq=9, at=NOW, kind="k", text="t"),
        BoxEvent(boot="b", seq=0, at=NOW, kind="k", text="t"),
        scalars(),
        log("x"),
        HELLO,
    ):
        state = intake.give_up(state, frame)
    assert state.counters.bad_frames == 6
    config = intake.build_config(state, 0.5, NOW + 2)
    assert config.samples_after == SampleCursor(boot="b", seq=9)
    assert config.scalar_cursors == {"/m": FileCursor(inode=5, offset=70)}
    assert config.log_cursors == {"/l": FileCursor(inode=4, offset=9)}
    assert (state.counters.gaps, state.counters.duplicates) == (0, 0)


def test_live_samples_grow_into_the_past() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    state = taken(intake, HELLO)
    for n in range(130):
        state = taken(intake, sample(n + 1, NOW + n), state=state, now=NOW + n)
    assert state.past.at == (NOW + 60, NOW + 120)
    assert dict(zip(state.past.names, state.past.values[0], strict=True))["util"] == 50.0


def test_a_sample_that_came_before_is_not_counted_again() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    state = taken(intake, HELLO, sample(1, NOW), sample(1, NOW), now=NOW)
    state = taken(intake, sample(2, NOW + 61), state=state, now=NOW + 61)
    assert state.counters.duplicates == 1
    assert len(state.past.at) == 1


@pytest.mark.parametrize("boxes", [1, 500])
@pytest.mark.parametrize("seed", range(6))
def test_samples_taken_in_together_lead_to_what_they_lead_to_one_by_one(
    seed: int, boxes: int
) -> None:
    chance = random.Random(seed)
    one, many = FrameIntake(SPEC, PROFILE, boxes), FrameIntake(SPEC, PROFILE, boxes)
    alone = together = BoxState(spec=SPEC, clock_skew=chance.choice((None, -3.0, 2000.0)))
    seq, at, boot = 0, NOW, "b"
    for _ in range(12):
        one.focused = many.focused = chance.random() < 0.3
        frames = []
        for _ in range(chance.choice((1, 2, 3, 30, 64, 130))):
            seq += chance.choice((1, 1, 1, 1, 0, -2, 3))
            at += chance.choice((1.0, 1.0, 1.0, 25.0, -40.0, 90.0))
            boot = chance.choice((*[boot] * 40, "c"))
            util = chance.choice((None, 0.0, 51.23, 97.0))
            gpus = tuple(
                GpuReading(index=n, name="g", util=util, power_w=1.0)
                for n in range(chance.choice((0, 1, 2)))
            )
            disks = (DiskReading(mount="/", bytes_used=1, bytes_total=chance.choice((4, 5))),)
            when = chance.choice((at, at, at, math.nan, 1e300))
            frames.append(
                Sample(
                    boot=boot,
                    seq=seq,
                    at=when,
                    gpus=gpus,
                    disks=disks,
                    skipped=chance.choice((0, 0, 2)),
                )
            )
        now = max(NOW, at) + chance.choice((0.0, -30.0))
        for frame in frames:
            alone = one.apply_frame(alone, frame, now)
        together = many.apply_samples(together, frames, now)
        assert together == alone


def test_what_the_recorder_saw_fills_the_past_once() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    rows = tuple(
        HistoryRow(at=NOW - 600 + 60 * n, count=60, values=((1.0, 2.0, 3.0),)) for n in range(10)
    )
    frame = RecordedHistory(boot="b", seq=1, width=60.0, names=("util",), rows=rows)
    once = taken(intake, HELLO, frame)
    assert [value for (value,) in once.past.values] == [2.0] * 10
    assert taken(intake, frame, state=once).past == once.past
    assert once.counters.seq == 0, "it moves no cursor"


@pytest.mark.parametrize(
    ("boxes", "focused", "kept"), [(1, False, 2000), (500, False, 60), (500, True, 2000)]
)
def test_of_a_crowd_the_box_on_the_screen_keeps_its_log_and_curves(
    boxes: int, focused: bool, kept: int
) -> None:
    intake = FrameIntake(SPEC, PROFILE, boxes)
    intake.focused = focused
    state = taken(intake, HELLO, log(*(str(n) for n in range(2500))))
    assert len(state.logs[0].lines) == kept
    assert state.logs[0].dropped == 2500 - kept
    state = taken(intake, *(sample(n, NOW + n) for n in range(1, 200)), state=state)
    assert len(state.rings.gpu_util) == (60 if kept == 60 else 120)


def test_what_an_earlier_rgt_left_of_a_log_is_told_anew() -> None:
    remembered = BoxState(
        spec=SPEC, logs=(LogView(path="/l", lines=("old", "x")), LogView(path="/k"))
    )
    state = taken(FrameIntake(SPEC, PROFILE), HELLO, log("x", "y"), state=remembered)
    assert {view.path: view.lines for view in state.logs} == {"/k": (), "/l": ("x", "y")}
    intake = FrameIntake(SPEC, PROFILE)
    state = taken(intake, log("x"), log("y"))
    assert state.logs[0].lines == ("x", "y")


def test_all_lines_of_a_log_are_kept_while_somebody_reads_it() -> None:
    intake = FrameIntake(SPEC, PROFILE, boxes=500)
    state = BoxState(spec=SPEC)
    assert intake.keep_log(state, "/l") is None, "nothing is known of it"
    state = taken(intake, log(*[f"old {number}" for number in range(100)], end=900), state=state)
    assert len(state.logs[0].lines) == 60
    kept = intake.keep_log(state, "/l")
    assert kept is not None
    assert intake.keep_log(state, "/l") is kept
    assert len(kept) == 60
    for number in range(30):
        lines = tuple(f"{number} {row}" for row in range(10))
        frame = LogLines(path="/l", inode=4, start=900 + number, end=901 + number, lines=lines)
        state = taken(intake, frame, state=state, now=NOW + number)
    assert (len(state.logs[0].lines), len(kept)) == (60, 360)
    assert kept.received_at(kept.end - 1) == NOW + 29
    intake.leave_log("/l")
    state = taken(intake, log("more", end=950), state=state)
    assert len(kept) == 361, "one reads on"
    intake.leave_log("/l")
    intake.leave_log("/l")
    taken(intake, log("more", end=960), state=state)
    assert len(kept) == 361
    again = intake.keep_log(state, "/l")
    assert again is not None
    assert again is not kept


def test_the_newest_lines_of_a_log_that_is_read_are_those_of_its_view() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    state = taken(intake, log("\x1b[31mfirst ü"))
    kept = intake.keep_log(state, "/l")
    assert kept is not None
    state = taken(intake, log("plain", "12%|██  |", "\x1b[31mred\x1b[0m\tü"), state=state)
    for back in (1, 2, 3, 4):
        assert kept.read_line(kept.end - back) == state.logs[0].lines[-back]


def test_a_log_that_an_earlier_rgt_knew_comes_anew() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    state = BoxState(spec=SPEC, logs=(LogView(path="/l", lines=("old", "x")),))
    kept = intake.keep_log(state, "/l")
    assert kept is not None
    taken(intake, log("x", "new"), state=state)
    assert kept.read_lines(kept.first_number, kept.end) == ["x", "new"]


def test_a_recording_that_goes_back_does_so_for_who_reads_a_log() -> None:
    intake = FrameIntake(SPEC, PROFILE)
    early = taken(intake, log("a", "b"))
    saved = intake.make_copy()
    kept = intake.keep_log(early, "/l")
    assert kept is not None
    taken(intake, log("c", "d"), state=early)
    assert kept.read_lines(kept.first_number, kept.end) == ["a", "b", "c", "d"]
    saved.adopt_log_readers(intake, early)
    assert kept.read_lines(kept.first_number, kept.end) == ["a", "b"]
    taken(saved, log("c"), state=early)
    assert kept.read_lines(kept.first_number, kept.end) == ["a", "b", "c"]
    from_the_start = FrameIntake(SPEC, PROFILE)
    from_the_start.adopt_log_readers(saved, BoxState(spec=SPEC))
    assert len(kept) == 0
