"""Why a box has its rank: its findings with proof and fix, its alerts, or what it is doing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from rgt_tui import health
from rgt_tui.health import describe_self_stop
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    BoxHealth,
    BoxState,
    Finding,
    FixStep,
    FleetState,
    QueueCell,
    RunState,
    Severity,
)
from rgt_tui.profiles import compute_percent as ratio
from rgt_tui.ui.box_status import SEVERITIES, cells_of, current_run, health_mark, level_tone
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.notation import (
    NONE,
    compact_time,
    current_glyphs,
    format_thousands,
    make_displayable,
    number_or_dash,
    percent_or_dash,
)
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import FleetRow
from rgt_tui.ui.widgets.panes import (
    MakeSections,
    Pane,
    PaneSection,
    draw_border,
    draw_sections,
    out_of_sight,
)
from rgt_tui.ui.widgets.platform_lines import unlisted_section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    label_lines,
    make_line,
    spread_line,
    text_of,
    width_of,
    wrap_text,
)

if TYPE_CHECKING:
    from rgt_tui.health import Remedy


_SAID_FIRST = {BoxHealth.UNREACHABLE, BoxHealth.UNKNOWN, BoxHealth.STOPPED, BoxHealth.GONE}
"""States that are shown first, because everything else would mislead without them."""


WHOLE = 1000
"""Maximum lines for text that must not be cut."""


class WhyBlock(NamedTuple):
    """Lines that belong together."""

    rows: Sequence[Line]
    held: frozenset[int] = frozenset()
    """Indexes of the rows that stay visible as long as any row of the block is: the problem, and
    what must never be done."""

    @property
    def scrollable_count(self) -> int:
        """Number of rows that can scroll away."""
        return len(self.rows) - len(self.held)

    def rows_below(self, hidden: int) -> list[Line]:
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
    row: FleetRow, width: int, now: float, *, brief: bool = False, marked: str = ""
) -> list[Line]:
    """Return everything about why a box has its rank, most important first.

    `brief` leaves out run and queue, for screens that show them elsewhere. `marked` is the command
    to highlight.
    """
    out = _first_warning(row, width, now)
    # The first warning has the reason already.
    told = row.box.reason if out else ""
    for finding in row.box.findings:
        out += finding_lines(finding, width, now, marked=marked)
    out += _alert_lines(row, width, told, advised=brief)
    out += _hang_lines(row, width, now)
    # A box with a finding or an alert has its reason there.
    if not out:
        out = _state_lines(row, width, now)
    if brief:
        return out
    return [*out, *_doing_lines(row, width, now)]


def why_blocks(row: FleetRow, width: int, now: float, marked: str = "") -> list[WhyBlock]:
    """Return the same as blocks, one per finding, for a pane that scrolls.

    Args:
        row: The box.
        width: Cells.
        now: Client clock.
        marked: Command of the step to highlight.
    """
    before = _first_warning(row, width, now)
    out = [WhyBlock(before)]
    for finding in row.box.findings:
        parts = _make_parts(finding, width, now, marked)
        first = len(parts.head) + len(parts.do)
        held = frozenset({0, *range(first, first + len(parts.never))})
        out.append(WhyBlock([row for part in parts for row in part], held))
    reason = ""
    if before:
        reason = row.box.reason
    said = _alert_lines(row, width, reason)
    if not (said or row.box.findings or before):
        said = _state_lines(row, width, now)
    doing = [*_hang_lines(row, width, now), *_doing_lines(row, width, now)]
    out.append(WhyBlock([*said, *doing]))
    return [block for block in out if block.rows]


def _first_warning(row: FleetRow, width: int, now: float) -> list[Line]:
    """Return a warning shown first if the box is unreachable or its data is stale, else nothing."""
    loud = (alert for alert in row.verdict.alerts if not alert.muted)
    # an alert below has the same text
    raised = any(alert.text == row.verdict.why for alert in loud)
    if row.verdict.health in _SAID_FIRST or (row.verdict.stale and not raised):
        return _state_lines(row, width, now)
    return []


def _alert_lines(row: FleetRow, width: int, said: str, *, advised: bool = False) -> list[Line]:
    """Return the alerts without a finding, with `advised` also the advice; skip the text `said`."""
    out: list[Line] = []
    # The alert of a finding is shown with the finding.
    named = {f"finding:{f.gotcha}:{f.resource}:{f.run or ''}" for f in row.box.findings}
    for alert in row.verdict.alerts:
        # An alert about the state itself repeats the first line.
        if alert.id not in named and alert.kind != row.verdict.health:
            if not (said and said in alert.text):
                if alert.level == "error":
                    glyph = current_glyphs().trouble
                else:
                    glyph = current_glyphs().warn
                if alert.muted:
                    tone = Tone.DIM
                else:
                    tone = level_tone(alert.level)
                first, *rest = wrap_text(alert.text, max(8, width - 2), most=WHOLE)
                out += [
                    make_line(Span(f"{glyph} ", tone), first),
                    *(make_line("  ", more) for more in rest),
                ]
            if advised and not alert.muted and (words := health.alert_advice(alert)):
                out += [
                    make_line("  ", *made)
                    for made in label_lines(
                        "do", translate(words), max(8, width - 2), pad=4, most=3
                    )
                ]
    return out


def _doing_lines(row: FleetRow, width: int, now: float) -> list[Line]:
    """Return the box's own stop, its run and its queue."""
    out: list[Line] = []
    # An alert may have the same text.
    own = describe_self_stop(row.box, now)
    if own and not any(
        own in text for text in (row.verdict.why, *(a.text for a in row.verdict.alerts))
    ):
        first, *rest = wrap_text(own, max(8, width - 2), most=2)
        out += [
            make_line(dim_span(f"{current_glyphs().power} "), first),
            *(make_line("  ", more) for more in rest),
        ]
    run = current_run(row.box)
    if run is not None and run.step is not None:
        out += run_lines(run, width)
    cells = cells_of(row.box)
    if cells:
        from rgt_tui.profiles import copies_of  # not needed for the first frame

        out.append(cells_line(cells, width, copies_of(row.box)))
    for text in row.box.limited[:2]:
        out += label_lines("limited", show_recorded(text), width, Tone.DIM, pad=9, most=3)
    return out


