"""The last values of a box in the file, and the box itself."""

from __future__ import annotations

import sqlite3
import time

import msgspec

from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.money import Meter
from rgt_tui.model.protocol import Checkpoints, QueueState, Sample
from rgt_tui.store.place import place_of
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import BOXES, FLEETS, STATES


class Saved(msgspec.Struct, frozen=True):
    """The body of a row of ``states``: what a row of the fleet screen shows."""

    sample: Sample | None = None
    sample_at: float | None = None
    clock_skew: float | None = None
    queues: tuple[QueueState, ...] = ()
    checkpoints: tuple[Checkpoints, ...] = ()
    meter: Meter = Meter()
    limited: tuple[str, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Saved).decode


def number(con: sqlite3.Connection, spec: BoxSpec, now: float) -> int:
    """Return the number of a box, in a transaction that may be the first to know it."""
    place = place_of(spec)
    row = con.execute(BOXES.select + " WHERE place = ?", (place,)).fetchone()
    if row is None:
        found = int(con.execute("SELECT coalesce(max(id), 0) + 1 FROM boxes").fetchone()[0])
        con.execute(BOXES.insert(), BOXES.sealed((found, place, spec.name, now, now)))
        return found
    found, _, name, first, seen, _ = checked("boxes", row)
    if name != spec.name or now - seen > 60 or seen > now:
        con.execute(BOXES.insert(), BOXES.sealed((found, place, spec.name, first, now)))
    return int(found)


def known(con: sqlite3.Connection, spec: BoxSpec) -> int | None:
    """Return the number of a box; None when nothing was ever written of it."""
    row = con.execute(BOXES.select + " WHERE place = ?", (place_of(spec),)).fetchone()
    return None if row is None else int(checked("boxes", row)[0])


def newest(con: sqlite3.Connection) -> float | None:
    """Return when a box was last told of; None when none ever was."""
    (at,) = con.execute("SELECT max(seen_at) FROM boxes").fetchone()
    return float(at) if isinstance(at, int | float) else None


def belongs(con: sqlite3.Connection, fleet: str, name: str, box: int) -> None:
    """Note that a fleet calls a box so.

    Args:
        con: In a transaction.
        fleet: By what the fleet is known.
        name: Of the box, in it.
        box: Its number.
    """
    con.execute(FLEETS.insert("IGNORE"), FLEETS.sealed((fleet, name, box)))


def of_name(con: sqlite3.Connection, fleet: str, name: str) -> list[int]:
    """Return the numbers of all boxes that a fleet ever called `name`: yesterday it may have been another machine."""
    rows = con.execute(FLEETS.select + " WHERE fleet = ? AND name = ?", (fleet, name))
    return [int(checked("fleets", row)[2]) for row in rows]


def save(con: sqlite3.Connection, box: int, state: BoxState, now: float) -> None:
    """Write the last values of a box, unless newer ones stand there."""
    newest = max(filter(None, (state.sample_at, state.meter.at)), default=now)
    row = con.execute(STATES.select + " WHERE box = ?", (box,)).fetchone()
    if row is not None and newest < checked("states", row)[1] <= now:
        return
    saved = Saved(
        state.sample,
        state.sample_at,
        state.clock_skew,
        state.queues,
        state.checkpoints,
        state.meter,
        state.limited,
    )
    con.execute(STATES.insert(), STATES.sealed((box, float(newest), _encode(saved))))


def recall(con: sqlite3.Connection, box: int, spec: BoxSpec, now: float) -> BoxState | None:
    """Return the last values of a box as those of an earlier rgt; None when there are none, or none we understand.

    Raises:
        Damaged: they are not what was written.
    """
    row = con.execute(STATES.select + " WHERE box = ?", (box,)).fetchone()
    if row is None:
        return None
    _, at, body, _ = checked("states", row)
    try:
        saved = _decode(body)
    except msgspec.MsgspecError:
        return None  # another version's idea of a sample; the box will tell it anew
    return BoxState(
        spec=spec,
        link=Link.CONNECTING,
        reason=f"not connected yet; values of {clock(at, now)} by an earlier rgt",
        since=now,
        sample=saved.sample,
        sample_at=saved.sample_at,
        clock_skew=saved.clock_skew,
        queues=saved.queues,
        checkpoints=saved.checkpoints,
        meter=saved.meter,
        limited=saved.limited,
        remembered_at=at,
    )


def clock(at: float, now: float) -> str:
    """Return a time as a person says it: ``14:02``, or with its date when that is another day."""
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
