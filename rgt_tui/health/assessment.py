"""A box's state summed up: one word, one line, its rank, its alerts and the checks of its phases."""

from __future__ import annotations

import msgspec

from rgt_tui.health.alert_state import HOLDING, instant
from rgt_tui.health.autostop_words import box_words
from rgt_tui.health.condition import Check
from rgt_tui.health.conditions import BY_ID, CHECKS, covered, ended_text
from rgt_tui.health.facts import ANSWERS_S, BUSY_PCT, Facts, facts_of, trainers
from rgt_tui.health.rows.conditions_link import contested_words
from rgt_tui.health.rows.conditions_queue import unjudged
from rgt_tui.model import (
    Alert,
    AlertEvent,
    BoxState,
    CheckResult,
    CheckStatus,
    Finding,
    Fix,
    FleetEvent,
    Health,
    Lifecycle,
    Link,
    Profile,
    pct,
)
from rgt_tui.profiles import advised, age, how_many

KEPT_S = 1800.0
"""So long what is over is still shown, ticked."""
MOST_KEPT = 40
"""Remedies that are remembered of a box."""
READING_SOURCES = frozenset(("sample", "scalars"))
"""Where a finding's evidence stands if it is a reading rather than a line of a log."""


class Assessment(msgspec.Struct, frozen=True):
    """The judgement of a box's state."""

    health: Health
    word: str
    """For the row: the worst alert's word, else what the box is doing."""
    why: str
    """One line: why the box is where it is, with the source that says so."""
    alerts: tuple[Alert, ...]
    """Worst first, muted ones at the end."""
    progress_age: float | None
    """Seconds since a running cell's step last advanced, the slowest cell's where there are several."""
    sample_age: float | None
    """Seconds since the newest sample arrived."""
    stale: bool
    """The newest sample is older than three intervals, or there is none."""
    rank: tuple[int, int, int, float, str]
    """Sorts boxes worst first."""
    beneath: Health | None = None
    """What it is without its alerts: a warning must not hide that nobody knows what runs. None = the same."""


_ORDER = {health: place for place, health in enumerate(Health)}
_LINKS = {
    Link.UNREACHABLE: (Health.UNREACHABLE, "unreachable"),
    Link.REFUSED_KEY: (Health.UNREACHABLE, "key refused"),
    Link.REFUSED_LOGIN: (Health.UNREACHABLE, "login refused"),
    Link.ASKING: (Health.WARN, "asks you"),
    Link.PAUSED: (Health.PAUSED, "paused"),
    Link.CONNECTING: (Health.CONNECTING, "connecting"),
    Link.NOT_KEPT: (Health.CONNECTING, "not kept"),
}


def assess(box: BoxState, now: float) -> Assessment:
    """Judge `box` at `now` (client clock). Pure, and well below a millisecond.

    The provider's *stopped* and *gone* outrank what SSH says, because a refused connection proves nothing. A box that
    answers outranks what its provider said well before the connection stood; where the provider says so now, the word
    names the doubt, and the line both sources. Alerts are those that the fleet keeps; for a state
    that nobody has watched (a test, a single look) the same rules are asked once. Muted alerts stay in the list, and
    neither colour a box nor move it up.
    """
    if box.alerts_kept:
        seen, alerts = facts_of(box, now), box.alerts
    else:
        seen, alerts = instant(box, now)
    health, word, why = _base(seen)
    unread = unjudged(seen)
    if unread:
        why += (
            "; its curve is still being read"
            if len(unread) == 1
            else "; their curves are still being read"
        )
    # Of a box that answers although it is called stopped nobody knows what it is, nor what it costs.
    doubted = health is Health.WARN or (unread and health is Health.RUNNING)
    beneath = Health.UNKNOWN if doubted else health
    loud = [alert for alert in alerts if not alert.muted]
    if loud and health not in (Health.STOPPED, Health.GONE, Health.UNREACHABLE):
        worst = loud[0]
        raised = Health.TROUBLE if worst.level == "error" else Health.WARN
        if _ORDER[raised] < _ORDER[health]:
            blind = f"; {why}" if health is Health.UNKNOWN else ""
            health, word, why = raised, worst.word, f"{worst.text}{blind}"
            if worst.kind == HOLDING and len(loud) > 1:
                why = f"{worst.text}; {loud[1].text}{blind}"  # what it waits for is what to repair
    elif health is Health.UNREACHABLE and box.link is Link.REFUSED_KEY:
        health = Health.TROUBLE
    return Assessment(
        health=health,
        word=word,
        why=why,
        alerts=alerts,
        progress_age=seen.progress_age,
        sample_age=seen.sample_age,
        stale=seen.stale,
        rank=_rank(health, loud, seen),
        beneath=beneath,
    )


