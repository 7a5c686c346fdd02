"""Why a box has its rank: its findings with proof and fix, its alerts, or what it is doing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rgt_tui import health
from rgt_tui.health import box_words
from rgt_tui.model import BoxState, Cell, Finding, Fix, FleetState, Health, RunState, Severity
from rgt_tui.profiles import percent as ratio
from rgt_tui.ui.box_status import SEVERITIES, cells_of, current_run, level_tone, mark
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.notation import NONE, compact_time, glyphs, number, percent, plain, thousands
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Row
from rgt_tui.ui.widgets.panes import MakeSections, Pane, Section, border, out_of_sight, sections
from rgt_tui.ui.widgets.platform_lines import unseen_section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim,
    labelled,
    line,
    spread,
    text_of,
    width_of,
    wrapped,
)

if TYPE_CHECKING:
    from rgt_tui.health import Remedy


_SAID_FIRST = {Health.UNREACHABLE, Health.UNKNOWN, Health.STOPPED, Health.GONE}
"""States that are shown first, because everything else would mislead without them."""


WHOLE = 1000
"""Maximum lines for text that must not be cut."""


class Block(NamedTuple):
    """Lines that belong together."""

    rows: Sequence[Line]
    held: frozenset[int] = frozenset()
    """Indexes of the rows that stay visible as long as any row of the block is: the problem, and
    what must never be done."""

    @property
    def scrolling(self) -> int:
        """Number of rows that can scroll away."""
        return len(self.rows) - len(self.held)

    def below(self, hidden: int) -> list[Line]:
        """Return the rows without the first `hidden` of the scrollable ones."""
        out = []
        for place, row in enumerate(self.rows):
            if place in self.held:
                out.append(row)
            elif hidden:
                hidden -= 1
            else:
                out.append(row)
        return out


def why_lines(
    row: Row, width: int, now: float, *, brief: bool = False, marked: str = ""
) -> list[Line]:
    """Return everything about why a box has its rank, most important first.

    `brief` leaves out run and queue, for screens that show them elsewhere. `marked` is the command
    to highlight.
    """
    out = _before(row, width, now)
    told = row.box.reason if out else ""
    for finding in row.box.findings:
        out += finding_lines(finding, width, now, marked=marked)
    out += _alert_lines(row, width, told, advised=brief)
    if not out:
        out = _state(row, width, now)
    if brief:
        return out
    return [*out, *_doing_lines(row, width, now)]


def why_blocks(row: Row, width: int, now: float, marked: str = "") -> list[Block]:
    """Return the same as blocks, one per finding, for a pane that scrolls.

    Args:
        row: The box.
        width: Cells.
        now: Client clock.
        marked: Command of the step to highlight.
    """
    before = _before(row, width, now)
    out = [Block(before)]
    for finding in row.box.findings:
        parts = _parts(finding, width, now, marked)
        first = len(parts.head) + len(parts.do)
        held = frozenset({0, *range(first, first + len(parts.never))})
        out.append(Block([row for part in parts for row in part], held))
    said = _alert_lines(row, width, row.box.reason if before else "")
    if not (said or row.box.findings or before):
        said = _state(row, width, now)
    out.append(Block([*said, *_doing_lines(row, width, now)]))
    return [block for block in out if block.rows]


def _before(row: Row, width: int, now: float) -> list[Line]:
    """Return a warning shown first if the box is unreachable or its data is stale, else nothing."""
    loud = (alert for alert in row.verdict.alerts if not alert.muted)
    # an alert below has the same text
    raised = any(alert.text == row.verdict.why for alert in loud)
    if row.verdict.health in _SAID_FIRST or (row.verdict.stale and not raised):
        return _state(row, width, now)
    return []


def _alert_lines(row: Row, width: int, said: str, *, advised: bool = False) -> list[Line]:
    """Return the alerts without a finding, with `advised` also the advice; skip the text `said`."""
    out: list[Line] = []
    named = {f"finding:{f.gotcha}:{f.resource}:{f.run or ''}" for f in row.box.findings}
    for alert in row.verdict.alerts:
        if alert.id not in named and alert.kind != row.verdict.health:
            if not (said and said in alert.text):
                glyph = glyphs().trouble if alert.level == "error" else glyphs().warn
                tone = Tone.DIM if alert.muted else level_tone(alert.level)
                first, *rest = wrapped(alert.text, max(8, width - 2), most=WHOLE)
                out += [line(Span(f"{glyph} ", tone), first), *(line("  ", more) for more in rest)]
            if advised and not alert.muted and (words := health.advice(alert)):
                out += [
                    line("  ", *made)
                    for made in labelled("do", words, max(8, width - 2), pad=4, most=3)
                ]
    return out


def _doing_lines(row: Row, width: int, now: float) -> list[Line]:
    """Return the box's own stop, its run and its queue."""
    out: list[Line] = []
    own = box_words(row.box, now)
    if own and not any(
        own in text for text in (row.verdict.why, *(a.text for a in row.verdict.alerts))
    ):
        first, *rest = wrapped(own, max(8, width - 2), most=2)
        out += [line(dim(f"{glyphs().power} "), first), *(line("  ", more) for more in rest)]
    run = current_run(row.box)
    if run is not None and run.step is not None:
        out += run_lines(run, width)
    cells = cells_of(row.box)
    if cells:
        from rgt_tui.profiles import copies_of  # not needed for the first frame

        out.append(cells_line(cells, width, copies_of(row.box)))
    for text in row.box.limited[:2]:
        out += labelled("limited", text, width, Tone.DIM, pad=9, most=3)
    return out


