"""What happened since the person last looked: a visit, the one before it, and what is kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from textual import events

from rgt_tui.model import EventFilter, FleetEvent, FleetSpend, FleetState, Happening, Happenings
from rgt_tui.ui import (
    AWAY_S,
    UserVisits,
    day_of,
    idle_since,
    read_visits,
    visits_path,
    write_visits,
)
from rgt_tui.ui.widgets import clip_line, text_of
from rgt_tui.ui.widgets.fleet_rows import (
    MOST_EVENTS,
    complete_from,
    group_events,
    idle_foot,
    since_section,
)
from rgt_tui.ui.widgets.fleet_rows.since_lines import UserActivity
from tests.ui.fakes import NOW, FakeFleet, demo_state
from tests.ui.snap import running, screen_text, settle

if TYPE_CHECKING:
    from rgt_tui.fleet import Chronicle

HOUR = 3600.0


def visits(*ats: float) -> UserVisits:
    found = UserVisits()
    for at in ats:
        found = found.add_activity(UserActivity(at))
    return found


def test_looks_close_together_are_one_visit_and_what_counts_is_the_end_of_the_one_before() -> None:
    night = visits(NOW, NOW + AWAY_S - 1)
    assert night.new_since(NOW + AWAY_S) is None, (
        "in the first visit there is nothing that came before"
    )
    away = night.new_since(NOW + 5 * HOUR)
    assert away is not None and away.at == NOW + AWAY_S - 1, (
        "told before the first key of the morning, too"
    )
    morning = night.add_activity(UserActivity(NOW + 5 * HOUR)).add_activity(
        UserActivity(NOW + 5 * HOUR + 60)
    )
    assert morning.new_since(NOW + 5 * HOUR + 61) == away, "it stays for as long as the visit lasts"
    gone = morning.new_since(NOW + 9 * HOUR)
    assert gone is not None and gone.at == NOW + 5 * HOUR + 60


def test_what_is_kept_is_read_again_and_a_damaged_file_is_no_look(tmp_path: Path) -> None:
    path = visits_path({"XDG_STATE_HOME": str(tmp_path)})
    assert read_visits(path).fleets == {}
    write_visits(path, "rgt a.toml", visits(NOW))
    write_visits(path, "rgt b.toml", visits(NOW + 1))
    assert set(read_visits(path).fleets) == {"rgt a.toml", "rgt b.toml"}
    assert read_visits(path).fleets["rgt a.toml"] == visits(NOW)
    for damage in (b"{", b"\xff", b'{"version": 9}', b"[]"):
        path.write_bytes(damage)
        assert read_visits(path).fleets == {}
    write_visits(path, "rgt a.toml", visits(NOW))
    assert path.stat().st_mode & 0o077 == 0


def test_idle_money_is_the_difference_on_the_same_day_and_a_lower_bound_from_midnight_on() -> None:
    look = UserActivity(NOW, day_of(NOW), (("USD", 0.30),))
    spend = FleetSpend(idle_today=(("USD", 0.42), ("CNY", 1.92)))
    same = idle_since(look, spend, NOW + 60)
    assert same is not None
    assert [(round(one.value, 2), one.currency, one.at_least) for one in same[0]] == [
        (0.12, "USD", False),
        (1.92, "CNY", False),
    ]
    later = idle_since(look, spend, NOW + 24 * HOUR)
    assert later is not None and later[1]
    assert [(one.value, one.at_least) for one in later[0]] == [(0.42, True), (1.92, True)]
    assert idle_since(look, None, NOW) is None
    assert idle_since(UserActivity(NOW, day_of(NOW)), spend, NOW) is None, (
        "nobody counted then: no zero is made of it"
    )
    state = FleetState((), (), NOW, spend=spend)
    assert text_of(idle_foot(state, look, NOW + 60)) == "idle since then $0.12 + ¥1.92"
    assert (
        text_of(idle_foot(state, look, NOW + 24 * HOUR)) == "idle since midnight ≥ $0.42 + ≥ ¥1.92"
    )
    assert idle_foot(state, None, NOW) == ()
    assert idle_foot(state, look, NOW - 60) == (), (
        "a state of before the look tells nothing of since"
    )


EVENTS = (
    FleetEvent(NOW - 300, "vast", "old"),
    FleetEvent(NOW - 100, "vast", "no inodes left", "error"),
    FleetEvent(NOW - 90, "runpod", "preempted", "warn"),
    FleetEvent(NOW - 80, "runpod", "preempted", "warn"),
)


def test_the_newest_is_first_and_the_same_is_said_once() -> None:
    assert [(event.box, count) for event, count in group_events(EVENTS, NOW - 200)] == [
        ("runpod", 2),
        ("vast", 1),
    ]


@pytest.mark.parametrize("width", [20, 37, 80])
def test_the_pane_says_since_when_and_what_is_not_kept(width: int) -> None:
    told = since_section(EVENTS, UserActivity(NOW - 200), NOW - 150, width, NOW, journal=True)
    text = " ".join(" ".join(text_of(row).split()) for row in told.body)
    assert text_of(told.title).startswith("since your last visit, ")
    assert "✖ vast no inodes left" in text and "preempted ×2" in text and "old" not in text.split()
    assert f"events before {when_began(NOW - 150)} are not kept here: J shows them" in text
    assert text_of(told.hint) == "J"
    whole = since_section(EVENTS, UserActivity(NOW - 200), NOW - 250, width, NOW, journal=False)
    assert "not kept" not in " ".join(text_of(row) for row in whole.body)
    many = EVENTS * (MOST_EVENTS // len(EVENTS))
    short = since_section(
        many, UserActivity(NOW - 900), complete_from(many, NOW - 1000), width, NOW, journal=False
    )
    assert "not kept" in " ".join(text_of(row) for row in short.body), (
        "what has been pushed out is not silence"
    )


def when_began(at: float) -> str:
    import time

    return time.strftime("%H:%M", time.localtime(at))


def test_an_earlier_state_says_what_it_has() -> None:
    told = since_section(EVENTS[:2], UserActivity(NOW), NOW, 40, NOW - 100, journal=False)
    assert text_of(told.title) == "what happened"
    assert len(told.body) == 2


async def test_who_comes_back_is_told_of_the_time_between_and_the_next_rgt_knows_it(
    state_home: Path,
) -> None:
    fleet = FakeFleet()
    async with running(fleet, keys=("j",)) as (app, pilot, _):
        assert "since your last visit" not in screen_text(app)
        fleet.advance(5 * HOUR)
        event = FleetEvent(fleet.now() - HOUR, "vast-demo", "queue done", "warn")
        fleet.push(msgspec.structs.replace(demo_state(), events=(event,)))
        app.tick(force=True)
        await settle(pilot)
        text = screen_text(app)
        assert "since your last visit, 10:02" in text and "▲ vast-demo queue done" in text
        await pilot.press("k")
        await settle(pilot)
        assert "since your last visit, 10:02" in screen_text(app), (
            "the key that brings one back does not wipe it"
        )
    kept = read_visits(state_home / "looked.json").fleets["rgt"]
    assert kept.last is not None and kept.last.at == NOW + 5 * HOUR
    assert kept.before is not None and kept.before.at == NOW
    later = FakeFleet(at=NOW + 20 * HOUR)
    async with running(later) as (app, _, __):
        assert "since your last visit, Sat 15:02" in screen_text(app), "to start rgt is to look"


class Kept:
    """A history that has some events of the night; another question is a fault of the test."""

    def __init__(self, *rows: Happening, older: bool = False) -> None:
        self.rows, self.older = rows, older
        self.asked: list[EventFilter] = []

    async def read_event_page(
        self, wanted: EventFilter, before: int | None, count: int
    ) -> Happenings:
        self.asked.append(wanted)
        return Happenings(self.rows, self.older, len(self.rows))


@pytest.mark.parametrize("older", [False, True])
async def test_what_an_earlier_rgt_saw_comes_from_the_history(
    state_home: Path, older: bool
) -> None:
    write_visits(state_home / "looked.json", "rgt", visits(NOW - 6 * HOUR))
    kept = Kept(Happening(1, NOW - 3 * HOUR, "vast-demo", "no inodes left", "error"), older=older)
    fleet = FakeFleet(FleetState(demo_state().boxes, (), NOW))
    fleet.chronicle = cast("Chronicle", kept)
    async with running(fleet, size=(160, 34)) as (app, pilot, _):
        await settle(pilot)
        text = screen_text(app)
        assert "since your last visit, 04:02" in text and "✖ vast-demo no inodes left" in text
        assert ("not kept here" in text) is older, "what did not come is not silence"
        assert app.away_since == NOW - 6 * HOUR
        await pilot.press("j")
        await settle(pilot)
        assert [(one.since, one.until) for one in kept.asked] == [(NOW - 6 * HOUR, NOW)], (
            "asked once"
        )
    fleet = FakeFleet(FleetState(demo_state().boxes, (), NOW))
    write_visits(state_home / "looked.json", "rgt", visits(NOW - 6 * HOUR))
    async with running(fleet, size=(160, 34)) as (app, pilot, _):
        assert "events before 10:02 are not kept here" in screen_text(app), "without a history"


class Recording(FakeFleet):
    """A fleet whose time can be held, as a recording's."""

    plays_back = True
    is_playback_paused, speed = False, 1.0

    def set_playback_paused(self, held: bool) -> None: ...

    def set_speed(self, speed: float) -> None: ...


