"""Searches a run's log for handbook pages, and for lines that show that the run continued."""

from __future__ import annotations

import functools
import itertools
import posixpath
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from rgt_tui.handbook import (
    HandbookPage,
    LineHit,
    LiteralSearch,
    hits_of,
    in_order,
    states_of,
    went_on,
)
from rgt_tui.health.handbook import run_pages
from rgt_tui.model import BoxState, Checkpoint, FrozenStruct, LogView, QueueCell, RunState
from rgt_tui.profiles import find_redone_cells


class SearchLimits(FrozenStruct):
    """How much of a log is searched, to bound the cost."""

    window: int = 60
    """Lines from the end of a log that are searched."""
    line_characters: int = 1000
    """Characters of a line that are searched; longer lines are cut."""
    states: int = 40
    """Newest states that are searched of a line that rewrites itself with carriage returns."""
    owners: int = 4096
    """How many logs are remembered, the most recently searched ones."""


SEARCH_LIMITS = SearchLimits()


_SAVED = re.compile(
    r"(?i)\bcheckpoint (?:saved|published|recovered|written)\b|\bsaved (?:the )?(?:checkpoint"
    r"|ckpt)\b"
    r"|^(?:\S+ )?checkpoint \d[\d,]* "
)
_STEP = re.compile(
    r"(?i)\bloss['\"]?(?:\s*[=:|]\s*|\s+)(?:tensor\()?[-+]?\d|(?<!\d)\d+/\d+ \[\d[\d:]*<"
)
_RESUME = re.compile(r"(?i)\bresum(?:ed|ing) (?:from|at)\b|^(?:\S+ )?resume: at step \d")
_FAILED_STEP = re.compile(r"(?:checkpoint save failed|^holding|^giving up) at step (\d[\d,]*)")
_LAST_GOOD = re.compile(r"last good checkpoint is step (\d[\d,]*)")
# In the order of the fields that `_build_scan` unpacks, and of `_WORDS`.
_MARKS = (_SAVED, _STEP, _RESUME, _FAILED_STEP, _LAST_GOOD)
_WORDS = (
    ("checkpoint", "saved"),
    ("loss", "["),
    ("resum",),
    (" at step ",),
    ("last good checkpoint",),
)
"""Per pattern of `_MARKS`, lower-case words of which one occurs in every match."""


class WindowHit(LineHit, frozen=True, kw_only=True):
    """An entry that matched; `line_no` counts lines within the window, from 0."""

    row: int
    """Its index among the rows of the window: a line that rewrites itself has several rows."""


class LogScan(FrozenStruct):
    """What a window shows. Positions are row numbers, -1 = none."""

    hits: tuple[WindowHit, ...] = ()
    """All matches, by entry."""
    went_on: int = -1
    """Newest line that shows that an operation retried automatically has succeeded."""
    saved: int = -1
    """Newest line that reports a saved checkpoint."""
    step: int = -1
    """Newest line with a finite loss, or a progress bar."""
    passed: int = -1
    """Newest line after which there are two more steps: a failure before it is outlived."""
    resume: int = -1
    """Newest line that reports a resume: earlier lines belong to an earlier attempt."""
    failed_step: int | None = None
    last_good: int | None = None


