"""Why a box is where it is, in lines: findings with their proof and their fix, else what it is doing."""

from __future__ import annotations

from rgt_tui.health.autostop_words import box_words
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.evidence import Finding, Severity
from rgt_tui.model.protocol import Cell
from rgt_tui.model.run import RunState
from rgt_tui.ui.box_status import cells_of, current_run, level_tone, mark
from rgt_tui.ui.notation import NONE, clean, compact_time, glyphs, number, percent, plain, ratio, thousands
from rgt_tui.ui.widgets.fleet_cells import Row
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, labelled, line, spread, width_of, wrapped

_SAID_FIRST = {Health.UNREACHABLE, Health.UNKNOWN, Health.STOPPED, Health.GONE}
"""States without which whatever else is said would mislead."""


WHOLE = 1000
"""Lines of what is never cut off."""


def why_lines(row: Row, width: int, now: float, *, brief: bool = False) -> list[Line]:
    """Return everything the pane of the selected box has to say, most important first.

    With `brief`, run and queue are left out: they are on the same screen.
    """
    out: list[Line] = []
    findings = row.box.findings
    raised = any(
        not alert.muted and alert.text == row.verdict.why for alert in row.verdict.alerts
    )  # said below
    if row.verdict.health in _SAID_FIRST or (row.verdict.stale and not raised):
        out += _state(row, width, now)
    for finding in findings:
        out += finding_lines(finding, width, now, proof_first=not brief)
    named = {f"finding:{f.gotcha}:{f.resource}:{f.run or ''}" for f in findings}
    for alert in row.verdict.alerts:
        if alert.id not in named and alert.kind != row.verdict.health:
            glyph = glyphs().trouble if alert.level == "error" else glyphs().warn
            tone = Tone.DIM if alert.muted else level_tone(alert.level)
            first, *rest = wrapped(clean(alert.text), max(8, width - 2), most=2)
            out += [line(Span(f"{glyph} ", tone), first), *(line("  ", more) for more in rest)]
    if not out:
        out += _state(row, width, now)
    if brief:
        return out
    own = clean(box_words(row.box, now))
    if own and not any(
        own in clean(text) for text in (row.verdict.why, *(a.text for a in row.verdict.alerts))
    ):
        first, *rest = wrapped(own, max(8, width - 2), most=2)
        out += [line(dim(f"{glyphs().power} "), first), *(line("  ", more) for more in rest)]
    run = current_run(row.box)
    if run is not None and run.step is not None:
        out.append(run_line(run, width))
    cells = cells_of(row.box)
    if cells:
        out.append(cells_line(cells, width))
    return out


def _state(row: Row, width: int, now: float) -> list[Line]:
    glyph, tone = mark(row.verdict.health)
    first, *rest = wrapped(clean(row.verdict.why), max(8, width - len(row.verdict.word) - 4), most=2)
    out = [
        line(Span(f"{glyph} {clean(row.verdict.word)}  ", tone), first),
        *(line("  ", more) for more in rest),
    ]
    if row.box.retry_at is not None and row.verdict.health is Health.UNREACHABLE:
        out.append(line(dim("next   "), f"retries in {compact_time(row.box.retry_at - now)}"))
    return out


def finding_lines(finding: Finding, width: int, now: float, *, proof_first: bool = True) -> list[Line]:
    """Return a diagnosis: what broke with its reading, what not to do, the steps out of it, the line that proves it.

    The steps are in the order in which to take them: check, look, and only then remove. What must not be done stands
    above them, so that no small screen shows a removal without it. Where not all may fit, the proof goes last.
    """
    fatal = finding.severity in {Severity.FATAL, Severity.SILENT_WRONG} and not finding.cleared
    glyph, tone = (glyphs().trouble, Tone.TROUBLE) if fatal else (glyphs().warn, Tone.WARN)
    age = compact_time(now - finding.since) + " ago" if finding.since else ""
    name = line(Span(f"{glyph} {clean(finding.resource)}", tone))
    reading = clean(finding.reading or finding.title)
    tail = line(
        dim(f"  {clean(finding.gotcha)} {glyphs().dot} {age}" if age else f"  {clean(finding.gotcha)}")
    )
    fits = width_of(name) + 2 + len(reading) + width_of(tail) <= width
    out = [spread(line(name, "  ", reading) if fits else name, tail, width)]
    if not fits:
        out += labelled("now", reading, width, most=2)
    if finding.reading:
        run = f"{clean(finding.run)}: " if finding.run else ""
        out += labelled("what", run + clean(finding.title), width, most=2)
    if proof_first:
        out += labelled("proof", clean(finding.evidence), width, most=2)
    if finding.never:
        out += labelled("never", clean(finding.never), width, Tone.WARN, most=WHOLE)
    if finding.cleared:
        out += labelled("now", "the cause is gone; the run has yet to make progress", width)
    for place, fix in enumerate(finding.fixes, 1):
        label = f"fix {place}" if len(finding.fixes) > 1 else "fix"
        out += labelled(label, clean(fix.text), width, Tone.STRONG, most=WHOLE)
        if fix.command:
            out += command_lines(fix.command, width)
    if not proof_first:
        out += labelled("proof", clean(finding.evidence), width, most=2)
    return out


def command_lines(command: str, width: int) -> list[Line]:
    """Return a command, whole, or why it is not shown: what this terminal cannot show might name another file."""
    if plain(clean(command)) != command:
        return labelled("", "its path cannot be displayed here, so neither can the command", width, Tone.DIM)
    return labelled("", f"$ {command}", width, Tone.ACCENT, most=WHOLE)


def run_line(run: RunState, width: int) -> Line:
    """Return the current run in one line."""
    share = ratio(run.step, run.total_steps)
    total = f" of {thousands(run.total_steps)} ({percent(share)})" if run.total_steps else ""
    parts = [
        dim("run    "),
        Span(clean(run.name), Tone.STRONG),
        Span(f"  step {thousands(run.step)}{total}  loss {number(run.loss)}  best {number(run.best)}"),
    ]
    if run.throughput is not None:
        parts.append(dim(f"  {thousands(run.throughput)} tok/s"))
    if run.resumes:
        last = run.resumes[-1]
        parts.append(dim(f"  resumed from {thousands(last.step)} ({clean(last.reason)})"))
    return tuple(parts)


def cell_mark(cell: Cell) -> tuple[str, Tone]:
    """Return the glyph of a queue cell; green for what is durable: verified storage alone."""
    g = glyphs()
    if cell.state == "done":
        return (g.finished, Tone.PROVED if cell.durable == "verified" else Tone.TEXT)
    if cell.state == "running":
        return (g.ok, Tone.TEXT)
    if cell.state == "failed":
        return (g.trouble, Tone.TROUBLE)
    if cell.state == "interrupted":
        return (g.warn, Tone.WARN)
    return (g.unknown, Tone.DIM)


def cells_line(cells: tuple[Cell, ...], width: int) -> Line:
    """Return the queue in one line: a mark and a name for each cell."""
    out: list[Span] = [dim("queue  ")]
    for cell in cells:
        glyph, tone = cell_mark(cell)
        out += [
            Span(glyph, tone),
            Span(f" {clean(cell.name)}  ", Tone.DIM if cell.state == "waiting" else Tone.TEXT),
        ]
    return tuple(out)


def title_of(box: BoxState, platform: str) -> Line:
    """Return the title of a pane about a box."""
    return line(Span(clean(box.spec.name) or NONE, Tone.STRONG), dim(f"  {platform}") if platform else "")
