"""DigitalOcean: droplets in pages, no stop that saves money, what outlives a droplet, and how one is rented."""

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
    PermitRefused,
    ProviderError,
    Providers,
    carry_out,
    creation_proof,
    leftover_gaps,
)
from rgt_tui.providers.digitalocean import key_of_doctl, md5_fingerprint
from tests.contract.providers.conftest import START, Clock, permit_for
from tests.contract.providers.fakes.local_digitalocean import (
    LocalDigitalOcean,
    LocalSize,
    region_of,
)

H100 = LocalSize("gpu-h100x1-80gb", 3.39)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0 me@here"
WISH = RentalRequest(gpu="H100", disk_gb=500, public_key=KEY)
VOLUME: dict[str, object] = {"id": "ba49449a", "name": "data", "cost": "73.00"}
SNAPSHOT: dict[str, object] = {"id": "61486916", "name": "s1", "cost": "7.30"}
ADDRESS: dict[str, object] = {"id": "6186916", "name": "203.0.113.5", "cost": "3.65"}


@dataclass
class Cloud:
    """Everything a test needs."""

    clock: Clock
    server: LocalDigitalOcean
    providers: Providers
    ref: ProviderRef

    @property
    def market(self) -> Market:
        found = self.providers.find_account(self.ref).open_market()
        assert found is not None
        return found

    async def read(self) -> Meter:
        return await self.providers.open_control_plane(self.ref).read(self.ref.instance)

    async def carry_out(self, verb: BillingVerb) -> list[StopProgress]:
        provider = self.providers.open_control_plane(self.ref)
        permit = permit_for(self.ref, verb)
        steps = carry_out(
            provider, permit, clock=self.clock, sleep=self.clock.advance, timeout_s=8.0, poll_s=1.0
        )
        return [step async for step in steps]

    def permit(self, offer: Offer, token: str) -> RentPermit:
        return RentPermit(
            box="b",
            kind=self.ref.kind,
            account=self.ref.account,
            offer=offer.id,
            per_hour=offer.per_hour,
            currency=offer.currency,
            spot=offer.spot,
            token=token,
            expires=steady_time() + 60,
        )

    async def rent(self, wish: RentalRequest = WISH) -> str:
        (offer,) = await self.market.find_offers(wish)
        token = f"rgt-{secrets.token_hex(6)}"
        await self.market.create_instance(offer, wish, token, self.permit(offer, token))
        return token

    def sent(self, what: str) -> list[dict[str, Any]]:
        pairs = zip(self.server.requests, self.server.bodies, strict=True)
        return [json.loads(body) for request, body in pairs if request == what]


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    clock = Clock()
    server = LocalDigitalOcean(clock=clock, sleep=clock.sleep, settle_s=2.0)
    await server.start()
    droplet = server.add_droplet("train-a", H100, created=START - 3600)
    server.sizes = [H100, LocalSize("s-1vcpu-1gb", 0.007, model=None)]
    providers = Providers(clock=clock, env={"DEMO_KEY": server.key}, timeout_s=10.0)
    ref = ProviderRef("digitalocean", str(droplet.id), base_url=server.base_url, key_env="DEMO_KEY")
    yield Cloud(clock, server, providers, ref)
    await providers.close()
    await server.stop()


async def test_a_droplet_is_read_with_its_price_its_address_and_what_it_has_cost(
    cloud: Cloud,
) -> None:
    meter = await cloud.read()
    assert (meter.kind, meter.lifecycle) == (MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING)
    assert (meter.per_hour, meter.currency, meter.at_least) == (3.39, "USD", False)
    assert (meter.ssh_host, meter.ssh_port) == ("198.51.100.60", 22)
    assert meter.spent == pytest.approx(3.39)
    assert "price × age" in meter.source
    (listed,) = await cloud.providers.open_control_plane(cloud.ref).list()
    assert (listed.name, listed.gpu, listed.gpu_count, listed.region) == (
        "train-a",
        "nvidia_h100",
        1,
        "nyc2",
    )


