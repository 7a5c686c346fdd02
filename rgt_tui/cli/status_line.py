"""One line about one box, for scripts and people, from its state and its assessment. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Container
from typing import Any

import msgspec

from rgt_tui.fleet import describe_dropped
from rgt_tui.health import (
    Assessment,
    ClockReading,
    WorstCase,
    calls_for_person,
    calls_for_person_once,
    clock_readings,
    describe_self_stop,
    worst_case_of,
)
from rgt_tui.health.autostop_words import POWER
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    BoxHealth,
    BoxState,
    Finding,
    FoundRun,
    FrozenStruct,
    Meter,
    QueueCell,
    RunState,
    Sample,
    SelfStopState,
    clean_text,
    format_duration,
    format_money,
    how_many,
    pad_cells,
    pct,
)
from rgt_tui.profiles import (
    Advice,
    ProfileError,
    byte_pct,
    collect_advice,
    find_held_runs,
    inode_pct,
    load_profile,
    memory_pct,
    no_agent,
    run_cost,
    seconds_left,
    wait_left,
)
from rgt_tui.profiles.prices import books_differ
from rgt_tui.profiles.run_advice import RunCost


class StatusVerdict(enum.StrEnum):
    """The meaning of a line, for scripts that only need to know whether a person is needed."""

    HEALTHY = "healthy"
    ESCALATE = "escalate"
    """There is a condition that needs a person."""
    UNKNOWN = "unknown"
    """Unknown: not reached, no answer in time, old figures, or processes that cannot be read."""


_ESCALATE = (BoxHealth.TROUBLE, BoxHealth.GONE)
_UNKNOWN = frozenset(
    (
        BoxHealth.UNREACHABLE,
        BoxHealth.UNKNOWN,
        BoxHealth.STALE,
        BoxHealth.CONNECTING,
        BoxHealth.PAUSED,
    )
)


HOLDING = "holding"
"""State of a run that waits with unsaved work in memory, because it cannot save."""


# The fields of these structs are the keys of `rgt status --json`: scripts depend on their names, so
# fields are added and never renamed.
class RunLine(FrozenStruct):
    """One run, without its curves."""

    name: str
    state: str | None
    """Queue state: waiting, running, done, failed or interrupted. For a found training: running or
    ended, which is not the same as done. For either, `HOLDING` instead of running. None if unknown.
    """
    step: int | None
    total_steps: int | None
    epoch: float | None
    loss: float | None
    best: float | None
    lr: float | None
    grad_norm: float | None
    throughput: float | None
    progress_age_s: float | None
    """Seconds since the step last advanced."""
    attempts: int | None
    exit_code: int | None
    why: str | None
    """Why it failed, in words."""
    durable: str | None
    resumes: int
    pid: int | None = None
    """Root process of a found training; the next three fields are also about found trainings."""
    session: str | None = None
    log: str | None = None
    ended: float | None = None
    """Box clock when it was found to have ended."""
    eta_s: float | None = None
    """Seconds to its last step at its average pace."""
    cost_per_1000_steps: float | None = None
    """Cost of the box for 1,000 steps; None = price or pace unknown, which does not mean free."""
    eta_cost: float | None = None
    """Cost of the box for `eta_s`."""
    cost_currency: str | None = None
    cost_at_least: bool = False
    """Whether the two costs are lower bounds."""
    unsaved_steps: int | None = None
    """For a holding run: steps that are lost if it gives up."""
    gives_up_s: float | None = None
    """For a holding run: seconds until it gives up."""
    axis: str = "step"
    """What `step` counts: ``step``, ``epoch`` or ``samples``."""
    position: str = ""
    """`step` with its unit, such as ``epoch 3.5``."""


class MeterLine(FrozenStruct):
    """The cost of the box, and its source."""

    kind: str
    lifecycle: str
    per_hour: float | None
    spent: float | None
    currency: str
    age_s: float | None
    """Age of the reading."""
    source: str
    error: str | None
    at_least: bool = False
    """`per_hour` is a lower bound: the items in `unpriced` are billed as well."""
    spent_at_least: bool = False
    spent_estimated: bool = False
    """`spent` is price × time, not a bill."""
    spent_since: float | None = None
    """Client clock from which `spent` counts."""
    unpriced: tuple[str, ...] = ()
    doubt: str | None = None
    """What the provider leaves open about the price; the higher reading is used."""
    books_differ: float | None = None
    """The provider's bill minus price × time since `books_differ_since`, if they differ."""
    books_differ_since: float | None = None


