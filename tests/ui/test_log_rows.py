"""Which lines are shown, and where one looks in them: it stays in place whatever arrives, before or behind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.fleet.logs.kept_lines import FilePlace, KeptLines
from rgt_tui.model.fleet import Spot
from rgt_tui.ui.logs.line_finder import TextFinder
from rgt_tui.ui.logs.line_index import Marks
from rgt_tui.ui.logs.line_times import WrittenZone, written
from rgt_tui.ui.logs.log_rows import LinePlace, LogCursor, LogRows, ShownLog, line_at

HEIGHT = 10


def log(count: int, name: str = "a.log") -> ShownLog:
    kept = KeptLines(name)
    kept.append([f"line {index}" for index in range(count)])
    return ShownLog(kept, name)


def on_top(cursor: LogCursor, rows: LogRows) -> str:
    return rows.text(cursor.first(rows, HEIGHT))


def test_a_log_follows_until_one_moves_up_and_then_stays() -> None:
    shown, cursor = log(100), LogCursor()
    rows = LogRows([shown])
    cursor.take_in(rows)
    assert (cursor.first(rows, HEIGHT), cursor.row(rows)) == (90, None)
    cursor.scroll(-5, rows, HEIGHT)
    assert not cursor.following
    assert on_top(cursor, rows) == "line 85"
    shown.kept.append([f"line {index}" for index in range(100, 120)])
    cursor.take_in(rows)
    assert (on_top(cursor, rows), cursor.arrived) == ("line 85", 20)
    shown.kept.replace_before(40, ["older"] * 7, FilePlace(1, 0))
    assert on_top(cursor, rows) == "line 85"
    cursor.follow()
    cursor.take_in(rows)
    assert (on_top(cursor, rows), cursor.arrived) == ("line 110", 0)


def test_reaching_the_end_follows_again() -> None:
    rows, cursor = LogRows([log(100)]), LogCursor()
    cursor.scroll(-20, rows, HEIGHT)
    cursor.scroll(19, rows, HEIGHT)
    assert not cursor.following
    cursor.scroll(1, rows, HEIGHT)
    assert cursor.following
    assert cursor.move(-1, rows, HEIGHT)
    assert cursor.row(rows) == 98
    cursor.move(1, rows, HEIGHT)
    assert cursor.following


def test_the_line_that_keys_act_on_moves_and_stays_in_sight() -> None:
    rows, cursor = LogRows([log(100)]), LogCursor()
    for _ in range(12):
        cursor.move(-1, rows, HEIGHT)
    assert (cursor.row(rows), cursor.first(rows, HEIGHT)) == (87, 87)
    cursor.move(-1000, rows, HEIGHT)
    assert (cursor.row(rows), cursor.first(rows, HEIGHT)) == (0, 0)
    assert not cursor.move(-1, rows, HEIGHT)
    cursor.scroll(3, rows, HEIGHT)
    assert (cursor.row(rows), cursor.first(rows, HEIGHT)) == (3, 3)
    cursor.go(50, rows, HEIGHT)
    assert (cursor.row(rows), cursor.first(rows, HEIGHT)) == (50, 47)
    cursor.go(52, rows, HEIGHT, keep_sight=True)
    assert cursor.first(rows, HEIGHT) == 47


def test_several_lines_are_selected_either_way() -> None:
    rows, cursor = LogRows([log(20)]), LogCursor()
    assert list(cursor.selected(rows)) == [19]
    cursor.select(rows, True)
    cursor.move(-2, rows, HEIGHT)
    assert list(cursor.selected(rows)) == [17, 18, 19]
    cursor.select(rows, False)
    assert list(cursor.selected(rows)) == [17]
    cursor.select(rows, True)
    cursor.move(2, rows, HEIGHT)
    assert not cursor.following, "the last line is selected, not followed"
    assert list(cursor.selected(rows)) == [17, 18, 19]


def test_a_filter_shows_its_lines_alone_and_finds_those_around_others() -> None:
    shown = log(100)
    marks = Marks(shown.kept, TextFinder("7", fold=False))
    shown.keep_only(marks)
    while (job := marks.job()) is not None:
        job.run()
        marks.take(job)
    rows = LogRows([shown])
    assert [rows.text(row) for row in range(3)] == ["line 7", "line 17", "line 27"]
    assert len(rows) == 19
    assert rows.find(LinePlace(0, 8)) == 1
    assert not rows.shows(LinePlace(0, 8))
    assert rows.next_of([shown.errors], 0, 1) is None


TIMES = st.lists(st.integers(0, 50), max_size=15).map(sorted)


@settings(deadline=None)
@given(st.lists(TIMES, min_size=2, max_size=3))
def test_logs_are_merged_by_the_time_of_their_lines(times: list[list[int]]) -> None:
    logs = []
    for name, ats in enumerate(times):
        kept = KeptLines(f"{name}.log")
        for at in ats:
            kept.append([f"2026-03-01 10:00:{at:02d} step", "and no time of its own"])
        logs.append(ShownLog(kept, f"{name}.log"))
    rows = LogRows(logs)
    rows.refresh()
    assert len(rows) == 2 * sum(map(len, times))
    stamps = [rows.text(row)[17:19] for row in range(len(rows)) if rows.text(row).startswith("2026")]
    assert stamps == sorted(stamps)
    for row in range(len(rows)):
        place = rows[row]
        assert rows.find(place) == row, "a row is found again"
    for index, shown in enumerate(logs):
        numbers = [rows[row].number for row in range(len(rows)) if rows[row].log == index]
        assert numbers == list(range(shown.kept.first, shown.kept.end)), "each log keeps its order"
    marks = [Marks(shown.kept, TextFinder("step", fold=False)) for shown in logs]
    for one in marks:
        while (job := one.job()) is not None:
            job.run()
            one.take(job)
    wanted = [row for row in range(len(rows)) if "step" in rows.text(row)]
    for row in range(-1, len(rows) + 1):
        assert rows.next_of(marks, row, 1) == next((one for one in wanted if one > row), None)
        assert rows.next_of(marks, row, -1) == next((one for one in reversed(wanted) if one < row), None)


def test_a_time_is_read_as_programs_write_it() -> None:
    assert written("2026-03-01 10:02:03,123 - INFO - x") == ("10:02:03", 1772359323.123, True, None)
    assert written("[2026-03-01T10:02:03Z] x") == ("10:02:03", 1772359323.0, True, 0.0)
    assert written("2026-03-01T10:02:03+08:00 x") == ("10:02:03", 1772359323.0, True, 28800.0)
    assert written("10:02:03 step 1") == ("10:02:03", 36123.0, False, None)
    assert written("[10:02:03] step 1") == ("10:02:03", 36123.0, False, None)
    assert written("I0301 10:02:03.500000 12 a.cc:3] x") == ("10:02:03", 36123.5, False, None)
    for none in ("step 812", "12%| | 3/40 [00:12<01:00]", "1:02:03<2:00:00", "a:b", "99:99:99 x", ""):
        assert written(none) is None, none


def test_the_zone_of_a_log_is_learned_from_lines_that_came_as_they_were_written() -> None:
    zone = WrittenZone()
    line = "2026-03-01 10:02:03 x"
    assert zone.when(line, None) is None, "nobody knows in which zone that is"
    zone.learn("2026-03-01 18:02:05 y", 1772359324.0)
    assert zone.seconds == 28800.0
    assert zone.when(line, None) == 1772359323.0 - 28800.0
    assert zone.when("2026-03-01T10:02:03Z x", None) == 1772359323.0
    assert zone.when("no time", 5.0) == 5.0
    daily = WrittenZone()
    daily.learn("23:59:59 y", 1772323201.0)
    assert daily.seconds == 0.0
    assert daily.when("23:59:58 x", 1772323201.0) == 1772323198.0, "of the day before"


def test_a_spot_is_found_by_its_text_else_by_its_time() -> None:
    shown = log(3)
    kept = shown.kept
    kept.append(["line 1 again"], 100.0)
    kept.append(["late"], 200.0)
    assert line_at(kept, Spot(text=" line 1"), shown.when) == 3
    assert line_at(kept, Spot(text="gone"), shown.when) is None
    assert line_at(kept, Spot(at=150.0), shown.when) == 4
    assert line_at(kept, Spot(at=300.0), shown.when) is None
    assert line_at(kept, Spot(), shown.when) is None