async def test_powered_off_it_bills_in_full_and_there_is_no_park(cloud: Cloud) -> None:
    cloud.server.droplets[int(cloud.ref.instance)].status = "off"
    meter = await cloud.read()
    assert (meter.lifecycle, meter.kind, meter.per_hour) == (
        Lifecycle.STOPPED,
        MeterKind.COMPUTE_AND_STORAGE,
        3.39,
    )
    assert meter.native_status == "off (bills in full)"
    provider = cloud.providers.open_control_plane(cloud.ref)
    assert provider.native_action(BillingVerb.PARK) not in meter.actions
    assert "bills a droplet in full while it is off" in provider.describe_call(
        BillingVerb.PARK, cloud.ref.instance
    )
    asked = [what for what in cloud.server.requests if not what.startswith("GET")]
    steps = await cloud.carry_out(BillingVerb.PARK)
    assert [step.phase for step in steps] == [StopPhase.FAILED]
    assert "nothing was done" in steps[0].text
    assert [what for what in cloud.server.requests if not what.startswith("GET")] == asked == []


async def test_a_destroy_ends_the_meter_and_never_takes_what_hangs_on_it(cloud: Cloud) -> None:
    steps = await cloud.carry_out(BillingVerb.DESTROY)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    gone = [what for what in cloud.server.requests if not what.startswith("GET")]
    assert gone == [f"DELETE /v2/droplets/{cloud.ref.instance}"]
    assert (await cloud.read()).kind is MeterKind.NONE


async def test_what_hangs_on_a_droplet_is_priced_and_outlives_it(cloud: Cloud) -> None:
    hanging = {"volumes": [VOLUME], "snapshots": [SNAPSHOT], "reserved_ips": [ADDRESS]}
    cloud.server.droplets[int(cloud.ref.instance)].hanging = hanging
    meter = await cloud.read()
    # An address is free as long as it is assigned, and is not afterwards.
    assert meter.per_hour == pytest.approx(3.39 + 0.10 + 0.01)
    lines = cloud.providers.open_control_plane(cloud.ref).list_kept_charges(
        BillingVerb.DESTROY, cloud.ref.instance
    )
    assert [line.split(",")[0] for line in lines] == [
        "volume data: $0.1000/h ($73.00 a month) until it is deleted",
        "snapshot s1: $0.0100/h ($7.30 a month) until it is deleted",
        "reserved address 203.0.113.5: $0.0050/h ($3.65 a month) until it is deleted",
    ]
    await cloud.carry_out(BillingVerb.DESTROY)
    after = await cloud.read()
    assert (after.kind, after.lifecycle) == (MeterKind.STORAGE_ONLY, Lifecycle.GONE)
    assert after.per_hour == pytest.approx(0.115)


async def test_what_could_not_be_asked_is_unknown_and_not_nothing(cloud: Cloud) -> None:
    cloud.server.droplets[int(cloud.ref.instance)].hanging = {"volumes": [VOLUME]}
    where = f"GET /v2/droplets/{cloud.ref.instance}/destroy"
    cloud.server.inject_faults(InjectedFault(on=where, status=403, times=-1))
    meter = await cloud.read()
    assert (meter.per_hour, meter.at_least, meter.unpriced) == (
        3.39,
        True,
        ("volumes and snapshots",),
    )
    lines = cloud.providers.open_control_plane(cloud.ref).list_kept_charges(
        BillingVerb.DESTROY, cloud.ref.instance
    )
    assert "unknown" in lines[0]
    await cloud.carry_out(BillingVerb.DESTROY)
    assert (await cloud.read()).kind is MeterKind.UNKNOWN


async def test_a_key_that_may_not_see_snapshots_does_not_make_them_nothing(cloud: Cloud) -> None:
    def change(data: Any) -> Any:
        return {key: value for key, value in data.items() if key != "snapshots"}

    cloud.server.inject_faults(
        InjectedFault(on=f"GET /v2/droplets/{cloud.ref.instance}/destroy", change=change)
    )
    meter = await cloud.read()
    assert meter.at_least
    assert meter.unpriced == ("snapshots, if there are any (the key may not see them)",)


