"""Finds and rents vast.ai's machines: offers of single hosts, on demand or by a bid.

https://docs.vast.ai/api-reference/search/search-offers and
https://docs.vast.ai/api-reference/instances/create-instance (verified 2026-08). A bid is a creation
with a ``price``; without one it is on demand, regardless of the search.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping

from rgt_tui.language import translate
from rgt_tui.model import Bid, Offer, RentalRequest, RentPermit, steady_time
from rgt_tui.model.gpu_names import GPUS, MEMORY_TOLERANCE, read_gpu_name, same_gpu
from rgt_tui.providers.answers import (
    as_object,
    parse_count,
    parse_number,
    parse_text,
    sum_known_parts,
)
from rgt_tui.providers.control_plane import (
    BadAnswer,
    Instance,
    ProviderError,
    make_printable,
    use_rent_permit,
)
from rgt_tui.providers.rented import MachineCall, RentedAccount, RentedMachine
from rgt_tui.providers.rented_market import RentedMarket, check_wish, in_order, unknown_gpu

Pages = Callable[[Mapping[str, object]], Awaitable[tuple[RentedMachine, ...]]]
IMAGE = "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"
"""Any image works: with an ``ssh`` runtype vast.ai starts its own sshd in it."""
FORMS = ("", " SXM", " SXM2", " SXM4", " SXM5", " PCIE")
"""Suffixes of vast.ai's GPU names for models missing in our table, as in ``A100 SXM4``."""
BIDS = (0.001, 128.0)
"""Minimum and maximum of a new bid, USD per hour of the machine."""
LIMITS = (0.001, 32.0)
"""Minimum and maximum of a changed bid, USD per hour of the machine."""
REFUSED = frozenset((400, 401, 403, 404, 429))
"""Statuses after which the bid is certainly unchanged."""


