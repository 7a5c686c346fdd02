"""One creation call, never sent twice: every answer that a platform can give, and a crash at every state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.fleet import BoxSession, ConnectLimit, FleetMeters, OpenActions
from rgt_tui.fleet.renting import (
    Candidate,
    CreationOutcome,
    CreationResult,
    MachineRental,
    new_token,
    open_creations,
    search_offers,
)
from rgt_tui.fleet.renting.rental import account_target, market_of, ref_of
from rgt_tui.gate import ActionState, AuditLog, CreationRecord, Journal
from rgt_tui.health import assess_box
from rgt_tui.model import BoxSpec, ProviderRef, RentalRequest
from rgt_tui.profiles import load_profile
from rgt_tui.providers import Instance, Providers
from rgt_tui.providers.runpod_market import RunPodMarket
from rgt_tui.ssh import AgentBundle
from tests.contract.providers.fakes.renting_runpod import LocalGpu, RentingRunPod

KEY, NOW, BOX = "RGT_TEST_KEY", 1.8e9, "train-a"
WISH = RentalRequest(gpu="A100", disk_gb=50, public_key="ssh-ed25519 AAAA me")
CREATE = "POST /v2/pods"


@dataclass
class World:
    """A market, and what stands of its creations on this machine's disk."""

    server: RentingRunPod
    ref: ProviderRef
    providers: Providers
    journal: Journal
    rental: MachineRental
    said: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    folder: Path = Path()

    async def candidate(self, wish: RentalRequest = WISH) -> Candidate:
        found = await search_offers(self.providers, [self.ref], wish)
        assert found.troubles == ()
        return found.candidates[0]

    async def take(
        self, candidate: Candidate | None = None, *, typed: str = BOX, **given: Any
    ) -> CreationResult:
        candidate = candidate or await self.candidate()
        box = given.pop("box", BOX)
        with self.rental.lock_account(candidate.ref, box) as creation:
            return await self.rental.create_machine(
                creation,
                candidate,
                WISH,
                box,
                new_token(box),
                typed=typed,
                say=self.said.append,
                **given,
            )

    def created(self) -> int:
        return self.server.requests.count(CREATE)

    def states(self) -> list[str]:
        (path,) = self.journal.folder.glob("*.jsonl")
        return [json.loads(line)["state"] for line in path.read_text().splitlines()]

    def audited(self) -> list[str]:
        return [
            line.entry.text
            for line in AuditLog(self.folder / "audit.jsonl").read_lines()
            if line.entry
        ]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = RentingRunPod(settle_s=0.0)
    await server.start()
    server.add_gpu(
        LocalGpu(
            "NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.64, 1.19, stock={("SECURE", "EU-1"): "HIGH"}
        )
    )
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    providers = Providers(clock=lambda: NOW, env={KEY: server.key, "OTHER_KEY": server.key})
    journal = Journal(tmp_path / "journal", clock=lambda: NOW)
    audit = AuditLog(tmp_path / "audit.jsonl")
    rental = MachineRental(providers, journal, audit, clock=lambda: NOW, sleep=sleep)
    ref = ProviderRef("runpod", "", base_url=server.base_url, key_env=KEY)
    yield World(server, ref, providers, journal, rental, slept=slept, folder=tmp_path)
    await providers.close()
    await server.stop()


