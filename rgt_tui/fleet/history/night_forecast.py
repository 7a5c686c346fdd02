"""The night ahead: what each box does until tomorrow noon, and what that costs. Pure functions.

Each forecast has a spread. Unknown figures are reported as unknown, never as zero and never as
safe.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from rgt_tui.fleet.autostop import propose_hang_stop, propose_self_stop
from rgt_tui.fleet.history.spoken_times import local_time
from rgt_tui.health import clock_readings
from rgt_tui.language import translate
from rgt_tui.model import (
    AutostopMode,
    BoxState,
    ClockMode,
    EndAction,
    FrozenStruct,
    MeterKind,
    MoneyAmount,
    Profile,
    QueueState,
    ReducedHistory,
    RunState,
    format_duration,
    format_sums,
    how_many,
    pad_cells,
    wrap_cells,
)
from rgt_tui.profiles import (
    byte_pct,
    inode_pct,
    list_quarter_paces,
    seconds_per_step,
    stalled_seconds,
    sum_amounts,
)
from rgt_tui.store.spending import has_live_run, hourly_price


class ForecastTime(NamedTuple):
    """A forecast moment, client clock."""

    earliest: float
    likely: float
    latest: float | None
    """None = it may never happen."""


class ForecastEvent(FrozenStruct):
    """One thing that a box will probably do."""

    box: str
    when: ForecastTime
    text: str
    level: str = "info"
    ends_run: bool = False
    """It is the end of the box's work."""


class BoxForecast(FrozenStruct, kw_only=True):
    """The night of one box."""

    box: str
    events: tuple[ForecastEvent, ...] = ()
    unknown: tuple[str, ...] = ()
    """What cannot be forecast, and why."""
    works: bool | None = None
    """Whether a run is alive now; None = unknown."""
    end: ForecastTime | None = None
    """When its work ends; None = unknown, or it does not work."""
    off: ForecastTime | None = None
    """When it stops itself; None = never, as far as is known."""
    cost: MoneyAmount | None = None
    """Until the morning; None = unknown."""
    wasted: tuple[float, float, float] | None = None
    """The part of `cost` without work: least, likely, most. None = unknown."""


class NightAdvice(FrozenStruct):
    """Something worth doing before sleep."""

    box: str
    command: str
    """Arguments of ``rgt``; empty if no command helps: `why` says what a person must do."""
    why: str


class NightForecast(FrozenStruct, kw_only=True):
    """The night of a fleet."""

    now: float
    morning: float
    """Seven o'clock, until which costs are counted."""
    until: float
    """The end of the axis: noon."""
    boxes: tuple[BoxForecast, ...] = ()
    advice: tuple[NightAdvice, ...] = ()

    @property
    def visible_events(self) -> list[ForecastEvent]:
        """All events up to the end of the axis, in the order of their likely time."""
        found = [event for box in self.boxes for event in box.events]
        return sorted(
            (event for event in found if event.when.earliest <= self.until),
            key=lambda event: event.when.likely,
        )


def find_morning(now: float) -> tuple[float, float]:
    """Return the next seven o'clock and the noon after it, by the local clock."""
    here = local_time(now)
    morning_hour = 7
    morning = here.replace(hour=morning_hour, minute=0, second=0, microsecond=0)
    if morning <= here:
        morning += timedelta(days=1)
    return morning.timestamp(), morning.replace(hour=12).timestamp()


def forecast_night(
    boxes: Sequence[tuple[BoxState, Profile]], now: float, *, can_notify: bool = True
) -> NightForecast:
    """Return the night of some boxes.

    Args:
        boxes: Each with its platform.
        now: Client clock.
        can_notify: Whether a box without a connection can be given an address to notify.
    """
    morning, noon = find_morning(now)
    nights = tuple(_forecast_box(box, profile, now, morning) for box, profile in boxes)
    advice = [
        one
        for (box, profile), night in zip(boxes, nights, strict=True)
        for one in _list_advice(box, profile, night, now, morning, can_notify)
    ]
    # The three that save most.
    advice.sort(key=lambda item: -item[0])
    return NightForecast(
        now=now,
        morning=morning,
        until=noon,
        boxes=nights,
        advice=tuple(one for _, one in advice[:3]),
    )


