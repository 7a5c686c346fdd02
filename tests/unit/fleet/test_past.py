"""Hours of a box on one grid: holes stay holes, nothing counts twice, and it is bounded."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rgt_box.recorder.ring_history import HistorySummary
from rgt_box.recorder.ring_history import summary_figures as box_figures

from rgt_tui.fleet import settings_for_size
from rgt_tui.fleet.history.past import (
    HISTORY_GRID,
    WIDTHS,
    SlotAccumulator,
    Stretches,
    Values,
    append_slot,
    build_history_request,
    from_history,
    kept_percentages,
    merge_history,
    round_to_tenth,
    without_cards,
)
from rgt_tui.model import (
    DiskReading,
    GpuReading,
    HistoryRow,
    MemoryReading,
    RecordedHistory,
    ReducedHistory,
    Sample,
)
from rgt_tui.profiles import is_of_card

START = 1_700_000_040.0
"""A whole number of stretches of every width … of 60 s."""


def past(
    *stretches: tuple[int, float | None], width: float = 60.0, name: str = "util"
) -> ReducedHistory:
    return ReducedHistory(
        names=(name,),
        at=tuple(START + (place + 1) * width for place, _ in stretches),
        values=tuple((value,) for _, value in stretches),
        width=width,
    )


def curve(found: ReducedHistory, name: str = "util") -> dict[int, float | None]:
    """Stretch → value."""
    index = found.names.index(name)
    places = [round((at - START) / found.width) - 1 for at in found.at]
    return dict(zip(places, (values[index] for values in found.values), strict=True))


def row(at: float, value: float | None, count: int = 60) -> HistoryRow:
    return HistoryRow(
        at=at, count=count, values=((value, value, value) if value is not None else None,)
    )


def history(*rows: HistoryRow, width: float = 60.0) -> RecordedHistory:
    return RecordedHistory(boot="b", seq=9, width=width, names=("util",), rows=rows)


SAMPLE = Sample(
    boot="b",
    seq=1,
    at=START,
    gpus=(
        GpuReading(index=0, name="g", util=20.0, vram_used=1, vram_total=4),
        GpuReading(index=1, name="g", util=40.0, vram_used=2, vram_total=4),
    ),
    mem=MemoryReading(used=80, cache=30, limit=100),
    disks=(
        DiskReading(mount="/", bytes_used=1, bytes_total=4, inodes_used=1, inodes_total=2),
        DiskReading(mount="/w"),
    ),
)


def test_the_figures_are_those_of_the_recorder() -> None:
    wire = msgspec.to_builtins(SAMPLE)
    assert {
        name: v for name, v in kept_percentages(SAMPLE).items() if v is not None
    } == box_figures(wire)
    assert kept_percentages(Sample(boot="b", seq=1, at=0.0))["cgroup"] is None


def test_live_samples_make_a_stretch_when_it_is_over() -> None:
    stretch = SlotAccumulator()
    assert stretch.add_sample(START + 1, {"util": 10.0, "vram": None}, 60.0) is None
    assert stretch.add_sample(START + 59, {"util": 20.0}, 60.0) is None
    done = stretch.add_sample(START + 61, {"util": 90.0}, 60.0)
    assert done is not None
    assert (done.names, curve(done)) == (("util",), {0: 15.0})


FIGURES = st.dictionaries(st.sampled_from("abcd"), st.none() | st.floats(0, 100), max_size=4)


@given(st.lists(FIGURES, max_size=12))
def test_a_stretch_has_the_mean_of_each_figure_over_the_samples_that_told_it(
    told: list[Values],
) -> None:
    stretch, by_name = SlotAccumulator(), dict[str, list[float]]()
    for place, found in enumerate(told):
        assert stretch.add_sample(START + place, found, 60.0) is None
        for name, value in found.items():
            if value is not None:
                by_name.setdefault(name, []).append(value)
    done = stretch.add_sample(START + 60, {}, 60.0)
    assert (done.names if done is not None else ()) == tuple(by_name)
    if done is not None:
        assert done.values == (
            tuple(round_to_tenth(sum(values) / len(values)) for values in by_name.values()),
        )


def test_a_stretch_without_samples_is_a_hole() -> None:
    stretch, found = SlotAccumulator(), ReducedHistory()
    for at in (1, 2, 185, 241):
        done = stretch.add_sample(START + at, {"util": 10.0}, found.width)
        found = merge_history(found, done) if done is not None else found
    assert curve(found) == {0: 10.0, 3: 10.0}


def test_a_stretch_of_another_width_ends_the_one_before() -> None:
    stretch = SlotAccumulator()
    stretch.add_sample(START + 1, {"util": 10.0}, 60.0)
    done = stretch.add_sample(START + 2, {"util": 50.0}, 120.0)
    assert done is not None
    assert (done.width, curve(done)) == (60.0, {0: 10.0})


def test_the_past_is_asked_for_after_a_long_absence_and_at_the_first_time() -> None:
    first = build_history_request(None, START)
    assert first is not None
    assert first.seconds >= HISTORY_GRID.longest_s
    assert first.points <= HISTORY_GRID.slots
    assert build_history_request(START - HISTORY_GRID.long_gap_s, START) is None
    hour = build_history_request(START - 3600, START)
    assert hour is not None
    assert (hour.seconds / hour.points, hour.points) == (60.0, 60)
    week = build_history_request(START - 7 * 86400, START)
    assert week is not None
    assert week.seconds == HISTORY_GRID.longest_s


def test_rows_come_to_where_their_place_says_on_the_client_s_clock() -> None:
    skew = 5000.0
    rows = [row(START + skew + 60 * (n + 1) - 1, float(n)) for n in range(5)]
    assert curve(merge_history(ReducedHistory(), from_history(history(*rows), skew))) == {
        n: float(n) for n in range(5)
    }


def test_a_row_that_nobody_recorded_is_a_hole() -> None:
    rows = (
        row(START + 60, 1.0),
        row(0.0, None, count=0),
        row(0.0, None, count=0),
        row(START + 240, 2.0),
    )
    assert curve(merge_history(ReducedHistory(), from_history(history(*rows), 0.0))) == {
        0: 1.0,
        3: 2.0,
    }


def test_a_clock_of_the_box_that_was_set_moves_no_row() -> None:
    rows = [row(START + 60 * (n + 1), float(n)) for n in range(3)]
    jumped = [row(START + 3600 + 60 * (n + 1), float(n)) for n in range(3, 6)]
    found = merge_history(ReducedHistory(), from_history(history(*rows, *jumped), 3600.0))
    assert curve(found) == {n: float(n) for n in range(6)}


def test_a_history_that_tells_nothing_or_nonsense_is_nothing() -> None:
    old = past((0, 1.0))
    for frame in (
        history(),
        history(row(0.0, None, count=0)),
        history(row(START, 1.0), width=0.0),
        history(row(math.nan, 1.0)),
        msgspec.structs.replace(history(row(START, 1.0)), names=("util", "vram")),
    ):
        assert merge_history(old, from_history(frame, 0.0)) is old


def test_what_is_known_is_kept_and_only_holes_are_filled() -> None:
    old = past((0, 1.0), (2, 3.0), (3, None))
    new = past((0, 9.0), (1, 9.0), (2, 9.0), (3, 9.0))
    assert curve(merge_history(old, new)) == {0: 1.0, 1: 9.0, 2: 3.0, 3: 9.0}


def test_another_name_is_filled_in_beside() -> None:
    found = merge_history(past((0, 1.0)), past((0, 5.0), (1, 6.0), name="disk:/"))
    assert curve(found) == {0: 1.0, 1: None}
    assert curve(found, "disk:/") == {0: 5.0, 1: 6.0}


def test_wide_rows_are_spread_over_narrow_stretches_where_there_is_room() -> None:
    found = merge_history(
        past((9, 1.0)), from_history(history(row(START + 240, 7.0), width=240.0), 0.0)
    )
    assert (found.width, curve(found)) == (60.0, {0: 7.0, 1: 7.0, 2: 7.0, 3: 7.0, 9: 1.0})


def test_where_time_is_longer_stretches_become_wider() -> None:
    found = ReducedHistory()
    for place in range(HISTORY_GRID.slots + 1):
        found = merge_history(found, past((place, 10.0 if place % 2 else 30.0)))
    assert found.width == 120.0
    assert len(found.at) <= HISTORY_GRID.slots
    assert 20.0 in {value for (value,) in found.values}


@pytest.mark.parametrize("width", [7.0, 300.0, 3600.0])
def test_what_another_program_kept_comes_onto_the_grid(width: float) -> None:
    found = merge_history(past(*((n, 1.0) for n in range(20)), width=width), past((0, 5.0)))
    assert found.width in WIDTHS
    assert {value for (value,) in found.values} <= {1.0, 5.0}


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 100)), min_size=1, max_size=60))
def test_it_is_bounded_ordered_and_idempotent(stretches: list[tuple[int, float]]) -> None:
    pieces = [past((place, round_to_tenth(value))) for place, value in stretches]
    found = ReducedHistory()
    for piece in pieces:
        found = merge_history(found, piece, 30)
        assert len(found.at) <= 30
        assert list(found.at) == sorted(set(found.at))
        assert found.at[-1] - found.at[0] <= HISTORY_GRID.longest_s
        assert found.width in WIDTHS
        assert all(len(values) == len(found.names) for values in found.values)
        assert all(
            0.0 <= value <= 100.0
            for values in found.values
            for value in values
            if value is not None
        )
    assert merge_history(found, found, 30) == found
    again = merge_history(found, pieces[-1], 30)
    assert again == merge_history(again, pieces[-1], 30)


@pytest.mark.parametrize("gone", [0, 600])
def test_what_the_recorder_sums_up_is_what_live_samples_make(gone: int) -> None:
    """The same two hours, once seen live and once told by the box's own summary, with a pause in between."""
    request = build_history_request(None, START)
    assert request is not None
    summary, stretch, live = (
        HistorySummary(request.seconds, request.points),
        SlotAccumulator(),
        ReducedHistory(),
    )
    up = 0.0
    for n in range(720):
        up += 10.0 + (gone if n == 360 else 0.0)
        sample = msgspec.structs.replace(
            SAMPLE,
            seq=n + 1,
            at=START + up,
            gpus=(GpuReading(index=0, name="g", util=float(n % 100)),),
        )
        wire = msgspec.to_builtins(sample) | {"session": {"uptime_s": up}}
        summary.add_sample(wire)
        done = stretch.add_sample(sample.at, kept_percentages(sample), live.width)
        live = merge_history(live, done) if done is not None else live
    told = merge_history(
        ReducedHistory(), from_history(msgspec.convert(summary.build_frame(), RecordedHistory), 0.0)
    )
    assert live.width == told.width == 60.0
    for found in (live.at, told.at):
        assert (max(b - a for a, b in pairwise(found)) > 120) == bool(gone)
    wide = request.seconds / request.points
    assert abs(told.at[-1] - (START + up)) <= wide
    only = set(live.at) ^ set(told.at)
    assert len(only) * 60.0 <= 3 * wide, "more than the ends of the wide rows differs"


