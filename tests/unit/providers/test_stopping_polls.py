"""How often and how long a provider is asked whether a stop was done, by whatever clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    StopPhase,
    StopProgress,
)
from rgt_tui.providers import Instance, NotFound, StateConflict, carry_out
from rgt_tui.providers.stopping import STOP_PACES

RUNNING = Meter(
    MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, source="p", native_status="RUNNING"
)
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, source="p", native_status="EXITED")
UNREAD = Meter(error="503")
PERMIT = Permit(box="a", verb=BillingVerb.PARK, instance="i", digest="", expires=1e18)


class Answers:
    """A control plane that answers a stop with an error or a word, and then tells one reading after another."""

    ref, instance, console_url = ProviderRef("runpod", "i"), "i", "https://console"

    def __init__(self, readings: list[Meter], error: Exception | None = None) -> None:
        self.readings, self.error, self.asked = readings, error, 0

    async def read(self, instance: str) -> Meter:
        self.asked += 1
        return self.readings[min(self.asked, len(self.readings)) - 1]

    async def list(self) -> tuple[Instance, ...]:
        return ()

    async def start(self) -> str:
        raise NotImplementedError

    async def stop(self, permit: Permit) -> str:
        if self.error is not None:
            raise self.error
        return "accepted"

    destroy = stop

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        return ""

    def native_label(self, verb: BillingVerb) -> str:
        return ""

    def native_action(self, verb: BillingVerb) -> str:
        return ""

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        return ()

    def list_tiers(self, instance: str) -> dict[str, str]:
        return {}


async def phases(
    provider: Answers,
    ticks: Callable[[], float] = lambda: 0.0,
    slept: list[float] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    **options: float,
) -> list[StopPhase]:
    async def sleep(seconds: float) -> None:
        if slept is not None:
            slept.append(seconds)

    steps: list[StopProgress] = [
        step
        async for step in carry_out(
            provider, PERMIT, clock=clock, ticks=ticks, sleep=sleep, **options
        )
    ]
    return [step.phase for step in steps]


REQUESTED, CONFIRMED, OFF = StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF
FAILED, UNCONFIRMED = StopPhase.FAILED, StopPhase.UNCONFIRMED


@pytest.mark.parametrize("error", [StateConflict("409", status=409), NotFound("404", status=404)])
async def test_after_a_conflict_a_state_that_lags_behind_may_still_come(error: Exception) -> None:
    late = Answers([*[RUNNING] * (STOP_PACES.conflict_polls - 1), STOPPED], error)
    assert await phases(late) == [REQUESTED, CONFIRMED, OFF]
    too_late = Answers([*[RUNNING] * STOP_PACES.conflict_polls, STOPPED], error)
    assert await phases(too_late) == [REQUESTED, FAILED]
    assert too_late.asked == STOP_PACES.conflict_polls


async def test_a_reading_that_failed_is_none_of_those_after_a_conflict() -> None:
    provider = Answers(
        [UNREAD] * 3 + [RUNNING] * (STOP_PACES.conflict_polls - 1) + [STOPPED],
        StateConflict("409", status=409),
    )
    assert await phases(provider) == [REQUESTED, CONFIRMED, OFF]


async def test_a_reading_that_failed_confirms_nothing_whatever_else_it_says() -> None:
    stale = Meter(
        MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, source="p", native_status="EXITED", error="503"
    )
    gone = Meter(MeterKind.NONE, Lifecycle.GONE, source="p", error="503")
    assert await phases(Answers([stale, gone, RUNNING, STOPPED])) == [REQUESTED, CONFIRMED, OFF]
    assert await phases(Answers([stale])) == [REQUESTED, UNCONFIRMED]


async def test_after_a_conflict_what_is_confirmed_is_followed_to_the_end() -> None:
    billing = Meter(MeterKind.UNKNOWN, Lifecycle.STOPPED, source="p", native_status="EXITED")
    assert await phases(Answers([*[billing] * 9, STOPPED], StateConflict("409", status=409))) == [
        REQUESTED,
        CONFIRMED,
        OFF,
    ]


async def test_a_clock_that_stands_still_does_not_poll_for_ever() -> None:
    slept: list[float] = []
    provider = Answers([RUNNING])
    assert await phases(provider, lambda: 1.7e9, slept) == [REQUESTED, UNCONFIRMED]
    assert slept == [STOP_PACES.poll_s] * int(STOP_PACES.timeout_s / STOP_PACES.poll_s)
    assert provider.asked == len(slept) + 1


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_a_wall_clock_that_is_set_changes_nothing(step: float) -> None:
    """It only dates the steps: forwards it must not give up at once, backwards it must not poll for ever."""
    times = iter(1.7e9 + number * step for number in range(1000))
    slept: list[float] = []
    provider = Answers([RUNNING])
    assert await phases(provider, slept=slept, clock=lambda: next(times)) == [
        REQUESTED,
        UNCONFIRMED,
    ]
    assert slept == [STOP_PACES.poll_s] * int(STOP_PACES.timeout_s / STOP_PACES.poll_s)


async def test_after_a_night_asleep_it_looks_once_more_and_says_what_it_saw() -> None:
    now = [0.0]

    class Sleeper(Answers):
        async def read(self, instance: str) -> Meter:
            now[0] += 8 * 3600.0 if self.asked == 1 else 0.0
            return await super().read(instance)

    woke = Sleeper([RUNNING, STOPPED])
    assert await phases(woke, lambda: now[0]) == [REQUESTED, CONFIRMED, OFF]


async def test_without_pauses_it_is_the_time_that_counts() -> None:
    seconds = itertools.count()
    provider = Answers([RUNNING])
    assert await phases(provider, lambda: float(next(seconds)), timeout_s=9.0, poll_s=0.0) == [
        REQUESTED,
        UNCONFIRMED,
    ]
    assert 9 <= next(seconds) <= 9 + provider.asked


async def test_a_provider_that_takes_its_time_is_waited_for_no_longer() -> None:
    now = [0.0]

    class Slow(Answers):
        async def read(self, instance: str) -> Meter:
            now[0] += 60.0
            return await super().read(instance)

    provider = Slow([RUNNING])
    assert await phases(provider, lambda: now[0]) == [REQUESTED, UNCONFIRMED]
    assert provider.asked == 3
