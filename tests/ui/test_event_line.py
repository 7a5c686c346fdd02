"""The line above the keys: what is worst stays until it is over, seen, or old; nothing milder wipes it away."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.fleet import events_between
from rgt_tui.model import FleetEvent
from rgt_tui.ui.widgets import HOLDS_S, choose_event
from tests.ui.boxes import cell, queue, running_box, trouble_box
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle

FATAL = FleetEvent(
    NOW - 30, "vast", "U7 No inodes left: inodes of /w", "error", "finding:U7:inodes of /w"
)
STARTED = FleetEvent(NOW - 10, "autodl", "gpt-c started", "info", "run:gpt-c")
CONNECTED = FleetEvent(NOW - 5, "autodl", "connected", "info", "link")


def said(*events: FleetEvent, now: float = NOW, seen_at: float = 0.0) -> str:
    event, _ = choose_event(events, now, seen_at)
    return event.text if event is not None else ""


def test_a_fatal_event_is_not_wiped_away_by_a_start() -> None:
    assert said(FATAL, STARTED, CONNECTED) == FATAL.text
    assert choose_event((FATAL, STARTED, CONNECTED), NOW)[1] == 2, "and what came since is counted"


def test_its_own_end_takes_its_place() -> None:
    over = FleetEvent(NOW - 2, "vast", "U7 inodes of /w: over", "info", FATAL.about)
    assert said(FATAL, STARTED, over) == over.text
    assert said(FATAL, over, STARTED) == STARTED.text
    elsewhere = msgspec.structs.replace(over, box="other")
    assert said(FATAL, elsewhere) == FATAL.text, "the same on another box is another thing"


def test_the_newest_of_the_worst_stands() -> None:
    failed = FleetEvent(NOW - 20, "lab", "a failed", "error", "run:a")
    warned = FleetEvent(NOW - 8, "lab", "provider says stopped", "warn", "meter")
    assert said(FATAL, failed, STARTED, warned, CONNECTED) == failed.text
    assert said(STARTED, warned, CONNECTED) == warned.text


@pytest.mark.parametrize(("level", "holds"), list(HOLDS_S.items()))
def test_it_holds_the_line_for_a_time(level: str, holds: float) -> None:
    event = msgspec.structs.replace(FATAL, level=level)
    assert said(event, STARTED, now=event.at + holds - 1) == event.text
    assert said(event, STARTED, now=event.at + holds) == STARTED.text


def test_what_was_seen_holds_nothing() -> None:
    assert said(FATAL, STARTED, seen_at=NOW) == STARTED.text
    assert said(FATAL, STARTED, seen_at=FATAL.at - 1) == FATAL.text
    assert said() == ""


async def test_the_screen_says_it_and_escape_has_seen_it() -> None:
    fleet = FakeFleet()
    fleet.push(msgspec.structs.replace(fleet.state, events=(FATAL, STARTED)))
    async with running(fleet) as (app, pilot, _):
        row = screen_text(app).splitlines()[-2]
        assert "U7 No inodes left" in row
        assert row.endswith("1 more")
        await pilot.press("escape")
        await settle(pilot)
        assert "gpt-c started" in screen_text(app).splitlines()[-2]


def test_events_of_a_box_say_what_they_are_about() -> None:
    sick = trouble_box("b")
    well = msgspec.structs.replace(sick, findings=())
    began, ended = events_between(well, sick, NOW), events_between(sick, well, NOW + 5)
    assert said(*began, STARTED, now=NOW + 1) == began[0].text
    assert said(*began, *ended, now=NOW + 6) == ended[0].text
    one = msgspec.structs.replace(running_box("b"), queues=(queue(cell("x", "failed")),))
    other = msgspec.structs.replace(running_box("b"), queues=(queue(cell("x", "running")),))
    (failed,) = [event for event in events_between(other, one, NOW) if event.level == "error"]
    (again,) = events_between(one, other, NOW + 5)
    assert said(failed, again, now=NOW + 6) == again.text
