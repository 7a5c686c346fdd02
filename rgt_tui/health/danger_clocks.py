"""Danger clocks: the deadlines of a box's platform that apply now, and the time each leaves. Pure.

The alert, the screens, the commands and the worst case all use `clock_readings`, so they agree.

The second at which a machine stopped is seldom known, only an interval: from when it was last seen
running to when its provider first reported the stop. The time shown counts from the earlier end, so
it is never too long.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rgt_tui.health.facts import LIMITS, contested, provider_word
from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    ClockMode,
    ClockStart,
    DangerClock,
    FrozenStruct,
    Lifecycle,
    Meter,
    MeterKind,
    Profile,
    TrainingPause,
    format_duration,
    format_money,
)
from rgt_tui.profiles import find_held_runs, format_month, wait_left, wait_text

COUNTING = (ClockMode.COUNTDOWN, ClockMode.CHARGE)
"""The modes that have a reading."""


class ClockBound(enum.StrEnum):
    """How far a clock's remaining time can be relied on."""

    EXACT = "exact"
    AT_LEAST = "at least"
    """Counted from the earliest possible start: it can be longer."""
    AT_MOST = "at most"
    """Counted from the latest possible start, because the start was not observed."""
    NONE = "none"
    """No time is known, or there is none."""


class ClockReading(FrozenStruct, kw_only=True):
    """One danger clock of a box that is running, or that a stop would start."""

    what: str
    mode: ClockMode
    seconds_left: float | None
    """The minimum left; None = it has no end (a charge), or its start is unknown."""
    most_left: float | None = None
    """The maximum left; None = unknown."""
    bound: ClockBound = ClockBound.NONE
    consequence: str
    level: str
    """``info``, ``warn`` or ``error``."""
    text: str
    """The whole reading in one line, including the consequence."""
    source: str = ""
    """Where its start is known from: the provider, a park through rgt, the last sample."""
    counts_from: ClockStart | None = None
    approx: bool = False
    counting: bool = True
    """False = it would begin with a stop."""
    sure: bool = True
    """False = it counts only if the machine has stopped, which is unknown."""
    whole_s: float | None = None
    """Seconds from its start to its end; None = it has no end."""
    dispute: str | None = None
    """The conflicting claims, if the sources disagree."""
    per_hour: float | None = None
    """For a charge, the price per hour; None = unknown, which is not zero."""
    of_run: bool = False
    """It ends a run, not the machine, which keeps billing."""
    checked: str = ""
    """Of a clock that a stop would start: the month of its facts, such as `` (2026-06)``."""
    own_alert: bool = False
    """It has an alert of its own."""


class EventSpan(NamedTuple):
    """The interval in which something began (client clock), and the source."""

    earliest: float | None
    latest: float | None
    source: str
    sure: bool = True


def clock_readings(
    profile: Profile, box: BoxState, now: float, *, charges: bool = True
) -> tuple[ClockReading, ...]:
    """Return every clock that counts for `box` now: those with a time first, the soonest first.

    They are the platform's clocks, and those of runs that give up if they cannot save.

    Args:
        profile: Platform of the box.
        box: Its state.
        now: Client clock. A time in the future, because a clock was set, counts as now.
        charges: Include charges, which have no end.
    """
    modes = COUNTING if charges else COUNTING[:1]
    clocks = [clock for clock in profile.clocks if clock.mode in modes]
    # A machine that is gone has lost what the clocks protect.
    if provider_word(box, now) is Lifecycle.GONE or not math.isfinite(now):
        return ()
    found: list[ClockReading] = [
        _of_wait(box, run.name, run.wait, now) for run in find_held_runs(box) if run.wait
    ]
    preempted = preemption_reading(box, now)
    if preempted is not None:
        found.append(preempted)
    if not clocks:
        return tuple(sorted(found, key=_time_left_key))
    stop = find_stop_span(box, now)
    for clock in clocks:
        made = None
        if clock.mode is ClockMode.COUNTDOWN and clock.counts_from is not None:
            made = _COUNTS[clock.counts_from](clock, box, stop, now)
        elif clock.mode is ClockMode.CHARGE:
            made = _read_charge(clock, box, stop, now)
        if made is not None:
            found.append(made)
    return tuple(sorted(found, key=_time_left_key))