def forecast_end(box: BoxState, run: RunState, now: float) -> ForecastTime | None:
    """Return when a run reaches its last step; None = unknown.

    The likely end goes by the pace of the last quarter of the recorded points; the spread is that
    of all four quarters, and a tenth more. If the points have no times, the pace is that of the
    current attempt: start-up is in it, so the end may come much earlier.
    """
    pace = seconds_per_step(box, run.name, now)
    # A step beyond the planned last one: the plan is not what the run does.
    if pace is None or run.step is None or run.total_steps is None or run.step > run.total_steps:
        return None
    if stalled_seconds(box, run, now) is not None:
        return None
    paces = list_quarter_paces(run)
    # Start-up is in this pace, so only the early side is widened.
    least, likely, most = pace / 2.0, pace, pace
    if paces:
        least, likely, most = min(paces), paces[-1], max(paces)
    left = run.total_steps - run.step
    margin = 0.1
    return ForecastTime(
        now + left * least * (1.0 - margin),
        now + left * likely,
        now + left * most * (1.0 + margin),
    )


def _add_seconds(at: float | None, seconds: float) -> float | None:
    if at is None:
        return None
    return at + seconds


def forecast_full(
    history: ReducedHistory, name: str, percent: float, now: float
) -> ForecastTime | None:
    """Return when a mount is full at the pace of the last two hours.

    None if it does not grow, or too little of that time is recorded.

    Args:
        history: Recorded means of the box.
        name: Its series, such as ``disk:/workspace``.
        percent: Used now, 0 to 100.
        now: Client clock.
    """
    if name not in history.names:
        return None
    column = history.names.index(name)
    # Saves no money that can be counted, so it comes after advice that does.
    reach_seconds, least_seconds = 7200.0, 600.0
    points = [
        (at, value)
        for at, values in zip(history.at, history.values, strict=True)
        if at >= now - reach_seconds and (value := values[column]) is not None
    ]
    if not points or points[-1][0] - points[0][0] < least_seconds:
        return None
    # The newer half has a pace of its own: the difference of the two is the spread.
    half = points[len(points) // 2 :]
    slopes = [
        (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])
        for part in (points, half)
        if part[-1][0] > part[0][0]
    ]
    # The whole span decides whether it grows at all.
    if slopes[0] <= 0:
        return None
    left = max(0.0, 100.0 - percent)
    latest = None
    # A half that does not grow means that it may never be full.
    if min(slopes) > 0:
        latest = now + left / min(slopes)
    return ForecastTime(now + left / max(slopes), now + left / slopes[0], latest)


def _forecast_box(box: BoxState, profile: Profile, now: float, morning: float) -> BoxForecast:
    name = box.spec.name
    works = has_live_run(box, now)
    events: list[ForecastEvent] = []
    unknown: list[str] = []
    end = None
    if works is None:
        unknown.append(translate("its work: the box is not reported now"))
    elif works:
        end, text = _forecast_work(box, now)
        if end is None:
            unknown.append(text)
        else:
            events.append(ForecastEvent(name, end, text, ends_run=True))
    events += _forecast_disks(box, now)
    # Both histories: the older one is coarser and reaches further back.
    ats = [*box.past.at, *box.recent.at]
    least_seconds = 600.0
    if works is not None and (not ats or max(ats) - min(ats) < least_seconds):
        unknown.append(translate("when a disk is full: less than 10 minutes are recorded"))
    # Charges have no end, and are in the costs already.
    for reading in clock_readings(profile, box, now, charges=False):
        if reading.counting and reading.seconds_left is not None:
            latest = _add_seconds(reading.most_left, now)
            at = now + reading.seconds_left
            level = "warn"
            if reading.of_run:
                level = "error"
            text = f"{reading.what}: {reading.consequence}"
            events.append(ForecastEvent(name, ForecastTime(at, at, latest), text, level))
        elif reading.counting and reading.mode is ClockMode.COUNTDOWN:
            unknown.append(translate("{what}: unknown since when it counts", what=reading.what))
    if box.meter.spot:
        unknown.append(
            translate("spot: the platform can end it at any time; its usual life is unknown")
        )
    # After the end of the work, from which an idle limit counts.
    off = _forecast_off(box, works, end, now)
    if off is not None:
        events.append(ForecastEvent(name, off, translate("parks itself")))
    cost, wasted = _forecast_cost(box, works, end, off, now, morning)
    return BoxForecast(
        box=name,
        events=tuple(events),
        unknown=tuple(unknown),
        works=works,
        end=end,
        off=off,
        cost=cost,
        wasted=wasted,
    )


