"""Whether an answer proves that nothing happened: only where the vendor says so; else it was sent, and nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import BillingVerb, ProviderRef, StopPhase, StopProgress
from rgt_tui.providers import KINDS, AnswerProof, AuthError, NotFound, ProviderError, Unreachable
from rgt_tui.providers.answers import action_proof, answers_of
from tests.contract.providers.conftest import POD, World
from tests.contract.providers.fakes.renting_runpod import RentingRunPod

REQUESTED, CONFIRMED, METER_OFF = StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF
UNCONFIRMED, FAILED = StopPhase.UNCONFIRMED, StopPhase.FAILED
CALLS = {
    BillingVerb.PARK: f"POST /v2/pods/{POD}/action",
    BillingVerb.DESTROY: f"DELETE /v2/pods/{POD}",
}
DOUBTFUL: dict[str, dict[str, Any]] = {
    "a body that is no JSON": {"raw": b"<html>it works</html>"},
    "a body of another shape": {"raw": b"[]"},
    "too much of a body": {"raw": b" " * (9 << 20)},
    "a body that ends too early": {"raw": b'{"id": "x"}', "cut": 5},
    "a header alone": {"raw": b'{"id": "x"}', "cut": 0},
    "a compressed body that is none": {"raw": b"xx", "headers": {"Content-Encoding": "gzip"}},
    "a redirect": {"status": 302, "headers": {"Location": "/v2/elsewhere"}},
    "a permanent redirect": {"status": 308, "headers": {"Location": "/v2/elsewhere"}},
    "request time-out": {"status": 408},
    "bad request": {"status": 400},
    "gone": {"status": 410},
    "too early": {"status": 425},
    "a teapot": {"status": 418},
    "server error": {"status": 500},
    "bad gateway": {"status": 502},
    "gateway time-out": {"status": 504},
}


def phases(steps: list[StopProgress]) -> list[StopPhase]:
    return [step.phase for step in steps]


def sent(world: World) -> list[str]:
    return [what for what in world.server.requests if not what.startswith("GET ")]


@pytest.mark.parametrize("verb", list(BillingVerb))
@pytest.mark.parametrize("fault", DOUBTFUL.values(), ids=DOUBTFUL.keys())
async def test_after_a_doubtful_answer_it_is_asked_and_a_done_one_is_seen(
    world: World, verb: BillingVerb, fault: dict[str, Any]
) -> None:
    await world.read()
    world.server.inject_faults(InjectedFault(on=CALLS[verb], act=True, **fault))
    steps = await world.carry_out(verb)
    assert phases(steps) == [REQUESTED, CONFIRMED, METER_OFF], steps
    assert "nothing was done" not in " ".join(step.text for step in steps)
    assert sent(world) == [CALLS[verb]]


@pytest.mark.parametrize(
    "status", sorted(fault["status"] for fault in DOUBTFUL.values() if "status" in fault)
)
async def test_after_a_doubtful_answer_what_was_not_done_stays_unknown(
    world: World, status: int
) -> None:
    world.server.inject_faults(InjectedFault(on=CALLS[BillingVerb.PARK], status=status))
    steps = await world.carry_out(BillingVerb.PARK, timeout_s=6)
    assert phases(steps) == [REQUESTED, UNCONFIRMED]
    assert "last shown: RUNNING" in steps[-1].text
    assert sent(world) == [CALLS[BillingVerb.PARK]]


@pytest.mark.parametrize("verb", list(BillingVerb))
@pytest.mark.parametrize("status", [401, 403, 422, 429])
async def test_what_the_vendor_documents_as_a_refusal_did_nothing(
    world: World, verb: BillingVerb, status: int
) -> None:
    world.server.inject_faults(InjectedFault(on=CALLS[verb], status=status))
    steps = await world.carry_out(verb)
    assert phases(steps) == [FAILED]
    assert steps[0].text.startswith("nothing was done")
    assert world.changes == []


@pytest.mark.parametrize("status", [404, 409])
@pytest.mark.parametrize("acted", [False, True])
async def test_404_and_409_are_settled_by_get_and_list(
    world: World, status: int, acted: bool
) -> None:
    await world.read()
    world.server.inject_faults(
        InjectedFault(on=CALLS[BillingVerb.DESTROY], status=status, act=acted)
    )
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert phases(steps) == ([REQUESTED, CONFIRMED, METER_OFF] if acted else [REQUESTED, FAILED])
    assert sent(world) == [CALLS[BillingVerb.DESTROY]]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_the_key(world: World, status: int) -> None:
    other = RentingRunPod(key=world.server.key, clock=world.clock, sleep=world.clock.sleep)
    await other.start()
    other.add_pod(POD, "another's")
    away = {"Location": other.base_url + f"/v2/pods/{POD}"}
    world.server.inject_faults(
        InjectedFault(on=CALLS[BillingVerb.DESTROY], status=status, headers=away)
    )
    world.server.inject_faults(InjectedFault(on="GET ", status=status, headers=away, times=-1))
    try:
        steps = await world.carry_out(BillingVerb.DESTROY, timeout_s=4)
        assert other.requests == []
        assert other.pods[POD].status == "RUNNING"
    finally:
        await other.stop()
    assert phases(steps) == [REQUESTED, UNCONFIRMED]
    assert "a redirect, which is not followed" in steps[0].text


async def test_a_key_that_is_missing_sends_nothing(world: World) -> None:
    world.provider = world.providers.open_control_plane(
        ProviderRef("runpod", POD, world.server.base_url, "NOT_SET")
    )
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert phases(steps) == [FAILED]
    assert world.server.requests == []


def test_each_provider_has_a_row_per_verb_and_no_2xx_or_5xx_in_it_proves_anything() -> None:
    for kind in KINDS:
        rows = answers_of(kind)
        assert set(rows) == set(BillingVerb), kind
        for row in rows.values():
            assert not [
                code
                for code in row
                if isinstance(code, int) and (not 400 <= code < 500 or code == 408)
            ], kind
    assert answers_of("of tomorrow") == {}


def test_what_no_row_names_is_unknown() -> None:
    never = Unreachable("no connection", sent=False)
    for kind in ("runpod", "of tomorrow"):
        for verb in BillingVerb:
            assert action_proof(kind, verb, never) is AnswerProof.NOTHING
            assert action_proof(kind, verb, ProviderError("?")) is AnswerProof.MAYBE
            assert action_proof(kind, verb, ProviderError("?", status=451)) is AnswerProof.MAYBE
            assert action_proof(kind, verb, NotFound("?", status=404)) is AnswerProof.ASK
    assert (
        action_proof("runpod", BillingVerb.PARK, AuthError("?", status=401)) is AnswerProof.NOTHING
    )
    assert (
        action_proof("of tomorrow", BillingVerb.PARK, AuthError("?", status=401))
        is AnswerProof.MAYBE
    )
