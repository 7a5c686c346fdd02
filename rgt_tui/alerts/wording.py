"""An alert in the words of the fleet's events and of a message to a sink."""

from __future__ import annotations

from rgt_tui.alerts.rules import BY_ID
from rgt_tui.model.alert import Alert, AlertEvent
from rgt_tui.model.fleet import FleetEvent
from rgt_tui.model.plain import clean


def beginning(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert began; None where the fleet's other events tell it."""
    if BY_ID[alert.kind].told:
        return None
    return FleetEvent(at=now, box=box, text=alert.text, level=alert.level, about=alert.id)


def ending(box: str, alert: Alert, now: float) -> FleetEvent | None:
    """Return the event that an alert is over."""
    kind = BY_ID[alert.kind]
    if kind.told:
        return None
    key = clean(alert.id.partition(":")[2])
    title = kind.over or kind.title[0].lower() + kind.title[1:]
    text = f"over: {title}{f' ({key})' if key else ''}"
    return FleetEvent(at=now, box=box, text=text, about=alert.id)


def message(box: str, alert: Alert, now: float) -> AlertEvent:
    """Return what a sink is told of an alert that holds."""
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
