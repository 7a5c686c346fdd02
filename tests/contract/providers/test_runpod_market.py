"""Renting at RunPod: what is offered at which price, the one call that creates, and what its answers prove."""

from __future__ import annotations

import json
import secrets
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import Lifecycle, Offer, RentalRequest, RentPermit, steady_time
from rgt_tui.providers import (
    AnswerProof,
    BadAnswer,
    Market,
    PermitRefused,
    ProviderError,
    RateLimited,
    Unreachable,
    creation_proof,
)
from rgt_tui.providers.runpod_market import IMAGE
from tests.contract.providers.conftest import World
from tests.contract.providers.fakes.renting_runpod import LocalGpu

KEY = "ssh-ed25519 AAAAC3Nz me@here"
A100 = "NVIDIA A100 80GB PCIe"
WISH = RentalRequest(gpu="A100", gpu_count=2, disk_gb=200, public_key=KEY)
DISKS = (200 + 40) * 0.10 / 730


def market(world: World) -> Market:
    found = world.providers.find_account(world.provider.ref).open_market()
    assert found is not None
    return found


def stock(world: World) -> None:
    world.server.add_gpu(
        LocalGpu(
            A100,
            "A100 PCIe",
            memory=80,
            secure=1.64,
            community=1.19,
            stock={
                ("SECURE", "EU-RO-1"): "HIGH",
                ("SECURE", "US-KS-2"): "LOW",
                ("COMMUNITY", "US-1"): "MEDIUM",
            },
        )
    )
    world.server.add_gpu(LocalGpu("NVIDIA L40S", "L40S", stock={}))


def permit(world: World, offer: Offer, **change: Any) -> RentPermit:
    ref = world.provider.ref
    made = RentPermit(
        box="train-a",
        kind=ref.kind,
        account=ref.account,
        offer=offer.id,
        per_hour=offer.per_hour,
        currency=offer.currency,
        spot=offer.spot,
        token=f"rgt-{secrets.token_hex(6)}",
        expires=steady_time() + 60,
    )
    return msgspec.structs.replace(made, **change)


async def created(world: World) -> tuple[Offer, str]:
    """Rent the first offer; return it and its token."""
    offer = (await market(world).find_offers(WISH))[0]
    given = permit(world, offer)
    await market(world).create_instance(offer, WISH, given.token, given)
    return offer, given.token


def creations(world: World) -> list[dict[str, Any]]:
    return [
        json.loads(body)
        for what, body in zip(world.server.requests, world.server.bodies, strict=True)
        if what == "POST /v2/pods"
    ]


async def test_both_clouds_are_offered_with_the_price_of_all_gpus_and_both_disks(
    world: World,
) -> None:
    stock(world)
    community, secure = await market(world).find_offers(WISH)
    assert (community.compute_per_hour, secure.compute_per_hour) == (2 * 1.19, 2 * 1.64)
    assert secure.storage_per_hour == pytest.approx(DISKS)
    assert (secure.gpu, secure.gpu_count, secure.gpu_memory_gb, secure.disk_gb) == (
        A100,
        2,
        80,
        200,
    )
    assert (secure.stock, community.stock) == ("secure cloud, high", "community cloud, medium")
    assert (secure.currency, secure.spot, secure.region) == ("USD", False, None)
    assert any("third parties" in note for note in community.notes)
    assert not any("third parties" in note for note in secure.notes)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"region": "US-KS-2"}, ["SECURE/US-KS-2/2xNVIDIA A100 80GB PCIe"]),
        ({"region": "MARS-1"}, []),
        ({"gpu": "L40S"}, []),
        ({"gpu_count": 9}, []),
        ({"max_per_hour": 2.5}, ["COMMUNITY/any/2xNVIDIA A100 80GB PCIe"]),
        ({"max_per_hour": 2.38}, []),  # the disks count as well
    ],
)
async def test_what_does_not_fit_is_not_offered(
    world: World, change: dict[str, Any], left: list[str]
) -> None:
    stock(world)
    offers = await market(world).find_offers(msgspec.structs.replace(WISH, **change))
    assert [offer.id for offer in offers] == left


async def test_a_cloud_that_has_not_the_type_is_not_offered(world: World) -> None:
    stock(world)

    def change(data: Any) -> Any:
        data["gpus"][0]["community"] = False
        return data

    world.server.inject_faults(InjectedFault(on="GET /v2/catalog", change=change, times=-1))
    single = msgspec.structs.replace(WISH, gpu_count=1)
    assert [offer.id for offer in await market(world).find_offers(single)] == [
        f"SECURE/any/1x{A100}"
    ]


