"""Lambda's own ways: no stop, a bill that a shutdown does not end, file systems that outlive all, launches by key."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    MeterKind,
    Offer,
    ProviderRef,
    RentalRequest,
    RentPermit,
    steady_time,
)
from rgt_tui.profiles import action_for, load_profile
from rgt_tui.providers import (
    AccountContext,
    AnswerProof,
    ProviderError,
    creation_proof,
    judge_reading,
)
from rgt_tui.providers.lambda_cloud import LambdaAccount, open_account
from rgt_tui.providers.rented import EVERY
from rgt_tui.providers.rented_market import CREATE
from tests.contract.providers.conftest import START, Clock, permit_for
from tests.contract.providers.fakes.local_lambda import LocalLambda

ONE = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
KEY = "ssh-ed25519 AAAA me@laptop"
WISH = RentalRequest(gpu="A10", disk_gb=40, public_key=KEY)


class Place:
    """A local Lambda, and the account there."""

    def __init__(self, server: LocalLambda, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.token = f"rgt-{secrets.token_hex(6)}"
        context = AccountContext(clock, {"K": server.key}, Path("/nonexistent"), 60.0)
        self.account = open_account(ProviderRef("lambda", ONE, server.base_url, "K"), context)
        self.box = self.account.open_control_plane(ONE)

    def permit(self, offer: Offer) -> RentPermit:
        return RentPermit(
            box="new",
            kind="lambda",
            account=self.account.ref.account,
            offer=offer.id,
            per_hour=offer.per_hour,
            currency="USD",
            spot=False,
            token=self.token,
            expires=steady_time() + 60,
        )

    async def rent(self, wish: RentalRequest = WISH) -> Any:
        market = self.account.open_market()
        assert market is not None
        offer = (await market.find_offers(wish))[0]
        return await market.create_instance(offer, wish, self.token, self.permit(offer))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = Clock()
    server = LocalLambda(clock=clock, settle_s=0.0)
    await server.start()
    server.add_machine(ONE, "train-a")
    server.types["gpu_1x_a10"] = (75, ("us-west-1", "us-east-1"))
    found = Place(server, clock)
    yield found
    await found.account.close()
    await server.stop()


@pytest.mark.parametrize(
    ("status", "lifecycle", "kind"),
    [
        ("booting", Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
        ("active", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
        ("unhealthy", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
        ("terminating", Lifecycle.RUNNING, MeterKind.UNKNOWN),
        pytest.param(
            "alert", Lifecycle.UNKNOWN, MeterKind.UNKNOWN, marks=pytest.mark.odd_exchanges
        ),
        ("terminated", Lifecycle.GONE, MeterKind.NONE),
        ("preempted", Lifecycle.GONE, MeterKind.NONE),
    ],
)
async def test_what_a_state_is_and_costs(
    place: Place, status: str, lifecycle: Lifecycle, kind: MeterKind
) -> None:
    place.server.machines[ONE].status = status
    meter = await place.box.read(ONE)
    assert (meter.lifecycle, meter.kind) == (lifecycle, kind)
    assert meter.per_hour == (0.0 if kind is MeterKind.NONE else 0.75)
    assert judge_reading(BillingVerb.PARK, meter) is None or lifecycle is Lifecycle.GONE


async def test_there_is_no_stop_and_nothing_suggests_one(place: Place) -> None:
    meter = await place.box.read(ONE)
    assert meter.actions == ("terminate",)
    assert place.box.native_action(BillingVerb.PARK) not in meter.actions
    assert place.box.native_label(BillingVerb.PARK) == ""
    assert "also after a shutdown on it" in place.box.describe_call(BillingVerb.PARK, ONE)
    assert action_for(load_profile("lambda"), BillingVerb.PARK) is None
    asked = len(place.server.requests)
    ref = place.box.ref
    permit = permit_for(ref, BillingVerb.PARK)
    with pytest.raises(ProviderError, match="Lambda has no stop") as caught:
        await place.box.stop(permit)
    assert not caught.value.sent
    assert len(place.server.requests) == asked


async def test_a_file_system_bills_on_after_the_instance(place: Place) -> None:
    place.server.filesystems["shared-fs"] = 100 << 30
    place.server.machines[ONE].filesystems = ("shared-fs",)
    place.server.inject_faults(InjectedFault(on="GET /api/v1/file-systems", status=500))
    meter = await place.box.read(ONE)
    assert (meter.at_least, meter.unpriced) == (True, ("file system shared-fs",))
    place.clock.now += 601
    meter = await place.box.read(ONE)
    price: Any = pytest.approx(100 * 0.20 / 730)
    assert (meter.at_least, meter.storage_per_hour) == (False, price)
    assert place.box.list_tiers(ONE) == {
        "/": "local-nvme",
        "/lambda/nfs/shared-fs": "nfs-filesystem",
    }
    assert "a month" in place.box.list_kept_charges(BillingVerb.DESTROY, ONE)[0]
    (left,) = await place.account.list_leftovers()
    assert (left.name, left.used_by, left.per_hour) == ("shared-fs", (ONE,), price)
    del place.server.machines[ONE]
    meter = await place.box.read(ONE)
    assert (meter.kind, meter.per_hour) == (MeterKind.STORAGE_ONLY, price)


async def test_a_file_system_that_a_launch_mounted_elsewhere_is_known_there(place: Place) -> None:
    place.server.machines[ONE].filesystems = ("shared-fs",)
    place.server.machines[ONE].mounted_at = "/data"
    await place.box.read(ONE)
    assert place.box.list_tiers(ONE) == {"/": "local-nvme", "/data/shared-fs": "nfs-filesystem"}


async def test_a_terminated_instance_that_is_still_listed_is_gone(place: Place) -> None:
    place.server.lingers = True
    place.server.machines[ONE].status = "terminated"
    meter = await place.box.read(ONE)
    assert (meter.lifecycle, meter.kind, meter.native_status) == (
        Lifecycle.GONE,
        MeterKind.NONE,
        "terminated",
    )


async def test_secrets_of_an_instance_are_not_kept(place: Place) -> None:
    (item,) = await place.box.list()
    assert "secret" not in repr((item, place.account.find_last_reading(ONE)))


async def test_what_a_reservation_costs_is_in_doubt(place: Place) -> None:
    def reserved(data: Any) -> Any:
        return {"data": {**data["data"], "is_reserved": True}}

    place.server.inject_faults(InjectedFault(on="GET /api/v1/instances/", change=reserved))
    meter = await place.box.read(ONE)
    assert "reserved" in (meter.doubt or "")


async def test_the_offers_are_types_in_regions_with_capacity(place: Place) -> None:
    market = place.account.open_market()
    assert market is not None
    found = await market.find_offers(WISH)
    assert [(offer.id, offer.per_hour, offer.region) for offer in found] == [
        ("gpu_1x_a10/us-east-1", 0.75, "us-east-1"),
        ("gpu_1x_a10/us-west-1", 0.75, "us-west-1"),
    ]
    place.server.types["gpu_1x_a10"] = (75, ())
    assert await market.find_offers(WISH) == ()
    with pytest.raises(ProviderError, match="no GPU that is 'B200'"):
        await market.find_offers(msgspec.structs.replace(WISH, gpu="B200"))
    with pytest.raises(ProviderError, match="without spot"):
        await market.find_offers(msgspec.structs.replace(WISH, spot=True))


@pytest.mark.parametrize("known", [False, True])
async def test_a_launch_names_one_key_which_is_registered_if_it_is_new(
    place: Place, known: bool
) -> None:
    if known:
        place.server.keys["mine"] = "ssh-ed25519 AAAA another comment"
    made = await place.rent()
    (body,) = place.server.launched
    assert body["ssh_key_names"] == ["mine" if known else place.token]
    assert (body["name"], body["region_name"], body["instance_type_name"]) == (
        place.token,
        "us-east-1",
        "gpu_1x_a10",
    )
    assert ("POST /api/v1/ssh-keys" in place.server.requests) is not known
    assert known or place.server.keys[place.token] == KEY
    assert made.id in place.server.machines


async def test_without_a_key_nothing_is_launched(place: Place) -> None:
    with pytest.raises(ProviderError, match="public key") as caught:
        await place.rent(msgspec.structs.replace(WISH, public_key=""))
    assert not caught.value.sent
    assert place.server.launched == []


async def test_a_key_that_cannot_be_registered_launches_nothing(place: Place) -> None:
    place.server.inject_faults(InjectedFault(on="POST /api/v1/ssh-keys", status=500))
    with pytest.raises(ProviderError, match="nothing was rented") as caught:
        await place.rent()
    assert creation_proof("lambda", caught.value) is AnswerProof.NOTHING
    assert place.server.launched == []


async def test_capacity_that_has_gone_made_nothing(place: Place) -> None:
    market = place.account.open_market()
    assert market is not None
    offer = (await market.find_offers(WISH))[0]
    place.server.types["gpu_1x_a10"] = (75, ())
    with pytest.raises(ProviderError) as caught:
        await market.create_instance(offer, WISH, place.token, place.permit(offer))
    assert caught.value.code == "instance-operations/launch/insufficient-capacity"
    assert creation_proof("lambda", caught.value) is AnswerProof.NOTHING


async def test_what_the_provider_behind_it_says_proves_nothing(place: Place) -> None:
    body = json.dumps({"error": {"code": "provider/internal-unknown", "message": "?"}}).encode()
    place.server.inject_faults(
        InjectedFault(on="POST /api/v1/instance-operations/launch", status=400, raw=body)
    )
    with pytest.raises(ProviderError) as caught:
        await place.rent()
    assert creation_proof("lambda", caught.value) is AnswerProof.MAYBE


@pytest.mark.parametrize(
    ("text", "key"),
    [("api_key = k1\n", "k1"), ("# x\napi_key=k1", "k1"), ("key = k1", None), ("", None)],
)
def test_the_key_in_skypilot_s_file_is_found(tmp_path: Path, text: str, key: str | None) -> None:
    (tmp_path / ".lambda_cloud").mkdir()
    (tmp_path / ".lambda_cloud" / "lambda_keys").write_text(text)
    account = open_account(
        ProviderRef("lambda", ONE), AccountContext(lambda: START, {}, tmp_path, 60.0)
    )
    assert isinstance(account, LambdaAccount)
    assert account.pace._gaps == {EVERY: 1.0, CREATE: 12.0}
    if key is None:
        with pytest.raises(ProviderError, match="LAMBDA_API_KEY"):
            account.http._key()
    else:
        assert account.http._key().reveal() == key
