"""The summary of a box's state: one word, one line, its rank, its alerts and its checks."""

from __future__ import annotations

import msgspec

from rgt_tui.health.alert_state import HOLDING, judge_without_history
from rgt_tui.health.autostop_words import describe_self_stop
from rgt_tui.health.condition import LifecycleCheck
from rgt_tui.health.conditions import BY_ID, CHECKS, covered_alert_ids, ended_text
from rgt_tui.health.facts import LIMITS, BoxFacts, facts_of, training_processes
from rgt_tui.health.rows.conditions_link import describe_contested
from rgt_tui.health.rows.conditions_queue import describe_resource, describe_unread_runs
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    AlertEvent,
    BoxHealth,
    BoxState,
    CheckResult,
    CheckStatus,
    Finding,
    FixStep,
    FleetEvent,
    FrozenStruct,
    Lifecycle,
    LinkState,
    Profile,
    format_duration,
    how_many,
    pct,
)
from rgt_tui.profiles import collect_advice

READING_SOURCES = frozenset(("sample", "scalars"))
"""Values of a finding's `where` if its evidence is a reading and not a line of a log."""


class Assessment(FrozenStruct):
    """The judgement of a box's state."""

    health: BoxHealth
    word: str
    """Shown in the row: the worst alert's word, else what the box is doing."""
    why: str
    """One line: the reason for the state, with its source."""
    alerts: tuple[Alert, ...]
    """Worst first, muted ones at the end."""
    progress_age: float | None
    """Seconds since a running cell's step last advanced; with several cells, the slowest one's."""
    sample_age: float | None
    """Seconds since the newest sample arrived."""
    stale: bool
    """The newest sample is older than three intervals, or there is none."""
    rank: tuple[int, int, int, float, str]
    """Sorts boxes worst first."""
    beneath: BoxHealth | None = None
    """The state without alerts, so that a warning does not hide an unknown state. None = the same
    as `health`.
    """


_ORDER = {health: place for place, health in enumerate(BoxHealth)}
_LINKS = {
    LinkState.UNREACHABLE: (BoxHealth.UNREACHABLE, "unreachable"),
    LinkState.REFUSED_KEY: (BoxHealth.UNREACHABLE, "key refused"),
    LinkState.REFUSED_LOGIN: (BoxHealth.UNREACHABLE, "login refused"),
    LinkState.ASKING: (BoxHealth.WARN, "asks you"),
    LinkState.PAUSED: (BoxHealth.PAUSED, "paused"),
    LinkState.CONNECTING: (BoxHealth.CONNECTING, "connecting"),
    LinkState.NOT_KEPT: (BoxHealth.CONNECTING, "not kept"),
}


def assess_box(box: BoxState, now: float) -> Assessment:
    """Judge `box` at `now` (client clock). Pure, and well below a millisecond.

    The provider's *stopped* and *gone* outrank SSH, because a refused connection proves nothing. A
    box that answers outranks an older status of the provider; if the provider says so now, the word
    shows the doubt, and the line names both sources. Alerts are those that the fleet keeps; for a
    state without history (a test, a one-off check) the same rules are evaluated once. Muted alerts
    stay in the list, but neither colour a box nor raise its rank.
    """
    if box.alerts_kept:
        seen, alerts = facts_of(box, now), box.alerts
    else:
        seen, alerts = judge_without_history(box, now)
    health, word, why = _describe_base_state(seen)
    unread = describe_unread_runs(seen)
    if unread:
        why += f"; {unread}"
    # The state and the price of a box that answers although it is called stopped are unknown.
    doubted = health is BoxHealth.WARN or (unread and health is BoxHealth.RUNNING)
    if doubted:
        beneath = BoxHealth.UNKNOWN
    else:
        beneath = health
    loud = [alert for alert in alerts if not alert.muted]
    if loud and health not in (BoxHealth.STOPPED, BoxHealth.GONE, BoxHealth.UNREACHABLE):
        worst = loud[0]
        if worst.level == "error":
            raised = BoxHealth.TROUBLE
        else:
            raised = BoxHealth.WARN
        if _ORDER[raised] < _ORDER[health]:
            blind = ""
            if health is BoxHealth.UNKNOWN:
                blind = f"; {why}"
            health, word, why = raised, worst.word, f"{worst.text}{blind}"
            if worst.kind == HOLDING and len(loud) > 1:
                # name the cause of the wait: that is what to repair
                why = f"{worst.text}; {loud[1].text}{blind}"
    elif health is BoxHealth.UNREACHABLE and box.link is LinkState.REFUSED_KEY:
        health = BoxHealth.TROUBLE
    return Assessment(
        health=health,
        word=word,
        why=why,
        alerts=alerts,
        progress_age=seen.progress_age,
        sample_age=seen.sample_age,
        stale=seen.stale,
        rank=_rank_key(health, loud, seen),
        beneath=beneath,
    )


