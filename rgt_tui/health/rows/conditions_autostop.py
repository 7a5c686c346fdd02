"""Conditions of autostop: about to stop, failed to, cannot tell, unwatched, disarmed, off as planned."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.health.autostop_words import clock_words, may_have_parked, of_box, off_words, told_words
from rgt_tui.health.condition import NOTHING, SO, Reading
from rgt_tui.health.facts import Facts
from rgt_tui.model import AutostopReading, Lifecycle, Mode
from rgt_tui.profiles import age, listed

KEPT_H = 2
"""Hours by which the advice puts a stop off."""
DISARMED = "autostop-disarmed"
"""Kind of the event with which a box says that it is no longer armed."""
SILENT_S = 30.0
"""A recorder that was just told to watch has a sample ready by then."""


def _in_state(view: Facts, state: str) -> Sequence[Reading]:
    return tuple(Reading(one.mode, 1.0, one) for one in of_box(view.box) if one.state == state)


def read_warned(view: Facts) -> Sequence[Reading]:
    """The box has warned that it stops soon."""
    return _in_state(view, "warned")


def say_clock(view: Facts, reading: Reading, since: float) -> str:
    """Say when, and how it is put off."""
    found: AutostopReading = reading.about
    return f"{clock_words(found)}: rgt keep {view.box.spec.name} {KEPT_H}h"


def read_failed_stop(view: Facts) -> Sequence[Reading]:
    """It tried to stop itself, and could not."""
    return _in_state(view, "failed")


def say_failed_stop(view: Facts, reading: Reading, since: float) -> str:
    """Say what it said of it last."""
    words = next((event.text for event in reversed(view.box.events) if event.kind == "autostop-failed"), "")
    return f"it could not park itself, and keeps billing{f': {words}' if words else ''}"


def read_unknown_idle(view: Facts) -> Sequence[Reading]:
    """For longer than the limit it could not be told whether the box is idle: it will not stop, however idle it is."""
    found = view.box.sample.autostop if view.box.sample is not None and of_box(view.box) else None
    if found is None or found.unknown_s is None or found.limit_s is None:
        return NOTHING
    return (Reading("", found.unknown_s / max(found.limit_s, 1.0), found),)


def say_unknown_idle(view: Facts, reading: Reading, since: float) -> str:
    """Say for how long, and what cannot be read."""
    found: AutostopReading = reading.about
    why = f": {found.why[0]}" if found.why else ""
    return f"for {age(found.unknown_s)} it has not been known whether it is idle, so it will not stop itself{why}"


def read_unwatched(view: Facts) -> Sequence[Reading] | None:
    """It was armed for this boot, and its samples say nothing of that: no recorder watches over it."""
    known, hello = view.box.self_stop, view.box.hello
    if known is None or hello is None or known.told_at is not None:
        return NOTHING
    here = any(one.boot == hello.boot for one in known.armed)
    if not here or of_box(view.box) or _disarmed_here(view):
        return NOTHING
    return SO


def say_unwatched(view: Facts, reading: Reading, since: float) -> str:
    """Say what that means."""
    return "armed from here, and no recorder on it says so: it will not stop itself"


def _disarmed_here(view: Facts) -> bool:
    known, hello = view.box.self_stop, view.box.hello
    if known is None or hello is None:
        return False
    since = max((one.at for one in known.armed), default=0.0) + (view.box.clock_skew or 0.0)
    return any(
        event.kind == DISARMED and event.boot == hello.boot and event.at >= since for event in view.box.events
    )


def read_disarmed(view: Facts) -> Sequence[Reading]:
    """It was armed, and is so no more: started again since, or taken back elsewhere."""
    known, hello = view.box.self_stop, view.box.hello
    if known is None or not known.armed or hello is None or of_box(view.box):
        return NOTHING
    again = all(one.boot != hello.boot for one in known.armed)
    return SO if again or _disarmed_here(view) else NOTHING


def say_disarmed(view: Facts, reading: Reading, since: float) -> str:
    """Say why, and what it did before."""
    known = view.box.self_stop
    if known is not None and known.told_at is not None:
        return f"no longer armed, since it was started again; {told_words(known)}"
    words = next((event.text for event in reversed(view.box.events) if event.kind == DISARMED), "")
    return f"no longer armed{f': {words}' if words else ', since it was started again'}"


def read_lease_unsaving(view: Facts) -> Sequence[Reading]:
    """Its lease will hit runs that are not known to save on SIGTERM, and that nobody has accepted."""
    for found in of_box(view.box):
        if found.mode == Mode.LEASE and found.unsaving:
            return (Reading("", float(len(found.unsaving)), found),)
    return NOTHING


def say_lease_unsaving(view: Facts, reading: Reading, since: float) -> str:
    """Name them, and say when it ends."""
    found: AutostopReading = reading.about
    names = listed(list(found.unsaving))
    return f"{clock_words(found)}, and will not end what is not known to save: {names}"


def read_parked_itself(view: Facts) -> Sequence[Reading] | None:
    """It was armed to park itself, and its provider says that it is off."""
    known = view.box.self_stop
    if known is None or known.off_at is None or known.told_at is not None:
        return NOTHING
    if view.meter_unread:
        return None
    off = view.off and view.box.meter.lifecycle is Lifecycle.STOPPED
    return SO if off and may_have_parked(known) else NOTHING


def say_parked_itself(view: Facts, reading: Reading, since: float) -> str:
    """Say since when, and as what it was armed."""
    known = view.box.self_stop
    return "" if known is None else off_words(known, view.box.meter.source)
