"""An earlier moment as a read-only fleet: the same screens, fed with recorded states."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rgt_tui.fleet.alerting import FleetAlerting
from rgt_tui.fleet.engine import BaseFleet
from rgt_tui.fleet.fleet_source import Chronicle, FleetObserver, FleetSource, ReadOnlyFleet
from rgt_tui.fleet.history.past import merge_history
from rgt_tui.fleet.history.spoken_times import night_or_day
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    EventFilter,
    FleetMoment,
    Happening,
    LinkState,
    Profile,
    ReducedHistory,
    Timeline,
    format_duration,
    pct,
)
from rgt_tui.profiles import ProfileError, is_of_card, load_profile
from rgt_tui.store import MOST_EVENTS, SNAPSHOT

SOON = 90.0
"""An event is displayed with the moment recorded with it, or one at most this much later."""
ALL_FULL = 8
"""Up to this many boxes, all curves and logs are read at once; beyond, only the focused box's."""
FIGURES = {"util": "gpu", "vram": "vram", "cgroup": "memory"}


class MomentPosition(NamedTuple):
    """A position in the history."""

    tick: int
    """Index in the `Timeline` of the last moment recorded by then."""
    at: float
    """Client clock; later than that moment if rgt was not watching."""


def place_of(line: Timeline, at: float) -> MomentPosition | None:
    """Return the position of a time; None = nothing was recorded by then.

    If the clock was set back, so that a time occurred twice, the later occurrence is returned,
    unless only the first was watched.
    """
    ats = line.ats
    found = [
        index
        for index in range(len(ats))
        if ats[index] <= at and (index + 1 == len(ats) or ats[index + 1] > at)
    ]
    watched = [index for index in found if at - ats[index] <= SNAPSHOT.near_s]
    if found:
        return _nearest_position(line, (watched or found)[-1], at)
    return None


def place_of_event(line: Timeline, at: float) -> MomentPosition | None:
    """Return the position of an event: the moment recorded with it, or the next one soon after."""
    soon = [index for index, then in enumerate(line.ats) if 0.0 <= then - at <= SOON]
    if not soon:
        return place_of(line, at)
    index = min(soon, key=line.ats.__getitem__)
    return MomentPosition(index, line.ats[index])


def _nearest_position(line: Timeline, index: int, at: float) -> MomentPosition:
    """Return the time of the moment itself if it is near `at`, otherwise `at`."""
    return MomentPosition(index, line.ats[index] if at - line.ats[index] <= SNAPSHOT.near_s else at)


def minute_from(line: Timeline, here: MomentPosition, direction: int) -> MomentPosition | None:
    """Return the position a minute later or earlier, in recording order; None = at the end."""
    ats, index, at = line.ats, here.tick, here.at
    minute = 60.0
    # Moments closer together than this are skipped by one step of a minute.
    step = 55.0
    if direction > 0:
        after = index + 1
        while after < len(ats) and at <= ats[after] < at + step:
            after += 1
        if after >= len(ats):
            return None
        if ats[after] - at > SNAPSHOT.near_s:
            return MomentPosition(after - 1, at + minute)  # rgt was not watching
        return MomentPosition(after, ats[after])
    if at - minute > ats[index] + SNAPSHOT.near_s:
        return MomentPosition(index, at - minute)
    if at > ats[index]:
        return MomentPosition(index, ats[index])
    before = index - 1
    while before >= 0 and at - step < ats[before] <= at:
        before -= 1
    if before < 0:
        return None
    if at - ats[before] > SNAPSHOT.near_s:
        return MomentPosition(before, at - minute)
    return MomentPosition(before, ats[before])


def event_from(rows: Sequence[Happening], at: float, direction: int) -> Happening | None:
    """Return the next or previous event by the clock; None = no such event."""
    if direction > 0:
        return min(
            (row for row in rows if row.at > at + 1e-3), key=lambda row: row.at, default=None
        )
    return max((row for row in rows if row.at < at - 1e-3), key=lambda row: row.at, default=None)


GENERIC = "generic-ssh"


def profile_of(spec: BoxSpec) -> Profile:
    """Return the profile of a box; the generic one if it exists only on another computer."""
    try:
        return load_profile(spec.profile)
    except ProfileError:
        return load_profile(GENERIC)


class RecordedFleet(ReadOnlyFleet, BaseFleet):
    """A recording, or an earlier moment of a fleet.

    Args:
        clock: The time shown (epoch seconds).
        observers: Notified of every state that is played; closed by `stop`.
    """

    def __init__(self, clock: Callable[[], float], observers: Sequence[FleetObserver] = ()) -> None:
        super().__init__({}, clock, FleetAlerting(clock=clock), observers)

    def profile_of(self, box: str) -> Profile:
        """Return the profile of a box, including boxes that have left the fleet."""
        found = self.state.find_box(box)
        if found is None:
            return load_profile(GENERIC)
        return profile_of(found.spec)