async def test_a_host_too_old_for_the_image_is_not_offered(world: World) -> None:
    stock(world)
    world.server.gpus[A100].cuda = "12.4"
    assert await market(world).find_offers(WISH) == ()
    assert (
        len(await market(world).find_offers(msgspec.structs.replace(WISH, image="own/image:1")))
        == 2
    )


async def test_what_runpod_cannot_rent_is_said(world: World) -> None:
    stock(world)
    with pytest.raises(
        ProviderError, match="no GPU that is 'TPU v5'; it has: NVIDIA A100 80GB PCIe, NVIDIA L40S"
    ):
        await market(world).find_offers(msgspec.structs.replace(WISH, gpu="TPU v5"))
    asked = len(world.server.requests)
    with pytest.raises(ProviderError, match="no spot prices by region"):
        await market(world).find_offers(msgspec.structs.replace(WISH, spot=True, region="EU-RO-1"))
    assert len(world.server.requests) == asked


@pytest.mark.parametrize("price", [None, 0, 0.0, "x", -1, []])
async def test_a_price_that_is_missing_or_a_gift_is_unknown_and_comes_last(
    world: World, price: object
) -> None:
    stock(world)

    def change(data: Any) -> Any:
        data["gpus"][0]["price"]["community"] = price
        return data

    world.server.inject_faults(
        InjectedFault(on="GET /v2/catalog", change=lambda data: data),
        InjectedFault(on="GET /v2/catalog", change=change),
    )
    secure, community = await market(world).find_offers(WISH)
    assert secure.compute_per_hour == 2 * 1.64
    assert (community.compute_per_hour, community.per_hour) == (None, None)


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b'{"gpus": {}}',
        b'{"gpus": [null, 3, {"id": 5}, {"id": "A100\\u001b[31m"}]}',
        b"<html>",
    ],
)
async def test_an_odd_catalogue_is_a_bad_answer_or_empty_and_never_an_offer(
    world: World, raw: bytes
) -> None:
    world.server.inject_faults(InjectedFault(on="GET /v2/catalog", raw=raw, times=-1))
    with pytest.raises(ProviderError):
        await market(world).find_offers(WISH)


async def test_a_pod_is_made_by_one_call_that_leaves_nothing_to_a_default(world: World) -> None:
    stock(world)
    wish = msgspec.structs.replace(WISH, region="US-KS-2")
    (offer,) = await market(world).find_offers(wish)
    given = permit(world, offer)
    said = market(world).describe_creation(offer, wish, given.token)
    made = await market(world).create_instance(offer, wish, given.token, given)
    (body,) = creations(world)
    assert body == {
        "name": given.token,
        "image": IMAGE,
        "cloud": "SECURE",
        "dataCenterIds": ["US-KS-2"],
        "gpu": {"id": A100, "count": 2, "minCudaVersion": "12.8"},
        "disk": 40,
        "mounts": {"persistent": {"size": 200, "path": "/workspace"}},
        "ports": ["22/tcp"],
        "startSsh": True,
        "startJupyter": False,
        "globalNetworking": False,
        "env": {"PUBLIC_KEY": KEY},
    }
    method, url, shown = said.split(" ", 2)
    assert (method, url, json.loads(shown)) == ("POST", f"{world.server.base_url}/v2/pods", body)
    assert (made.name, made.gpu, made.gpu_count, made.region) == (given.token, A100, 2, "US-KS-2")
    assert made.meter.lifecycle is Lifecycle.STARTING
    assert made.meter.compute_per_hour == 2 * 1.64
    await world.clock.advance(2)
    await world.server.wait_settled()
    assert [change.action for change in world.changes] == ["create"]
    (found,) = await market(world).find_by_token(given.token)
    assert (found.id, found.meter.lifecycle) == (made.id, Lifecycle.RUNNING)


