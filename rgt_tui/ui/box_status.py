"""How a box's state is shown: its glyph and tone, its current run, its summary in the header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rgt_tui import health
from rgt_tui.model import (
    Amount,
    BoxState,
    Cell,
    FleetState,
    Health,
    LogView,
    RunState,
    Severity,
    Spend,
)
from rgt_tui.profiles import how_many, prices, written
from rgt_tui.ui.enduring import words
from rgt_tui.ui.notation import DAY, NONE, compact_time, glyphs, known
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.spans import Span, Tone, dim, line

if TYPE_CHECKING:
    from rgt_tui.health import Assessment, ClockReading
    from rgt_tui.model import Profile


def assess(box: BoxState, now: float) -> Assessment:
    """Assess a box. The first call imports the health package, after the first frame."""
    return health.assess(box, now)


def failed(box: BoxState, error: Exception) -> Assessment:
    """Return an assessment for a box that could not be assessed: unknown, with the error."""
    return health.Assessment(
        health=Health.UNKNOWN,
        word="unknown",
        why=f"rgt failed to judge this box: {words(error)}",
        alerts=(),
        progress_age=None,
        sample_age=None,
        stale=False,
        rank=(list(Health).index(Health.UNKNOWN), 0, 0, 0.0, box.spec.name),
    )


class Look(NamedTuple):
    """How a state is displayed on every screen."""

    glyph: str
    """Name of the character in `rgt_tui.ui.notation.Glyphs`."""
    tone: Tone
    means: str
    """Description for the help."""

    @property
    def mark(self) -> tuple[str, Tone]:
        """The character that this terminal can show, and its tone."""
        return str(getattr(glyphs(), self.glyph)), self.tone


STATES: dict[Health, Look] = {
    Health.TROUBLE: Look("trouble", Tone.TROUBLE,
        "trouble: something is wrong now; the line below the table names it and what to do"),
    Health.UNREACHABLE: Look("unreachable", Tone.WARN,
        "unreachable: no answer from the box; its last values stay, with their age"),
    Health.WARN: Look("warn", Tone.WARN, "warn: it keeps running, but something needs attention"),
    Health.UNKNOWN: Look("warn", Tone.WARN, "unknown: rgt cannot determine it, and shows why"),
    Health.STALE: Look("stale", Tone.DIM, "stale: its values are older than three intervals"),
    Health.CONNECTING: Look("unknown", Tone.DIM, "connecting: no data yet"),
    Health.PAUSED: Look("paused", Tone.DIM, "paused: by you; rgt does not watch it"),
    Health.RUNNING: Look("ok", Tone.TEXT, "running: a run is making progress"),
    Health.IDLE: Look("idle", Tone.TEXT, "idle: ready, and nothing is running"),
    Health.FINISHED: Look("finished", Tone.TEXT, "finished: the queue is done"),
    Health.STOPPED: Look("stopped", Tone.DIM, "stopped: parked at the platform; its disks may still cost money"),
    Health.GONE: Look("gone", Tone.DIM, "gone: the platform no longer has it"),
}  # fmt: skip
"""Glyph, tone and description of every state of a box, the same on all screens."""

SEVERITIES: dict[Severity, Look] = {
    Severity.FATAL: Look("trouble", Tone.TROUBLE, "fatal: the run is over, stuck, or loses its results"),
    Severity.SILENT_WRONG: Look("trouble", Tone.TROUBLE, "silent-wrong: it runs, but its results are worthless"),
    Severity.DEGRADING: Look("warn", Tone.WARN, "degrading: it keeps running, but slower or worse than it could"),
    Severity.COST: Look("warn", Tone.WARN, "cost: it costs more than it has to"),
}  # fmt: skip
"""Severity of a failure. The glyph is that of its alert: error for the first two, else warning."""

UNSEEN = frozenset({Health.UNREACHABLE, Health.PAUSED, Health.STOPPED, Health.GONE})
"""States in which values are old for another reason than a late sample."""


def mark(health: Health) -> tuple[str, Tone]:
    """Return the glyph and the tone of a state."""
    return STATES[health].mark


def old_mark(health: Health) -> str:
    """Return the glyph before the age of old values: the reason for their age, if known."""
    return mark(health if health in UNSEEN else Health.STALE)[0]


CALM = frozenset({Health.RUNNING, Health.IDLE, Health.FINISHED})


def is_limited(box: BoxState, verdict: Assessment) -> bool:
    """Return whether a box seems well but is only partly visible, such as without an agent."""
    return bool(box.limited) and verdict.health in CALM


def standing(box: BoxState, verdict: Assessment) -> tuple[str, str, Tone]:
    """Return the glyph and the word of a box, and their tone."""
    if is_limited(box, verdict):
        return glyphs().limited, "limited", Tone.TEXT
    glyph, tone = mark(verdict.health)
    return glyph, verdict.word, tone


def level_tone(level: str) -> Tone:
    """Return the tone of an alert, an event or a clock."""
    return {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(level, Tone.TEXT)


def counts(healths: Iterable[Health]) -> list[tuple[Health, int]]:
    """Return how many boxes are in each state, worst first."""
    found = Counter(healths)
    return [(health, found[health]) for health in Health if found[health]]


def cells_of(box: BoxState) -> tuple[Cell, ...]:
    """Return the cells of all queues of a box."""
    if len(box.queues) == 1:
        return box.queues[0].cells
    return tuple(cell for queue in box.queues for cell in queue.cells)


def current_cell(box: BoxState) -> tuple[int, Cell] | None:
    """Return the running cell with its number (from 1), else the last started one."""
    started: tuple[int, Cell] | None = None
    for place, cell in enumerate(cells_of(box), 1):
        if cell.state == "running":
            return place, cell
        if cell.state != "waiting":
            started = place, cell
    return started


def current_run(box: BoxState) -> RunState | None:
    """Return the run of the current cell, else the one with the newest progress."""
    if not box.runs:
        return None
    current = current_cell(box)
    if current is not None:
        for run in box.runs:
            if run.name == current[1].name:
                return run
        if current[1].state == "running":
            return None
    return max(box.runs, key=lambda run: run.progressed_at or 0.0)


def fleet_parts(state: FleetState, verdicts: Sequence[Assessment]) -> Parts:
    """Return the boxes counted by state, the rate of the fleet, and its cost so far."""
    limited = [is_limited(box, verdict) for box, verdict in zip(state.boxes, verdicts, strict=True)]
    found = counts(one.health for one, part in zip(verdicts, limited, strict=True) if not part)
    many = len(state.boxes)
    parts: Parts = [(3, line(dim(how_many(many, "box", "boxes"))))]
    for state_of, count in found:
        glyph, tone = mark(state_of)
        parts.append((1, line(Span(f"{glyph} {count}", tone))))
    if any(limited):
        parts.append((1, line(f"{glyphs().limited} {sum(limited)}")))
    rate = written(prices.fleet_rate(box.meter for box in state.boxes), none=NONE)
    parts.append((2, line("  ", Span(rate), dim(" /h"))))
    parts += spend_parts(state)
    unknown = sum(1 for box in state.boxes if box.meter.per_hour is None)
    if unknown and unknown < many:
        parts.append((5, line(dim(f"{unknown} without a price"))))
    return parts


def spend_parts(state: FleetState) -> Parts:
    """Return today's cost, its idle part, yesterday's and this month's cost.

    Without a spend record, return the total cost of the boxes instead.
    """
    spend = state.spend
    if spend is None:
        spent = written(prices.fleet_spent(box.meter for box in state.boxes), none=NONE)
        return [(4, line(dim("spent "), Span(spent)))]
    parts: Parts = [(4, line(dim("today "), Span(_sum(spend, "today", spend.today))))]
    if any(amount > 0 for _, amount in spend.idle_today):
        parts.append((4, line(dim("idle "), Span(_sum(spend, "today", spend.idle_today)))))
    if any(amount > 0 for _, amount in spend.yesterday):
        parts.append((7, line(dim("yesterday "), Span(_sum(spend, "yesterday", spend.yesterday)))))
    if spend.month and spend.month != spend.today:
        parts.append((8, line(dim("month "), Span(_sum(spend, "month", spend.month)))))
    return parts


def _sum(spend: Spend, span: str, amounts: Sequence[tuple[str, float]]) -> str:
    least = span in spend.at_least
    # idle cost is never estimated
    estimated = span in spend.estimated and amounts is not spend.idle_today
    return written(
        (Amount(amount, currency, least, estimated) for currency, amount in amounts), none=NONE
    )


def box_parts(box: BoxState, verdict: Assessment, platform: str, clock: Span | None) -> Parts:
    """Return the state of one box, its platform, its meter and its nearest danger clock."""
    glyph, word, tone = standing(box, verdict)
    parts: Parts = [(1, line(Span(f"{glyph} {word}", tone)))]
    if box.sample is not None:
        up = box.sample.session.uptime_s
        if up is not None and not verdict.stale:
            parts.append((5, line(dim("up "), compact_time(up))))
        if box.sample.gpus:
            name = box.sample.gpus[0].name
            platform = f"{platform}  {name} {glyphs().times}{len(box.sample.gpus)}"
    parts.append((6, line(dim(platform))))
    meter = box.meter
    if meter.per_hour is None:
        parts.append((2, line(dim("price unknown"))))
    else:
        parts.append((2, line(known(prices.rate(meter)), dim("/h"))))
    if meter.spent is not None:
        parts.append((3, line(dim("spent "), known(prices.spent(meter)))))
    if clock is not None:
        parts.append((4 if clock.tone is not Tone.DIM else 7, line(clock)))
    return parts


def clock_of(profile: Profile, box: BoxState, now: float) -> Span | None:
    """Return a box's first danger clock, else the one that a stop would start; None without any."""
    for reading in health.clock_readings(profile, box, now)[:1]:
        left = (
            "" if reading.seconds_left is None else f" {clock_left(reading, reading.seconds_left)}"
        )
        return Span(f"{reading.what}{left}", level_tone(reading.level))
    for pending in health.pending_readings(profile)[:1]:
        if pending.seconds_left is not None:
            return dim(f"if stopped: {pending.what} in {compact_time(pending.seconds_left)}")
    return None


def choose_log(box: BoxState, wanted: str | None) -> LogView | None:
    """Return the requested log, else the running cell's, else the one with the newest line."""
    if wanted is not None:
        found = next((view for view in box.logs if view.path == wanted), None)
        if found is not None:
            return found
    current = current_cell(box)
    if current is not None and current[1].log is not None:
        found = next((view for view in box.logs if view.path == current[1].log), None)
        if found is not None:
            return found
    return max(box.logs, key=lambda view: (bool(view.lines), view.at or 0.0), default=None)


def clock_left(reading: ClockReading, left: float) -> str:
    """Return the time left with a sign for its accuracy; a sign and days leave out the hours."""
    bound = health.Bound
    sign = {bound.AT_LEAST: glyphs().at_least, bound.AT_MOST: glyphs().at_most}.get(
        reading.bound, "~" if reading.approx else ""
    )
    if sign and left >= DAY:
        return f"{sign}{int(left // DAY)}d"
    return f"{sign}{compact_time(left)}"
