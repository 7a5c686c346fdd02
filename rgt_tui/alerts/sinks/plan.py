"""What a sink has to be told now: a pure comparison of what holds with what it was told."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rgt_tui.alerts.sinks.quiet import minutes_left
from rgt_tui.alerts.statefile import Told
from rgt_tui.model.alert import AlertEvent, SinkSettings
from rgt_tui.model.plain import clean

LEVELS = {"error": 0, "warn": 1, "info": 2}
MAX_DIGEST_BYTES = 3500
"""Of a digest's text. ntfy makes an attachment of what is above 4,096 bytes (https://docs.ntfy.sh/publish/#limitations),
and the advice of a message still comes behind it."""


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
    held: Container[str] = (),
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
        held: Keys of what holds as well and is not to be told: it is muted, or something else stands for it.
            It is not over.
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
        if key in active or key in held or not key.startswith(mine):
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
    name, what = box.partition("@")[0], clean(id_)
    return AlertEvent(
        what="resolved", at=now, level="info", title=f"{name}: over: {what}", text=f"{what} of {name} is over",
        box=name, id=id_, kind=id_.partition(":")[0],
    )  # fmt: skip


def digest(events: Sequence[AlertEvent], now: float) -> AlertEvent:
    """Return one message for many events."""
    worst = min((event.level for event in events), key=LEVELS.__getitem__)
    boxes = len({event.box for event in events if event.box})
    on = f" on {boxes} box{'es' if boxes != 1 else ''}" if boxes else ""
    ranked = sorted(events, key=lambda event: LEVELS[event.level])
    lines = _fitting([f"{event.title}: {event.text}" for event in ranked])
    return AlertEvent(
        what="digest", at=now, level=worst, title=f"{len(events)} alerts{on}", text="\n".join(lines),
        items=tuple(events),
    )  # fmt: skip


def _fitting(lines: Sequence[str]) -> list[str]:
    """Return the first lines that fit into a message, and how many more there are."""
    room = MAX_DIGEST_BYTES
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            return [*kept, f"… and {len(lines) - len(kept)} more"]
        kept.append(line)
    return kept
