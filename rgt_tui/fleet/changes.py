"""Describe changes between two states of a box as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rgt_tui.gate import GENERIC, describe_recognised, recognised
from rgt_tui.health import (
    describe_armed_off,
    describe_reported_park,
    describe_resource,
    finding_key,
    story_lines,
)
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    FLEET_FILE,
    BillingVerb,
    BoxState,
    Finding,
    FleetEvent,
    Lifecycle,
    LinkState,
    MeterKind,
    QueueCell,
    clean_text,
    format_duration,
)
from rgt_tui.profiles import copies_of, stopped_by_person


class EventText(NamedTuple):
    """The text of an event of a box."""

    text: str
    level: str
    about: str
    muted: bool = False


_ENDS = {"done": "info", "failed": "error", "interrupted": "warn"}


def events_between(old: BoxState, new: BoxState, now: float) -> list[FleetEvent]:
    """Return the events of the changes from `old` to `new`, grouped by subject.

    Muted events are marked.
    """
    if _is_same_state(old, new):
        return []  # nearly always: a sample alone is no event
    name = new.spec.name
    quiet = frozenset(alert.id for alert in new.alerts if alert.muted)
    found = [
        *_link_events(old, new, quiet),
        *_platform_events(old, new),
        *_queue_events(old, new, quiet),
        *_resume_events(old, new),
        *_finding_events(old, new, quiet),
        *_meter_events(old, new),
        *_self_stop_events(old, new),
    ]
    return [build_event(now, name, one) for one in found]


MUTED = "{event} (muted)"


def build_event(now: float, box: str, said: EventText) -> FleetEvent:
    """Return an event. The text of a muted one, which is only for the journal, says so."""
    text = clean_text(said.text)
    if said.muted:
        text = translate(MUTED, event=text)
    return FleetEvent(
        at=now, box=box, text=text, level=said.level, about=said.about, muted=said.muted
    )


def _is_same_state(old: BoxState, new: BoxState) -> bool:
    """Return whether every part of the state that can cause an event is the same object."""
    return (
        old.link is new.link
        and old.queues is new.queues
        and old.findings is new.findings
        and old.meter is new.meter
        and (old.sample is None) is (new.sample is None)
        and (old.runs is new.runs or not any(run.resumes for run in new.runs))
    )


_LINKS = {
    LinkState.UNREACHABLE: "warn",
    LinkState.REFUSED_KEY: "error",
    LinkState.REFUSED_LOGIN: "error",
    LinkState.ASKING: "warn",
    LinkState.PAUSED: "info",
}
"""Level of the event when the link takes a value."""


ALERTS = {
    LinkState.REFUSED_KEY: "host-key",
    LinkState.REFUSED_LOGIN: "login",
    LinkState.ASKING: "asking",
}
"""The alert about the same state as a value of the link."""


def _link_events(old: BoxState, new: BoxState, quiet: frozenset[str]) -> Iterator[EventText]:
    if old.link is new.link:
        return
    if new.link is LinkState.LIVE:
        text = translate("connected")
        if new.counters.connects > 1 and old.link is LinkState.UNREACHABLE:
            silent_s = new.since - _silent_since(old)
            text = translate("back after {silent_s}", silent_s=format_duration(silent_s))
        yield EventText(text, "info", "link")
    elif new.link in _LINKS:
        text = new.reason
        if new.link is LinkState.UNREACHABLE:
            text = translate("unreachable: {reason}", reason=new.reason)
        yield EventText(text, _LINKS[new.link], "link", ALERTS.get(new.link) in quiet)


def _silent_since(box: BoxState) -> float:
    """Return when the box fell silent: the last sample arrives before the box is declared lost."""
    if box.sample_at is None:
        return box.since
    return min(box.since, box.sample_at)


def _platform_events(old: BoxState, new: BoxState) -> Iterator[EventText]:
    """With the first sample of a box without a configured platform: report the recognised one."""
    spec = new.spec
    if old.sample is not None or new.sample is None or spec.profile != GENERIC or spec.untrusted:
        return
    if new.hello is not None:
        names = new.hello.identity
    else:
        names = {}
    found = recognised(names, (disk.mount for disk in new.sample.disks))
    if found is not None:
        yield EventText(describe_recognised(*found), "info", "platform")


def _queue_events(old: BoxState, new: BoxState, quiet: frozenset[str]) -> Iterator[EventText]:
    before = {cell.name: cell for queue in old.queues for cell in queue.cells}
    for queue in new.queues:
        for cell in queue.cells:
            known = before.get(cell.name)
            if known is None and not before:
                continue  # the first report of a queue is no event
            if known is None or known.state != cell.state:
                # failed, interrupted: the kinds of alert have the names of the states
                lost = copies_of(new)(cell) is False
                yield from _cell_events(cell, f"{cell.state}:{cell.name}" in quiet, lost)


def _cell_events(cell: QueueCell, muted: bool, lost: bool) -> Iterator[EventText]:
    if cell.state == "running":
        text = translate("{name} started", name=cell.name)
        if cell.attempts > 1:
            text = translate("{name} started, attempt {count}", name=cell.name, count=cell.attempts)
        yield EventText(text, "info", f"run:{cell.name}")
    elif cell.state in _ENDS:
        proof = ""
        if cell.durable == "verified":
            if lost:
                proof = translate(", copy verified, but erased with the box")
            else:
                proof = translate(", copy on the durable disk verified")
        ended = translate(cell.state)
        if cell.reason and cell.state != "done":
            reason = show_recorded(cell.reason)
            ended = translate("{ended}: {reason}", ended=ended, reason=reason)
        if stopped_by_person(cell):
            level = "info"
        else:
            level = _ENDS[cell.state]
        text = translate("{name} {ended}{proof}", name=cell.name, ended=ended, proof=proof)
        yield EventText(text, level, f"run:{cell.name}", muted)


def _resume_events(old: BoxState, new: BoxState) -> Iterator[EventText]:
    before = {run.name: len(run.resumes) for run in old.runs}
    for run in new.runs:
        for resume in run.resumes[before.get(run.name, 0) :]:
            text = translate(
                "{name} resumed from step {step:,} ({reason})",
                name=run.name,
                step=resume.step,
                reason=resume.reason,
            )
            yield EventText(text, "info", f"run:{run.name}")


def _finding_events(old: BoxState, new: BoxState, quiet: frozenset[str]) -> Iterator[EventText]:
    before = {finding_key(finding): finding for finding in old.findings if not finding.guess}
    after = {finding_key(finding): finding for finding in new.findings if not finding.guess}
    for key, finding in after.items():
        muted = f"finding:{key}" in quiet
        what = describe_resource(finding.resource)
        if finding.run:
            what = translate("{what} ({run})", what=what, run=finding.run)
        if not _is_among(finding, old.findings):
            text = translate(
                "{page} {title}: {what}",
                page=finding.gotcha,
                title=translate(finding.title),
                what=what,
            )
            yield EventText(text, finding.severity.alert_level, _finding_subject(finding), muted)
        elif finding.cleared and key in before and not before[key].cleared:
            again = translate(_FREE_AGAIN.get(finding.gotcha, "the cause is gone"))
            text = translate("{what}: {end} ({page})", what=what, end=again, page=finding.gotcha)
            yield EventText(text, "info", _finding_subject(finding), muted)
    # An ended finding's mute has ended as well, so whether it was muted is read from the old state.
    before_quiet = {alert.id for alert in old.alerts if alert.muted}
    for key, finding in before.items():
        if not _is_among(finding, new.findings):
            where = finding.run or describe_resource(finding.resource)
            if finding.gotcha in _ENDED:
                ended = translate(_ENDED[finding.gotcha])
            else:
                ended = translate("no longer a problem: {title}", title=translate(finding.title))
            text = translate("{what}: {end} ({page})", what=where, end=ended, page=finding.gotcha)
            yield EventText(
                text, "info", _finding_subject(finding), f"finding:{key}" in before_quiet
            )


_ENDED = {"SP1": "the interruption is over"}
_FREE_AGAIN = {"U6": "free again", "U7": "free again"}
"""Text for the end of a finding whose title would read badly."""


def _finding_subject(finding: Finding) -> str:
    """Return the subject of a finding, without its run, which may become known later."""
    return f"finding:{finding.gotcha}:{finding.resource}"


def _is_among(finding: Finding, others: Iterable[Finding]) -> bool:
    """Return whether a finding is in a list, also if only one of the two names its run.

    A reading can report a cause before a log line shows which run it hit.
    """
    return any(
        (other.gotcha, other.resource) == (finding.gotcha, finding.resource)
        and (other.run == finding.run or not other.run or not finding.run)
        for other in others
    )


def _meter_events(old: BoxState, new: BoxState) -> Iterator[EventText]:
    # A fleet-file price follows from the link, whose change has been reported already.
    same = old.meter.lifecycle is new.meter.lifecycle or new.meter.source == FLEET_FILE
    if same or old.meter.at is None:
        return
    now = new.meter.lifecycle
    done = _AS_ASKED.get((now, new.life.asked))
    text = translate(done or "provider says {value}", value=now.value)
    text = translate("{change}: {bills}", change=text, bills=translate(_BILLED[new.meter.kind]))
    yield EventText(text, "info" if done else "warn", "meter")


_AS_ASKED = {
    (Lifecycle.GONE, BillingVerb.DESTROY.value): "destroyed, as you asked",
    (Lifecycle.STOPPED, BillingVerb.PARK.value): "stopped, as you asked",
}
_BILLED = {
    MeterKind.COMPUTE_AND_STORAGE: "compute and storage bill",
    MeterKind.STORAGE_ONLY: "storage still bills",
    MeterKind.NONE: "nothing bills any more",
    MeterKind.UNKNOWN: "unknown what still bills",
}


def _self_stop_events(old: BoxState, new: BoxState) -> Iterator[EventText]:
    """Report the self-stop of an armed box: when it is off, and when its own report has arrived."""
    before, after = old.self_stop, new.self_stop
    if after is None or after is before or not after.armed:
        return
    if after.told_at is not None and (before is None or before.told_at is None):
        yield EventText(describe_reported_park(after), "info", "autostop")
        for line in story_lines(after.story):
            yield EventText(line, "info", "autostop")
    elif (
        after.told_at is None
        and after.off_at is not None
        and (before is None or before.off_at is None)
    ):
        yield EventText(describe_armed_off(after, new.meter.source), "warn", "autostop")
