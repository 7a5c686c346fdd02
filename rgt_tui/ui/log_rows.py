"""The shown lines of one log, or of several merged by time, and the reader's position in them."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rgt_tui.fleet.kept_lines import KeptLines
from rgt_tui.model import ScreenPosition
from rgt_tui.ui.line_finder import LineFinder, LineMarks, error_finder
from rgt_tui.ui.line_times import WrittenZone, read_written_time, written_before

MERGED_LINES = 10_000
"""Newest lines of each log that are merged with other logs."""


class LinePlace(NamedTuple):
    """A line, by its log and its number; it stays valid when others arrive before or after it."""

    log: int
    number: int


# Every repetition is bounded: a hostile line must make neither the search slow nor the number huge.
STEP = re.compile(
    r"(?i)\b(?:global[_ ]?)?(?:step|iter(?:ation)?)s?[\"']?\s{0,3}[:=#]?\s{0,3}(\d[\d,]{0,14})\b"
)
NEAR = 1000
"""Lines on either side of a time in which a step, or a line with a time, is searched."""


def step_of(line: str) -> int | None:
    """Return the training step in a line, None if it has none."""
    found = STEP.search(line)
    if found is not None:
        return int(found.group(1).replace(",", ""))
    return None


class ShownLog:
    """One shown log, and the matches in it.

    Args:
        kept: Its lines.
        name: Its name.
    """

    def __init__(self, kept: KeptLines, name: str) -> None:
        self.kept, self.name = kept, name
        self.errors = LineMarks(kept, error_finder())
        self.pages: LineMarks | None = None
        self.matches: LineMarks | None = None
        self.filter: LineMarks | None = None
        self.zone = WrittenZone()
        # Only lines that arrive from now on: they have just been written.
        self._learned = kept.end
        self._times: dict[int, float | None] = {}
        self._zone_of_times: float | None = None
        self._behind: tuple[int, float | None, float] | None = None
        """Base for dating lines upwards: line number, its time, and the UTC offset used."""
        self._back: array[float] = array("d")
        """Per line upwards from there: the time up to which the day is known; NaN = no longer
        known."""

    def learn_zone(self) -> None:
        """Learn the UTC offset from the new lines."""
        kept = self.kept
        # Maximum new lines that are read to learn the UTC offset.
        learned_from = 50
        for number in range(
            max(self._learned, kept.end - learned_from, kept.first_number), kept.end
        ):
            self.zone.learn_from(kept.read_line(number), kept.received_at(number))
        self._learned = kept.end

    def line_time(self, number: int, otherwise: float | None = None) -> float | None:
        """Return when a line was written (client clock), None if unknown."""
        line = self.kept.read_line(number)
        at = self.zone.time_of_line(line, self.kept.received_at(number), otherwise)
        if at is not None or self.zone.utc_offset is None:
            return at
        found = read_written_time(line)
        if found is None or found.dated:
            return None
        return self._dated_by_neighbours(number)

    def _dated_by_neighbours(self, number: int) -> float | None:
        """Return when a line with only a time of day was written.

        Its day is derived from later lines.

        Lines are read upwards from the first known time, each only once.
        """
        zone, known = self.zone.utc_offset, self.kept.first_known_time
        if zone is None or (self._behind is None and known is None):
            return None
        # With another UTC offset, all times found so far are wrong.
        if self._behind is None or self._behind[2] != zone:
            assert known is not None
            self._behind, self._back = (known[0], known[1], zone), array("d")
        start, at, _ = self._behind
        if number >= start:
            return None
        if self._back:
            if self._back[-1] == self._back[-1]:
                at = self._back[-1]
            else:
                at = None
        for place in range(start - 1 - len(self._back), number - 1, -1):
            line = self.kept.read_line(place)
            found = read_written_time(line)
            if found is not None:
                told = self.zone.time_of_line(line, self.kept.received_at(place))
                if told is not None:
                    at = told
                elif at is not None:
                    at = written_before(found.seconds - zone, at)
            self._back.append(math.nan if at is None else at)
        here = self._back[start - 1 - number]
        if here == here:
            return here
        return None

    @property
    def day_unknown(self) -> str:
        """Time of day of the newest line whose day is unknown; empty if none was found so far."""
        if self._behind is None:
            return ""
        lost = next((n for n, at in enumerate(self._back) if at != at), None)
        if lost is None:
            found = None
        else:
            found = read_written_time(self.kept.read_line(self._behind[0] - 1 - lost))
        if found is None:
            return ""
        return found.clock

    def forget_before(self, number: int) -> None:
        """Drop the results before a line, because the lines there have changed."""
        for marks in self.all_marks:
            marks.forget_before(number)
        if self._behind is not None:
            del self._back[max(0, self._behind[0] - number) :]
        self._times = {known: at for known, at in self._times.items() if known >= number}

    def ordered_by(self, number: int, otherwise: float) -> float | None:
        """Return when a line was written; cached, because merging needs it repeatedly."""
        # Bounded, because lines leave the log while it is shown.
        if self.zone.utc_offset != self._zone_of_times or len(self._times) > 4 * MERGED_LINES:
            self._times.clear()
            self._zone_of_times = self.zone.utc_offset
        if number not in self._times:
            self._times[number] = self.line_time(number, otherwise)
        return self._times[number]

    @property
    def all_marks(self) -> tuple[LineMarks, ...]:
        """All searches in it, the most urgent one first."""
        every = (self.matches, self.filter, self.errors, self.pages)
        return tuple(one for one in every if one is not None)

    def search_for(self, finder: LineFinder | None) -> None:
        """Search for something else."""
        if finder is None:
            self.matches = None
        else:
            self.matches = LineMarks(self.kept, finder)

    def line_at(self, spot: ScreenPosition) -> int | None:
        """Return the line at a spot: by text, by step, or the last line written until its time.

        Args:
            spot: If several lines have its text, the last one until its time is used.

        Returns:
            None if the line is not kept.
        """
        kept = self.kept
        if spot.text:
            return self._line_with(spot.text.strip(), spot.at)
        if spot.at is None:
            place = None
        else:
            place = self._last_by(spot.at)
        if spot.step is not None:
            if place is None:
                middle = kept.end - 1
            else:
                middle = place
            near = range(max(kept.first_number, middle - NEAR), min(kept.end, middle + NEAR + 1))
            named = [number for number in near if step_of(kept.read_line(number)) == spot.step]
            place = min(named, key=lambda number: abs(number - middle), default=place)
        return place

    def _line_with(self, wanted: str, at: float | None) -> int | None:
        found = None
        # A line may be written this much later than its event; many programs also truncate seconds.
        slack_seconds = 2.0
        for number in range(self.kept.end - 1, self.kept.first_number - 1, -1):
            if wanted in self.kept.read_line(number):
                found = number
                if at is None:
                    written = None
                else:
                    written = self.line_time(number)
                if at is None or written is None or written <= at + slack_seconds:
                    break
        return found

    def _last_by(self, at: float) -> int | None:
        low, high = self.kept.first_number, self.kept.end
        while low < high:
            middle = (low + high) // 2
            written = self.line_time(middle)
            # A line without a time, as in a traceback, belongs to the one above it.
            if written is None or written <= at:
                low = middle + 1
            else:
                high = middle
        # If no line near it has a time, the place would be a guess.
        for number in range(low - 1, max(self.kept.first_number, low - NEAR) - 1, -1):
            if self.line_time(number) is not None:
                return low - 1
        return None


class LogRows:
    """The shown rows, in order.

    Args:
        logs: One, or several that are merged by time.
    """

    def __init__(self, logs: Sequence[ShownLog]) -> None:
        self.logs = tuple(logs)
        self._order: list[LinePlace] = []
        self._known: list[tuple[int, ...]] = []
        """Per log, the part in the order: first number, last number, and count."""
        self._rows_of = [array("q") for _ in logs]

    @property
    def is_merged(self) -> bool:
        """Whether several logs are shown."""
        return len(self.logs) > 1

    def _line_numbers(self, index: int) -> Sequence[int]:
        """Return the numbers of the shown lines of a log."""
        log = self.logs[index]
        kept = log.kept
        if log.filter is not None:
            numbers = log.filter.line_numbers
        elif self.is_merged:
            # Only here the last line may be one that is still being written.
            numbers = range(kept.first_number, kept.end)
        else:
            numbers = range(kept.first_number, kept.end + (kept.partial is not None))
        if self.is_merged:
            return numbers[bisect_left(numbers, kept.end - MERGED_LINES) :]
        return numbers

    def _rows_with(self, index: int) -> Sequence[int]:
        """Return the row of each shown line of a log."""
        if self.is_merged:
            return self._rows_of[index]
        return range(len(self))

    def update_rows(self) -> None:
        """Update the rows for new lines; several logs are sorted by time."""
        if not self.is_merged:
            return
        every = [self._line_numbers(index) for index in range(len(self.logs))]
        # Sorted again only if lines have arrived or left.
        known = [(*numbers[:1], *numbers[-1:], len(numbers)) for numbers in every]
        if known == self._known:
            return
        self._known = known
        # A log whose offset is unknown is sorted by that of another one.
        zone = next(
            (log.zone.utc_offset for log in self.logs if log.zone.utc_offset is not None), 0.0
        )
        keyed: list[tuple[float, int, int]] = []
        for index, log in enumerate(self.logs):
            # A log keeps its own order, even where its times go back.
            latest = float("-inf")
            for number in every[index]:
                at = log.ordered_by(number, zone)
                if at is not None:
                    latest = max(latest, at)
                keyed.append((latest, index, number))
        keyed.sort()
        self._order = [LinePlace(index, number) for _, index, number in keyed]
        self._rows_of = [array("q") for _ in self.logs]
        for row, place in enumerate(self._order):
            self._rows_of[place.log].append(row)

    def __len__(self) -> int:
        if self.is_merged:
            return len(self._order)
        return len(self._line_numbers(0))

    def __getitem__(self, row: int) -> LinePlace:
        if self.is_merged:
            return self._order[row]
        return LinePlace(0, self._line_numbers(0)[row])

    def find_row(self, place: LinePlace) -> int:
        """Return the row of a line; if it is not shown, that of the next line of its log."""
        if place.log >= len(self.logs):
            return len(self)
        rows = self._rows_with(place.log)
        index = bisect_left(self._line_numbers(place.log), place.number)
        if index < len(rows):
            return rows[index]
        return len(self)

    def shows_line(self, place: LinePlace) -> bool:
        """Return whether a line is among the rows."""
        row = self.find_row(place)
        return row < len(self) and self[row] == place

    def line_text(self, row: int) -> str:
        """Return the line of a row."""
        place = self[row]
        return self.logs[place.log].kept.read_line(place.number)

    def next_of(self, marks: Sequence[LineMarks], row: int, direction: int) -> int | None:
        """Return the nearest row after (or before) a row whose line is marked.

        None without one.

        Args:
            marks: The marks of each log.
            row: Where to start; -1 and the number of rows are allowed.
            direction: 1 or -1.
        """
        found: list[int] = []
        for index, one in enumerate(marks):
            number = self._number_at(index, row, direction)
            for candidate in (
                one.iterate_after(number) if direction > 0 else one.iterate_before(number)
            ):
                place = LinePlace(index, candidate)
                if self.shows_line(place):
                    found.append(self.find_row(place))
                    break
        if not found:
            return None
        if direction > 0:
            return min(found)
        return max(found)

    def _number_at(self, log: int, row: int, direction: int) -> int:
        """Return the line of a log from which to search, for a given row."""
        rows, numbers = self._rows_with(log), self._line_numbers(log)
        index = bisect_left(rows, row)
        if index >= len(numbers):
            return self.logs[log].kept.end + 1
        if direction < 0 or row in rows[index : index + 1]:
            return numbers[index]
        return numbers[index] - 1

    def count_marked(self, marks: Sequence[LineMarks]) -> int:
        """Return the total number of marked lines."""
        return sum(map(len, marks))

    def rank_marked(self, marks: Sequence[LineMarks], row: int) -> int:
        """Return the position of a row among the marked lines, counted from 1."""
        return sum(
            one.count_up_to(self._number_at(index, row, -1)) for index, one in enumerate(marks)
        )


class LogCursor:
    """Follows the end of the rows until the person moves up; then it stays at its line."""

    def __init__(self) -> None:
        self.following = True
        self.arrived = 0
        """Lines that arrived since following ended."""
        self._place: LinePlace | None = None
        self._top: LinePlace | None = None
        self._anchor: LinePlace | None = None
        self._ends = 0

    def count_new_lines(self, rows: LogRows) -> None:
        """Count the new lines."""
        ends = sum(log.kept.end for log in rows.logs)
        if not self.following:
            self.arrived += max(0, ends - self._ends)
        self._ends = ends

    def first_row(self, rows: LogRows, height: int) -> int:
        """Return the first row of a window of `height` rows."""
        last = max(0, len(rows) - height)
        if self.following or self._top is None:
            return last
        return min(rows.find_row(self._top), last)

    def current_row(self, rows: LogRows) -> int | None:
        """Return the row that the keys act on; None while following."""
        if self.following or self._place is None or not len(rows):
            return None
        return min(rows.find_row(self._place), len(rows) - 1)

    def selected_rows(self, rows: LogRows) -> range:
        """Return the selected rows; the last one while following."""
        here = self.current_row(rows)
        if here is None:
            return range(max(0, len(rows) - 1), len(rows))
        if self._anchor is None:
            return range(here, here + 1)
        there = min(rows.find_row(self._anchor), len(rows) - 1)
        return range(min(here, there), max(here, there) + 1)

    @property
    def is_selecting(self) -> bool:
        """Whether several rows are being selected."""
        return self._anchor is not None

    def set_selecting(self, rows: LogRows, on: bool) -> None:
        """Start selecting several rows at the current one, or stop it."""
        if not on or not len(rows):
            self._anchor = None
            return
        here = self.current_row(rows)
        if here is None:
            here = len(rows) - 1
            self._stop_following(rows, max(0, here), here)
        self._anchor = rows[here]

    def move_by(self, count: int, rows: LogRows, height: int) -> bool:
        """Move by rows; moving beyond the last one resumes following.

        Return False if already at the first.
        """
        total = len(rows)
        if not total:
            return False
        here = self.current_row(rows)
        start = total - 1 if here is None else here
        target = start + count
        # While lines are selected, the last one is a line like any other.
        if target >= total - 1 and count > 0 and self._anchor is None:
            self.follow_end()
            return True
        target = min(max(0, target), total - 1)
        first = self.first_row(rows, height)
        if target < first:
            first = target
        elif target >= first + height:
            first = target - height + 1
        self._stop_following(rows, first, target)
        return target != start

    def scroll_by(self, count: int, rows: LogRows, height: int) -> None:
        """Scroll by rows; the row that the keys act on stays visible."""
        last = max(0, len(rows) - height)
        first = self.first_row(rows, height) + count
        if first >= last and count > 0:
            self.follow_end()
            return
        # All rows are in sight.
        if not len(rows) or last == 0:
            return
        first = max(0, first)
        here = self.current_row(rows)
        if here is None:
            here = first + height - 1
        self._stop_following(rows, first, min(max(here, first), first + height - 1))

    def go_to_row(self, row: int, rows: LogRows, height: int, *, keep_sight: bool = False) -> None:
        """Go to a row and show it a third below the top.

        With `keep_sight`, scroll only if it is hidden.
        """
        first = self.first_row(rows, height)
        if not (keep_sight and first <= row < first + height):
            first = max(0, min(row - height // 3, len(rows) - height))
        self._stop_following(rows, first, row)

    def _stop_following(self, rows: LogRows, first: int, row: int) -> None:
        if self.following:
            self.following, self.arrived = False, 0
        self._top, self._place = rows[max(0, first)], rows[row]

    def show_from(self, rows: LogRows, first: int) -> None:
        """Show another row at the top; the row that the keys act on stays."""
        self._top = rows[first]

    def follow_end(self) -> None:
        """Follow the end."""
        self.following, self.arrived, self._place, self._anchor = True, 0, None, None
