"""The log screen, with search, filter and jumps from its lines.

And the keys shared with the box screen.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar, cast

from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.box_logs import BoxLog, NothingOlder
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines
from rgt_tui.handbook import HandbookError, all_pages, shipped_pages
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    FleetState,
    LinkState,
    LogView,
    ScreenPosition,
    how_many,
    is_exact_path,
)
from rgt_tui.profiles import no_agent
from rgt_tui.ui.box_status import cells_of, choose_log, current_cell
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import LOG, LOG_LINES, LOG_TARGET, MOVE, Command, build_bindings, key_for
from rgt_tui.ui.line_finder import LineSheet, finder_for, search_box
from rgt_tui.ui.log_rows import ShownLog, step_of
from rgt_tui.ui.notation import format_thousands, size_or_dash
from rgt_tui.ui.screens.base import HINT_SECONDS, Dashboard, FleetAwareScreen, MoveKeys
from rgt_tui.ui.shells import CannotOpenShell, page_from
from rgt_tui.ui.widgets.fixed_lines import EntryLine, KeyLine
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.log_pane import TIMES, LogPane
from rgt_tui.ui.widgets.panes import Pane

MOST_BACK = 16
"""Maximum chunks of older lines loaded to reach a time."""
MOST_COUNTED_BYTES = 1 << 30
"""Maximum size of the older part in which lines are counted; beyond that only the size is shown."""
OF_A_SEARCH = frozenset({"log.next-match", "log.previous-match"})


def run_of(box: BoxState, path: str) -> str | None:
    """Return the run whose log has this path."""
    names = [run.name for run in box.runs]
    cell = next((cell.name for cell in cells_of(box) if cell.log == path), None)
    # A run without a cell may have a log that is named after it.
    stem = posixpath.splitext(posixpath.basename(path))[0]
    return next((name for name in (cell, stem) if name is not None and name in names), None)


def log_of(box: BoxState, run: str) -> str | None:
    """Return the path of a cell's or run's log; None if unknown."""
    of_cell = next((cell.log for cell in cells_of(box) if cell.name == run), None)
    return of_cell or next((view.path for view in box.logs if run_of(box, view.path) == run), None)


def log_with_steps(box: BoxState, run: str | None) -> str | None:
    """Return a run's log, otherwise the log whose newest step is nearest to the run's step.

    None if no log contains steps.
    """
    here = next((one.step for one in box.runs if one.name == run and one.step is not None), 0)
    named: list[tuple[float, str]] = []
    for view in box.logs:
        if run is not None and run_of(box, view.path) == run:
            return view.path
        step = next(
            (step for line in reversed(view.lines[-20:]) if (step := step_of(line)) is not None),
            None,
        )
        if step is not None:
            named.append((abs(step - here), view.path))
    if named:
        return min(named)[1]
    return None


def zone_of(box: BoxState) -> float | None:
    """Return the offset of a box's local time to our UTC clock in seconds; None = unknown.

    Clock skew is rounded to whole seconds: a fraction would show lines one second too early.
    """
    if box.hello is None:
        east = None
    else:
        east = box.hello.utc_offset
    # Maximum UTC offset in seconds; a box that reports more is treated as having no zone.
    most_east = 86400.0
    # `not … <=`, because a box may also report NaN.
    if east is None or not abs(east) <= most_east:
        return None
    return east + round(box.clock_skew or 0.0)


class LogKeys(MoveKeys, FleetAwareScreen):
    """A screen with a log pane called ``#log``."""

    _wanted_log: str | None = None
    _asked: str | None = None

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__(fleet, box_name)
        self._kept: dict[str, KeptLines] = {}
        """The logs that are read here."""
        self._merged: tuple[str, ...] = ()
        """Logs that are shown together with the chosen one."""

    @property
    def log_pane(self) -> LogPane:
        """The pane with the log."""
        return self.query_one("#log", LogPane)

    def show_log(self, box: BoxState, now: float) -> None:
        """Show the newest lines, and follow the running cell's log if it is not followed yet."""
        current = current_cell(box)
        path = self._wanted_log or (current[1].log if current else None)
        # Requested once: the answer may take long, and this is called with every state.
        if path is not None and path != self._asked and all(view.path != path for view in box.logs):
            self._asked = path
            self.fleet.follow_log(box.spec.name, path)
        view = choose_log(
            box, self._wanted_log or self._shown_log(current[1].log if current else None)
        )
        views = [] if view is None else [view]
        views += [one for one in box.logs if one.path in self._merged and one is not view]
        lost = box.link is not LinkState.LIVE
        newest = max((one.at for one in views if one.at is not None), default=None)
        # A log that grows at least every minute needs no age.
        if newest is not None and (lost or now - newest > 60):
            age = now - newest
        else:
            age = None
        quiet = ""
        if self._is_past:
            quiet = translate("as it stood")
        self.log_pane.lost = translate(box.link.value) if lost else quiet
        self.log_pane.zone = zone_of(box)
        if view is None:
            empty = translate("no log is followed on this box")
        else:
            empty = translate("the log is empty so far")
        if view is None and box.sample is None:
            empty = translate("no log found yet")
        elif view is None and (why := no_agent(box)):
            empty = translate("this box sends no log: {why}", why=why)
        logs = [kept for one in views if (kept := self._read_lines(box, one)) is not None]
        # Logs that are no longer shown need not be read any more.
        for path in [path for path in self._kept if all(one.path != path for one in views)]:
            self._leave_log(path)
        self.show_lines(box, logs, now, age, empty)

    def _shown_log(self, running: str | None) -> str | None:
        """Return the log to keep showing, although the person did not choose it.

        Several logs may be written in turn; without this the screen would switch with each line.

        Args:
            running: Log of the running cell. While following the end, the screen switches to it.
        """
        if running is None or not self.log_pane.cursor.following:
            return self.log_pane.log_path
        return None

    def show_lines(
        self, box: BoxState, logs: list[KeptLines], now: float, age: float | None, empty: str
    ) -> None:
        """Show lines in the pane."""
        if logs:
            self.log_pane.older = self.describe_older(box, logs[0])
        else:
            self.log_pane.older = ""
        self.log_pane.show_logs(logs, now=now, age=age, empty=empty, findings=findings_of(box))

    def describe_older(self, box: BoxState, kept: KeptLines) -> str:
        """Return a text about the lines before the loaded ones."""
        left = sum(view.dropped for view in box.logs if view.path == kept.path)
        if left:
            return translate("{left} on the box", left=how_many(left, "earlier line"))
        return ""

    def _read_lines(self, box: BoxState, view: LogView) -> KeptLines | None:
        """Return all loaded lines of a log."""
        kept = self._kept.get(view.path)
        if self.fleet.keeps_logs:
            if kept is None:
                kept = self.fleet.keep_log(box.spec.name, view.path)
                if kept is not None:
                    self._kept[view.path] = kept
            return kept
        # Lines that do not continue the kept ones: start again from them.
        if kept is None or not kept.append_view(view):
            kept = self._kept[view.path] = KeptLines(view.path)
            kept.append_view(view)
        return kept

    def _leave_log(self, path: str) -> None:
        if (
            self._kept.pop(path, None) is not None
            and self.fleet.keeps_logs
            and self.box_name is not None
        ):
            self.fleet.leave_log(self.box_name, path)

    def on_unmount(self) -> None:
        """Stop reading the logs."""
        for path in list(self._kept):
            self._leave_log(path)

    @property
    def moved_widget(self) -> LineWidget:
        """The widget that the keys move in."""
        if isinstance(self.focused, Pane):
            return self.focused
        return self.log_pane

    def action_follow(self) -> None:
        """Follow the end."""
        self.log_pane.cursor.follow_end()
        self.log_pane.redraw()

    def action_next_error(self, direction: int) -> None:
        """Go to the next line with an error."""
        self.log_pane.next_error(direction, self.hint)

    def action_next_log(self, direction: int) -> None:
        """Show another log of the box."""
        box = self.box_state
        if box is None or not box.logs:
            self.hint(translate("no log is followed on this box"))
            return
        paths = [view.path for view in box.logs]
        here = self.log_pane.log_path
        if paths == [here]:
            self.hint(translate("this is the only log of the box"))
            return
        place = 0
        if here in paths:
            place = paths.index(here)
        self._merged = ()
        self._wanted_log = paths[(place + direction) % len(paths)]
        self.redraw_now()


