"""The state of a box's alerts.

An alert is raised and cleared only after its condition has lasted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from operator import is_
from typing import NamedTuple

import msgspec

from rgt_tui.health.condition import Condition, Reading, SignCache
from rgt_tui.health.conditions import ALERTS, BY_ID, covered_alert_ids
from rgt_tui.health.facts import BoxFacts, facts_of, provider_word, reuse_facts
from rgt_tui.health.remembered import (
    TREND,
    EventNews,
    RememberedBox,
    gather_event_news,
    update_life,
    update_trends,
)
from rgt_tui.health.rows.conditions_queue import finding_key
from rgt_tui.model import Alert, BoxEvent, BoxState, Finding, FrozenStruct, clean_text

# Below every limit. With `below`, the sign is not turned for it, so it is "good" there as well.
GONE = Reading("", -math.inf)
"""The reading of a resource that no longer exists."""


class AlertMachine(FrozenStruct):
    """One alert of one resource.

    Durations count known seconds only: time without a reading is ignored.
    """

    rung: int = 0
    """0 = not raised, otherwise the number of the condition's rung, from 1."""
    up_s: float | None = None
    """For how long it has been bad enough for a higher rung; None = it is not."""
    down_s: float = 0.0
    """For how long it has been good enough for a lower rung."""
    count: float | None = None
    """The last value of a condition that counts."""
    alert: Alert | None = None
    """Shown while it is raised."""
    fading: bool = False
    """The reading is good again; the alert clears once that has lasted."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return self.rung == 0 and self.up_s is None and self.count is None


REST = AlertMachine()


def has_value(reading: Reading) -> bool:
    """Return whether there is a value."""
    # NaN is the one value that differs from itself.
    return reading.value is not None and reading.value == reading.value


def advance_machine(
    kind: Condition, machine: AlertMachine, reading: Reading, dt: float
) -> AlertMachine:
    """Return the machine after a known `reading`, with an unchanged `alert`.

    Args:
        kind: The row of the table.
        machine: The state so far.
        reading: Its value is neither None nor NaN.
        dt: Known seconds since the last reading.
    """
    value = reading.value
    assert value is not None
    if kind.rises:
        return _advance_counter(kind, machine, reading, value, dt)
    if kind.below and reading is not GONE:
        sign = -1.0
    else:
        sign = 1.0
    rungs = kind.rungs
    up = machine.rung
    # From the top: a value that jumps over a level is reported once, at the higher one.
    for place in range(len(rungs), machine.rung, -1):
        if sign * value >= sign * rungs[place - 1].at:
            up = place
            break
    if up > machine.rung:
        if machine.up_s is None:
            # Only at first: afterwards the known seconds count, so a clock that is set changes
            # nothing.
            waited = reading.age_s or 0.0
        else:
            waited = machine.up_s + dt
        if waited >= kind.hold_s:
            return AlertMachine(rung=up, up_s=waited, alert=machine.alert)
        # down_s starts over: the wait for the higher level also proves that it is not getting
        # better.
        return AlertMachine(machine.rung, waited, 0.0, None, machine.alert)
    down = machine.rung
    while down and sign * value < sign * rungs[down - 1].clear:
        down -= 1
    if down < machine.rung:
        over = machine.down_s + dt
        if over >= kind.quiet_s:
            return AlertMachine(rung=down, alert=machine.alert)
        return AlertMachine(machine.rung, None, over, None, machine.alert, fading=down == 0)
    # The same object, so that an unchanged box costs no copy of its state.
    if machine.up_s is None and not machine.down_s and not machine.fading:
        return machine
    return AlertMachine(rung=machine.rung, alert=machine.alert)


def _advance_counter(
    kind: Condition, machine: AlertMachine, reading: Reading, value: float, dt: float
) -> AlertMachine:
    if reading is GONE:
        if machine.rung == 0:
            return REST  # counting restarts after that, e.g. after a reboot
        value = 0.0
        if machine.count is not None:
            value = machine.count
    # The first value, or a counter that began again: only its own date can make it news.
    if machine.rung == 0 and (machine.count is None or value < machine.count):
        if reading.age_s is None or reading.age_s > kind.quiet_s:
            return AlertMachine(count=value)
        return AlertMachine(rung=1, up_s=reading.age_s, down_s=reading.age_s, count=value)
    if machine.count is not None and value > machine.count:
        return AlertMachine(rung=1, count=value, alert=machine.alert)
    if machine.rung == 0:
        if value == machine.count:
            return machine
        return AlertMachine(count=value)
    over = machine.down_s + dt
    if over >= kind.quiet_s:
        return AlertMachine(count=value)
    return AlertMachine(machine.rung, None, over, value, machine.alert)


LEVELS = {"error": 0, "warn": 1}
_NONE: frozenset[str] = frozenset()

replace = msgspec.structs.replace


SOURCES = (
    "account", "autostop", "clock_skew", "findings", "hello", "lease", "link", "meter", "news",
    "off", "open_action",
    "past", "peer", "queues", "self_stop", "spec",
)  # fmt: skip
"""The sources that change seldom, by the names used in `Condition.of`."""


def source_values(view: BoxFacts) -> tuple[object, ...]:
    """Return the values of `SOURCES` for a box, in that order."""
    box, sample = view.box, view.box.sample
    # Not the sample itself: each one is a new object, while these two of it seldom change.
    autostop, lease = (sample.autostop, sample.lease) if sample is not None else (None, None)
    return (
        box.account, autostop, box.clock_skew, box.findings, box.hello, lease, box.link, box.meter,
        view.news, view.off,
        box.open_action, view.memory.past, box.peer, box.queues, box.self_stop, box.spec,
    )  # fmt: skip


def _changed_sources(before: tuple[object, ...], now: tuple[object, ...]) -> Collection[str]:
    """Return the `SOURCES` that are no longer the same object."""
    if not before:
        return SOURCES
    if all(map(is_, before, now)):
        return ()  # the usual case
    return {name for name, old, new in zip(SOURCES, before, now, strict=True) if old is not new}


class AlertState(FrozenStruct):
    """All alerts of one box, and the memory that they need. Immutable."""

    machines: dict[str, dict[str, AlertMachine]] = {}
    """Kind → resource → machine; machines at rest are left out."""
    memory: RememberedBox = RememberedBox()
    at: float | None = None
    """Client clock of the last step."""
    trend_s: float = 0.0
    """Known seconds so far, for the trends."""
    events: tuple[BoxEvent, ...] = ()
    news: EventNews = EventNews()
    """What `events` report."""
    live: bool = False
    """The last step had current figures."""
    sources: tuple[object, ...] = ()
    """The result of `source_values` at the last step."""
    hushed: frozenset[str] = frozenset()
    """Ids of active alerts that a finding replaces. When the finding ends they are not reported as
    new, so nobody is paged; one that becomes worse is reported as usual.
    """


class AlertStep(NamedTuple):
    """The result of a step."""

    book: AlertState
    raised: tuple[Alert, ...]
    """Alerts that began or became worse."""
    cleared: tuple[Alert, ...]
    """Alerts that ended, in their last state."""


def step_alerts(
    book: AlertState,
    box: BoxState,
    now: float,
    kinds: Sequence[Condition] = ALERTS,
    elsewhere: frozenset[str] = frozenset(),
    like: BoxFacts | None = None,
) -> AlertStep:
    """Return the state of the alerts after a new view of `box`. Pure.

    Args:
        book: The state so far.
        box: The state now.
        now: Client clock.
        kinds: The rows that count, with their limits.
        elsewhere: Ids of alerts that are reported for another box.
        like: The result of `facts_of` for the same box and time, if already computed.
    """
    # A longer time between two steps is cut to this: the laptop slept, or its clock was set.
    # Without the cut, one step after a night asleep would complete every `hold_s` at once.
    longest_step_s = 60.0
    if book.at is None:
        dt = 0.0
    else:
        dt = min(max(now - book.at, 0.0), longest_step_s)
    if box.events is book.events:
        news = book.news
    else:
        news = gather_event_news(box.events)
    memory, trend_s = _update_memory(book, box, dt, now)
    if box.life != memory.past:
        box = replace(box, life=memory.past)
    if like is None:
        seen = facts_of(box, now, memory, news)
    else:
        seen = reuse_facts(like, box, now, memory, news)
    machines = book.machines
    raised: list[Alert] = []
    cleared: list[Alert] = []
    told_by = source_values(seen)
    others = _changed_sources(book.sources, told_by)
    signs = SignCache(seen)
    for kind in kinds:
        held = machines.get(kind.id)
        if held is None and kind.of and kind.of.isdisjoint(others) and (book.live or not kind.live):
            continue  # none of its sources changed since it was last read and found at rest
        if held is None and signs.lacks_sign(kind.needs):
            continue  # there is nothing to read
        if seen.live or not kind.live:
            readings = kind.read(seen)
            if readings is None:
                continue
        # A machine that is off has no resources left: its alerts end, instead of freezing.
        elif seen.off:
            readings = ()
        else:
            continue
        if not readings and not held:
            continue
        changed = _step_machines(kind, seen, held or {}, readings, dt, raised, cleared)
        if changed is not held:
            if machines is book.machines:
                machines = dict(machines)
            if changed:
                machines[kind.id] = changed
            else:
                machines.pop(kind.id, None)
    if box.findings:
        told = covered_alert_ids(box.findings)
    else:
        told = _NONE
    if raised or cleared:
        hidden = told | elsewhere
        # Filtered after the step: the machines must count on, or the alert would start late
        # afterwards.
        raised = [alert for alert in raised if alert.id not in hidden]
        cleared = [alert for alert in cleared if alert.id not in hidden | book.hushed]
    made = AlertState(
        machines, memory, now, trend_s, box.events, news, seen.live, told_by, book.hushed
    )
    if told or book.hushed:
        hushed = (book.hushed - {alert.id for alert in raised}) | told
        made = replace(made, hushed=hushed & {alert.id for alert in active_alerts(made)})
    return AlertStep(made, tuple(raised), tuple(cleared))


def _update_memory(
    book: AlertState, box: BoxState, dt: float, now: float
) -> tuple[RememberedBox, float]:
    memory = book.memory
    past = update_life(memory.past, box, provider_word(box, now))
    if past is not memory.past:
        memory = replace(memory, past=past)
    at = book.trend_s + dt
    if book.at is None or int(at / TREND.every_s) > int(book.trend_s / TREND.every_s):
        memory = replace(memory, trends=update_trends(memory.trends, box, at))
    return memory, at


def _step_machines(
    kind: Condition,
    seen: BoxFacts,
    held: dict[str, AlertMachine],
    readings: Iterable[Reading],
    dt: float,
    raised: list[Alert],
    cleared: list[Alert],
) -> dict[str, AlertMachine]:
    """Step the machines of one kind. Return the same dictionary if nothing changed."""
    made = held
    # A copy, from which each read resource is taken: what remains has no reading any more.
    left = dict(held) if held else None
    if kind.rises:
        # A counter has no limit: `_advance_counter` judges each of its values.
        first = math.inf
    else:
        first = kind.rungs[0].at
    for reading in readings:
        value = reading.value
        if left is None:
            # The usual case: nothing is raised, and nothing is bad.
            if value is None or (value > first if kind.below else value < first and not kind.rises):
                continue
            machine = None
        else:
            machine = left.pop(reading.key, None)
        if value is None or value != value:
            continue
        if machine is not None:
            before = machine
        else:
            before = REST
        after = advance_machine(kind, before, reading, dt)
        if after.rung:
            after = _build_alert(kind, seen, reading, before, after, raised)
        elif before.alert is not None:
            cleared.append(before.alert)
            after = replace(after, alert=None)
        if after is before or (machine is None and after.is_idle):
            continue
        if made is held:
            made = dict(held)
        if after.is_idle:
            made.pop(reading.key, None)
        else:
            made[reading.key] = after
    for key, machine in left.items() if left else ():
        after = advance_machine(kind, machine, GONE, dt)
        if after is machine:
            continue
        if made is held:
            made = dict(held)
        if not after.rung and machine.alert is not None:
            cleared.append(machine.alert)
            after = replace(after, alert=None)
        if after.is_idle:
            made.pop(key, None)
        else:
            made[key] = after
    return made


def _build_alert(
    kind: Condition,
    seen: BoxFacts,
    reading: Reading,
    before: AlertMachine,
    after: AlertMachine,
    raised: list[Alert],
) -> AlertMachine:
    """Build the alert's text from the newest reading, and add a new or worse alert to `raised`."""
    old = before.alert
    if old is None:
        since = seen.now - (after.up_s or 0.0)
    else:
        since = old.since or seen.now
    level = reading.level or kind.rungs[after.rung - 1].level
    text = clean_text(kind.say(seen, reading, since))
    if old is not None and old.text == text and old.level == level:
        if after.alert is old:
            return after
        return replace(after, alert=old)
    alert = Alert(
        id=f"{kind.id}:{reading.key}" if reading.key else kind.id,
        level=level,
        text=text,
        word=reading.word or kind.word,
        since=since,
    )
    if old is None or LEVELS[level] < LEVELS[old.level]:
        raised.append(alert)
    return replace(after, alert=alert)