def _hang_lines(row: FleetRow, width: int, now: float) -> list[Line]:
    """Return the evidence of runs that keep the box on and do nothing, and the command that ends that."""
    if not health.describe_hung_runs(row.box, now):
        return []
    from rgt_tui.fleet.autostop import propose_hang_stop  # only a box with a hung run needs it
    from rgt_tui.profiles import load_profile

    proposal = propose_hang_stop(row.box, load_profile(row.box.spec.profile), now)
    if proposal is None:
        return []
    command, why = proposal
    out = label_lines("hangs", why, width, most=WHOLE)
    if command:
        out += command_lines(f"rgt {command}", width)
    return out


def _state_lines(row: FleetRow, width: int, now: float) -> list[Line]:
    glyph, tone = health_mark(row.verdict.health)
    head = Span(f"{glyph} {translate(row.verdict.word)}  ", tone)
    why = row.verdict.why
    first = text_of(wrap_text(why, max(8, width - width_of((head,))))[0])
    # Wrapped again, because the lines below have more room than the first.
    rest = why[len(first) :].lstrip()
    if rest:
        below = wrap_text(rest, max(8, width - 2), most=WHOLE)
    else:
        below = []
    out = [make_line(head, first), *(make_line("  ", more) for more in below)]
    if row.box.retry_at is not None and row.verdict.health is BoxHealth.UNREACHABLE:
        out.append(
            make_line(
                dim_span(translate("next   ")),
                translate("retries in {retry_at}", retry_at=compact_time(row.box.retry_at - now)),
            )
        )
    return out


class _FindingParts(NamedTuple):
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
    return [row for part in _make_parts(finding, width, now, marked) for row in part]