def test_the_newest_part_is_kept_finely_and_forgets_what_is_older() -> None:
    past = ReducedHistory()
    for place in range(5):
        new = ReducedHistory(
            names=("util",), at=(20.0 * place,), values=((float(place),),), width=20.0
        )
        past = append_slot(past, new, 3)
    assert (past.at, past.values, past.width) == (
        (40.0, 60.0, 80.0),
        ((2.0,), (3.0,), (4.0,)),
        20.0,
    )
    more = ReducedHistory(names=("disk:/d", "util"), at=(100.0,), values=((7.0, 5.0),), width=20.0)
    past = append_slot(past, more, 9)
    assert past.names == ("util", "disk:/d") and past.values[-2:] == ((4.0,), (5.0, 7.0))
    back = append_slot(
        past, ReducedHistory(names=("util",), at=(60.0,), values=((9.0,),), width=20.0), 9
    )
    assert back.at == (40.0, 60.0) and back.values[-1] == (9.0, None), (
        "a clock set back leaves no future behind"
    )
    assert append_slot(back, ReducedHistory(), 9) is back


def test_of_a_large_fleet_no_card_has_a_past_of_its_own() -> None:
    gpus = tuple(GpuReading(index=number, name="A100", util=50.0 + number) for number in range(8))
    sample = Sample(boot="b", seq=1, at=0.0, gpus=gpus)
    assert (
        "util:7" in kept_percentages(sample)
        and kept_percentages(sample, cards=False)["util"] == 53.5
    )
    assert not any(is_of_card(name) for name in kept_percentages(sample, cards=False))
    rows = (
        HistoryRow(at=60.0, count=1, values=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))),
        HistoryRow(at=120.0, count=0, values=()),
    )
    told = without_cards(
        RecordedHistory(boot="b", seq=1, width=60.0, names=("util:0", "vram"), rows=rows)
    )
    assert told.names == ("vram",) and [row.values for row in told.rows] == [((4.0, 5.0, 6.0),), ()]
    assert [settings_for_size(boxes).cards for boxes in (3, 100, 101, 500)] == [
        True,
        True,
        False,
        False,
    ]


@given(st.lists(st.tuples(st.integers(-30, 90), FIGURES), max_size=30))
def test_a_wide_stretch_made_of_narrow_ones_is_that_of_all_samples(
    told: list[tuple[int, Values]],
) -> None:
    stretches, wide, narrow = Stretches(), SlotAccumulator(), SlotAccumulator()
    at = START
    for seconds, found in told:  # a clock may be set back
        at += seconds
        expected = (
            narrow.add_sample(at, found, HISTORY_GRID.recent_s),
            wide.add_sample(at, found, 60.0),
        )
        made = stretches.add_sample(at, found, 60.0)
        for one, other in zip(made, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert (set(one.names), one.at) == (set(other.names), other.at)
                for name in one.names:
                    assert curve(one, name) == pytest.approx(curve(other, name), abs=0.11)