def searched_window(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the end of a log that is searched."""
    return lines[-SEARCH_LIMITS.window :]


def scan_log(lines: tuple[str, ...], owner: Hashable = None) -> LogScan:
    """Search `lines` (oldest first) for every entry of the handbook.

    Args:
        lines: The window.
        owner: Identifies the log, such as box and path: lines searched for this owner before are
            not searched again. None = nothing is remembered.
    """
    if owner is not None:
        known = _SEARCHED.get(owner)
    else:
        known = None
    if known is None:
        known = _SearchedWindow()
    elif known.lines == lines:
        return known.scan
    found = _search_appended(known, lines) or _search_window(known, lines)
    if owner is not None:
        # Removed and added again, so that the dictionary's order is that of the last use.
        _SEARCHED.pop(owner, None)
        _SEARCHED[owner] = found
        if len(_SEARCHED) > SEARCH_LIMITS.owners:
            del _SEARCHED[next(iter(_SEARCHED))]
    return found.scan


Report = tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
"""The matches of one line, per row because a line that rewrites itself has several: its marks, as
indexes of `_MARKS`, and the ids of entries that it may match.
"""


class _SearchedWindow(FrozenStruct):
    """The window of a log at its last search."""

    lines: tuple[str, ...] = ()
    reports: tuple[Report, ...] = ()
    scan: LogScan = LogScan()
    calm: bool = False
    """No line may match an entry or names a step: the window has marks and nothing else."""


_SEARCHED: dict[Hashable, _SearchedWindow] = {}
_SAME: dict[Report, Report] = {}
"""Interns equal reports: nearly all lines of all logs have one of a handful of reports."""


def _search_window(known: _SearchedWindow, lines: tuple[str, ...]) -> _SearchedWindow:
    """Search a window, except lines that were searched before."""
    # By identity: the agent's lines are kept as they came, and `known.lines` keeps the ids valid.
    before = {id(line): said for line, said in zip(known.lines, known.reports, strict=True)}
    new = iter(_build_reports([line for line in lines if id(line) not in before]))
    reports = tuple(before.get(id(line)) or next(new) for line in lines)
    newest, suspects = _newest_marks(reports)
    calm = _is_calm(newest, suspects)
    saved, step, resume, *_ = newest
    if calm:
        found = LogScan(saved=saved, step=step, resume=resume)
    else:
        found = msgspec.structs.replace(
            _build_scan(lines, newest, suspects), passed=_find_passed_row(reports)
        )
    return _SearchedWindow(lines, reports, found, calm)


def _find_passed_row(reports: tuple[Report, ...]) -> int:
    """Return the row of the third step from the end; -1 = there are fewer."""
    # The row itself and two later steps, see `passed`.
    enough = 3
    place = _MARKS.index(_STEP)
    steps = [
        row
        for row, (marks, _) in enumerate(itertools.chain.from_iterable(reports))
        if place in marks
    ]
    if len(steps) < enough:
        return -1
    return steps[-enough]


def _search_appended(known: _SearchedWindow, lines: tuple[str, ...]) -> _SearchedWindow | None:
    """Search the lines appended to a calm window; None if the window is not such a continuation.

    This is the usual case: everything found before has moved up by as many rows as were dropped.
    """
    if not known.calm or not lines or lines[0] not in known.lines:
        return None
    # With repeated lines this may be the wrong place: then the comparison below fails, and all is
    # read.
    gone = known.lines.index(lines[0])
    kept = known.lines[gone:]
    if lines[: len(kept)] != kept:
        return None
    stays, more = known.reports[gone:], _build_reports(lines[len(kept) :])
    newest, suspects = _newest_marks(more)
    if not _is_calm(newest, suspects):
        return None
    # In rows, not lines: a progress bar is one line with many rows.
    up, first = sum(map(len, known.reports[:gone])), sum(map(len, stays))
    before = known.scan.saved, known.scan.step, known.scan.resume
    # A mark of the new rows counts; one of the old rows moves up, at -1 it has left the window.
    saved, step, resume = (
        place + first if place >= 0 else max(-1, old - up)
        for place, old in zip(newest, before, strict=False)
    )
    return _SearchedWindow(
        lines, stays + more, LogScan(saved=saved, step=step, resume=resume), calm=True
    )


def _build_reports(lines: Sequence[str]) -> tuple[Report, ...]:
    """Return the report of each line.

    Patterns that match nowhere in the text are not tried per line.
    """
    found = [_split_states(line) for line in lines]
    rows = list(itertools.chain.from_iterable(found))
    # All rows in one text: most patterns are ruled out by one search instead of one per row.
    low = "\n".join(rows).lower()
    marks = [place for place in range(len(_MARKS)) if _may_have(low, place)]
    suspects = _run_lookout().suspect_rows(rows)
    said = ((_find_marks(row, marks), suspects.get(number, ())) for number, row in enumerate(rows))
    most_reports = 1000
    # Cleared whole: it is only a cache, and reports in use stay with their windows.
    if len(_SAME) > most_reports:
        _SAME.clear()
    reports = (tuple(itertools.islice(said, len(texts))) for texts in found)
    return tuple(_SAME.setdefault(report, report) for report in reports)


def _split_states(line: str) -> list[str]:
    return [
        row[: SEARCH_LIMITS.line_characters]
        # A newline inside a line separates states of it, like a carriage return.
        for row in states_of(line.replace("\n", "\r"))[-SEARCH_LIMITS.states :]
    ]


@functools.cache
def _run_lookout() -> LiteralSearch:
    return LiteralSearch(run_pages())


def _find_marks(row: str, marks: Iterable[int]) -> tuple[int, ...]:
    low = row.lower()
    return tuple(place for place in marks if _may_have(low, place) and _MARKS[place].search(row))


def _may_have(low: str, mark: int) -> bool:
    # A non-ASCII letter may match an ASCII one in a pattern, such as the Kelvin sign.
    return not low.isascii() or any(word in low for word in _WORDS[mark])


def _newest_marks(reports: tuple[Report, ...]) -> tuple[list[int], set[str]]:
    """Return the last row of each mark, and the ids of the entries that some row may match."""
    newest = [-1] * len(_MARKS)
    suspects: set[str] = set()
    for i, (marks, ids) in enumerate(row for report in reports for row in report):
        for mark in marks:
            newest[mark] = i
        suspects.update(ids)
    return newest, suspects


def _is_calm(newest: list[int], suspects: set[str]) -> bool:
    _, _, _, failed, good = newest
    return not suspects and failed < 0 and good < 0


def _build_scan(lines: tuple[str, ...], newest: list[int], suspects: set[str]) -> LogScan:
    saved, step, resume, failed, good = newest
    texts = [_split_states(line) for line in lines]
    rows = list(itertools.chain.from_iterable(texts))
    line_of = [number for number, states in enumerate(texts) for _ in states]
    pages = [page for page in run_pages() if page.id in suspects]
    hits = tuple(
        # Reuse the stored string if there is no blank around it.
        WindowHit(
            id=hit.id,
            line=rows[at].strip(),
            text=hit.text,
            name=hit.name,
            frame=hit.frame,
            row=at,
            line_no=line_of[at],
        )
        for hit in _iterate_hits(rows, pages)
        for at in (hit.line_no,)
    )
    # Only pages that know a sign of success need this search.
    if any(page.passing for page in pages):
        newer = went_on("\n".join(rows), len(rows) - 1)
    else:
        newer = -1
    return LogScan(
        hits=hits,
        went_on=line_of[newer] if newer >= 0 else -1,
        saved=saved,
        step=step,
        resume=resume,
        failed_step=_last_number(_FAILED_STEP, rows, failed),
        last_good=_last_number(_LAST_GOOD, rows, good),
    )


def _iterate_hits(rows: Sequence[str], pages: Iterable[HandbookPage]) -> Iterator[LineHit]:
    written = in_order(enumerate(rows))
    text = "\n".join(row.text for row in written)
    return itertools.chain.from_iterable(hits_of(page, written, text) for page in pages)


def _last_number(pattern: re.Pattern[str], rows: list[str], at: int) -> int | None:
    if at >= 0:
        return int(pattern.findall(rows[at])[-1].replace(",", ""))
    return None


class LogCase(FrozenStruct):
    """One log to inspect, with the cell and the run that wrote it."""

    box: BoxState
    view: LogView
    scan: LogScan
    cell: QueueCell | None
    run: RunState | None
    checkpoints: tuple[Checkpoint, ...]
    """Newest last."""
    name: str | None = None
    """Name of the run: the cell, or the found training that prints there; None = a log of neither.
    """

    @property
    def log_path(self) -> str:
        """Its path."""
        return self.view.path

    def line_no(self, hit: LineHit) -> int | None:
        """Return the line number of a hit in the log, from 1.

        None if earlier lines were not counted.
        """
        if not self.view.counted:
            return None
        return (
            self.view.dropped
            # The view keeps more lines than are searched.
            + max(0, len(self.view.lines) - SEARCH_LIMITS.window)
            + hit.line_no
            + 1
        )

    @property
    def goes_on(self) -> bool:
        """Whether the run may still be active: nothing shows that it has ended."""
        return self.cell is None or self.cell.state == "running"

    @property
    def last_good(self) -> int | None:
        """Step of the newest good checkpoint, as published, else as logged."""
        if self.checkpoints:
            step = self.checkpoints[-1].step
        else:
            step = None
        if step is None:
            return self.scan.last_good
        return step


def iterate_cases(box: BoxState) -> Iterator[LogCase]:
    """Yield the logs of `box` that can reveal something about unfinished work.

    A log that belongs to neither a cell nor a found training counts only on a box without a queue.
    Elsewhere it is history (``master.log``), and an old line in it must not look new.
    """
    cells = [cell for queue in box.queues for cell in queue.cells]
    over = find_redone_cells(box)
    past = {
        cell.log for queue in box.queues for cell in queue.cells if (queue.path, cell.name) in over
    }
    runs = {run.name: run for run in box.runs}
    kept = {entry.run: entry.items for entry in box.checkpoints}
    found_in = {
        log: run.name for run in box.found for log in (*run.logs, run.log) if log is not None
    }
    for view in box.logs:
        cell = _find_owner(view, cells)
        name = cell.name if cell is not None else found_in.get(view.path)
        if name is None and cells:
            continue
        if cell is not None and (
            # A log of a done cell has old errors that it got over.
            cell.state not in ("running", "failed", "interrupted") or cell.log in past
        ):
            continue
        if name is not None:
            run = runs.get(name)
        else:
            run = None
        found = scan_log(searched_window(view.lines), (box.spec.name, box.spec.host, view.path))
        yield LogCase(box, view, found, cell, run, kept.get(name or "", ()), name)


def _find_owner(view: LogView, cells: list[QueueCell]) -> QueueCell | None:
    stem = posixpath.splitext(posixpath.basename(view.path))[0]
    # By path first: the name alone may also fit another queue's log.
    for cell in cells:
        if view.path == cell.log or (cell.out and view.path.startswith(cell.out.rstrip("/") + "/")):
            return cell
    return next((cell for cell in cells if cell.name == stem), None)