def finding_details(finding: Finding, width: int, *, said: bool) -> list[Line]:
    """Return what an alert's line leaves out of its finding, in the order of `finding_lines`.

    Args:
        finding: The finding.
        width: Cells.
        said: Whether the alert's line shows the reading in full, or the proof if there is no
            reading.
    """
    words = action_words(finding)
    if words and not finding.cleared:
        out = label_lines("do", words, width, Tone.STRONG)
    else:
        out = []
    out += [*_never_lines(finding, width), *_fix_lines(finding, width, "")]
    run = ""
    if finding.run:
        run = f"{finding.run}: "
    out += label_lines("what", run + translate(finding.title), width)
    sure = ""
    if finding.confidence is not None:
        sure = translate(", {share} sure", share=percent_or_dash(100.0 * finding.confidence))
    out += label_lines("where", f"{place_of(finding)}{sure}", width)
    if finding.reading and not said:
        out += label_lines("now", finding.reading, width, most=WHOLE)
    # Without a reading, the proof is the alert's own text.
    if finding.reading or not said:
        out += label_lines("proof", finding.evidence, width, most=WHOLE)
    return out


def _make_parts(finding: Finding, width: int, now: float, marked: str = "") -> _FindingParts:
    # A cause that is gone is no error any more.
    glyph, tone = SEVERITIES[Severity.COST if finding.cleared else finding.severity].glyph_and_tone
    age = ""
    if finding.since:
        age = translate("{now} ago", now=compact_time(now - finding.since))
    name = make_line(Span(f"{glyph} {health.describe_resource(finding.resource)}", tone))
    reading = finding.reading or translate(finding.title)
    tail = make_line(
        dim_span(
            f"  {finding.gotcha} {current_glyphs().dot} {age}" if age else f"  {finding.gotcha}"
        )
    )
    fits = width_of(name) + 2 + cell_len(reading) + width_of(tail) <= width
    front = name
    if fits:
        front = make_line(name, "  ", reading)
    head = [spread_line(front, tail, width)]
    if not fits:
        head += label_lines("now", reading, width, most=4)
    if finding.cleared:
        do = []
    else:
        do = action_lines(finding, width)
    proof = label_lines("proof", finding.evidence, width, most=4)
    if finding.reading:
        run = ""
        if finding.run:
            run = f"{finding.run}: "
        proof = [*label_lines("what", run + translate(finding.title), width, most=4), *proof]
    return _FindingParts(
        head, do, _never_lines(finding, width), _fix_lines(finding, width, marked), proof
    )


def _never_lines(finding: Finding, width: int) -> list[Line]:
    if finding.never:
        return label_lines("never", translate(finding.never), width, Tone.WARN, most=WHOLE)
    return []


def _fix_lines(finding: Finding, width: int, marked: str) -> list[Line]:
    """Return the fixes.

    None is ticked after the cause is gone: it is unknown which one was done.
    """
    steps: list[Line] = []
    if finding.cleared:
        steps += label_lines("now", translate("the cause is fixed; no progress yet"), width)
    for place, fix in enumerate(finding.fixes, 1):
        if len(finding.fixes) > 1:
            label = translate("fix {number}", number=place)
        else:
            label = translate("fix")
        made = label_lines(label, translate(fix.text), width, Tone.STRONG, most=WHOLE)
        if not finding.cleared and fix.command and fix.command == marked:
            made[0] = make_line(Span(fit_text(label, 7), Tone.ACCENT), *made[0][1:])
        steps += made
        if fix.command:
            steps += command_lines(fix.command, width)
    return steps


def action_words(finding: Finding) -> str | None:
    """Return what to do about a finding, in words; None if the handbook has no advice."""
    # imported here because only a box in trouble needs it
    from rgt_tui.handbook import ACTION_WORDS

    return next(
        (
            translate(words)
            for action, words in ACTION_WORDS.items()
            if str(action) == finding.action
        ),
        None,
    )


READ_FROM = {"sample": "a reading", "scalars": "its curve"}


def action_lines(finding: Finding, width: int) -> list[Line]:
    """Return what to do about a finding, with the confidence and the place of its proof.

    Empty if the handbook has no advice.
    """
    words = action_words(finding)
    if words:
        made = label_lines("do", words, width, Tone.STRONG)
    else:
        made = []
    if finding.confidence is not None:
        sure = [translate("{share} sure", share=percent_or_dash(100.0 * finding.confidence))]
    else:
        sure = []
    # The place is left out before the confidence, if both do not fit after the words.
    for tail in ([*sure, place_of(finding)], sure):
        said = make_line(dim_span("  " + f" {current_glyphs().dot} ".join(tail)))
        if made and tail and width_of(made[-1]) + width_of(said) <= width:
            return [*made[:-1], spread_line(made[-1], said, width)]
    return made