def active_alerts(book: AlertState) -> tuple[Alert, ...]:
    """Return all active alerts, in no order."""
    if not book.machines:
        return ()
    return tuple(
        machine.alert
        for machines in book.machines.values()
        for machine in machines.values()
        if machine.alert is not None
    )


def alerts_to_show(
    book: AlertState, findings: tuple[Finding, ...], elsewhere: frozenset[str] = frozenset()
) -> tuple[Alert, ...]:
    """Return the alerts to show: worst first, then in table order, findings in their own order.

    Left out are alerts that a finding or another box reports, and a gauge whose number is good
    again.
    """
    found = [
        machine.alert
        for id_, machines in book.machines.items()
        for machine in machines.values()
        if machine.alert is not None and not (machine.fading and BY_ID[id_].gauge)
    ]
    if not found:
        return ()
    hidden = covered_alert_ids(findings) | elsewhere
    if len(findings) > 1:
        place = {f"finding:{finding_key(finding)}": at for at, finding in enumerate(findings)}
        found.sort(key=lambda alert: place.get(alert.id, -1))
    return sort_alerts(alert for alert in found if alert.id not in hidden)


def sort_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return alerts worst first, muted ones last, and otherwise in the order of the table.

    Among errors, those that end at a known time come first: a machine that is taken away, then a
    run that waits with unsaved work, for which a full disk is only the reason.
    """
    first = ("preemption", HOLDING)

    def urgency(alert: Alert) -> tuple[bool, int, int, int]:
        if alert.kind in first:
            place = first.index(alert.kind)
        else:
            place = len(first)
        return alert.muted, LEVELS[alert.level], place, _PLACE.get(alert.kind, 99)

    return tuple(sorted(alerts, key=urgency))


HOLDING = "holding"
"""Kind of the alert about a run that waits with unsaved work in memory."""


_PLACE = {kind.id: place for place, kind in enumerate(ALERTS)}


def judge_without_history(box: BoxState, now: float) -> tuple[BoxFacts, tuple[Alert, ...]]:
    """Judge a box without history: a condition counts if the box's own evidence says it has lasted.

    Returns:
        The view, and the alerts, worst first, without a start time.
    """
    seen = facts_of(box, now)
    raised: list[Alert] = []
    for kind in ALERTS:
        # As in `step_alerts`, where such a condition has no readings.
        if kind.live and seen.off:
            continue
        for reading in kind.read(seen) or ():
            if has_value(reading):
                after = advance_machine(kind, REST, reading, 0.0)
                if after.rung:
                    _build_alert(kind, seen, reading, REST, after, raised)
    hidden = covered_alert_ids(box.findings)
    return seen, sort_alerts(replace(a, since=None) for a in raised if a.id not in hidden)


def clock_set(book: AlertState, seconds: float) -> AlertState:
    """Return the state adjusted to a client clock that was set: each alert keeps its duration."""

    def shift_since(machine: AlertMachine) -> AlertMachine:
        alert = machine.alert
        if alert is None or alert.since is None:
            return machine
        return replace(machine, alert=replace(alert, since=alert.since + seconds))

    return replace(
        book,
        machines={
            kind: {key: shift_since(machine) for key, machine in held.items()}
            for kind, held in book.machines.items()
        },
    )


def restore_alert_state(
    alerts: Iterable[Alert], memory: RememberedBox, now: float, told: Collection[str] = frozenset()
) -> AlertState:
    """Restore the state of an earlier rgt: its alerts continue and are not raised again.

    The box was not watched in between, so the first good reading ends an alert at once.

    Args:
        alerts: The alerts that were shown last.
        memory: The remembered memory.
        now: Client clock.
        told: Ids of alerts that a finding replaced.
    """
    machines: dict[str, dict[str, AlertMachine]] = {}
    for alert in alerts:
        kind = BY_ID.get(alert.kind)
        if kind is None:
            continue
        levels = [rung.level for rung in kind.rungs]
        if alert.level in levels:
            rung = levels.index(alert.level) + 1
        else:
            rung = 1
        if kind.rises:
            over = max(0.0, now - (alert.since or 0.0))
        else:
            # Enough for any `quiet_s`, so that the first good reading ends it.
            over = math.inf
        key = alert.id.partition(":")[2]
        kept = replace(alert, muted=False)
        machines.setdefault(kind.id, {})[key] = AlertMachine(rung=rung, down_s=over, alert=kept)
    book = AlertState(machines=machines, memory=memory)
    return replace(
        book, hushed=frozenset(alert.id for alert in active_alerts(book) if alert.id in told)
    )
