"""Read a fleet's history: events, the facts of a night, and the state of every box at a moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

import msgspec

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    CostTally,
    EventFilter,
    FleetEvent,
    FleetMoment,
    Happenings,
    LinkState,
    NightFacts,
    ReducedHistory,
    RunState,
    Series,
    Timeline,
)
from rgt_tui.store import database, happenings, minute_means, moments, saved_curves, spending

UNWATCHED = "not kept: nobody watched then"
DAMAGED = "not kept: what was written of this minute is damaged"

_replace = msgspec.structs.replace


class HistoryReader:
    """Answers queries about the history; valid only while the file is in use.

    Args:
        con: The file.
        fleet: Identifies the fleet.
        names: Number of every box that it ever had → its name.
        specs: Its present boxes.
    """

    def __init__(
        self,
        con: sqlite3.Connection,
        fleet: str,
        names: Mapping[int, str],
        specs: Mapping[str, BoxSpec],
    ) -> None:
        self._con = con
        self._fleet = fleet
        self._names = names
        self._specs = specs

    def read_event_page(self, wanted: EventFilter, before: int | None, count: int) -> Happenings:
        """Return the last `count` wanted events numbered below `before`; None = no upper bound."""
        whole = database.fleet_number(self._con, self._fleet)
        if whole is None:
            names = self._names
        else:
            names = {**self._names, whole: ""}
        return happenings.read_event_page(self._con, names, wanted, before, count)

    def read_timeline(self) -> Timeline:
        """Return all recorded moments."""
        return moments.read_timeline(self._con, self._fleet)

    def read_night(self, since: float, until: float, box: str | None) -> NightFacts:
        """Return the facts of a time span, of one box or of all."""
        line = self.read_timeline()
        # A box that was rented again has several numbers under one name.
        numbers = [number for number, name in self._names.items() if box in (None, name)]
        first = last = None
        for n, at in zip(line.ns, line.ats, strict=True):
            # The last moment before the span, or else the first one within it.
            if at <= since or (first is None and at <= until):
                first = (n, at)
            if at <= until:
                last = n
        before: Mapping[str, CostTally] = {}
        after: Mapping[str, CostTally] = {}
        if first is not None and last is not None:
            before = moments.tallies_at(self._con, numbers, first[0])
            after = moments.tallies_at(self._con, numbers, last)
        return NightFacts(
            since=since,
            until=until,
            happened=self.read_event_page(
                EventFilter(box=box, since=since, until=until), None, happenings.MOST_EVENTS
            ).rows,
            counted_from=None if first is None else first[1],
            before=tuple(before.values()),
            after=tuple(after.values()),
            at_least=spending.is_bounded(self._con, numbers, since, until),
            rests=moments.unwatched_spans(line.ats, since, until),
        )

    def read_moment(self, n: int, at: float, full: Collection[str]) -> FleetMoment:
        """Return the state of the fleet at a moment.

        Args:
            n: Number of the last moment recorded by then.
            at: Client clock; later than that moment if rgt was not watching.
            full: Boxes whose curves, logs and hourly history are included.
        """
        tick = moments.tick_at(self._con, n)
        kept_at = at if tick is None else tick[0]
        # A moment long ago says nothing about this one: no rgt watched then.
        watched = tick is not None and at - kept_at <= moments.SNAPSHOT.near_s
        boxes: list[BoxState] = []
        recorded: dict[str, ReducedHistory] = {}
        recorded_seconds = 86400.0
        for name, spec, numbers in self._list_boxes():
            if watched:
                state = self._read_box_state(name, spec, numbers, n, at, full)
            else:
                state = None
            if state is None:
                # A former box is shown only at moments at which it existed.
                if spec is None:
                    continue
                if watched and self._is_damaged(numbers, n, at):
                    why = DAMAGED
                else:
                    why = UNWATCHED
                state = BoxState(
                    spec=spec, link=LinkState.NOT_KEPT, reason=why, since=at, alerts_kept=True
                )
            told = [
                past
                for number in numbers
                for past in moments.recorded_by(self._con, number, at - recorded_seconds, at)
            ]
            if told:
                # The newest summary: each covers the time before it.
                recorded[name] = told[-1]
            if name in full:
                state = self._with_past(state, numbers, at)
            boxes.append(state)
        if tick is None or not watched:
            # Money and alerts of a moment that was not watched are unknown, not those of before.
            body = moments.TickBody()
        else:
            body = tick[1]
        events_limit = 200
        events = self.read_event_page(EventFilter(until=at), None, events_limit).rows
        return FleetMoment(
            at=at,
            boxes=tuple(boxes),
            recorded=recorded,
            spend=body.spend,
            alerts=body.alerts,
            accounts=body.accounts,
            events=tuple(
                FleetEvent(row.at, row.box, row.text, row.level, row.about) for row in events
            ),
        )

    def _list_boxes(self) -> list[tuple[str, BoxSpec | None, list[int]]]:
        """Return the present boxes, then former ones: name, description, numbers."""
        names = dict.fromkeys((*self._specs, *self._names.values()))
        return [
            (
                name,
                self._specs.get(name),
                [number for number, own in self._names.items() if own == name],
            )
            for name in names
        ]

    def _read_box_state(
        self,
        name: str,
        spec: BoxSpec | None,
        numbers: list[int],
        n: int,
        at: float,
        full: Collection[str],
    ) -> BoxState | None:
        found = [(number, moments.state_at(self._con, number, n)) for number in numbers]
        near = [
            (number, kept)
            for number, kept in found
            if kept is not None and abs(at - kept.at) <= moments.SNAPSHOT.near_s
        ]
        if not near:
            return None
        # At one moment only one of the machines of this name can be the newest.
        number, kept = max(near, key=lambda each: each[1].at)
        state = kept.saved.state
        if spec is not None:
            present, old = spec.without_secrets(), state.spec
            # The same machine: today's description has its secrets, which are not stored.
            if (present.host, present.provider) == (old.host, old.provider):
                state = _replace(state, spec=spec)
        if name in full:
            runs = tuple(self._with_curves(number, run, kept.saved) for run in state.runs)
            state = _replace(state, runs=runs, logs=moments.logs_at(self._con, number, n))
        return state

    def _is_damaged(self, numbers: list[int], n: int, at: float) -> bool:
        """Return whether there is an unreadable row of this moment."""
        return any(
            self._con.execute(
                "SELECT 1 FROM moments WHERE box = ? AND n <= ? AND at >= ?",
                (number, n, at - moments.SNAPSHOT.near_s),
            ).fetchone()
            for number in numbers
        )

    def _with_curves(self, number: int, run: RunState, saved: moments.BoxSnapshot) -> RunState:
        """Return a run with its curves up to that moment."""
        places = {(place.run, place.metric): place for place in saved.curves}
        series = {}
        for metric, (xs, ys) in saved_curves.curves_of(self._con, number, run.name).items():
            place = places.get((run.name, metric))
            if place is not None:
                # Curves are stored once: a moment only knows how far they went by then.
                count = moments.series_until(xs, place.last, place.backs)
                series[metric] = Series(xs[:count], ys[:count])
        known = saved_curves.resumes_of(self._con, number, run.name)[: len(run.resumes)]
        # The stored places count only if the resumes are the same ones.
        same = [(each.step, each.reason) for each in known] == [
            (each.step, each.reason) for each in run.resumes
        ]
        points = len(series.get("loss", ()))
        resumes = tuple(
            _replace(each, index=min(each.index, points))
            for each in (known if same else run.resumes)
        )
        return _replace(run, series=series, resumes=resumes)

    def _with_past(self, state: BoxState, numbers: list[int], at: float) -> BoxState:
        # The first number with data: the machines of one name follow one another.
        for number in numbers:
            past = minute_means.read_last_day(self._con, number, at).until(at)
            if past.at:
                return _replace(state, past=past)
        return state
