"""How a box's state is shown: its glyph and tone, its current run, its summary in the header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rgt_tui import health
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxHealth,
    BoxState,
    FleetSpend,
    FleetState,
    LogView,
    MoneyAmount,
    QueueCell,
    RunState,
    Severity,
    format_sums,
    how_many,
)
from rgt_tui.profiles import prices
from rgt_tui.ui.enduring import describe_error
from rgt_tui.ui.notation import DAY, NONE, amount_or_dash, compact_time, current_glyphs
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.spans import Span, Tone, dim_span, make_line

if TYPE_CHECKING:
    from rgt_tui.health import Assessment, ClockReading
    from rgt_tui.model import Profile


def assess_box(box: BoxState, now: float) -> Assessment:
    """Assess a box. The first call imports the health package, after the first frame."""
    return health.assess_box(box, now)


def build_failed_assessment(box: BoxState, error: Exception) -> Assessment:
    """Return an assessment for a box that could not be assessed: unknown, with the error."""
    return health.Assessment(
        health=BoxHealth.UNKNOWN,
        word="unknown",
        why=translate("rgt failed to judge this box: {error}", error=describe_error(error)),
        alerts=(),
        progress_age=None,
        sample_age=None,
        stale=False,
        rank=(list(BoxHealth).index(BoxHealth.UNKNOWN), 0, 0, 0.0, box.spec.name),
    )


class StateLook(NamedTuple):
    """How a state is displayed on every screen."""

    glyph: str
    """Name of the character in `rgt_tui.ui.notation.GlyphSet`."""
    tone: Tone
    means: str
    """Description for the help."""

    @property
    def glyph_and_tone(self) -> tuple[str, Tone]:
        """The character that this terminal can show, and its tone."""
        return str(getattr(current_glyphs(), self.glyph)), self.tone


STATES: dict[BoxHealth, StateLook] = {
    BoxHealth.TROUBLE: StateLook("trouble", Tone.TROUBLE,
        "trouble: something is wrong now; the line below the table names it and what to do"),
    BoxHealth.UNREACHABLE: StateLook("unreachable", Tone.WARN,
        "unreachable: no answer from the box; its last values stay, with their age"),
    BoxHealth.WARN: StateLook("warn", Tone.WARN,
                              "warn: it keeps running, but something needs attention"),
    BoxHealth.UNKNOWN: StateLook("warn", Tone.WARN,
                                 "unknown: rgt cannot determine it, and shows why"),
    BoxHealth.STALE: StateLook("stale", Tone.DIM,
                               "stale: its values are older than three intervals"),
    BoxHealth.CONNECTING: StateLook("unknown", Tone.DIM, "connecting: no data yet"),
    BoxHealth.PAUSED: StateLook("paused", Tone.DIM, "paused: by you; rgt does not watch it"),
    BoxHealth.RUNNING: StateLook("ok", Tone.TEXT, "running: a run is making progress"),
    BoxHealth.IDLE: StateLook("idle", Tone.TEXT, "idle: ready, and nothing is running"),
    BoxHealth.FINISHED: StateLook("finished", Tone.TEXT, "finished: the queue is done"),
    BoxHealth.STOPPED: StateLook(
        "stopped", Tone.DIM, "stopped: parked at the platform; its disks may still cost money"
    ),
    BoxHealth.GONE: StateLook("gone", Tone.DIM, "gone: the platform no longer has it"),
}  # fmt: skip
"""Glyph, tone and description of every state of a box, the same on all screens."""

SEVERITIES: dict[Severity, StateLook] = {
    Severity.FATAL: StateLook("trouble", Tone.TROUBLE,
                              "fatal: the run is over, stuck, or loses its results"),
    Severity.SILENT_WRONG: StateLook("trouble", Tone.TROUBLE,
                                     "silent-wrong: it runs, but its results are worthless"),
    Severity.DEGRADING: StateLook("warn", Tone.WARN,
                                  "degrading: it keeps running, but slower or worse than it could"),
    Severity.COST: StateLook("warn", Tone.WARN, "cost: it costs more than it has to"),
}  # fmt: skip
"""Severity of a failure. The glyph is that of its alert: error for the first two, else warning."""

UNSEEN = frozenset({BoxHealth.UNREACHABLE, BoxHealth.PAUSED, BoxHealth.STOPPED, BoxHealth.GONE})
"""States in which values are old for another reason than a late sample."""


def health_mark(health: BoxHealth) -> tuple[str, Tone]:
    """Return the glyph and the tone of a state."""
    return STATES[health].glyph_and_tone


def old_mark(health: BoxHealth) -> str:
    """Return the glyph before the age of old values: the reason for their age, if known."""
    return health_mark(health if health in UNSEEN else BoxHealth.STALE)[0]


def describe_age(verdict: Assessment) -> str:
    """Return the glyph and the age of the last sample of a box whose values are old."""
    age = translate("{age} old", age=compact_time(verdict.sample_age))
    return f"{old_mark(verdict.health)} {age}"


CALM = frozenset({BoxHealth.RUNNING, BoxHealth.IDLE, BoxHealth.FINISHED})


def is_limited(box: BoxState, verdict: Assessment) -> bool:
    """Return whether a box seems well but is only partly visible, such as without an agent."""
    return bool(box.limited) and verdict.health in CALM


def status_label(box: BoxState, verdict: Assessment) -> tuple[str, str, Tone]:
    """Return the glyph and the word of a box, and their tone."""
    if is_limited(box, verdict):
        return current_glyphs().limited, translate("limited"), Tone.TEXT
    glyph, tone = health_mark(verdict.health)
    return glyph, translate(verdict.word), tone


def level_tone(level: str) -> Tone:
    """Return the tone of an alert, an event or a clock."""
    return {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(level, Tone.TEXT)


def count_by_health(healths: Iterable[BoxHealth]) -> list[tuple[BoxHealth, int]]:
    """Return how many boxes are in each state, worst first."""
    found = Counter(healths)
    return [(health, found[health]) for health in BoxHealth if found[health]]


def cells_of(box: BoxState) -> tuple[QueueCell, ...]:
    """Return the cells of all queues of a box."""
    # No copy: this is called for each box at every redraw.
    if len(box.queues) == 1:
        return box.queues[0].cells
    return tuple(cell for queue in box.queues for cell in queue.cells)


def current_cell(box: BoxState) -> tuple[int, QueueCell] | None:
    """Return the running cell with its number (from 1), otherwise the last started one."""
    started: tuple[int, QueueCell] | None = None
    for place, cell in enumerate(cells_of(box), 1):
        if cell.state == "running":
            return place, cell
        if cell.state != "waiting":
            started = place, cell
    return started


def current_run(box: BoxState) -> RunState | None:
    """Return the run of the current cell, otherwise the one with the newest progress."""
    if not box.runs:
        return None
    current = current_cell(box)
    if current is not None:
        for run in box.runs:
            if run.name == current[1].name:
                return run
        # The running cell has logged nothing yet; the progress of an earlier run is not its own.
        if current[1].state == "running":
            return None
    return max(box.runs, key=lambda run: run.progressed_at or 0.0)


def fleet_parts(state: FleetState, verdicts: Sequence[Assessment]) -> Parts:
    """Return the boxes counted by state, the rate of the fleet, and its cost so far."""
    limited = [is_limited(box, verdict) for box, verdict in zip(state.boxes, verdicts, strict=True)]
    found = count_by_health(
        one.health for one, part in zip(verdicts, limited, strict=True) if not part
    )
    many = len(state.boxes)
    parts: Parts = [(3, make_line(dim_span(how_many(many, "box", "boxes"))))]
    for state_of, count in found:
        glyph, tone = health_mark(state_of)
        parts.append((1, make_line(Span(f"{glyph} {count}", tone))))
    if any(limited):
        parts.append((1, make_line(f"{current_glyphs().limited} {sum(limited)}")))
    rate = format_sums(prices.fleet_rate(box.meter for box in state.boxes), none=NONE)
    parts.append((2, make_line("  ", Span(rate), dim_span(" /h"))))
    parts += spend_parts(state)
    # If no price is known, the rate is a dash and needs no remark.
    unknown = sum(1 for box in state.boxes if box.meter.per_hour is None)
    if unknown and unknown < many:
        parts.append(
            (5, make_line(dim_span(translate("{unknown} without a price", unknown=unknown))))
        )
    return parts


def spend_parts(state: FleetState) -> Parts:
    """Return today's cost, its idle part, yesterday's and this month's cost.

    Without a spend record, return the total cost of the boxes instead.
    """
    spend = state.spend
    if spend is None:
        spent = format_sums(prices.fleet_spent(box.meter for box in state.boxes), none=NONE)
        return [(4, make_line(dim_span(translate("spent ")), Span(spent)))]
    parts: Parts = [
        (
            4,
            make_line(
                dim_span(translate("today ")), Span(_format_sum(spend, "today", spend.today))
            ),
        )
    ]
    # A zero would take the room of a number that says something.
    if any(amount > 0 for _, amount in spend.idle_today):
        parts.append(
            (
                4,
                make_line(
                    dim_span(translate("idle ")),
                    Span(_format_sum(spend, "today", spend.idle_today)),
                ),
            )
        )
    if any(amount > 0 for _, amount in spend.yesterday):
        parts.append(
            (
                7,
                make_line(
                    dim_span(translate("yesterday ")),
                    Span(_format_sum(spend, "yesterday", spend.yesterday)),
                ),
            )
        )
    # On the first day of a month both are the same sum.
    if spend.month and spend.month != spend.today:
        parts.append(
            (
                8,
                make_line(
                    dim_span(translate("month ")), Span(_format_sum(spend, "month", spend.month))
                ),
            )
        )
    return parts


def _format_sum(spend: FleetSpend, span: str, amounts: Sequence[tuple[str, float]]) -> str:
    least = span in spend.at_least
    # idle cost is never estimated
    estimated = span in spend.estimated and amounts is not spend.idle_today
    return format_sums(
        (MoneyAmount(amount, currency, least, estimated) for currency, amount in amounts), none=NONE
    )


def box_parts(box: BoxState, verdict: Assessment, platform: str, clock: Span | None) -> Parts:
    """Return the state of one box, its platform, its meter and its nearest danger clock."""
    glyph, word, tone = status_label(box, verdict)
    parts: Parts = [(1, make_line(Span(f"{glyph} {word}", tone)))]
    if box.sample is not None:
        up = box.sample.session.uptime_s
        # The box may have been restarted since its last sample.
        if up is not None and not verdict.stale:
            parts.append((5, make_line(dim_span(translate("up ")), compact_time(up))))
        if box.sample.gpus:
            name = box.sample.gpus[0].name
            platform = f"{platform}  {name} {current_glyphs().times}{len(box.sample.gpus)}"
    parts.append((6, make_line(dim_span(platform))))
    meter = box.meter
    if meter.per_hour is None:
        parts.append((2, make_line(dim_span(translate("price unknown")))))
    else:
        parts.append((2, make_line(amount_or_dash(prices.find_hourly_cost(meter)), dim_span("/h"))))
    if meter.spent is not None:
        parts.append(
            (
                3,
                make_line(
                    dim_span(translate("spent ")), amount_or_dash(prices.find_cost_so_far(meter))
                ),
            )
        )
    if clock is not None:
        # A clock that only a stop would start is less urgent than one that runs.
        parts.append((4 if clock.tone is not Tone.DIM else 7, make_line(clock)))
    return parts


def clock_of(profile: Profile, box: BoxState, now: float) -> Span | None:
    """Return a box's first danger clock, or the one that a stop would start; None without any."""
    for reading in health.clock_readings(profile, box, now)[:1]:
        if reading.seconds_left is None:
            left = ""
        else:
            left = f" {clock_left(reading, reading.seconds_left)}"
        return Span(f"{reading.what}{left}", level_tone(reading.level))
    for pending in health.pending_readings(profile)[:1]:
        if pending.seconds_left is not None:
            return dim_span(
                translate(
                    "if stopped: {what} in {seconds_left}",
                    what=pending.what,
                    seconds_left=compact_time(pending.seconds_left),
                )
            )
    return None


def choose_log(box: BoxState, wanted: str | None) -> LogView | None:
    """Return the requested log, or the running cell's, or the one with the newest line."""
    if wanted is not None:
        found = next((view for view in box.logs if view.path == wanted), None)
        if found is not None:
            return found
    current = current_cell(box)
    if current is not None and current[1].log is not None:
        found = next((view for view in box.logs if view.path == current[1].log), None)
        if found is not None:
            return found
    # A log without lines is shown only if there is no other.
    return max(box.logs, key=lambda view: (bool(view.lines), view.at or 0.0), default=None)


def clock_left(reading: ClockReading, left: float) -> str:
    """Return the time left with a sign for its accuracy; a sign and days leave out the hours."""
    bound = health.ClockBound
    unsigned = ""
    if reading.approx:
        unsigned = "~"
    sign = {bound.AT_LEAST: current_glyphs().at_least, bound.AT_MOST: current_glyphs().at_most}.get(
        reading.bound, unsigned
    )
    if sign and left >= DAY:
        return f"{sign}{int(left // DAY)}d"
    return f"{sign}{compact_time(left)}"
