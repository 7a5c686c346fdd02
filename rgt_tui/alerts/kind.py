"""What a row of the table of alerts is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from rgt_tui.health.facts import Facts


class Reading(NamedTuple):
    """What a rule reads of one resource."""

    key: str
    """Which resource, e.g. a mount point; empty where a box has just one."""
    value: float | None
    """None or NaN = not known now: it neither raises nor clears."""
    about: Any = None
    """What the words are made of."""
    age_s: float | None = None
    """For how long it has been so by the box's own evidence. Only counted when it is seen for the first time:
    later the client counts itself, so that a clock that is set on the box changes nothing."""
    level: str | None = None
    """In place of the rung's."""
    word: str | None = None
    """In place of the kind's."""


class Rung(NamedTuple):
    """One level of an alert and its two limits: between them it stays as it is."""

    level: str
    at: float
    """Raised from here on."""
    clear: float
    """Still raised up to here."""


Read = Callable[[Facts], Sequence[Reading] | None]
"""All resources that the kind is about, or None where nothing can be said. What is left out is over."""
Say = Callable[[Facts, Reading, float], str]
"""One line with the reading that proves it; the number is the client clock of the beginning."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of alert: a row of the table."""

    id: str
    title: str
    word: str
    """What the box's row shows."""
    read: Read
    say: Say
    rungs: tuple[Rung, ...]
    """Mildest first."""
    unit: str
    """Of the limits; ``yes`` where it either is so or not."""
    advice: str
    """What to do, in one line."""
    see: str = ""
    """Ids of the handbook and of the lifecycle, for more."""
    hold_s: float = 0.0
    """Known seconds for which it must be so before it rises."""
    quiet_s: float = 0.0
    """Known seconds for which it must be over before it clears."""
    below: bool = False
    """True where small values are the bad ones."""
    rises: bool = False
    """The value is a count: raised when it grows, cleared when it has not grown for `quiet_s`."""
    live: bool = True
    """Needs figures of now: without them it stays as it is."""
    told: bool = False
    """The fleet's events tell of it anyway."""
    gauge: bool = False
    """Its number alone says whether it is so: as soon as that is good it is shown no more, while it is over for
    the sinks only after `quiet_s`."""
    over: str = ""
    """What ends, in words, where the title would sound as if it still held."""
    escalates: bool = False
    """Also as a warning it calls for a person."""
    once: bool = False
    """As a warning it does so once: it is about something that is over, and that nothing will change any more."""


YES = (Rung("warn", 1.0, 1.0),)
YES_ERROR = (Rung("error", 1.0, 1.0),)
"""Limits of what either is so or not."""
