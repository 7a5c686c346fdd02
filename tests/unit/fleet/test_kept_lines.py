"""All lines of a log, compactly: what goes in comes out, by its number, within the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.demo import DemoFleet
from rgt_tui.fleet import Fleet, kept_lines
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines, keep_from_view
from rgt_tui.model import LogLines, LogView, clean_text
from rgt_tui.recordings import ReplayFleet

TEXTS = st.lists(st.text(max_size=30).map(clean_text), max_size=12)


def texts(kept: KeptLines) -> list[str]:
    return kept.read_lines(kept.first_number, kept.end)


def in_blocks(kept: KeptLines, start: int, stop: int) -> list[tuple[int, str]]:
    return [
        (block.first + index, block.read_line(index).decode())
        for block in kept.iterate_blocks(start, stop)
        for index in range(len(block.starts))
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["append", "older"]), TEXTS, st.integers(0, 40)), max_size=8)
)
def test_what_goes_in_comes_out_by_its_number(steps: list[tuple[str, list[str], int]]) -> None:
    kept = KeptLines("a.log")
    model: dict[int, str] = {}
    end = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_lines, "BLOCK_BYTES", 64)
        for what, lines, back in steps:
            if what == "append":
                kept.append_lines(lines)
                model.update((end + index, line) for index, line in enumerate(lines))
                end += len(lines)
            else:
                number = max(min(model, default=end), end - back)
                assert kept.replace_before(number, lines, FilePlace(1, 0))
                model = {at: line for at, line in model.items() if at >= number}
                model.update(
                    (number - len(lines) + index, line) for index, line in enumerate(lines)
                )
            assert (kept.first_number, kept.end) == (min(model, default=end), end)
            assert texts(kept) == [model[at] for at in sorted(model)]
            assert kept.bytes == sum(len(line.encode()) + 1 for line in model.values())
            assert dict(in_blocks(kept, kept.first_number, kept.end)) == model
            middle = (kept.first_number + kept.end) // 2
            some = dict(in_blocks(kept, middle, kept.end))
            assert all(some[at] == model[at] for at in range(middle, kept.end))


def test_the_oldest_lines_go_when_there_are_too_many() -> None:
    kept = KeptLines("a.log", most_lines=1000, most_bytes=10 << 20)
    line = "x" * 1000
    for round_ in range(20):
        kept.append_lines([f"{round_} {index} {line}" for index in range(100)])
    assert kept.end == 2000
    assert (kept.first_number, len(kept)) == (1000, 1000)
    assert kept.read_line(1999).startswith("19 99 x")
    small = KeptLines("a.log", most_bytes=200_000)
    small.append_lines([line] * 1000)
    assert 200_000 - len(line) <= small.bytes <= 200_000
    assert small.end == 1000


def test_older_lines_that_do_not_fit_are_refused_and_nothing_changes() -> None:
    kept = KeptLines("a.log", most_lines=10)
    kept.append_lines([f"line {index}" for index in range(8)])
    assert not kept.replace_before(0, ["older"] * 3, FilePlace(1, 0))
    assert (kept.first_number, kept.end, kept.oldest_position) == (0, 8, None)
    assert kept.replace_before(0, ["older"] * 2, FilePlace(1, 40))
    assert (kept.first_number, kept.oldest_position) == (-2, (-2, FilePlace(1, 40)))


def frame(start: int, *lines: str, **more: object) -> LogLines:
    end = start + sum(len(line) + 1 for line in lines)
    return LogLines(path="a.log", inode=7, start=start, end=end, lines=lines, **more)  # type: ignore[arg-type]


def test_frames_are_taken_in_with_when_they_came_and_what_was_left_out() -> None:
    kept = KeptLines("a.log")
    kept.append_frame(frame(100, "of before", "we came"), 50.0)
    kept.append_frame(frame(118, "new", partial="half a"), 60.0)
    assert (kept.received_at(0), kept.received_at(2), kept.partial) == (None, 60.0, "half a")
    assert kept.oldest_position == (0, FilePlace(7, 100))
    kept.append_frame(frame(500, "later", skipped=31), 70.0)
    assert texts(kept)[3:] == [
        "··· 31 lines are left out: the connection was too slow for them",
        "later",
    ]
    assert kept.notes == {3}
    assert (kept.partial, kept.reached) == (None, 506)
    kept.append_frame(frame(0, "anew", reset=True), 80.0)
    assert "truncated" in kept.read_line(5)
    assert kept.oldest_position == (6, FilePlace(7, 0)), (
        "what stood before in that file is there no more"
    )


def test_behind_which_lines_it_is_known_when_something_was_written() -> None:
    kept = KeptLines("a.log")
    assert kept.first_known_time is None
    kept.append_frame(frame(100, "of before", "we came", age=20.0), 50.0)
    assert kept.first_known_time == (2, 30.0)
    kept.append_frame(frame(118, "new"), 60.0)
    assert kept.first_known_time == (2, 60.0)
    taken = keep_from_view(LogView("a.log", ("a", "b"), at=40.0, written=35.0), 7, 2000)
    assert taken.first_known_time == (2, 35.0)
    seen = KeptLines("a.log")
    seen.append_view(LogView("a.log", ("a", "b"), at=40.0, written=35.0))
    assert seen.first_known_time == (2, 35.0)
    for age in (-1.0, 1e18, 1e308):
        odd = KeptLines("a.log")
        odd.append_frame(frame(100, "a", age=age), 50.0)
        assert odd.first_known_time is None, "no clock tells such a time"


def test_a_log_is_kept_on_from_its_newest_lines() -> None:
    kept = keep_from_view(LogView("a.log", ("a", "b", "50%"), 9, 40.0, is_open=True), 7, 2000)
    assert (texts(kept), kept.partial) == (["a", "b"], "50%")
    assert kept.oldest_position == (2, FilePlace(7, 2000))
    kept.append_frame(frame(2000, "c"), 50.0)
    assert (texts(kept), kept.received_at(1), kept.received_at(2)) == (["a", "b", "c"], None, 50.0)
    kept.reset_lines()
    kept.append_frame(frame(1900, "b", "c"), 60.0)
    assert texts(kept) == ["b", "c"]
    assert kept.received_at(kept.end - 1) is None


def test_views_are_taken_in_without_repeats_and_gaps_are_said() -> None:
    kept = KeptLines("a.log")
    assert kept.append_view(LogView("a.log", ("a", "b"), 5, 1.0))
    assert kept.append_view(LogView("a.log", ("a", "b"), 5, 1.0))
    assert kept.append_view(LogView("a.log", ("b", "c", "par"), 6, 2.0, is_open=True))
    assert (texts(kept), kept.partial, kept.received_at(2)) == (["a", "b", "c"], "par", 2.0)
    assert kept.append_view(LogView("a.log", ("x", "y"), 100, 3.0))
    assert texts(kept)[3:] == ["··· 92 lines were not kept here", "x", "y"]
    assert not kept.append_view(LogView("a.log", ("first",), 0, 4.0)), "it is another file now"


def test_every_fleet_that_watches_boxes_can_ask_for_older_lines() -> None:
    for fleet in (Fleet, DemoFleet):
        assert fleet.keeps_logs and "box_log" in vars(fleet), fleet
    assert ReplayFleet.keeps_logs
    assert "box_log" not in vars(ReplayFleet), "there is no box to ask"


def test_where_lines_of_the_next_file_stand_is_known_once_those_of_the_last_one_are_gone() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_lines, "BLOCK_BYTES", 64)
        kept = KeptLines("a.log", most_lines=10)
        kept.append_frame(frame(0, *["old line"] * 9), 1.0)
        new = LogLines(path="a.log", inode=8, start=0, end=90, lines=("new line",) * 10, reset=True)
        kept.append_frame(new, 2.0)
        assert kept.oldest_position == (10, FilePlace(8, 0))


def test_when_lines_came_is_forgotten_with_them() -> None:
    kept = KeptLines("a.log", most_lines=1000)
    for second in range(2000):
        kept.append_lines(["x" * 100] * 10, float(second))
    assert kept.first_known_time is not None
    assert kept.first_known_time[0] == kept.first_number
    assert kept.received_at(kept.first_number) == kept.first_number // 10
    assert (kept.received_at(kept.end - 1), kept.received_at(kept.first_number - 1)) == (
        1999.0,
        None,
    )