def _of_wait(box: BoxState, name: str, wait: TrainingPause, now: float) -> ClockReading:
    left = wait_left(box, wait, now)
    return ClockReading(
        what=translate("gives up"),
        mode=ClockMode.COUNTDOWN,
        seconds_left=left,
        most_left=left,
        bound=ClockBound.NONE if left is None else ClockBound.EXACT,
        consequence=translate("{name} is stopped without saving its state in memory", name=name),
        level="error",
        text=f"{name} {wait_text(wait, box.clock_skew, now)}",
        source=translate("the trainer"),
        of_run=True,
        own_alert=True,
    )


def preemption_reading(box: BoxState, now: float) -> ClockReading | None:
    """Return the clock of an announced preemption; None if the box has read no announcement."""
    if box.sample is None or box.sample.notice is None:
        return None
    notice = box.sample.notice
    left, bound = None, ClockBound.NONE
    target = translate("this machine")
    consequence = translate("the machine is gone, with all that only its disk has")
    # Slurm ends the job; files on the cluster's file systems stay.
    if notice.source == "Slurm":
        target = translate("a job")
        consequence = translate("the job ends; steps since the last save are lost")
    said = translate(
        "{source} takes {target} away at an unknown time", source=notice.source, target=target
    )
    if notice.ends is not None:
        # The notice is by the box's clock.
        until = notice.ends - (box.clock_skew or 0.0)
        left, bound = max(0.0, until - now), ClockBound.EXACT
        said = translate(
            "{left} left: {source} takes {target} away",
            left=format_duration(left),
            source=notice.source,
            target=target,
        )
        if not left:
            said = translate(
                "{source} took {target} away {now} ago",
                source=notice.source,
                target=target,
                now=format_duration(now - until),
            )
    said += f" ({notice.action})"
    if notice.asked:
        said += translate("; asked to save: {asked}", asked=", ".join(notice.asked))
    if notice.unasked:
        said += translate(
            "; not asked to save, not known to do so on SIGTERM: {unasked}",
            unasked=", ".join(notice.unasked),
        )
    return ClockReading(
        what="preemption",
        mode=ClockMode.COUNTDOWN,
        seconds_left=left,
        most_left=left,
        bound=bound,
        consequence=consequence,
        level="error",
        text=said,
        source=notice.source,
        own_alert=True,
    )


def pending_readings(profile: Profile) -> tuple[ClockReading, ...]:
    """Return the clocks that a stop of a box on this platform would start, the soonest first."""
    starts = [
        clock
        for clock in profile.clocks
        if clock.counts_from is ClockStart.STOP or clock.runs == "stopped"
    ]
    found = [
        ClockReading(
            what=clock.what,
            mode=clock.mode,
            # 0 in a profile means that it begins at once, not that it is over.
            seconds_left=clock.after_s or None,
            most_left=clock.after_s or None,
            bound=ClockBound.EXACT if clock.after_s else ClockBound.NONE,
            consequence=clock.consequence,
            level="info",
            text=_join_consequence(_describe_pending(clock), clock),
            checked=format_month(clock.claims),
            counts_from=clock.counts_from,
            approx=clock.is_approximate,
            counting=False,
            whole_s=clock.after_s,
            dispute=clock.dispute_text,
        )
        for clock in starts
    ]
    return tuple(sorted(found, key=_time_left_key))


def _describe_pending(clock: DangerClock) -> str:
    if not clock.after_s:
        return translate("from a stop on")
    return translate(
        "{clock}{after_s} after a stop",
        clock=_about_prefix(clock),
        after_s=format_duration(clock.after_s),
    )


def first_contact_notices(profile: Profile) -> tuple[str, ...]:
    """Return what to say about a platform at first contact.

    That is its worst danger, and what cannot be watched.
    """
    noticed = (one for one in profile.clocks if one.mode is ClockMode.NOTICE)
    return (profile.top_danger, *(_describe_notice(clock) for clock in noticed))


def action_warnings(profile: Profile, verb: BillingVerb) -> tuple[str, ...]:
    """Return the warnings before a billing action.

    They are the deadlines that a park starts, and what cannot be watched, each with its month.
    """
    if verb is BillingVerb.PARK:
        started = [f"{one.text}{one.checked}" for one in pending_readings(profile)]
    else:
        started = []
    return (
        *started,
        *(
            f"{_describe_notice(clock)}{format_month(clock.claims)}"
            for clock in profile.clocks
            if clock.mode is ClockMode.NOTICE and not clock.in_scripts
        ),
    )


