"""Muting alerts, and the file that remembers mutes, raised alerts, and what each sink was sent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui.files import locked_file, replace_file, state_directory
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    BoxSpec,
    FleetEvent,
    FrozenStruct,
    MachineLife,
    clean_text,
    time_of_day,
)

DAY_S = 86400.0
EVERYTHING = "*"
"""Instead of an alert or a kind: every alert of a box."""
LONGEST_S = {"done-billing": DAY_S, EVERYTHING: DAY_S}
"""Maximum duration of a mute, even if a longer one was requested: what costs money every hour must
be reported again. *Everything* includes it.
"""


class AlertMute(FrozenStruct):
    """One alert, or all alerts, that a person has muted for a while."""

    box: str
    what: str
    """Id of an alert, a kind, or `EVERYTHING`."""
    until: float | None
    """Client clock; None = until the alert is over."""
    at: float
    """Client clock at which it was muted."""


def put_mute(
    mutes: Iterable[AlertMute], box: str, what: str, seconds: float | None, now: float
) -> tuple[AlertMute, ...]:
    """Return the mutes with one more; 0 seconds unmutes, None lasts until the alert is over."""
    kept = tuple(mute for mute in mutes if (mute.box, mute.what) != (box, what))
    if seconds is not None and not seconds > 0:
        # Unmuting an alert also removes a mute of its kind, and the other way round; else it had no
        # effect.
        kind = what.partition(":")[0]
        if what == EVERYTHING:
            return tuple(mute for mute in kept if mute.box != box)
        above = (kind, EVERYTHING)
        return tuple(
            m
            for m in kept
            if m.box != box or (m.what not in above and m.what.partition(":")[0] != what)
        )
    # By kind, so that one resource of it cannot be muted for longer, either.
    longest = LONGEST_S.get(what.partition(":")[0])
    if longest is not None:
        if seconds is None:
            seconds = longest
        else:
            seconds = min(seconds, longest)
    # The new one replaces an older mute of the same, also with an earlier end.
    return (*kept, AlertMute(box, what, None if seconds is None else now + seconds, now))


def mute_changes(
    before: Sequence[AlertMute], after: Sequence[AlertMute], since: float, now: float
) -> list[tuple[str, float, str, str]]:
    """Return the changes between two lists of mutes: box (`AlertMute.box`), time, subject, text.

    Args:
        before: The earlier mutes.
        after: The current mutes.
        since: A mute made before this time is no change.
        now: Client clock, as all times.
    """
    said = [mute for mute in after if mute not in before and mute.at >= since]
    anew = {(mute.box, mute.what) for mute in said}
    found = []
    for mute in before:
        # Extended is not unmuted: the new mute has a line of its own below.
        if mute in after or (mute.box, mute.what) in anew:
            continue
        over = mute.until is not None and now >= mute.until
        why = translate(", its time has passed") if over else ""
        if over and mute.until is not None:
            at = mute.until
        else:
            at = now
        found.append(
            (
                mute.box,
                at,
                mute.what,
                translate("no longer muted: {what}{why}", what=_muted_name(mute.what), why=why),
            )
        )
    for mute in said:
        found.append(
            (
                mute.box,
                now,
                mute.what,
                translate(
                    "muted {until}: {what}",
                    until=_mute_end_text(mute.until, now),
                    what=_muted_name(mute.what),
                ),
            )
        )
    return found


def mute_event(box: str, at: float, what: str, text: str) -> FleetEvent:
    """Return the event that something was muted or unmuted; see `mute_changes`."""
    return FleetEvent(at=at, box=box, text=clean_text(text), about=f"mute:{what}")


def _muted_name(what: str) -> str:
    if what == EVERYTHING:
        return "everything"
    return what


def _mute_end_text(until: float | None, now: float) -> str:
    if until is None:
        return translate("until it is over")
    return translate("until {time}", time=time_of_day(until, now))


def mute_covers(mute: AlertMute, alert: Alert) -> bool:
    """Return whether a mute is about this alert."""
    return mute.what in (alert.id, alert.kind, EVERYTHING)


def is_alert_muted(mutes: Iterable[AlertMute], box: str, id_: str, now: float) -> bool:
    """Return whether the alert `id_` of `box` is muted at `now`."""
    what = (id_, id_.partition(":")[0], EVERYTHING)
    return any(
        m.box == box and m.what in what and (m.until is None or now < m.until) for m in mutes
    )


def mark_muted(
    mutes: Iterable[AlertMute], box: str, alerts: tuple[Alert, ...], now: float
) -> tuple[Alert, ...]:
    """Return the alerts of `box` with the muted ones marked."""
    own = [mute for mute in mutes if mute.box == box and (mute.until is None or now < mute.until)]
    if not own:
        return alerts
    return tuple(
        msgspec.structs.replace(alert, muted=True)
        if any(mute_covers(mute, alert) for mute in own)
        else alert
        for alert in alerts
    )


UNSEEN_S = 900.0
"""Seconds without its alert after which a mute until the end is over. Longer than the `hold_s` of
every kind, because another rgt may have seen the alert first.
"""


def mute_is_over(
    mute: AlertMute, alerts: Iterable[Alert], now: float, *, met: bool, live: bool
) -> bool:
    """Return whether a mute has ended: its time is up, or its alert is over.

    Args:
        mute: One of the box.
        alerts: All active alerts of the box, shown or not.
        now: Client clock.
        met: This rgt has seen the alert.
        live: This rgt sees the box now.
    """
    if mute.until is not None:
        return now >= mute.until
    if any(mute_covers(mute, alert) for alert in alerts):
        return False
    return met or (live and now - mute.at >= UNSEEN_S)


KEEP_S = 90 * 86400.0
"""Entries untouched for this long belong to boxes that no longer exist."""
MAX_BYTES = 16 << 20
VERSION = 1


class SentAlert(FrozenStruct):
    """What a sink was last sent about one alert."""

    level: str
    at: float
    over: bool = False
    """Its end was sent, or need not be."""


class BoxAlertNotes(FrozenStruct):
    """The alerts that were active on one box."""

    alerts: tuple[Alert, ...] = ()
    past: MachineLife = MachineLife()
    at: float = 0.0
    covered: tuple[str, ...] = ()
    """Ids of active alerts that were replaced by something else, shown or sent."""


class _Version(msgspec.Struct):
    version: int = VERSION


class StoredAlerts(FrozenStruct):
    """The content of the file."""

    version: int = VERSION
    mutes: tuple[AlertMute, ...] = ()
    boxes: dict[str, BoxAlertNotes] = {}
    told: dict[str, dict[str, SentAlert]] = {}
    """Sink → ``BOX ALERT`` → the last message."""
    met: dict[str, float] = {}
    """Platform → when its dangers were first shown; they are shown once."""


def alerts_path(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_STATE_HOME/rgt/alerts.json``, by default below ``~/.local/state``.

    A relative value is ignored.
    """
    return state_directory(env) / "alerts.json"


