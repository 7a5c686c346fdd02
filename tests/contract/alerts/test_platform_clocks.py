"""What the fleet keeps for the danger clocks: a life across restarts, parks through rgt, and what is said once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.health import ClockBound, clock_readings, first_contact_notices, load_alerts
from rgt_tui.model import BillingVerb, LinkState, Meter, StopPhase, StopProgress
from rgt_tui.profiles import load_profile
from tests.contract.alerts.conftest import SPEC, World, opened
from tests.unit.triage.builders import NOW, sample

DAY = 86400.0
AUTODL = msgspec.structs.replace(SPEC, profile="autodl", provider=None)
LOST: dict[str, Any] = {
    "spec": AUTODL,
    "link": LinkState.UNREACHABLE,
    "meter": Meter(),
    "sample": None,
    "sample_at": None,
}
LIVE: dict[str, Any] = {"spec": AUTODL, "meter": Meter(), "sample": sample()}


async def test_fifteen_days_count_after_a_restart_without_a_sample(tmp_path: Path) -> None:
    """No provider, and no history: what counts is in the state directory, for the screen as for the alert."""
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(**LIVE)
    async with opened(World(path, now=NOW + 13.5 * DAY)) as later:
        later.see(**LOST)
        (alert,) = [alert for alert in later.state.alerts if alert.id == "clock"]
        (shown,) = clock_readings(load_profile("autodl"), later.state, later.now)
    assert alert.text == shown.text
    assert (alert.level, shown.bound, shown.sure) == ("error", ClockBound.AT_LEAST, False)
    assert shown.seconds_left is not None
    assert abs(shown.seconds_left - 1.5 * DAY) < 60


async def steps(*phases: StopPhase) -> AsyncIterator[StopProgress]:
    for phase in phases:
        yield StopProgress(phase, NOW + 10, phase.value)


async def test_a_park_through_rgt_is_remembered_to_the_second(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(**LIVE)
        done = steps(StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF)
        async for _ in world.alerting.watch_action(SPEC.name, BillingVerb.PARK, done):
            pass
    async with opened(World(path, now=NOW + 10 + DAY)) as later:
        later.see(0, **LOST)
        (shown, *_) = clock_readings(load_profile("autodl"), later.state, later.now)
    assert (shown.seconds_left, shown.bound, shown.source) == (
        14 * DAY,
        ClockBound.EXACT,
        "parked through rgt",
    )


async def test_a_destroy_or_an_unconfirmed_park_starts_no_clock(tmp_path: Path) -> None:
    for verb, last in (
        (BillingVerb.DESTROY, StopPhase.METER_OFF),
        (BillingVerb.PARK, StopPhase.UNCONFIRMED),
    ):
        async with opened(World(tmp_path / f"{verb}.json")) as world:
            world.see(**LIVE)
            async for _ in world.alerting.watch_action(
                SPEC.name, verb, steps(StopPhase.REQUESTED, last)
            ):
                pass
            world.see(**LIVE)
            assert world.state.life.parked_at is None


async def test_a_platform_is_introduced_once_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    said = [f"AutoDL: {text}" for text in first_contact_notices(load_profile("autodl"))]
    async with opened(World(path, greets=True)) as world:
        world.see(**LOST)
        assert told(world) == [], "nobody has met it yet"
        world.see(**LIVE)
        world.see(60, **LIVE)
        assert told(world) == said
    assert "autodl" in load_alerts(path).met
    async with opened(World(path, greets=True)) as later:
        later.see(**LIVE)
        assert told(later) == []


def told(world: World) -> list[str]:
    return [event.text for event in world.events if event.about == "platform:autodl"]


async def test_a_command_that_shows_no_events_uses_no_introduction_up(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(**LIVE)
        assert world.events == []
    assert "autodl" not in load_alerts(path).met
