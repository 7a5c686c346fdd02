"""What was kept of a fleet: what happened on it, and how it stood at any moment of its past."""

from __future__ import annotations

from array import array

import msgspec

from rgt_tui.model.alert import Alert
from rgt_tui.model.box import BoxState, Past
from rgt_tui.model.fleet import Spend
from rgt_tui.model.renting import AccountBill


class Happening(msgspec.Struct, frozen=True):
    """An event as the history has it."""

    n: int
    """Its place: later ones have higher numbers, whatever the clock did meanwhile."""
    at: float
    """Client clock, epoch seconds."""
    box: str
    text: str
    level: str = "info"
    about: str = ""
    """As `rgt_tui.model.fleet.FleetEvent`; empty where an older rgt did not keep it."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are asked for."""

    box: str | None = None
    """None = of all boxes."""
    errors: bool = False
    term: str = ""
    """Part of the text or of the box's name, in any case."""
    since: float | None = None
    until: float | None = None


class Happenings(msgspec.Struct, frozen=True):
    """A page of events, oldest first."""

    rows: tuple[Happening, ...] = ()
    older: bool = False
    """There are more before these."""
    kept: int = 0
    """Of the fleet, whatever was asked for."""


class Tally(msgspec.Struct, frozen=True):
    """What a box, or several, had cost in all by some time, in one currency, as far as it was seen."""

    currency: str
    billed: float
    idle: float


class Rest(msgspec.Struct, frozen=True):
    """A time that nobody watched."""

    start: float
    stop: float


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """What the history knows of a stretch of time: the facts of the morning report."""

    since: float
    until: float
    happened: tuple[Happening, ...] = ()
    counted_from: float | None = None
    """When the sums of `before` were noted, the nearest time before `since`; None = nothing was kept by then."""
    counted_to: float | None = None
    before: tuple[Tally, ...] = ()
    after: tuple[Tally, ...] = ()
    at_least: bool = False
    """The sums lack a price, or hours of the history are lost."""
    rests: tuple[Rest, ...] = ()
    """Stretches within that nobody watched."""
    watched: bool = False
    """Anything at all was kept of this time."""


class Timeline(msgspec.Struct, frozen=True):
    """The moments that were kept of a fleet, in the order in which they came."""

    ns: array[int] = msgspec.field(default_factory=lambda: array("q"))
    ats: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Client clock of each; it may go back where the clock was set back."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """How a fleet stood at a moment."""

    at: float
    boxes: tuple[BoxState, ...] = ()
    """In the order of the fleet file; one of which nothing was kept then has `Link.NOT_KEPT`."""
    recorded: dict[str, Past] = {}
    """By box: what its own recorder told later of the time up to this moment, which nobody watched."""
    spend: Spend | None = None
    alerts: tuple[Alert, ...] = ()
    accounts: tuple[AccountBill, ...] = ()
    events: tuple[Happening, ...] = ()
    """The last ones by then, oldest first."""
