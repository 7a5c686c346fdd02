"""``rgt journal``: past events from the history, and the report of the night.

Connects to nothing.
"""

from __future__ import annotations

import os
import time

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.watch_arguments import JournalArguments
from rgt_tui.fleet.history.morning_report import (
    NextClock,
    NightReport,
    morning_report,
    report_words,
)
from rgt_tui.fleet.history.spoken_times import night_began, parse_past_time
from rgt_tui.health import clock_readings
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, BoxState, EventFilter, LinkState, moment
from rgt_tui.profiles import ProfileError, load_profile
from rgt_tui.store import MOST_EVENTS, FleetHistory, HistoryError, history_path

NONE_KEPT = "no history is kept: RGT_HISTORY is off"


def run_journal(arguments: JournalArguments) -> int:
    """Print the events; return the exit code."""
    now = time.time()
    try:
        if arguments.since is None:
            # The default question is "what happened last night".
            since = night_began(now)
        else:
            since = parse_past_time(arguments.since, now)
        if arguments.until is None:
            until = now
        else:
            until = parse_past_time(arguments.until, now)
    except ValueError as error:
        print_error(error)
        return USAGE
    if until < since:
        print_error("--until is before --since")
        return USAGE
    # A name is checked against the fleet file, so that a typing error is not an empty journal.
    if arguments.box is None:
        names = []
    else:
        names = [arguments.box]
    config, _ = open_boxes(arguments, names)
    path = history_path(os.environ)
    if path is None or not path.exists():
        why = translate(NONE_KEPT)
        if path is not None:
            why = translate("no history yet: {path} is written by rgt and rgt watch", path=path)
        print_error(why)
        return FAILED
    history = FleetHistory(path, fleet=str(config.path.absolute()))
    # All boxes of the file, not only the named one: events about the fleet belong to none.
    history.adopt_boxes(config.boxes)
    return running.run_coroutine(_print_events(history, config.boxes, arguments, since, until))


async def _print_events(
    history: FleetHistory,
    specs: tuple[BoxSpec, ...],
    arguments: JournalArguments,
    since: float,
    until: float,
) -> int:
    try:
        # JSON has either events or the report: a reader of lines expects one kind of object.
        if arguments.report or not arguments.json:
            report = await _build_report(history, specs, arguments.box, since, until)
            if arguments.json:
                print_json(report)
                return OK
            words = [
                f"{word.label} {word.text}".strip() for word in report_words(report, time.time())
            ]
            print_lines(*words)
            if arguments.report:
                return OK
            print_lines("")
        wanted = EventFilter(box=arguments.box, since=since, until=until)
        # The newest ones; a longer span is asked for with --since and --until.
        found = await history.read_event_page(wanted, None, MOST_EVENTS)
    except HistoryError as error:
        print_error(translate("the history cannot be read: {error}", error=error))
        return FAILED
    finally:
        await history.close()
    for row in found.rows:
        if arguments.json:
            print_json(row)
            continue
        when = moment(row.at)
        whose = row.box or translate("all boxes")
        print_lines(f"{when}  {row.level:<5}  {whose}  {row.text}")
    return OK


async def _build_report(
    history: FleetHistory, specs: tuple[BoxSpec, ...], box: str | None, since: float, until: float
) -> NightReport:
    """Return the report of a time span; the boxes' current state is the last recorded one."""
    night = await history.read_night(since, until, box)
    line = await history.read_timeline()
    boxes: tuple[BoxState, ...] = ()
    if line.ns:
        # The last recorded moment counts as now: this command connects to nothing.
        moment = await history.read_moment(line.ns[-1], line.ats[-1], frozenset())
        here = {spec.name for spec in specs}
        boxes = tuple(
            state
            for state in moment.boxes
            # A box that was not recorded then has no state, rather than a fine one.
            if state.link is not LinkState.NOT_KEPT
            and state.spec.name in here
            and box in (None, state.spec.name)
        )
    clocks = []
    for state in boxes:
        try:
            readings = clock_readings(load_profile(state.spec.profile), state, time.time())
        except ProfileError:
            # A profile that is gone has no clocks; the report is still worth printing.
            continue
        clocks += [NextClock(state.spec.name, reading) for reading in readings if reading.counting]
    return morning_report(night, boxes, clocks)
