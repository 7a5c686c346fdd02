"""Frames become states: sequence accounting, logs, curves, queues."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.fleet import BOX_LIMITS, apply_frame, count_frame, describe_dropped, reducers
from rgt_tui.fleet import reducers as module
from rgt_tui.model import (
    EPOCH,
    TIME,
    BoxEvent,
    BoxSpec,
    BoxState,
    Checkpoints,
    Frame,
    GpuReading,
    Hello,
    LinkState,
    LogLines,
    MemoryReading,
    QueueCell,
    QueueState,
    Sample,
    ScalarPoint,
    Scalars,
    StreamCounters,
    TrainingPause,
    clean_decoded,
)

replace = msgspec.structs.replace
START = BoxState(spec=BoxSpec(name="a", host="h"))
HELLO = Hello(proto=1, agent="abcdef0123", boot="b1", host="h", python="3.11", pid=1, at=1010.0)


def feed(*frames: Frame, state: BoxState = START, now: float = 1000.0) -> BoxState:
    for frame in frames:
        state = apply_frame(state, frame, now)
    return state


def sample(
    seq: int, boot: str = "b1", at: float = 1010.0, skipped: int = 0, **fields: object
) -> Sample:
    return Sample(boot=boot, seq=seq, at=at, skipped=skipped, **fields)  # type: ignore[arg-type]


def test_hello_makes_the_link_live_and_measures_the_clock_skew() -> None:
    state = feed(HELLO)
    assert state.link is LinkState.LIVE
    assert state.clock_skew == 10.0
    assert state.counters.connects == 1


def test_the_age_of_a_sample_is_measured_on_the_box_when_it_was_taken() -> None:
    # The recorder took it 30 s before this connection began: it must not look fresh.
    state = feed(HELLO, sample(1, at=980.0))
    assert state.sample_at == 970.0


def test_a_sample_from_the_future_counts_as_taken_now() -> None:
    assert feed(HELLO, sample(1, at=5000.0)).sample_at == 1000.0


def test_missing_repeated_and_skipped_samples_are_told_apart() -> None:
    state = feed(HELLO, sample(1), sample(2), sample(5), sample(5), sample(9, skipped=3))
    assert (state.counters.samples, state.counters.gaps) == (4, 2)
    assert (state.counters.duplicates, state.counters.skipped) == (1, 3)


@pytest.mark.parametrize("skipped", [-(2**63), 2**63])
def test_counts_that_no_box_can_have_stay_within_what_the_history_stores(skipped: int) -> None:
    counters = feed(HELLO, sample(1, skipped=skipped), sample(9, skipped=skipped)).counters
    assert 0 <= counters.skipped <= reducers.BOX_LIMITS.counted
    assert 0 <= counters.gaps <= reducers.BOX_LIMITS.counted


def test_events_share_the_sequence_of_the_samples() -> None:
    event = BoxEvent(boot="b1", seq=2, at=1.0, kind="k", text="t")
    state = feed(HELLO, sample(1), event, sample(3))
    assert (state.counters.gaps, state.counters.duplicates) == (0, 0)
    assert [e.kind for e in state.events] == ["k"]


def test_an_event_from_a_run_s_metrics_stands_outside_the_sequence() -> None:
    event = BoxEvent(boot="b1", seq=0, at=1.0, kind="done", text="t")
    state = feed(HELLO, sample(1), event, sample(2))
    assert (state.counters.gaps, state.counters.duplicates, state.counters.seq) == (0, 0, 2)
    assert [e.kind for e in state.events] == ["done"]


def test_an_event_that_a_file_says_again_after_a_reconnect_is_one() -> None:
    event = BoxEvent(boot="b1", seq=0, at=1.0, kind="tracker-error", text="t", level="error")
    later = BoxEvent(boot="b1", seq=0, at=2.0, kind="tracker-error", text="t", level="error")
    state = feed(HELLO, sample(1), event, event, later, event)
    assert [e.at for e in state.events] == [1.0, 2.0]


def test_a_reboot_begins_a_new_sequence() -> None:
    state = feed(HELLO, sample(7), sample(1, boot="b2"), sample(2, boot="b2"))
    assert (state.counters.gaps, state.counters.duplicates, state.counters.boot) == (0, 0, "b2")


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60, unique=True).map(sorted))
def test_gaps_are_exactly_what_is_missing(seqs: list[int]) -> None:
    counters = StreamCounters()
    for seq in seqs:
        counters = count_frame(counters, "b", seq, 0)
    assert counters.gaps == seqs[-1] - seqs[0] + 1 - len(seqs)
    assert counters.duplicates == 0


def test_a_duplicate_does_not_replace_the_newest_sample() -> None:
    state = feed(HELLO, sample(1, at=1001.0), sample(2, at=1002.0), sample(1, at=1001.0))
    assert state.sample is not None
    assert state.sample.seq == 2


def test_rings_are_bounded_and_hold_the_mean_of_the_gpus() -> None:
    gpus = (
        GpuReading(index=0, name="g", util=20.0, vram_used=1, vram_total=4),
        GpuReading(index=1, name="g", util=40.0, vram_used=1, vram_total=4),
    )
    state = feed(HELLO, *(sample(i + 1, gpus=gpus) for i in range(BOX_LIMITS.samples + 30)))
    assert len(state.rings.gpu_util) == BOX_LIMITS.samples
    assert state.rings.gpu_util[-1] == 30.0
    assert state.rings.vram_pct[-1] == 25.0


def test_memory_is_counted_without_the_cache_that_the_kernel_gives_back() -> None:
    state = feed(HELLO, sample(1, mem=MemoryReading(cgroup=2, used=80, cache=30, limit=100)))
    assert state.rings.cgroup_pct == (50.0,)
    assert feed(HELLO, sample(1, mem=MemoryReading(cgroup=2, used=80))).rings.cgroup_pct == (None,)


def log(lines: tuple[str, ...], **fields: object) -> LogLines:
    return LogLines(path="/l", inode=1, start=0, end=1, lines=lines, **fields)  # type: ignore[arg-type]


def test_log_lines_are_made_harmless_and_bounded() -> None:
    state = feed(
        clean_decoded(log(("\x1b[31mred\x1b[0m \x07bell\tTab",))),
        log(tuple(str(i) for i in range(BOX_LIMITS.log_lines))),
    )
    view = state.logs[0]
    assert len(view.lines) == BOX_LIMITS.log_lines
    assert view.dropped == 1
    assert feed(clean_decoded(log(("\x1b]0;evil\x07ok",)))).logs[0].lines == ("ok",)


def test_when_the_newest_line_was_written_is_told_or_seen() -> None:
    assert feed(log(("old",))).logs[0].written is None
    state = feed(log(("old",), age=30.0))
    told = state.logs[0].written
    assert told is not None and state.logs[0].at == told + 30.0
    later = feed(log(("old",), age=30.0), log(("new",)))
    assert later.logs[0].written == later.logs[0].at
    assert feed(log(("old",), age=30.0), log((), partial="50%")).logs[0].written == told
    assert [feed(log(("old",), age=age)).logs[0].written for age in (-1.0, 1e18, 1e308)] == [
        None
    ] * 3


def test_a_replaced_log_starts_anew() -> None:
    state = feed(log(("old",)), log(("new",), reset=True))
    assert state.logs[0].lines == ("new",)


def scalars(
    points: list[tuple[int, float | str]], resumes: tuple[tuple[int, str], ...] = ()
) -> Scalars:
    return Scalars(
        run="r",
        source="/m",
        inode=1,
        start=0,
        end=0,  # so that any further frame of it follows on
        points=tuple(
            ScalarPoint(
                step=s, at=1010.0 + s, epoch=0.5, values={"loss": v, "lr": 0.1, "odd": None}
            )
            for s, v in points
        ),
        resumes=resumes,
    )


def test_points_make_a_curve_and_the_newest_values() -> None:
    state = feed(HELLO, scalars([(1, 3.0), (2, 2.5)]), scalars([(3, "nan")]))
    run = state.runs[0]
    assert run.step == 3
    assert run.lr == 0.1
    assert run.loss is not None
    assert math.isnan(run.loss)
    assert [step for step, _ in run.series["loss"]] == [1, 2, 3]
    assert "odd" not in run.series


def test_a_resume_is_marked_where_the_new_segment_begins() -> None:
    state = feed(
        HELLO,
        scalars([(1, 3.0), (2, 2.0), (3, 1.9)]),
        scalars([(3, 1.9), (4, 1.8)], ((2, "SIGTERM"),)),
    )
    run = state.runs[0]
    assert [(r.step, r.reason, r.index) for r in run.resumes] == [(2, "SIGTERM", 3)]
    assert run.step == 4


def test_an_older_snapshot_of_a_curve_never_changes() -> None:
    first = feed(HELLO, scalars([(1, 3.0)]))
    second = feed(scalars([(2, 2.0)]), state=first)
    third = feed(scalars([(7, 9.0)]), state=first)
    assert len(first.runs[0].series["loss"]) == 1
    assert [step for step, _ in second.runs[0].series["loss"]] == [1, 2]
    assert [step for step, _ in third.runs[0].series["loss"]] == [1, 7]


def test_progress_age_counts_from_the_point_on_the_box() -> None:
    state = feed(scalars([(1, 3.0)]), state=feed(HELLO), now=1500.0)
    # The box's clock is 10 s ahead, and the point carries 1011.
    assert state.runs[0].progressed_at == 1001.0


def test_runs_stand_in_the_order_of_the_queue() -> None:
    cells = (QueueCell(name="z", cfg="z", task="t"), QueueCell(name="r", cfg="r", task="t"))
    other = msgspec.structs.replace(scalars([(1, 1.0)]), run="z")
    state = feed(HELLO, scalars([(1, 1.0)]), other, QueueState(path="/q", at=1.0, cells=cells))
    assert [run.name for run in state.runs] == ["z", "r"]


def test_the_best_is_the_lowest_finite_validation_loss() -> None:
    points = tuple(
        ScalarPoint(step=step, at=None, epoch=None, values={"val_loss": value})
        for step, value in ((1, 2.0), (2, 1.5), (3, "nan"))
    )
    first = msgspec.structs.replace(scalars([]), points=points)
    state = feed(HELLO, first, msgspec.structs.replace(first, points=points[:1]))
    assert state.runs[0].best == 1.5


def test_the_total_of_steps_is_known_and_is_no_curve_and_no_progress() -> None:
    start = msgspec.structs.replace(
        scalars([]),
        points=(ScalarPoint(step=0, at=1010.0, epoch=None, values={"total_steps": 400.0}),),
    )
    run = feed(HELLO, start).runs[0]
    assert run.total_steps == 400
    assert run.series == {}


@pytest.mark.parametrize("odd", [0.0, -1.0, 1e15, "nan", None])
def test_a_total_that_is_not_known_any_more_is_unknown_and_the_step_stays(
    odd: float | str | None,
) -> None:
    state = feed(HELLO, scalars([(7, 2.0)]))
    for value, total in ((400.0, 400), (odd, None)):
        told = ScalarPoint(step=1, at=None, epoch=None, values={"total_steps": value})
        state = feed(replace(scalars([]), source="/m#total_steps", points=(told,)), state=state)
        assert (state.runs[0].total_steps, state.runs[0].step) == (total, 7)


def test_of_too_many_of_a_kind_the_one_gives_way_that_was_silent_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = replace(reducers.BOX_LIMITS, runs=3, logs=3, queues=3)
    monkeypatch.setattr(reducers, "BOX_LIMITS", few)
    state = feed(HELLO)
    for number in range(5):
        points = (ScalarPoint(step=1, at=1010.0 + number, epoch=None, values={"loss": 1.0}),)
        state = feed(
            replace(scalars([]), run=f"r{number}", source=f"/m{number}", points=points),
            replace(log(("x",)), path=f"/l{number}"),
            QueueState(path=f"/q{number}", at=1010.0 + number),
            Checkpoints(run=f"r{number}", at=1010.0 + number),
            state=state,
            now=1000.0 + number,
        )
        if number == 2:  # the first one speaks again
            more = (ScalarPoint(step=2, at=1100.0, epoch=None, values={"loss": 1.0}),)
            state = feed(replace(scalars([]), run="r0", source="/m0", points=more), state=state)
    assert [run.name for run in state.runs] == ["r0", "r3", "r4"]
    assert [view.path for view in state.logs] == ["/l2", "/l3", "/l4"]
    assert [queue.path for queue in state.queues] == ["/q2", "/q3", "/q4"]
    assert [each.run for each in state.checkpoints] == ["r2", "r3", "r4"]


def test_a_run_has_no_curves_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOX_LIMITS", replace(module.BOX_LIMITS, series=2))
    point = ScalarPoint(step=1, at=1010.0, epoch=None, values={"a": 1.0, "b": 2.0, "c": 3.0})
    state = feed(HELLO, replace(scalars([]), points=(point, point)))
    assert {name: len(series) for name, series in state.runs[0].metrics.items()} == {"a": 2, "b": 2}
    assert state.left_out.surplus == 2
    state = feed(replace(scalars([]), points=(point,)), state=state)
    assert (state.left_out.surplus, state.left_out.points) == (3, 0)
    assert describe_dropped(state.left_out) == (
        "not kept here: 3 points of further curves, over the limit per run; the box has them",
    )


def test_a_run_keeps_when_it_was_at_its_steps_and_in_which_epoch() -> None:
    state = feed(HELLO, scalars([(1, 2.0), (2, 1.0)]))
    (run,) = state.runs
    assert list(run.series[TIME]) == [(1, 1001.0), (2, 1002.0)], "on the clock of this computer"
    assert list(run.series[EPOCH]) == [(1, 0.5), (2, 0.5)]
    assert set(run.metrics) == {"loss", "lr"}


def test_places_that_a_box_calls_a_metric_are_none() -> None:
    point = ScalarPoint(step=1, at=None, epoch=None, values={"loss": 1.0, TIME: 7.0, EPOCH: 7.0})
    (run,) = feed(HELLO, replace(scalars([]), points=(point,))).runs
    assert set(run.series) == {"loss"}


def test_of_curves_found_one_by_one_that_of_the_loss_says_when() -> None:
    frames = [replace(scalars([(1, 2.0)]), source=f"/dir#{name}") for name in ("lr", "loss")]
    (run,) = feed(HELLO, *frames).runs
    assert len(run.series[TIME]) == 1
    again = replace(frames[1], start=0, end=1, points=scalars([(1, 2.0), (2, 1.5)]).points)
    (run,) = feed(HELLO, frames[0], replace(frames[1], end=1), again).runs
    assert [step for step, _ in run.series[TIME]] == [1, 2], (
        "what is told anew takes the place of what was"
    )


def test_a_run_holds_until_its_next_point_or_until_it_says_otherwise() -> None:
    def told(start: int, *points: ScalarPoint, wait: TrainingPause | None = None) -> Scalars:
        return Scalars(
            run="r",
            source="/r/metrics.jsonl",
            inode=1,
            start=start,
            end=start + 9,
            points=points,
            wait=wait,
        )

    point = ScalarPoint(step=5, at=1000.0, epoch=None, values={"loss": 1.0})
    hold = told(9, wait=TrainingPause(what="disk", step=5, unsaved=3))
    waits = feed(told(0, point), hold)
    assert waits.runs[0].wait == hold.wait
    assert (
        feed(told(18), state=waits).runs[0].wait == hold.wait
    )  # another event, such as a mirror that fails
    assert feed(told(18, point), state=waits).runs[0].wait is None
    assert feed(told(18, wait=TrainingPause(what="")), state=waits).runs[0].wait is None


def test_the_time_of_holds_that_are_over_is_summed_until_the_next_attempt() -> None:
    def told(start: int, at: float | None, **fields: object) -> Scalars:
        points = (
            () if at is None else (ScalarPoint(step=5, at=at, epoch=None, values={"loss": 1.0}),)
        )
        return Scalars(
            run="r",
            source="/r/m",
            inode=1,
            start=start,
            end=start + 9,
            points=points,
            **fields,  # type: ignore[arg-type]
        )

    hold = told(9, None, wait=TrainingPause(what="disk", step=5, at=1000.0))
    waits = feed(told(0, 990.0), hold)
    assert waits.runs[0].held_s == 0.0, "it is not over yet"
    on = feed(told(18, 1300.0), state=waits)
    assert on.runs[0].held_s == 300.0
    twice = feed(
        told(27, None, wait=TrainingPause(what="disk", step=9, at=1400.0)),
        told(36, 1450.0),
        state=on,
    )
    assert twice.runs[0].held_s == 350.0
    again = feed(told(45, 1500.0, resumes=((5, "SIGTERM"),)), state=twice)
    assert again.runs[0].held_s == 0.0
