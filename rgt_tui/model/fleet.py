"""The entire fleet, now and in its history, and the questions that only a person can answer."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.model.box import Alert, BoxState, ReducedHistory
from rgt_tui.model.plain import FrozenStruct
from rgt_tui.model.renting import AccountBill


class QuestionKind(enum.StrEnum):
    """The kind of question, which defines the valid answers."""

    HOST_KEY = "host-key"
    """Answer ``yes`` to accept and write it to known_hosts; anything else refuses."""
    # Apart from TEXT, because only the server knows whether an answer may be echoed.
    SECRET = "secret"
    """A password, a passphrase, a one-time code: never echoed, never stored."""
    TEXT = "text"
    """A keyboard-interactive prompt whose answer may be echoed."""


class BoxQuestion(FrozenStruct):
    """One question about one box."""

    # A number, because one box may ask the same question twice (two factors).
    id: int
    box: str
    kind: QuestionKind
    title: str
    """One line, e.g. ``password of root@1.2.3.4:40022``, without control sequences."""
    lines: tuple[str, ...] = ()
    """Background for the answer: fingerprint, key type, file to be written, the server's
    message."""


# Async, so that other boxes continue while a person thinks.
Ask = Callable[[BoxQuestion], Awaitable[str | None]]
"""Prompts a person and waits; None = refused, or no person can answer."""


class FleetEvent(FrozenStruct):
    """An event anywhere in the fleet, for the line above the keys."""

    at: float
    """Client clock."""
    box: str
    text: str
    level: str = "info"
    about: str = ""
    """Its subject, e.g. an alert's id: later events of the same box and subject continue it."""
    muted: bool = False
    """It is muted: only for the journal."""


class ScreenPosition(FrozenStruct, kw_only=True):
    """A position that a screen can be opened at; fields that are not set do not apply."""

    at: float | None = None
    """Client clock, epoch seconds."""
    log: str | None = None
    """Path of a log on the box."""
    line_no: int | None = None
    """Line of that log, counted from 1."""
    text: str | None = None
    """The line itself, if its number is unknown."""
    run: str | None = None
    step: int | None = None
    gotcha: str | None = None
    """A page of the handbook."""


class FleetSpend(FrozenStruct):
    """The fleet's costs per currency, while any rgt was watching."""

    today: tuple[tuple[str, float], ...] = ()
    """Since local midnight: (currency, amount)."""
    idle_today: tuple[tuple[str, float], ...] = ()
    """The part of `today` while no run was alive."""
    yesterday: tuple[tuple[str, float], ...] = ()
    """The previous local day."""
    month: tuple[tuple[str, float], ...] = ()
    """Since the first of this month, local time; today included."""
    # Flags by period: a lost hour of this week says nothing about yesterday.
    at_least: tuple[str, ...] = ()
    """Which of ``today``, ``yesterday`` and ``month`` are lower bounds: some hours of the history
    are lost, or part of the charges had no known price."""
    estimated: tuple[str, ...] = ()
    """Which of them contain an estimate (price × time) for unwatched hours without bookings."""


class FleetState(FrozenStruct):
    """All boxes, in the order of the fleet file, and the last events, oldest first."""

    boxes: tuple[BoxState, ...] = ()
    events: tuple[FleetEvent, ...] = ()
    at: float = 0.0
    # In every state as long as they are open, so a screen that starts late shows them, too.
    questions: tuple[BoxQuestion, ...] = ()
    """Open questions to a person, oldest first."""
    spend: FleetSpend | None = None
    """None = costs are not counted."""
    alerts: tuple[Alert, ...] = ()
    """Alerts that belong to no single box, such as an unreachable sink."""
    accounts: tuple[AccountBill, ...] = ()
    """Billed items of the fleet file's accounts that belong to no box; empty = not queried."""

    def find_box(self, name: str) -> BoxState | None:
        """Return the state of the box called `name`, or None."""
        # A list, because the order of the fleet file counts, and fleets are small.
        return next((box for box in self.boxes if box.spec.name == name), None)


class Happening(FrozenStruct):
    """An event in the history."""

    n: int
    """Its number: later events have higher numbers, even if the clock was set back."""
    at: float
    """Client clock, epoch seconds."""
    box: str
    text: str
    level: str = "info"
    about: str = ""
    """As in `rgt_tui.model.fleet.FleetEvent`; empty if an older rgt did not store it."""


class EventFilter(FrozenStruct, kw_only=True):
    """A filter of events."""

    box: str | None = None
    """None = all boxes."""
    errors: bool = False
    term: str = ""
    """Part of the text or of the box's name, ignoring case."""
    since: float | None = None
    until: float | None = None


class Happenings(FrozenStruct):
    """A page of events, oldest first."""

    rows: tuple[Happening, ...] = ()
    older: bool = False
    """There are more before these."""
    kept: int = 0
    """Number of all stored events of the fleet, ignoring the filter."""


class CostTally(FrozenStruct):
    """Total costs of one or several boxes up to some time, in one currency, while watched."""

    currency: str
    billed: float
    idle: float
    estimated: float = 0.0
    """The part of `billed` that is price × unwatched time."""


class UnwatchedSpan(FrozenStruct):
    """A time span without a watching rgt."""

    start: float
    stop: float


class NightFacts(FrozenStruct, kw_only=True):
    """The history's facts of a time span, for the morning report."""

    since: float
    until: float
    happened: tuple[Happening, ...] = ()
    counted_from: float | None = None
    """When the sums of `before` were stored, the nearest time before `since`; None = nothing was
    stored by then."""
    before: tuple[CostTally, ...] = ()
    after: tuple[CostTally, ...] = ()
    at_least: bool = False
    """The sums lack a price, or hours of the history are lost."""
    rests: tuple[UnwatchedSpan, ...] = ()
    """Unwatched time spans within."""


class Timeline(FrozenStruct):
    """The stored moments of a fleet, in the order in which they were stored."""

    ns: array[int] = msgspec.field(default_factory=lambda: array("q"))
    ats: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Client clock of each; not monotonic if the clock was set back."""


class FleetMoment(FleetState, frozen=True):
    """An earlier state of a fleet; a box without stored data has `Link.NOT_KEPT`."""

    recorded: dict[str, ReducedHistory] = {}
    """By box: history that its own recorder reported later for unwatched time up to this moment."""