class AlertLine(FrozenStruct):
    """A condition that is active now."""

    id: str
    level: str
    word: str
    text: str
    since: float | None
    muted: bool


class FindingLine(FrozenStruct):
    """What broke, its proof, and the fix."""

    gotcha: str
    title: str
    severity: str
    confidence: float | None
    """0 to 1; None = not rated."""
    action: str
    """What to do now, one of a closed set, as in `rgt triage`."""
    resource: str
    evidence: str
    where: str
    """Path of the log, ``sample`` or ``scalars``."""
    line_no: int | None
    """Line number in that log, from 1; None without one, or the log was not followed from its
    start."""
    run: str | None
    step: int | None
    since: float
    cleared: bool
    """Whether the cause is gone, but the run has not made progress yet."""
    fix: tuple[str, ...]
    never: str | None


class ClockLine(FrozenStruct):
    """A danger clock that is active now."""

    what: str
    mode: str
    """countdown or charge."""
    seconds_left: float | None
    """Minimum time left; None = a charge, or its begin is unknown."""
    most_left_s: float | None
    """Maximum time left; None = unknown."""
    bound: str
    """exact, at least, at most, or none."""
    sure: bool
    """False = it counts only if the machine has stopped, which is unknown."""
    level: str
    text: str
    consequence: str
    source: str


class WorstLine(FrozenStruct):
    """What the box can cost until the next clock ends it."""

    amount: float | None
    """None = no limit, or an unknown rate; it never means zero."""
    at_least: bool
    """Whether it can be more than `amount`."""
    currency: str
    per_hour: float | None
    seconds: float | None
    until: str | None
    text: str


class StatusLine(FrozenStruct):
    """The state of a box. The first eight fields are stable; more may follow."""

    box: str
    state: str
    """One of `rgt_tui.model.box.BoxHealth`."""
    reason: str
    age_s: float | None
    """Seconds since the newest sample arrived; None = no sample."""
    sample: Sample | None
    """The newest sample, as described in docs/protocol.md."""
    runs: tuple[RunLine, ...]
    alerts: tuple[AlertLine, ...]
    """Worst first."""
    meter: MeterLine
    at: float
    """Client clock of this line."""
    link: str
    profile: str
    limited: tuple[str, ...]
    """What does not work on this box and why."""
    verdict: StatusVerdict
    clocks: tuple[ClockLine, ...] = ()
    """The active clocks, the one that ends first at the front."""
    worst_case: WorstLine | None = None
    """None = the platform is not known."""
    autostop: str = ""
    """State or result of the box's own stop, in words; the figures are in `sample`."""
    self_stop: SelfStopState | None = None
    """The record on this computer of arming it; None = it was not armed from here."""
    findings: tuple[FindingLine, ...] = ()
    """Worst first."""
    advice: tuple[Advice, ...] = ()
    """From measurements; none of it is trouble."""


def status_line(
    box: BoxState, seen: Assessment, now: float, told: Container[str] = frozenset()
) -> StatusLine:
    """Return the line of a box.

    Args:
        box: Its state.
        seen: Its assessment by `rgt_tui.health.assess`.
        now: Client clock.
        told: Ids of alerts that were already reported, for `choose_verdict`.
    """
    # Figures and texts of one moment: `now` is the same in all of them.
    clocks, worst = _build_clock_lines(box, now)
    return StatusLine(
        box=box.spec.name,
        state=seen.health.value,
        reason=_describe_reason(box, seen),
        age_s=_round_seconds(seen.sample_age),
        sample=box.sample,
        runs=tuple(_build_run_lines(box, now)),
        alerts=tuple(_build_alert_line(alert) for alert in seen.alerts),
        meter=_build_meter_line(box.meter, now),
        at=round(now, 3),
        link=box.link.value,
        profile=box.spec.profile,
        # Data that did not fit into memory must not look complete.
        limited=(*box.limited, *describe_dropped(box.left_out)),
        verdict=choose_verdict(seen, told),
        clocks=clocks,
        worst_case=worst,
        autostop=describe_self_stop(box, now),
        self_stop=box.self_stop,
        findings=tuple(_build_finding_line(finding) for finding in box.findings),
        advice=collect_advice(box, now),
    )