async def test_backups_cost_something_that_nobody_says(cloud: Cloud) -> None:
    cloud.server.droplets[int(cloud.ref.instance)].features = ("backups",)
    meter = await cloud.read()
    assert (meter.at_least, meter.unpriced) == (True, ("backups",))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_all_pages_of_the_list_are_read(cloud: Cloud, size: int) -> None:
    for number in range(6):
        cloud.server.add_droplet(f"box-{number}", H100)
    cloud.server.add_droplet("web", cloud.server.sizes[1])
    cloud.server.per_page = size
    listed = await cloud.providers.open_control_plane(cloud.ref).list()
    assert [one.name for one in listed] == ["train-a", *(f"box-{number}" for number in range(6))]


CUT: dict[str, Any] = {
    "a page without its next": lambda data: {**data, "links": {}},
    "an empty page in the midst": lambda data: {**data, "droplets": []},
    "a next page that is this one": lambda data: {
        **data,
        "links": {"pages": {"next": "https://x/?page=1"}},
    },
    "a next page without a number": lambda data: {
        **data,
        "links": {"pages": {"next": "https://x/?page=y"}},
    },
    "no droplets": lambda data: {"links": {}, "meta": {"total": 0}},
    "a droplet twice": lambda data: {
        **data,
        "droplets": [data["droplets"][0]] * 2,
        "links": {},
        "meta": {},
    },
}


@pytest.mark.parametrize("change", CUT.values(), ids=CUT.keys())
async def test_a_list_that_is_not_whole_is_no_list(cloud: Cloud, change: Any) -> None:
    for number in range(3):
        cloud.server.add_droplet(f"box-{number}", H100)
    cloud.server.per_page = 2
    await cloud.read()
    cloud.server.inject_faults(InjectedFault(on="GET /v2/droplets", change=change))
    with pytest.raises(ProviderError):
        await cloud.providers.open_control_plane(cloud.ref).list()
    # ... and it does not make a droplet gone that one request does not know.
    cloud.server.inject_faults(
        InjectedFault(on=f"GET /v2/droplets/{cloud.ref.instance}", status=404),
        InjectedFault(on=f"GET /v2/droplets/{cloud.ref.instance}/destroy"),
        InjectedFault(on="GET /v2/droplets", change=change, times=-1),
    )
    meter = await cloud.read()
    assert meter.lifecycle is not Lifecycle.GONE
    assert meter.error is not None


async def test_a_droplet_without_a_gpu_can_be_a_box(cloud: Cloud) -> None:
    web = cloud.server.add_droplet("web", cloud.server.sizes[1])
    ref = msgspec.structs.replace(cloud.ref, instance=str(web.id))
    meter = await cloud.providers.open_control_plane(ref).read(ref.instance)
    assert meter.per_hour == 0.007
    assert {one.name for one in await cloud.providers.open_control_plane(ref).list()} == {
        "train-a",
        "web",
    }


@pytest.mark.parametrize(
    ("change", "kind", "price"),
    [
        ({"status": "hibernating"}, MeterKind.UNKNOWN, 3.39),
        ({"status": None}, MeterKind.UNKNOWN, 3.39),
        ({"size": {"price_hourly": 0}}, MeterKind.COMPUTE_AND_STORAGE, None),
        ({"size": {}}, MeterKind.COMPUTE_AND_STORAGE, None),
        ({"size": None}, MeterKind.COMPUTE_AND_STORAGE, None),
        ({"size": {"price_hourly": "3.39"}}, MeterKind.COMPUTE_AND_STORAGE, 3.39),
        ({"networks": None, "region": None, "features": 3}, MeterKind.COMPUTE_AND_STORAGE, 3.39),
    ],
)
async def test_an_odd_droplet_is_unknown_where_it_is_odd(
    cloud: Cloud, change: dict[str, Any], kind: MeterKind, price: float | None
) -> None:
    def odd(data: Any) -> Any:
        return {"droplet": {**data["droplet"], **change}}

    await cloud.read()
    cloud.server.inject_faults(
        InjectedFault(on=f"GET /v2/droplets/{cloud.ref.instance}", change=odd)
    )
    meter = await cloud.read()
    assert (meter.kind, meter.per_hour, meter.error) == (kind, price, None)