def _describe_base_state(seen: BoxFacts) -> tuple[BoxHealth, str, str]:
    """Return what the box is doing, ignoring alerts."""
    box = seen.box
    meter = box.meter
    if seen.provider_word in (Lifecycle.STOPPED, Lifecycle.GONE):
        stopped = seen.provider_word is Lifecycle.STOPPED
        if meter.at is None:
            read = ""
        else:
            read = translate(", read {now} ago", now=format_duration(seen.now - meter.at))
        word = "stopped" if stopped else "gone"
        own = ""
        if stopped:
            own = describe_self_stop(box, seen.now)
        why = meter.state_text(f"{read}; {own}" if own else read)
        return (BoxHealth.STOPPED if stopped else BoxHealth.GONE), word, why
    if seen.contested and (meter.at is None or meter.at >= box.since - LIMITS.answers_s):
        word = f"{meter.lifecycle.value}?"
        return BoxHealth.WARN, word, describe_contested(seen)
    if box.link in _LINKS:
        health, word = _LINKS[box.link]
        says = ""
        if meter.at is not None:
            says = translate(
                "; {source} says {state}",
                source=meter.source,
                state=translate(meter.lifecycle.value),
            )
        if seen.sample_age is None:
            last = ""
        else:
            last = translate(
                "; last sample {sample_age} ago", sample_age=format_duration(seen.sample_age)
            )
        return health, word, f"{box.reason}{says}{last}"
    if seen.stale:
        if seen.sample_age is None:
            return BoxHealth.CONNECTING, "connecting", translate("connected, no sample yet")
        return (
            BoxHealth.STALE,
            "stale",
            translate(
                "connected, but the last sample is {sample_age} old",
                sample_age=format_duration(seen.sample_age),
            ),
        )
    return _describe_activity(seen)


def _describe_activity(seen: BoxFacts) -> tuple[BoxHealth, str, str]:
    """Return what a box with current figures is doing."""
    if seen.running_cells:
        _, cell, run = seen.running_cells[0]
        if run is None or run.step is None:
            return (
                BoxHealth.RUNNING,
                "running",
                translate("{name} runs, no step logged yet", name=cell.name),
            )
        if seen.progress_age is None:
            moved = ""
        else:
            moved = translate(
                ", advanced {progress_age} ago", progress_age=format_duration(seen.progress_age)
            )
        return (
            BoxHealth.RUNNING,
            "running",
            translate(
                "{name} at {position}{moved}", name=cell.name, position=run.position, moved=moved
            ),
        )
    if seen.unseen is not None and not seen.trains:
        return BoxHealth.UNKNOWN, "unknown", _describe_unseen(seen, seen.unseen)
    if seen.queue_done and not seen.trains:
        cells = [cell for queue in seen.box.queues for cell in queue.cells]
        done = sum(cell.state == "done" for cell in cells)
        text = translate(
            "{done} of {cells} done, the runner wrote QUEUE DONE",
            done=done,
            cells=how_many(len(cells), "cell"),
        )
        return BoxHealth.FINISHED, "finished", text
    if seen.trains:
        procs = training_processes(seen.box.sample)
        return (
            BoxHealth.RUNNING,
            "running",
            translate(
                "{procs}, no queue",
                procs=how_many(len(procs), "training process", "training processes"),
            ),
        )
    return BoxHealth.IDLE, "idle", translate("no training process, no cell running")