def key_of(spec: BoxSpec) -> str:
    """Return the key of a box: name and host, because two fleets may use the same name."""
    return f"{spec.name}@{spec.host}"


def load_alerts(path: Path) -> StoredAlerts:
    """Read the file. A damaged one is renamed, so that nothing is lost; the result is then empty.

    Raises:
        OSError: it exists but cannot be read, or a newer rgt has written it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except FileNotFoundError:
        return StoredAlerts()
    try:
        if msgspec.json.decode(data, type=_Version).version > VERSION:
            raise OSError(
                translate("written by a newer rgt: update this one; the file was not changed")
            )
        return msgspec.json.decode(data, type=StoredAlerts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        with contextlib.suppress(OSError):
            path.replace(path.with_name(path.name + ".damaged"))
        return StoredAlerts()


def update_alerts(
    path: Path, change: Callable[[StoredAlerts], StoredAlerts], now: float
) -> StoredAlerts:
    """Apply `change` to the current content of the file and return the result. Blocks briefly.

    Raises:
        OSError: the file cannot be written, or its lock is not released; it is then unchanged.
    """
    with locked_file(path):
        old = load_alerts(path)
        new = change(old)
        if new is not old:
            replace_file(
                path, msgspec.json.format(msgspec.json.encode(_drop_expired(new, now)), indent=1)
            )
        return new


def _drop_expired(stored: StoredAlerts, now: float) -> StoredAlerts:
    boxes = {key: notes for key, notes in stored.boxes.items() if now - notes.at < KEEP_S}
    told = {
        sink: {key: what for key, what in known.items() if now - what.at < KEEP_S}
        for sink, known in stored.told.items()
    }
    return msgspec.structs.replace(stored, boxes=boxes, told=told)


def alerts_stamp(path: Path) -> tuple[int, int]:
    """Return a value that changes whenever the file is written; (0, 0) if there is no file.

    Raises:
        OSError: its status cannot be read.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
