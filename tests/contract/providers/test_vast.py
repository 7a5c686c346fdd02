"""vast.ai's own ways: what its states cost, where SSH answers, pages, bids, and errors that have made a machine."""

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
from rgt_tui.providers import AccountContext, AuthError, PermitRefused, ProviderError, leftover_gaps
from rgt_tui.providers.rented import RequestPacer
from rgt_tui.providers.vast import VENDOR, VastAccount, open_account
from tests.contract.providers.conftest import START, Clock
from tests.contract.providers.fakes.renting_vast import LocalAsk, RentingVast

ONE = 31415926
WISH = RentalRequest(gpu="RTX 4090", disk_gb=40, public_key="ssh-ed25519 AAAA o'brien@laptop")


class Place:
    """A local vast.ai, and the account there."""

    def __init__(self, server: RentingVast, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.token = f"rgt-{secrets.token_hex(6)}"
        context = AccountContext(clock, {"K": server.key}, Path("/nonexistent"), 60.0)
        self.account = open_account(ProviderRef("vastai", str(ONE), server.base_url, "K"), context)
        assert isinstance(self.account, VastAccount)

    def parsed(self, **fields: Any) -> Any:
        return self.account.parse_machine({"id": ONE, "volume_info": [], **fields})

    def permit(self, offer: Offer) -> RentPermit:
        return RentPermit(
            box="new",
            kind="vastai",
            account=self.account.ref.account,
            offer=offer.id,
            per_hour=offer.per_hour,
            currency="USD",
            spot=offer.spot,
            token=self.token,
            expires=steady_time() + 60,
        )


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = Clock()
    server = RentingVast(clock=clock, settle_s=0.0)
    await server.start()
    server.add_instance(ONE, "train-a", created=START - 3600, ends=START + 864_000)
    found = Place(server, clock)
    yield found
    await found.account.close()
    await server.stop()


@pytest.mark.parametrize(
    ("actual", "intended", "lifecycle", "kind"),
    [
        (None, "running", Lifecycle.STARTING, MeterKind.STORAGE_ONLY),
        ("loading", "running", Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
        ("running", "running", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
        ("running", "stopped", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
        ("frozen", "frozen", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
        ("exited", "stopped", Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
        ("exited", "running", Lifecycle.ERROR, MeterKind.UNKNOWN),
        ("offline", "running", Lifecycle.ERROR, MeterKind.UNKNOWN),
        ("unknown", "running", Lifecycle.ERROR, MeterKind.UNKNOWN),
        ("quantum", "running", Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
        (7, "running", Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
    ],
)
async def test_what_a_state_is_and_costs(
    place: Place, actual: object, intended: str, lifecycle: Lifecycle, kind: MeterKind
) -> None:
    machine = place.parsed(
        actual_status=actual,
        intended_status=intended,
        dph_base=0.68,
        storage_total_cost=0.02,
        dph_total=0.70,
    )
    meter = place.account.build_meter(machine)
    assert (meter.lifecycle, meter.kind) == (lifecycle, kind)
    assert meter.per_hour == pytest.approx(0.02 if kind is MeterKind.STORAGE_ONLY else 0.70)
    doubtful = kind is MeterKind.UNKNOWN or lifecycle is Lifecycle.STOPPED or actual == "loading"
    assert (meter.doubt is not None) == doubtful


@pytest.mark.parametrize("said", [{}, {"storage_total_cost": 0.0021}])
async def test_the_price_of_a_disk_is_for_a_month_of_30_days(
    place: Place, said: dict[str, float]
) -> None:
    """The figures of the specification: 10.08 GB at 0.15 a month are 0.0021 an hour."""
    machine = place.parsed(actual_status="exited", disk_space=10.08, storage_cost=0.15, **said)
    ((_, price),) = machine.storage
    assert price == pytest.approx(0.0021, abs=1e-9)


async def test_an_instance_that_was_outbid_rests(place: Place) -> None:
    machine = place.parsed(
        actual_status="stopped",
        intended_status="running",
        cur_state="stopped",
        is_bid=True,
        storage_total_cost=0.02,
    )
    assert (machine.lifecycle, machine.bills, machine.spot) == (
        Lifecycle.STOPPED,
        MeterKind.STORAGE_ONLY,
        True,
    )
    assert machine.actions == ("start", "destroy")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        (
            {"public_ipaddr": "198.51.100.23", "ports": {"22/tcp": [{"HostPort": "40122"}]}},
            ("198.51.100.23", 40122),
        ),
        (
            {"ssh_host": "ssh5.vast.ai", "ssh_port": 31592, "image_runtype": "ssh"},
            ("ssh5.vast.ai", 31592),
        ),
        (
            {
                "ssh_host": "ssh5.vast.ai",
                "ssh_port": 31592,
                "image_runtype": "jupyter_direc ssh_direc",
            },
            ("ssh5.vast.ai", 31593),
        ),
        ({"ports": {"22/tcp": None}, "public_ipaddr": "198.51.100.23"}, (None, None)),
        (
            {"ports": {"22/tcp": [{"HostPort": "x"}]}, "public_ipaddr": "198.51.100.23"},
            (None, None),
        ),
        ({}, (None, None)),
    ],
)
async def test_where_ssh_answers(
    place: Place, fields: dict[str, Any], where: tuple[str | None, int | None]
) -> None:
    machine = place.parsed(actual_status="running", **fields)
    assert (machine.host, machine.port) == where


async def test_spot_and_the_end_of_the_rental_are_in_the_meter(place: Place) -> None:
    (item,) = await place.account.open_control_plane(str(ONE)).list()
    assert (item.meter.spot, item.meter.ends_at) == (False, START + 864_000)
    assert (item.gpu, item.gpu_count, item.region) == ("RTX 4090", 1, "Norway, NO")
    assert item.meter.out_per_gb == 0.002
    assert place.parsed(actual_status="running").out_per_gb is None
    assert place.parsed(actual_status="running", internet_up_cost_per_tb="much").out_per_gb is None
    assert item.meter.balance == 23.45
    assert item.meter.booked == pytest.approx(0.68 + 60 * 0.1667 / 720, abs=1e-5)


async def test_a_list_that_is_shorter_than_it_says_is_no_list(place: Place) -> None:
    def shorter(data: Any) -> Any:
        return {**data, "total_instances": 2}

    place.server.inject_faults(InjectedFault(on="GET /api/v1/", change=shorter))
    with pytest.raises(ProviderError, match="1 instances of 2"):
        await place.account.read_machines()


async def test_a_list_that_begins_again_ends(place: Place) -> None:
    def again(data: Any) -> Any:
        return {**data, "next_token": "5"}

    place.server.inject_faults(InjectedFault(on="GET /api/v1/", change=again, times=-1))
    with pytest.raises(ProviderError, match="next page cannot be requested"):
        await place.account.read_machines()
    assert len(place.server.requests) == 2


@pytest.mark.parametrize("per_page", [500, 50])
async def test_what_more_than_a_hundred_contracts_cost_is_known_of_each(
    place: Place, per_page: int
) -> None:
    """By default the server sends the charges of 100 contracts, and a cursor for the next ones."""
    place.server.most_charges = per_page
    for number in range(120):
        place.server.add_instance(6000 + number, f"run-{number}", created=place.clock() - 3600)
    listed = await place.account.open_control_plane(str(ONE)).list()
    assert len(listed) == 121
    assert all(one.meter.booked is not None for one in listed)


async def test_charges_whose_second_page_is_lost_are_unknown_and_not_less(place: Place) -> None:
    place.server.most_charges = 1
    place.server.add_instance(6000, "other", created=place.clock() - 3600)
    place.server.inject_faults(
        InjectedFault(on="GET /api/v0/charges", act=True),
        InjectedFault(on="GET /api/v0/charges", status=500),
    )
    listed = await place.account.open_control_plane(str(ONE)).list()
    assert [one.meter.booked for one in listed] == [None, None]


async def test_a_destroy_is_confirmed_although_the_instance_alone_never_named_its_volumes(
    place: Place,
) -> None:
    """By the specification only the list has ``volume_info``."""

    def without(data: Any) -> Any:
        box = data["instances"]
        return {
            "instances": None
            if box is None
            else {k: v for k, v in box.items() if k != "volume_info"}
        }

    place.server.inject_faults(
        InjectedFault(on=f"GET /api/v0/instances/{ONE}", change=without, times=-1)
    )
    box = place.account.open_control_plane(str(ONE))
    meter = await box.read(str(ONE))
    assert (meter.at_least, meter.unpriced) == (False, ())
    assert box.list_kept_charges(BillingVerb.DESTROY, str(ONE)) == ()
    del place.server.instances[ONE]
    meter = await box.read(str(ONE))
    assert (meter.lifecycle, meter.kind) == (Lifecycle.GONE, MeterKind.NONE)


async def test_volumes_that_neither_answer_names_stay_unknown(place: Place) -> None:
    def without(data: Any) -> Any:
        rows = data["instances"]
        for one in rows if isinstance(rows, list) else [rows]:
            one.pop("volume_info", None)
        return data

    place.server.inject_faults(InjectedFault(on="GET /api/", change=without, times=-1))
    meter = await place.account.open_control_plane(str(ONE)).read(str(ONE))
    assert meter.unpriced == ("a volume, if one is attached",)


async def test_a_key_that_is_not_known_is_named_as_such_although_the_status_is_404(
    place: Place,
) -> None:
    """By the specification: ``404 {"error": "auth_error", "msg": "Invalid user key"}``."""
    body = b'{"success": false, "error": "auth_error", "msg": "Invalid user key"}'
    place.server.inject_faults(InjectedFault(on="", status=404, raw=body, times=-1))
    meter = await place.account.open_control_plane(str(ONE)).read(str(ONE))
    assert meter.lifecycle is not Lifecycle.GONE
    assert "refused the key (404 Invalid user key)" in (meter.error or "")
    with pytest.raises(AuthError):
        await place.account.read_machines()


async def test_the_retired_list_is_an_error_and_no_empty_account(place: Place) -> None:
    retired = b'{"success": false, "error": "deprecated_endpoint", "msg": "use v1"}'
    place.server.inject_faults(InjectedFault(on="GET /api/v1/", status=200, raw=retired))
    with pytest.raises(ProviderError) as caught:
        await place.account.read_machines()
    assert caught.value.code == "deprecated_endpoint"


async def test_volumes_of_a_network_and_endpoints_are_listed_among_what_bills_besides(
    place: Place,
) -> None:
    place.server.volumes = {77: 50.0, 78: 500.0}
    place.server.network_volumes = {78}
    place.server.endpoints = {9: "vLLM"}
    left = await place.account.list_leftovers()
    assert [(one.what, one.id, one.per_hour is None) for one in left] == [
        ("volume", "77", False),
        ("volume", "78", False),
        ("endpoint", "9", True),
    ]
    assert leftover_gaps(place.account) == ("deposits for reserved instances",)


async def test_a_list_that_the_key_may_not_read_hides_no_other_and_is_named(place: Place) -> None:
    place.server.volumes = {77: 50.0}
    place.server.inject_faults(InjectedFault(on="GET /api/v0/endptjobs", status=403))
    (left,) = await place.account.list_leftovers()
    assert left.id == "77"
    assert "endpoints (the key may not list them)" in leftover_gaps(place.account)
    place.server.inject_faults(InjectedFault(on="GET /api/v0/endptjobs", status=500))
    with pytest.raises(ProviderError, match="500"):
        await place.account.list_leftovers()


async def test_a_volume_outlives_the_instance_and_bills(place: Place) -> None:
    place.server.volumes[77] = 50.0
    place.server.instances[ONE].volumes = (77,)
    box = place.account.open_control_plane(str(ONE))
    place.server.inject_faults(InjectedFault(on="GET /api/v0/volumes", status=500))
    meter = await box.read(str(ONE))
    assert (meter.at_least, meter.unpriced) == (True, ("volume 77",))
    assert box.list_kept_charges(BillingVerb.DESTROY, str(ONE)) == ("volume 77, price unknown",)
    del place.server.instances[ONE]
    meter = await box.read(str(ONE))
    assert (meter.lifecycle, meter.kind, meter.per_hour) == (
        Lifecycle.GONE,
        MeterKind.STORAGE_ONLY,
        None,
    )
    place.server.add_instance(5, "other", volumes=(77,))
    place.clock.now += 601
    price = pytest.approx(50 * 0.15 / 720, abs=1e-6)
    assert (await box.read("5")).unpriced == ()
    meter = await box.read(str(ONE))
    assert meter.per_hour == price, "what it costs is known of a machine that is gone, too"
    del place.server.instances[5]
    (left,) = await place.account.list_leftovers()
    assert (left.id, left.size_gb) == ("77", 50.0)
    assert left.per_hour == price


@pytest.mark.parametrize(
    "answer", [{"credit": 23.4, "balance": 0}, {"balance": 23.4}, {"credit": 25, "balance": -1.6}]
)
async def test_the_balance_is_what_is_paid_in_less_what_is_owed(
    place: Place, answer: dict[str, float]
) -> None:
    place.server.inject_faults(InjectedFault(on="GET /api/v0/users", change=lambda _: answer))
    (item,) = await place.account.open_control_plane(str(ONE)).list()
    assert item.meter.balance == pytest.approx(23.4)
    assert item.meter.burn_per_hour == pytest.approx(0.68 + 60 * 0.1667 / 720, abs=1e-5)


async def test_a_bid_is_sent_with_its_price_and_read_back(place: Place) -> None:
    place.server.asks[9001] = LocalAsk(9001)
    market = place.account.open_market()
    assert market is not None
    (offer,) = await market.find_offers(msgspec.structs.replace(WISH, spot=True))
    assert (offer.spot, offer.compute_per_hour, offer.disk_gb) == (True, 0.15, 40)
    assert offer.storage_per_hour == pytest.approx(40 * 0.15 / 720, abs=1e-6)
    assert offer.notes
    search = json.loads(place.server.bodies[-1])
    assert (search["type"], search["allocated_storage"], search["rentable"]) == (
        "bid",
        40,
        {"eq": True},
    )
    made = await market.create_instance(offer, WISH, place.token, place.permit(offer))
    (body,) = place.server.created
    assert (body["price"], body["label"], body["cancel_unavail"]) == (0.15, place.token, True)
    assert "'ssh-ed25519 AAAA o'\"'\"'brien@laptop'" in body["onstart"]
    await place.server.wait_settled()
    (found,) = await market.find_by_token(place.token)
    assert (found.id, found.meter.spot, found.meter.compute_per_hour) == (made.id, True, 0.15)


VAST_NAMES = [
    ("A100", "A100 SXM4", 80),
    ("A100", "A100 PCIE", 40),
    ("V100", "Tesla V100", 16),
    ("T4", "Tesla T4", 16),
    ("RTX 6000 Ada", "RTX 6000Ada", 48),
    ("RTX 8000", "Q RTX 8000", 48),
    ("RTX 4080 SUPER", "RTX 4080S", 16),
    ("RTX PRO 6000", "RTX PRO 6000 WS", 96),
    ("RTX PRO 6000", "RTX PRO 6000 S", 96),
    ("24GB+", "A100 SXM4", 80),
    ("A100 80GB", "A100 SXM4", 80),
]


@pytest.mark.parametrize(("gpu", "native", "memory"), VAST_NAMES)
async def test_a_usual_wish_finds_the_name_that_the_platform_has_for_it(
    place: Place, gpu: str, native: str, memory: int
) -> None:
    """The search of the platform compares whole names: another spelling looks like nothing in stock."""
    place.server.asks = {
        1: LocalAsk(1, native, memory_gb=memory),
        2: LocalAsk(2, "RTX 3080", memory_gb=10),
    }
    market = place.account.open_market()
    assert market is not None
    assert [
        offer.gpu for offer in await market.find_offers(msgspec.structs.replace(WISH, gpu=gpu))
    ] == [native]


async def test_a_model_of_no_known_spelling_is_named_and_is_not_called_out_of_stock(
    place: Place,
) -> None:
    market = place.account.open_market()
    assert market is not None
    with pytest.raises(ProviderError, match="no GPU that is 'RTX 9999'"):
        await market.find_offers(msgspec.structs.replace(WISH, gpu="RTX 9999"))
    assert await market.find_offers(msgspec.structs.replace(WISH, gpu="B200")) == ()


async def test_on_demand_sends_no_price(place: Place) -> None:
    place.server.asks[9001] = LocalAsk(9001)
    market = place.account.open_market()
    assert market is not None
    (offer,) = await market.find_offers(WISH)
    said = market.describe_creation(offer, WISH, place.token)
    assert "AAAA" not in said
    assert said.startswith(f"PUT {place.server.base_url}/api/v0/asks/9001/ {{")
    await market.create_instance(offer, WISH, place.token, place.permit(offer))
    assert "price" not in place.server.created[0]


async def test_an_error_that_names_a_contract_has_made_one(place: Place) -> None:
    place.server.asks[9001] = LocalAsk(9001, min_bid=0.30)
    market = place.account.open_market()
    assert market is not None
    (offer,) = await market.find_offers(msgspec.structs.replace(WISH, spot=True))
    low = msgspec.structs.replace(offer, compute_per_hour=0.20)
    made = await market.create_instance(low, WISH, place.token, place.permit(low))
    assert int(made.id) in place.server.instances
    assert "vast.ai answered" in (made.meter.doubt or "")
    assert (await market.find_by_token(place.token))[0].id == made.id


@pytest.mark.parametrize("bid", [None, 0.0, 129.0])
async def test_a_bid_that_cannot_be_one_sends_nothing(place: Place, bid: float | None) -> None:
    place.server.asks[9001] = LocalAsk(9001)
    market = place.account.open_market()
    assert market is not None
    (offer,) = await market.find_offers(msgspec.structs.replace(WISH, spot=True))
    asked = len(place.server.requests)
    odd = msgspec.structs.replace(offer, compute_per_hour=bid)
    with pytest.raises(ProviderError) as caught:
        await market.create_instance(odd, WISH, place.token, place.permit(odd))
    assert not caught.value.sent
    assert len(place.server.requests) == asked
    await market.create_instance(offer, WISH, place.token, place.permit(offer))


async def test_another_offer_than_the_agreed_one_is_not_taken(place: Place) -> None:
    place.server.asks[9001] = LocalAsk(9001)
    market = place.account.open_market()
    assert market is not None
    (offer,) = await market.find_offers(WISH)
    dearer = msgspec.structs.replace(offer, compute_per_hour=9.0)
    with pytest.raises(PermitRefused, match="agreed:"):
        await market.create_instance(dearer, WISH, place.token, place.permit(offer))
    assert place.server.created == []


def account_at(home: Path, env: dict[str, str]) -> VastAccount:
    return open_account(
        ProviderRef("vastai", str(ONE)), AccountContext(lambda: START, env, home, 60.0)
    )


@pytest.mark.parametrize(
    "files", [(".vast_api_key",), (".config/vastai/vast_api_key", ".vast_api_key")]
)
def test_the_key_of_the_vendor_s_tool_is_found(tmp_path: Path, files: tuple[str, ...]) -> None:
    for place_, name in enumerate(files):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"key{place_}\n")
    assert account_at(tmp_path, {}).http._key().reveal() == "key0"
    assert account_at(tmp_path, {"VAST_API_KEY": "mine"}).http._key().reveal() == "mine"


def test_the_newer_place_of_the_key_follows_xdg(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "vastai" / "vast_api_key"
    path.parent.mkdir(parents=True)
    path.write_text("there")
    account = account_at(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")})
    assert account.http._key().reveal() == "there"
    assert account.http.base_url == VENDOR


async def test_requests_of_one_kind_keep_their_distance() -> None:
    now, slept = 100.0, []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = RequestPacer({"list": 1.0, "destroy": 3.0}, ticks=lambda: now, sleep=sleep)
    for kind in ("list", "list", "list", "destroy", "read", "read"):
        await pace.wait_turn(kind)
    assert slept == [1.0, 2.0]
    now += 10.0
    await pace.wait_turn("list")
    assert slept == [1.0, 2.0]


def test_the_vendor_s_own_server_is_paced_and_the_loopback_is_not(tmp_path: Path) -> None:
    assert account_at(tmp_path, {}).pace._gaps["list"] == 1.0
    local = open_account(
        ProviderRef("vastai", str(ONE), "http://127.0.0.1:1", "K"),
        AccountContext(lambda: START, {}, tmp_path, 60.0),
    )
    assert local.pace._gaps == {}