def _describe_unseen(seen: BoxFacts, why: str) -> str:
    """Return why it is unknown what runs, and any sign of a training."""
    if seen.box.sample is not None:
        gpus = seen.box.sample.gpus
    else:
        gpus = ()
    busy = max((gpu.util for gpu in gpus if gpu.util is not None), default=0.0)
    if busy >= LIMITS.busy_pct:
        return translate("{why}; a GPU is {busy} busy", why=why, busy=pct(busy))
    return why


def _rank_key(
    health: BoxHealth, alerts: list[Alert], seen: BoxFacts
) -> tuple[int, int, int, float, str]:
    errors = sum(alert.level == "error" for alert in alerts)
    return (_ORDER[health], -errors, -len(alerts), -(seen.progress_age or 0.0), seen.box.spec.name)


def alert_advice(alert: Alert) -> str:
    """Return what to do about an alert, in one line.

    Empty for an alert that is not in the table.
    """
    kind = BY_ID.get(alert.kind)
    if kind is not None:
        return kind.advice
    return ""


def calls_for_person(alert: Alert) -> bool:
    """Return whether an alert calls for a person."""
    kind = BY_ID.get(alert.kind)
    return not alert.muted and (alert.level == "error" or (kind is not None and kind.escalates))


def alert_began(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert began; None if the fleet's other events report it."""
    if BY_ID[alert.kind].told:
        return None
    return FleetEvent(at=now, box=box, text=alert.text, level=alert.level, about=alert.id)


def alert_ended(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert has ended, and how long it lasted.

    None as in `alert_began`.
    """
    if BY_ID[alert.kind].told:
        return None
    text = ended_text(alert.id)
    least = 1.0
    if alert.since is not None and now - alert.since >= least:
        text = translate(
            "{ended}, after {held}", ended=text, held=format_duration(now - alert.since)
        )
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


def calls_for_person_once(alert: Alert) -> bool:
    """Return whether an alert calls for a person only once, and not for as long as it is active."""
    kind = BY_ID.get(alert.kind)
    return alert.level != "error" and kind is not None and kind.escalates and kind.once


def evaluate_checks(
    box: BoxState, profile: Profile, now: float, *, page_seen: bool = False
) -> tuple[CheckResult, ...]:
    """Return the result of every check, in order of their ids. Pure.

    Passed means proved *now*: if a live check's box no longer reports, the check waits again and
    states the age of its proof.

    Args:
        box: The state.
        profile: Platform of the box.
        now: Client clock.
        page_seen: A person has seen the current platform page, see `rgt_tui.profiles.seen_at`.
    """
    seen = facts_of(box, now, profile=profile, page_seen=page_seen)
    told: dict[str, list[str]] = {}
    for one in collect_advice(box, now):
        told.setdefault(ADVISED_AT[one.about], []).append(f"{one.run}: {one.text}")
    return tuple(
        _build_check_result(check, seen, "; ".join(told.get(check.id, ()))) for check in CHECKS
    )


ADVISED_AT = {
    "save": "4.5",
    "resume": "2.3",
    "batch": "2.3",
    "cache": "4.3",
    "workers": "4.2",
    "memory": "4.2",
}
"""Subject of an advice → the check that shows it."""


def _build_check_result(check: LifecycleCheck, seen: BoxFacts, told: str) -> CheckResult:
    verdict = check.evaluator(seen)
    status, evidence = verdict.status, verdict.evidence
    if check.live and status is CheckStatus.PASSED and not seen.live:
        sample_at = seen.box.sample_at
        if sample_at is None:
            last = translate("no sample")
        else:
            last = translate("last sample {now} ago", now=format_duration(seen.now - sample_at))
        status, evidence = CheckStatus.WAITING, f"{evidence} ({last})"
    command = check.command.replace("{box}", seen.box.spec.name)
    return CheckResult(
        check.id, check.phase, check.title, status, evidence, verdict.at, command, advice=told
    )


PHASES = ("consult", "launch", "smoke", "queue", "babysit", "collect")


# Fixes for a box as a checklist whose steps are ticked by the box's samples alone. Pure.
#
# A step is ticked once the condition that proposed it is known to be over. A line that has merely
# scrolled out of a log, or a box that reports nothing, proves nothing: the step then stays as it
# is.


class Remedy(FrozenStruct, kw_only=True):
    """The steps that one condition proposes."""

    key: str
    """Identifies the condition and its resource."""
    title: str
    steps: tuple[FixStep, ...]
    finding: Finding | None = None
    """The finding that proposed it; None = an alert did."""
    over_at: float | None = None
    """Client clock at which the readings showed that the condition is over; None = it is active or
    unknown.
    """
    doubt: str = ""
    """Why it is unknown whether the condition is active; empty = it is known."""

    @property
    def is_done(self) -> bool:
        """Whether its steps are ticked."""
        return self.over_at is not None


def list_remedies(before: tuple[Remedy, ...], box: BoxState, now: float) -> tuple[Remedy, ...]:
    """Return the current remedies, followed by earlier ones that are over or no longer seen.

    Args:
        before: The result of the last call for this box; empty at first.
        box: Its state.
        now: Client clock.
    """
    if box.alerts_kept:
        alerts = box.alerts
    else:
        alerts = judge_without_history(box, now)[1]
    told = {
        f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}"
        for finding in box.findings
    }
    known = {one.key: one for one in before}
    found = [_remedy_of_finding(finding, known, now) for finding in box.findings if finding.fixes]
    found += [
        _remedy_of_alert(alert) for alert in alerts if not alert.muted and alert.id not in told
    ]
    # An alert that is muted, replaced by a finding, or found again under another key is not over.
    here = (
        {one.key for one in found}
        | {alert.id for alert in alerts}
        | covered_alert_ids(box.findings)
    )
    broken = {finding.resource for finding in box.findings}
    seen = facts_of(box, now)
    gone = [
        _close_remedy(one, seen)
        for one in before
        if one.key not in here and (one.finding is None or one.finding.resource not in broken)
    ]
    # Seconds for which a remedy that is over is still shown, ticked.
    kept_s = 1800.0
    # Maximum number of remedies remembered per box.
    most_kept = 40
    return (*found, *(one for one in gone if one.over_at is None or now - one.over_at <= kept_s))[
        :most_kept
    ]


def _remedy_of_finding(finding: Finding, known: dict[str, Remedy], now: float) -> Remedy:
    key = f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}"
    old = known.get(key)
    if old is not None and old.over_at is not None:
        since = old.over_at
    else:
        since = now
    return Remedy(
        key=key,
        title=describe_resource(finding.resource),
        steps=finding.fixes,
        finding=finding,
        over_at=since if finding.cleared else None,
    )


def _remedy_of_alert(alert: Alert) -> Remedy:
    kind = BY_ID.get(alert.kind)
    advice = ""
    if kind is not None:
        advice = kind.advice
    return Remedy(key=alert.id, title=alert.text, steps=(FixStep(advice),) if advice else ())


def _close_remedy(one: Remedy, seen: BoxFacts) -> Remedy:
    """Return a remedy that is no longer proposed: ticked if the readings prove that it is over."""
    if one.is_done:
        return one
    if not seen.live or seen.is_blind:
        return msgspec.structs.replace(
            one, doubt=translate("unknown: the box does not report it now")
        )
    if (
        one.finding is None
        or one.finding.where in READING_SOURCES
        or _run_continued(one.finding, seen)
    ):
        return msgspec.structs.replace(one, over_at=seen.now, doubt="")
    return msgspec.structs.replace(
        one, doubt=translate("no longer in the log; unknown whether it is over")
    )


def _run_continued(finding: Finding, seen: BoxFacts) -> bool:
    """Return whether the run got past the failure.

    It logged a later step, or its cell ended well.
    """
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
