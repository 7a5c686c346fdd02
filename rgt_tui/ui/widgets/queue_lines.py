"""The queue of a box, one line per cell."""

from __future__ import annotations

from rich.cells import cell_len

from rgt_tui.language import show_recorded, translate
from rgt_tui.model import BoxState, QueueCell, RunState, how_many
from rgt_tui.profiles import collect_advice, copies_of, how_ended, no_agent, run_cost
from rgt_tui.profiles import compute_percent as ratio
from rgt_tui.profiles.run_advice import from_its_start
from rgt_tui.ui.box_status import cells_of
from rgt_tui.ui.notation import (
    compact_time,
    current_glyphs,
    format_thousands,
    make_displayable,
    number_or_dash,
    percent_or_dash,
)
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.spans import (
    Line,
    Span,
    Tone,
    dim_span,
    fit_name,
    join_fitting,
    make_line,
    width_of,
    wrap_text,
)
from rgt_tui.ui.widgets.vitals import fade_lines, is_old
from rgt_tui.ui.widgets.why import cell_mark


def queue_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return a line per cell of all queues, and the queues' own problems.

    For a box that no longer reports, all values are shown as of its last sample.
    """
    if is_old(box, now) and box.sample_at is not None:
        return [
            _not_live(made) for made in fade_lines(_queue_rows(box, width, box.sample_at), old=True)
        ]
    return _queue_rows(box, width, now)


def _not_live(made: Line) -> Line:
    """Return a line without the mark of a running cell."""
    g = current_glyphs()
    first = made[0] if made else None
    if first is None or first.text.strip() != g.ok:
        return made
    return make_line(first._replace(text=first.text.replace(g.ok, g.unknown)), *made[1:])


def _queue_rows(box: BoxState, width: int, now: float) -> list[Line]:
    cells = cells_of(box)
    if not cells:
        return [*found_lines(box, width, now), *advice_lines(box, now)] or wrap_text(
            _why_nothing(box), width, Tone.DIM
        )
    runs = {run.name: run for run in box.runs}
    names = min(max(cell_len(cell.name) for cell in cells), 20)
    # The times of a cell are those of the box's clock.
    skew = box.clock_skew or 0.0
    survives = copies_of(box)
    out = []
    for cell in cells:
        made = _cell_line(cell, runs.get(cell.name), names, width, now + skew, survives(cell))
        out += _with_cost(made, box, cell.name, width, now)
    for queue in box.queues:
        if queue.error:
            out.append(make_line(Span(queue.error, Tone.TROUBLE)))
        # Cells that wait will not start, although nothing has failed.
        elif not queue.runner_alive and not queue.done:
            out.append(make_line(Span(translate("the queue runner is not running"), Tone.WARN)))
        if queue.done:
            out.append(make_line(dim_span(translate("QUEUE DONE"))))
    return [*out, *advice_lines(box, now)]


def advice_lines(box: BoxState, now: float) -> list[Line]:
    """Return the first lines of advice, dimmed: none of it is trouble."""
    advice_rows = 2
    shown = collect_advice(box, now)[:advice_rows]
    return [
        make_line(dim_span(translate("  advice {run}: {words}", run=one.run, words=one.text)))
        for one in shown
    ]


def _with_cost(made: Line, box: BoxState, name: str, width: int, now: float) -> list[Line]:
    """Return the line of a run with its cost next to it, or below if it does not fit."""
    cost = run_cost(box, name, now)
    if cost is None:
        return [made]
    words = make_displayable(cost.short_text)
    if width_of(made) + 2 + cell_len(words) <= width:
        return [make_line(*made, dim_span(f"  {words}"))]
    return [made, make_line(dim_span(f"  {words}"))]


def _why_nothing(box: BoxState) -> str:
    """Return why nothing is listed: no sample yet, no access, or nothing found."""
    if box.sample is None:
        return translate("no queue or training yet")
    if box.sample.unseen is not None:
        return translate("queue and training unknown: {unseen}", unseen=box.sample.unseen)
    if no_agent(box):
        return translate("queue and runs unknown: no agent runs on the box")
    return translate("no queue and no training found on the box")


def found_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return a line per training that was found, and notes on what is unknown about it."""
    runs = {run.name: run for run in box.runs}
    names = min(max((cell_len(run.name) for run in box.found), default=0), 28)
    box_now = now + (box.clock_skew or 0.0)
    out: list[Line] = []
    for found in box.found:
        if found.alive:
            glyph, tone = (current_glyphs().ok, Tone.TEXT)
        else:
            glyph, tone = (current_glyphs().stopped, Tone.WARN)
        if found.place:
            place = f" {found.place}"
        else:
            place = ""
        took = (box_now if found.alive or found.ended is None else found.ended) - found.started
        if found.alive:
            run = runs.get(found.name)
            # A resumed run has steps that this process did not make, so its pace is unknown.
            if run is not None and from_its_start(run):
                left = _expected_duration(run, took)
            else:
                left = ""
            if run is not None and run.loss is not None:
                loss = f"  loss {number_or_dash(run.loss)}"
            else:
                loss = ""
            how = (Span(f"{_progress_text(run)}{loss}"), dim_span(f"  {compact_time(took)}{left}"))
        else:
            code = how_ended(found)
            how = (
                Span(translate("ended"), Tone.WARN),
                dim_span(translate(", {code}  after {took}", code=code, took=compact_time(took))),
            )
        where = dim_span(f"  {found.session}{place}")
        made = make_line(Span(f"{glyph} ", tone), fit_name(found.name, names), "  ", *how, where)
        out += _with_cost(made, box, found.name, width, now)
        out += [make_line(dim_span(f"  {note}")) for note in found.notes[:2]]
    return out


