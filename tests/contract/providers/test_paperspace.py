"""Paperspace: rates without a unit, cursors, events that fail afterwards, and machines rented without a price."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    Meter,
    MeterKind,
    Offer,
    ProviderRef,
    RentalRequest,
    RentPermit,
    StopPhase,
    StopProgress,
    steady_time,
)
from rgt_tui.providers import (
    AnswerProof,
    Market,
    Provider,
    ProviderError,
    Providers,
    carry_out,
    creation_proof,
)
from rgt_tui.providers.paperspace import key_of_pspace
from tests.contract.providers.conftest import START, Clock, permit_for
from tests.contract.providers.fakes.local_paperspace import LocalPaperspace, LocalTemplate
from tests.contract.providers.platform_rows import PUBLIC_KEY

ID = "psfake01abc"
NY, AMS = "East Coast (NY2)", "Europe (AMS1)"
CREATED = "2026-01-01T00:00:00.000Z"
DRIVE = {
    "mountPoint": "//10.0.0.9/drive",
    "networkId": "nfake01",
    "username": "u",
    "password": "secret",
    "region": "ny2",
    "size": 268435456000,
    "dtCreated": CREATED,
}
WISH = RentalRequest(gpu="A4000", disk_gb=100, public_key=PUBLIC_KEY)


@dataclass
class Team:
    """Everything a test needs."""

    clock: Clock
    server: LocalPaperspace
    providers: Providers
    ref: ProviderRef

    @property
    def provider(self) -> Provider:
        return self.providers.open_control_plane(self.ref)

    @property
    def market(self) -> Market:
        found = self.providers.find_account(self.ref).open_market()
        assert found is not None
        return found

    async def read(self) -> Meter:
        return await self.provider.read(ID)

    async def carry_out(self, verb: BillingVerb) -> list[StopProgress]:
        permit = permit_for(self.ref, verb)
        steps = carry_out(
            self.provider,
            permit,
            clock=self.clock,
            sleep=self.clock.advance,
            timeout_s=8.0,
            poll_s=1.0,
        )
        return [step async for step in steps]

    async def rent(self, offer: Offer, wish: RentalRequest = WISH) -> str:
        token = f"rgt-{secrets.token_hex(6)}"
        permit = RentPermit(
            box="b",
            kind=self.ref.kind,
            account=self.ref.account,
            offer=offer.id,
            per_hour=offer.per_hour,
            currency=offer.currency,
            spot=False,
            token=token,
            expires=steady_time() + 60,
        )
        await self.market.create_instance(offer, wish, token, permit)
        return token

    def sent(self, what: str) -> list[dict[str, Any]]:
        pairs = zip(self.server.requests, self.server.bodies, strict=True)
        return [json.loads(body) for request, body in pairs if request == what]


@pytest.fixture
async def team() -> AsyncIterator[Team]:
    clock = Clock()
    server = LocalPaperspace(clock=clock, sleep=clock.sleep, settle_s=2.0)
    await server.start()
    server.add_machine(ID, "train-a", created=START - 7200)
    server.templates = [
        LocalTemplate("tdesk", "Windows 10", ("A4000",), agent="WindowsDesktop"),
        LocalTemplate("tplain", "Ubuntu 22.04", ("A4000", "A4000x2", "C5")),
        LocalTemplate("tmlbox", "ML-in-a-Box 22.04", ("A4000", "A100-80G", "A100-80Gx8"), size=250),
    ]
    server.capacity = {("A4000", NY), ("A4000", AMS), ("A100-80Gx8", NY)}
    providers = Providers(clock=clock, env={"DEMO_KEY": server.key}, timeout_s=10.0)
    yield Team(
        clock,
        server,
        providers,
        ProviderRef("paperspace-core", ID, server.base_url, key_env="DEMO_KEY"),
    )
    await providers.close()
    await server.stop()


async def test_rates_whose_unit_nobody_says_are_told_with_that_doubt(team: Team) -> None:
    meter = await team.read()
    assert (meter.kind, meter.lifecycle, meter.compute_per_hour) == (
        MeterKind.COMPUTE_AND_STORAGE,
        Lifecycle.RUNNING,
        0.76,
    )
    assert (meter.per_hour, meter.at_least, meter.storage_per_hour) == (0.76, True, None)
    assert meter.doubt is not None
    assert "usageRate" in meter.doubt
    assert any("storageRate" in part for part in meter.unpriced)
    assert (meter.started, meter.created) == (START - 7200, START - 7200)
    assert meter.spent == pytest.approx(2 * 0.76)
    assert meter.balance is None


async def test_it_was_started_by_its_last_start_that_was_done(team: Team) -> None:
    http: Any = team.providers.find_account(team.ref)

    async def act(verb: str) -> None:
        await http.http.send("PATCH", f"/machines/{ID}/{verb}", {})
        await team.clock.advance(2)
        await team.server.wait_settled()

    await act("stop")
    assert (await team.read()).started is None
    team.clock.now += 3600
    await act("start")
    begun = team.clock.now
    team.clock.now += 3600
    await act("restart")
    team.server.inject_faults(InjectedFault(on="GET /snapshots", status=500))
    assert (await team.read()).started == begun
    team.clock.now += 900
    failed = {"name": "start", "state": "error", "dtFinished": "2030-01-01T00:00:00Z"}

    def change(data: Any) -> Any:
        return {**data, "items": [failed, *data["items"]]}

    team.server.inject_faults(InjectedFault(on="GET /machine-events", change=change))
    assert (await team.read()).started == begun


async def test_a_stop_ends_compute_and_the_rest_bills_on(team: Team) -> None:
    machine = team.server.machines[ID]
    machine.ip_type = "static"
    team.server.lists["snapshots"] = [
        {"id": f"sn{n}", "name": "x", "machineId": ID, "isAutoSnapshot": True} for n in range(2)
    ]
    await team.read()
    kept = team.provider.list_kept_charges(BillingVerb.PARK, ID)
    assert [line.partition(" (")[0].partition(":")[0] for line in kept] == [
        "disk",
        "static address 198.51.100.44",
        "2 snapshots, price unknown",
    ]
    steps = await team.carry_out(BillingVerb.PARK)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    meter = await team.read()
    assert (meter.kind, meter.compute_per_hour, meter.per_hour, meter.at_least) == (
        MeterKind.STORAGE_ONLY,
        0.0,
        0.0045,
        True,
    )
    await team.carry_out(BillingVerb.DESTROY)
    after = await team.read()
    assert (after.lifecycle, after.kind, after.per_hour) == (
        Lifecycle.GONE,
        MeterKind.STORAGE_ONLY,
        0.0045,
    )


async def test_snapshots_that_could_not_be_asked_for_are_not_none(team: Team) -> None:
    team.server.inject_faults(InjectedFault(on="GET /snapshots", status=500, times=-1))
    await team.read()
    assert any(
        "snapshots, if there are any" in line
        for line in team.provider.list_kept_charges(BillingVerb.DESTROY, ID)
    )
    await team.carry_out(BillingVerb.DESTROY)
    assert (await team.read()).kind is not MeterKind.NONE


async def test_an_event_that_fails_afterwards_is_no_stop(team: Team) -> None:
    def fails(_change: object) -> None:
        raise RuntimeError

    team.server._on_change = fails
    steps = await team.carry_out(BillingVerb.PARK)
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]
    assert "last shown: stopping" in steps[-1].text


async def test_an_event_that_has_failed_at_once_is_asked_about(team: Team) -> None:
    body = b'{"event": {"name": "stop", "state": "error", "error": "host is gone"}, "data": {}}'
    team.server.inject_faults(InjectedFault(on=f"PATCH /machines/{ID}/stop", status=200, raw=body))
    steps = await team.carry_out(BillingVerb.PARK)
    assert "host is gone" in steps[0].text
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]


CUT: dict[str, Any] = {
    "more, and no cursor": lambda data: {**data, "hasMore": True, "nextPage": None},
    "more, and the same cursor": lambda data: {**data, "hasMore": True, "nextPage": "2"},
    "whether there is more is not said": lambda data: {"items": data["items"]},
    "no items": lambda data: {"hasMore": False},
}


@pytest.mark.parametrize("change", CUT.values(), ids=CUT.keys())
async def test_a_list_that_is_not_whole_is_no_list(team: Team, change: Any) -> None:
    for number in range(4):
        team.server.add_machine(f"other{number}", f"other{number}")
    team.server.limit = 2
    assert len(await team.provider.list()) == 5
    team.server.inject_faults(InjectedFault(on="GET /machines", change=change, times=-1))
    with pytest.raises(ProviderError):
        await team.provider.list()


@pytest.mark.parametrize("state", ["provisioning", "upgrading", "quantum", None, 7])
async def test_a_state_whose_bill_is_not_documented_is_counted_as_if_it_ran(
    team: Team, state: Any
) -> None:
    def odd(data: Any) -> Any:
        return {**data, "state": state}

    team.server.inject_faults(InjectedFault(on=f"GET /machines/{ID}", change=odd))
    meter = await team.read()
    assert (meter.kind, meter.per_hour) == (MeterKind.UNKNOWN, 0.76)
    assert meter.doubt is not None
    assert "not documented" in meter.doubt


async def test_a_machine_that_was_deleted_is_gone(team: Team) -> None:
    def deleted(data: Any) -> Any:
        return {**data, "dtDeleted": "2026-09-21T00:00:00Z"}

    team.server.inject_faults(InjectedFault(on=f"GET /machines/{ID}", change=deleted))
    meter = await team.read()
    assert (meter.lifecycle, meter.native_status, meter.actions) == (Lifecycle.GONE, "deleted", ())


async def test_leftovers_are_addresses_snapshots_and_drives_without_their_passwords(
    team: Team,
) -> None:
    team.server.lists = {
        "public-ips": [
            {"ip": "203.0.113.5", "region": NY, "assignedMachineId": ID, "dtCreated": CREATED}
        ],
        "snapshots": [{"id": "sn1", "name": "before", "machineId": ID, "isAutoSnapshot": True}],
        "shared-drives": [
            {**DRIVE, "id": "dr1", "name": "data"},
            {**DRIVE, "id": "dr2", "name": "gone", "dtDeleted": "2026-01-01T00:00:00Z"},
        ],
    }
    found = await team.providers.find_account(team.ref).list_leftovers()
    assert [(one.what, one.id, one.per_hour, one.used_by) for one in found] == [
        ("address", "203.0.113.5", 0.0045, (ID,)),
        ("snapshot", "sn1", None, ()),
        ("shared drive", "dr1", None, ()),
    ]
    assert "secret" not in repr(found)
    assert found[0].how == f"DELETE {team.server.base_url}/public-ips/203.0.113.5"


async def test_what_has_capacity_is_offered_without_a_price(team: Team) -> None:
    offers = await team.market.find_offers(WISH)
    assert [(one.id, one.disk_gb) for one in offers] == [
        (f"A4000@tmlbox@{NY}", 250),
        (f"A4000@tmlbox@{AMS}", 250),
    ]
    assert {(one.compute_per_hour, one.storage_per_hour, one.per_hour) for one in offers} == {
        (None, None, None)
    }
    assert "only once the machine exists" in offers[0].notes[0]
    eight = await team.market.find_offers(
        msgspec.structs.replace(WISH, gpu="A100 80GB", gpu_count=8)
    )
    assert [one.id for one in eight] == [f"A100-80Gx8@tmlbox@{NY}"]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"region": AMS}, [f"A4000@tmlbox@{AMS}"]),
        ({"region": "ams1"}, [f"A4000@tmlbox@{AMS}"]),
        ({"region": "NY2"}, [f"A4000@tmlbox@{NY}"]),
        ({"region": "West Coast (CA1)"}, []),
        ({"gpu_count": 2}, []),
        ({"gpu": "A100 80GB"}, []),
        ({"image": "tplain", "region": NY}, [f"A4000@tplain@{NY}"]),
        ({"image": "tdesk"}, []),
        ({"gpu": "H100"}, "no GPU that is"),
        ({"region": "ny3"}, "has no region 'ny3'; it has: ny2, ca1, ams1"),
        ({"spot": True}, "nothing as spot"),
    ],
)
async def test_what_does_not_fit_is_not_offered(
    team: Team, change: dict[str, Any], left: Any
) -> None:
    wish = msgspec.structs.replace(WISH, **change)
    if isinstance(left, str):
        with pytest.raises(ProviderError, match=left):
            await team.market.find_offers(wish)
        return
    assert [one.id for one in await team.market.find_offers(wish)] == left


@pytest.mark.parametrize(("wished_gb", "rented_gb"), [(20, 50), (50, 50), (120, 250), (1001, 2000)])
async def test_the_disk_is_of_the_next_size_that_paperspace_has(
    team: Team, wished_gb: int, rented_gb: int
) -> None:
    wish = msgspec.structs.replace(WISH, image="tplain", region=NY, disk_gb=wished_gb)
    (offer,) = await team.market.find_offers(wish)
    assert offer.disk_gb == rented_gb
    await team.rent(offer, wish)
    assert [body["diskSize"] for body in team.sent("POST /machines")] == [rented_gb]


async def test_capacity_that_is_not_said_is_not_offered(team: Team) -> None:
    team.server.inject_faults(InjectedFault(on="GET /machine-availability", raw=b"{}"))
    with pytest.raises(ProviderError, match="does not report whether there is"):
        await team.market.find_offers(WISH)


async def test_a_machine_is_made_by_one_call_after_its_script(team: Team) -> None:
    offer = (await team.market.find_offers(WISH))[0]
    token = await team.rent(offer)
    (made,) = team.sent("POST /startup-scripts")
    assert made["name"] == token
    assert made["isRunOnce"] is True
    assert PUBLIC_KEY in made["script"]
    (name,) = team.server.scripts
    (body,) = team.sent("POST /machines")
    assert body == {
        "name": token,
        "machineType": "A4000",
        "templateId": "tmlbox",
        "region": NY,
        "diskSize": 250,
        "publicIpType": "dynamic",
        "startOnCreate": True,
        "autoShutdownEnabled": False,
        "autoSnapshotEnabled": False,
        "restorePointEnabled": False,
        "takeInitialSnapshot": False,
        "enableNvlink": False,
        "emailPassword": True,
        "startupScriptId": name,
    }
    told = team.market.describe_creation(offer, WISH, token)
    assert f'"name":"{token}"' in told
    assert "POST /startup-scripts" in told
    await team.clock.advance(2)
    await team.server.wait_settled()
    (found,) = await team.market.find_by_token(token)
    assert (found.meter.lifecycle, found.gpu, found.user) == (
        Lifecycle.RUNNING,
        "Quadro RTX A4000",
        "paperspace",
    )
    assert found.meter.compute_per_hour == 0.76, "the price is there once the machine is"


async def test_without_capacity_it_may_come_to_be_off_and_bills_its_disk(team: Team) -> None:
    offer = (await team.market.find_offers(WISH))[0]
    team.server.capacity.clear()
    token = await team.rent(offer)
    (found,) = await team.market.find_by_token(token)
    assert (found.meter.lifecycle, found.meter.kind) == (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY)


async def test_without_the_script_nothing_is_rented(team: Team) -> None:
    offer = (await team.market.find_offers(WISH))[0]
    script = "POST /startup-scripts"
    for fault in (InjectedFault(on=script, status=500), InjectedFault(on=script, raw=b"{}")):
        team.server.inject_faults(fault)
        with pytest.raises(ProviderError, match="nothing was rented") as caught:
            await team.rent(offer)
        assert creation_proof("paperspace-core", caught.value) is AnswerProof.NOTHING
    with pytest.raises(ProviderError, match="needs a public key"):
        await team.rent(offer, msgspec.structs.replace(WISH, public_key=""))
    assert team.sent("POST /machines") == []


@pytest.mark.parametrize(
    ("keys", "config", "key"),
    [
        ('[keys]\nlab = "a"\n', None, "a"),
        ('[keys]\nlab = "a"\nother = "b"\n', 'team = "other"\n', "b"),
        ('[keys]\nlab = "a"\nother = "b"\n', None, ""),
        ('[keys]\nlab = "a"\n', 'team = "gone"\n', ""),
        ("[keys]\nlab = 3\n", None, ""),
        ("not toml", None, ""),
    ],
)
def test_the_key_of_pspace_is_that_of_the_current_team(
    tmp_path: Path, keys: str, config: str | None, key: str
) -> None:
    path = tmp_path / "credentials.toml"
    path.write_text(keys)
    if config is not None:
        (tmp_path / "config.toml").write_text(config)
    assert key_of_pspace(path) == key
    assert key_of_pspace(tmp_path / "none") == ""
