"""What a sink has to be told now: a pure comparison of what holds with what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rgt_tui.alerts.sinks.quiet import minutes_left
from rgt_tui.alerts.statefile import Told
from rgt_tui.model.alert import AlertEvent, SinkSettings

LEVELS = {"error": 0, "warn": 1, "info": 2}


class Plan(NamedTuple):
    """What to do now."""

    send: tuple[tuple[str, AlertEvent], ...]
    """By key, in the order of the fleet."""
    forget: tuple[str, ...]
    """Over, and nobody needs to be told."""
    again_in: float | None
    """Seconds until something that waits becomes due; None = nothing waits."""


def plan(
    active: Mapping[str, AlertEvent],
    told: Mapping[str, Told],
    settings: SinkSettings,
    now: float,
    minute: int,
    ours: Iterable[str],
) -> Plan:
    """Compare what holds with what was told. Pure.

    What came and went while it could not be told is never told: it is over.

    Args:
        active: Key → the alert that holds, unmuted, as it would be told.
        told: Key → what the sink was told last.
        settings: Its table in the fleet file.
        now: Client clock.
        minute: Minute of the local day.
        ours: The beginnings of the keys of the boxes that this rgt watches; what is told of others is not ours.
    """
    send: list[tuple[str, AlertEvent]] = []
    waits: list[float] = []
    quiet_s = 60.0 * minutes_left(settings.quiet_hours, minute)
    for key, event in active.items():
        if not wanted(event, settings):
            continue
        known = told.get(key)
        if known is not None and not known.over:
            if LEVELS[event.level] >= LEVELS[known.level]:
                continue
            event = msgspec.structs.replace(event, what="worse")
        elif known is not None and known.at + settings.every_s > now:
            waits.append(known.at + settings.every_s - now)
            continue
        if quiet_s and event.level != "error":
            waits.append(quiet_s)
            continue
        send.append((key, event))
    forget = []
    mine = tuple(ours)
    for key, known in told.items():
        if key in active or not key.startswith(mine):
            continue
        if known.over:
            if known.at + settings.every_s <= now:
                forget.append(key)
            else:
                waits.append(known.at + settings.every_s - now)
        elif not settings.resolved:
            forget.append(key)
        elif quiet_s:
            waits.append(quiet_s)
        else:
            send.append((key, resolved(key, now)))
    return Plan(tuple(send), tuple(forget), min(waits) if waits else None)


def wanted(event: AlertEvent, settings: SinkSettings) -> bool:
    """Say whether the sink wants to hear of this alert at all."""
    return (
        LEVELS[event.level] <= LEVELS[settings.min_level]
        and (not settings.kinds or event.kind in settings.kinds)
        and (not settings.boxes or event.box in settings.boxes)
    )


def resolved(key: str, now: float) -> AlertEvent:
    """Return the message that an alert is over."""
    box, _, id_ = key.partition(" ")
    name = box.partition("@")[0]
    return AlertEvent(
        what="resolved", at=now, level="info", title=f"{name}: over: {id_}", text=f"{id_} of {name} is over",
        box=name, id=id_, kind=id_.partition(":")[0],
    )  # fmt: skip


def digest(events: Sequence[AlertEvent], now: float) -> AlertEvent:
    """Return one message for many events."""
    worst = min((event.level for event in events), key=LEVELS.__getitem__)
    boxes = len({event.box for event in events if event.box})
    on = f" on {boxes} box{'es' if boxes != 1 else ''}" if boxes else ""
    lines = [f"{event.title}: {event.text}" for event in events]
    return AlertEvent(
        what="digest", at=now, level=worst, title=f"{len(events)} alerts{on}", text="\n".join(lines),
        items=tuple(events),
    )  # fmt: skip