def place_of(finding: Finding) -> str:
    """Return the place of a finding's proof: a log file and its line, if known."""
    name = posixpath.basename(finding.where) or "?"
    if finding.where in READ_FROM:
        name = translate(READ_FROM[finding.where])
    if finding.line_no is None:
        return name
    return f"{name}:{finding.line_no}"


def remedy_lines(remedies: Sequence[Remedy], width: int, now: float) -> list[Line]:
    """Return earlier fixes: ticked if the readings show success, else with the doubt."""
    out: list[Line] = []
    for one in remedies:
        if one.is_done:
            ago = translate("fixed {now} ago", now=compact_time(now - (one.over_at or now)))
            mark_, tone = f"{current_glyphs().check} ", Tone.PROVED
        elif one.doubt:
            ago, mark_, tone = one.doubt, f"{current_glyphs().unknown} ", Tone.DIM
        else:
            continue
        out.append(
            spread_line(
                make_line(Span(mark_, tone), translate(one.title)),
                make_line(dim_span(f"  {ago}")),
                width,
            )
        )
        if one.is_done:
            out += [
                make_line(
                    "    ", Span(row, Tone.DIM)
                )  # no tick: a single step may have been enough
                for fix in one.steps
                for row in [translate(fix.text)]
            ]
    return out


def command_lines(command: str, width: int) -> list[Line]:
    """Return a command in full, or why it is not shown.

    Characters that this terminal cannot display might turn a path into another file's.
    """
    if make_displayable(command) != command:
        return label_lines(
            "",
            translate("its path cannot be displayed here, so neither can the command"),
            width,
            Tone.DIM,
        )
    return label_lines("", f"$ {command}", width, Tone.ACCENT, most=WHOLE)


def run_lines(run: RunState, width: int) -> list[Line]:
    """Return the current run, in as many lines as needed."""
    share = ratio(run.step, run.total_steps)
    total = ""
    if run.total_steps:
        total = translate(
            " of {steps} ({share})",
            steps=format_thousands(run.total_steps),
            share=percent_or_dash(share),
        )
    best = ""
    if run.best is not None:
        best = translate("  best val {best}", best=number_or_dash(run.best))
    parts = [
        Span(run.name, Tone.STRONG),
        Span(run.position + total),
        Span(translate("loss {loss}", loss=number_or_dash(run.loss)) + best),
    ]
    if run.throughput is not None:
        parts.append(
            dim_span(translate("{throughput} tok/s", throughput=format_thousands(run.throughput)))
        )
    if run.resumes:
        last = run.resumes[-1]
        parts.append(
            dim_span(
                translate(
                    "resumed from {step} ({reason})",
                    step=format_thousands(last.step),
                    reason=last.reason,
                )
            )
        )
    return _flow_parts("run", parts, width)


def _flow_parts(label: str, parts: Sequence[Span], width: int) -> list[Line]:
    """Return parts after a label, separated by two spaces, in as many lines as needed."""
    out = [make_line(dim_span(fit_text(translate(label), 7)), parts[0])]
    for part in parts[1:]:
        if width_of(out[-1]) + 2 + width_of((part,)) <= width:
            out[-1] = make_line(out[-1], "  ", part)
        else:
            out.append(make_line(" " * 7, part))
    return out


def cell_mark(cell: QueueCell, survives: bool | None) -> tuple[str, Tone]:
    """Return the glyph of a queue cell; green only if its verified copy survives a destroy."""
    g = current_glyphs()
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
    cells: tuple[QueueCell, ...], width: int, survives: Callable[[QueueCell], bool | None]
) -> Line:
    """Return the queue in one line: a mark and a name per cell."""
    out: list[Span] = [dim_span(translate("queue  "))]
    for cell in cells:
        glyph, tone = cell_mark(cell, survives(cell))
        name_tone = Tone.TEXT
        if cell.state == "waiting":
            name_tone = Tone.DIM
        out += [Span(glyph, tone), Span(f" {cell.name}  ", name_tone)]
    return tuple(out)