async def test_a_pod_is_found_by_its_name_alone(world: World) -> None:
    stock(world)
    _, token = await created(world)
    world.server.page_size = 1  # it is on the second page: a second pod must not be rented
    assert [pod.name for pod in await market(world).find_by_token(token)] == [token]
    assert await market(world).find_by_token("rgt-another") == ()
    world.server.inject_faults(InjectedFault(on="GET /v2/pods", raw=b"[]"))
    with pytest.raises(BadAnswer):
        await market(world).find_by_token(token)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "vastai"},
        {"account": "OTHER@vendor"},
        {"offer": "SECURE/any/1xNVIDIA L40S"},
        {"currency": "CNY"},
        {"spot": True},
        {"per_hour": 0.5},
        {"token": "another"},
        {"expires": 0.0},
        {"expires": float("nan")},
    ],
)
async def test_without_a_permit_that_fits_nothing_is_sent(
    world: World, change: dict[str, Any]
) -> None:
    stock(world)
    offer = (await market(world).find_offers(WISH))[0]
    fits = permit(world, offer)
    with pytest.raises(PermitRefused):
        await market(world).create_instance(
            offer, WISH, fits.token, msgspec.structs.replace(fits, **change)
        )
    assert creations(world) == []
    strange = msgspec.structs.replace(offer, id="../v2/pods")
    with pytest.raises(PermitRefused, match="not an offer from RunPod"):
        await market(world).create_instance(
            strange, WISH, fits.token, msgspec.structs.replace(fits, offer=strange.id)
        )
    await market(world).create_instance(offer, WISH, fits.token, fits)
    with pytest.raises(PermitRefused, match="used already"):
        await market(world).create_instance(offer, WISH, fits.token, fits)
    assert len(creations(world)) == 1


@pytest.mark.parametrize(
    ("status", "proves"),
    [
        (400, AnswerProof.NOTHING),
        (401, AnswerProof.NOTHING),
        (402, AnswerProof.NOTHING),
        (403, AnswerProof.NOTHING),
        (404, AnswerProof.NOTHING),
        (422, AnswerProof.NOTHING),
        (429, AnswerProof.NOTHING),
        (500, AnswerProof.MAYBE),
        (502, AnswerProof.MAYBE),
        (408, AnswerProof.MAYBE),
        (302, AnswerProof.MAYBE),
    ],
)
async def test_what_the_answer_to_a_creation_proves(
    world: World, status: int, proves: AnswerProof
) -> None:
    stock(world)
    world.server.inject_faults(InjectedFault(on="POST /v2/pods", status=status))
    with pytest.raises(ProviderError) as caught:
        await created(world)
    assert creation_proof("runpod", caught.value) is proves
    assert isinstance(caught.value, RateLimited) == (status == 429)
    assert len(creations(world)) == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"hang": True},
        {"raw": b"{}"},
        {"raw": b'{"id": "x', "cut": 4},
        {"raw": b"<html>"},
    ],
)
async def test_a_pod_whose_answer_was_lost_is_found_by_its_token(
    world: World, fault: dict[str, Any]
) -> None:
    stock(world)
    world.server.inject_faults(InjectedFault(on="POST /v2/pods", act=True, **fault))
    with pytest.raises((Unreachable, BadAnswer)) as caught:
        await created(world)
    assert creation_proof("runpod", caught.value) is AnswerProof.MAYBE
    (body,) = creations(world)
    (found,) = await market(world).find_by_token(body["name"])
    assert found.meter.compute_per_hour == 2 * 1.19


async def test_stock_that_went_and_a_balance_too_low_prove_that_nothing_was_made(
    world: World,
) -> None:
    stock(world)
    offer = (await market(world).find_offers(WISH))[0]
    given = permit(world, offer)
    world.server.gpus[A100].stock.clear()
    with pytest.raises(ProviderError, match="no longer any instances available") as caught:
        await market(world).create_instance(offer, WISH, given.token, given)
    assert (caught.value.status, creation_proof("runpod", caught.value)) == (
        400,
        AnswerProof.NOTHING,
    )
    stock(world)
    world.server.set_balance(1.0)
    again = msgspec.structs.replace(given, token=f"{given.token}-2")
    with pytest.raises(ProviderError, match="insufficient balance") as caught:
        await market(world).create_instance(offer, WISH, again.token, again)
    assert (caught.value.status, creation_proof("runpod", caught.value)) == (
        402,
        AnswerProof.NOTHING,
    )
    assert len(world.server.pods) == 1


@pytest.mark.odd_exchanges
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"name": "x"}, 422),
        ({"name": "x", "image": "i", "gpu": {"id": A100}, "bogus": 1}, 422),
        (
            {
                "name": "x",
                "image": "i",
                "gpu": {"id": A100},
                "mounts": {"persistent": {"size": 9, "path": "/w"}},
            },
            422,
        ),
        (
            {
                "name": "x",
                "image": "i",
                "gpu": {"id": A100},
                "mounts": {
                    "persistent": {"size": 10, "path": "/w"},
                    "network": [{"volumeId": "v", "path": "/w"}],
                },
            },
            400,
        ),
        ({"name": "x", "image": "i", "gpu": {"id": "none"}}, 400),
        ({"name": "x", "image": "i", "gpu": {"id": A100}}, 201),
    ],
)
async def test_the_local_platform_refuses_what_the_documentation_says(
    world: World, body: dict[str, Any], status: int
) -> None:
    stock(world)
    account: Any = world.providers.find_account(world.provider.ref)
    if status == 201:
        assert (await account.http.send("POST", "/v2/pods", body)).status == 201
        return
    with pytest.raises(ProviderError) as caught:
        await account.http.send("POST", "/v2/pods", body)
    assert caught.value.status == status