def _forecast_work(box: BoxState, now: float) -> tuple[ForecastTime | None, str]:
    """Return when all work of a box ends, with its text; or None and why that is unknown."""
    for queue in box.queues:
        cell = next((one for one in queue.cells if one.state == "running"), None)
        if cell is None:
            continue
        run = next((one for one in box.runs if one.name == cell.name), None)
        end = None
        if run is not None:
            end = forecast_end(box, run, now)
        if run is None or end is None:
            return None, _why_no_end(box, cell.name, run, now)
        return _add_waiting_cells(queue, run, end, now)
    alive = {one.name for one in box.found if one.alive}
    ends = [(run, forecast_end(box, run, now)) for run in box.runs if run.name in alive]
    # One unknown end makes the last end unknown.
    for run, end in ends:
        if end is None:
            return None, _why_no_end(box, run.name, run, now)
    known = [(run, end) for run, end in ends if end is not None]
    if not known:
        return None, translate("the end of its work: no run reports steps")
    # The last of several trainings: before it the box still works.
    run, end = max(known, key=lambda pair: pair[1].likely)
    return end, translate("{name} ends", name=run.name)


def _why_no_end(box: BoxState, name: str, run: RunState | None, now: float) -> str:
    still = None
    if run is not None:
        still = stalled_seconds(box, run, now)
    if still is None:
        return translate("the end of {name}: its pace or its last step is unknown", name=name)
    return translate(
        "the end of {name}: it has made no step for {still}",
        name=name,
        still=format_duration(still),
    )


def _add_waiting_cells(
    queue: QueueState, run: RunState, end: ForecastTime, now: float
) -> tuple[ForecastTime, str]:
    waiting = sum(cell.state == "waiting" for cell in queue.cells)
    if not waiting:
        return end, translate("{name} ends, the last of its queue", name=run.name)
    took = [
        cell.ended - cell.started
        for cell in queue.cells
        if cell.state == "done" and cell.started is not None and cell.ended is not None
    ]
    least, most = 1.0, 1.0
    if not took:
        # Without a finished cell, the others are taken to last as long as this one, give or take
        # half.
        share = max(1.0, float(run.total_steps or 1)) / max(
            1.0, float(run.total_steps or 1) - (run.step or 0)
        )
        took = [(end.likely - now) * share]
        least, most = 0.5, 1.5
    usual = statistics.median(took)
    latest = None
    if end.latest is not None:
        latest = end.latest + waiting * max(took) * most
    # The spread adds up: each waiting cell may be as short or long as the extremes so far.
    when = ForecastTime(
        end.earliest + waiting * min(took) * least, end.likely + waiting * usual, latest
    )
    return when, translate(
        "its queue ends: {name} and {waiting} waiting", name=run.name, waiting=waiting
    )


