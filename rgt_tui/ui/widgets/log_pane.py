"""Draws the visible lines of a log, and searches all of its lines in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from rich.cells import cell_len, chop_cells
from textual import events

from rgt_tui.fleet.kept_lines import KeptLines
from rgt_tui.handbook import HandbookPage
from rgt_tui.language import translate
from rgt_tui.model import how_many
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.line_finder import (
    ChosenFinder,
    LineMarks,
    PageFinder,
    finder_for,
    is_error,
    line_shape,
)
from rgt_tui.ui.line_times import read_written_time
from rgt_tui.ui.log_rows import LinePlace, LogCursor, LogRows, ShownLog
from rgt_tui.ui.notation import clock_or_dash, compact_time, current_glyphs, format_thousands
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import draw_frame
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    make_line,
    width_of,
    wrap_text,
)

ERRORS_ONLY = "errors"
"""Name of the filter for error lines only; typing it as a filter selects it."""
TIMES = ("", "clock", "age")


def _count_suffix(marks: Iterable[LineMarks]) -> str:
    """Return the suffix of a count that may still grow."""
    if all(one.is_complete for one in marks):
        return ""
    return "+"


class LogPane(LineWidget):
    """Shows a log in a frame, and follows it until the person moves up.

    Args:
        margins: Mark errors before the lines, and matching handbook pages after them.
    """

    DEFAULT_CSS = "LogPane { height: 1fr; }"

    can_focus = True
    WHEEL = 3

    def __init__(self, *, id: str, wrap: bool = False, margins: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.cursor = LogCursor()
        self.wrap = wrap
        self.times = TIMES[0]
        self.older = ""
        """Describes earlier lines on the box that are not loaded; empty = none, or unknown."""
        self.zone: float | None = None
        """UTC offset of the box's local time in seconds, by our clock; None = unknown."""
        self.lost = ""
        """Why no new lines arrive: the connection's state; empty while connected."""
        self.heading = ""
        """Title to show instead of the log's name."""
        self._margins = margins
        # Weak: a log that the fleet drops takes the reader's place in it along.
        self._cursors: WeakKeyDictionary[KeptLines, LogCursor] = WeakKeyDictionary()
        self._rows: LogRows | None = None
        self._search: ChosenFinder | None = None
        self._searched = ""
        self._filter: ChosenFinder | None = None
        self._filtered = ""
        self._pages: PageFinder | None = None
        self._findings: Mapping[str, str] = {}
        # Whether a worker is searching; there is at most one.
        self._looking = False
        self._after: Callable[[], None] | None = None
        """Callback that waits for the search to progress."""
        self._aside = 0
        self._age: float | None = None
        self._now = 0.0
        self._why_empty = translate("no log yet")
        self._mark_at: int | None = None

    # What is shown

    @property
    def shown_rows(self) -> LogRows | None:
        """The shown rows; None while there is no log."""
        return self._rows

    @property
    def height_of_text(self) -> int:
        """Number of visible text lines."""
        return max(1, self.size.height - 2)

    @property
    def log_path(self) -> str | None:
        """Path of the shown log; with several, of the first."""
        return next((log.kept.path for log in self.shown_logs), None)

    @property
    def shown_logs(self) -> tuple[ShownLog, ...]:
        """The shown logs."""
        if self._rows is not None:
            return self._rows.logs
        return ()

    def show_logs(
        self,
        logs: Sequence[KeptLines],
        *,
        now: float,
        age: float | None,
        empty: str,
        findings: Mapping[str, str] | None = None,
    ) -> None:
        """Show the current state of logs.

        Args:
            logs: One, or several that are merged by time.
            now: Client clock.
            age: Age of the newest line if it is old, else None.
            empty: Text to show if there is no line.
            findings: Handbook page per line that proves a finding.
        """
        self._age, self._why_empty, self._now = age, empty, now
        self._findings = findings or {}
        if list(logs) != [log.kept for log in self.shown_logs]:
            self._rows = None
            if logs:
                self._rows = LogRows([self._make_shown_log(kept) for kept in logs])
                # Each log keeps its place, so that going back and forth between two loses none.
                self.cursor = self._cursors.setdefault(logs[0], LogCursor())
        for log in self.shown_logs:
            log.zone.assumed = self.zone
        self._add_new_lines()
        self.redraw()

    def _make_shown_log(self, kept: KeptLines) -> ShownLog:
        # A log that stays is not searched again.
        log = self._log_of(kept) or ShownLog(kept, kept.path.rpartition("/")[2])
        if self._search is not None and log.matches is None:
            log.search_for(self._search.finder)
        self._set_filter(log)
        self._find_pages(log)
        return log

    def know_pages(self, pages: Sequence[HandbookPage]) -> None:
        """Search the lines for these pages of the handbook."""
        self._pages = PageFinder(pages)
        for log in self.shown_logs:
            log.pages = None
            self._find_pages(log)
        self._add_new_lines()

    def _find_pages(self, log: ShownLog) -> None:
        if self._pages is not None and log.pages is None:
            # Lines from the end that are searched for patterns of the handbook.
            pages_at_most = 1_000_000
            log.pages = LineMarks(log.kept, self._pages, pages_at_most)

    def _log_of(self, kept: KeptLines) -> ShownLog | None:
        """Return a log if it is shown."""
        return next((log for log in self.shown_logs if log.kept is kept), None)

    def _add_new_lines(self) -> None:
        """Search the new lines, and sort them in."""
        rows = self._rows
        if rows is None:
            return
        busy = False
        for log in rows.logs:
            log.learn_zone()
            for marks in log.all_marks:
                marks.catch_up()
                busy = busy or not marks.is_complete
        rows.update_rows()
        self.cursor.count_new_lines(rows)
        if busy and not self._looking and self.is_attached:
            self._looking = True
            self.run_worker(
                self._search_remaining(),
                group="log",
                description="search a log",
                exit_on_error=False,
            )

    async def _search_remaining(self) -> None:
        """Search the remaining lines in threads, newest first, until none are left."""
        try:
            while self._rows is not None and self.is_attached:
                # Read in every round, because another log may be shown by now.
                rows = self._rows
                every = (marks for log in rows.logs for marks in log.all_marks)
                todo = ((marks, job) for marks in every if (job := marks.next_job()) is not None)
                marks, job = next(todo, (None, None))
                if marks is None or job is None:
                    break
                # One job at a time, the newest lines first; between two, new lines and filters are
                # seen.
                await asyncio.to_thread(job.run)
                marks.apply_job(job)
                rows.update_rows()
                self._search_progressed()
        finally:
            self._looking = False
        # Also after the last job: a jump may be waiting for it.
        self._search_progressed()

    def _search_progressed(self) -> None:
        after, self._after = self._after, None
        if after is not None:
            after()
        self.redraw()

    # Search, filter

    @property
    def searched_text(self) -> str:
        """The search text."""
        return self._searched

    @property
    def filtered_text(self) -> str:
        """The filter text."""
        return self._filtered

    @property
    def trouble_text(self) -> str:
        """Error in the search or the filter; empty = none."""
        chosen = (one.trouble for one in (self._search, self._filter) if one is not None)
        return next(filter(None, chosen), "")

    def search_for(self, text: str) -> str:
        """Search for a text; return its error, or an empty string."""
        if text != self._searched:
            # A jump that waits for the previous search is dropped.
            self._searched, self._after = text, None
            if text:
                self._search = finder_for(text)
            else:
                self._search = None
            for log in self.shown_logs:
                log.search_for(self._search.finder if self._search is not None else None)
            self._add_new_lines()
        self.redraw()
        if self._search is not None:
            return self._search.trouble
        return ""

    def filter_by(self, text: str) -> str:
        """Show only matching lines; return the error in the text, or an empty string."""
        if text != self._filtered:
            self._filtered = text
            if text and text != ERRORS_ONLY:
                self._filter = finder_for(text)
            else:
                self._filter = None
            for log in self.shown_logs:
                log.filter = None
                self._set_filter(log)
            if self._rows is not None:
                # With another filter, the selected rows are other lines.
                self.cursor.set_selecting(self._rows, False)
            self._add_new_lines()
        self.redraw()
        if self._filter is not None:
            return self._filter.trouble
        return ""

    def _set_filter(self, log: ShownLog) -> None:
        if self._filtered == ERRORS_ONLY:
            log.filter = log.errors
        elif self._filter is not None and log.filter is None:
            log.filter = LineMarks(log.kept, self._filter.finder)

    def count_matches(self) -> int:
        """Return the number of matches found so far."""
        if self._rows is not None:
            return self._rows.count_marked(self._match_marks())
        return 0

    def _match_marks(self) -> list[LineMarks]:
        return [log.matches for log in self.shown_logs if log.matches is not None]

    def _filter_marks(self) -> list[LineMarks]:
        return [log.filter for log in self.shown_logs if log.filter is not None]

    def _error_marks(self) -> list[LineMarks]:
        return [log.errors for log in self.shown_logs]

    def next_match(self, direction: int, say: Callable[[str], None]) -> None:
        """Go to the next match, wrapping around at the end."""
        self._jump_to_mark(self._match_marks, direction, say, "match")

    def next_error(self, direction: int, say: Callable[[str], None]) -> None:
        """Go to the next error, wrapping around at the end."""
        self._jump_to_mark(self._error_marks, direction, say, "error")

    def _jump_to_mark(
        self,
        which: Callable[[], Sequence[LineMarks]],
        direction: int,
        say: Callable[[str], None],
        what: str,
        *,
        waited: bool = False,
    ) -> None:
        rows, marks = self._rows, which()
        if rows is None or not marks or not len(rows):
            say(translate("no {what} in the lines kept here", what=what))
            return
        here = self.cursor.current_row(rows)
        if here is not None:
            start = here
        elif direction < 0:
            start = len(rows)
        else:
            start = len(rows) - 1
        found = rows.next_of(marks, start, direction)
        whole = all(one.is_complete for one in marks)
        if found is None and not whole:
            # The search runs from the newest line back, so a match may still be found.
            say(translate("looking for the next {what} …", what=what))
            self._after = lambda: self._jump_to_mark(which, direction, say, what, waited=True)
            self._add_new_lines()
            return
        around = ""
        if found is None:
            begin = -1
            if direction <= 0:
                begin = len(rows)
            found = rows.next_of(marks, begin, direction)
            ends = (
                translate("after the last {0}: continuing with the first one"),
                translate("before the first {0}: continuing with the last one"),
            )
            around = ends[direction < 0].format(what)
        if found is None:
            say(self.trouble_text or translate("no {what} in the lines kept here", what=what))
            return
        if found == here:
            around = translate("the only {what} in the lines kept here", what=what)
        if around or waited:
            say(around)  # replaces the "looking for" message
        self.cursor.go_to_row(found, rows, self.height_of_text)
        self.redraw()

    # Moving

    def move_by(self, count: int) -> bool:
        """Move by lines; return False if already at the first one."""
        moved = self._rows is not None and self.cursor.move_by(
            count, self._rows, self.height_of_text
        )
        self.redraw()
        return moved

    @property
    def page_rows(self) -> int:
        """Lines per page: one line stays visible."""
        return max(1, self.height_of_text - 1)

    def scroll_lines(self, count: int) -> None:
        """Scroll by lines."""
        if self._rows is not None:
            self.cursor.scroll_by(count, self._rows, self.height_of_text)
        self.redraw()

    def go_to_line(self, log: KeptLines, number: int) -> None:
        """Go to a line of one of the shown logs."""
        rows = self._rows
        index = next((i for i, shown in enumerate(self.shown_logs) if shown.kept is log), None)
        if rows is None or index is None or not len(rows):
            return
        row = min(rows.find_row(LinePlace(index, number)), len(rows) - 1)
        self.cursor.go_to_row(row, rows, self.height_of_text)
        self.redraw()

    def scroll_sideways(self, direction: int) -> None:
        """Scroll cut lines sideways."""
        step_aside = 16
        self._aside = max(0, self._aside + direction * step_aside)
        self.redraw()

    @property
    def cursor_place(self) -> tuple[KeptLines, int] | None:
        """The line that the keys act on; while following, the last one."""
        rows = self._rows
        if rows is None or not len(rows):
            return None
        row = self.cursor.current_row(rows)
        if row is None:
            row = len(rows) - 1
        here = rows[row]
        return rows.logs[here.log].kept, here.number

    def chosen_lines(self) -> list[str]:
        """Return the selected lines."""
        rows = self._rows
        if rows is None:
            return []
        return [rows.line_text(row) for row in self.cursor.selected_rows(rows)]

    def page_of(self, kept: KeptLines, number: int) -> str | None:
        """Return the handbook page that matches a line, or None."""
        text = kept.read_line(number)
        bare = text.strip()
        if bare and bare in self._findings:
            return self._findings[bare]
        log = self._log_of(kept)
        if log is None or log.pages is None or self._pages is None or number in kept.notes:
            return None
        # A line that was not searched yet may repeat one that was.
        return log.pages.names.get(number) or self._pages.shapes.get(line_shape(text))

    # Drawing

    def selected_line(self) -> int | None:
        """Return the line that the keys act on, counted from the top of the frame."""
        if self._mark_at is None:
            return None
        return 1 + self._mark_at

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame and the visible lines."""
        self._mark_at = None
        body = self._body_lines(max(1, width - 4), max(1, height - 2))
        return draw_frame(
            body,
            width,
            height,
            title=self._title_line(),
            hint=self._hint_line(width),
            foot=self._foot_line(),
            active=self.has_focus,
        )

    def _title_line(self) -> Line:
        rows = self._rows
        if self.heading:
            return make_line(self.heading)
        if rows is None:
            return make_line(dim_span(translate("log")))
        names = " + ".join(log.name for log in rows.logs)
        if rows.is_merged:
            return make_line(names, dim_span(translate(", by time")))
        return make_line(names)

    def _hint_line(self, width: int) -> Line:
        rows = self._rows
        if rows is None:
            return EMPTY
        parts: list[Line] = []
        if self._searched:
            parts.append(
                make_line(
                    Span(f"/{self._searched} ", Tone.MATCH), dim_span(self._match_count_text(rows))
                )
            )
        if self._filtered:
            marks = self._filter_marks()
            kept = f" {format_thousands(len(rows))}{_count_suffix(marks)}"
            parts.append(make_line(Span(f"& {self._filtered}", Tone.ACCENT), dim_span(kept)))
        if self.cursor.is_selecting:
            parts.append(
                make_line(
                    Span(
                        translate(
                            "{rows} selected",
                            rows=how_many(len(self.cursor.selected_rows(rows)), "line"),
                        ),
                        Tone.ACCENT,
                    )
                )
            )
        if self.times:
            parts.append(make_line(dim_span(f"{key_for('log.times')} {self.times}")))
        if not self.cursor.following:
            new = ""
            if self.cursor.arrived:
                new = f"+{how_many(self.cursor.arrived, 'line')}  "
            parts.append(
                make_line(
                    Span(
                        translate("{new}{key} follows", new=new, key=key_for("log.follow")),
                        Tone.ACCENT,
                    )
                )
            )
        if self.lost or (self._age is not None and self.cursor.following):
            age = ""
            if self._age is not None:
                age = translate("last line {age} ago", age=compact_time(self._age))
            parts.append(make_line(dim_span(", ".join(word for word in (self.lost, age) if word))))
        elif self.cursor.following and len(rows):
            parts.append(make_line(dim_span(translate("following"))))
        # The title needs some of the border, too.
        room = width - 14
        while len(parts) > 1 and sum(map(width_of, parts)) + 3 * (len(parts) - 1) > room:
            # The last parts are the least important.
            parts.pop()
        out: list[Span] = []
        for part in parts:
            out += [dim_span(" ─ "), *part] if out else part
        return tuple(out)

    def _match_count_text(self, rows: LogRows) -> str:
        marks = self._match_marks()
        count = rows.count_marked(marks)
        more = _count_suffix(marks)
        here = self.cursor.current_row(rows)
        if here is not None and count:
            place = rows[here]
            one = rows.logs[place.log].matches
            if one is not None and place.number in one:
                return translate(
                    "match {marks} of {count}{more}",
                    marks=format_thousands(rows.rank_marked(marks, here)),
                    count=format_thousands(count),
                    more=more,
                )
        return (
            f"{format_thousands(count)}{more} {'match' if count == 1 and not more else 'matches'}"
        )

    def _foot_line(self) -> Line:
        rows = self._rows
        if rows is None:
            return EMPTY
        parts = []
        if not self.cursor.following and len(rows):
            first = self.cursor.first_row(rows, self.height_of_text)
            here = self.cursor.current_row(rows)
            parts.append(
                translate(
                    "line {first} of {rows}",
                    first=format_thousands((first if here is None else here) + 1),
                    rows=format_thousands(len(rows)),
                )
            )
        if self.older:
            parts.append(self.older)
        if parts:
            return make_line(dim_span("   ".join(parts)))
        return EMPTY

    def _body_lines(self, width: int, height: int) -> list[Line]:
        rows = self._rows
        if rows is None or not len(rows):
            why = self._why_empty
            if rows is not None and self._filtered and any(len(log.kept) for log in rows.logs):
                why = translate("looking for {filtered} …", filtered=self._filtered)
                if all(one.is_complete for one in self._filter_marks()):
                    why = translate(
                        "no line matches {filtered} in the lines kept here", filtered=self._filtered
                    )
            return wrap_text(why, width, Tone.DIM)
        first = self.cursor.first_row(rows, height)
        here = self.cursor.current_row(rows)
        if self.cursor.is_selecting:
            chosen = self.cursor.selected_rows(rows)
        else:
            chosen = range(0)
        head: list[Line] = []
        # The reader is at the first line kept here.
        if first == 0 and self.older and not self.cursor.following:
            head = [make_line(dim_span(translate("··· {older} loads ···", older=self.older)))]
        room = height - len(head)
        if not self.wrap:
            # The line about earlier ones takes a row, which the cursor may be on.
            if here is not None and here >= first + room:
                first = here - room + 1
                head = []
                room = height
            shown = range(first, min(first + room, len(rows)))
            out = [*head, *(self._draw_line(rows, row, width, row in chosen) for row in shown)]
            if here is not None and here in shown:
                self._mark_at = len(head) + here - first
            return out
        return self._wrapped_body(rows, width, room, head, first, here, chosen)

    def _wrapped_body(
        self,
        rows: LogRows,
        width: int,
        room: int,
        head: list[Line],
        first: int,
        here: int | None,
        chosen: range,
    ) -> list[Line]:
        if not self.cursor.following:
            out: list[Line] = []
            at = None
            for row in range(first, len(rows)):
                at = len(out) if row == here else at
                out += self._wrap_line(rows, row, width, row in chosen)
                if len(out) >= room:
                    break
            # Otherwise wrapped lines have pushed the cursor out of sight: the lines are drawn from
            # it upwards.
            if at is not None and at < room:
                self._mark_at = len(head) + at
                return [*head, *out[:room]]
        if here is None:
            last = len(rows) - 1
        else:
            last = here
        made: list[Line] = []
        top = last
        for row in range(last, -1, -1):
            # From the end upwards: how many rows a wrapped line takes is known only by wrapping it.
            made = self._wrap_line(rows, row, width, row in chosen) + made
            top = row
            if len(made) >= room:
                break
        if here is not None:
            # The next drawing begins at the same row.
            self.cursor.show_from(rows, top)
            tall = len(self._wrap_line(rows, here, width, False))
            self._mark_at = max(0, min(len(made), room) - tall)
        return made[-room:]

    def _draw_line(self, rows: LogRows, row: int, width: int, chosen: bool) -> Line:
        front, back, tone, text = self._line_parts(rows, row, chosen)
        room = max(1, width - width_of(front) - width_of(back))
        body = self._mark_matches(text[self._aside :], tone)
        if not back:
            return (*front, *body)
        return (*front, *clip_line(body, room), *back)

    def _wrap_line(self, rows: LogRows, row: int, width: int, chosen: bool) -> list[Line]:
        front, back, tone, text = self._line_parts(rows, row, chosen)
        # Eight columns at least, or a narrow pane would wrap without end.
        room = max(8, width - width_of(front) - width_of(back))
        if cell_len(text) > room:
            parts = chop_cells(text, room)
        else:
            parts = [text]
        blank = Span(" " * width_of(front))
        lines: list[Line] = []
        for index, part in enumerate(parts or [""]):
            body = self._mark_matches(part, tone)
            if index:
                lines.append((blank, *body))
                continue
            if back:
                body = clip_line(body, room)
            lines.append((*front, *body, *back))
        return lines

    def _line_parts(self, rows: LogRows, row: int, chosen: bool) -> tuple[Line, Line, Tone, str]:
        """Return the parts before and after a line, its tone and its text."""
        place = rows[row]
        log = rows.logs[place.log]
        text = log.kept.read_line(place.number)
        # A note is rgt's own text between the lines.
        if place.number in log.kept.notes:
            return EMPTY, EMPTY, Tone.DIM, text
        number = place.number
        # Not searched yet: the few visible lines are judged at once.
        if log.errors.was_searched(number):
            error = number in log.errors
        else:
            error = is_error(text)
        if error:
            tone = Tone.TROUBLE
        elif chosen or row == self.cursor.current_row(rows):
            tone = Tone.STRONG
        else:
            tone = Tone.TEXT
        front: list[Span] = []
        if self.times:
            front.append(dim_span(f"{self._time_text(log, place.number, text)} "))
        if self._margins:
            if chosen:
                mark = current_glyphs().closed
            elif error:
                mark = current_glyphs().trouble
            else:
                mark = " "
            mark_tone = Tone.TROUBLE
            if chosen:
                mark_tone = Tone.ACCENT
            front.append(Span(f"{mark} ", mark_tone))
        if rows.is_merged:
            front.append(
                dim_span(
                    f"{fit_text(log.name, min(12, max(cell_len(one.name) for one in rows.logs)))} "
                )
            )
        back: Line = EMPTY
        if self._margins:
            page = self.page_of(log.kept, place.number)
            if page:
                back = make_line(Span(f" {current_glyphs().margin} {page}", Tone.ACCENT))
            else:
                back = EMPTY
        return tuple(front), back, tone, text

    def _time_text(self, log: ShownLog, number: int, text: str) -> str:
        at = log.line_time(number)
        if self.times == "age":
            if at is None:
                age = current_glyphs().dash
            else:
                age = compact_time(max(0.0, self._now - at))
            return age.rjust(6)
        found = read_written_time(text)
        # Without a zone the time cannot be converted, so it is shown as written.
        if found is not None and log.zone.utc_offset is None and found.zone is None:
            return found.clock
        if at is not None:
            return clock_or_dash(at).rjust(8)
        return " " * 8

    def _mark_matches(self, text: str, tone: Tone) -> Line:
        if self._search is None:
            return (Span(text, tone),)
        out: list[Span] = []
        end = 0
        for start, stop in self._search.finder.find_spans(text):
            out += [Span(text[end:start], tone), Span(text[start:stop], Tone.MATCH)]
            end = stop
        out.append(Span(text[end:], tone))
        return tuple(out)

    # The mouse

    def on_click(self, event: events.Click) -> None:
        """Go to the clicked line."""
        rows = self._rows
        # Wrapped, a row of the screen is no row of the log.
        if rows is None or self.wrap or not 1 <= event.y <= self.height_of_text:
            return
        first = self.cursor.first_row(rows, self.height_of_text)
        row = first + event.y - 1
        if row < len(rows):
            self.cursor.go_to_row(row, rows, self.height_of_text, keep_sight=True)
            self.redraw()