async def test_who_looks_at_a_recording_has_not_looked_at_the_fleet(state_home: Path) -> None:
    async with running(Recording(FleetState(demo_state().boxes, EVENTS, NOW)), keys=("j", "k")) as (
        app,
        _,
        __,
    ):
        assert app.away_since is None
        text = screen_text(app)
        assert "since 09:57" in text and "since your last visit" not in text
    assert not (state_home / "looked.json").exists()


def test_where_there_is_room_no_event_is_cut_off() -> None:
    long = tuple(
        FleetEvent(NOW - 100 + place, "vast-demo", f"{place} " + "a word too many " * 9 + "the end")
        for place in range(5)
    )

    def told(height: int) -> str:
        part = since_section(
            long, UserActivity(NOW - 200), NOW - 250, 40, NOW, journal=False, height=height
        )
        return " ".join(text_of(clip_line(row, 40)).strip() for row in part.body)

    assert told(100).count("the end") == 5 and "…" not in told(100)
    assert told(10).count("the end") == 0, "of many in a small pane each has three lines"


async def test_boxes_are_sampled_less_often_while_nobody_watches() -> None:
    def sent(fleet: FakeFleet) -> list[bool]:
        return [bool(one[1]) for one in fleet.told if one[0] == "looking"]

    async with running(FakeFleet(demo_state())) as (app, pilot, fleet):
        # A terminal that never reports its focus is taken to have it, and then somebody watches.
        app.active_at -= AWAY_S
        app.check_presence()
        assert sent(fleet) == []
        app.post_message(events.AppBlur())
        await settle(pilot)
        app.check_presence()
        app.check_presence()
        assert sent(fleet) == [False], "sent once"
        app.post_message(events.AppFocus())
        await settle(pilot)
        assert sent(fleet) == [False, True]
        # A dashboard on another monitor has no focus either.
        app.post_message(events.AppBlur())
        await settle(pilot)
        app.check_presence()
        assert sent(fleet) == [False, True], "not away for long enough"
        app.active_at -= AWAY_S
        app.check_presence()
        await pilot.press("j")
        assert sent(fleet) == [False, True, False, True]