async def test_what_was_agreed_is_rented_by_one_call_and_stands_on_the_disk_before_it(
    world: World,
) -> None:
    taken = await world.take()
    assert (taken.outcome, world.created()) == (CreationOutcome.RENTED, 1)
    assert taken.machine is not None and taken.machine.id in world.server.pods
    assert world.states() == ["intent", "sent", "answered"]
    (open_,) = open_creations(world.journal)
    assert open_.first.rent is not None and open_.last.machine == taken.machine.id
    assert open_.first.rent.token in world.server.pods[taken.machine.id].name
    assert (open_.first.rent.wish, open_.first.rent.offer.gpu) == (WISH, "NVIDIA A100 80GB PCIe")
    assert world.audited()[0].startswith("POST ") and "answered" in world.audited()[1]
    assert open_.first.audit  # the line of the record that was written before


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(on=CREATE, act=True, hang=True),
        InjectedFault(on=CREATE, act=True, status=500),
        InjectedFault(on=CREATE, act=True, status=201, raw=b"<html>"),
        InjectedFault(on=CREATE, act=True, cut=7),
        InjectedFault(on=CREATE, change=lambda data: {"ok": True}),
    ],
    ids=["time-out", "500", "no JSON", "cut", "odd body"],
)
async def test_a_lost_answer_is_found_by_its_token_and_never_sent_again(
    world: World, fault: InjectedFault
) -> None:
    world.server.inject_faults(fault)
    taken = await world.take()
    assert (taken.outcome, world.created(), len(world.server.pods)) == (
        CreationOutcome.RENTED,
        1,
        1,
    )
    assert taken.machine is not None and taken.machine.id in world.server.pods
    assert world.states() == ["intent", "sent", "unknown", "confirmed"]
    assert "not acknowledged" in world.said[0]


async def test_a_list_that_lags_is_asked_until_it_shows_the_machine(world: World) -> None:
    world.server.inject_faults(
        InjectedFault(on=CREATE, act=True, status=502),
        InjectedFault(on="GET /v2/pods", change=lambda data: {"pods": []}, times=3),
        InjectedFault(on="GET /v2/pods", status=500, times=2),
    )
    taken = await world.take()
    assert (taken.outcome, world.created(), len(world.slept)) == (CreationOutcome.RENTED, 1, 5)
    assert any("the list cannot be read" in text for text in world.said)


async def test_what_is_never_found_stays_open_and_forbids_a_second_one(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=CREATE, status=500))
    taken = await world.take()
    assert (taken.outcome, world.created(), len(world.server.pods)) == (
        CreationOutcome.UNKNOWN,
        1,
        0,
    )
    assert sum(world.slept) >= 600
    assert world.states() == ["intent", "sent", "unknown"]
    for box in (BOX, "another"):
        again = await world.take(typed=box, box=box)
        assert again.outcome is CreationOutcome.REFUSED
        assert "settle that first" in again.reasons[0]
    assert world.created() == 1


async def test_a_box_of_which_one_creation_is_unknown_is_rented_nowhere_else(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=CREATE, status=500))
    await world.take()
    other = Candidate(
        ref=ProviderRef("runpod", "", base_url=world.server.base_url + "/", key_env=KEY),
        offer=(await world.candidate()).offer,
    )
    elsewhere = msgspec.structs.replace(
        other, ref=msgspec.structs.replace(other.ref, key_env="OTHER_KEY")
    )
    again = await world.take(elsewhere)
    assert (again.outcome, world.created()) == (CreationOutcome.REFUSED, 1)
    another = await world.take(elsewhere, typed="another", box="another")
    assert (another.outcome, world.created()) == (CreationOutcome.RENTED, 2)


@pytest.mark.parametrize("status", [400, 402, 422, 429])
async def test_an_answer_that_proves_that_nothing_was_made_leaves_nothing_open(
    world: World, status: int
) -> None:
    world.server.inject_faults(InjectedFault(on=CREATE, status=status))
    taken = await world.take()
    assert (taken.outcome, world.created(), world.slept) == (CreationOutcome.NOTHING, 1, [])
    assert world.states() == ["intent", "sent", "failed"]
    assert open_creations(world.journal) == ()
    if status != 429:  # after that the server is left alone for a while
        assert (await world.take()).outcome is CreationOutcome.RENTED


async def test_two_machines_with_one_token_are_both_told_and_none_is_taken(world: World) -> None:
    def twice(data: object) -> object:
        assert isinstance(data, dict)
        (pod,) = data["pods"]
        return {"pods": [pod, {**pod, "id": "twin"}]}

    world.server.inject_faults(
        InjectedFault(on=CREATE, act=True, status=500),
        InjectedFault(on="GET /v2/pods", change=twice, times=-1),
    )
    taken = await world.take()
    assert (taken.outcome, world.created()) == (CreationOutcome.UNKNOWN, 1)
    assert "2 machines" in taken.reasons[0] and "twin" in taken.reasons[0]


