"""Evidence → permit → call → confirmation, with the provider's own state in between."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import (
    Consent,
    Situation,
    build_review,
    evaluate_evidence,
    find_storage_tiers,
    gather_evidence,
    list_review_changes,
)
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    Evidence,
    Permit,
    ReceivedTimes,
    Refusal,
    StopPhase,
    steady_time,
)
from rgt_tui.providers import carry_out
from tests.contract.providers.conftest import POD, World
from tests.unit.gate.builders import HELLO, PROFILE, box, cell, told

replace = msgspec.structs.replace


async def look(
    world: World, verb: BillingVerb, typed: str = "autodl-demo"
) -> tuple[Situation, Evidence]:
    provider = world.provider
    now = steady_time()
    state = box(
        cell(),
        spec=replace(box().spec, provider=provider.ref, tiers={"/net": "network-volume"}),
        hello=replace(HELLO, identity={"RUNPOD_POD_ID": POD}),
        seen=ReceivedTimes(sample=now, queues={"/root/job": now}),
    )
    given = Situation(
        state=state,
        meter=await provider.read(POD),
        meter_at=now,
        profile=PROFILE,
        action=provider.native_action(verb),
        told=replace(told(), at=now),
        now=world.clock(),
        ticks=steady_time(),
    )
    return given, gather_evidence(given, verb, Consent(typed=typed))


async def shown(world: World, verb: BillingVerb) -> ActionReview:
    given, found = await look(world, verb, typed="")
    return build_review(
        found,
        given,
        native_label=world.provider.native_label(verb),
        will_send=world.provider.describe_call(verb, POD),
        known=find_storage_tiers(given, verb)[0],
        keeps_billing=world.provider.list_kept_charges(verb, POD),
    )


async def test_a_quiet_finished_box_is_parked_and_then_destroyed(world: World) -> None:
    for verb, label in ((BillingVerb.PARK, "Stop"), (BillingVerb.DESTROY, "Terminate")):
        seen = await shown(world, verb)
        assert (seen.refusals, seen.native_label) == ((), label)
        permit = evaluate_evidence((await look(world, verb))[1], steady_time())
        assert isinstance(permit, Permit), permit
        steps = carry_out(world.provider, permit, clock=world.clock, sleep=world.clock.advance)
        assert [step.phase async for step in steps] == [
            StopPhase.REQUESTED,
            StopPhase.CONFIRMED,
            StopPhase.METER_OFF,
        ]
    assert [change.action for change in world.changes] == ["stop", "terminate"]


async def test_a_state_that_changed_after_the_review_refuses(world: World) -> None:
    before = await shown(world, BillingVerb.PARK)
    world.server.pods[POD].status = "EXITED"  # Someone stopped it in the console.
    assert (
        list_review_changes(before, await shown(world, BillingVerb.PARK))[0]
        == "the provider's status was RUNNING and is EXITED now"
    )
    refusal = evaluate_evidence((await look(world, BillingVerb.PARK))[1], steady_time())
    assert isinstance(refusal, Refusal)
    assert "does not accept stop now" in refusal.reasons[0]


async def test_a_permit_that_was_kept_too_long_sends_nothing(world: World) -> None:
    permit = evaluate_evidence((await look(world, BillingVerb.DESTROY))[1], steady_time())
    assert isinstance(permit, Permit)
    permit = msgspec.structs.replace(permit, expires=steady_time() - 1)
    asked = len(world.server.requests)
    steps = carry_out(world.provider, permit, clock=world.clock, sleep=world.clock.advance)
    (only,) = [step async for step in steps]
    assert only.phase is StopPhase.FAILED
    assert "expired" in only.text
    assert len(world.server.requests) == asked


async def test_a_provider_that_cannot_be_read_refuses(world: World) -> None:
    await world.server.stop()
    refusal = evaluate_evidence((await look(world, BillingVerb.DESTROY))[1], steady_time())
    assert isinstance(refusal, Refusal)
    assert any("could not be read" in reason for reason in refusal.reasons)