def _base(seen: Facts) -> tuple[Health, str, str]:
    """What the box is doing, before any alert."""
    box = seen.box
    meter = box.meter
    if seen.provider_word in (Lifecycle.STOPPED, Lifecycle.GONE):
        stopped = seen.provider_word is Lifecycle.STOPPED
        read = "" if meter.at is None else f", read {age(seen.now - meter.at)} ago"
        word = "stopped" if stopped else "gone"
        own = box_words(box, seen.now) if stopped else ""
        why = meter.state_text(f"{read}; {own}" if own else read)
        return (Health.STOPPED if stopped else Health.GONE), word, why
    if seen.contested and (meter.at is None or meter.at >= box.since - ANSWERS_S):
        word = f"{meter.lifecycle.value}?"
        return Health.WARN, word, contested_words(seen)
    if box.link in _LINKS:
        health, word = _LINKS[box.link]
        says = f"; {meter.source} says {meter.lifecycle.value}" if meter.at is not None else ""
        last = "" if seen.sample_age is None else f"; last sample {age(seen.sample_age)} ago"
        return health, word, f"{box.reason}{says}{last}"
    if seen.stale:
        if seen.sample_age is None:
            return Health.CONNECTING, "connecting", "connected, no sample yet"
        return (
            Health.STALE,
            "stale",
            f"connected, but the last sample is {age(seen.sample_age)} old",
        )
    return _doing(seen)


def _doing(seen: Facts) -> tuple[Health, str, str]:
    """What a box with figures of now is doing."""
    if seen.running:
        _, cell, run = seen.running[0]
        if run is None or run.step is None:
            return Health.RUNNING, "running", f"{cell.name} runs, no step logged yet"
        moved = "" if seen.progress_age is None else f", advanced {age(seen.progress_age)} ago"
        return Health.RUNNING, "running", f"{cell.name} at step {run.step:,}{moved}"
    if seen.unseen is not None and not seen.trains:
        return Health.UNKNOWN, "unknown", _unseen(seen, seen.unseen)
    if seen.queue_done and not seen.trains:
        cells = [cell for queue in seen.box.queues for cell in queue.cells]
        done = sum(cell.state == "done" for cell in cells)
        text = f"{done} of {how_many(len(cells), 'cell')} done, the runner wrote QUEUE DONE"
        return Health.FINISHED, "finished", text
    if seen.trains:
        procs = trainers(seen.box.sample)
        return (
            Health.RUNNING,
            "running",
            f"{how_many(len(procs), 'training process', 'training processes')}, no queue",
        )
    return Health.IDLE, "idle", "no training process, no cell running"


def _unseen(seen: Facts, why: str) -> str:
    """Say why nobody knows what runs, and what speaks for a training all the same."""
    gpus = seen.box.sample.gpus if seen.box.sample is not None else ()
    busy = max((gpu.util for gpu in gpus if gpu.util is not None), default=0.0)
    if busy >= BUSY_PCT:
        return f"{why}; a GPU is {pct(busy)} busy"
    return why


def _rank(health: Health, alerts: list[Alert], seen: Facts) -> tuple[int, int, int, float, str]:
    errors = sum(alert.level == "error" for alert in alerts)
    return (_ORDER[health], -errors, -len(alerts), -(seen.progress_age or 0.0), seen.box.spec.name)


def advice(alert: Alert) -> str:
    """Return what to do about an alert, in one line; empty for one that the table does not have."""
    kind = BY_ID.get(alert.kind)
    if kind is not None:
        return kind.advice
    return ""


def calls(alert: Alert) -> bool:
    """Say whether an alert calls for a person."""
    kind = BY_ID.get(alert.kind)
    return not alert.muted and (alert.level == "error" or (kind is not None and kind.escalates))


