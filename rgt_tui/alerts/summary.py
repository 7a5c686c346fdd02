"""The alerts of a box for who does not draw them: a command, a metric, an exit code."""

from __future__ import annotations

import msgspec

from rgt_tui.alerts.assess import assess
from rgt_tui.alerts.rules import BY_ID
from rgt_tui.model.alert import Alert
from rgt_tui.model.box import BoxState


class AlertLine(msgspec.Struct, frozen=True):
    """One alert, as ``--json`` shows it."""

    id: str
    kind: str
    level: str
    text: str
    since: float | None
    """Client clock, epoch seconds; None where nobody has watched."""
    muted: bool
    advice: str


def summary(box: BoxState, now: float) -> tuple[AlertLine, ...]:
    """Return what holds on `box`, worst first, muted ones at the end."""
    return tuple(
        AlertLine(a.id, a.kind, a.level, a.text, a.since, a.muted, advice(a)) for a in assess(box, now).alerts
    )


def advice(alert: Alert) -> str:
    """Return what to do about an alert, in one line; empty for one that the table does not have."""
    kind = BY_ID.get(alert.kind)
    return kind.advice if kind is not None else ""


def escalate(box: BoxState, now: float) -> bool:
    """Say whether a person should look at `box` now: any error, or a warning that ends or wastes something.

    Muted alerts do not call; a box that cannot be reached is for the caller to tell from one that is well.
    """
    return any(calls(alert) for alert in assess(box, now).alerts)


def calls(alert: Alert) -> bool:
    """Say whether an alert calls for a person."""
    kind = BY_ID.get(alert.kind)
    return not alert.muted and (alert.level == "error" or (kind is not None and kind.escalates))
