"""A box's state summed up: one word, one line, its rank, its alerts and the checks of its phases."""

from __future__ import annotations

import msgspec

from rgt_tui.health.alert_state import HOLDING, instant
from rgt_tui.health.autostop_words import box_words
from rgt_tui.health.condition import Check
from rgt_tui.health.conditions import BY_ID, CHECKS, ended_text
from rgt_tui.health.facts import ANSWERS_S, BUSY_PCT, Facts, facts_of, trainers
from rgt_tui.health.rows.conditions_link import contested_words
from rgt_tui.health.rows.conditions_queue import unjudged
from rgt_tui.model import (
    Alert,
    AlertEvent,
    BoxState,
    CheckResult,
    CheckStatus,
    FleetEvent,
    Health,
    Lifecycle,
    Link,
    Profile,
    pct,
)
from rgt_tui.profiles import advised, age, how_many


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
            "; its curve is still being read" if len(unread) == 1 else "; their curves are still being read"
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
        return Health.STALE, "stale", f"connected, but the last sample is {age(seen.sample_age)} old"
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
    return f"{why}; a GPU is {pct(busy)} busy" if busy >= BUSY_PCT else why


def _rank(health: Health, alerts: list[Alert], seen: Facts) -> tuple[int, int, int, float, str]:
    errors = sum(alert.level == "error" for alert in alerts)
    return (_ORDER[health], -errors, -len(alerts), -(seen.progress_age or 0.0), seen.box.spec.name)


def advice(alert: Alert) -> str:
    """Return what to do about an alert, in one line; empty for one that the table does not have."""
    kind = BY_ID.get(alert.kind)
    return kind.advice if kind is not None else ""


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
    return CheckResult(check.id, check.phase, check.title, status, evidence, verdict.at, command, advice=told)


PHASES = ("consult", "launch", "smoke", "queue", "babysit", "collect")
