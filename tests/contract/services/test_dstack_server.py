"""The dstack adapter and a real dstack server."""

from __future__ import annotations

import pytest

import rgt_tui.providers.dstack
from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, StopPhase
from rgt_tui.providers import Providers
from tests.contract.services.conftest import LIVE, Recorded, Service, check_recording

PENDING, PROVISIONING, IDLE, BUSY, TERMINATING, TERMINATED = (
    f"main/lab/{number}" for number in range(6)
)
PAID = MeterKind.COMPUTE_AND_STORAGE


async def test_only_a_terminated_instance_is_gone(dstack: Service) -> None:
    expected = {
        PENDING: ("pending", Lifecycle.STARTING, MeterKind.UNKNOWN),
        PROVISIONING: ("provisioning", Lifecycle.STARTING, PAID),
        IDLE: ("idle", Lifecycle.RUNNING, PAID),
        BUSY: ("busy", Lifecycle.RUNNING, PAID),
        TERMINATING: ("terminating", Lifecycle.RUNNING, MeterKind.UNKNOWN),
        TERMINATED: ("terminated", Lifecycle.GONE, MeterKind.NONE),
    }
    for instance, (status, lifecycle, kind) in expected.items():
        meter = await dstack.box(instance).read(instance)
        assert (meter.native_status, meter.lifecycle, meter.kind, meter.error) == (
            status,
            lifecycle,
            kind,
            None,
        )
    listed = {one.id: one for one in await dstack.box(IDLE).list()}
    assert sorted(listed) == ["main/again/0", *list(expected)[:5]]
    idle = listed[IDLE]
    assert (idle.gpu, idle.gpu_count, idle.region, idle.host) == (
        "RTX4090",
        1,
        "runpod EU-RO-1",
        "203.0.113.3",
    )
    assert idle.meter.per_hour == 0.69


async def test_a_run_names_the_machine_of_the_platform_below(dstack: Service) -> None:
    listed = {one.id: one for one in await dstack.box(BUSY).list()}
    assert listed[BUSY].below == "k3v9q0x1fake04"
    assert listed[IDLE].below is None


async def test_all_pages_of_the_list_are_read(
    dstack: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rgt_tui.providers.dstack, "PAGE", 3)
    assert len(await dstack.box(IDLE).list()) == 6


async def test_a_number_that_was_given_again_means_the_living_instance(dstack: Service) -> None:
    meter = await dstack.box("main/again/0").read("main/again/0")
    assert (meter.native_status, meter.kind) == ("idle", PAID)


async def test_what_the_list_never_had_is_not_free(dstack: Service) -> None:
    for instance in ("main/lab/99", "other/lab/0"):
        meter = await dstack.box(instance).read(instance)
        assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.GONE)
        assert "never seen" in meter.source


async def test_a_wrong_token_is_named_as_such(dstack: Service) -> None:
    meter = await dstack.box(IDLE, token="wrong").read(IDLE)
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN)
    assert "refused the key (403 Invalid token)" in (meter.error or "")


async def test_a_volume_is_listed_beside_the_instances(dstack: Service) -> None:
    box = dstack.box(IDLE)
    (volume,) = await Providers.find_account(dstack.opened[-1], box.ref).list_leftovers()
    assert (volume.id, volume.region) == ("main/test-volume", "runpod EU-RO-1")


async def test_an_instance_that_a_run_uses_is_not_deleted(dstack: Service) -> None:
    box = dstack.box(BUSY)
    assert (await box.read(BUSY)).kind is PAID
    (step,) = await dstack.carry_out(box, BillingVerb.DESTROY)
    assert step.phase is StopPhase.FAILED
    assert "nothing was done" in step.text
    assert "Fleet instances are in use" in step.text


async def test_a_deleted_instance_is_gone_only_when_it_is_terminated(
    dstack: Service, real_dstack: Recorded | None
) -> None:
    """At last, because the server goes on to end all instances here: none of them exists."""
    box = dstack.box(IDLE)
    assert (await box.read(IDLE)).kind is PAID
    other = dstack.box(IDLE)
    if real_dstack is not None:
        real_dstack.work()
    steps = await dstack.carry_out(box, BillingVerb.DESTROY)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    meter = await other.read(IDLE)
    assert (meter.native_status, meter.lifecycle, meter.kind) == (
        "terminated",
        Lifecycle.GONE,
        MeterKind.NONE,
    )


@pytest.mark.services
def test_the_server_still_answers_as_recorded(real_dstack: Recorded | None) -> None:
    assert LIVE
    check_recording("dstack", real_dstack)
