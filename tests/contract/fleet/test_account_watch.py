"""What the accounts of a fleet are billed for that no box names, read from real local control planes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.fleet import (
    AccountWatch,
    BoxSession,
    ConnectLimit,
    FleetMeters,
    ask_accounts,
    build_bills,
)
from rgt_tui.health import assess_box
from rgt_tui.model import AccountBill, BoxSpec, Lifecycle, Meter, ProviderRef
from rgt_tui.profiles import load_profile
from rgt_tui.providers import AccountListing, Instance
from rgt_tui.ssh import AgentBundle
from tests.contract.providers.fakes.renting_runpod import RentingRunPod

KEY, OTHER_KEY, NOW = "RGT_TEST_KEY", "RGT_TEST_KEY_2", 1.8e9


@dataclass
class World:
    server: RentingRunPod
    sessions: dict[str, BoxSession]
    meters: FleetMeters
    watch: AccountWatch
    told: list[tuple[AccountBill, ...]] = field(default_factory=list)

    async def look(self) -> tuple[AccountBill, ...]:
        await self.meters.read_all()
        await self.watch.query_leftovers()
        return self.told[-1]

    def alerts(self, box: str, kind: str) -> list[str]:
        return [
            one.id for one in assess_box(self.sessions[box].state, NOW).alerts if one.kind == kind
        ]


def make(server: RentingRunPod, refs: dict[str, ProviderRef]) -> World:
    limit, bundle = ConnectLimit(), AgentBundle(data=b"", digest="", filename="")
    sessions = {
        name: BoxSession(
            BoxSpec(name=name, host="127.0.0.1", profile="runpod", provider=ref),
            load_profile("runpod"), bundle, limit, lambda: NOW, lambda _: None,
        )
        for name, ref in refs.items()
    }  # fmt: skip
    env = {KEY: server.key, OTHER_KEY: server.key}
    meters = FleetMeters(sessions, seconds=60, clock=lambda: NOW, say=print, env=env)
    told: list[tuple[AccountBill, ...]] = []
    watch = AccountWatch(sessions, meters.providers, clock=lambda: NOW, told=told.append)
    meters.polled = watch.publish_bills
    return World(server, sessions, meters, watch, told)


@pytest.fixture
async def server() -> AsyncIterator[RentingRunPod]:
    plane = RentingRunPod(settle_s=0.0)
    await plane.start()
    plane.add_pod("pod1", "lab", cost=0.5, persistent=10.0)
    yield plane
    await plane.stop()


@pytest.fixture
async def world(server: RentingRunPod) -> AsyncIterator[World]:
    made = make(
        server, {"lab": ProviderRef("runpod", "pod1", base_url=server.base_url, key_env=KEY)}
    )
    yield made
    await made.meters.close()


async def test_a_machine_and_a_volume_that_no_box_names_are_told_with_their_price(
    world: World,
) -> None:
    world.server.add_pod("pod9", "forgotten", cost=1.25, persistent=None, disk=0.0)
    world.server.add_pod("pod8", "ended", status="TERMINATED")
    world.server.add_volume("vol1", 100.0)
    (bill,) = await world.look()
    assert [(thing.what, thing.id) for thing in bill.things] == [
        ("machine", "pod9"),
        ("volume", "vol1"),
    ]
    machine, volume = bill.things
    assert (machine.name, machine.per_hour, machine.status) == ("forgotten", 1.25, "RUNNING")
    assert volume.per_hour is not None and 0 < volume.per_hour < 0.02
    (total,) = bill.per_hour
    assert total.value == pytest.approx(1.25 + volume.per_hour)
    assert (total.currency, total.at_least) == ("USD", False)
    assert world.alerts("lab", "unlisted") == ["unlisted:pod9"]
    assert world.alerts("lab", "leftover") == ["leftover:volume:vol1"]


async def test_what_hangs_on_a_box_is_not_unseen_and_what_goes_away_is_over(world: World) -> None:
    world.server.add_volume("vol1", 100.0)
    world.server.add_volume("vol2", 50.0)
    world.server.add_pod("pod9", "other", networks=(("vol2", "/data"),))
    world.server.pods["pod1"].networks = (("vol1", "/workspace"),)
    (bill,) = await world.look()
    assert [thing.id for thing in bill.things] == ["pod9", "vol2"]
    hanging = bill.things[1]
    assert hanging.used_by == ("pod9",)
    # The machine's price has the volume in it: it is not counted twice.
    assert [one.value for one in bill.per_hour] == [bill.things[0].per_hour]
    world.server.pods["pod9"].status = "TERMINATED"
    del world.server.volumes["vol2"]
    (bill,) = await world.look()
    assert bill.things == ()
    assert world.alerts("lab", "unlisted") == world.alerts("lab", "leftover") == []


async def test_an_account_reached_by_two_keys_is_told_once_and_boxes_of_both_are_known(
    server: RentingRunPod,
) -> None:
    server.add_pod("pod2", "mill")
    server.add_pod("pod9", "forgotten")
    refs = {
        name: ProviderRef("runpod", pod, base_url=server.base_url, key_env=key)
        for name, pod, key in (("lab", "pod1", KEY), ("mill", "pod2", OTHER_KEY))
    }
    world = make(server, refs)
    bills = await world.look()
    assert [[thing.id for thing in bill.things] for bill in bills] == [["pod9"], []]
    assert (world.alerts("lab", "unlisted"), world.alerts("mill", "unlisted")) == (
        ["unlisted:pod9"],
        [],
    )
    await world.meters.close()


async def test_a_list_that_fails_keeps_what_was_known_and_says_why(world: World) -> None:
    world.server.add_pod("pod9", "forgotten", cost=1.25)
    world.server.add_volume("vol1", 100.0)
    await world.look()
    world.server.inject_faults(InjectedFault(on="GET /v2/pods", status=500, times=-1))
    world.server.inject_faults(InjectedFault(on="GET /v2/network-volumes", status=403, times=-1))
    (bill,) = await world.look()
    assert [thing.id for thing in bill.things] == ["pod9", "vol1"]
    assert "500" in (bill.machines_error or "")
    assert "403" in (bill.leftovers_error or "")
    assert bill.machines_at == bill.leftovers_at == NOW


async def test_what_was_never_listed_is_unknown_and_not_nothing(world: World) -> None:
    world.server.inject_faults(InjectedFault(on="GET /v2/network-volumes", status=500, times=-1))
    world.server.add_pod("pod9", "forgotten", cost=1.25, persistent=None, disk=0.0)
    (bill,) = await world.look()
    assert (bill.leftovers_at, bill.machines_at) == (None, NOW)
    assert [one.at_least for one in bill.per_hour] == [True]


def test_what_is_gone_is_not_listed_and_the_vendor_s_own_server_is_one_place() -> None:
    ref = ProviderRef("runpod", "pod1")
    machines = tuple(
        Instance(id_, id_, Meter(lifecycle=life))
        for id_, life in (
            ("pod1", Lifecycle.RUNNING),
            ("pod2", Lifecycle.GONE),
            ("pod3", Lifecycle.UNKNOWN),
        )
    )
    listed = AccountListing(ref=ref, machines=machines, at=NOW)
    (bill,) = build_bills([listed], {}, [ProviderRef("runpod", "pod1", key_env="ANOTHER")])
    assert [(thing.id, thing.bills, thing.per_hour) for thing in bill.things] == [
        ("pod3", True, None)
    ]
    assert (bill.per_hour, bill.leftovers_at) == ((), None)


async def test_accounts_are_asked_once_without_any_box(server: RentingRunPod) -> None:
    server.add_pod("pod9", "forgotten")
    ref = ProviderRef("runpod", "", base_url=server.base_url, key_env=KEY)
    known = ProviderRef("runpod", "pod1", base_url=server.base_url + "/", key_env=OTHER_KEY)
    (bill,) = await ask_accounts([ref], [known], env={KEY: server.key}, clock=lambda: NOW)
    assert [thing.id for thing in bill.things] == ["pod9"]
    (bill,) = await ask_accounts([ref], [], env={}, clock=lambda: NOW)
    assert (bill.things, bill.machines_at) == ((), None)
    assert KEY in (bill.machines_error or "")
