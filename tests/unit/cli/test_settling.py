"""When a command that looks once has seen enough of a box."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.cli.gathering import LONGEST_SECONDS, QUIET_SECONDS, Settling
from rgt_tui.model.box import BoxState, Link, ProviderRef
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.money import Meter
from rgt_tui.model.run import RunState
from tests.unit.cli.test_status_line import NOW, box

replace = msgspec.structs.replace


class World:
    """A box over time, and what settles."""

    def __init__(self, state: BoxState) -> None:
        self.now = 0.0
        self.state = state
        self.settling = Settling(lambda: self.now)
        self.look()

    def look(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        self.settling.look(FleetState(boxes=(self.state,), at=NOW))

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.settling.settled(self.state)


@pytest.mark.parametrize("link", [Link.UNREACHABLE, Link.REFUSED_KEY, Link.REFUSED_LOGIN, Link.PAUSED])
def test_a_first_try_that_failed_is_an_answer(link: Link) -> None:
    assert World(box(link=link, sample=None)).after(0)


@pytest.mark.parametrize("changes", [{"link": Link.CONNECTING}, {"sample": None}, {"remembered_at": NOW}])
def test_without_figures_of_now_there_is_something_to_wait_for(changes: dict[str, Any]) -> None:
    assert not World(box(**changes)).after(1000)


def test_quiet_ends_it_and_samples_do_not_count_as_news() -> None:
    world = World(box())
    assert not world.after(QUIET_SECONDS - 0.1)
    assert world.state.sample is not None
    world.look(sample=replace(world.state.sample, seq=2))
    assert world.after(0.2)


def test_news_is_waited_out() -> None:
    world = World(box())
    world.after(0.9)
    world.look(queues=())
    world.look(runs=(RunState(name="a", step=1),))
    assert not world.after(0.9)
    assert world.after(0.2)


def test_a_box_that_trains_and_never_falls_silent_is_settled_all_the_same() -> None:
    world = World(box())
    settled = []
    for step in range(10):
        settled.append(world.after(0.5))
        world.look(runs=(RunState(name="a", step=step, last_at=NOW),))
    assert settled.index(True) * 0.5 == pytest.approx(LONGEST_SECONDS, abs=0.6)


def test_a_curve_that_is_being_caught_up_with_is_waited_for() -> None:
    world = World(box())
    for step in range(20):
        world.look(runs=(RunState(name="a", step=step, last_at=NOW - 3600 + step),))
        assert not world.after(0.5)
    world.look(runs=(RunState(name="a", step=99, last_at=NOW),))
    assert not world.after(0.5)
    assert world.after(LONGEST_SECONDS)


def test_a_meter_is_waited_for_where_somebody_can_be_asked() -> None:
    spec = replace(box().spec, provider=ProviderRef(kind="runpod", instance="i"))
    world = World(box(spec=spec))
    assert not world.after(10)
    world.look(meter=Meter(at=NOW))
    assert world.after(0.1)
    assert World(box(spec=spec, meter=Meter(error="no key"))).after(QUIET_SECONDS)