async def test_a_locked_droplet_takes_no_action(cloud: Cloud) -> None:
    cloud.server.droplets[int(cloud.ref.instance)].locked = True
    meter = await cloud.read()
    assert (meter.actions, meter.native_status) == ((), "active (locked)")


@pytest.mark.parametrize(
    ("owed", "left"),
    [
        ("81.20", None),
        ("-12.50", 12.5),
        ("0.00", None),
        ("x", None),
        pytest.param(7, None, marks=pytest.mark.odd_exchanges),
    ],
)
async def test_what_is_owed_is_not_what_is_left(
    cloud: Cloud, owed: Any, left: float | None
) -> None:
    cloud.server.owed = owed
    (listed,) = await cloud.providers.open_control_plane(cloud.ref).list()
    assert listed.meter.balance == left


async def test_leftovers_of_the_whole_account_are_listed(cloud: Cloud) -> None:
    assigned = cloud.server.droplets[int(cloud.ref.instance)]
    cloud.server.lists = {
        "volumes": [
            {
                "id": "v1",
                "name": "data",
                "size_gigabytes": 100,
                "droplet_ids": [7],
                "region": region_of("nyc1"),
            },
            {
                "id": "v2",
                "name": "old",
                "size_gigabytes": 10,
                "droplet_ids": [],
                "region": region_of("nyc1"),
            },
        ],
        "snapshots": [
            {"id": "s1", "name": "snap", "size_gigabytes": 20.0, "resource_type": "droplet"}
        ],
        "reserved_ips": [
            {"ip": "203.0.113.5", "droplet": assigned.json(), "region": region_of("nyc1")},
            {"ip": "203.0.113.6", "droplet": None},
        ],
    }
    cloud.server.per_page = 1
    found = await cloud.providers.find_account(cloud.ref).list_leftovers()
    assert [(one.what, one.id, one.used_by) for one in found] == [
        ("volume", "v1", ("7",)),
        ("volume", "v2", ()),
        ("snapshot", "s1", ()),
        ("address", "203.0.113.5", (str(assigned.id),)),
        ("address", "203.0.113.6", ()),
    ]
    assert found[3].per_hour == 0.0
    assert found[4].per_hour is None, (
        "unassigned it is charged for, and the API does not say how much"
    )
    assert found[4].how == f"DELETE {cloud.server.base_url}/v2/reserved_ips/203.0.113.6"


async def test_leftovers_are_whole_or_an_error(cloud: Cloud) -> None:
    cloud.server.inject_faults(InjectedFault(on="GET /v2/snapshots", status=403))
    with pytest.raises(ProviderError):
        await cloud.providers.find_account(cloud.ref).list_leftovers()


async def test_a_size_that_can_be_had_is_offered_with_the_price_of_all_of_it(cloud: Cloud) -> None:
    (offer,) = await cloud.market.find_offers(WISH)
    assert (offer.id, offer.gpu, offer.gpu_memory_gb) == ("gpu-h100x1-80gb/any", "nvidia_h100", 80)
    assert (offer.compute_per_hour, offer.storage_per_hour, offer.per_hour) == (3.39, 0.0, 3.39)
    assert (offer.disk_gb, offer.out_per_gb, offer.stock) == (720, 0.01, "available in nyc2, tor1")
    assert any("powered off, it is billed in full" in note for note in offer.notes)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"region": "tor1"}, ["gpu-h100x1-80gb/tor1"]),
        ({"region": "ams3"}, []),
        ({"disk_gb": 721}, []),
        ({"gpu_count": 8}, []),
        ({"gpu": "H100 40GB"}, None),
        ({"max_per_hour": 3.0}, []),
        ({"gpu": "A100"}, None),
        ({"spot": True}, None),
    ],
)
async def test_what_does_not_fit_is_not_offered(
    cloud: Cloud, change: dict[str, Any], left: list[str] | None
) -> None:
    wish = msgspec.structs.replace(WISH, **change)
    if left is None:
        with pytest.raises(ProviderError, match=r"no GPU that is|rents no droplet as spot"):
            await cloud.market.find_offers(wish)
        return
    assert [offer.id for offer in await cloud.market.find_offers(wish)] == left