async def test_an_offer_that_became_dearer_or_went_away_is_not_taken(world: World) -> None:
    shown = await world.candidate()
    world.server.gpus["NVIDIA A100 80GB PCIe"].secure = 1.65
    dearer = await world.take(shown)
    assert (dearer.outcome, dearer.reasons[0].partition(":")[0]) == (
        CreationOutcome.REFUSED,
        "its price has changed",
    )
    world.server.gpus.clear()
    gone = await world.take(shown)
    assert (gone.outcome, world.created(), list(world.journal.folder.glob("*.jsonl"))) == (
        CreationOutcome.REFUSED,
        0,
        [],
    )


async def test_an_offer_that_became_cheaper_is(world: World) -> None:
    shown = await world.candidate()
    world.server.gpus["NVIDIA A100 80GB PCIe"].secure = 1.5
    taken = await world.take(shown)
    assert taken.outcome is CreationOutcome.RENTED


async def test_the_wrong_name_a_full_disk_and_readonly_send_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await world.take(typed="train")).outcome is CreationOutcome.REFUSED
    (world.folder / "audit.jsonl").unlink()
    (world.folder / "audit.jsonl").mkdir()
    refused = await world.take()
    assert (refused.outcome, world.created()) == (CreationOutcome.REFUSED, 0)
    assert "Nothing was sent" in refused.reasons[0]


async def test_a_fault_of_the_adapter_after_the_call_is_looked_for_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = RunPodMarket.create_instance

    async def faulty(self: RunPodMarket, *given: Any) -> Instance:
        await create(self, *given)
        raise ValueError("nobody thought of that")

    monkeypatch.setattr(RunPodMarket, "create_instance", faulty)
    taken = await world.take()
    assert (taken.outcome, world.created()) == (CreationOutcome.RENTED, 1)
    assert "ValueError: nobody thought of that" in world.said[0]


async def test_what_cannot_be_asked_for_so_is_refused_before_anything_is_written(
    world: World,
) -> None:
    candidate = await world.candidate()
    odd = msgspec.structs.replace(
        candidate, offer=msgspec.structs.replace(candidate.offer, id="of another market")
    )
    review = await world.rental.review_rental(odd, WISH, BOX, new_token(BOX))
    assert (review.will_send, "is not an offer from RunPod" in review.refusals[0]) == ("", True)
    assert (await world.take(odd)).outcome is CreationOutcome.REFUSED
    assert list(world.journal.folder.glob("*.jsonl")) == []


SENT, ANSWERED, UNKNOWN = ActionState.SENT, ActionState.ANSWERED, ActionState.UNKNOWN
CONFIRMED = ActionState.CONFIRMED


class Fleet:
    """What a dashboard does about open creations: it looks, it tells, it never sends."""

    def __init__(self, world: World, boxes: dict[str, str]) -> None:
        self.said: list[tuple[str, str]] = []
        limit, bundle = ConnectLimit(), AgentBundle(data=b"", digest="", filename="")
        self.sessions = {
            name: BoxSession(
                BoxSpec(
                    name=name, host="127.0.0.1", profile="runpod",
                    provider=msgspec.structs.replace(world.ref, instance=pod),
                ),
                load_profile("runpod"), bundle, limit, lambda: NOW, lambda _: None,
            )
            for name, pod in boxes.items()
        }  # fmt: skip
        env = {KEY: world.server.key}
        self.meters = FleetMeters(self.sessions, seconds=60, clock=lambda: NOW, say=print, env=env)
        self.open = OpenActions(
            world.journal,
            AuditLog(world.folder / "audit.jsonl"),
            self.sessions,
            self.meters,
            clock=lambda: NOW,
            say=lambda text, level="info", **_: self.said.append((level, text)),
        )