def _state(row: Row, width: int, now: float) -> list[Line]:
    glyph, tone = mark(row.verdict.health)
    head = Span(f"{glyph} {row.verdict.word}  ", tone)
    why = row.verdict.why
    first = text_of(wrapped(why, max(8, width - width_of((head,))))[0])
    rest = why[len(first) :].lstrip()
    below = wrapped(rest, max(8, width - 2), most=WHOLE) if rest else []
    out = [line(head, first), *(line("  ", more) for more in below)]
    if row.box.retry_at is not None and row.verdict.health is Health.UNREACHABLE:
        out.append(line(dim("next   "), f"retries in {compact_time(row.box.retry_at - now)}"))
    return out


class _Parts(NamedTuple):
    """The parts of a finding, in the order that every screen and command uses."""

    head: list[Line]
    """What broke, and the reading that shows it."""
    do: list[Line]
    never: list[Line]
    steps: list[Line]
    """In the order to do them: check and inspect first, remove last."""
    proof: list[Line]
    """The finding's title, and the line that proves it."""


def finding_lines(finding: Finding, width: int, now: float, *, marked: str = "") -> list[Line]:
    """Return a finding: what broke, what to do, what never to do, the steps, the proof.

    The warning comes before the steps, so that no small screen shows a removal without it.
    """
    return [row for part in _parts(finding, width, now, marked) for row in part]


def finding_details(finding: Finding, width: int, *, said: bool) -> list[Line]:
    """Return what an alert's line leaves out of its finding, in the order of `finding_lines`.

    Args:
        finding: The finding.
        width: Cells.
        said: Whether the alert's line shows the reading in full, or the proof if there is no
            reading.
    """
    words = action_words(finding)
    out = labelled("do", words, width, Tone.STRONG) if words and not finding.cleared else []
    out += [*_never(finding, width), *_steps(finding, width, "")]
    run = f"{finding.run}: " if finding.run else ""
    out += labelled("what", run + finding.title, width)
    sure = f", {percent(100.0 * finding.confidence)} sure" if finding.confidence is not None else ""
    out += labelled("where", f"{place_of(finding)}{sure}", width)
    if finding.reading and not said:
        out += labelled("now", finding.reading, width, most=WHOLE)
    if finding.reading or not said:
        out += labelled("proof", finding.evidence, width, most=WHOLE)
    return out