async def test_memory_in_a_unit_that_nobody_knows_is_not_known(cloud: Cloud) -> None:
    def change(data: Any) -> Any:
        data["sizes"][0]["gpu_info"] |= {
            "model": "nvidia_a100",
            "vram": {"amount": 80, "unit": "stones"},
        }
        return data

    cloud.server.inject_faults(InjectedFault(on="GET /v2/sizes", change=change, times=-1))
    wish = msgspec.structs.replace(WISH, gpu="A100")
    assert [offer.gpu_memory_gb for offer in await cloud.market.find_offers(wish)] == [None]
    with pytest.raises(ProviderError, match="no GPU that is"):
        await cloud.market.find_offers(msgspec.structs.replace(WISH, gpu="A100 80GB"))


@pytest.mark.parametrize("strange", ["", "gpu-h100x1-80gb", "/any", "gpu-h100x1-80gb/"])
async def test_what_is_no_offer_is_not_taken(cloud: Cloud, strange: str) -> None:
    (offer,) = await cloud.market.find_offers(WISH)
    other = msgspec.structs.replace(offer, id=strange)
    with pytest.raises(ProviderError, match="not an offer from DigitalOcean") as caught:
        await cloud.market.create_instance(other, WISH, "rgt-x", cloud.permit(other, "rgt-x"))
    assert not caught.value.sent
    assert not [what for what in cloud.server.requests if what.startswith("POST")]


async def test_a_size_that_is_not_available_is_not_offered(cloud: Cloud) -> None:
    cloud.server.sizes = [LocalSize("gpu-h100x1-80gb", 3.39, available=False)]
    assert await cloud.market.find_offers(WISH) == ()


async def test_a_droplet_is_made_by_one_call_after_its_key_is_known(cloud: Cloud) -> None:
    token = await cloud.rent()
    (body,) = cloud.sent("POST /v2/droplets")
    assert body == {
        "name": token,
        "size": "gpu-h100x1-80gb",
        "image": "gpu-h100x1-base",
        "ssh_keys": [md5_fingerprint(KEY)],
        "backups": False,
        "ipv6": False,
        "monitoring": False,
        "tags": [],
        "volumes": [],
        "public_networking": True,
    }
    assert cloud.server.keys == {md5_fingerprint(KEY): KEY}
    (offer,) = await cloud.market.find_offers(WISH)
    told = cloud.market.describe_creation(offer, WISH, token)
    assert json.dumps(body, separators=(",", ":")) in told
    (found,) = await cloud.market.find_by_token(token)
    assert (found.name, found.meter.lifecycle) == (token, Lifecycle.STARTING)
    assert await cloud.market.find_by_token("rgt-another") == ()


async def test_a_region_that_was_wished_for_is_asked_for(cloud: Cloud) -> None:
    await cloud.rent(msgspec.structs.replace(WISH, region="tor1"))
    (body,) = cloud.sent("POST /v2/droplets")
    assert body["region"] == "tor1"


async def test_a_key_that_is_known_is_not_registered_again(cloud: Cloud) -> None:
    cloud.server.keys[md5_fingerprint(KEY)] = KEY
    await cloud.rent()
    assert cloud.sent("POST /v2/account/keys") == []


@pytest.mark.parametrize("where", ["POST /v2/account/keys", "GET /v2/account/keys"])
async def test_without_its_key_nothing_is_rented(cloud: Cloud, where: str) -> None:
    cloud.server.inject_faults(InjectedFault(on=where, status=500))
    with pytest.raises(ProviderError, match="nothing was rented") as caught:
        await cloud.rent()
    assert creation_proof("digitalocean", caught.value) is AnswerProof.NOTHING
    assert cloud.sent("POST /v2/droplets") == []
    with pytest.raises(ProviderError, match="needs a public key"):
        await cloud.rent(msgspec.structs.replace(WISH, public_key=""))
    with pytest.raises(ProviderError, match="not one line"):
        await cloud.rent(msgspec.structs.replace(WISH, public_key="nonsense"))
    assert cloud.sent("POST /v2/droplets") == []


