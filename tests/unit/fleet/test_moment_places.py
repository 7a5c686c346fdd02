"""Where a time is among the moments that were kept, and what comes before and after it."""

from __future__ import annotations

from array import array

import pytest

from rgt_tui.fleet import GateClosed
from rgt_tui.fleet.history.moment_fleet import (
    MomentFleet,
    MomentPosition,
    describe_recorded,
    event_from,
    minute_from,
    place_of,
    place_of_event,
)
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    BoxState,
    EventFilter,
    FleetMoment,
    FleetState,
    Happening,
    Happenings,
    LinkState,
    NightFacts,
    ReducedHistory,
    Timeline,
)
from tests.ui.fakes import NOW, FakeFleet, many_boxes


def line(*minutes: float) -> Timeline:
    return Timeline(
        array("q", range(1, len(minutes) + 1)), array("d", [60.0 * minute for minute in minutes])
    )


WATCHED = line(0, 1, 2, 3)
GAP = line(0, 1, 10, 11)
BACK = line(100, 101, 41, 42)
"""The clock was set back by an hour."""


@pytest.mark.parametrize(
    ("kept", "minute", "place"),
    [
        (WATCHED, 2, MomentPosition(2, 120)),
        (WATCHED, 2.5, MomentPosition(2, 120)),  # as it stood by then
        (WATCHED, 5, MomentPosition(3, 180)),
        (WATCHED, 9, MomentPosition(3, 540)),  # nobody watched any more
        (WATCHED, -1, None),
        (GAP, 5, MomentPosition(1, 300)),
        (BACK, 100.5, MomentPosition(0, 6000)),
        (BACK, 41.5, MomentPosition(2, 2460)),
        (
            BACK,
            60,
            MomentPosition(3, 3600),
        ),  # after it, nobody watched; before, it had not been yet
        (line(), 5, None),
    ],
)
def test_where_a_time_is(kept: Timeline, minute: float, place: MomentPosition | None) -> None:
    assert place_of(kept, 60.0 * minute) == place


def steps(kept: Timeline, here: MomentPosition, direction: int) -> list[float]:
    found: list[float] = []
    place = minute_from(kept, here, direction)
    while place is not None and len(found) < 20:
        found.append(place.at / 60)
        place = minute_from(kept, place, direction)
    return found


def test_a_minute_on_and_back_where_somebody_watched() -> None:
    assert steps(WATCHED, MomentPosition(0, 0), 1) == [1, 2, 3]
    assert steps(WATCHED, MomentPosition(3, 180), -1) == [2, 1, 0]


def test_what_nobody_watched_is_gone_through_by_the_minute() -> None:
    assert steps(GAP, MomentPosition(0, 0), 1) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert steps(GAP, MomentPosition(3, 660), -1) == [10, 9, 8, 7, 6, 5, 4, 1, 0]


def test_a_clock_that_was_set_back_is_gone_through_in_the_order_of_what_happened() -> None:
    assert steps(BACK, MomentPosition(0, 6000), 1) == [101, 41, 42]
    assert steps(BACK, MomentPosition(3, 2520), -1) == [41, 101, 100]


def test_moments_within_a_minute_are_one_step() -> None:
    assert steps(line(0, 0.1, 0.5, 1, 1.2, 2), MomentPosition(0, 0), 1) == [1, 2]
    assert steps(line(0, 0.1, 0.5, 1, 1.2, 2), MomentPosition(5, 120), -1) == [1, 0]


@pytest.mark.parametrize(
    ("seconds", "place"),
    [
        (60.0, MomentPosition(1, 60)),
        (70.0, MomentPosition(2, 120)),
        (400.0, MomentPosition(1, 400)),
        (590.0, MomentPosition(3, 600)),
    ],
)
def test_an_event_is_at_the_moment_that_was_kept_with_it_or_soon_after(
    seconds: float, place: MomentPosition
) -> None:
    kept = line(0, 1, 2, 10) if seconds != 400.0 else line(0, 1, 10)
    assert place_of_event(kept, seconds) == place


def test_the_event_before_and_after() -> None:
    rows = [Happening(n, at, "a", "x") for n, at in enumerate((10.0, 20.0, 20.0, 30.0))]
    assert [
        None if row is None else row.at
        for row in (event_from(rows, 20.0, 1), event_from(rows, 20.0, -1))
    ] == [30.0, 10.0]
    assert event_from(rows, 30.0, 1) is None
    assert event_from(rows, 10.0, -1) is None