def findings_of(box: BoxState) -> Mapping[str, str]:
    """Return the handbook page per log line that proves a finding; the first finding wins."""
    # A finding from a sample has no line in a log; a guess has that of the exception.
    best_last = (
        finding
        for finding in reversed(box.findings)
        if finding.where != "sample" and not finding.guess
    )
    return {finding.evidence.strip(): finding.gotcha for finding in best_last}


def _why_unsure(log: ShownLog) -> str:
    """Return a text about lines whose times lack a certain day; may be empty."""
    if log.day_unknown:
        return translate(
            ": lines up to {day_unknown} have no date, and their day is not certain",
            day_unknown=log.day_unknown,
        )
    return ""


class LogScreen(LogKeys):
    """The log of a box."""

    PLACE = "log"
    KEYS: ClassVar[tuple[Command, ...]] = (*LOG, *LOG_LINES, *LOG_TARGET, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        super().__init__(fleet, box_name)
        self._typing = ""
        """Purpose of the entry line: ``search``, ``only`` or ``find on the box``."""
        self._sheets: list[LineSheet] = []
        """Shown instead of the log: lines found on the box, then the lines around one of them."""
        self._counted: set[str] = set()
        """Logs whose older lines are being or were counted."""

    def main_widget(self) -> Widget:
        """Return the log pane, which gets the focus when an entry closes."""
        return self.log_pane

    def compose_body(self) -> Iterable[Widget]:
        """Return the log pane."""
        yield LogPane(id="log", margins=True)

    def on_mount(self) -> None:
        """Read the handbook's pages in a worker: own pages may be on a slow disk."""
        super().on_mount()
        self.read_pages()

    @work(group="handbook", exit_on_error=False, description="read the pages of the handbook")
    async def read_pages(self) -> None:
        """Search the log for patterns of the handbook, own pages included."""
        try:
            pages = await asyncio.to_thread(all_pages)
        except HandbookError as error:
            self.hint(str(error), 15.0)
            # An error in the person's own pages must not disable the shipped ones.
            pages = await asyncio.to_thread(shipped_pages)
        if self.is_mounted:
            self.log_pane.know_pages(tuple(pages.values()))

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the new lines."""
        if self.spot is not None and self.spot.log is not None:
            self._wanted_log = self.spot.log
        elif self.spot is not None and self.spot.step is not None and self.box_state is not None:
            self._wanted_log = self._wanted_log or log_with_steps(self.box_state, self.spot.run)
        if self.box_state is not None:
            self.show_log(self.box_state, now)
            self._go_to_spot()

    def show_lines(
        self, box: BoxState, logs: list[KeptLines], now: float, age: float | None, empty: str
    ) -> None:
        """Show the log, or the lines shown instead of it."""
        pane = self.log_pane
        if self._sheets:
            sheet = self._sheets[-1]
            pane.heading = sheet.heading
            if sheet.hits:
                pane.older = ""
            else:
                pane.older = self.describe_older(box, sheet.kept)
            pane.show_logs(
                [sheet.kept],
                now=now,
                age=None,
                empty=translate("nothing found so far"),
                findings=findings_of(box),
            )
            return
        pane.heading = ""
        super().show_lines(box, logs, now, age, empty)
        if logs:
            place = logs[0].oldest_position
        else:
            place = None
        if (
            place is None
            or logs[0].path in self._counted
            or not 0 < place[1].offset <= MOST_COUNTED_BYTES
        ):
            return
        log = self.box_log(logs[0].path)
        if log is not None:
            self.count_older(log, logs[0])

    def box_log(self, path: str | None) -> BoxLog | None:
        """Return access to a log on its box; None if the box cannot be asked."""
        if path is None or self.box_name is None:
            return None
        return self.fleet.box_log(self.box_name, path)

    def describe_older(self, box: BoxState, kept: KeptLines) -> str:
        """Return a text about the lines before the loaded ones."""
        if kept.oldest_position is None or self.box_log(kept.path) is None:
            return super().describe_older(box, kept)
        offset, before = kept.oldest_position[1].offset, kept.lines_before
        if offset == 0 or before == 0:
            return ""
        if before is None:
            amount = size_or_dash(offset)
        else:
            amount = format_thousands(before)
        return translate(
            "{amount} older on the box: {key}", amount=amount, key=key_for("move.page-up")
        )

    def _go_to_spot(self) -> None:
        """Go to the line that the screen was opened for, once it is loaded."""
        spot, rows = self.spot, self.log_pane.shown_rows
        if spot is None or rows is None or not len(rows):
            return
        shown = rows.logs[0]
        kept = shown.kept
        # The wanted log is not shown yet.
        if spot.log is not None and kept.path != spot.log:
            return
        self.spot = None
        number = shown.line_at(spot)
        log = self.box_log(kept.path)
        # First the lines kept here, then the box: by line number, by text, by time.
        if number is not None:
            self.log_pane.go_to_line(kept, number)
        elif spot.line_no is not None and log is not None:
            self.query_box(
                translate("line {line_no:,} is not known", line_no=spot.line_no),
                self._open_line,
                log,
                spot.line_no,
            )
        elif spot.text and log is not None:
            self.query_box(
                translate("not searched"), self._find_on_box, log, re.escape(spot.text.strip())
            )
        elif spot.at is not None and log is not None and kept.oldest_position is not None:
            self.query_box(translate("no older lines"), self._load_until, log, shown, spot)
        elif spot.text or spot.line_no is not None or spot.at is not None:
            why = _why_unsure(shown)
            seconds = HINT_SECONDS
            if why:
                seconds = 15.0
            self.hint(translate("that line is not among those kept here{why}", why=why), seconds)

    # Search and filter

    def action_search(self) -> None:
        """Open the entry line of the search."""
        self._start_typing("search", self.log_pane.searched_text)

    def action_filter(self) -> None:
        """Open the entry line of the filter."""
        self._start_typing("only", self.log_pane.filtered_text)

    def _start_typing(self, what: str, text: str) -> None:
        self._typing = what
        self.open_entry(translate(what), text, self._find_typed, self._try_typed)

    def _apply_typed(self, text: str) -> str:
        if self._typing == "find on the box":
            if text:
                return finder_for(text).trouble
            return ""
        if self._typing == "search":
            return self._apply_search(text)
        return self.log_pane.filter_by(text)

    def _apply_search(self, text: str) -> str:
        """Start or end a search; return the error in the text, if any."""
        trouble = self.log_pane.search_for(text)
        # The keys for matches are offered during a search only.
        self.query_one(KeyLine).show_commands(self.offered())
        return trouble

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; without a search there is no next match."""
        if command.id in OF_A_SEARCH and self.is_mounted and not self.log_pane.searched_text:
            return translate("no active search")
        return super().why_not(command)

    def _try_typed(self, text: str) -> None:
        """Search while typing, and show the error in the text."""
        trouble = self._apply_typed(text)
        for entry in self.query(EntryLine):
            entry.show_note(trouble)

    def _find_typed(self, text: str) -> None:
        """Go to the newest match; an empty text ends the search or filter."""
        trouble = self._apply_typed(text)
        if not text:
            return
        log = self.box_log(self.log_pane.log_path)
        if self._typing == "find on the box" and log is not None:
            self.query_box(translate("not searched"), self._find_on_box, log, text)
        elif self._typing == "search":
            self.log_pane.next_match(-1, self.hint)
        if trouble:
            self.hint(trouble)

    def action_next_match(self, direction: int) -> None:
        """Go to the next or previous match."""
        if not self.log_pane.searched_text:
            self.hint(translate("no active search; {key} starts one", key=key_for("log.search")))
            return
        self.log_pane.next_match(direction, self.hint)

    # Lines that are only on the box

    def action_page(self, count: int) -> None:
        """Move by pages.

        Load older lines above the first one, newer ones below a chunk's last one.
        """
        pane = self.log_pane
        if self._sheets:
            sheet = self._sheets[-1]
        else:
            sheet = None
        # The last line of a chunk is not the last one of the log: more can be loaded below it.
        if pane.move_by(count * pane.page_rows) and not (sheet and pane.cursor.following):
            return
        if len(pane.shown_logs) != 1:
            if count < 0 and pane.shown_logs:
                self.hint(
                    translate(
                        "older lines can be loaded for one log only; {key} ends the merge",
                        key=key_for("log.merge"),
                    )
                )
            return
        if sheet is not None and sheet.hits:
            return
        shown = pane.shown_logs[0]
        log = self.box_log(shown.kept.path)
        if log is None:
            if count < 0:
                self.hint(translate("this is the first line kept here"))
        elif count < 0:
            self.query_box(translate("no older lines"), self._load_older, log, shown)
        elif sheet is not None:
            self.query_box(translate("no newer lines"), self._load_newer, log, shown.kept)

    def query_box(
        self, failed: str, job: Callable[..., Coroutine[None, None, None]], *args: object
    ) -> None:
        """Start a job that reads a log on the box, and end the previous one; show why it failed."""

        async def run_job() -> None:
            try:
                await job(*args)
            except NothingOlder as reason:
                self.hint(str(reason))
            except Exception as error:  # the screen must survive any answer of a box
                self.hint(f"{failed}: {error}", 15.0)

        self.run_worker(run_job(), group="box log", exclusive=True, exit_on_error=False)

    async def _load_older(self, log: BoxLog, shown: ShownLog) -> None:
        """Load the lines before the loaded ones, and go up a page."""
        await self._read_older(log, shown)
        self.log_pane.move_by(-self.log_pane.page_rows)
        self.hint(translate("{kept} are kept here now", kept=how_many(len(shown.kept), "line")))
        self.redraw_now()

    async def _read_older(self, log: BoxLog, shown: ShownLog) -> None:
        self.hint(translate("loading older lines from the box …"), 30.0)
        shown.forget_before(await log.load_older(shown.kept))

    async def _load_until(self, log: BoxLog, shown: ShownLog, spot: ScreenPosition) -> None:
        """Load older lines until those of a moment are there, at most `MOST_BACK` chunks."""
        with suppress(NothingOlder):
            for _ in range(MOST_BACK):
                await self._read_older(log, shown)
                place = shown.line_at(spot)
                if place is not None:
                    self.hint("")
                    self.redraw_now()
                    self.log_pane.go_to_line(shown.kept, place)
                    return
        why = _why_unsure(shown) or translate(": their times are unknown, or it is older")
        self.hint(translate("that line was not found{why}", why=why), 15.0)
        self.redraw_now()

    async def _load_newer(self, log: BoxLog, kept: KeptLines) -> None:
        """Load the lines after the loaded chunk."""
        last = kept.end - 1
        count = await log.load_newer(kept)
        self.redraw_now()
        # The reader stays where the previous chunk ended.
        self.log_pane.go_to_line(kept, last)
        text = ""
        if not count:
            text = translate(
                "this is the end of the log; {key} or {key_2} goes to the newest line",
                key=key_for("screen.escape"),
                key_2=key_for("log.follow"),
            )
        self.hint(text)

    @work(
        group="count", exclusive=True, exit_on_error=False, description="count older lines of a log"
    )
    async def count_older(self, log: BoxLog, kept: KeptLines) -> None:
        """Count the older lines on the box."""
        self._counted.add(kept.path)
        try:
            await log.count_older(kept)
        except Exception:  # their size is shown instead
            return
        self.redraw_now()

    async def _open_around(self, log: BoxLog, place: FilePlace) -> None:
        """Show the lines around an offset of a log."""
        kept, number, total = await log.read_around(place)
        name = log.path.rpartition("/")[2]
        self._sheets.append(
            LineSheet(
                kept,
                translate(
                    "{name} at {offset} of {total}",
                    name=name,
                    offset=size_or_dash(place.offset),
                    total=size_or_dash(total),
                ),
            )
        )
        self.redraw_now()
        self.log_pane.go_to_line(kept, number)

    async def _open_line(self, log: BoxLog, line_no: int) -> None:
        """Show the lines around a line number."""
        place = await log.find_line(line_no)
        # This replaces the running job, which ends here.
        self.query_box(translate("no lines from there"), self._open_around, log, place)

    def action_find(self) -> None:
        """Open the entry for a search in the complete log on the box."""
        if self.box_log(self.log_pane.log_path) is None:
            self.hint(
                translate(
                    "only a box that is connected can be searched; {key} searches the lines kept "
                    "here",
                    key=key_for("log.search"),
                )
            )
        else:
            self._start_typing("find on the box", self.log_pane.searched_text)

    async def _find_on_box(self, log: BoxLog, wanted: str) -> None:
        """Search the complete log on the box; matches are listed as they arrive."""
        mine: list[LineSheet] = []
        at_first: list[LineSheet] = []

        def show_sheet(sheet: LineSheet) -> None:
            if not mine:
                self._sheets = [sheet]
                mine.append(sheet)
            elif sheet not in self._sheets:
                # The found lines were closed meanwhile.
                return
            self.redraw_now()
            if sheet.hits and not at_first:
                at_first.append(sheet)
                self.log_pane.go_to_line(sheet.kept, 0)  # the newest

        try:
            await search_box(log, wanted, show_sheet)
        except Exception:
            self._sheets = [sheet for sheet in self._sheets if sheet not in mine]
            self.redraw_now()
            raise

    def action_follow(self) -> None:
        """Leave the found lines, and follow the end of the log."""
        if self._sheets:
            # Otherwise the job would show its lines again.
            self.workers.cancel_group(self, "box log")
            self._sheets = []
            self.redraw_now()
        super().action_follow()

    # How the lines are shown

    def action_toggle_wrap(self) -> None:
        """Wrap or cut long lines."""
        self.log_pane.wrap = not self.log_pane.wrap
        self.log_pane.redraw()

    def action_sideways(self, direction: int) -> None:
        """Scroll cut lines sideways."""
        self.log_pane.scroll_sideways(direction)

    def action_times(self) -> None:
        """Switch the times before the lines."""
        pane = self.log_pane
        pane.times = TIMES[(TIMES.index(pane.times) + 1) % len(TIMES)]
        self.hint(
            {
                "": translate("no times"),
                "clock": translate("when each line was written"),
                "age": translate("how old each line is"),
            }[pane.times]
        )
        pane.redraw()

    def action_merge(self) -> None:
        """Merge another log of the box into the view; after the last one, show this log only."""
        box = self.box_state
        if box is not None:
            others = [view.path for view in box.logs if view.path != self.log_pane.log_path]
        else:
            others = []
        more = [path for path in others if path not in self._merged]
        if not others:
            self.hint(translate("the box has no other log"))
            return
        # Stays the first one, also when another cell starts.
        self._wanted_log = self.log_pane.log_path
        if more:
            self._merged = (*self._merged, more[0])
        else:
            self._merged = ()
        self.redraw_now()

    # The selected line, and the screens that open from it

    def action_select(self) -> None:
        """Start or end the selection of several lines."""
        pane = self.log_pane
        if pane.shown_rows is not None:
            pane.cursor.set_selecting(pane.shown_rows, not pane.cursor.is_selecting)
            pane.redraw()

    def action_select_more(self, count: int) -> None:
        """Select one more line."""
        pane = self.log_pane
        if pane.shown_rows is not None:
            if not pane.cursor.is_selecting:
                pane.cursor.set_selecting(pane.shown_rows, True)
            pane.move_by(count)

    def to_copy(self) -> ClipboardText | None:
        """Return the selected lines."""
        rows = self.log_pane.chosen_lines()
        if rows:
            return ClipboardText(what=how_many(len(rows), "line"), text="\n".join(rows))
        return None

    def action_open_page(self) -> None:
        """Open the handbook page for the selected line, or the lines around a found one."""
        place = self.log_pane.cursor_place
        if self._sheets:
            sheet = self._sheets[-1]
        else:
            sheet = None
        log = self.box_log(self.log_pane.log_path)
        if (
            log is not None
            and sheet
            and sheet.hits
            and place is not None
            and place[0] is sheet.kept
        ):
            self.query_box(
                translate("no lines from there"), self._open_around, log, sheet.hits[place[1]]
            )
            return
        if place is not None:
            page = self.log_pane.page_of(*place)
        else:
            page = None
        if page is None:
            self.hint(
                translate(
                    "the handbook has no page for this line; {key} goes to the next error",
                    key=key_for("log.next-error"),
                )
            )
        else:
            cast("Dashboard", self.app).open_screen(
                "handbook", self.box_name, ScreenPosition(gotcha=page)
            )

    def find_shell_command(self, box: BoxState) -> str:
        """Return the command that shows the log in the box's pager, at the selected line."""
        here = self.log_pane.cursor_place
        if here is None:
            return super().find_shell_command(box)
        kept, number = here
        if not is_exact_path(kept.path):
            raise CannotOpenShell(translate("this log has a name that a shell cannot be given"))
        before = kept.lines_before
        # Without the count of earlier lines, its number in the file is unknown.
        if before is None:
            return page_from(kept.path, None)
        return page_from(kept.path, before + number - kept.first_number + 1)

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the box; the curves at the step in the selected line."""
        here = self.log_pane.cursor_place
        if place == "curves" and here is not None and self.box_state is not None:
            step = step_of(here[0].read_line(here[1]))
            run = run_of(self.box_state, here[0].path)
            # While following, no line was chosen.
            if step is not None and not self.log_pane.cursor.following:
                cast("Dashboard", self.app).open_screen(
                    place, self.box_name, ScreenPosition(run=run, step=step)
                )
                return
        super().action_open_for_box(place)

    def clear_on_escape(self) -> bool:
        """Clear the selection, or the search, or the filter, else leave the found lines."""
        pane = self.log_pane
        if pane.cursor.is_selecting and pane.shown_rows is not None:
            pane.cursor.set_selecting(pane.shown_rows, False)
            pane.redraw()
            return True
        if pane.searched_text:
            self._apply_search("")
            return True
        if pane.filtered_text:
            pane.filter_by("")
            return True
        if self._sheets:
            self.workers.cancel_group(self, "box log")
            self._sheets.pop()
            self.redraw_now()
            return True
        return False