def alert_began(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert began; None where the fleet's other events tell it."""
    if BY_ID[alert.kind].told:
        return None
    return FleetEvent(at=now, box=box, text=alert.text, level=alert.level, about=alert.id)


def alert_ended(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert has ended, and how long it lasted."""
    if BY_ID[alert.kind].told:
        return None
    text = ended_text(alert.id)
    if alert.since is not None:
        text += f", after {age(now - alert.since)}"
    return FleetEvent(at=now, box=box, text=text, about=alert.id)


def alert_message(box: str, alert: Alert, now: float) -> AlertEvent:
    """Return the message about an alert that is sent to a sink."""
    kind = BY_ID.get(alert.kind)
    return AlertEvent(
        what="raised",
        at=now,
        level=alert.level,
        title=f"{box}: {alert.word or alert.kind}",
        text=alert.text,
        box=box,
        id=alert.id,
        kind=alert.kind,
        since=alert.since,
        advice=kind.advice if kind is not None else "",
    )


def calls_once(alert: Alert) -> bool:
    """Tell whether an alert calls for a person once, and not for as long as it holds."""
    kind = BY_ID.get(alert.kind)
    return alert.level != "error" and kind is not None and kind.escalates and kind.once


def evaluate(
    box: BoxState, profile: Profile, now: float, *, page_seen: bool = False
) -> tuple[CheckResult, ...]:
    """Return the result of every check, in order of their ids. Pure.

    Passed means proved *now*: where the evidence of a live check is of a box that no longer reports, the check waits
    again and says how old the proof is.

    Args:
        box: The state.
        profile: Platform of the box.
        now: Client clock.
        page_seen: A person was shown the platform's page as it is now, see `rgt_tui.profiles.seen_at`.
    """
    seen = facts_of(box, now, profile=profile, page_seen=page_seen)
    told: dict[str, list[str]] = {}
    for one in advised(box, now):
        told.setdefault(ADVISED_AT[one.about], []).append(f"{one.run}: {one.text}")
    return tuple(_result(check, seen, "; ".join(told.get(check.id, ()))) for check in CHECKS)


ADVISED_AT = {
    "save": "4.5",
    "resume": "2.3",
    "batch": "2.3",
    "cache": "4.3",
    "workers": "4.2",
    "memory": "4.2",
}
"""What an advice is about → the check at which it stands."""


def _result(check: Check, seen: Facts, told: str) -> CheckResult:
    verdict = check.evaluator(seen)
    status, evidence = verdict.status, verdict.evidence
    if check.live and status is CheckStatus.PASSED and not seen.live:
        sample_at = seen.box.sample_at
        last = "no sample" if sample_at is None else f"last sample {age(seen.now - sample_at)} ago"
        status, evidence = CheckStatus.WAITING, f"{evidence} ({last})"
    command = check.command.replace("{box}", seen.box.spec.name)
    return CheckResult(
        check.id, check.phase, check.title, status, evidence, verdict.at, command, advice=told
    )


PHASES = ("consult", "launch", "smoke", "queue", "babysit", "collect")


# The fix for a box as a checklist whose steps are ticked by its samples alone. Pure: from one state to the
# next.
#
# A step is ticked when the very condition that proposed it is known to be over. A line that has only scrolled
# out of a log, and a box that tells nothing, prove nothing: then the step stays as it is.


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that one condition proposes."""

    key: str
    """Which condition, of which resource."""
    title: str
    steps: tuple[Fix, ...]
    finding: Finding | None = None
    """What proposed it; None = an alert."""
    over_at: float | None = None
    """Client clock at which the readings showed that the condition no longer holds; None = it holds, or who knows."""
    doubt: str = ""
    """Why nobody can say whether it still holds; empty = that is known."""

    @property
    def done(self) -> bool:
        """Whether its steps are ticked."""
        return self.over_at is not None


def standing_remedies(before: tuple[Remedy, ...], box: BoxState, now: float) -> tuple[Remedy, ...]:
    """Return what is proposed now, and after it what was proposed before and is over or no longer seen.

    Args:
        before: What the last call returned for this box; empty at first.
        box: Its state.
        now: Client clock.
    """
    alerts = box.alerts if box.alerts_kept else instant(box, now)[1]
    told = {
        f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}"
        for finding in box.findings
    }
    known = {one.key: one for one in before}
    found = [_of_finding(finding, known, now) for finding in box.findings if finding.fixes]
    found += [_of_alert(alert) for alert in alerts if not alert.muted and alert.id not in told]
    # What is muted, told by a finding, or found anew under another name is not over.
    here = {one.key for one in found} | {alert.id for alert in alerts} | covered(box.findings)
    broken = {finding.resource for finding in box.findings}
    seen = facts_of(box, now)
    gone = [
        _gone(one, seen)
        for one in before
        if one.key not in here and (one.finding is None or one.finding.resource not in broken)
    ]
    return (*found, *(one for one in gone if one.over_at is None or now - one.over_at <= KEPT_S))[
        :MOST_KEPT
    ]


def _of_finding(finding: Finding, known: dict[str, Remedy], now: float) -> Remedy:
    key = f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}"
    old = known.get(key)
    since = old.over_at if old is not None and old.over_at is not None else now
    return Remedy(
        key=key,
        title=finding.resource,
        steps=finding.fixes,
        finding=finding,
        over_at=since if finding.cleared else None,
    )


def _of_alert(alert: Alert) -> Remedy:
    kind = BY_ID.get(alert.kind)
    advice = kind.advice if kind is not None else ""
    return Remedy(key=alert.id, title=alert.text, steps=(Fix(advice),) if advice else ())


def _gone(one: Remedy, seen: Facts) -> Remedy:
    """Return what is proposed no more: over, if the readings say so."""
    if one.done:
        return one
    if not seen.live or seen.blind:
        return msgspec.structs.replace(one, doubt="not known: the box does not report it now")
    if one.finding is None or one.finding.where in READING_SOURCES or _went_on(one.finding, seen):
        return msgspec.structs.replace(one, over_at=seen.now, doubt="")
    return msgspec.structs.replace(
        one, doubt="no longer seen in the log; nothing shows that it is over"
    )


def _went_on(finding: Finding, seen: Facts) -> bool:
    """Say whether the run got past what the log told: it has logged a later step, or its cell has ended well."""
    cell = next((cell for cell in seen.cells if cell.name == finding.run), None)
    if cell is not None and cell.state == "done" and cell.exit_code == 0:
        return True
    run = next((run for run in seen.box.runs if run.name == finding.run), None)
    return (
        run is not None
        and run.step is not None
        and finding.step is not None
        and run.step > finding.step
    )