def _describe_reason(box: BoxState, seen: Assessment) -> str:
    """Return the reason for a box's state.

    If it runs without an agent, add that logs and curves are not read, so that its progress is
    unknown.
    """
    # Only for "running": in trouble, the reason says more than this.
    unread = seen.health is BoxHealth.RUNNING and no_agent(box)
    if unread:
        return translate("{why}, limited: no logs, no curves", why=seen.why)
    return seen.why


def _build_finding_line(one: Finding) -> FindingLine:
    return FindingLine(
        gotcha=one.gotcha,
        title=one.title,
        severity=one.severity.value,
        confidence=one.confidence,
        action=one.action,
        resource=one.resource,
        evidence=one.evidence,
        where=one.where,
        line_no=one.line_no,
        run=one.run,
        step=one.step,
        since=one.since,
        cleared=one.cleared,
        fix=tuple(
            fix.text if fix.command is None else f"{fix.text}: {fix.command}" for fix in one.fixes
        ),
        never=one.never,
    )


def _build_clock_lines(box: BoxState, now: float) -> tuple[tuple[ClockLine, ...], WorstLine | None]:
    try:
        profile = load_profile(box.spec.profile)
    # The box still has a line; which clocks run there is unknown.
    except ProfileError:
        return (), None
    readings = clock_readings(profile, box, now)
    return tuple(_build_clock_line(reading) for reading in readings), _build_worst_line(
        worst_case_of(box, readings, now)
    )


def _build_clock_line(reading: ClockReading) -> ClockLine:
    return ClockLine(
        what=reading.what,
        mode=reading.mode.value,
        seconds_left=_round_seconds(reading.seconds_left),
        most_left_s=_round_seconds(reading.most_left),
        bound=reading.bound.value,
        sure=reading.sure,
        level=reading.level,
        text=reading.text,
        consequence=reading.consequence,
        source=reading.source,
    )


def _build_worst_line(worst: WorstCase) -> WorstLine:
    if worst.amount is None:
        amount = None
    else:
        # Digits beyond that would differ with each reading.
        amount = round(worst.amount, 4)
    return WorstLine(
        amount=amount,
        at_least=worst.at_least,
        currency=worst.currency,
        per_hour=worst.per_hour,
        seconds=_round_seconds(worst.seconds),
        until=worst.until,
        text=worst.text,
    )


def choose_verdict(seen: Assessment, told: Container[str] = frozenset()) -> StatusVerdict:
    """Return the verdict. An alert that needs a person escalates even if the box is unreachable.

    Args:
        seen: The assessment.
        told: Ids of reported alerts; those that call only once do not escalate again.
    """
    loud = [
        a for a in seen.alerts if not a.muted and not (a.id in told and calls_for_person_once(a))
    ]
    if seen.health in _ESCALATE or any(calls_for_person(alert) for alert in loud):
        return StatusVerdict.ESCALATE
    # `beneath` too: a known trouble must not hide that the rest is unknown.
    if {seen.health, seen.beneath} & _UNKNOWN:
        return StatusVerdict.UNKNOWN
    return StatusVerdict.HEALTHY


def encode_line(line: StatusLine) -> bytes:
    """Return a line as JSON with a line feed: no control characters, NaN and inf as strings."""
    # Cleaned as builtins, so that no field of a nested struct can be forgotten.
    return msgspec.json.encode(_clean_value(msgspec.to_builtins(line))) + b"\n"


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        # JSON has no NaN and no infinity.
        return str(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_value(item) for item in value]
    return value