async def crashed(world: World, *states: ActionState, made: bool) -> str:
    """Leave a creation behind as an rgt does that is killed; return the id of its machine."""
    offer = (await world.candidate()).offer
    token = new_token(BOX)
    pod = world.server.add_pod("podX", token, gpu=offer.gpu).id if made else ""
    rent = CreationRecord(
        token=token, offer=offer, wish=WISH, base_url=world.ref.base_url, key_env=KEY
    )
    with world.journal.lock_instance(account_target(world.ref), BOX, None) as action:
        action.record_intent("x", rent=rent)
        for state in states:
            action.record_state(state, "x", machine=pod if state in (ANSWERED, CONFIRMED) else "")
    return pod


@pytest.mark.parametrize(
    "states", [(SENT,), (SENT, UNKNOWN), (SENT, ANSWERED), (SENT, ANSWERED, CONFIRMED)], ids=str
)
async def test_a_crash_at_every_state_is_looked_after_by_the_next_rgt(
    world: World, states: tuple[ActionState, ...]
) -> None:
    pod = await crashed(world, *states, made=True)
    fleet = Fleet(world, {"lab": "pod1"})
    (open_,) = await fleet.open.check_actions()
    assert (open_.last.state in states, world.created()) == (True, 0)
    (alert,) = [
        one
        for one in assess_box(fleet.sessions["lab"].state, NOW).alerts
        if one.kind == "unconfirmed"
    ]
    assert f"renting {BOX} at runpod" in alert.text
    (now,) = open_creations(world.journal)
    assert (now.last.state, now.last.machine) == (CONFIRMED, pod)
    # As soon as the fleet file names the machine, nothing is open any more.
    await fleet.meters.close()
    after = Fleet(world, {BOX: pod})
    assert await after.open.check_actions() == ()
    assert (open_creations(world.journal), world.states()[-1], world.created()) == ((), "listed", 0)
    await after.meters.close()


@pytest.mark.parametrize(
    "states", [(SENT,), (SENT, UNKNOWN), (SENT, ANSWERED), (SENT, ANSWERED, CONFIRMED)], ids=str
)
async def test_the_next_start_of_the_same_command_goes_on_and_sends_nothing(
    world: World, states: tuple[ActionState, ...]
) -> None:
    pod = await crashed(world, *states, made=True)
    (open_,) = open_creations(world.journal)
    assert open_.first.rent is not None
    token = open_.first.rent.token
    market = market_of(world.providers, ref_of(open_))
    with world.rental.lock_account(ref_of(open_), BOX) as creation:
        taken = await world.rental.find_machine(creation, market, BOX, token, seconds=0.0)
        assert taken.machine is not None and (taken.outcome, taken.machine.id) == (
            CreationOutcome.RENTED,
            pod,
        )
        await world.rental.record_confirmed(creation, BOX, token, taken.machine)
        await world.rental.record_listed(creation, BOX, token, pod, "the fleet file")
    assert (open_creations(world.journal), world.created()) == ((), 0)
    assert world.states()[-2:] == ["confirmed", "listed"]
    assert [text.partition(":")[0] for text in world.audited()][-1] == "listed"


async def test_a_crash_before_the_call_has_sent_nothing(world: World) -> None:
    await crashed(world, made=False)
    fleet = Fleet(world, {"lab": "pod1"})
    assert await fleet.open.check_actions() == ()
    assert world.states() == ["intent", "refused"]
    assert (await world.take()).outcome is CreationOutcome.RENTED
    await fleet.meters.close()


async def test_a_machine_that_was_seen_and_is_gone_again_is_not_waited_for(world: World) -> None:
    pod = await crashed(world, SENT, ANSWERED, CONFIRMED, made=True)
    world.server.pods[pod].status = "TERMINATED"
    fleet = Fleet(world, {"lab": "pod1"})
    assert await fleet.open.check_actions() == ()
    assert world.states()[-1] == "failed"
    await fleet.meters.close()


async def test_one_that_is_not_found_stays_an_alert(world: World) -> None:
    await crashed(world, SENT, UNKNOWN, made=False)
    fleet = Fleet(world, {"lab": "pod1"})
    for _ in range(2):
        assert len(await fleet.open.check_actions()) == 1
    assert fleet.sessions["lab"].state.open_action.startswith(f"renting {BOX}")
    assert [level for level, _ in fleet.said] == ["warn"]
    await fleet.meters.close()
