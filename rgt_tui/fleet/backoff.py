"""How long to wait before the next try, by what went wrong."""

from __future__ import annotations

import enum
import random
from typing import NamedTuple

from rgt_tui.model.box import Link


class Failure(enum.StrEnum):
    """What ended a try, or a connection."""

    UNREACHABLE = "unreachable"
    """No connection, or it was lost."""
    REFUSED_KEY = "host key refused"
    REFUSED_LOGIN = "login refused"
    AGENT_ENDED = "agent ended"
    """The connection stands, the agent does not."""
    NO_WAY_TO_READ = "no way to read it"
    """Neither the agent nor a plain shell can be used there."""
    OUR_FAULT = "fault of rgt"
    """What the box sent, or its state, was more than this program could handle."""


class Wait(NamedTuple):
    """Seconds before the next try."""

    first: float
    longest: float
    """Each wait is twice the one before, up to this."""


WAITS: dict[Failure, Wait] = {
    Failure.UNREACHABLE: Wait(1.0, 120.0),
    # More tries change nothing before a person does something, and trip the box's bans; `retry` does not wait.
    Failure.REFUSED_KEY: Wait(900.0, 900.0),
    Failure.REFUSED_LOGIN: Wait(900.0, 900.0),
    # Each try starts a program on the box.
    Failure.AGENT_ENDED: Wait(2.0, 120.0),
    Failure.NO_WAY_TO_READ: Wait(30.0, 120.0),
    Failure.OUR_FAULT: Wait(5.0, 120.0),
}

LINKS: dict[Failure, Link] = {
    Failure.REFUSED_KEY: Link.REFUSED_KEY,
    Failure.REFUSED_LOGIN: Link.REFUSED_LOGIN,
}
"""What a failure makes of the link; any other says no more than that the box cannot be reached."""

LIVED_SECONDS = 10.0
"""A connection that lived this long begins the count anew."""

_RNG = random.Random()


def link_of(failure: Failure) -> Link:
    """Return the word for the link after a failure."""
    return LINKS.get(failure, Link.UNREACHABLE)


class Backoff:
    """Counts the failures in a row. Each wait is drawn from its upper half, so that boxes do not come back in step."""

    __slots__ = ("_failures", "_rng")

    def __init__(self, rng: random.Random = _RNG) -> None:
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """Begin anew after a connection that lived."""
        self._failures = 0

    def wait(self, failure: Failure = Failure.UNREACHABLE) -> float:
        """Return the next waiting time in seconds."""
        first, longest = WAITS[failure]
        seconds = min(longest, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return seconds * self._rng.uniform(0.5, 1.0)
