"""Being quiet about an alert: pure functions over the list of mutes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rgt_tui.model.alert import Alert

DAY_S = 86400.0
EVERYTHING = "*"
"""In place of an alert or a kind: whatever a box raises."""
LONGEST_S = {"done-billing": DAY_S, EVERYTHING: DAY_S}
"""What costs money every hour speaks again after so long, whatever was asked for; *everything* includes it."""


class Mute(msgspec.Struct, frozen=True):
    """Somebody does not want to hear of it."""

    box: str
    what: str
    """Id of an alert, a kind, or `EVERYTHING`."""
    until: float | None
    """Client clock; None = until it is over."""
    at: float
    """Client clock at which it was said."""


def put(mutes: Iterable[Mute], box: str, what: str, seconds: float | None, now: float) -> tuple[Mute, ...]:
    """Return the mutes after one more; 0 seconds speak again, None is until the alert is over."""
    kept = tuple(mute for mute in mutes if (mute.box, mute.what) != (box, what))
    if seconds is not None and not seconds > 0:
        # Speaking again about an alert must not be in vain because its kind is muted, and the other way round.
        kind = what.partition(":")[0]
        if what == EVERYTHING:
            return tuple(mute for mute in kept if mute.box != box)
        above = (kind, EVERYTHING)
        return tuple(
            m for m in kept if m.box != box or (m.what not in above and m.what.partition(":")[0] != what)
        )
    longest = LONGEST_S.get(what.partition(":")[0])
    if longest is not None:
        seconds = longest if seconds is None else min(seconds, longest)
    return (*kept, Mute(box, what, None if seconds is None else now + seconds, now))


def covers(mute: Mute, alert: Alert) -> bool:
    """Say whether a mute is about this alert."""
    return mute.what in (alert.id, alert.kind, EVERYTHING)


def silences(mutes: Iterable[Mute], box: str, id_: str, now: float) -> bool:
    """Say whether the alert `id_` of `box` is muted at `now`."""
    what = (id_, id_.partition(":")[0], EVERYTHING)
    return any(m.box == box and m.what in what and (m.until is None or now < m.until) for m in mutes)


def hushed(mutes: Iterable[Mute], box: str, alerts: tuple[Alert, ...], now: float) -> tuple[Alert, ...]:
    """Return the alerts of `box`, those that are muted at `now` marked."""
    own = [mute for mute in mutes if mute.box == box and (mute.until is None or now < mute.until)]
    if not own:
        return alerts
    return tuple(
        msgspec.structs.replace(alert, muted=True) if any(covers(mute, alert) for mute in own) else alert
        for alert in alerts
    )


UNSEEN_S = 900.0
"""What is muted until it is over, and has not been seen to hold for so long after that, is over. It is longer than any
kind has to last before it rises: another rgt may have seen it first."""


def over(mute: Mute, alerts: Iterable[Alert], now: float, *, met: bool, live: bool) -> bool:
    """Say whether a mute has ended: its time is up, or what it was about is no more.

    Args:
        mute: One of the box.
        alerts: All that holds on it, shown or not.
        now: Client clock.
        met: This rgt has seen what it is about.
        live: This rgt sees the box now.
    """
    if mute.until is not None:
        return now >= mute.until
    if any(covers(mute, alert) for alert in alerts):
        return False
    return met or (live and now - mute.at >= UNSEEN_S)