def _describe_notice(clock: DangerClock) -> str:
    return f"{clock.what} ({clock.applies_when}): {clock.consequence}"


def countdowns(readings: Iterable[ClockReading]) -> tuple[ClockReading, ...]:
    """Return the countdowns for the `clock` alert.

    The balance is left out: it has an alert of its own.
    """
    return tuple(
        one
        for one in readings
        if one.mode is ClockMode.COUNTDOWN and one.counts_from is not ClockStart.BALANCE
    )


def balance_left(meter: Meter, now: float) -> float | None:
    """Return the seconds until the account's balance is used up; None = unknown, or no charges."""
    # From the moment of the reading: the account has been charged since.
    balance, burn, at = meter.balance, meter.burn_per_hour, _latest_known_time(now, meter.at)
    if balance is None or burn is None or not math.isfinite(balance) or not burn > 0:
        return None
    return max(0.0, max(0.0, balance) / burn * 3600.0 - (now - at if at is not None else 0.0))


def find_stop_span(box: BoxState, now: float) -> EventSpan | None:
    """Return the interval in which the machine stopped.

    None while it runs, or if it was never seen.

    Sources in order: the provider; if there is none or it cannot be read, a park through rgt; else
    a silent machine may have stopped right after it was last seen.
    """
    life, meter = box.life, box.meter
    # The provider's *running* counts as seen, too: it is proof even without SSH.
    seen = _latest_known_time(
        now, box.sample_at, life.seen_at, meter.at if meter.lifecycle is Lifecycle.RUNNING else None
    )
    parked = _latest_known_time(now, life.parked_at)
    if parked is not None and seen is not None and seen > parked + LIMITS.lost_s:
        parked = None  # it has run since then
    word = provider_word(box, now)
    if word is Lifecycle.STOPPED:
        if parked is not None:
            return EventSpan(parked, parked, translate("parked through rgt"))
        told = _latest_known_time(now, life.stopped_at if life.stopped_at is not None else meter.at)
        if seen is None or told is None:
            earliest = seen
        else:
            earliest = min(seen, told)
        return EventSpan(earliest, told, meter.source)
    # Only a fresh *running*: an old one does not exclude a stop since then.
    if word in (Lifecycle.RUNNING, Lifecycle.STARTING) and _is_read(meter, now):
        return None
    if parked is not None:
        return EventSpan(parked, parked, translate("parked through rgt"))
    if life.rested:
        told = _latest_known_time(now, life.stopped_at)
    else:
        told = None
    if (
        told is not None
        and word is Lifecycle.UNKNOWN
        # A sample since then means that it was started again.
        and (box.sample_at or 0.0) <= told + LIMITS.lost_s
    ):
        # The provider has not been read again since an earlier rgt ended.
        return EventSpan(
            told if seen is None else min(seen, told),
            told,
            translate("the provider, as remembered"),
        )
    if seen is None or now - seen <= LIMITS.lost_s:
        return None
    return EventSpan(seen, None, translate("last seen"), sure=False)


def _is_read(meter: Meter, now: float) -> bool:
    return meter.at is not None and now - meter.at <= LIMITS.meter_lost_s


def _latest_known_time(now: float, *times: float | None) -> float | None:
    """Return the latest known time, at most `now`."""
    known = [
        # A clock that was set back must not make a time lie in the future.
        min(time, now)
        for time in times
        if time is not None and math.isfinite(time) and time > 0
    ]
    return max(known, default=None)