def title_of(box: BoxState, platform: str) -> Line:
    """Return the title of a pane about a box."""
    platform_span: Span | str = ""
    if platform:
        platform_span = dim_span(f"  {platform}")
    return make_line(Span(box.spec.name or NONE, Tone.STRONG), platform_span)


# What to do about the selected box: a pane whose warnings stay visible while it scrolls, and the
# step to copy.


class CopyableFix(NamedTuple):
    """One fix of a finding that can be copied."""

    finding: Finding
    place: int
    """Counted from 1, among all fixes of the finding, with or without a command."""
    fix: FixStep

    @property
    def pane_label(self) -> str:
        """Its label in the pane."""
        if len(self.finding.fixes) > 1:
            return translate("fix {number}", number=self.place)
        return translate("fix")

    @property
    def copy_text(self) -> ClipboardText:
        """The fix to copy: only its command, because a shell runs every pasted line."""
        return ClipboardText(
            what=translate("{fix} of {page}", fix=self.pane_label, page=self.finding.gotcha),
            text=self.fix.command or "",
        )


def steps_of(row: FleetRow) -> list[CopyableFix]:
    """Return the fixes of a box whose command this terminal can display in full, in their order."""
    return [
        CopyableFix(finding, place, fix)
        for finding in row.box.findings
        if not finding.cleared
        for place, fix in enumerate(finding.fixes, 1)
        if fix.command and make_displayable(fix.command) == fix.command
    ]


def blocks_of(
    row: FleetRow, state: FleetState, width: int, now: float, marked: str = ""
) -> list[WhyBlock]:
    """Return the blocks about a box, most important first, then the bills found outside the fleet."""
    out = why_blocks(row, width, now, marked)
    unseen = unlisted_section(state, width, now, found=True)
    if unseen is not None:
        out.append(WhyBlock([EMPTY, unseen.title, *unseen.body], frozenset({0, 1})))
    return out


def visible_lines(blocks: Sequence[WhyBlock], top: int, height: int) -> tuple[list[Line], int, int]:
    """Return the visible lines with `top` rows scrolled away, and the counts above and below.

    The held lines of the first visible block are included.
    """
    passed = 0
    for place, block in enumerate(blocks):
        if top < passed + block.scrollable_count or place == len(blocks) - 1:
            hidden = min(max(0, top - passed), block.scrollable_count)
            lines = block.rows_below(hidden)
            for later in blocks[place + 1 :]:
                lines += later.rows
            return lines[:height], passed + hidden, max(0, len(lines) - height)
        passed += block.scrollable_count
    return [], 0, 0


MakeBlocks = Callable[[int], Sequence[WhyBlock]]
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

    def show_blocks(
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
    def has_content(self) -> bool:
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
        self._top = min(self._top, sum(block.scrollable_count for block in blocks))
        shown, above, below = visible_lines(blocks, self._top, room)
        # avoid blank lines at the end while rows are scrolled away
        while self._top and not below and len(shown) < room:
            before = visible_lines(blocks, self._top - 1, room)
            if before[2]:
                break  # the previous block's held lines would push the last line out
            self._top -= 1
            shown, above, below = before
        parts = [PaneSection(self._title, shown, self._hint)]
        if above or below:
            left = 0
        else:
            left = room - len(shown)
        for part in (
            self._make_more(width - 4) if self._make_more is not None and left >= LEAST_MORE else ()
        ):
            if left > len(part.body):
                parts.append(part)
                left -= 1 + len(part.body)
        framed = draw_sections(parts, width, height, active=self.has_focus)
        if above or below:
            _, _, _, _, corner, first, *_ = tuple(current_glyphs().frame)
            if self.has_focus:
                tone = Tone.ACCENT
            else:
                tone = Tone.DIM
            framed[-1] = draw_border(
                width, first, corner, title=out_of_sight(above, below), tone=tone
            )
        return framed
