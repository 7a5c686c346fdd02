"""Changes the bid of a Vast.ai instance: https://docs.vast.ai/api-reference/instances/change-bid (2026-08).

A higher bid of somebody else takes the machine at once: it rests, and its disk is charged. Raising the bid lets it run
again.
"""

from __future__ import annotations

from rgt_tui.model import Bid, Offer, RentPermit, steady
from rgt_tui.providers.answers import known_sum
from rgt_tui.providers.control_plane import ProviderError, printable, use_rent_permit
from rgt_tui.providers.rented import Call, RentedAccount

LIMITS = (0.001, 32.0)
"""The least and the most of a changed bid, USD an hour of the machine."""
REFUSED = frozenset((400, 401, 403, 404, 429))
"""Statuses after which the bid is certainly as it was."""


class VastBids:
    """The bids of one account; see `Bidder`."""

    limits = LIMITS

    def __init__(self, account: RentedAccount) -> None:
        self._account = account

    async def read_bid(self, instance: str) -> Bid:
        """Read what is bid for an instance now."""
        account = self._account
        machine = await account.machine(instance)
        storage, unpriced = known_sum(machine.storage)
        return Bid(
            kind=account.ref.kind,
            instance=instance,
            is_bid=machine.spot,
            per_hour=machine.compute,
            least=machine.least_bid,
            storage_per_hour=None if unpriced else storage,
            currency=account.currency,
            gpu=machine.gpu,
            gpu_count=machine.gpu_count,
            status=machine.status,
            outbid=machine.outbid,
        )

    def describe_bid(self, instance: str, price: float) -> str:
        """Return the exact call."""
        call = self._call(instance, price)
        return f"{call.method} {self._account.http.base_url}{printable(call.path)} {call.body}"

    async def change_bid(self, offer: Offer, token: str, permit: RentPermit) -> str:
        """Send the one call; see `Bidder.change_bid`."""
        account = self._account
        account.check_id(offer.id)
        price = offer.compute_per_hour
        if price is None or not LIMITS[0] <= price <= LIMITS[1]:
            raise ProviderError(f"a bid of {price} cannot be made; nothing was sent", sent=False)
        await account.pace.turn("bid")
        use_rent_permit(permit, offer, token, account.ref, steady())
        call = self._call(offer.id, price)
        answer = await account.http.send(call.method, call.path, call.body)
        return account.judge("bid", answer.data)

    def is_refused(self, error: ProviderError) -> bool:
        """Return whether an error proves that the bid is as it was."""
        return not error.sent or error.status in REFUSED

    @staticmethod
    def _call(instance: str, price: float) -> Call:
        return Call("PUT", f"/api/v0/instances/bid_price/{instance}/", {"client_id": "me", "price": price})