def _build_run_lines(box: BoxState, now: float) -> list[RunLine]:
    known = {run.name: run for run in box.runs}
    cells = {cell.name: cell for queue in box.queues for cell in queue.cells}
    found = {told.name: told for told in box.found}
    # Cells first: the queue's order is the one in which a person wrote them.
    names = dict.fromkeys((*cells, *known, *found))
    return [
        _build_run_line(
            box,
            name,
            known.get(name),
            cells.get(name),
            found.get(name),
            run_cost(box, name, now),
            seconds_left(box, name, now),
            now,
        )
        for name in names
    ]


def _build_run_line(
    box: BoxState,
    name: str,
    run: RunState | None,
    cell: QueueCell | None,
    found: FoundRun | None,
    cost: RunCost | None,
    left_s: float | None,
    now: float,
) -> RunLine:
    # A waiting cell has no curve yet, but has a line.
    run = run or RunState(name=name)
    if found is None:
        # A run that writes curves without a process that was found.
        alive = run.alive
    else:
        alive = found.alive
    # The queue knows more than the process table: done, failed and interrupted.
    if cell:
        state = cell.state
    elif alive is None:
        state = None
    elif alive:
        state = "running"
    else:
        state = "ended"
    # Of all waiting runs only those that hold unsaved work, see `HOLDING`.
    if run in find_held_runs(box):
        wait = run.wait
    else:
        wait = None
    return RunLine(
        name=name,
        # Not "running": it makes no progress, and is lost if it gives up.
        state=state if wait is None else HOLDING,
        unsaved_steps=None if wait is None else wait.unsaved,
        gives_up_s=None if wait is None else _round_seconds(wait_left(box, wait, now)),
        step=run.step,
        axis=run.axis,
        position=run.position,
        total_steps=run.total_steps,
        epoch=run.epoch,
        loss=run.loss,
        # The curve's own, which is newer than the one that the runner noted.
        best=run.best if run.best is not None else cell.best if cell else None,
        lr=run.lr,
        grad_norm=run.grad_norm,
        throughput=run.throughput,
        progress_age_s=None
        if run.progressed_at is None
        else _round_seconds(max(0.0, now - run.progressed_at)),
        attempts=cell.attempts if cell else None,
        exit_code=cell.exit_code if cell else found.exit_code if found else None,
        why=cell.reason if cell else None,
        durable=cell.durable if cell else None,
        resumes=len(run.resumes),
        pid=found.pid if found else None,
        session=found.session if found else None,
        log=found.log if found else None,
        ended=run.ended if found is None else found.ended,
        eta_s=_round_seconds(left_s),
        cost_per_1000_steps=None if cost is None else round(cost.per_1000_steps.value, 6),
        eta_cost=None if cost is None or cost.to_end is None else round(cost.to_end.value, 6),
        cost_currency=None if cost is None else cost.per_1000_steps.currency,
        cost_at_least=cost is not None and cost.per_1000_steps.at_least,
    )


def _build_alert_line(alert: Alert) -> AlertLine:
    return AlertLine(alert.id, alert.level, alert.word, alert.text, alert.since, alert.muted)


def _build_meter_line(meter: Meter, now: float) -> MeterLine:
    return MeterLine(
        kind=meter.kind.value,
        lifecycle=meter.lifecycle.value,
        per_hour=meter.per_hour,
        spent=meter.spent,
        currency=meter.currency,
        age_s=None if meter.at is None else _round_seconds(max(0.0, now - meter.at)),
        source=meter.source,
        error=meter.error,
        at_least=meter.at_least,
        spent_at_least=meter.spent_at_least,
        spent_estimated=meter.spent_estimated,
        spent_since=meter.spent_since,
        unpriced=meter.unpriced,
        doubt=meter.doubt,
        books_differ=meter.books_differ,
        books_differ_since=meter.books_differ_since,
    )