class MomentFleet(RecordedFleet):
    """A fleet at a moment of its history.

    Args:
        live: The live fleet.
        chronicle: Its recorded history.
        refused: Called with the reason when an attempt to change something is refused.
    """

    shown_moment: float = 0.0
    """Client clock of the displayed moment."""

    def __init__(
        self, live: FleetSource, chronicle: Chronicle, refused: Callable[[str], None]
    ) -> None:
        self.line = Timeline()
        self.events: tuple[Happening, ...] = ()
        """All recorded events."""
        self.place: MomentPosition | None = None
        self.shown_moment = live.now()
        super().__init__(lambda: self.shown_moment)
        self._past = chronicle
        self._live = live
        self._refused = refused
        self._focus: str | None = None
        self._loading: asyncio.Task[None] | None = None

    # Navigation.

    async def load_history(self) -> None:
        """Read the timeline and the events.

        Raises:
            Exception: the history cannot be read; the message says why.
        """
        self.line = await self._past.read_timeline()
        self.events = (await self._past.read_event_page(EventFilter(), None, MOST_EVENTS)).rows

    async def show_position(self, place: MomentPosition) -> None:
        """Display a position.

        Raises:
            Exception: the history cannot be read; the message says why.
        """
        found = await self._past.read_moment(
            self.line.ns[place.tick], place.at, self._names_read_fully()
        )
        self.place, self.shown_moment = place, place.at
        self._show_moment(found)

    def _names_read_fully(self) -> frozenset[str]:
        names = [box.spec.name for box in self._live.state.boxes]
        focus = () if self._focus is None else (self._focus,)
        if len(names) <= ALL_FULL:
            return frozenset((*names, *focus))
        return frozenset(focus)

    def _show_moment(self, found: FleetMoment) -> None:
        boxes = tuple(
            _explained(box, found.recorded.get(box.spec.name), found.at) for box in found.boxes
        )
        self._publisher.state = msgspec.structs.replace(found, boxes=boxes)
        self._publisher.notify_subscribers()

    @property
    def moment_text(self) -> str:
        """The moment as text: ``02:31:07 last night, 4h39 ago``."""
        now = self._live.now()
        clock = time.strftime("%H:%M:%S", time.localtime(self.shown_moment))
        return translate(
            "{clock} {day}, {age} ago",
            clock=clock,
            day=night_or_day(self.shown_moment, now),
            age=format_duration(now - self.shown_moment),
        )

    @property
    def audit_file(self) -> Path | None:
        """The audit log of the live fleet."""
        return self._live.audit_file

    # The interface of a fleet.

    @property
    def chronicle(self) -> Chronicle | None:
        """The recorded history of the fleet."""
        return self._past

    def focus_box(self, box: str | None) -> None:
        """Set the focused box; in a large fleet, also read its curves and logs."""
        self._focus = box
        if box is not None and self.place is not None and len(self._live.state.boxes) > ALL_FULL:
            self._loading = asyncio.get_running_loop().create_task(self._reload_position())

    async def _reload_position(self) -> None:
        if self.place is not None:
            await self.show_position(self.place)

    @property
    def why_nothing(self) -> str:
        """Why nothing can be changed here, and what to do instead."""
        return translate(
            "this is {moment_text}: the past is read-only; esc goes back to now",
            moment_text=self.moment_text,
        )

    def notify_refusal(self) -> None:
        """Report why nothing can be changed."""
        self._refused(self.why_nothing)

    async def start(self) -> None:
        """Do nothing: there is no box to connect to."""


def _explained(box: BoxState, recorded: ReducedHistory | None, at: float) -> BoxState:
    """Add to a box the values that its own recorder reported later for unwatched time.

    They are marked as the recorder's.
    """
    if recorded is None:
        return box
    box = msgspec.structs.replace(box, past=merge_history(box.past, recorded.until(at)))
    if box.link is not LinkState.NOT_KEPT:
        return box
    told = describe_recorded(recorded, at)
    if not told:
        return box
    return msgspec.structs.replace(
        box, reason=translate("{reason}; its own recorder: {told}", reason=box.reason, told=told)
    )


def describe_recorded(past: ReducedHistory, at: float) -> str:
    """Return the recorder's means for the time slot that contains `at` as text; empty = none."""
    for end, values in zip(past.at, past.values, strict=True):
        if end - past.width < at <= end:
            found = [
                f"{FIGURES.get(name, name.replace(':', ' '))} {pct(value)}"
                for name, value in zip(past.names, values, strict=False)
                if value is not None and math.isfinite(value) and not is_of_card(name)
            ]
            if found:
                return translate(
                    "{found} (mean of {width})",
                    found=", ".join(found),
                    width=format_duration(past.width),
                )
            return ""
    return ""
