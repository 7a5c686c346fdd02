"""What has happened since the person's last visit, newest first, and what idle boxes cost.

Repeated events are listed once, with a count.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rgt_tui.files import locked_file, replace_file, state_directory
from rgt_tui.language import translate
from rgt_tui.model import FleetEvent, FleetSpend, FleetState, FrozenStruct, MoneyAmount, format_sums
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_name,
    fit_text,
    make_line,
    wrap_text,
)

if TYPE_CHECKING:
    from textual.app import App

    from rgt_tui.fleet import FleetSource


MOST_ROWS = 3
"""Maximum rows per event if there are many events."""
FEW, WHOLE = 3, 12
"""Up to `FEW` events get `WHOLE` rows each."""
MOST_EVENTS = 200
"""Number of recent events that a fleet keeps. A list this long may lack earlier ones."""
AWAY_S = 600.0
MOST_BYTES = 1 << 20
VERSION = 1


def format_minute(at: float) -> str:
    """Return the local time of day, ``02:31``."""
    return time.strftime("%H:%M", time.localtime(at))


def format_when(at: float, now: float) -> str:
    """Return the time of day, with the weekday unless it is today: ``Sun 02:31``."""
    if day_of(at) == day_of(now):
        return format_minute(at)
    return time.strftime("%a %H:%M", time.localtime(at))


def group_events(events: Sequence[FleetEvent], since: float) -> list[tuple[FleetEvent, int]]:
    """Return the events since a time, newest first.

    Repeated ones of a box once, with their count.
    """
    found: dict[tuple[str, str], tuple[FleetEvent, int]] = {}
    for event in reversed(events):
        if event.at < since:
            break
        key = (event.box, event.text)
        newest, count = found.get(key, (event, 0))
        found[key] = (newest, count + 1)
    return list(found.values())


def complete_from(events: Sequence[FleetEvent], began: float) -> float:
    """Return the time from which the events of a fleet watched since `began` are complete."""
    if len(events) >= MOST_EVENTS:
        return max(began, events[0].at)
    return began


def since_section(
    events: Sequence[FleetEvent],
    look: UserActivity | None,
    began: float,
    width: int,
    now: float,
    *,
    journal: bool,
    height: int = 0,
) -> PaneSection:
    """Return the section of the pane.

    Args:
        events: Oldest first.
        look: The last activity before this visit; None = unknown.
        began: Client clock from which the events are complete.
        width: Inner width of the pane.
        now: Client clock.
        journal: Whether there is a journal to refer to.
        height: Available lines; if all events fit, nothing is cut.
    """
    if look is not None and look.at <= now:
        since, title = (
            look.at,
            translate("since your last visit, {at}", at=format_when(look.at, now)),
        )
    elif began <= now:
        since = began
        title = translate("since {at}", at=format_when(began, now))
    else:
        # The clock was set back, so that no time is certain.
        since, title = -math.inf, translate("what happened")
    found = group_events(events, since)
    widest_name = 14
    name = min(widest_name, max((len(event.box) for event, _ in found), default=0))

    def draw_events(most: int) -> list[Line]:
        return [
            row
            for event, count in found
            for row in _event_rows(event, count, format_minute(event.at), name, width, most)
        ]

    body = draw_events(WHOLE)
    if len(found) > FEW and len(body) > height:
        body = draw_events(MOST_ROWS)
    if not body:
        body.append(make_line(dim_span(translate("nothing has happened"))))
    if since < began <= now:
        where = ""
        if journal:
            where = translate(": {key} shows them", key=key_for("past.journal"))
        body += wrap_text(
            translate(
                "events before {began} are not kept here{where}",
                began=format_when(began, now),
                where=where,
            ),
            max(8, width),
            Tone.DIM,
        )
    key_hint = EMPTY
    if journal:
        key_hint = make_line(dim_span(key_for("past.journal")))
    return PaneSection(make_line(title), body, key_hint)


def story_section(
    events: Sequence[FleetEvent], box: str, width: int, height: int, now: float
) -> PaneSection:
    """Return the events of one box, newest first, as many as fit; older ones with their day."""
    found = group_events(events, -math.inf)
    times = max((len(format_when(event.at, now)) for event, _ in found), default=0)
    body: list[Line] = []
    for event, count in found:
        if len(body) >= height:
            break
        body += _event_rows(
            event,
            count,
            fit_text(format_when(event.at, now), times, right=True),
            0,
            width,
            MOST_ROWS,
        )
    title = make_line(Span(box), dim_span(translate("  what happened")))
    return PaneSection(
        title,
        body or [make_line(dim_span(translate("nothing has happened")))],
        make_line(dim_span(key_for("past.journal"))),
    )


def idle_foot(state: FleetState, look: UserActivity | None, now: float) -> Line:
    """Return what idle boxes have cost since then; empty if it is not counted."""
    if look is None or look.at > now:
        told = None
    else:
        told = idle_since(look, state.spend, now)
    if told is None or not told[0]:
        return EMPTY
    amounts, midnight = told
    if midnight:
        said = translate("idle since midnight")
    else:
        said = translate("idle since then")
    return make_line(
        dim_span(f"{said} "), Span(make_displayable(format_sums(amounts, none="?")), Tone.WARN)
    )


def _event_rows(
    event: FleetEvent, count: int, stamp: str, name: int, width: int, most: int
) -> list[Line]:
    """Draw an event in at most `most` lines; with `name` = 0 the box is not named."""
    g = current_glyphs()
    tone = level_tone(event.level)
    mark = {"error": g.trouble, "warn": g.warn}.get(event.level, g.unknown)
    again = ""
    if count > 1:
        again = f" {g.times}{count}"
    named = (Span(fit_name(event.box, name), Tone.STRONG), " ") if name else ()
    head = make_line(dim_span(f"{stamp} "), Span(mark, tone), " ", *named)
    below = len(stamp) + 1
    indent = below + 2 + (name + 1 if name else 0)
    beside = width - indent
    if beside < 16:  # too narrow: put the text below the name
        rows = wrap_text(event.text + again, max(8, width - below), tone, most=most)
        return [head, *(make_line(" " * below, *row) for row in rows)]
    first, *rest = wrap_text(event.text + again, beside, tone, most=most)
    return [make_line(*head, *first), *(make_line(" " * indent, *row) for row in rest)]


# The person's last activity, saved across restarts, so that a screen can show what happened since.
#
# A key, a click, a paste and a terminal focus count as activity. Activities less than `AWAY_S`
# apart form one visit. The reference is the end of the previous visit: in the morning the screen
# shows the events of the night, for the whole visit.
#
# ``$XDG_STATE_HOME/rgt/looked.json`` stores the visits by the title of the fleet.


class UserActivity(FrozenStruct):
    """One activity of the person."""

    at: float
    """Client clock."""
    day: str = ""
    """Local day, ``2026-11-22``."""
    idle: tuple[tuple[str, float], ...] | None = None
    """Amounts spent on idle boxes that day until then: (currency, amount); None = not counted."""


class UserVisits(FrozenStruct):
    """The last activity of this visit and of the previous one."""

    last: UserActivity | None = None
    before: UserActivity | None = None

    def add_activity(self, look: UserActivity) -> UserVisits:
        """Return the visits after another activity."""
        if self.last is None or self.is_visit_over(look.at):
            return UserVisits(look, self.last)
        return UserVisits(look, self.before)

    def is_visit_over(self, now: float) -> bool:
        """Return whether the visit of the last activity is over."""
        return self.last is not None and now - self.last.at >= AWAY_S

    def new_since(self, now: float) -> UserActivity | None:
        """Return the activity since which events are new to the person; None = no earlier visit."""
        if self.is_visit_over(now):
            return self.last
        return self.before


class VisitsFile(FrozenStruct):
    """The contents of the file."""

    version: int = VERSION
    fleets: dict[str, UserVisits] = {}


def visits_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file with the visits."""
    return state_directory(env) / "looked.json"