def _forecast_disks(box: BoxState, now: float) -> list[ForecastEvent]:
    found: list[ForecastEvent] = []
    if box.sample is None:
        return found
    for disk in box.sample.disks:
        if disk.read_only or disk.error is not None:
            continue
        for series, what, percent in (
            (f"disk:{disk.mount}", "bytes", byte_pct(disk)),
            (f"inodes:{disk.mount}", "inodes", inode_pct(disk)),
        ):
            if percent is None:
                continue
            # The finer history first; after a restart of rgt it may still be too short.
            when = forecast_full(box.recent, series, percent, now)
            if when is None:
                when = forecast_full(box.past, series, percent, now)
            if when is not None:
                text = translate(
                    "{mount} has no {what} left at this pace: saves fail",
                    mount=disk.mount,
                    what=what,
                )
                found.append(ForecastEvent(box.spec.name, when, text, "error"))
    return found


def _forecast_off(
    box: BoxState, works: bool | None, end: ForecastTime | None, now: float
) -> ForecastTime | None:
    """Return when an armed box parks itself; the first of its deadlines."""
    offs: list[ForecastTime] = []
    if box.self_stop is None:
        return None
    for record in box.self_stop.armed:
        # Only a park ends the cost; other actions leave the machine on.
        if record.action is not EndAction.PARK:
            continue
        if record.mode is AutostopMode.LEASE:
            # A lease ends at a fixed time, even if the box still works.
            at = record.at + record.limit_s
            offs.append(ForecastTime(at, at, at))
        elif end is not None:
            latest = _add_seconds(end.latest, record.limit_s)
            offs.append(
                ForecastTime(end.earliest + record.limit_s, end.likely + record.limit_s, latest)
            )
        # Idle already, for an unknown part of the limit.
        elif works is False:
            offs.append(ForecastTime(now, now + record.limit_s, now + record.limit_s))
    return min((one for one in offs if one.likely >= now), key=lambda one: one.likely, default=None)


def _forecast_cost(
    box: BoxState,
    works: bool | None,
    end: ForecastTime | None,
    off: ForecastTime | None,
    now: float,
    morning: float,
) -> tuple[MoneyAmount | None, tuple[float, float, float] | None]:
    price = hourly_price(box, now)
    if box.meter.kind is MeterKind.NONE:
        return MoneyAmount(0.0, box.meter.currency), (0.0, 0.0, 0.0)
    if price is None:
        return None, None
    stop = morning
    if off is not None:
        # Likely, not latest: it is an estimate and marked as one.
        stop = min(morning, off.likely)
    rate = price.value / 3600.0
    cost = MoneyAmount(rate * (stop - now), price.currency, price.at_least, estimated=True)
    # The whole cost is known even if the useful part of it is not.
    if works is None or (works and end is None):
        return cost, None
    if end is None:
        whole = rate * (stop - now)
        return cost, (whole, whole, whole)
    last = stop
    if end.latest is not None:
        last = end.latest
    idle = [rate * max(0.0, stop - at) for at in (last, end.likely, end.earliest)]
    if off is not None and off.likely < morning:
        # Autostop follows the end: whenever that is, the idle time is its limit.
        idle = [idle[1]] * 3
    return cost, (idle[0], idle[1], idle[2])


