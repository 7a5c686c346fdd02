"""Which lines of one log, or of several merged by time, are shown; and the reader's position in them."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rgt_tui.fleet.kept_lines import KeptLines
from rgt_tui.model import Spot
from rgt_tui.ui.logs.line_finder import Finder, Marks, error_finder
from rgt_tui.ui.logs.line_times import WrittenZone, written, written_before

MERGED_LINES = 10_000
"""Of each log that is merged with others, its newest lines."""
LEARNED_FROM = 50
"""Of the lines that came, so many are looked at for the time that they have."""


class LinePlace(NamedTuple):
    """A line: of which log, and its number there. It stays what it is, whatever arrives before or behind it."""

    log: int
    number: int


class ShownLog:
    """One log that is shown, and what was found in it.

    Args:
        kept: Its lines.
        name: What it is called.
    """

    def __init__(self, kept: KeptLines, name: str) -> None:
        self.kept, self.name = kept, name
        self.errors = Marks(kept, error_finder())
        self.pages: Marks | None = None
        self.matches: Marks | None = None
        self.filter: Marks | None = None
        self.zone = WrittenZone()
        self._learned = kept.end
        self._times: dict[int, float | None] = {}
        self._zone_of_times: float | None = None
        self._behind: tuple[int, float | None, float] | None = None
        """From which line upwards times of day got their days, from which moment, and in which zone."""
        self._back: array[float] = array("d")
        """From there upwards, by line: the moment up to which days are known; NaN = not any more."""

    def learn(self) -> None:
        """Learn from the lines that came how far their times are from ours."""
        kept = self.kept
        for number in range(max(self._learned, kept.end - LEARNED_FROM, kept.first), kept.end):
            self.zone.learn(kept.line(number), kept.came(number))
        self._learned = kept.end

    def when(self, number: int, otherwise: float | None = None) -> float | None:
        """Return when a line was written (client clock); None where nobody knows."""
        line = self.kept.line(number)
        at = self.zone.when(line, self.kept.came(number), otherwise)
        if at is not None or self.zone.seconds is None:
            return at
        found = written(line)
        if found is None or found.dated:
            return None
        return self._dated_by_neighbours(number)

    def _dated_by_neighbours(self, number: int) -> float | None:
        """Return when a line was written that has a time of day alone: its day is that of the lines behind it.

        Lines are gone through from where it is known when something was written, upwards, and each only once.
        """
        zone, known = self.zone.seconds, self.kept.known_behind
        if zone is None or (self._behind is None and known is None):
            return None
        if self._behind is None or self._behind[2] != zone:
            assert known is not None
            self._behind, self._back = (known[0], known[1], zone), array("d")
        start, at, _ = self._behind
        if number >= start:
            return None
        if self._back:
            at = self._back[-1] if self._back[-1] == self._back[-1] else None
        for place in range(start - 1 - len(self._back), number - 1, -1):
            line = self.kept.line(place)
            found = written(line)
            if found is not None:
                told = self.zone.when(line, self.kept.came(place))
                if told is not None:
                    at = told
                elif at is None:
                    at = None
                else:
                    at = written_before(found.seconds - zone, at)
            self._back.append(math.nan if at is None else at)
        here = self._back[start - 1 - number]
        if here == here:
            return here
        return None

    @property
    def day_unknown(self) -> str:
        """The time of day of the newest line whose day cannot be told; empty = there is none, or nobody asked."""
        if self._behind is None:
            return ""
        lost = next((n for n, at in enumerate(self._back) if at != at), None)
        found = None if lost is None else written(self.kept.line(self._behind[0] - 1 - lost))
        if found is None:
            return ""
        return found.clock

    def forget_before(self, number: int) -> None:
        """Other lines stand before a line than before."""
        for marks in self.marks:
            marks.forget_before(number)
        if self._behind is not None:
            del self._back[max(0, self._behind[0] - number) :]
        self._times = {known: at for known, at in self._times.items() if known >= number}

    def ordered_by(self, number: int, otherwise: float) -> float | None:
        """Return when a line was written, remembered, as it is asked for again and again."""
        if self.zone.seconds != self._zone_of_times or len(self._times) > 4 * MERGED_LINES:
            self._times.clear()
            self._zone_of_times = self.zone.seconds
        if number not in self._times:
            self._times[number] = self.when(number, otherwise)
        return self._times[number]

    @property
    def marks(self) -> tuple[Marks, ...]:
        """All that is looked for in it, what is waited for first."""
        every = (self.matches, self.filter, self.errors, self.pages)
        return tuple(one for one in every if one is not None)

    def look_for(self, finder: Finder | None) -> None:
        """Search for something else from now on."""
        self.matches = None if finder is None else Marks(self.kept, finder)

    def keep_only(self, marks: Marks | None) -> None:
        """Show only these lines from now on; None = all."""
        self.filter = marks


STEP = re.compile(
    r"(?i)\b(?:global[_ ]?)?(?:step|iter(?:ation)?)s?[\"']?\s{0,3}[:=#]?\s{0,3}(\d[\d,]{0,14})\b"
)
NEAR = 1000
"""Lines on either side of a time in which a step is looked for by its number, or a line that has a time."""
SLACK_SECONDS = 2.0
"""A line may be written so much later than what is known of its moment; and many programs cut seconds off."""


def step_of(line: str) -> int | None:
    """Return the step of a training that a line names; None where it names none."""
    found = STEP.search(line)
    if found is not None:
        return int(found.group(1).replace(",", ""))
    return None


def line_at(kept: KeptLines, spot: Spot, when: Callable[[int], float | None]) -> int | None:
    """Return the line that a spot names: by its text, by its step, else the last one that was written by then.

    Args:
        kept: The log.
        spot: Of several lines with its text the last one by its time counts.
        when: From the number of a line to its time; None where nobody knows.

    Returns:
        None = it is not kept.
    """
    if spot.text:
        return _line_with(kept, spot.text.strip(), spot.at, when)
    place = None if spot.at is None else _last_by(kept, spot.at, when)
    if spot.step is not None:
        middle = kept.end - 1 if place is None else place
        near = range(max(kept.first, middle - NEAR), min(kept.end, middle + NEAR + 1))
        named = [number for number in near if step_of(kept.line(number)) == spot.step]
        place = min(named, key=lambda number: abs(number - middle), default=place)
    return place


def _line_with(
    kept: KeptLines, wanted: str, at: float | None, when: Callable[[int], float | None]
) -> int | None:
    found = None
    for number in range(kept.end - 1, kept.first - 1, -1):
        if wanted in kept.line(number):
            found = number
            written = None if at is None else when(number)
            if at is None or written is None or written <= at + SLACK_SECONDS:
                break
    return found


def _last_by(kept: KeptLines, at: float, when: Callable[[int], float | None]) -> int | None:
    low, high = kept.first, kept.end
    while low < high:
        middle = (low + high) // 2
        written = when(middle)
        if written is None or written <= at:
            low = middle + 1
        else:
            high = middle
    known = (
        number
        for number in range(low - 1, max(kept.first, low - NEAR) - 1, -1)
        if when(number) is not None
    )
    if next(known, None) is None:
        return None
    return low - 1


class LogRows:
    """The rows that are shown, in order.

    Args:
        logs: One, or several that are merged by time.
    """

    def __init__(self, logs: Sequence[ShownLog]) -> None:
        self.logs = tuple(logs)
        self._order: list[LinePlace] = []
        self._known: list[tuple[int, int, int]] = []
        """Of each log, what of it stands in the order: first number, number behind the last, and how many."""
        self._rows_of: list[array[int]] = []

    @property
    def merged(self) -> bool:
        """Several logs are shown."""
        return len(self.logs) > 1

    def _numbers(self, log: ShownLog) -> Sequence[int]:
        kept = log.kept
        first = max(kept.first, kept.end - MERGED_LINES)
        if log.filter is None:
            return range(first, kept.end)
        numbers = log.filter.numbers
        return numbers[bisect_left(numbers, first) :]

    def refresh(self) -> None:
        """Take in what has come; several logs are put in order by time."""
        if not self.merged:
            return
        said = [
            (numbers[0], numbers[-1], len(numbers))
            if (numbers := self._numbers(log))
            else (0, -1, 0)
            for log in self.logs
        ]
        if said == self._known:
            return
        self._known = said
        zone = next((log.zone.seconds for log in self.logs if log.zone.seconds is not None), 0.0)
        keyed: list[tuple[float, int, int]] = []
        for index, log in enumerate(self.logs):
            latest = float("-inf")
            for number in self._numbers(log):
                at = log.ordered_by(number, zone)
                latest = latest if at is None else max(latest, at)
                keyed.append((latest, index, number))
        keyed.sort()
        self._order = [LinePlace(index, number) for _, index, number in keyed]
        self._rows_of = [array("q") for _ in self.logs]
        for row, place in enumerate(self._order):
            self._rows_of[place.log].append(row)

    def __len__(self) -> int:
        if self.merged:
            return len(self._order)
        log = self.logs[0]
        if log.filter is not None:
            return len(log.filter)
        return len(log.kept) + (log.kept.partial is not None)

    def __getitem__(self, row: int) -> LinePlace:
        if self.merged:
            return self._order[row]
        log = self.logs[0]
        if log.filter is not None:
            return LinePlace(0, log.filter.numbers[row])
        return LinePlace(0, log.kept.first + row)

    def find(self, place: LinePlace) -> int:
        """Return the row of a line; where it is not shown, that of the next one of its log."""
        if not self.merged:
            log = self.logs[0]
            if log.filter is not None:
                return bisect_left(log.filter.numbers, place.number)
            return min(max(0, place.number - log.kept.first), len(self))
        if place.log >= len(self._rows_of):
            return len(self)
        rows = self._rows_of[place.log]
        index = bisect_left(self._numbers(self.logs[place.log]), place.number)
        if index < len(rows):
            return rows[index]
        return len(self)

    def shows(self, place: LinePlace) -> bool:
        """Tell whether a line is among the rows."""
        row = self.find(place)
        return row < len(self) and self[row] == place

    def text(self, row: int) -> str:
        """Return the line of a row."""
        place = self[row]
        return self.logs[place.log].kept.line(place.number)

    def next_of(self, marks: Sequence[Marks], row: int, direction: int) -> int | None:
        """Return the nearest row behind (or before) one whose line is marked; None = there is none.

        Args:
            marks: Of each log.
            row: Where to begin; -1 and the number of rows are allowed.
            direction: 1 or -1.
        """
        found: list[int] = []
        for index, one in enumerate(marks):
            number = self._number_at(index, row, direction)
            for candidate in one.after(number) if direction > 0 else one.before(number):
                place = LinePlace(index, candidate)
                if self.shows(place):
                    found.append(self.find(place))
                    break
        if not found:
            return None
        if direction > 0:
            return min(found)
        return max(found)

    def _number_at(self, log: int, row: int, direction: int) -> int:
        """Return the line of a log from which on to look, seen from a row."""
        kept = self.logs[log].kept
        if row < 0:
            return kept.first - 1
        if row >= len(self):
            return kept.end + 1
        if not self.merged:
            return self[row].number
        rows = self._rows_of[log]
        index = bisect_left(rows, row)
        numbers = self._numbers(self.logs[log])
        if index < len(rows) and rows[index] == row:
            return numbers[index]
        if index >= len(numbers):
            return kept.end
        if direction > 0:
            return numbers[index] - 1
        return numbers[index]

    def count(self, marks: Sequence[Marks]) -> int:
        """Return how many marked lines there are in all."""
        return sum(map(len, marks))

    def rank(self, marks: Sequence[Marks], row: int) -> int:
        """Return the how manieth marked line a row is, or would follow."""
        return sum(one.rank(self._number_at(index, row, -1)) for index, one in enumerate(marks))


class LogCursor:
    """Follows the end of the rows until one moves up, and then stays where it is, whatever arrives."""

    def __init__(self) -> None:
        self.following = True
        self.arrived = 0
        """Lines that came since following ended."""
        self._place: LinePlace | None = None
        self._top: LinePlace | None = None
        self._anchor: LinePlace | None = None
        self._ends = 0

    def take_in(self, rows: LogRows) -> None:
        """Count what has come."""
        ends = sum(log.kept.end for log in rows.logs)
        if not self.following:
            self.arrived += max(0, ends - self._ends)
        self._ends = ends

    def first(self, rows: LogRows, height: int) -> int:
        """Return the first row of a window of `height` rows."""
        last = max(0, len(rows) - height)
        if self.following or self._top is None:
            return last
        return min(rows.find(self._top), last)

    def row(self, rows: LogRows) -> int | None:
        """Return the row that the keys act on; None while the end is followed."""
        if self.following or self._place is None or not len(rows):
            return None
        return min(rows.find(self._place), len(rows) - 1)

    def selected(self, rows: LogRows) -> range:
        """Return the rows that were selected; the last one while the end is followed."""
        here = self.row(rows)
        if here is None:
            return range(max(0, len(rows) - 1), len(rows))
        if self._anchor is None:
            return range(here, here + 1)
        there = min(rows.find(self._anchor), len(rows) - 1)
        return range(min(here, there), max(here, there) + 1)

    @property
    def selecting(self) -> bool:
        """Several rows are being selected."""
        return self._anchor is not None

    def select(self, rows: LogRows, on: bool) -> None:
        """Begin to select several rows at the one that the keys act on, or end it."""
        if not on or not len(rows):
            self._anchor = None
            return
        here = self.row(rows)
        if here is None:
            here = len(rows) - 1
            self._stop(rows, max(0, here), here)
        self._anchor = rows[here]

    def move(self, count: int, rows: LogRows, height: int) -> bool:
        """Move by rows; moving beyond the last one takes up following. Returns False at the first row already."""
        total = len(rows)
        if not total:
            return False
        here = self.row(rows)
        start = total - 1 if here is None else here
        target = start + count
        if target >= total - 1 and count > 0 and self._anchor is None:
            self.follow()
            return True
        target = min(max(0, target), total - 1)
        first = self.first(rows, height)
        if target < first:
            first = target
        elif target >= first + height:
            first = target - height + 1
        self._stop(rows, first, target)
        return target != start

    def scroll(self, count: int, rows: LogRows, height: int) -> None:
        """Scroll by rows; the row that the keys act on stays in sight."""
        last = max(0, len(rows) - height)
        first = self.first(rows, height) + count
        if first >= last and count > 0:
            self.follow()
            return
        if not len(rows) or last == 0:
            return
        first = max(0, first)
        here = self.row(rows)
        here = first + height - 1 if here is None else here
        self._stop(rows, first, min(max(here, first), first + height - 1))

    def go(self, row: int, rows: LogRows, height: int, *, keep_sight: bool = False) -> None:
        """Go to a row, a third below the top; with `keep_sight`, nothing moves where it is in sight."""
        first = self.first(rows, height)
        if not (keep_sight and first <= row < first + height):
            first = max(0, min(row - height // 3, len(rows) - height))
        self._stop(rows, first, row)

    def _stop(self, rows: LogRows, first: int, row: int) -> None:
        if self.following:
            self.following, self.arrived = False, 0
        self._top, self._place = rows[max(0, first)], rows[row]

    def show_from(self, rows: LogRows, first: int) -> None:
        """Have another row on top; the one that the keys act on stays."""
        self._top = rows[first]

    def follow(self) -> None:
        """Follow the end."""
        self.following, self.arrived, self._place, self._anchor = True, 0, None, None
