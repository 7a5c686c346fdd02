"""The SkyPilot adapter and a real SkyPilot API server."""

from __future__ import annotations

import pytest

from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, StopPhase
from tests.contract.services.conftest import LIVE, Recorded, Service, check_recording

PAID = MeterKind.COMPUTE_AND_STORAGE
STEPS = [StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF]


async def test_the_list_shows_ones_own_clusters_with_their_price(skypilot: Service) -> None:
    listed = {one.id: one for one in await skypilot.box("on-aws").list()}
    assert {name: one.meter.kind for name, one in listed.items()} == {
        "begun": MeterKind.UNKNOWN,
        "on-aws": PAID,
        "on-lambda": PAID,
        "on-runpod": PAID,
        "rests": MeterKind.STORAGE_ONLY,
        "rests-somewhere": MeterKind.STORAGE_ONLY,
        "to-end": PAID,
    }
    aws = listed["on-aws"]
    assert (aws.gpu, aws.gpu_count, aws.region) == ("A10G", 1, "AWS us-east-1")
    assert aws.meter.per_hour == pytest.approx(1.006, abs=0.001)
    assert "catalogue" in (aws.meter.doubt or "")


async def test_a_status_that_the_cloud_confirms_is_believed(skypilot: Service) -> None:
    for name, lifecycle, kind in (
        ("on-aws", Lifecycle.RUNNING, PAID),
        ("rests", Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
    ):
        meter = await skypilot.box(name).read(name)
        assert (meter.lifecycle, meter.kind, meter.error) == (lifecycle, kind, None)


async def test_a_stop_that_the_cloud_does_not_confirm_is_not_believed(skypilot: Service) -> None:
    """The server has no key for this cloud, and answers with the last status as if it were fresh."""
    meter = await skypilot.box("rests-somewhere").read("rests-somewhere")
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert meter.native_status == "STOPPED, not confirmed by the cloud"
    meter = await skypilot.box("on-lambda").read("on-lambda")
    assert (meter.lifecycle, meter.kind) == (Lifecycle.RUNNING, PAID)
    assert "could not reach the cloud" in (meter.doubt or "")


async def test_a_cluster_that_never_existed_is_not_free(skypilot: Service) -> None:
    meter = await skypilot.box("nobody").read("nobody")
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.GONE)


@pytest.mark.parametrize("name", ["on-lambda", "on-runpod"])
async def test_a_stop_that_the_cloud_does_not_have_is_refused_in_words(
    skypilot: Service, name: str
) -> None:
    box = skypilot.box(name)
    assert (await box.read(name)).kind is PAID
    (step,) = await skypilot.carry_out(box, BillingVerb.PARK)
    assert step.phase is StopPhase.FAILED
    assert "nothing was done" in step.text
    assert f"Stopping is currently not supported for {name[3:]}." in step.text
    assert f"sky down {name}" in step.text
    assert "\x1b" not in step.text and "[33m" not in step.text


async def test_a_stop_of_what_does_not_exist_is_settled_by_reading(skypilot: Service) -> None:
    steps = await skypilot.carry_out(skypilot.box("nobody"), BillingVerb.PARK)
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.FAILED]
    assert "Cluster 'nobody' does not exist" in steps[0].text


async def test_a_start_is_followed_to_its_result(skypilot: Service) -> None:
    assert "succeeded" in await skypilot.box("on-lambda").start()


async def test_a_stop_leaves_the_disks(skypilot: Service) -> None:
    box = skypilot.box("on-aws")
    assert (await box.read("on-aws")).kind is PAID
    steps = await skypilot.carry_out(box, BillingVerb.PARK)
    assert [step.phase for step in steps] == STEPS
    assert "the request has succeeded" in steps[0].text
    assert "disks of the stopped cluster" in steps[-1].text


async def test_a_down_leaves_nothing(skypilot: Service) -> None:
    box = skypilot.box("to-end")
    assert (await box.read("to-end")).kind is PAID
    steps = await skypilot.carry_out(box, BillingVerb.DESTROY)
    assert [step.phase for step in steps] == STEPS
    assert (await box.read("to-end")).lifecycle is Lifecycle.GONE


@pytest.mark.services
def test_the_server_still_answers_as_recorded(real_skypilot: Recorded | None) -> None:
    assert LIVE
    check_recording("skypilot", real_skypilot)