def _list_advice(
    box: BoxState,
    profile: Profile,
    night: BoxForecast,
    now: float,
    morning: float,
    can_notify: bool,
) -> list[tuple[float, NightAdvice]]:
    """Return commands worth running, each with the money that it can save."""
    found = []
    hours = max(1, round((morning - now) / 3600.0))
    cent = 0.01
    hang = propose_hang_stop(box, profile, now)
    if hang is not None:
        saved = 0.0
        if night.cost is not None:
            saved = night.cost.value
        found.append((saved, NightAdvice(night.box, *hang)))
    # A box that stops itself needs no advice about money.
    elif night.off is None and night.cost is not None:
        currency = night.cost.currency
        if night.wasted is not None and night.wasted[1] >= cent:
            saved_sum = format_sums([MoneyAmount(night.wasted[1], currency, estimated=True)])
            command, why = propose_self_stop(
                box,
                profile,
                "autostop {box} --idle 30m",
                translate("billed without work until 07:00: {saved}", saved=saved_sum),
            )
            found.append((night.wasted[1], NightAdvice(night.box, command, why)))
        elif night.works and night.wasted is None and night.cost.value >= cent:
            most = format_sums([night.cost])
            command, why = propose_self_stop(
                box,
                profile,
                f"lease {{box}} {hours}h",
                translate(
                    "its end is unknown: {most} until 07:00, and it bills on after that", most=most
                ),
            )
            # Half, as its end is unknown: it may work all night.
            found.append((night.cost.value / 2.0, NightAdvice(night.box, command, why)))
    trouble = [e for e in night.events if e.level == "error" and e.when.earliest < morning]
    if trouble and can_notify:
        found.append(
            (
                0.0,
                NightAdvice(
                    night.box,
                    f"notify {night.box}",
                    translate("to be woken if {words}", words=trouble[0].text),
                ),
            )
        )
    return found


# The same text for the screen and the terminal.


class NightLine(NamedTuple):
    """A line of the night, with its level as of an event."""

    text: str
    level: str = "info"
    indent: int = 4
    """Cells before each continued line."""