def read_visits(path: Path) -> VisitsFile:
    """Return the saved visits; a missing, damaged or newer file counts as none."""
    try:
        with path.open("rb") as file:
            known = msgspec.json.decode(file.read(MOST_BYTES), type=VisitsFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return VisitsFile()
    if known.version == VERSION:
        return known
    return VisitsFile()


def write_visits(path: Path, fleet: str, visits: UserVisits) -> None:
    """Write the visits of one fleet, keeping those of the others. Blocks briefly.

    Raises:
        OSError: It cannot be written.
    """
    with locked_file(path):
        fleets = {**read_visits(path).fleets, fleet: visits}
        newest = sorted(fleets, key=lambda name: last.at if (last := fleets[name].last) else 0.0)
        most_fleets = 100
        replace_file(
            path,
            msgspec.json.encode(
                VisitsFile(fleets={name: fleets[name] for name in newest[-most_fleets:]})
            ),
        )


def day_of(at: float) -> str:
    """Return the local day of a time."""
    return time.strftime("%Y-%m-%d", time.localtime(at))


def idle_since(
    look: UserActivity, spend: FleetSpend | None, now: float
) -> tuple[Sequence[MoneyAmount], bool] | None:
    """Return what idle boxes have cost since an activity, and whether only from midnight on.

    None if the cost is not counted, or was not counted at that activity.
    """
    if spend is None:
        return None
    then: dict[str, float] = {}
    today = look.day == day_of(now)
    if today:
        if look.idle is None:
            return None
        then = dict(look.idle)
    least = "today" in spend.at_least or not today
    sums = ((amount - then.get(currency, 0.0), currency) for currency, amount in spend.idle_today)
    return [
        MoneyAmount(amount, currency, least) for amount, currency in sums if amount > 0.0
    ], not today


class LastActivity:
    """The activity of the person who uses this app.

    Args:
        app: The app; its title is the name of the fleet.
        path: The file.
    """

    def __init__(self, app: App[Any], path: Path) -> None:
        self._app = app
        self._path = path
        self._fleet: FleetSource | None = None
        self._visits = UserVisits()
        self._kept_at = 0.0

    async def load_visits(self, fleet: FleetSource) -> None:
        """Read the earlier visits, and count the start of rgt as activity.

        Recordings are not counted.
        """
        if fleet.plays_back:
            return
        known = await asyncio.to_thread(read_visits, self._path)
        self._visits = known.fleets.get(self._app.title, UserVisits())
        self._fleet = fleet
        self.record_activity()

    def since(self, now: float) -> UserActivity | None:
        """Return the activity since which events are new; None = unknown."""
        return self._visits.new_since(now)

    @property
    def away_since(self) -> float | None:
        """Client clock of that activity."""
        if self._fleet is None:
            found = None
        else:
            found = self.since(self._fleet.now())
        if found is None:
            return None
        return found.at

    def record_activity(self) -> None:
        """Record that the person is active now."""
        if self._fleet is None:
            return
        now, spend = self._fleet.now(), self._fleet.state.spend
        back = self._visits.is_visit_over(now)
        if spend is None:
            idle = None
        else:
            idle = spend.idle_today
        self._visits = self._visits.add_activity(UserActivity(now, day_of(now), idle))
        save_s = 60.0
        # Every key is an activity, and is not worth a write of its own.
        if back or not 0 <= now - self._kept_at < save_s:
            self._kept_at = now
            self._app.run_worker(
                self.save_visits(),
                group="looked",
                exit_on_error=False,
                description="save the visit",
            )

    async def save_visits(self) -> None:
        """Save the visits. A failure only means that the next rgt does not know of this visit."""
        if self._visits.last is not None:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(write_visits, self._path, self._app.title, self._visits)
