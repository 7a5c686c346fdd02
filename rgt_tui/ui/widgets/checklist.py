"""The six phases and their checks, with two widgets that show the proved ones and the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from textual import events
from textual.message import Message

from rgt_tui.health import PHASES
from rgt_tui.model import CheckResult, CheckStatus, noun
from rgt_tui.profiles import how_many
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import compact_time, glyphs
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import out_of_sight
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip,
    dim,
    fit,
    labelled,
    line,
    wrapped,
)

WORDS = {
    CheckStatus.PASSED: "proved",
    CheckStatus.FAILED: "failed",
    CheckStatus.WARN: "warning",
    CheckStatus.WAITING: "waiting",
    CheckStatus.PERSON: "you",
}
RAIL = 19
"""Columns of the phases at the left."""
WORDY = 96
"""Minimum width to show each check's status as a word, too."""


@dataclass(frozen=True)
class Phase:
    """One phase with its checks, in the order of their ids."""

    number: int
    checks: tuple[CheckResult, ...]

    @property
    def name(self) -> str:
        """The phase's name."""
        if 0 <= self.number < len(PHASES):
            return PHASES[self.number]
        return f"phase {self.number}"

    @property
    def proved(self) -> int:
        """Number of checks that passed."""
        return sum(check.status is CheckStatus.PASSED for check in self.checks)

    @property
    def status(self) -> CheckStatus:
        """The worst status of its checks; passed only if all passed."""
        found = {check.status for check in self.checks}
        for status in (
            CheckStatus.FAILED,
            CheckStatus.WARN,
            CheckStatus.WAITING,
            CheckStatus.PERSON,
        ):
            if status in found:
                return status
        if found:
            return CheckStatus.PASSED
        return CheckStatus.WAITING

    @property
    def wants_a_look(self) -> bool:
        """Whether a check in it failed or warns."""
        return self.status in {CheckStatus.FAILED, CheckStatus.WARN}


@dataclass(frozen=True)
class Row:
    """A line of the list: the heading of a phase, or one of its checks."""

    phase: Phase
    check: CheckResult | None = None

    @property
    def key(self) -> str:
        """Unique key of the line."""
        if self.check is not None:
            return self.check.id
        return f"phase {self.phase.number}"


MOST_KEPT = 5_000
"""Maximum lines kept of a run's output; the oldest are dropped."""