class VastMarket(RentedMarket):
    """Rents instances; see `Market`."""

    def __init__(self, account: RentedAccount, pages: Pages) -> None:
        """Create the market of an account.

        Args:
            account: The account that pays.
            pages: Lists its instances that match the given filters.
        """
        super().__init__(account)
        self._pages = pages

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Request the offers of verified hosts that can be rented now."""
        check_wish("vast.ai", wish, currency="USD")
        await self.account.pace.wait_turn("offers")
        data = (
            await self.account.http.send_query("POST", "/api/v0/bundles/", build_search(wish))
        ).data
        items = as_object(data).get("offers")
        if not isinstance(items, list):
            raise BadAnswer(
                translate("vast.ai's answer to a search has no 'offers'"),
                console=self.account.http.console,
            )
        read = (self._build_offer(as_object(item), wish) for item in items)
        found = [offer for offer in read if offer is not None and _matches_wish(offer, wish)]
        if not found and not _list_gpu_names(wish) and read_gpu_name(wish.gpu).words:
            # The search compares whole names, so another spelling looks like nothing in stock.
            known = (name for row in GPUS for name in row.vast or (row.name,))
            raise unknown_gpu("vast.ai", wish, known, self.account.http.console)
        return in_order(found, wish)

    def _build_offer(self, item: Mapping[str, object], wish: RentalRequest) -> Offer | None:
        """Parse one offer; None = it cannot be rented."""
        ask, count = parse_count(item.get("id")), parse_count(item.get("num_gpus"))
        gpu = parse_text(item.get("gpu_name"), 60)
        if ask is None or count is None or gpu is None:
            return None
        base, total = parse_number(item.get("dph_base")), parse_number(item.get("dph_total"))
        if base is not None and total is not None and total >= base:
            storage = total - base
        else:
            storage = None
        # 0 is not a price of compute, neither on demand nor as the minimum bid.
        compute = (parse_number(item.get("min_bid")) if wish.spot else base) or None
        left, memory = parse_number(item.get("duration")), parse_number(item.get("gpu_ram"))
        gpu_memory_gb = None
        if memory is not None:
            gpu_memory_gb = memory / 1024
        ends_at = None
        if left is not None:
            ends_at = self.account.clock() + left
        return Offer(
            kind=self.account.ref.kind,
            id=str(ask),
            gpu=gpu,
            gpu_count=count,
            gpu_memory_gb=gpu_memory_gb,
            compute_per_hour=compute,
            storage_per_hour=storage,
            in_per_gb=parse_number(item.get("inet_down_cost")),
            out_per_gb=parse_number(item.get("inet_up_cost")),
            spot=wish.spot,
            disk_gb=_choose_disk_gb(wish),
            region=parse_text(item.get("geolocation"), 60),
            reliability=parse_number(item.get("reliability")),
            ends_at=ends_at,
            notes=NOTES[wish.spot],
        )

    def build_creation_call(self, offer: Offer, wish: RentalRequest, token: str) -> MachineCall:
        """Return the call that accepts an ask."""
        return MachineCall(
            "PUT", f"/api/v0/asks/{offer.id}/", build_creation_body(offer, wish, token)
        )

    def find_created_id(self, data: object) -> str | None:
        """Return the id of the contract."""
        contract = parse_count(as_object(data).get("new_contract"))
        if contract is not None and as_object(data).get("success") is True:
            return str(contract)
        return None

    async def find_by_token(self, token: str) -> tuple[Instance, ...]:
        """Find instances by their label."""
        machines = await self._pages({"label": {"eq": token}})
        return tuple(self.account.build_instance(one) for one in machines if token in one.name)


NOTES = {
    False: (
        "The host may run work of others on its other GPUs; traffic is charged by the GB, in "
        "both directions.",
    ),
    True: (
        "A higher bid takes it at once, without a signal; it is then stopped, and its disk is "
        "charged.",
        "The price is the lowest bid now: a slightly higher bid keeps it longer.",
        "Traffic is charged by the GB, in both directions.",
    ),
}
"""Spot or not → notes for the person (https://docs.vast.ai, rental types and billing, 2026-08)."""


def _matches_wish(offer: Offer, wish: RentalRequest) -> bool:
    return (
        same_gpu(wish.gpu, offer.gpu, offer.gpu_memory_gb)
        and offer.gpu_count == wish.gpu_count
        and (wish.region is None or wish.region.casefold() in (offer.region or "").casefold())
    )


def build_search(wish: RentalRequest) -> dict[str, object]:
    """Return the body of a search.

    Every filter is explicit, because the vendor's defaults may change.
    """
    name = read_gpu_name(wish.gpu)
    wanted: dict[str, object] = {}
    if name.words:
        wanted["gpu_name"] = {"in": _list_gpu_names(wish) or _list_spellings(wish)}
    if name.memory_gb is not None:
        megabytes = name.memory_gb * 1024
        wanted["gpu_ram"] = {"gte": int(megabytes * (1 - MEMORY_TOLERANCE))}
        if not name.at_least:
            wanted["gpu_ram"] = {
                "gte": int(megabytes * (1 - MEMORY_TOLERANCE)),
                "lte": int(megabytes * (1 + MEMORY_TOLERANCE)),
            }
    limit = 64
    return {
        "verified": {"eq": True},
        "rentable": {"eq": True},
        **wanted,
        "num_gpus": {"eq": wish.gpu_count},
        "disk_space": {"gte": _choose_disk_gb(wish)},
        "direct_port_count": {"gte": 1},
        "type": "bid" if wish.spot else "on-demand",
        "allocated_storage": _choose_disk_gb(wish),
        "order": [["dph_total", "asc"]],
        "limit": limit,
    }


def _list_gpu_names(wish: RentalRequest) -> list[str]:
    """Return vast.ai's names of the requested model; empty = our table lacks it."""
    model = read_gpu_name(wish.gpu).model
    if model is None:
        return []
    return list(model.vast or (model.name,))


def _list_spellings(wish: RentalRequest) -> list[str]:
    """Return possible vast.ai spellings of a model that our table lacks."""
    model = wish.gpu.replace("_", " ").strip()
    models = dict.fromkeys((model, model.upper(), f"RTX {model}".upper()))
    return [f"{one}{form}" for one in models for form in FORMS]


def build_creation_body(offer: Offer, wish: RentalRequest, token: str) -> dict[str, object]:
    """Return the body of the creation call."""
    body: dict[str, object] = {
        "client_id": "me",
        "image": wish.image or IMAGE,
        "disk": _choose_disk_gb(wish),
        "label": token,
        "runtype": "ssh_direct",
        "target_state": "running",
        # Without it, an offer that has just gone creates a stopped instance, whose disk is charged.
        "cancel_unavail": True,
    }
    if wish.public_key:
        body["onstart"] = (
            f"mkdir -p ~/.ssh && printf '%s\\n' {shlex.quote(wish.public_key)} >> "
            "~/.ssh/authorized_keys && chmod 700 ~/.ssh && chmod 600 ~/.ssh/authorized_keys"
        )
    if offer.spot:
        # Only the price makes it a bid: without one this would be on demand, at the full price.
        least, most = BIDS
        bid = offer.compute_per_hour
        if bid is None or not least <= bid <= most:
            raise BadAnswer(
                translate("a bid of {bid} is not possible; nothing was sent", bid=bid), sent=False
            )
        body["price"] = bid
    return body


def _choose_disk_gb(wish: RentalRequest) -> int:
    least_disk_gb = 8
    return max(least_disk_gb, wish.disk_gb)


# Changes the bid of a Vast.ai instance: https://docs.vast.ai/api-reference/instances/change-bid
# (2026-08).
#
# A higher bid by another user takes the machine at once: it stops, and its disk is charged. Raising
# the bid lets it run again.


class VastBids:
    """The bids of one account; see `Bidder`."""

    limits = LIMITS

    def __init__(self, account: RentedAccount) -> None:
        self._account = account

    async def read_bid(self, instance: str) -> Bid:
        """Read the current bid for an instance."""
        account = self._account
        machine = await account.read_machine(instance)
        storage, unpriced = sum_known_parts(machine.storage)
        storage_per_hour = None
        if not unpriced:
            storage_per_hour = storage
        return Bid(
            kind=account.ref.kind,
            instance=instance,
            is_bid=machine.spot,
            per_hour=machine.compute,
            least=machine.least_bid,
            storage_per_hour=storage_per_hour,
            currency=account.currency,
            gpu=machine.gpu,
            gpu_count=machine.gpu_count,
            status=machine.status,
            outbid=machine.outbid,
        )

    def describe_bid(self, instance: str, price: float) -> str:
        """Return the exact call."""
        call = self._build_bid_call(instance, price)
        return f"{call.method} {self._account.http.base_url}{make_printable(call.path)} {call.body}"

    async def change_bid(self, offer: Offer, token: str, permit: RentPermit) -> str:
        """Send the one call; see `Bidder.change_bid`."""
        account = self._account
        account.check_id(offer.id)
        price = offer.compute_per_hour
        if price is None or not LIMITS[0] <= price <= LIMITS[1]:
            raise ProviderError(
                translate("a bid of {price} is not possible; nothing was sent", price=price),
                sent=False,
            )
        await account.pace.wait_turn("bid")
        use_rent_permit(permit, offer, token, account.ref, steady_time())
        call = self._build_bid_call(offer.id, price)
        answer = await account.http.send(call.method, call.path, call.body)
        return account.judge_answer("bid", answer.data)

    def is_refused(self, error: ProviderError) -> bool:
        """Return whether an error proves that the bid is unchanged."""
        return not error.sent or error.status in REFUSED

    @staticmethod
    def _build_bid_call(instance: str, price: float) -> MachineCall:
        return MachineCall(
            "PUT", f"/api/v0/instances/bid_price/{instance}/", {"client_id": "me", "price": price}
        )