def _from_stop(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    if stop is None:
        return None
    return _read_span_clock(clock, stop, now)


def _from_start(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    if provider_word(box, now) is Lifecycle.STOPPED or (stop is not None and stop.sure):
        return None
    started, seen = (
        _latest_known_time(now, box.life.started_at),
        _latest_known_time(now, box.sample_at),
    )
    if started is None:
        return None
    # `lost_s` of grace, because both ends are known to within a reading.
    if seen is not None and seen > started + (clock.after_s or 0.0) + LIMITS.lost_s:
        return None  # it is still running: the limit does not apply to this machine
    # No earliest: it may have run for long before rgt first saw it.
    return _read_span_clock(clock, EventSpan(None, started, translate("first seen")), now)


def _read_span_clock(clock: DangerClock, span: EventSpan, now: float) -> ClockReading:
    """Read a clock that began within an interval."""
    whole = clock.after_s or 0.0
    if span.earliest is None:
        least = None
    else:
        least = max(0.0, span.earliest + whole - now)
    if span.latest is None:
        most = None
    else:
        most = max(0.0, span.latest + whole - now)
    # Seconds of uncertainty about the start up to which the time left counts as exact.
    same_s = 900.0
    if least is None:
        left, bound = most, ClockBound.AT_MOST if most is not None else ClockBound.NONE
    elif most is not None and most - least <= same_s:
        left, bound = least, ClockBound.EXACT
    else:
        left, bound = least, ClockBound.AT_LEAST
    if clock.counts_from is ClockStart.STOP:
        event = translate("it stopped")
    else:
        event = translate("it started")
    if left is None:
        said = translate(
            "at most {clock}{whole} left; unknown when {event}",
            clock=_about_prefix(clock),
            whole=format_duration(whole),
            event=event,
        )
    else:
        said = translate("{time} left", time=_about_prefix(clock) + format_duration(left))
        if bound is ClockBound.AT_MOST:
            said = translate("at most {said}; unknown when {event}", said=said, event=event)
        elif bound is ClockBound.AT_LEAST:
            since = format_duration(now - (span.earliest or now))
            said += translate(" or more: {event} at most {since} ago", event=event, since=since)
            if not span.sure:
                said = translate(
                    "if it has stopped, {clock}{left} left or more: last seen {since} ago",
                    clock=_about_prefix(clock),
                    left=format_duration(left),
                    since=since,
                )
    return _build_countdown(clock, left, most, bound, said, span.source, sure=span.sure)


def _from_end_date(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    ends = box.meter.ends_at
    if ends is None or not math.isfinite(ends):
        return None
    whole = clock.after_s or 0.0
    left = ends + whole - now
    if not whole and left <= 0.0 and provider_word(box, now) is Lifecycle.STOPPED:
        return None  # it has already happened
    left = max(0.0, left)
    return _build_countdown(
        clock,
        left,
        left,
        ClockBound.EXACT,
        translate("{time} left", time=_about_prefix(clock) + format_duration(left)),
        box.meter.source,
    )


def _from_balance(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    left = balance_left(box.meter, now)
    if left is None:
        return None
    # Some platforms delete only some time after the balance is used up.
    left += clock.after_s or 0.0
    rate = format_money(box.meter.burn_per_hour, box.meter.currency)
    said = translate(
        "{left} left at {rate}/h of the whole account", left=format_duration(left), rate=rate
    )
    return _build_countdown(clock, left, left, ClockBound.EXACT, said, box.meter.source)


def _from_walltime(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    sample, at = box.sample, _latest_known_time(now, box.sample_at)
    if stop is not None and stop.sure:
        return None
    if sample is not None:
        jobs = sample.session.slurm
    else:
        jobs = ()
    # A job that waits has a limit as well, but it does not run down yet.
    limits = [job.left_s for job in jobs if job.left_s is not None and job.state == "RUNNING"]
    if not limits or at is None:
        return _from_end_date(clock, box, stop, now)
    # Slurm's value is of the sample's moment.
    left = max(0.0, min(limits) + (clock.after_s or 0.0) - (now - at))
    return _build_countdown(
        clock,
        left,
        left,
        ClockBound.EXACT,
        translate("{time} left", time=format_duration(left)),
        "Slurm",
    )


def _from_quota(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    return None  # no provider's API reports the remaining quota


Count = Callable[[DangerClock, BoxState, "EventSpan | None", float], "ClockReading | None"]
_COUNTS: dict[ClockStart, Count] = {
    ClockStart.STOP: _from_stop,
    ClockStart.START: _from_start,
    ClockStart.WALLTIME: _from_walltime,
    ClockStart.END_DATE: _from_end_date,
    ClockStart.BALANCE: _from_balance,
    ClockStart.QUOTA: _from_quota,
}


SESSIONS = (ClockStart.START, ClockStart.WALLTIME)
"""Clocks that end a running machine."""


def is_over(reading: ClockReading) -> bool:
    """Return whether a countdown has certainly run down."""
    return reading.sure and reading.most_left is not None and reading.most_left <= 0.0


def soonest_countdown(readings: Iterable[ClockReading]) -> ClockReading | None:
    """Return the countdown for the `clock` alert. Those that are over come last."""
    return min(
        countdowns(readings), key=lambda one: (is_over(one), countdown_urgency(one)), default=None
    )


def countdown_urgency(reading: ClockReading) -> float:
    """Return the seconds left, scaled so that sessions and days are comparable; 0 = unknown."""
    if reading.seconds_left is None or (
        reading.bound is ClockBound.AT_MOST and reading.level != "info"
    ):
        return 0.0
    return reading.seconds_left / (LIMITS.session_part if reading.counts_from in SESSIONS else 1.0)


def _build_countdown(
    clock: DangerClock,
    left: float | None,
    most: float | None,
    bound: ClockBound,
    said: str,
    source: str,
    *,
    sure: bool = True,
) -> ClockReading:
    part = 1.0
    if clock.counts_from in SESSIONS:
        part = LIMITS.session_part
    warn, error = LIMITS.danger_warn_s * part, LIMITS.danger_error_s * part
    if clock.counts_from is ClockStart.BALANCE:
        warn, error = LIMITS.balance_warn_s, LIMITS.balance_error_s
    if left is None:
        level = "warn"
    elif left <= error:
        level = "error"
    elif left <= warn:
        level = "warn"
    else:
        level = "info"
    if level == "info" and bound is ClockBound.AT_MOST and clock.counts_from is ClockStart.STOP:
        level = "warn"  # it may be over at any time
    return ClockReading(
        what=clock.what,
        mode=clock.mode,
        seconds_left=left,
        most_left=most,
        bound=bound,
        consequence=clock.consequence,
        level=level,
        text=_join_consequence(said, clock),
        source=source,
        counts_from=clock.counts_from,
        approx=clock.is_approximate,
        sure=sure,
        whole_s=clock.after_s,
        dispute=clock.dispute_text,
    )


def _read_charge(
    clock: DangerClock, box: BoxState, stop: EventSpan | None, now: float
) -> ClockReading | None:
    """Read a charge without an end; None if it may not be running.

    Charges in every state are storage: for a running machine, the rest of its price is not part of
    them.
    """
    meter = box.meter
    # A charge that may not run is no charge to warn about; a countdown in doubt is shown.
    if clock.runs == "stopped" and (stop is None or not stop.sure):
        return None
    if clock.runs == "running" and (stop is not None or not _may_be_running(box)):
        return None
    off = meter.kind is MeterKind.STORAGE_ONLY or meter.lifecycle is Lifecycle.STOPPED
    if off or clock.runs == "running":
        rate = meter.per_hour
    else:
        rate = meter.storage_per_hour
    at_least = meter.at_least or contested(box, now)
    if rate is None:
        said = translate("rate unknown")
    else:
        said = f"{format_money(rate, meter.currency, at_least)}/h"
    return ClockReading(
        what=clock.what,
        mode=clock.mode,
        seconds_left=None,
        consequence=clock.consequence,
        level="warn" if clock.runs != "always" or off else "info",
        text=_join_consequence(translate("{said} without a limit", said=said), clock),
        source=meter.source,
        approx=clock.is_approximate,
        dispute=clock.dispute_text,
        per_hour=rate,
    )


def _may_be_running(box: BoxState) -> bool:
    return box.meter.lifecycle is Lifecycle.RUNNING or box.sample is not None


def _about_prefix(clock: DangerClock) -> str:
    if clock.is_approximate:
        return translate("about ")
    return ""


def _join_consequence(said: str, clock: DangerClock) -> str:
    text = translate(
        "{said}: {what}: {consequence}", said=said, what=clock.what, consequence=clock.consequence
    )
    if clock.dispute_text is not None:
        return f"{text} ({clock.dispute_text})"
    return text


def _time_left_key(reading: ClockReading) -> tuple[int, float]:
    """Order readings by time left.

    Those certainly over come later, so as not to hide what is to come.
    """
    if reading.seconds_left is not None:
        return (1 if is_over(reading) else 0), reading.seconds_left
    return (2 if reading.mode is ClockMode.COUNTDOWN else 3), 0.0
