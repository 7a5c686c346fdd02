"""Platforms whose machines no call tells of: a person clicks, or one call releases, and nothing ever says *off*."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import SETTLE_SECONDS, BoxSession, ConnectLimit, FleetMeters, outcome_of_action
from rgt_tui.fleet.renting import search_offers
from rgt_tui.gate import InstanceTarget, Journal
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    RentalRequest,
    StopPhase,
    StopProgress,
)
from rgt_tui.profiles import load_profile
from rgt_tui.providers import (
    IN_BOX,
    UNTOLD,
    AnswerProof,
    PermitRefused,
    ProviderError,
    Providers,
    carry_out,
)
from rgt_tui.providers.answers import action_proof
from rgt_tui.providers.console import SILENT_S, BoxSighting, ConsoleBox, judge_sighting
from rgt_tui.providers.registry import CONSOLES
from rgt_tui.ssh import AgentBundle
from tests.contract.providers.conftest import START, Clock, permit_for
from tests.contract.providers.fakes.local_featurize import LocalFeaturize

KEY = "SOME_KEY"


def permit(ref: ProviderRef, verb: BillingVerb) -> Permit:
    return permit_for(ref, verb)


async def steps_of(box: Any, verb: BillingVerb, clock: Clock) -> list[StopProgress]:
    steps = carry_out(
        box, permit(box.ref, verb), clock=clock, sleep=clock.advance, timeout_s=6.0, poll_s=1.0
    )
    return [step async for step in steps]


def console(kind: str, clock: Clock, sight: BoxSighting | None) -> ConsoleBox:
    made = Providers(clock=clock, env={}).open_control_plane(ProviderRef(kind, "instance-7"))
    assert isinstance(made, ConsoleBox)
    made.sight = lambda: sight
    return made


WORDS = {
    (
        "gpushare",
        BillingVerb.PARK,
    ): "console: 关机 (stop) · on the box: shutdown (instance-7, https://gpushare.com)",
    ("gpushare", BillingVerb.DESTROY): "console: 释放",
    ("matpool", BillingVerb.DESTROY): "console: 停止并释放",
    ("lanrui", BillingVerb.PARK): "console: 停止",
    ("paperspace-gradient", BillingVerb.PARK): "console: Stop",
    ("paperspace-gradient", BillingVerb.DESTROY): "console: Delete",
}


@pytest.mark.parametrize(("kind", "verb"), WORDS)
@pytest.mark.parametrize("answers", [True, False])
async def test_it_says_what_to_click_sends_nothing_and_never_calls_it_off(
    kind: str, verb: BillingVerb, answers: bool
) -> None:
    clock = Clock()
    box = console(kind, clock, BoxSighting(answers=answers, heard=START - 300))
    assert f"nothing; you do it: {WORDS[kind, verb]}" in box.describe_call(verb, "instance-7")
    steps = await steps_of(box, verb, clock)
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]
    assert f"rgt sends nothing; do it yourself now: {WORDS[kind, verb]}" in steps[0].text
    assert ("answers over SSH" if answers else "probably stopped, not confirmed") in steps[-1].text
    assert "check the console" in steps[-1].text


@pytest.mark.parametrize(
    ("sight", "life", "words"),
    [
        (None, Lifecycle.UNKNOWN, "rgt does not check whether it answers"),
        (BoxSighting(answers=True, heard=START), Lifecycle.RUNNING, "answers over SSH"),
        (BoxSighting(answers=False), Lifecycle.UNKNOWN, "not heard of so far"),
        (
            BoxSighting(answers=False, heard=START - SILENT_S + 1),
            Lifecycle.UNKNOWN,
            "does not answer over SSH since",
        ),
        (
            BoxSighting(answers=False, heard=START - SILENT_S),
            Lifecycle.UNKNOWN,
            ": probably stopped, not confirmed: check the console",
        ),
    ],
)
def test_what_is_seen_of_a_box_never_says_that_it_is_off(
    sight: BoxSighting | None, life: Lifecycle, words: str
) -> None:
    found, said = judge_sighting(sight, START)
    assert found is life
    assert words in said
    assert ("probably" in said) == ("probably" in words)


@pytest.mark.parametrize("kind", CONSOLES)
async def test_what_only_the_console_tells_is_said(kind: str) -> None:
    providers = Providers(clock=Clock(), env={})
    ref = ProviderRef(kind, "instance-7")
    account, box = providers.find_account(ref), providers.open_control_plane(ref)
    assert account.open_market() is None
    for asked in (account.list_leftovers(), box.list(), box.start()):
        with pytest.raises(ProviderError) as caught:
            await asked
        assert not caught.value.sent
        assert load_profile(kind).name in str(caught.value)
    meter = await box.read("instance-7")
    assert (meter.kind, meter.per_hour, meter.error) == (MeterKind.UNKNOWN, None, None)


async def test_whoever_rents_nothing_is_not_missed_by_a_search_that_did_not_name_it() -> None:
    found = await search_offers(
        Providers(env={}), [ProviderRef("gpushare", "")], RentalRequest(gpu="A100")
    )
    assert found.candidates == ()
    (trouble,) = found.troubles
    assert (trouble.no_market, trouble.refused) == (True, True)
    assert "rents no machines by its API" in trouble.text
    assert "your public key: after each start: ssh-copy-id" in trouble.text


@dataclass
class Featurize:
    """Everything a test needs."""

    clock: Clock
    server: LocalFeaturize
    providers: Providers
    ref: ProviderRef

    def sent(self) -> list[str]:
        return self.server.requests


@pytest.fixture
async def featurize() -> AsyncIterator[Featurize]:
    clock = Clock()
    server = LocalFeaturize(clock=clock, settle_s=0.0)
    server.instances.add("vm-7")
    await server.start()
    providers = Providers(clock=clock, env={KEY: server.key}, timeout_s=10.0)
    yield Featurize(
        clock, server, providers, ProviderRef("featurize", "vm-7", server.base_url, KEY)
    )
    await providers.close()
    await server.stop()


CALL = "POST /bus/api/v1/virtual_machine/vm-7/release"


async def test_an_instance_is_released_by_one_call_that_nothing_confirms(
    featurize: Featurize,
) -> None:
    box = featurize.providers.open_control_plane(featurize.ref)
    assert (
        box.describe_call(BillingVerb.DESTROY, "vm-7")
        == f"POST {featurize.server.base_url}{CALL.removeprefix('POST ')}"
    )
    meter = await box.read("vm-7")
    assert box.native_action(BillingVerb.DESTROY) in meter.actions
    steps = await steps_of(box, BillingVerb.DESTROY, featurize.clock)
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]
    assert "no API call shows whether the instance still exists" in steps[0].text
    assert featurize.sent() == [CALL]
    await featurize.server.wait_settled()
    assert featurize.server.instances == set()


async def test_an_instance_that_cannot_be_parked_says_so(featurize: Featurize) -> None:
    box = featurize.providers.open_control_plane(featurize.ref)
    assert "Featurize has no action that would park a box" in box.describe_call(
        BillingVerb.PARK, "vm-7"
    )
    assert box.native_action(BillingVerb.PARK) != box.native_action(BillingVerb.DESTROY)


@pytest.mark.parametrize("strange", ["../user", "vm 7", "vm-7/release?x="])
async def test_what_cannot_be_an_id_is_not_sent(featurize: Featurize, strange: str) -> None:
    ref = msgspec.structs.replace(featurize.ref, instance=strange)
    with pytest.raises(PermitRefused, match="not a Featurize id"):
        await featurize.providers.open_control_plane(ref).destroy(permit(ref, BillingVerb.DESTROY))
    assert featurize.sent() == []


async def test_the_words_of_an_error_at_200_are_kept(featurize: Featurize) -> None:
    ref = msgspec.structs.replace(featurize.ref, instance="vm-8")
    box = featurize.providers.open_control_plane(ref)
    with pytest.raises(ProviderError, match="instance not found") as caught:
        await box.destroy(permit(ref, BillingVerb.DESTROY))
    assert (caught.value.code, caught.value.status) == ("40001", 200)
    assert action_proof("featurize", BillingVerb.DESTROY, caught.value) is AnswerProof.MAYBE


async def test_the_key_goes_in_its_own_header(featurize: Featurize) -> None:
    providers = Providers(clock=featurize.clock, env={KEY: "another"}, timeout_s=10.0)
    with pytest.raises(ProviderError, match="refused the key"):
        await providers.open_control_plane(featurize.ref).destroy(
            permit(featurize.ref, BillingVerb.DESTROY)
        )
    await providers.close()
    assert featurize.server.instances == {"vm-7"}


def session(ref: ProviderRef, per_hour: float | None) -> BoxSession:
    profile = IN_BOX.get(ref.kind, ref.kind)
    spec = BoxSpec(
        name="lab",
        host="127.0.0.1",
        profile=profile,
        provider=ref,
        per_hour=per_hour,
        currency="CNY",
    )
    bundle = AgentBundle(data=b"", digest="", filename="")
    return BoxSession(
        spec, load_profile(profile), bundle, ConnectLimit(), lambda: START, lambda _: None
    )


@pytest.mark.parametrize("kind", sorted(UNTOLD))
@pytest.mark.parametrize("per_hour", [1.98, None])
async def test_such_a_box_costs_what_the_fleet_file_says_and_is_not_asked(
    kind: str, per_hour: float | None
) -> None:
    clock = Clock()
    box = session(ProviderRef(kind, "vm-7"), per_hour)
    meters = FleetMeters({"lab": box}, seconds=60, clock=clock, say=print, env={})
    await meters.read_all()
    assert box.state.meter == Meter()
    box.state = msgspec.structs.replace(box.state, link=LinkState.LIVE, sample_at=clock.now)
    meters.count_prices()
    shown = box.state.meter
    assert (shown.kind, shown.per_hour, shown.currency) == (
        MeterKind.COMPUTE_AND_STORAGE,
        per_hour,
        "CNY",
    )
    assert (shown.native_status, shown.error) == ("answers over SSH", None)
    provider = meters.open_provider(box)
    assert provider is not None
    # What the gate reads keeps the price, and says what can be done.
    put = meters.store_reading(box, await provider.read("vm-7"))
    assert (put.per_hour, put.lifecycle, put.error) == (per_hour, Lifecycle.RUNNING, None)
    assert provider.native_action(BillingVerb.DESTROY) in put.actions
    clock.now += 600
    box.state = msgspec.structs.replace(box.state, link=LinkState.UNREACHABLE)
    meters.count_prices()
    silent = box.state.meter
    assert (silent.kind, silent.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN)
    assert silent.native_status is not None
    assert "probably stopped, not confirmed: check the console" in silent.native_status
    await meters.close()


@pytest.mark.parametrize(
    ("life", "settles"), [(Lifecycle.RUNNING, True), (Lifecycle.UNKNOWN, False)]
)
def test_a_state_that_nobody_knows_does_not_prove_that_it_was_not_done(
    tmp_path: Path, life: Lifecycle, settles: bool
) -> None:
    journal = Journal(tmp_path / "journal")
    with journal.lock_instance(
        InstanceTarget(kind="featurize", account="a", instance="vm-7"), "lab", BillingVerb.DESTROY
    ) as action:
        action.record_intent(CALL)
        action.record_sent(CALL)
    (still,), _ = journal.open_actions()
    assert (
        outcome_of_action(still, Meter(lifecycle=life, at=START), SETTLE_SECONDS) is not None
    ) == settles
