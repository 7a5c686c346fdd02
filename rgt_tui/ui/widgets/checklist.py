"""The six phases and their checks, with two widgets that show the proved ones and the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from textual import events
from textual.message import Message

from rgt_tui.health import PHASES
from rgt_tui.language import translate
from rgt_tui.model import CheckResult, CheckStatus, how_many
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import compact_time, current_glyphs
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import out_of_sight
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    label_lines,
    make_line,
    wrap_text,
)

STATUS_WORDS = {
    CheckStatus.PASSED: "proved",
    CheckStatus.FAILED: "failed",
    CheckStatus.WARN: "warning",
    CheckStatus.WAITING: "waiting",
    CheckStatus.PERSON: "you",
}


@dataclass(frozen=True)
class PhaseChecks:
    """One phase with its checks, in the order of their ids."""

    number: int
    checks: tuple[CheckResult, ...]

    @property
    def name(self) -> str:
        """The phase's name."""
        if 0 <= self.number < len(PHASES):
            return translate(PHASES[self.number])
        return f"phase {self.number}"

    @property
    def proved_count(self) -> int:
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
        # A phase without checks has proved nothing.
        if found:
            return CheckStatus.PASSED
        return CheckStatus.WAITING

    @property
    def needs_attention(self) -> bool:
        """Whether a check in it failed or warns."""
        return self.status in {CheckStatus.FAILED, CheckStatus.WARN}