def _parts(finding: Finding, width: int, now: float, marked: str = "") -> _Parts:
    glyph, tone = SEVERITIES[Severity.COST if finding.cleared else finding.severity].mark
    age = compact_time(now - finding.since) + " ago" if finding.since else ""
    name = line(Span(f"{glyph} {finding.resource}", tone))
    reading = finding.reading or finding.title
    tail = line(dim(f"  {finding.gotcha} {glyphs().dot} {age}" if age else f"  {finding.gotcha}"))
    fits = width_of(name) + 2 + len(reading) + width_of(tail) <= width
    head = [spread(line(name, "  ", reading) if fits else name, tail, width)]
    if not fits:
        head += labelled("now", reading, width, most=4)
    do = [] if finding.cleared else action_lines(finding, width)
    proof = labelled("proof", finding.evidence, width, most=4)
    if finding.reading:
        run = f"{finding.run}: " if finding.run else ""
        proof = [*labelled("what", run + finding.title, width, most=4), *proof]
    return _Parts(head, do, _never(finding, width), _steps(finding, width, marked), proof)


def _never(finding: Finding, width: int) -> list[Line]:
    if finding.never:
        return labelled("never", finding.never, width, Tone.WARN, most=WHOLE)
    return []


def _steps(finding: Finding, width: int, marked: str) -> list[Line]:
    """Return the fixes.

    None is ticked after the cause is gone: it is unknown which one was done.
    """
    steps: list[Line] = []
    if finding.cleared:
        steps += labelled("now", "the cause is fixed; no progress yet", width)
    for place, fix in enumerate(finding.fixes, 1):
        label = f"fix {place}" if len(finding.fixes) > 1 else "fix"
        made = labelled(label, fix.text, width, Tone.STRONG, most=WHOLE)
        if not finding.cleared and fix.command and fix.command == marked:
            made[0] = line(Span(f"{label:<7}", Tone.ACCENT), *made[0][1:])
        steps += made
        if fix.command:
            steps += command_lines(fix.command, width)
    return steps


def action_words(finding: Finding) -> str | None:
    """Return what to do about a finding, in words; None if the handbook has no advice."""
    # imported here because only a box in trouble needs it
    from rgt_tui.handbook import ACTION_WORDS

    return next(
        (words for action, words in ACTION_WORDS.items() if str(action) == finding.action), None
    )


READ_FROM = {"sample": "a reading", "scalars": "its curve"}


def action_lines(finding: Finding, width: int) -> list[Line]:
    """Return what to do about a finding, with the confidence and the place of its proof.

    Empty if the handbook has no advice.
    """
    words = action_words(finding)
    made = labelled("do", words, width, Tone.STRONG) if words else []
    sure = [f"{percent(100.0 * finding.confidence)} sure"] if finding.confidence is not None else []
    for tail in ([*sure, place_of(finding)], sure):
        said = line(dim("  " + f" {glyphs().dot} ".join(tail)))
        if made and tail and width_of(made[-1]) + width_of(said) <= width:
            return [*made[:-1], spread(made[-1], said, width)]
    return made


def place_of(finding: Finding) -> str:
    """Return the place of a finding's proof: a log file and its line, if known."""
    name = READ_FROM.get(finding.where) or posixpath.basename(finding.where) or "?"
    if finding.line_no is None:
        return name
    return f"{name}:{finding.line_no}"


