"""The six phases and their checks, as values and lines: what is proved, what is not, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rgt_tui.health import PHASES
from rgt_tui.model.evidence import CheckResult, CheckStatus
from rgt_tui.ui.format import clean, compact_time
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.headline import Parts
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line
from rgt_tui.ui.widgets.wrap import wrapped

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
"""From this width on each check has its status in a word, too."""


@dataclass(frozen=True)
class Phase:
    """One phase with its checks, in the order of their ids."""

    number: int
    checks: tuple[CheckResult, ...]

    @property
    def name(self) -> str:
        """What happens in it."""
        return PHASES[self.number] if 0 <= self.number < len(PHASES) else f"phase {self.number}"

    @property
    def proved(self) -> int:
        """How many checks passed."""
        return sum(check.status is CheckStatus.PASSED for check in self.checks)

    @property
    def status(self) -> CheckStatus:
        """The worst of its checks; passed only if all are."""
        found = {check.status for check in self.checks}
        for status in (CheckStatus.FAILED, CheckStatus.WARN, CheckStatus.WAITING, CheckStatus.PERSON):
            if status in found:
                return status
        return CheckStatus.PASSED if found else CheckStatus.WAITING

    @property
    def wants_a_look(self) -> bool:
        """Whether something in it failed or warns."""
        return self.status in {CheckStatus.FAILED, CheckStatus.WARN}


@dataclass(frozen=True)
class Row:
    """A line of the list: a phase's heading, or one of its checks."""

    phase: Phase
    check: CheckResult | None = None

    @property
    def key(self) -> str:
        """What tells it from all other lines."""
        return self.check.id if self.check is not None else f"phase {self.phase.number}"


def phases_of(checks: Iterable[CheckResult]) -> tuple[Phase, ...]:
    """Group checks by phase; the six phases are there even without a check."""
    found: dict[int, list[CheckResult]] = {number: [] for number in range(len(PHASES))}
    for check in checks:
        found.setdefault(check.phase, []).append(check)
    return tuple(Phase(number, tuple(sorted(found[number], key=_order))) for number in sorted(found))


def _order(check: CheckResult) -> tuple[list[int], str]:
    return [int(part) for part in check.id.split(".") if part.isascii() and part.isdigit()], check.id


def next_check(phases: Sequence[Phase]) -> CheckResult | None:
    """Return what to look at first: the first that failed, else the first that is not proved yet."""
    checks = [check for phase in phases for check in phase.checks]
    failed = (check for check in checks if check.status is CheckStatus.FAILED)
    return next(failed, next((check for check in checks if check.status is not CheckStatus.PASSED), None))


def rows_of(phases: Sequence[Phase], opened: frozenset[int], *, closed_too: bool) -> list[Row]:
    """Return the lines of the list: open phases with their checks, and closed ones where there is no rail."""
    rows: list[Row] = []
    for phase in phases:
        if phase.number in opened:
            rows.append(Row(phase))
            rows.extend(Row(phase, check) for check in phase.checks)
        elif closed_too:
            rows.append(Row(phase))
    return rows


def mark(status: CheckStatus) -> Span:
    """Return the glyph of a status. Green is for what is proved, and for nothing else."""
    g = glyphs()
    return {
        CheckStatus.PASSED: Span(g.check, Tone.PROVED),
        CheckStatus.FAILED: Span(g.trouble, Tone.TROUBLE),
        CheckStatus.WARN: Span(g.warn, Tone.WARN),
        CheckStatus.WAITING: Span(g.unknown, Tone.DIM),
        CheckStatus.PERSON: Span(g.person, Tone.STRONG),
    }[status]