@dataclass(frozen=True)
class ChecklistRow:
    """A line of the list: the heading of a phase, or one of its checks."""

    phase: PhaseChecks
    check: CheckResult | None = None

    @property
    def key(self) -> str:
        """Unique key of the line."""
        if self.check is not None:
            return self.check.id
        return f"phase {self.phase.number}"


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
    def is_running(self) -> bool:
        """Whether it is still running."""
        return self.ended is None

    def append_output(self, row: str) -> None:
        """Append a line of output."""
        self.lines.append(row)
        # Maximum lines kept of a run's output; the oldest are dropped.
        most_kept = 5_000
        # A fifth at a time: dropping a single line would move all others at every line.
        if len(self.lines) > most_kept:
            del self.lines[: most_kept // 5]


def run_lines(run: CheckRun, width: int, height: int, now: float) -> list[Line]:
    """Draw a run: its command, its newest lines of output, and its state."""
    took = compact_time(max(0.0, (run.ended if run.ended is not None else now) - run.began))
    if run.is_running:
        foot = make_line(
            Span(translate("runs for {took}", took=took), Tone.ACCENT),
            dim_span(translate("   {key} ends it", key=key_for("screen.escape"))),
        )
    # Stopped or never started: no status is no success.
    elif run.status is None:
        foot = make_line(
            Span(
                translate(
                    "{words}, after {took}", words=run.words or translate("no status"), took=took
                ),
                Tone.WARN,
            )
        )
    else:
        if run.status == 0:
            tone = Tone.TEXT
        else:
            tone = Tone.WARN
        foot = make_line(
            Span(translate("exit status {status}", status=run.status), tone),
            dim_span(
                translate(
                    "   after {took}   {key} copies   {key_2} runs it again",
                    took=took,
                    key=key_for("screen.copy"),
                    key_2=key_for("phases.run"),
                )
            ),
        )
    # The command and the last line.
    room = max(1, height - 2)
    # Only lines that may be in sight are wrapped.
    kept = [wrap_text(row, width) for row in run.lines[-room:]]
    body = [made for rows in kept for made in rows][-room:]
    return [make_line(dim_span("$ "), run.command), *body, foot]


def phases_of(checks: Iterable[CheckResult]) -> tuple[PhaseChecks, ...]:
    """Group checks by phase. The six phases always exist, even without checks."""
    found: dict[int, list[CheckResult]] = {number: [] for number in range(len(PHASES))}
    for check in checks:
        found.setdefault(check.phase, []).append(check)
    return tuple(
        PhaseChecks(number, tuple(sorted(found[number], key=_sort_key))) for number in sorted(found)
    )


def _sort_key(check: CheckResult) -> tuple[list[int], str]:
    # By number, so that 4.10 is after 4.9; `isdigit` alone accepts ², for which `int` fails.
    return [
        int(part) for part in check.id.split(".") if part.isascii() and part.isdigit()
    ], check.id


def next_check(phases: Sequence[PhaseChecks]) -> CheckResult | None:
    """Return the check to work on: the first failed one, or the first that is not proved yet."""
    checks = [check for phase in phases for check in phase.checks]
    failed = (check for check in checks if check.status is CheckStatus.FAILED)
    return next(
        failed, next((check for check in checks if check.status is not CheckStatus.PASSED), None)
    )


def rows_of(
    phases: Sequence[PhaseChecks], opened: frozenset[int], *, closed_too: bool
) -> list[ChecklistRow]:
    """Return the lines of the list: open phases with their checks, closed ones if `closed_too`."""
    rows: list[ChecklistRow] = []
    for phase in phases:
        if phase.number in opened:
            rows.append(ChecklistRow(phase))
            rows.extend(ChecklistRow(phase, check) for check in phase.checks)
        elif closed_too:
            rows.append(ChecklistRow(phase))
    return rows


def status_glyph(status: CheckStatus) -> Span:
    """Return the glyph of a status. Green means proved, and nothing else."""
    g = current_glyphs()
    return {
        CheckStatus.PASSED: Span(g.check, Tone.PROVED),
        CheckStatus.FAILED: Span(g.trouble, Tone.TROUBLE),
        CheckStatus.WARN: Span(g.warn, Tone.WARN),
        CheckStatus.WAITING: Span(g.unknown, Tone.DIM),
        CheckStatus.PERSON: Span(g.person, Tone.STRONG),
    }[status]


def summary_parts(phases: Sequence[PhaseChecks]) -> Parts:
    """Return the header's right end: ``23 of 31 proved   2 failed   6 need you   next: 4.3``."""
    checks = [check for phase in phases for check in phase.checks]
    count = {status: sum(check.status is status for check in checks) for status in CheckStatus}
    parts: Parts = [
        (
            2,
            make_line(
                Span(
                    translate(
                        "{count} of {checks} proved",
                        count=count[CheckStatus.PASSED],
                        checks=len(checks),
                    )
                )
            ),
        )
    ]
    if count[CheckStatus.FAILED]:
        parts.append(
            (
                1,
                make_line(
                    Span(
                        translate(
                            "{trouble} {count} failed",
                            trouble=current_glyphs().trouble,
                            count=count[CheckStatus.FAILED],
                        ),
                        Tone.TROUBLE,
                    )
                ),
            )
        )
    if count[CheckStatus.WARN]:
        many = count[CheckStatus.WARN]
        parts.append(
            (4, make_line(Span(f"{current_glyphs().warn} {how_many(many, 'warning')}", Tone.WARN)))
        )
    if count[CheckStatus.PERSON]:
        many = count[CheckStatus.PERSON]
        parts.append(
            (
                5,
                make_line(
                    Span(
                        translate("{many} needs you" if many == 1 else "{many} need you", many=many)
                    )
                ),
            )
        )
    first = next_check(phases)
    if first is not None:
        next_line = make_line(dim_span(translate("next: ")), first.id)
    else:
        next_line = make_line(dim_span(translate("nothing left")))
    parts.append((4, next_line))
    return parts


def rail_line(phase: PhaseChecks, *, opened: bool) -> Line:
    """Draw a phase in the rail."""
    if phase.needs_attention:
        tone = Tone.STRONG
    elif opened:
        tone = Tone.TEXT
    else:
        tone = Tone.DIM
    if phase.checks:
        count = f"{phase.proved_count}/{len(phase.checks)}"
    else:
        count = current_glyphs().dash
    return make_line(
        " ",
        status_glyph(phase.status),
        Span(f" {phase.number} {fit_text(phase.name, 8)}", tone),
        dim_span(f"{count:>6}"),
    )


def row_line(row: ChecklistRow, width: int, now: float, *, opened: bool, longest: int = 40) -> Line:
    """Draw a heading or a check.

    Args:
        row: One of `rows_of`.
        width: Cells.
        now: Client clock.
        opened: Whether the phase is open.
        longest: Cells of the longest title in the list.
    """
    if row.check is None:
        g = current_glyphs()
        fold = g.opened if opened else g.closed
        if row.phase.checks:
            text = f"{row.phase.proved_count}/{len(row.phase.checks)}"
        else:
            text = translate("nothing to check")
        name = Span(f" {row.phase.number} {row.phase.name:<9}", Tone.STRONG)
        return make_line(dim_span(f"{fold} "), status_glyph(row.phase.status), name, dim_span(text))
    check = row.check
    quiet = check.status is CheckStatus.WAITING
    # Minimum width to show each check's status as a word, too.
    wordy_limit = 96
    wordy = width >= wordy_limit
    # A tick is a person's word, and rgt has proved nothing.
    if check.by:
        said = translate("ticked")
    else:
        said = translate(STATUS_WORDS[check.status])
    title = min(longest, max(12, int(width * 0.4)))
    word = fit_text(said, 8) if wordy else ""
    age = age_of(check, now)
    # 18 cells: the glyph, the id, the age and the gaps.
    room = max(4, width - title - cell_len(word) - 18)
    if check.advice:
        told = f"{check.evidence} {current_glyphs().dot} {translate(check.advice)}"
    else:
        told = check.evidence
    loud = check.status in {CheckStatus.FAILED, CheckStatus.WARN}
    title_tone = Tone.TEXT
    told_tone = Tone.DIM
    if loud:
        title_tone = Tone.STRONG
        told_tone = Tone.TEXT
    elif quiet:
        title_tone = Tone.DIM
    return make_line(
        "  ",
        status_glyph(check.status),
        Span(f" {fit_text(check.id, 4)} ", Tone.DIM),
        Span(fit_text(translate(check.title), title), title_tone),
        "  ",
        Span(word, Tone.DIM),
        Span(fit_text(told, room), told_tone),
        dim_span(f"{age:>7}"),
    )


def age_of(check: CheckResult, now: float) -> str:
    """Return the age of a check's evidence; a dash if it has none."""
    if check.at is None:
        return current_glyphs().dash
    return compact_time(max(0.0, now - check.at))


def detail_lines(
    row: ChecklistRow | None, width: int, height: int, now: float, runs: str = ""
) -> list[Line]:
    """Draw the selected line in full; its evidence is cut only if there is no room.

    `runs` is the command that can be run for it.
    """
    if row is None:
        return []
    if row.check is None:
        counts = translate(
            "{proved_count} of {checks} proved",
            proved_count=row.phase.proved_count,
            checks=len(row.phase.checks),
        )
        return [
            make_line(
                Span(f"{row.phase.number} {row.phase.name}", Tone.STRONG), "  ", dim_span(counts)
            )
        ]
    check = row.check
    says = {
        CheckStatus.PASSED: translate("ticked by {by}", by=check.by)
        if check.by
        else translate("proved"),
        CheckStatus.FAILED: translate("failed"),
        CheckStatus.WARN: translate("warning: proved for now, but not for long"),
        CheckStatus.WAITING: translate("waiting: nothing to check yet"),
        CheckStatus.PERSON: translate("only you can tell"),
    }[check.status]
    if check.at is not None:
        age = translate("evidence {check} old", check=age_of(check, now))
    else:
        age = translate("no evidence yet")
    head = make_line(
        status_glyph(check.status),
        " ",
        Span(check.id, Tone.STRONG),
        "  ",
        says,
        dim_span(f"   {age}"),
    )
    lines = [head, *wrap_text(translate(check.title), width, Tone.STRONG)]
    if check.evidence:
        lines += wrap_text(check.evidence, width)
    if check.advice:
        lines += label_lines("advice", translate(check.advice), width, most=6)
    if runs and len(lines) < height:
        lines.append(
            make_line(Span(translate("{key} runs  ", key=key_for("phases.run")), Tone.ACCENT), runs)
        )
    elif check.command and len(lines) < height:
        lines.append(make_line(dim_span(translate("to run  ")), check.command))
    if check.by and len(lines) < height:
        lines.append(
            make_line(dim_span(translate("{key} takes it back", key=key_for("phases.tick"))))
        )
    elif check.status is CheckStatus.PERSON and len(lines) < height:
        lines.append(
            make_line(
                Span(f"{key_for('phases.tick')} ", Tone.ACCENT),
                dim_span(translate("ticks it, with a note and your name")),
            )
        )
    if len(lines) <= height:
        return lines
    return [*lines[: height - 1], make_line(dim_span(current_glyphs().ellipsis))]


def then_lines(checks: Iterable[CheckResult], width: int, height: int) -> list[Line]:
    """Draw checks below an empty line, as many as fit, with their full evidence."""
    lines: list[Line] = [EMPTY]
    for check in checks:
        if check.evidence:
            told = f"{translate(check.title)}: {check.evidence}"
        else:
            told = translate(check.title)
        first, *rest = wrap_text(told, max(8, width - 8))
        block = [
            make_line(
                status_glyph(check.status), Span(f" {fit_text(check.id, 4)}  ", Tone.DIM), *first
            ),
            *(make_line(" " * 8, *row) for row in rest),
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
        self._phases: Sequence[PhaseChecks] = ()
        self._opened: frozenset[int] = frozenset()
        self._now = 0.0

    @property
    def selectable_rows(self) -> list[ChecklistRow]:
        """All selectable lines."""
        # The rail shows the closed phases where there is room for it.
        return rows_of(self._phases, self._opened, closed_too=self.size.width < WITH_RAIL)

    @property
    def cursor_row(self) -> ChecklistRow | None:
        """The selected line."""
        return next((row for row in self.selectable_rows if row.key == self._picked), None)

    def show_phases(
        self,
        phases: Sequence[PhaseChecks],
        opened: frozenset[int],
        now: float,
        empty: Sequence[str] = (),
    ) -> None:
        """Set the phases, or the lines `empty` to show without one."""
        self._phases, self._opened, self._now = phases, opened, now
        self._empty = [
            make_line("  ", Span(text, Tone.DIM if place else Tone.TEXT))
            for place, text in enumerate(empty)
        ]
        self._keys = [row.key for row in self.selectable_rows]
        self.redraw()

    def count_hidden_below(self, height: int) -> int:
        """Return how many lines are hidden below the list at this height."""
        rows = len(self.selectable_rows)
        self.scroll_into_view(self.selected_index, rows, height)
        return max(0, rows - self._top - height)

    @property
    def selected_from(self) -> int:
        """First column of the list; the rail before it shows phases, not the selected check."""
        return self.rail_width

    @property
    def rail_width(self) -> int:
        """Columns of the rail; 0 on a narrow screen."""
        if self.size.width >= WITH_RAIL:
            # Columns of the phases at the left.
            rail_limit = 19
            return rail_limit + 2
        return 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw both columns."""
        # Without rows, a click selects nothing.
        self._owners = ()
        if self._empty:
            return [EMPTY, *self._empty]
        rows = self.selectable_rows
        self._keys = [row.key for row in rows]
        # The first check is shown with the heading above it.
        first_shown = 0
        if self.selected_index > 1:
            first_shown = self.selected_index
        self.scroll_into_view(first_shown, len(rows), height)
        first = self._top
        self._owners = self._keys[first : first + height]
        rail = self.rail_width
        titles = (
            cell_len(translate(check.title)) for phase in self._phases for check in phase.checks
        )
        longest_title = 64
        longest = min(longest_title, max(titles, default=0))
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
                right = make_line(" ", right)
            lines.append(make_line(clip_line(left, rail), right) if rail else right)
        return lines

    def on_click(self, event: events.Click) -> None:
        """Select a check, or open or close a phase."""
        # The rail has a line for each phase, however far the list is scrolled.
        if event.x < self.rail_width:
            phases = [phase.number for phase in self._phases[event.y : event.y + 1]]
        else:
            picked = [
                row
                for row in self.selectable_rows
                if row.key in self._owners[event.y : event.y + 1]
            ]
            phases = [row.phase.number for row in picked if row.check is None]
            if not phases:
                super().on_click(event)
        for number in phases:
            self.post_message(self.Folded(number))


class CheckDetail(LineWidget):
    """One check in full, and the output of its run."""

    def __init__(self) -> None:
        super().__init__(id="check-detail")
        self._row: ChecklistRow | None = None
        self._now = 0.0
        self._run: CheckRun | None = None
        self._runs = ""
        self._below: int | None = None
        self._then: Sequence[CheckResult] = ()

    def show_check(
        self,
        row: ChecklistRow | None,
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
            above = [make_line(" ", *out_of_sight(0, self._below))]
            height -= 1
        if self._run is None:
            made = detail_lines(self._row, inner, height, self._now, self._runs)
            made += then_lines(self._then, inner, height - len(made))
        else:
            head = detail_lines(self._row, inner, 2, self._now)[:1]
            made = [*head, *run_lines(self._run, inner, max(3, height - 1), self._now)]
        return [*above, *(make_line(" ", row) for row in made)]
