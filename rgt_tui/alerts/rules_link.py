"""What the connection and the provider say of the machine: unreachable, refused, stopped, gone, clocks apart."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.alerts.kind import Reading
from rgt_tui.health.facts import LOST_S, Facts
from rgt_tui.model.box import Link
from rgt_tui.model.money import Lifecycle
from rgt_tui.profiles.readings import age

NOTHING: tuple[Reading, ...] = ()
YES = (Reading("", 1.0),)


def read_unreachable(view: Facts) -> Sequence[Reading] | None:
    """The box does not answer. While a try goes on, nothing is known."""
    link = view.box.link
    if link is Link.LIVE or view.off:
        return NOTHING
    if link is Link.UNREACHABLE:
        return (Reading("", 1.0, age_s=max(0.0, view.now - view.box.since)),)
    return None if link in (Link.CONNECTING, Link.ASKING) else NOTHING


def say_unreachable(view: Facts, reading: Reading, since: float) -> str:
    """Name the reason, and what the provider says: a refused connection proves nothing of the machine."""
    box = view.box
    says = f"; {box.meter.source} says {box.meter.lifecycle.value}" if box.meter.at is not None else ""
    return f"unreachable for {age(view.now - since)}: {box.reason}{says}"


def read_silent(view: Facts) -> Sequence[Reading] | None:
    """The connection stands, and no sample comes. Once it is lost, that it is lost is told instead."""
    box = view.box
    if view.off or box.link in (Link.PAUSED, Link.REFUSED_KEY, Link.REFUSED_LOGIN):
        return NOTHING
    if box.link is not Link.LIVE:
        lost = box.link is Link.UNREACHABLE and view.now - box.since >= LOST_S
        return NOTHING if lost else None
    # The age of the sample does not count: after a night's sleep of this computer every sample is old for a moment.
    return YES if view.stale else NOTHING


def say_silent(view: Facts, reading: Reading, since: float) -> str:
    """Say how old the newest sample is."""
    if view.sample_age is None:
        return "connected, and no sample has come yet: the agent hangs, or its recorder does"
    return (
        f"connected, and no sample for {age(view.sample_age)}: the agent, its recorder or the machine hangs"
    )


def read_asking(view: Facts) -> Sequence[Reading] | None:
    """A question waits for a person: until it is answered, nobody watches the box."""
    if view.box.link is not Link.ASKING:
        return NOTHING
    return (Reading("", 1.0, age_s=max(0.0, view.now - view.box.since)),)


def say_asking(view: Facts, reading: Reading, since: float) -> str:
    """Give the question."""
    return f"nobody watches it until you answer: {view.box.reason}"


def read_host_key(view: Facts) -> Sequence[Reading] | None:
    """The box shows another key than the one known."""
    return YES if view.box.link is Link.REFUSED_KEY else NOTHING


def say_host_key(view: Facts, reading: Reading, since: float) -> str:
    """Give the refusal's own words."""
    return f"host key refused: {view.box.reason}"


def read_login(view: Facts) -> Sequence[Reading] | None:
    """The box answers and does not let us in."""
    return YES if view.box.link is Link.REFUSED_LOGIN else NOTHING


def say_login(view: Facts, reading: Reading, since: float) -> str:
    """Give the refusal's own words."""
    return f"login refused: {view.box.reason}"


def read_stopped(view: Facts) -> Sequence[Reading] | None:
    """The provider calls it stopped, it ran before, and nobody asked for it through rgt."""
    if view.meter_unread:
        return None
    past = view.memory.past
    stopped = view.off and view.box.meter.lifecycle is Lifecycle.STOPPED
    return YES if stopped and past.ran and not past.asked else NOTHING


def say_stopped(view: Facts, reading: Reading, since: float) -> str:
    """Name who says so."""
    meter = view.box.meter
    native = f" ({meter.native_status})" if meter.native_status else ""
    return f"{meter.source} says stopped{native}, and it was not asked for here"


def read_gone(view: Facts) -> Sequence[Reading] | None:
    """The provider does not know it any more, and nobody destroyed it through rgt."""
    if view.meter_unread:
        return None
    past = view.memory.past
    gone = view.off and view.box.meter.lifecycle is Lifecycle.GONE
    return YES if gone and past.existed and past.asked != "destroy" else NOTHING


def say_gone(view: Facts, reading: Reading, since: float) -> str:
    """Name who says so."""
    meter = view.box.meter
    native = f" ({meter.native_status})" if meter.native_status else ""
    return f"{meter.source} says gone{native}, and it was not destroyed from here"


def read_skew(view: Facts) -> Sequence[Reading] | None:
    """The box's clock and ours are apart."""
    skew = view.box.clock_skew
    return None if skew is None else (Reading("", abs(skew), skew),)


def say_skew(view: Facts, reading: Reading, since: float) -> str:
    """Say which is ahead."""
    skew: float = reading.about
    return f"the box's clock is {age(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's"


def read_stream(view: Facts) -> Sequence[Reading] | None:
    """Lines that are no frames, and numbers that never came, since rgt was started."""
    counters = view.box.counters
    return (Reading("", float(counters.bad_frames + counters.gaps), counters),)


def say_stream(view: Facts, reading: Reading, since: float) -> str:
    """Say how many of which."""
    counters = reading.about if reading.about is not None else view.box.counters
    return f"the agent's stream is damaged: {counters.bad_frames:,} bad frames, {counters.gaps:,} missing"