def _round_seconds(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    return round(seconds, 3)


NAME_WIDTH, STATE_WIDTH = 16, 11


def text_line(line: StatusLine) -> str:
    """Return the text line, e.g. ``lab  running  2.1 s  gpu 97%  …``, without escape sequences."""
    parts = [
        line.reason,
        *(
            [f"{POWER} {line.autostop}"]
            # The reason has it already if the stop is the most important thing about the box.
            if line.autostop and line.autostop not in line.reason
            else []
        ),
        *_describe_sample(line.sample),
        *_runs_text(line.runs, line.reason),
        *_meter_text(line.meter),
    ]
    if line.age_s is None:
        said = translate("no sample")
    else:
        said = translate("{age} old", age=format_duration(line.age_s))
    text = " · ".join(part for part in parts if part)
    return clean_text(
        f"{line.box:<{NAME_WIDTH}} {line.state:<{STATE_WIDTH}} {pad_cells(said, 10)} {text}"
    )


def _describe_sample(sample: Sample | None) -> list[str]:
    if sample is None:
        return []
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    sim = ""
    if any(gpu.sim for gpu in sample.gpus):
        sim = " SIM"
    if utils:
        parts = [f"gpu {pct(sum(utils) / len(utils))}{sim}"]
    else:
        parts = []
    if (share := memory_pct(sample.mem)) is not None:
        parts.append(f"mem {pct(share)}")
    # The fullest of bytes and inodes of all disks: the first to make a write fail.
    fullest = max(
        ((share, disk.mount, what) for disk in sample.disks if not disk.read_only
         for share, what in ((byte_pct(disk), "disk"), (inode_pct(disk), "inodes"))
         if share is not None),
        default=None,
    )  # fmt: skip
    if fullest is not None:
        parts.append(f"{fullest[2]} {fullest[1]} {pct(fullest[0])}")
    return parts


def _runs_text(runs: tuple[RunLine, ...], reason: str) -> list[str]:
    running = [
        run
        for run in runs
        if run.state in ("running", HOLDING) or (run.state is None and run.step is not None)
    ]
    parts = []
    # A box with many runs would fill the screen; --json has all of them.
    for run in running[:3]:
        if run.loss is None:
            loss = ""
        else:
            loss = f" loss {run.loss:.4g}"
        # The reason often names the run and its step, which is not repeated.
        if loss or run.name not in reason:
            if run.step is None:
                step = ""
            else:
                step = f" {run.position}"
            if run.total_steps is None:
                total = ""
            else:
                total = f"/{run.total_steps:,}"
            parts.append(f"{run.name}{step}{total}{loss}{_describe_cost(run)}")
        elif cost := _describe_cost(run):
            parts.append(cost.strip())
    done = sum(run.state == "done" for run in runs)
    # Only cells have attempts.
    queued = sum(run.attempts is not None for run in runs)  # a found training is no cell
    if queued:
        return [*parts, translate("{done}/{cells} done", done=done, cells=how_many(queued, "cell"))]
    return parts


def _describe_cost(run: RunLine) -> str:
    if run.cost_per_1000_steps is None or run.cost_currency is None:
        return ""
    currency, least = run.cost_currency, run.cost_at_least
    if run.eta_cost is None:
        end = ""
    else:
        end = translate(", {eta_cost} to go", eta_cost=format_money(run.eta_cost, currency, least))
    cost = format_money(run.cost_per_1000_steps, currency, least)
    return translate(" {cost}/1k steps", cost=cost) + end


def _meter_text(meter: MeterLine) -> list[str]:
    # No provider and no price in the file: nothing is claimed about money.
    if meter.age_s is None and meter.per_hour is None:
        return []
    total = format_money(
        meter.spent, meter.currency, meter.spent_at_least, estimated=meter.spent_estimated
    )
    if meter.spent is None:
        spent = ""
    else:
        spent = translate(", {total} so far", total=total)
    rate = f"{format_money(meter.per_hour, meter.currency, meter.at_least)}/h"
    differ = books_differ(meter.books_differ, meter.books_differ_since, meter.currency)
    said = (translate("price unknown") if meter.per_hour is None else rate) + spent
    return [said if differ is None else f"{said} ({differ})"]
