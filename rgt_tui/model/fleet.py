"""The whole fleet, at one moment and in the past, and the questions that only a person can answer."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.model.box import Alert, BoxState, Past
from rgt_tui.model.renting import AccountBill


class QuestionKind(enum.StrEnum):
    """What is asked, and so what an answer may be."""

    HOST_KEY = "host-key"
    """Answer ``yes`` to accept and write it to known_hosts; anything else refuses."""
    SECRET = "secret"
    """A password, a passphrase, a one-time code: never echoed, never stored."""
    TEXT = "text"
    """A keyboard-interactive prompt whose answer may be echoed."""


class Question(msgspec.Struct, frozen=True):
    """One question about one box."""

    id: int
    box: str
    kind: QuestionKind
    title: str
    """One line, e.g. ``password of root@1.2.3.4:40022``; already stripped of control sequences."""
    lines: tuple[str, ...] = ()
    """What to know before answering: fingerprint, key type, where it will be written, the server's own words."""


Ask = Callable[[Question], Awaitable[str | None]]
"""Asks a person and waits; None = refused, or there is nobody to ask."""


class FleetEvent(msgspec.Struct, frozen=True):
    """Something that happened anywhere in the fleet, for the line above the keys."""

    at: float
    """Client clock."""
    box: str
    text: str
    level: str = "info"
    about: str = ""
    """What it is about, e.g. an alert's id: a later event of the same box about the same says how it went on."""
    muted: bool = False
    """Somebody wants to hear nothing of it: for the journal alone."""


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A place in what a box has told that a screen can be opened at; what is None is not part of it."""

    at: float | None = None
    """Client clock, epoch seconds."""
    log: str | None = None
    """Path of a log on the box."""
    line_no: int | None = None
    """Line of that log, counted from 1."""
    text: str | None = None
    """The line itself, where its number is not known."""
    run: str | None = None
    step: int | None = None
    gotcha: str | None = None
    """A page of the handbook."""


class Spend(msgspec.Struct, frozen=True):
    """What the fleet has cost, as far as some rgt saw it, per currency."""

    today: tuple[tuple[str, float], ...] = ()
    """Since local midnight: (currency, amount)."""
    idle_today: tuple[tuple[str, float], ...] = ()
    """Of that, while no run was alive."""
    yesterday: tuple[tuple[str, float], ...] = ()
    """From the local midnight before to the last one."""
    month: tuple[tuple[str, float], ...] = ()
    """Since the first of this month, local time; today included."""
    at_least: tuple[str, ...] = ()
    """Which of ``today``, ``yesterday`` and ``month`` are lower bounds: the history of some hours is lost, or a part
    of what was charged then had no known price."""
    estimated: tuple[str, ...] = ()
    """Which of them contain an estimate (price × time) of hours that nobody watched and no books tell of."""


class FleetState(msgspec.Struct, frozen=True):
    """All boxes, in the order of the fleet file, and the last events, oldest first."""

    boxes: tuple[BoxState, ...] = ()
    events: tuple[FleetEvent, ...] = ()
    at: float = 0.0
    questions: tuple[Question, ...] = ()
    """What waits for a person's answer, oldest first."""
    spend: Spend | None = None
    """None = nobody keeps count."""
    alerts: tuple[Alert, ...] = ()
    """What concerns no single box, such as a sink that cannot be reached."""
    accounts: tuple[AccountBill, ...] = ()
    """What the accounts of the fleet file are billed for that no box names; empty = nobody has looked."""

    def box(self, name: str) -> BoxState | None:
        """Return the state of the box called `name`."""
        return next((box for box in self.boxes if box.spec.name == name), None)


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
    estimated: float = 0.0
    """Of `billed`: price × time that nobody watched."""


class Rest(msgspec.Struct, frozen=True):
    """A stretch of time that nobody watched."""

    start: float
    stop: float


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """What the history knows of a stretch of time: the facts of the morning report."""

    since: float
    until: float
    happened: tuple[Happening, ...] = ()
    counted_from: float | None = None
    """When the sums of `before` were noted, the nearest time before `since`; None = nothing was kept by then."""
    before: tuple[Tally, ...] = ()
    after: tuple[Tally, ...] = ()
    at_least: bool = False
    """The sums lack a price, or hours of the history are lost."""
    rests: tuple[Rest, ...] = ()
    """Stretches within that nobody watched."""


class Timeline(msgspec.Struct, frozen=True):
    """The moments that were kept of a fleet, in the order in which they came."""

    ns: array[int] = msgspec.field(default_factory=lambda: array("q"))
    ats: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Client clock of each; it may go back where the clock was set back."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a fleet at a moment."""

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