def test_a_recorder_speaks_for_the_stretches_that_it_saw_and_no_others() -> None:
    past = ReducedHistory(
        names=("util", "cgroup", "disk:/w"),
        at=(120.0, 360.0),
        values=((93.0, None, 41.2), (1.0, 2.0, 3.0)),
        width=120.0,
    )
    assert describe_recorded(past, 60.0) == "gpu 93%, disk /w 41% (mean of 2m00)"
    assert describe_recorded(past, 120.0) != ""
    assert describe_recorded(past, 180.0) == ""
    assert describe_recorded(past, 300.0) == "gpu 1%, memory 2%, disk /w 3% (mean of 2m00)"


class Kept:
    """A chronicle of one moment."""

    def __init__(self, *boxes: BoxState, **recorded: ReducedHistory) -> None:
        self.boxes, self.recorded = boxes, recorded
        self.full: list[frozenset[str]] = []

    async def read_event_page(
        self, wanted: EventFilter, before: int | None, count: int
    ) -> Happenings:
        return Happenings((Happening(1, NOW - 60, "a", "x"),))

    async def read_night(self, since: float, until: float, box: str | None) -> NightFacts:
        raise NotImplementedError

    async def read_timeline(self) -> Timeline:
        return Timeline(array("q", [7]), array("d", [NOW - 600]))

    async def read_moment(self, n: int, at: float, full: frozenset[str]) -> FleetMoment:
        assert n == 7
        self.full.append(full)
        return FleetMoment(at=at, boxes=self.boxes, recorded=self.recorded)


async def gone_back(
    kept: Kept, live: FleetState | None = None, at: float = NOW - 600
) -> tuple[MomentFleet, list[str]]:
    said: list[str] = []
    fleet = MomentFleet(FakeFleet(live), kept, said.append)
    await fleet.load_history()
    await fleet.show_position(MomentPosition(0, at))
    return fleet, said


def box(name: str, link: LinkState) -> BoxState:
    return BoxState(spec=BoxSpec(name=name, host="h"), link=link, reason="why")


async def test_a_recorder_is_named_where_nobody_watched_and_adds_to_the_past_elsewhere() -> None:
    told = ReducedHistory(
        names=("util",), at=(NOW - 660, NOW - 600, NOW - 540), values=((90.0,), (91.0,), (92.0,))
    )
    kept = Kept(
        box("a", LinkState.NOT_KEPT),
        box("b", LinkState.LIVE),
        box("c", LinkState.NOT_KEPT),
        a=told,
        b=told,
    )
    fleet, _ = await gone_back(kept)
    a, b, c = fleet.state.boxes
    assert a.reason == "why; its own recorder: gpu 91% (mean of 1m00)"
    assert (b.reason, c.reason) == ("why", "why")
    assert max(a.past.at) <= NOW - 540  # nothing of what was to come
    assert b.past.names == ("util",)
    assert c.past == ReducedHistory()
    assert fleet.events[0].text == "x"


async def test_curves_and_logs_of_a_large_fleet_are_read_for_the_box_on_screen() -> None:
    few = Kept(box("a", LinkState.LIVE))
    await gone_back(
        few, FleetState(boxes=(box("a", LinkState.LIVE), box("b", LinkState.LIVE)), at=NOW)
    )
    assert few.full == [frozenset("ab")]
    many = Kept(box("box-001", LinkState.LIVE))
    fleet, _ = await gone_back(many, many_boxes(20))
    fleet.focus_box("box-001")
    assert fleet._loading is not None
    await fleet._loading
    assert many.full == [frozenset(), frozenset({"box-001"})]


async def test_nothing_can_be_done_to_the_past() -> None:
    fleet, said = await gone_back(Kept(box("a", LinkState.LIVE)))
    fleet.set_box_paused("a", True)
    fleet.retry_box("a")
    fleet.set_interval("a", 1.0)
    fleet.mute_alert("a", "x", None)
    fleet.answer_question(1, "yes")
    assert len(said) == 5
    assert "10m00 ago: the past is read-only" in said[0]
    with pytest.raises(GateClosed, match="is read-only"):
        await fleet.review_action("a", BillingVerb.PARK)
    with pytest.raises(GateClosed, match="is read-only"):
        await anext(fleet.execute_action("a", BillingVerb.PARK, "a"))
    with pytest.raises(GateClosed, match="is read-only"):
        await fleet.pull_directories("a", (), print, print, lambda toll: _no())
    assert fleet.profile_of("nobody").id == "generic-ssh"
    assert fleet.evaluate_checks("nobody") == ()
    assert fleet.now() == fleet.shown_moment == NOW - 600


async def _no() -> bool:
    return False