def night_lines(forecast: NightForecast, width: int) -> list[NightLine]:
    """Return the night as lines: the axis, a row per box, the costs, the events, the advice.

    `width` is in cells; longer events and advice are wrapped.
    """
    names = min(20, max((len(night.box) for night in forecast.boxes), default=3))
    room = max(20, width - names - 3)
    lines = [NightLine(f" {'':<{names}} {_hour_labels(forecast, room)}")]
    for night in forecast.boxes:
        level = "info"
        if any(e.level == "error" and e.when.earliest <= forecast.until for e in night.events):
            level = "error"
        row = _box_row(night, forecast, room)
        lines.append(NightLine(f" {night.box[:names]:<{names}} {row}", level))
    legend = translate(
        "━ works  ░ bills without work  ? unknown  ◆ end  ✖ trouble  ▲ clock  ╎ 07:00"
    )
    lines.append(NightLine(" " * max(1, min(names + 2, width - len(legend))) + legend, indent=1))
    lines += [NightLine(""), _cost_line(forecast), NightLine("")]
    text_at = min(names + 24, width // 2)
    for event in forecast.visible_events:
        when = _span_text(event.when, forecast.now)
        text = f" {when:<20} {event.box:<{names}}  {event.text}"
        lines.append(NightLine(text, event.level, text_at))
    # Grouped: a fleet often lacks the same figure on every box.
    unknown: dict[str, list[str]] = {}
    for night in forecast.boxes:
        for what in night.unknown:
            unknown.setdefault(what, []).append(night.box)
    for what, boxes in unknown.items():
        whose = boxes[0]
        if len(boxes) > 1:
            whose = how_many(len(boxes), "box", "boxes")
        text = f" {pad_cells(translate('unknown'), 20)} {pad_cells(whose, names)}  {what}"
        lines.append(NightLine(text, indent=text_at))
    if not forecast.visible_events and not any(night.unknown for night in forecast.boxes):
        lines.append(NightLine(translate(" nothing is foreseen until noon")))
    lines += [NightLine(""), NightLine(translate(" before you sleep"))]
    offers = [f"rgt {one.command}" if one.command else one.box for one in forecast.advice]
    commands = max((len(offer) for offer in offers), default=0)
    for number, (offer, one) in enumerate(zip(offers, forecast.advice, strict=True), 1):
        lines.append(NightLine(f" {number}  {offer:<{commands}}   {one.why}", indent=8))
    if not forecast.advice:
        lines.append(NightLine(translate(" nothing to do, as far as is known")))
    return [
        NightLine(part, line.level)
        for line in lines
        for part in wrap_cells(line.text, width, line.indent) or [""]
    ]


def _cost_line(forecast: NightForecast) -> NightLine:
    costs = sum_amounts(night.cost for night in forecast.boxes)
    wasted: dict[str, list[float]] = {}
    unknown = False
    for night in forecast.boxes:
        # The sum of the others is shown as "at least".
        if night.cost is None or night.wasted is None:
            unknown = True
            continue
        sums = wasted.setdefault(night.cost.currency, [0.0, 0.0, 0.0])
        for index, value in enumerate(night.wasted):
            sums[index] += value
    parts = []
    for currency, (least, likely, most) in wasted.items():
        low, about, high = (
            format_sums([MoneyAmount(value, currency)]) for value in (least, likely, most)
        )
        if low != high:
            about += translate(" ({low} to {high})", low=low, high=high)
        parts.append(about)
    text = " + ".join(parts)
    if unknown:
        text = translate("unknown")
        if parts:
            text = translate("at least {parts}, the rest unknown", parts=" + ".join(parts))
    level = "info"
    if any(sums[1] >= 0.01 for sums in wasted.values()):
        level = "warn"
    return NightLine(
        translate(
            " by 07:00  {costs}   of it without work  {words}",
            costs=format_sums(costs),
            words=text or "0",
        ),
        level,
    )


def _span_text(when: ForecastTime, now: float) -> str:
    """Return a time with its spread: ``02:31 (02:10–03:00)``."""

    def format_clock(at: float) -> str:
        shown = local_time(at)
        if at - now < 86400.0:
            return shown.strftime("%H:%M")
        return shown.strftime("%m-%d %H:%M")

    first, likely = format_clock(when.earliest), format_clock(when.likely)
    if when.latest is None:
        return translate("{likely} (from {first})", likely=likely, first=first)
    last = format_clock(when.latest)
    if first == last:
        return likely
    return f"{likely} ({first}–{last})"


def _find_column(at: float, forecast: NightForecast, room: int) -> int:
    share = (at - forecast.now) / (forecast.until - forecast.now)
    return min(room - 1, max(0, int(share * room)))


def _hour_labels(forecast: NightForecast, room: int) -> str:
    cells = [" "] * room
    # In epoch seconds, because an hour of the local clock may be missing or come twice.
    at = local_time(forecast.now).replace(minute=0, second=0, microsecond=0).timestamp()
    hours = (forecast.until - forecast.now) / 3600.0
    # A label is 5 cells wide, and needs some blank ones before the next.
    every = next(step for step in (1, 2, 3, 6, 12) if room / hours * step >= 8 or step == 12)
    while at + 3600.0 <= forecast.until:
        at += 3600.0
        hour, column = local_time(at), _find_column(at, forecast, room)
        is_free = not "".join(cells[max(0, column - 1) : column + 5]).strip()
        if hour.hour % every == 0 and column + 5 <= room and is_free:
            cells[column : column + 5] = hour.strftime("%H:%M")
    return "".join(cells)


def _box_row(night: BoxForecast, forecast: NightForecast, room: int) -> str:
    """Return a box's row on the axis."""
    work, idle, unknown, off = "━", "░", "?", " "
    end = None
    if night.end is not None:
        end = _find_column(night.end.likely, forecast, room)
    stop = room
    if night.off is not None:
        stop = _find_column(night.off.likely, forecast, room)
    cells = []
    for column in range(room):
        if column >= stop:
            cells.append(off)
        elif night.works is None or (night.works and end is None):
            cells.append(unknown)
        elif end is not None and column < end:
            cells.append(work)
        elif night.cost is not None and night.cost.value == 0.0:
            cells.append(off)
        else:
            cells.append(idle)
    at_morning = _find_column(forecast.morning, forecast, room)
    # Before the events, which may cover it.
    cells[at_morning] = "╎"
    for event in night.events:
        if event.when.likely <= forecast.until:
            mark = {"error": "✖", "warn": "▲"}.get(event.level, "○")
            if event.ends_run:
                mark = "◆"
            cells[_find_column(event.when.likely, forecast, room)] = mark
    return "".join(cells)