@dataclass
class CheckRun:
    """A check that was run on request."""

    command: str
    began: float
    """Client clock."""
    lines: list[str] = field(default_factory=list)
    ended: float | None = None
    status: int | None = None
    """None while it runs, and if it was stopped or could not start."""
    words: str = ""
    """Why it has no status."""

    @property
    def under_way(self) -> bool:
        """Whether it is still running."""
        return self.ended is None

    def take(self, row: str) -> None:
        """Append a line of output."""
        self.lines.append(row)
        if len(self.lines) > MOST_KEPT:
            del self.lines[: MOST_KEPT // 5]


def run_lines(run: CheckRun, width: int, height: int, now: float) -> list[Line]:
    """Draw a run: its command, its newest lines of output, and its state."""
    took = compact_time(max(0.0, (run.ended if run.ended is not None else now) - run.began))
    if run.under_way:
        foot = line(
            Span(f"runs for {took}", Tone.ACCENT), dim(f"   {key_for('screen.escape')} ends it")
        )
    elif run.status is None:
        foot = line(Span(f"{run.words or 'no status'}, after {took}", Tone.WARN))
    else:
        tone = Tone.TEXT if run.status == 0 else Tone.WARN
        foot = line(
            Span(f"exit status {run.status}", tone),
            dim(
                f"   after {took}   {key_for('screen.copy')} copies   {key_for('phases.run')} runs it again"
            ),
        )
    room = max(1, height - 2)
    kept = [wrapped(row, width) for row in run.lines[-room:]]
    body = [made for rows in kept for made in rows][-room:]
    return [line(dim("$ "), run.command), *body, foot]


def phases_of(checks: Iterable[CheckResult]) -> tuple[Phase, ...]:
    """Group checks by phase. The six phases always exist, even without checks."""
    found: dict[int, list[CheckResult]] = {number: [] for number in range(len(PHASES))}
    for check in checks:
        found.setdefault(check.phase, []).append(check)
    return tuple(
        Phase(number, tuple(sorted(found[number], key=_order))) for number in sorted(found)
    )


def _order(check: CheckResult) -> tuple[list[int], str]:
    return [
        int(part) for part in check.id.split(".") if part.isascii() and part.isdigit()
    ], check.id


def next_check(phases: Sequence[Phase]) -> CheckResult | None:
    """Return the check to work on: the first failed one, else the first that is not proved yet."""
    checks = [check for phase in phases for check in phase.checks]
    failed = (check for check in checks if check.status is CheckStatus.FAILED)
    return next(
        failed, next((check for check in checks if check.status is not CheckStatus.PASSED), None)
    )


def rows_of(phases: Sequence[Phase], opened: frozenset[int], *, closed_too: bool) -> list[Row]:
    """Return the lines of the list: open phases with their checks, closed ones if `closed_too`."""
    rows: list[Row] = []
    for phase in phases:
        if phase.number in opened:
            rows.append(Row(phase))
            rows.extend(Row(phase, check) for check in phase.checks)
        elif closed_too:
            rows.append(Row(phase))
    return rows


def mark(status: CheckStatus) -> Span:
    """Return the glyph of a status. Green means proved, and nothing else."""
    g = glyphs()
    return {
        CheckStatus.PASSED: Span(g.check, Tone.PROVED),
        CheckStatus.FAILED: Span(g.trouble, Tone.TROUBLE),
        CheckStatus.WARN: Span(g.warn, Tone.WARN),
        CheckStatus.WAITING: Span(g.unknown, Tone.DIM),
        CheckStatus.PERSON: Span(g.person, Tone.STRONG),
    }[status]


def summary_parts(phases: Sequence[Phase]) -> Parts:
    """Return the header's right end: ``23 of 31 proved   2 failed   6 need you   next: 4.3``."""
    checks = [check for phase in phases for check in phase.checks]
    count = {status: sum(check.status is status for check in checks) for status in CheckStatus}
    parts: Parts = [(2, line(Span(f"{count[CheckStatus.PASSED]} of {len(checks)} proved")))]
    if count[CheckStatus.FAILED]:
        parts.append(
            (1, line(Span(f"{glyphs().trouble} {count[CheckStatus.FAILED]} failed", Tone.TROUBLE)))
        )
    if count[CheckStatus.WARN]:
        many = count[CheckStatus.WARN]
        parts.append((4, line(Span(f"{glyphs().warn} {how_many(many, 'warning')}", Tone.WARN))))
    if count[CheckStatus.PERSON]:
        many = count[CheckStatus.PERSON]
        parts.append((5, line(Span(f"{many} {noun(many, 'needs', 'need')} you"))))
    first = next_check(phases)
    parts.append(
        (4, line(dim("next: "), first.id) if first is not None else line(dim("nothing left")))
    )
    return parts


def rail_line(phase: Phase, *, opened: bool) -> Line:
    """Draw a phase in the rail."""
    if phase.wants_a_look:
        tone = Tone.STRONG
    elif opened:
        tone = Tone.TEXT
    else:
        tone = Tone.DIM
    count = f"{phase.proved}/{len(phase.checks)}" if phase.checks else glyphs().dash
    return line(
        " ",
        mark(phase.status),
        Span(f" {phase.number} {fit(phase.name, 8)}", tone),
        dim(f"{count:>6}"),
    )


LONGEST_TITLE = 64


def row_line(row: Row, width: int, now: float, *, opened: bool, longest: int = 40) -> Line:
    """Draw a heading or a check.

    Args:
        row: One of `rows_of`.
        width: Cells.
        now: Client clock.
        opened: Whether the phase is open.
        longest: Cells of the longest title in the list.
    """
    if row.check is None:
        g = glyphs()
        fold = g.opened if opened else g.closed
        text = (
            f"{row.phase.proved}/{len(row.phase.checks)}"
            if row.phase.checks
            else "nothing to check"
        )
        name = Span(f" {row.phase.number} {row.phase.name:<9}", Tone.STRONG)
        return line(dim(f"{fold} "), mark(row.phase.status), name, dim(text))
    check = row.check
    quiet = check.status is CheckStatus.WAITING
    wordy = width >= WORDY
    said = "ticked" if check.by else WORDS[check.status]
    title = min(longest, max(12, int(width * 0.4)))
    word = f"{said:<8}" if wordy else ""
    age = age_of(check, now)
    room = max(4, width - title - len(word) - 18)
    told = f"{check.evidence} {glyphs().dot} {check.advice}" if check.advice else check.evidence
    loud = check.status in {CheckStatus.FAILED, CheckStatus.WARN}
    return line(
        "  ",
        mark(check.status),
        Span(f" {fit(check.id, 4)} ", Tone.DIM),
        Span(fit(check.title, title), Tone.STRONG if loud else (Tone.DIM if quiet else Tone.TEXT)),
        "  ",
        Span(word, Tone.DIM),
        Span(fit(told, room), Tone.TEXT if loud else Tone.DIM),
        dim(f"{age:>7}"),
    )


def age_of(check: CheckResult, now: float) -> str:
    """Return the age of a check's evidence; a dash if it has none."""
    if check.at is None:
        return glyphs().dash
    return compact_time(max(0.0, now - check.at))


def detail_lines(
    row: Row | None, width: int, height: int, now: float, runs: str = ""
) -> list[Line]:
    """Draw the selected line in full; its evidence is cut only if there is no room.

    `runs` is the command that can be run for it.
    """
    if row is None:
        return []
    if row.check is None:
        counts = f"{row.phase.proved} of {len(row.phase.checks)} proved"
        return [line(Span(f"{row.phase.number} {row.phase.name}", Tone.STRONG), "  ", dim(counts))]
    check = row.check
    says = {
        CheckStatus.PASSED: f"ticked by {check.by}" if check.by else "proved",
        CheckStatus.FAILED: "failed",
        CheckStatus.WARN: "warning: proved for now, but not for long",
        CheckStatus.WAITING: "waiting: nothing to check yet",
        CheckStatus.PERSON: "only you can tell",
    }[check.status]
    age = f"evidence {age_of(check, now)} old" if check.at is not None else "no evidence yet"
    head = line(mark(check.status), " ", Span(check.id, Tone.STRONG), "  ", says, dim(f"   {age}"))
    lines = [head, *wrapped(check.title, width, Tone.STRONG)]
    if check.evidence:
        lines += wrapped(check.evidence, width)
    if check.advice:
        lines += labelled("advice", check.advice, width, most=6)
    if runs and len(lines) < height:
        lines.append(line(Span(f"{key_for('phases.run')} runs  ", Tone.ACCENT), runs))
    elif check.command and len(lines) < height:
        lines.append(line(dim("to run  "), check.command))
    if check.by and len(lines) < height:
        lines.append(line(dim(f"{key_for('phases.tick')} takes it back")))
    elif check.status is CheckStatus.PERSON and len(lines) < height:
        lines.append(
            line(
                Span(f"{key_for('phases.tick')} ", Tone.ACCENT),
                dim("ticks it, with a note and your name"),
            )
        )
    if len(lines) <= height:
        return lines
    return [*lines[: height - 1], line(dim(glyphs().ellipsis))]


def then_lines(checks: Iterable[CheckResult], width: int, height: int) -> list[Line]:
    """Draw checks below an empty line, as many as fit, with their full evidence."""
    lines: list[Line] = [EMPTY]
    for check in checks:
        told = f"{check.title}: {check.evidence}" if check.evidence else check.title
        first, *rest = wrapped(told, max(8, width - 8))
        block = [
            line(mark(check.status), Span(f" {fit(check.id, 4)}  ", Tone.DIM), *first),
            *(line(" " * 8, *row) for row in rest),
        ]
        if len(lines) + len(block) > height:
            break
        lines += block
    if len(lines) > 1:
        return lines
    return []


WITH_RAIL = 100
"""Minimum width for the rail of phases; on narrower screens it would cut the checks' text."""


class Checklist(SelectableList[str]):
    """Phases and checks, one of them selected."""

    class Folded(Message):
        """A phase was clicked."""

        def __init__(self, phase: int) -> None:
            super().__init__()
            self.phase = phase

    def __init__(self) -> None:
        super().__init__(id="checks")
        self._phases: Sequence[Phase] = ()
        self._opened: frozenset[int] = frozenset()
        self._now = 0.0

    @property
    def rows(self) -> list[Row]:
        """All selectable lines."""
        return rows_of(self._phases, self._opened, closed_too=self.size.width < WITH_RAIL)

    @property
    def cursor_row(self) -> Row | None:
        """The selected line."""
        return next((row for row in self.rows if row.key == self._picked), None)

    def show_phases(
        self,
        phases: Sequence[Phase],
        opened: frozenset[int],
        now: float,
        empty: Sequence[str] = (),
    ) -> None:
        """Set the phases, or the lines `empty` to show if there are none."""
        self._phases, self._opened, self._now = phases, opened, now
        self._empty = [
            line("  ", Span(text, Tone.DIM if place else Tone.TEXT))
            for place, text in enumerate(empty)
        ]
        self._keys = [row.key for row in self.rows]
        self.redraw()

    def below(self, height: int) -> int:
        """Return how many lines are hidden below the list at this height."""
        rows = len(self.rows)
        self.keep_in_sight(self.index, rows, height)
        return max(0, rows - self._top - height)

    @property
    def selected_from(self) -> int:
        """First column of the list; the rail before it shows phases, not the selected check."""
        return self.rail

    @property
    def rail(self) -> int:
        """Columns of the rail; 0 on a narrow screen."""
        if self.size.width >= WITH_RAIL:
            return RAIL + 2
        return 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw both columns."""
        self._owners = ()
        if self._empty:
            return [EMPTY, *self._empty]
        rows = self.rows
        self._keys = [row.key for row in rows]
        self.keep_in_sight(self.index if self.index > 1 else 0, len(rows), height)
        first = self._top
        self._owners = self._keys[first : first + height]
        rail = self.rail
        titles = (cell_len(check.title) for phase in self._phases for check in phase.checks)
        longest = min(LONGEST_TITLE, max(titles, default=0))
        lines: list[Line] = []
        for y in range(height):
            left: Line = EMPTY
            if rail and y < len(self._phases):
                phase = self._phases[y]
                left = rail_line(phase, opened=phase.number in self._opened)
            right: Line = EMPTY
            if first + y < len(rows):
                row = rows[first + y]
                opened = row.phase.number in self._opened
                right = row_line(row, width - rail - 2, self._now, opened=opened, longest=longest)
                right = line(" ", right)
            lines.append(line(clip(left, rail), right) if rail else right)
        return lines

    def on_click(self, event: events.Click) -> None:
        """Select a check, or open or close a phase."""
        if event.x < self.rail:
            phases = [phase.number for phase in self._phases[event.y : event.y + 1]]
        else:
            picked = [row for row in self.rows if row.key in self._owners[event.y : event.y + 1]]
            phases = [row.phase.number for row in picked if row.check is None]
            if not phases:
                super().on_click(event)
        for number in phases:
            self.post_message(self.Folded(number))


class CheckDetail(LineWidget):
    """One check in full, and the output of its run."""

    def __init__(self) -> None:
        super().__init__(id="check-detail")
        self._row: Row | None = None
        self._now = 0.0
        self._run: CheckRun | None = None
        self._runs = ""
        self._below: int | None = None
        self._then: Sequence[CheckResult] = ()

    def show(
        self,
        row: Row | None,
        now: float,
        run: CheckRun | None = None,
        runs: str = "",
        *,
        below: int | None = None,
        then: Sequence[CheckResult] = (),
    ) -> None:
        """Set the check, its newest run, and the command that can be run.

        Args:
            row: The selected line.
            now: Client clock.
            run: Its newest run.
            runs: The command that can be run for it.
            below: Hidden lines of the list above, counted in the first line; None if the list is
                not above.
            then: Further checks that need attention, listed if there is room.
        """
        self._row, self._now, self._run, self._runs, self._below = row, now, run, runs, below
        self._then = then
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the check and its run."""
        inner = max(8, width - 2)
        above: list[Line] = []
        if self._below is not None:
            above = [line(" ", *out_of_sight(0, self._below))]
            height -= 1
        if self._run is None:
            made = detail_lines(self._row, inner, height, self._now, self._runs)
            made += then_lines(self._then, inner, height - len(made))
        else:
            head = detail_lines(self._row, inner, 2, self._now)[:1]
            made = [*head, *run_lines(self._run, inner, max(3, height - 1), self._now)]
        return [*above, *(line(" ", row) for row in made)]
