"""When a command that looks once has seen enough of a box."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.cli import SETTLE_PACES, SettleTracker
from rgt_tui.model import BoxState, FleetState, LinkState, Meter, MeterKind, ProviderRef, RunState
from tests.unit.cli.test_status_line import NOW, box

replace = msgspec.structs.replace


class World:
    """A box over time, and what settles."""

    def __init__(self, state: BoxState, *, looked: bool = True) -> None:
        self.now = 0.0
        self.state = replace(state, looked=looked)
        self.settling = SettleTracker(lambda: self.now)
        self.look()

    def look(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        self.settling.apply_state(FleetState(boxes=(self.state,), at=NOW))

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.settling.is_settled(self.state)


@pytest.mark.parametrize(
    "link",
    [LinkState.UNREACHABLE, LinkState.REFUSED_KEY, LinkState.REFUSED_LOGIN, LinkState.PAUSED],
)
def test_a_first_try_that_failed_is_an_answer(link: LinkState) -> None:
    assert World(box(link=link, sample=None)).after(0)


@pytest.mark.parametrize(
    "changes", [{"link": LinkState.CONNECTING}, {"sample": None}, {"remembered_at": NOW}]
)
def test_without_figures_of_now_there_is_something_to_wait_for(changes: dict[str, Any]) -> None:
    assert not World(box(**changes)).after(1000)


def test_quiet_ends_it_and_samples_do_not_count_as_news() -> None:
    world = World(box())
    assert not world.after(SETTLE_PACES.quiet_s - 0.1)
    assert world.state.sample is not None
    world.look(sample=replace(world.state.sample, seq=2))
    assert world.after(0.2)


def test_the_first_full_look_is_waited_for_but_not_for_ever() -> None:
    world = World(box(), looked=False)
    assert not world.after(SETTLE_PACES.first_look_s - 0.1)
    world.look(looked=True)
    assert world.after(0.0), "nothing else has come for long"
    assert World(box(), looked=False).after(SETTLE_PACES.first_look_s)
    late = World(box(), looked=False)
    late.after(10)
    late.look(looked=True, runs=(RunState(name="a", step=1),))
    assert not late.after(SETTLE_PACES.quiet_s - 0.1)
    assert late.after(0.2)


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
    assert settled.index(True) * 0.5 == pytest.approx(SETTLE_PACES.longest_s, abs=0.6)


def test_a_curve_that_is_being_caught_up_with_is_waited_for() -> None:
    world = World(box())
    for step in range(20):
        world.look(runs=(RunState(name="a", step=step, last_at=NOW - 3600 + step),))
        assert not world.after(0.5)
    world.look(runs=(RunState(name="a", step=99, last_at=NOW),))
    assert not world.after(0.5)
    assert world.after(SETTLE_PACES.longest_s)


def test_a_meter_is_waited_for_where_somebody_can_be_asked() -> None:
    spec = replace(box().spec, provider=ProviderRef(kind="runpod", instance="i"))
    world = World(box(spec=spec))
    assert not world.after(10)
    world.look(meter=Meter(at=NOW))
    assert world.after(0.1)
    assert World(box(spec=spec, meter=Meter(error="no key"))).after(SETTLE_PACES.quiet_s)


def test_a_price_of_the_fleet_file_is_waited_for_until_somebody_counts_by_it_but_not_for_ever() -> (
    None
):
    spec = replace(box().spec, per_hour=1.98, currency="CNY")
    world = World(box(spec=spec))
    assert not world.after(SETTLE_PACES.quiet_s + 0.1)
    world.look(meter=Meter(MeterKind.COMPUTE_AND_STORAGE, per_hour=1.98, currency="CNY", at=NOW))
    assert world.after(SETTLE_PACES.quiet_s)
    assert World(box(spec=spec)).after(SETTLE_PACES.first_look_s)


THERE = Meter(at=NOW, ssh_host="203.0.113.9", ssh_port=22099)


def failed(
    at: float, meter: Meter, link: LinkState = LinkState.UNREACHABLE, **spec: Any
) -> BoxState:
    """A box of a provider whose next try is due at `at`."""
    described = replace(box().spec, provider=ProviderRef(kind="runpod", instance="i"), **spec)
    return box(link=link, sample=None, spec=described, meter=meter, retry_at=at)


@pytest.mark.parametrize(
    "link", [LinkState.UNREACHABLE, LinkState.REFUSED_KEY, LinkState.REFUSED_LOGIN]
)
def test_a_failed_try_is_no_answer_before_the_provider_has_said_what_the_box_is(
    link: LinkState,
) -> None:
    world = World(failed(1.0, Meter(), link))
    assert not world.after(5)
    world.look(meter=Meter(at=NOW))
    assert world.after(0)


@pytest.mark.parametrize("link", [LinkState.UNREACHABLE, LinkState.REFUSED_KEY])
def test_the_address_that_the_provider_names_is_tried_before_a_box_counts_as_unreachable(
    link: LinkState,
) -> None:
    world = World(failed(1.0, Meter(), link))
    world.look(meter=THERE)
    assert not world.after(5)
    world.look(retry_at=2.0)
    assert world.after(0)


def test_tries_of_before_the_provider_spoke_do_not_count_for_its_address() -> None:
    world = World(failed(1.0, Meter()))
    world.look(retry_at=2.0)
    world.look(meter=THERE)
    assert not world.after(5)
    world.look(retry_at=3.0)
    assert world.after(0)


def test_the_provider_may_speak_before_the_described_address_has_failed() -> None:
    world = World(replace(failed(1.0, THERE), link=LinkState.CONNECTING, retry_at=None))
    world.look(link=LinkState.UNREACHABLE, retry_at=1.0)
    assert not world.after(5)
    world.look(retry_at=2.0)
    assert world.after(0)


def test_an_address_that_is_the_described_one_is_no_other() -> None:
    assert World(failed(1.0, THERE, host="203.0.113.9", port=22099)).after(0)
