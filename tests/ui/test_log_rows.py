"""Which lines are shown, and where one looks in them: it stays in place whatever arrives, before or behind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.fleet.kept_lines import FilePlace, KeptLines
from rgt_tui.model import LogView, ScreenPosition
from rgt_tui.ui.line_finder import LineMarks, TextFinder
from rgt_tui.ui.line_times import WrittenZone, read_written_time
from rgt_tui.ui.log_rows import LinePlace, LogCursor, LogRows, ShownLog

HEIGHT = 10


def log(count: int, name: str = "a.log") -> ShownLog:
    kept = KeptLines(name)
    kept.append_lines([f"line {index}" for index in range(count)])
    return ShownLog(kept, name)


def on_top(cursor: LogCursor, rows: LogRows) -> str:
    return rows.line_text(cursor.first_row(rows, HEIGHT))


def test_a_log_follows_until_one_moves_up_and_then_stays() -> None:
    shown, cursor = log(100), LogCursor()
    rows = LogRows([shown])
    cursor.count_new_lines(rows)
    assert (cursor.first_row(rows, HEIGHT), cursor.current_row(rows)) == (90, None)
    cursor.scroll_by(-5, rows, HEIGHT)
    assert not cursor.following
    assert on_top(cursor, rows) == "line 85"
    shown.kept.append_lines([f"line {index}" for index in range(100, 120)])
    cursor.count_new_lines(rows)
    assert (on_top(cursor, rows), cursor.arrived) == ("line 85", 20)
    shown.kept.replace_before(40, ["older"] * 7, FilePlace(1, 0))
    assert on_top(cursor, rows) == "line 85"
    cursor.follow_end()
    cursor.count_new_lines(rows)
    assert (on_top(cursor, rows), cursor.arrived) == ("line 110", 0)


def test_reaching_the_end_follows_again() -> None:
    rows, cursor = LogRows([log(100)]), LogCursor()
    cursor.scroll_by(-20, rows, HEIGHT)
    cursor.scroll_by(19, rows, HEIGHT)
    assert not cursor.following
    cursor.scroll_by(1, rows, HEIGHT)
    assert cursor.following
    assert cursor.move_by(-1, rows, HEIGHT)
    assert cursor.current_row(rows) == 98
    cursor.move_by(1, rows, HEIGHT)
    assert cursor.following


def test_the_line_that_keys_act_on_moves_and_stays_in_sight() -> None:
    rows, cursor = LogRows([log(100)]), LogCursor()
    for _ in range(12):
        cursor.move_by(-1, rows, HEIGHT)
    assert (cursor.current_row(rows), cursor.first_row(rows, HEIGHT)) == (87, 87)
    cursor.move_by(-1000, rows, HEIGHT)
    assert (cursor.current_row(rows), cursor.first_row(rows, HEIGHT)) == (0, 0)
    assert not cursor.move_by(-1, rows, HEIGHT)
    cursor.scroll_by(3, rows, HEIGHT)
    assert (cursor.current_row(rows), cursor.first_row(rows, HEIGHT)) == (3, 3)
    cursor.go_to_row(50, rows, HEIGHT)
    assert (cursor.current_row(rows), cursor.first_row(rows, HEIGHT)) == (50, 47)
    cursor.go_to_row(52, rows, HEIGHT, keep_sight=True)
    assert cursor.first_row(rows, HEIGHT) == 47


def test_several_lines_are_selected_either_way() -> None:
    rows, cursor = LogRows([log(20)]), LogCursor()
    assert list(cursor.selected_rows(rows)) == [19]
    cursor.set_selecting(rows, True)
    cursor.move_by(-2, rows, HEIGHT)
    assert list(cursor.selected_rows(rows)) == [17, 18, 19]
    cursor.set_selecting(rows, False)
    assert list(cursor.selected_rows(rows)) == [17]
    cursor.set_selecting(rows, True)
    cursor.move_by(2, rows, HEIGHT)
    assert not cursor.following, "the last line is selected, not followed"
    assert list(cursor.selected_rows(rows)) == [17, 18, 19]


def test_a_filter_shows_its_lines_alone_and_finds_those_around_others() -> None:
    shown = log(100)
    marks = LineMarks(shown.kept, TextFinder("7", fold=False))
    shown.filter = marks
    while (job := marks.next_job()) is not None:
        job.run()
        marks.apply_job(job)
    rows = LogRows([shown])
    assert [rows.line_text(row) for row in range(3)] == ["line 7", "line 17", "line 27"]
    assert len(rows) == 19
    assert rows.find_row(LinePlace(0, 8)) == 1
    assert not rows.shows_line(LinePlace(0, 8))
    assert rows.next_of([shown.errors], 0, 1) is None


def test_a_place_of_a_log_that_is_merged_no_more_is_behind_the_last_row() -> None:
    rows = LogRows([log(5)])
    assert (rows.find_row(LinePlace(1, 2)), rows.shows_line(LinePlace(1, 2))) == (5, False)


def test_a_jump_is_safe_before_new_lines_are_merged() -> None:
    logs = [log(3, "a.log"), log(3, "b.log")]
    rows = LogRows(logs)
    rows.update_rows()
    logs[0].kept.append_lines(["KeyError: 1"])
    logs[0].errors.catch_up()
    errors = [one.errors for one in logs]
    assert [rows.next_of(errors, row, 1) for row in range(-1, 7)] == [None] * 8
    rows.update_rows()
    assert rows.next_of(errors, 0, 1) == rows.find_row(LinePlace(0, 3))


TIMES = st.lists(st.integers(0, 50), max_size=15).map(sorted)


@settings(deadline=None)
@given(st.lists(TIMES, min_size=2, max_size=3))
def test_logs_are_merged_by_the_time_of_their_lines(times: list[list[int]]) -> None:
    logs = []
    for name, ats in enumerate(times):
        kept = KeptLines(f"{name}.log")
        for at in ats:
            kept.append_lines([f"2026-03-01 10:00:{at:02d} step", "and no time of its own"])
        logs.append(ShownLog(kept, f"{name}.log"))
    rows = LogRows(logs)
    rows.update_rows()
    assert len(rows) == 2 * sum(map(len, times))
    stamps = [
        rows.line_text(row)[17:19]
        for row in range(len(rows))
        if rows.line_text(row).startswith("2026")
    ]
    assert stamps == sorted(stamps)
    for row in range(len(rows)):
        place = rows[row]
        assert rows.find_row(place) == row, "a row is found again"
    for index, shown in enumerate(logs):
        numbers = [rows[row].number for row in range(len(rows)) if rows[row].log == index]
        assert numbers == list(range(shown.kept.first_number, shown.kept.end)), (
            "each log keeps its order"
        )
    marks = [LineMarks(shown.kept, TextFinder("step", fold=False)) for shown in logs]
    for one in marks:
        while (job := one.next_job()) is not None:
            job.run()
            one.apply_job(job)
    wanted = [row for row in range(len(rows)) if "step" in rows.line_text(row)]
    for row in range(-1, len(rows) + 1):
        assert rows.next_of(marks, row, 1) == next((one for one in wanted if one > row), None)
        assert rows.next_of(marks, row, -1) == next(
            (one for one in reversed(wanted) if one < row), None
        )


def test_a_time_is_read_as_programs_write_it() -> None:
    assert read_written_time("2026-03-01 10:02:03,123 - INFO - x") == (
        "10:02:03",
        1772359323.123,
        True,
        None,
    )
    assert read_written_time("[2026-03-01T10:02:03Z] x") == ("10:02:03", 1772359323.0, True, 0.0)
    assert read_written_time("2026-03-01T10:02:03+08:00 x") == (
        "10:02:03",
        1772359323.0,
        True,
        28800.0,
    )
    assert read_written_time("10:02:03 step 1") == ("10:02:03", 36123.0, False, None)
    assert read_written_time("[10:02:03] step 1") == ("10:02:03", 36123.0, False, None)
    assert read_written_time("I0301 10:02:03.500000 12 a.cc:3] x") == (
        "10:02:03",
        36123.5,
        False,
        None,
    )
    for none in (
        "step 812",
        "12%| | 3/40 [00:12<01:00]",
        "1:02:03<2:00:00",
        "a:b",
        "99:99:99 x",
        "",
    ):
        assert read_written_time(none) is None, none


def test_the_zone_of_a_log_is_learned_from_lines_that_came_as_they_were_written() -> None:
    zone = WrittenZone()
    line = "2026-03-01 10:02:03 x"
    assert zone.time_of_line(line, None) is None, "nobody knows in which zone that is"
    zone.learn_from("2026-03-01 18:02:05 y", 1772359324.0)
    assert zone.utc_offset == 28800.0
    assert zone.time_of_line(line, None) == 1772359323.0 - 28800.0
    assert zone.time_of_line("2026-03-01T10:02:03Z x", None) == 1772359323.0
    assert zone.time_of_line("no time", 5.0) == 5.0
    daily = WrittenZone()
    daily.learn_from("23:59:59 y", 1772323201.0)
    assert daily.utc_offset == 0.0
    assert daily.time_of_line("23:59:58 x", 1772323201.0) == 1772323198.0, "of the day before"
    assert daily.time_of_line("06:00:00 x", 1772323201.0) == 1772323200.0 - 18 * 3600, (
        "it came late, not early"
    )
    assert daily.time_of_line("00:10:00 x", 1772323201.0) == 1772323200.0 + 600, (
        "the clocks differ a little"
    )


def test_lines_of_the_hour_before_the_clocks_were_set_back_stay_of_their_day() -> None:
    """Berlin on 25 October 2026: 02:59 of summer, then 02:01 of winter, by which the zone is learned anew."""
    zone, before = WrittenZone(), 1792889940.0
    zone.learn_from("02:59:00 loss 1", before)
    assert zone.time_of_line("02:59:00 loss 1", before) == before
    zone.learn_from("02:01:00 loss 2", before + 120.0)
    assert (
        zone.utc_offset == 3600.0
        and zone.time_of_line("02:01:00 loss 2", before + 120.0) == before + 120.0
    )
    assert zone.time_of_line("02:59:00 loss 1", before) == before + 3600.0, (
        "an hour late, and not 23 hours early"
    )


def test_a_spot_is_found_by_its_text_else_by_the_last_line_that_was_written_by_then() -> None:
    shown = log(3)
    kept = shown.kept
    kept.append_lines(["line 1 again"], 100.0)
    kept.append_lines(["late line 1"], 200.0)
    assert shown.line_at(ScreenPosition(text=" line 1")) == 4
    assert shown.line_at(ScreenPosition(text=" line 1", at=120.0)) == 3, (
        "of several, that of its time"
    )
    assert shown.line_at(ScreenPosition(text="gone")) is None
    assert shown.line_at(ScreenPosition(at=150.0)) == 3
    assert shown.line_at(ScreenPosition(at=300.0)) == 4, "nothing has been written since"
    assert shown.line_at(ScreenPosition(at=50.0)) is None, (
        "nobody knows when the ones before were written"
    )
    assert shown.line_at(ScreenPosition()) is None


def test_a_step_is_found_by_its_number_near_its_time() -> None:
    kept = KeptLines("a.log")
    for epoch in range(3):
        kept.append_lines([f"2026-03-01 1{epoch}:00:{at:02d} step {at} loss 1" for at in range(60)])
    shown = ShownLog(kept, "a.log")
    assert shown.line_at(ScreenPosition(at=1772362823.0, step=25)) == 2 * 60 + 25, (
        "no time is known: the newest"
    )
    shown.zone.assumed = 0.0
    at = 1772362823.0  # 11:00:23, and the clock that told is two seconds behind that of the log
    assert shown.line_at(ScreenPosition(at=at, step=25)) == 60 + 25
    assert shown.line_at(ScreenPosition(at=at, step=7777)) == 60 + 23, "the last line by then"
    assert shown.line_at(ScreenPosition(step=25)) == 2 * 60 + 25


MIDNIGHT = 1772323200.0


def clocks(*lines: str, written: float | None, zone: float | None = 0.0) -> ShownLog:
    """A log that was there before anybody looked, whose lines have a time of day alone."""
    kept = KeptLines("a.log")
    kept.append_view(LogView("a.log", lines, at=MIDNIGHT + 50_000, written=written))
    shown = ShownLog(kept, "a.log")
    shown.zone.assumed = zone
    return shown


def times(shown: ShownLog) -> list[float | None]:
    """When each line was written, in seconds from midnight; asked from the middle, as a search does."""
    numbers = list(range(shown.kept.first_number, shown.kept.end))
    for number in (numbers[len(numbers) // 2], *numbers):
        shown.line_time(number)
    return [
        None if (at := shown.line_time(number)) is None else at - MIDNIGHT for number in numbers
    ]


def test_lines_with_a_time_of_day_are_of_the_day_of_those_behind_them() -> None:
    lines = (
        "23:20:00 step 1",
        "  a traceback",
        "23:59:59 step 2",
        "00:00:01 step 3",
        "00:00:00 rank 1",
        "[00:30:00] step 4",
    )
    found = times(clocks(*lines, written=MIDNIGHT + 1801))
    assert found == [-2400.0, None, -1.0, 1.0, 0.0, 1800.0], (
        "across midnight, and two lines that were written at once"
    )
    east = clocks(*lines, written=MIDNIGHT + 1801 - 28800, zone=28800.0)
    assert times(east) == [None if at is None else at - 28800 for at in found]
    assert east.line_at(ScreenPosition(at=MIDNIGHT - 28800.0 + 2)) == 4
    assert east.line_at(ScreenPosition(at=MIDNIGHT - 28800.0 - 100)) == 1, (
        "what follows the last one by then"
    )
    assert (east.day_unknown, times(clocks(*lines, written=None))) == ("", [None] * 6)
    assert times(clocks(*lines, written=MIDNIGHT + 1801, zone=None)) == [None] * 6


def test_days_go_on_from_line_to_line_however_far_back() -> None:
    halves = [f"{(22 + n // 2) % 24:02d}:{n % 2 * 30:02d}:00 step {n}" for n in range(12)]
    long = clocks(*halves, written=MIDNIGHT + 12_600)
    assert times(long) == [1800.0 * n - 7200 for n in range(12)]
    long.kept.partial = "09:00:00 half a line"
    assert long.line_time(long.kept.end) is None, "nothing is known behind it"


def test_a_day_that_cannot_be_told_is_not_guessed() -> None:
    lines = ("12:00:00 step 1", "14:30:00 step 2", "15:00:00 step 3")
    rested = clocks(*lines, written=MIDNIGHT + 54_001)
    assert times(rested) == [None, 52_200.0, 54_000.0], (
        "of a rest of hours nobody knows whether a day lies in it"
    )
    assert rested.day_unknown == "12:00:00"
    assert rested.line_at(ScreenPosition(at=MIDNIGHT + 43_300)) is None
    backwards = clocks(
        "02:00:40 done", "02:00:00 the job of the next night", written=MIDNIGHT + 7201
    )
    assert times(backwards) == [None, 7200.0] and backwards.day_unknown == "02:00:40"
    silent = clocks(*lines, "no time", written=MIDNIGHT + 54_000 + 7200)
    assert times(silent) == [None] * 4, "something was written two hours later"
    dated = clocks(
        "2026-03-01 12:00:00 step 1", "12:00:05 saved", "14:30:00 step 2", written=MIDNIGHT + 54_001
    )
    assert times(dated) == [43_200.0, None, 52_200.0]


def test_days_are_known_from_the_first_line_that_came_and_again_where_older_ones_are_loaded() -> (
    None
):
    kept = KeptLines("a.log")
    kept.record_position(FilePlace(1, 900))
    kept.append_lines(["23:30:00 step 1", "00:10:00 step 2"])
    shown = ShownLog(kept, "a.log")
    shown.zone.assumed = 0.0
    assert shown.line_time(1) is None, "nobody knows of which day"
    kept.append_lines(["00:20:00 step 3"], MIDNIGHT + 1200.5)
    assert [shown.line_time(number) for number in (0, 1, 2)] == [
        MIDNIGHT - 1800,
        MIDNIGHT + 600,
        MIDNIGHT + 1200,
    ]
    kept.replace_before(1, ["22:45:00 older", "22:55:00 older"], FilePlace(1, 0))
    shown.forget_before(1)
    assert [shown.line_time(number) for number in (-1, 0, 1)] == [None, None, MIDNIGHT + 600]
    assert shown.day_unknown == "22:55:00", "more than an hour lies between"
    shown.zone.assumed = 1800.0
    assert shown.line_time(1) == MIDNIGHT + 600 - 1800, "in another zone"
    assert shown.line_time(2) == MIDNIGHT + 1200 - 1800


def test_merged_logs_with_a_time_of_day_alone_are_in_the_order_of_their_times() -> None:
    first = clocks("23:59:50 a", "00:00:10 b", written=MIDNIGHT + 10)
    other = clocks("23:59:55 c", "00:00:05 d", "00:00:15 e", written=MIDNIGHT + 15)
    rows = LogRows([first, other])
    rows.update_rows()
    assert [rows.line_text(row)[-1] for row in range(len(rows))] == list("acdbe")


def test_until_a_log_tells_its_zone_that_of_the_box_holds() -> None:
    zone = WrittenZone()
    zone.assumed = 3600.0
    assert zone.time_of_line("2026-03-01 10:02:03 x", None) == 1772359323.0 - 3600.0
    zone.learn_from("2026-03-01 18:02:05 y", 1772359324.0)
    assert zone.utc_offset == 28800.0, "a program may have another one"
