"""Evidence → permit → call → confirmation, with the provider's own state in between."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import changes, evaluate, gather, review
from rgt_tui.model.evidence import Evidence, Permit, Refusal, Review, StopPhase, Verb, steady
from rgt_tui.model.money import Meter
from rgt_tui.providers import carry_out
from tests.contract.providers.conftest import POD, START, World
from tests.unit.gate.builders import PROFILE, box, cell

BOX = box(cell(), sample_at=START)


async def look(world: World, verb: Verb, typed: str = "autodl-demo") -> tuple[Evidence, Meter]:
    provider = world.provider
    meter = await provider.read(POD)
    found = gather(
        msgspec.structs.replace(
            BOX, sample_at=world.clock(), spec=msgspec.structs.replace(BOX.spec, provider=provider.ref)
        ),
        meter,
        PROFILE,
        verb,
        world.clock(),
        action=provider.action(verb),
        typed=typed,
        known_tiers={**provider.tiers(POD), "/net": "network-volume"},
    )
    return found, meter


async def shown(world: World, verb: Verb) -> Review:
    found, meter = await look(world, verb, typed="")
    return review(
        found,
        BOX,
        meter,
        PROFILE,
        native_label=world.provider.native_label(verb),
        will_send=world.provider.describe(verb, POD),
        now=world.clock(),
        keeps_billing=world.provider.keeps_billing(verb, POD),
        known_tiers=world.provider.tiers(POD),
    )


async def test_a_quiet_finished_box_is_parked_and_then_destroyed(world: World) -> None:
    for verb, label in ((Verb.PARK, "Stop"), (Verb.DESTROY, "Terminate")):
        seen = await shown(world, verb)
        assert (seen.refusals, seen.native_label) == ((), label)
        permit = evaluate((await look(world, verb))[0], world.clock(), steady())
        assert isinstance(permit, Permit), permit
        steps = carry_out(world.provider, permit, clock=world.clock, sleep=world.clock.advance)
        assert [step.phase async for step in steps] == [
            StopPhase.REQUESTED,
            StopPhase.CONFIRMED,
            StopPhase.METER_OFF,
        ]
    assert [change.action for change in world.changes] == ["stop", "terminate"]


async def test_a_state_that_changed_after_the_review_refuses(world: World) -> None:
    before = await shown(world, Verb.PARK)
    world.server.pods[POD].status = "EXITED"  # Someone stopped it in the console.
    assert (
        changes(before, await shown(world, Verb.PARK))[0] == "the provider said RUNNING, and says EXITED now"
    )
    refusal = evaluate((await look(world, Verb.PARK))[0], world.clock(), steady())
    assert isinstance(refusal, Refusal)
    assert "does not accept stop now" in refusal.reasons[0]


async def test_a_permit_that_was_kept_too_long_sends_nothing(world: World) -> None:
    permit = evaluate((await look(world, Verb.DESTROY))[0], world.clock(), steady())
    assert isinstance(permit, Permit)
    permit = msgspec.structs.replace(permit, expires=steady() - 1)
    asked = len(world.server.requests)
    steps = carry_out(world.provider, permit, clock=world.clock, sleep=world.clock.advance)
    (only,) = [step async for step in steps]
    assert only.phase is StopPhase.FAILED
    assert "expired" in only.text
    assert len(world.server.requests) == asked


async def test_a_provider_that_cannot_be_read_refuses(world: World) -> None:
    await world.server.stop()
    refusal = evaluate((await look(world, Verb.DESTROY))[0], world.clock(), steady())
    assert isinstance(refusal, Refusal)
    assert any("could not be read" in reason for reason in refusal.reasons)