def remedy_lines(remedies: Sequence[Remedy], width: int, now: float) -> list[Line]:
    """Return earlier fixes: ticked if the readings show success, else with the doubt."""
    out: list[Line] = []
    for one in remedies:
        if one.done:
            ago = f"fixed {compact_time(now - (one.over_at or now))} ago"
            mark_, tone = f"{glyphs().check} ", Tone.PROVED
        elif one.doubt:
            ago, mark_, tone = one.doubt, f"{glyphs().unknown} ", Tone.DIM
        else:
            continue
        out.append(spread(line(Span(mark_, tone), one.title), line(dim(f"  {ago}")), width))
        if one.done:
            out += [
                line("    ", Span(row, Tone.DIM))  # no tick: a single step may have been enough
                for fix in one.steps
                for row in [fix.text]
            ]
    return out


def command_lines(command: str, width: int) -> list[Line]:
    """Return a command in full, or why it is not shown.

    Characters that this terminal cannot display might turn a path into another file's.
    """
    if plain(command) != command:
        return labelled(
            "", "its path cannot be displayed here, so neither can the command", width, Tone.DIM
        )
    return labelled("", f"$ {command}", width, Tone.ACCENT, most=WHOLE)


def run_lines(run: RunState, width: int) -> list[Line]:
    """Return the current run, in as many lines as needed."""
    share = ratio(run.step, run.total_steps)
    total = f" of {thousands(run.total_steps)} ({percent(share)})" if run.total_steps else ""
    parts = [
        Span(run.name, Tone.STRONG),
        Span(f"step {thousands(run.step)}{total}"),
        Span(
            f"loss {number(run.loss)}"
            + ("" if run.best is None else f"  best val {number(run.best)}")
        ),
    ]
    if run.throughput is not None:
        parts.append(dim(f"{thousands(run.throughput)} tok/s"))
    if run.resumes:
        last = run.resumes[-1]
        parts.append(dim(f"resumed from {thousands(last.step)} ({last.reason})"))
    return _flowing("run", parts, width)


def _flowing(label: str, parts: Sequence[Span], width: int) -> list[Line]:
    """Return parts after a label, separated by two spaces, in as many lines as needed."""
    out = [line(dim(f"{label:<7}"), parts[0])]
    for part in parts[1:]:
        if width_of(out[-1]) + 2 + width_of((part,)) <= width:
            out[-1] = line(out[-1], "  ", part)
        else:
            out.append(line(" " * 7, part))
    return out


def cell_mark(cell: Cell, survives: bool | None) -> tuple[str, Tone]:
    """Return the glyph of a queue cell; green only if its verified copy survives a destroy."""
    g = glyphs()
    if cell.state == "done":
        return (g.finished, Tone.PROVED if survives else Tone.TEXT)
    if cell.state == "running":
        return (g.ok, Tone.TEXT)
    if cell.state == "failed":
        return (g.trouble, Tone.TROUBLE)
    if cell.state == "interrupted":
        return (g.warn, Tone.WARN)
    return (g.unknown, Tone.DIM)


def cells_line(
    cells: tuple[Cell, ...], width: int, survives: Callable[[Cell], bool | None]
) -> Line:
    """Return the queue in one line: a mark and a name per cell."""
    out: list[Span] = [dim("queue  ")]
    for cell in cells:
        glyph, tone = cell_mark(cell, survives(cell))
        out += [
            Span(glyph, tone),
            Span(f" {cell.name}  ", Tone.DIM if cell.state == "waiting" else Tone.TEXT),
        ]
    return tuple(out)


def title_of(box: BoxState, platform: str) -> Line:
    """Return the title of a pane about a box."""
    return line(Span(box.spec.name or NONE, Tone.STRONG), dim(f"  {platform}") if platform else "")


# What to do about the selected box: a pane whose warnings stay visible while it scrolls, and the
# step to copy.


class Step(NamedTuple):
    """One fix of a finding that can be copied."""

    finding: Finding
    place: int
    """Counted from 1, among all fixes of the finding, with or without a command."""
    fix: Fix

    @property
    def label(self) -> str:
        """Its label in the pane."""
        if len(self.finding.fixes) > 1:
            return f"fix {self.place}"
        return "fix"

    @property
    def copied(self) -> Copied:
        """The fix to copy: only its command, because a shell runs every pasted line."""
        return Copied(what=f"{self.label} of {self.finding.gotcha}", text=self.fix.command or "")


