"""Stopping the meter over a real connection: requested is not stopped, and trouble is never silence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    Meter,
    MeterKind,
    ProviderRef,
    StopPhase,
    StopProgress,
    steady_time,
)
from rgt_tui.providers import PermitRefused, Providers, Unreachable
from tests.contract.providers.conftest import POD, World

REQUESTED, CONFIRMED, METER_OFF = StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF
UNCONFIRMED, FAILED = StopPhase.UNCONFIRMED, StopPhase.FAILED
STOP = f"POST /v2/pods/{POD}/action"
DELETE = f"DELETE /v2/pods/{POD}"


def phases(steps: list[StopProgress]) -> list[StopPhase]:
    return [step.phase for step in steps]


def calls(world: World, what: str) -> int:
    return world.server.requests.count(what)


async def test_a_park_is_requested_then_confirmed_then_off(world: World) -> None:
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert "status RUNNING: requested, not yet confirmed" in steps[0].text
    assert steps[1].at >= steps[0].at + 2, "confirmed before the provider said so"
    assert "keeps billing: volume disk /workspace, 100 GB: $0.0274/h" in steps[2].text
    assert [change.action for change in world.changes] == ["stop"]


async def test_a_destroy_is_confirmed_by_404_and_absence(world: World) -> None:
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert steps[2].text == "compute off, no other charges found"
    assert calls(world, DELETE) == 1
    assert world.server.requests[-1] == "GET /v2/pods"


async def test_a_destroy_names_the_network_volume_that_goes_on(world: World) -> None:
    world.server.pods[POD].networks = (("vol1", "/net"),)
    world.server.add_volume("vol1", 100)
    await world.read()
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert steps[-1].text == (
        "compute off; keeps billing: network volume vol1 at /net: $0.0096/h until the volume is deleted"
    )


async def test_already_stopped_counts_only_once_a_reading_agrees(world: World) -> None:
    await world.carry_out(BillingVerb.PARK)
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert "not available while pod is EXITED" in steps[0].text


async def test_a_409_that_no_reading_confirms_has_failed(world: World) -> None:
    world.server.pods[POD].locked = True
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, FAILED]
    assert "the pod is locked" in steps[-1].text
    assert "RUNNING (locked)" in steps[-1].text


async def test_a_second_destroy_is_confirmed_not_assumed(world: World) -> None:
    await world.carry_out(BillingVerb.DESTROY)
    assert phases(await world.carry_out(BillingVerb.DESTROY)) == [REQUESTED, CONFIRMED, METER_OFF]
    world.server.inject_faults(InjectedFault(on="GET /v2/pods", cut=5, times=-1))
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert phases(steps) == [REQUESTED, UNCONFIRMED]


async def test_a_200_that_stops_nothing_ends_unconfirmed(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=STOP, raw=b'{"id": "x", "status": "EXITED"}'))
    world.server.inject_faults(InjectedFault(on="GET /v2/pods/", change=_running, times=-1))
    steps = await world.carry_out(BillingVerb.PARK, timeout_s=9)
    assert phases(steps) == [REQUESTED, UNCONFIRMED]
    assert "state unknown after 9 s" in steps[-1].text
    assert f"check the console: {world.server.base_url}" in steps[-1].text


async def test_a_lost_answer_is_followed_up_and_the_call_not_repeated(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=STOP, act=True, cut=3))
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert "not acknowledged" in steps[0].text
    assert calls(world, STOP) == 1


async def test_a_500_after_acting_is_followed_up(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=DELETE, act=True, status=500))
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert calls(world, DELETE) == 1


async def test_a_500_that_did_nothing_ends_unconfirmed(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=DELETE, status=500))
    assert phases(await world.carry_out(BillingVerb.DESTROY)) == [REQUESTED, UNCONFIRMED]
    assert calls(world, DELETE) == 1


@pytest.mark.parametrize("status", [401, 403, 422, 429])
async def test_a_refused_call_has_failed_and_nothing_was_done(world: World, status: int) -> None:
    world.server.inject_faults(InjectedFault(on=STOP, status=status))
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [FAILED]
    assert "nothing was done" in steps[0].text
    assert world.changes == []


async def test_no_connection_has_failed_for_sure(world: World) -> None:
    await world.server.stop()
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [FAILED]
    assert "nothing was sent" in steps[0].text


async def test_bad_readings_in_between_are_waited_out(world: World) -> None:
    world.server.inject_faults(
        InjectedFault(on="GET /v2/pods/", status=500),
        InjectedFault(on="GET /v2/pods/", status=429, headers={"Retry-After": "3"}),
        InjectedFault(on="GET /v2/pods/", raw=b"?"),
    )
    assert phases(await world.carry_out(BillingVerb.PARK)) == [REQUESTED, CONFIRMED, METER_OFF]


async def test_a_park_that_finds_the_machine_gone_has_failed(world: World) -> None:
    await world.read()
    world.server.pods[POD].status = "TERMINATED"
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, FAILED]
    assert "destroyed, not parked" in steps[-1].text


async def test_stopped_with_unknown_storage_never_says_meter_off(world: World) -> None:
    world.server.inject_faults(InjectedFault(on="GET /v2/pods/", change=_no_mounts, times=-1))
    steps = await world.carry_out(BillingVerb.PARK)
    assert phases(steps) == [REQUESTED, CONFIRMED, UNCONFIRMED]
    assert "stopped, but not the remaining charges" in steps[-1].text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verb": BillingVerb.DESTROY}, "for verb destroy, not for park"),
        ({"instance": "other"}, "for instance other"),
        ({"kind": "vast"}, "for provider vast, not for runpod"),
        ({"account": "default@vendor"}, "for account default@vendor, not for DEMO_KEY@http"),
        ({"expires": 1.0}, "expired"),
        ({"expires": float("nan")}, "expired"),
        ({"nonce": ""}, "no nonce"),
    ],
)
async def test_a_permit_for_something_else_sends_nothing(
    world: World, change: dict[str, Any], why: str
) -> None:
    permit = world.permit(BillingVerb.PARK)
    with pytest.raises(PermitRefused, match=why):
        await world.provider.stop(msgspec.structs.replace(permit, **change))
    assert world.server.requests == []
    await world.provider.stop(permit)
    assert world.server.requests == [STOP], "what was refused did not use it up"


async def test_a_permit_is_used_once_whatever_came_of_it(world: World) -> None:
    permit = world.permit(BillingVerb.PARK)
    world.server.inject_faults(InjectedFault(on=STOP, status=500))
    with pytest.raises(Unreachable):
        await world.provider.stop(permit)
    for provider in (world.provider, world.providers.open_control_plane(world.provider.ref)):
        with pytest.raises(PermitRefused, match="used already"):
            await provider.stop(permit)
    assert world.server.requests == [STOP]


async def test_another_account_with_the_same_id_does_not_take_the_permit(world: World) -> None:
    """Twice the same id, at one server and with one key even: the fleet file names the key by another variable."""
    providers = Providers(clock=world.clock, env={"OTHER_KEY": world.server.key})
    other = providers.open_control_plane(
        msgspec.structs.replace(world.provider.ref, key_env="OTHER_KEY")
    )
    with pytest.raises(PermitRefused, match=r"for account DEMO_KEY@.*, not for OTHER_KEY@"):
        await other.destroy(world.permit(BillingVerb.DESTROY))
    await providers.close()
    assert world.server.requests == []


async def test_a_permit_expires(world: World) -> None:
    permit = msgspec.structs.replace(world.permit(BillingVerb.DESTROY), expires=steady_time())
    with pytest.raises(PermitRefused, match="expired"):
        await world.provider.destroy(permit)
    assert world.server.requests == []


async def test_what_is_described_is_what_is_sent(world: World) -> None:
    said = world.provider.describe_call(BillingVerb.PARK, POD)
    assert said == f'POST {world.server.base_url}/v2/pods/{POD}/action {{"action":"stop"}}'
    assert (
        world.provider.describe_call(BillingVerb.DESTROY, POD)
        == f"DELETE {world.server.base_url}/v2/pods/{POD}"
    )
    await world.provider.stop(world.permit(BillingVerb.PARK))
    await world.provider.destroy(world.permit(BillingVerb.DESTROY))
    assert world.server.requests == [STOP, DELETE]


def _running(data: object) -> object:
    assert isinstance(data, dict)
    return {**data, "status": "RUNNING"}


def _no_mounts(data: object) -> object:
    assert isinstance(data, dict)
    return {**data, "mounts": None}


async def until_read(world: World) -> None:
    """Read the pod until that succeeds."""
    while (await world.read()).error is not None:
        pass


async def test_a_timeout_after_the_server_acted_is_followed_up(world: World) -> None:
    """The one test that waits for a real timeout, since a timeout is what it is about."""
    impatient = Providers(clock=world.clock, env={"DEMO_KEY": world.server.key}, timeout_s=1.0)
    world.provider = impatient.open_control_plane(
        ProviderRef("runpod", POD, world.server.base_url, "DEMO_KEY")
    )
    # The connection is open then: a machine that is busy for half the timeout cannot refuse it, which is not "sent".
    await until_read(world)
    world.server.inject_faults(InjectedFault(on=DELETE, act=True, hang=True))
    steps = await world.carry_out(BillingVerb.DESTROY)
    await impatient.close()
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF]
    assert "ReadTimeout" in steps[0].text
    assert calls(world, DELETE) == 1


async def test_a_reading_that_failed_confirms_nothing_whatever_else_it_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stale(instance: str) -> Meter:
        return Meter(MeterKind.NONE, Lifecycle.STOPPED, at=world.clock(), error="timed out")

    monkeypatch.setattr(world.provider, "read", stale)
    assert phases(await world.carry_out(BillingVerb.PARK, timeout_s=4)) == [REQUESTED, UNCONFIRMED]