async def test_both_meanings_of_422_are_said_and_nothing_was_made(cloud: Cloud) -> None:
    (offer,) = await cloud.market.find_offers(WISH)
    cloud.server.sizes = []
    with pytest.raises(ProviderError, match="Size is not available") as caught:
        await cloud.market.create_instance(offer, WISH, "rgt-one", cloud.permit(offer, "rgt-one"))
    assert (caught.value.status, caught.value.code) == (422, "unprocessable_entity")
    assert creation_proof("digitalocean", caught.value) is AnswerProof.NOTHING
    cloud.server.sizes, cloud.server.limit = [H100], 1
    with pytest.raises(ProviderError, match="exceed your droplet limit") as caught:
        await cloud.market.create_instance(offer, WISH, "rgt-two", cloud.permit(offer, "rgt-two"))
    assert creation_proof("digitalocean", caught.value) is AnswerProof.NOTHING
    assert len(cloud.server.droplets) == 1


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"drop": True}, {"raw": b"{}"}, {"raw": b"<html>"}]
)
async def test_a_droplet_whose_answer_was_lost_is_found_by_its_name(
    cloud: Cloud, fault: dict[str, Any]
) -> None:
    cloud.server.inject_faults(InjectedFault(on="POST /v2/droplets", act=True, **fault))
    with pytest.raises(ProviderError) as caught:
        await cloud.rent()
    assert creation_proof("digitalocean", caught.value) is AnswerProof.MAYBE
    (body,) = cloud.sent("POST /v2/droplets")
    assert [one.name for one in await cloud.market.find_by_token(body["name"])] == [body["name"]]


async def test_without_a_permit_that_fits_not_even_the_key_is_sent(cloud: Cloud) -> None:
    (offer,) = await cloud.market.find_offers(WISH)
    dear = msgspec.structs.replace(cloud.permit(offer, "rgt-x"), per_hour=1.0)
    with pytest.raises(PermitRefused):
        await cloud.market.create_instance(offer, WISH, "rgt-x", dear)
    assert not [what for what in cloud.server.requests if what.startswith("POST")]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("access-token: dop_v1_abc\n", "dop_v1_abc"),
        ('access-token: "dop_v1_abc"\ncontext: default\n', "dop_v1_abc"),
        ("access-token: one\nauth-contexts:\n  lab: two\ncontext: lab\n", "two"),
        ("access-token: one\nauth-contexts:\n  lab: two\ncontext: other\n", ""),
        ("# access-token: no\n", ""),
        ("nested:\n  access-token: no\n", ""),
        ("a line without a colon\naccess-token: one\n", "one"),
        ("", ""),
    ],
)
def test_the_token_of_doctl_is_that_of_its_present_context(
    tmp_path: Path, text: str, key: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert key_of_doctl(path) == key
    assert key_of_doctl(tmp_path / "none") == ""


async def test_clusters_are_listed_among_what_bills_besides_unless_the_token_has_no_scope_for_it(
    cloud: Cloud,
) -> None:
    at = "2026-09-01T00:00:00Z"
    node = {
        "id": "n1",
        "name": "pool-x",
        "droplet_id": "205545370",
        "created_at": at,
        "updated_at": at,
    }
    pool = {"size": "gpu-h100x1-80gb", "name": "pool", "count": 1}
    cluster: dict[str, object] = {
        "id": "bd5f5959",
        "name": "train",
        "region": "nyc2",
        "node_pools": [{**pool, "nodes": [{**node, "status": {"state": "running"}}]}],
    }
    cloud.server.lists["kubernetes_clusters"].append(cluster)
    account = cloud.providers.find_account(cloud.ref)
    (left,) = [one for one in await account.list_leftovers() if one.what == "cluster"]
    assert (left.id, left.per_hour, left.used_by) == ("bd5f5959", None, ("205545370",))
    cloud.server.inject_faults(InjectedFault(on="GET /v2/kubernetes", status=403))
    assert [one for one in await account.list_leftovers() if one.what == "cluster"] == []
    assert "Kubernetes clusters (the key may not list them)" in leftover_gaps(account)
    assert "load balancers" in leftover_gaps(account)