def _cell_line(
    cell: QueueCell,
    run: RunState | None,
    names: int,
    width: int,
    box_now: float,
    survives: bool | None,
) -> Line:
    glyph, tone = cell_mark(cell, survives)
    if cell.state == "running" and run is not None and run.wait is not None:
        # Its process lives, but the steps since its last save are in memory only.
        glyph, tone = current_glyphs().trouble, Tone.TROUBLE
    name = fit_name(cell.name, names)
    name_tone = Tone.TEXT
    if cell.state == "waiting":
        name_tone = Tone.DIM
    head = make_line(Span(glyph, tone), Span(f" {name}  ", name_tone))
    return make_line(*head, *_cell_rest(cell, run, width - width_of(head), box_now, survives))


def _cell_rest(
    cell: QueueCell, run: RunState | None, room: int, box_now: float, survives: bool | None
) -> Line:
    """Return a cell's status; if not all fits, the least important parts are left out."""
    if cell.state == "waiting":
        return make_line(dim_span(translate("waiting")))
    if cell.started is None:
        took = None
    else:
        took = (cell.ended or box_now) - cell.started
    parts: Parts
    if cell.state == "running":
        if run is not None and run.step is not None and run.loss is not None:
            loss = f"loss {number_or_dash(run.loss)}"
        else:
            loss = ""
        spent = dim_span(
            "" if took is None else f"{compact_time(took)}{_expected_duration(run, took)}"
        )
        stands = make_line(_progress_text(run))
        parts = [(0, stands), (2, make_line(loss)), (1, make_line(spent))]
        if run is not None and run.wait is not None and width_of(stands) > room:
            return make_line(
                translate("holding at step {step}", step=format_thousands(run.wait.step))
            )  # the alert says what is unsaved
        # The progress is shown even if it must be cut.
        return join_fitting(max(room, width_of(stands)), parts)
    if cell.state == "failed":
        bad = Tone.TROUBLE
    else:
        bad = Tone.WARN
    parts = []
    # The reason begins with the exit code already.
    if cell.exit_code is not None and not (cell.reason or "").startswith(f"exit {cell.exit_code}"):
        exit_tone = Tone.TEXT
        if cell.state == "failed":
            exit_tone = bad
        parts.append(
            (
                1,
                make_line(Span(translate("exit {exit_code}", exit_code=cell.exit_code), exit_tone)),
            )
        )
    elif cell.exit_code is None and cell.state in {"failed", "interrupted"}:
        parts.append((1, make_line(Span(translate(cell.state), bad))))
    parts.append((2, make_line(Span(cell.signal or "", Tone.WARN))))
    parts.append((5, make_line(dim_span("" if took is None else compact_time(took)))))
    best = cell.best
    if best is None and run:
        best = run.best
    parts.append(
        (4, make_line("" if best is None else translate("best {best}", best=number_or_dash(best))))
    )
    parts.append((3, make_line(Span(show_recorded(cell.flag or ""), Tone.WARN))))
    if cell.reason:  # it may be long, so it gets up to half of the room in any case
        why = Span(show_recorded(cell.reason), bad)
        return make_line(
            *join_fitting(room - 2 - min(room // 2, width_of((why,))), parts), "  ", why
        )
    kept = dim_span(translate("no durable copy requested") if cell.state == "done" else "")
    if cell.durable == "verified":
        kept = _verified_span(cell, survives)
    elif cell.durable == "failed":
        kept = Span(translate("NO durable copy"), Tone.TROUBLE)
    elif cell.durable == "pending":
        kept = Span(translate("durable: pending"), Tone.WARN)
    return join_fitting(room, [*parts, (0, make_line(kept))])


def _verified_span(cell: QueueCell, survives: bool | None) -> Span:
    """Return a verified copy's status; green only if it is known to survive destroying the box."""
    # A verified copy on a disk of this box is gone with it.
    if survives is False and cell.state == "done":
        return Span(
            translate("{warn} copy verified, but lost with the box", warn=current_glyphs().warn),
            Tone.WARN,
        )
    tone = Tone.TEXT
    if survives:
        tone = Tone.PROVED
    return Span(translate("durable: verified"), tone)


def _progress_text(run: RunState | None) -> str:
    if run is None or run.step is None:
        return translate("no step yet")
    if run.wait is not None:
        if run.wait.unsaved is None:
            unsaved = ""
        else:
            unsaved = translate(", {unsaved} not saved", unsaved=how_many(run.wait.unsaved, "step"))
        return translate(
            "holding at step {step}{unsaved}", step=format_thousands(run.wait.step), unsaved=unsaved
        )
    if run.total_steps:
        total = translate(" of {steps}", steps=format_thousands(run.total_steps))
    else:
        total = ""
    if run.total_steps:
        share = f" ({percent_or_dash(ratio(run.step, run.total_steps))})"
    else:
        share = ""
    return f"{run.position}{total}{share}"


def _expected_duration(run: RunState | None, took: float | None) -> str:
    """Return the expected total duration of the cell, from its pace."""
    if (
        run is None
        or not run.step
        or not run.total_steps
        or not took
        or run.step >= run.total_steps
    ):
        return ""
    if run.wait is not None:
        return ""
    # While it was held it made no progress.
    worked = max(0.0, took - run.held_s)
    return translate(
        " of about {held_s}", held_s=compact_time(run.held_s + worked * run.total_steps / run.step)
    )