def steps_of(row: Row) -> list[Step]:
    """Return the fixes of a box whose command this terminal can display in full, in their order."""
    return [
        Step(finding, place, fix)
        for finding in row.box.findings
        if not finding.cleared
        for place, fix in enumerate(finding.fixes, 1)
        if fix.command and plain(fix.command) == fix.command
    ]


def blocks_of(row: Row, state: FleetState, width: int, now: float, marked: str = "") -> list[Block]:
    """Return the blocks about a box, most important first, then the bills outside the fleet."""
    out = why_blocks(row, width, now, marked)
    unseen = unseen_section(state, width, now)
    if unseen is not None:
        out.append(Block([EMPTY, unseen.title, *unseen.body], frozenset({0, 1})))
    return out


def window(blocks: Sequence[Block], top: int, height: int) -> tuple[list[Line], int, int]:
    """Return the visible lines with `top` rows scrolled away, and the counts above and below.

    The held lines of the first visible block are included.
    """
    passed = 0
    for place, block in enumerate(blocks):
        if top < passed + block.scrolling or place == len(blocks) - 1:
            hidden = min(max(0, top - passed), block.scrolling)
            lines = block.below(hidden)
            for later in blocks[place + 1 :]:
                lines += later.rows
            return lines[:height], passed + hidden, max(0, len(lines) - height)
        passed += block.scrolling
    return [], 0, 0


MakeBlocks = Callable[[int], Sequence[Block]]
"""Returns the blocks of a pane for its inner width."""


LEAST_MORE = 4
"""Minimum free lines to add another section."""


class WhyPane(Pane):
    """One frame with blocks that scroll below their held lines."""

    DEFAULT_CSS = "WhyPane { height: 1fr; }"

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, focusable=True)
        self._title: Line = EMPTY
        self._hint: Line = EMPTY
        self._make_blocks: MakeBlocks = lambda width: ()
        self._make_more: MakeSections | None = None

    def tell(
        self, title: Line, hint: Line, make: MakeBlocks, more: MakeSections | None = None
    ) -> None:
        """Set the content, and draw what changed.

        Args:
            title: Title of the frame.
            hint: At the right end of the title.
            make: Makes the blocks.
            more: Makes sections to add below, each only if it fits completely.
        """
        self._title, self._hint, self._make_blocks, self._make_more = title, hint, make, more
        self.redraw()

    @property
    def says_something(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._title)

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        blocks = self._make_blocks(max(8, width - 4))
        if blocks:
            return 2 + sum(len(block.rows) for block in blocks)
        return 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame."""
        blocks = self._make_blocks(width - 4)
        if not blocks or width < 4 or height < 3:
            return []
        room = height - 2
        self._top = min(self._top, sum(block.scrolling for block in blocks))
        shown, above, below = window(blocks, self._top, room)
        # avoid blank lines at the end while rows are scrolled away
        while self._top and not below and len(shown) < room:
            before = window(blocks, self._top - 1, room)
            if before[2]:
                break  # the previous block's held lines would push the last line out
            self._top -= 1
            shown, above, below = before
        parts = [Section(self._title, shown, self._hint)]
        left = 0 if above or below else room - len(shown)
        for part in (
            self._make_more(width - 4) if self._make_more is not None and left >= LEAST_MORE else ()
        ):
            if left > len(part.body):
                parts.append(part)
                left -= 1 + len(part.body)
        framed = sections(parts, width, height, active=self.has_focus)
        if above or below:
            _, _, _, _, corner, first, *_ = tuple(glyphs().frame)
            tone = Tone.ACCENT if self.has_focus else Tone.DIM
            framed[-1] = border(width, first, corner, title=out_of_sight(above, below), tone=tone)
        return framed