async def test_a_pod_under_creation_can_be_terminated(world: World) -> None:
    stock(world)
    _, token = await created(world)
    (pod,) = await market(world).find_by_token(token)
    account: Any = world.providers.find_account(world.provider.ref)
    await account.http.send("DELETE", f"/v2/pods/{pod.id}")
    await world.clock.advance(2)
    await world.server.wait_settled()
    assert await market(world).find_by_token(token) == ()


async def test_a_community_pod_is_named_as_limited_before_money_is_spent(world: World) -> None:
    stock(world)
    found = {offer.id.split("/")[0]: offer for offer in await market(world).find_offers(WISH)}
    assert (
        found["COMMUNITY"]
        .notes[0]
        .startswith("limited: third parties' hardware, which may have no public address")
    )
    assert not any("limited" in note for note in found["SECURE"].notes)


SPOT = msgspec.structs.replace(WISH, spot=True)


async def test_a_spot_pod_is_bid_for_at_the_price_that_was_shown_and_is_marked_unverified(
    world: World,
) -> None:
    stock(world)
    world.server.gpus[A100].bid = 0.8
    offers = await market(world).find_offers(SPOT)
    assert [(offer.id, offer.compute_per_hour, offer.spot) for offer in offers] == [
        (f"SPOT-COMMUNITY/any/2x{A100}", 1.6, True),
        (f"SPOT-SECURE/any/2x{A100}", 1.6, True),
    ]
    assert all(any(note.startswith("unverified: ") for note in offer.notes) for offer in offers)
    offer = offers[1]
    given = permit(world, offer)
    shown = market(world).describe_creation(offer, SPOT, given.token)
    assert shown.startswith(f"POST {world.server.base_url}/graphql ")
    made = await market(world).create_instance(offer, SPOT, given.token, given)
    assert (made.name, made.meter.compute_per_hour, made.gpu_count) == (given.token, 1.6, 2)
    sent = [json.loads(body) for body in world.server.bodies if b"podRentInterruptable" in body]
    assert [json.loads(shown.split(" ", 2)[2])] == sent, "once, as it was shown"
    wanted = sent[0]["variables"]["input"]
    assert (wanted["bidPerGpu"], wanted["cloudType"], wanted["volumeInGb"]) == (0.8, "SECURE", 200)
    assert wanted["env"] == [{"key": "PUBLIC_KEY", "value": KEY}]
    assert [pod.id for pod in await market(world).find_by_token(given.token)] == [made.id]


async def test_an_outbid_spot_wish_proves_nothing_and_no_bid_is_no_offer(world: World) -> None:
    stock(world)
    assert await market(world).find_offers(SPOT) == ()
    world.server.gpus[A100].bid = 0.8
    offer = (await market(world).find_offers(SPOT))[0]
    world.server.gpus[A100].bid = 0.9
    given = permit(world, offer)
    with pytest.raises(BadAnswer, match="no longer any instances available") as caught:
        await market(world).create_instance(offer, SPOT, given.token, given)
    assert creation_proof("runpod", caught.value) is not AnswerProof.NOTHING, (
        "GraphQL answers errors with 200"
    )
    with pytest.raises(PermitRefused):
        await market(world).create_instance(offer, SPOT, given.token, given)


async def test_a_spot_pod_that_cannot_be_read_was_made_all_the_same(world: World) -> None:
    stock(world)
    world.server.gpus[A100].bid = 0.8
    offer = (await market(world).find_offers(SPOT))[0]
    given = permit(world, offer)
    world.server.inject_faults(InjectedFault(on="GET /v2/pods/spot", status=503))
    made = await market(world).create_instance(offer, SPOT, given.token, given)
    assert made.id in world.server.pods
    assert made.meter.doubt is not None
    assert "could not be read" in made.meter.doubt
    assert made.meter.per_hour is None


@pytest.mark.parametrize(
    "raw", [b"[]", b'{"data": null}', b'{"data": {"gpuTypes": 7}}', b"<html>", b'{"errors": [{}]}']
)
async def test_bids_that_are_not_told_are_no_offers(world: World, raw: bytes) -> None:
    stock(world)
    world.server.inject_faults(InjectedFault(on="POST /graphql", raw=raw))
    with pytest.raises(ProviderError):
        await market(world).find_offers(SPOT)