def summary_parts(phases: Sequence[Phase]) -> Parts:
    """Return the right end of the header: ``23 of 31 proved   2 failed   6 need you   next: 4.3``."""
    checks = [check for phase in phases for check in phase.checks]
    count = {status: sum(check.status is status for check in checks) for status in CheckStatus}
    parts: Parts = [(2, line(Span(f"{count[CheckStatus.PASSED]} of {len(checks)} proved")))]
    if count[CheckStatus.FAILED]:
        parts.append((1, line(Span(f"{glyphs().trouble} {count[CheckStatus.FAILED]} failed", Tone.TROUBLE))))
    if count[CheckStatus.WARN]:
        many = count[CheckStatus.WARN]
        parts.append((4, line(Span(f"{glyphs().warn} {many} warning{'' if many == 1 else 's'}", Tone.WARN))))
    if count[CheckStatus.PERSON]:
        many = count[CheckStatus.PERSON]
        parts.append((5, line(Span(f"{many} need{'s' if many == 1 else ''} you"))))
    first = next_check(phases)
    parts.append(
        (4, line(dim("next: "), clean(first.id)) if first is not None else line(dim("nothing left")))
    )
    return parts


def rail_line(phase: Phase, *, opened: bool) -> Line:
    """Draw a phase in the rail."""
    tone = Tone.STRONG if phase.wants_a_look else (Tone.TEXT if opened else Tone.DIM)
    count = f"{phase.proved}/{len(phase.checks)}" if phase.checks else glyphs().dash
    return line(
        " ", mark(phase.status), Span(f" {phase.number} {fit(phase.name, 8)}", tone), dim(f"{count:>6}")
    )


def row_line(row: Row, width: int, now: float, *, opened: bool) -> Line:
    """Draw a heading or a check."""
    if row.check is None:
        g = glyphs()
        fold = g.opened if opened else g.closed
        text = f"{row.phase.proved}/{len(row.phase.checks)}" if row.phase.checks else "nothing to check"
        name = Span(f" {row.phase.number} {row.phase.name:<9}", Tone.STRONG)
        return line(dim(f"{fold} "), mark(row.phase.status), name, dim(text))
    check = row.check
    quiet = check.status is CheckStatus.WAITING
    wordy = width >= WORDY
    title = min(40, max(12, int(width * 0.36)))
    word = f"{WORDS[check.status]:<8}" if wordy else ""
    age = age_of(check, now)
    room = max(4, width - title - len(word) - 18)
    loud = check.status in {CheckStatus.FAILED, CheckStatus.WARN}
    return line(
        "  ",
        mark(check.status),
        Span(f" {fit(clean(check.id), 4)} ", Tone.DIM),
        Span(fit(clean(check.title), title), Tone.STRONG if loud else (Tone.DIM if quiet else Tone.TEXT)),
        "  ",
        Span(word, Tone.DIM),
        Span(fit(clean(check.evidence), room), Tone.TEXT if loud else Tone.DIM),
        dim(f"{age:>7}"),
    )


def age_of(check: CheckResult, now: float) -> str:
    """Return the age of a check's evidence; a dash where there is no evidence."""
    return glyphs().dash if check.at is None else compact_time(max(0.0, now - check.at))


def detail_lines(row: Row | None, width: int, height: int, now: float) -> list[Line]:
    """Draw the selected line in full: nothing of its evidence is cut as long as there is room."""
    if row is None:
        return []
    if row.check is None:
        counts = f"{row.phase.proved} of {len(row.phase.checks)} proved"
        return [line(Span(f"{row.phase.number} {row.phase.name}", Tone.STRONG), "  ", dim(counts))]
    check = row.check
    says = {
        CheckStatus.PASSED: "proved",
        CheckStatus.FAILED: "failed",
        CheckStatus.WARN: "warning: proved for now, but not for long",
        CheckStatus.WAITING: "waiting: nothing to check yet",
        CheckStatus.PERSON: "only you can tell",
    }[check.status]
    age = f"evidence {age_of(check, now)} old" if check.at is not None else "no evidence yet"
    head = line(mark(check.status), " ", Span(clean(check.id), Tone.STRONG), "  ", says, dim(f"   {age}"))
    lines = [head, *wrapped(clean(check.title), width, Tone.STRONG)]
    if check.evidence:
        lines += wrapped(clean(check.evidence), width)
    return lines if len(lines) <= height else [*lines[: height - 1], line(dim(glyphs().ellipsis))]
