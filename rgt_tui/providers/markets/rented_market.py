"""What markets of HTTP platforms share: the one creation call, and finding a machine by name after a lost answer."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import msgspec

from rgt_tui.model import Lifecycle, Meter, Offer, RentPermit, Wish, steady
from rgt_tui.providers.control_plane import BadAnswer, Instance, ProviderError, printable, use_rent_permit
from rgt_tui.providers.rented import Call, RentedAccount

CREATE = "create"
"""Of `Pace`."""


class RentedMarket(abc.ABC):
    """Rents machines of one account; see `Market`."""

    def __init__(self, account: RentedAccount) -> None:
        self.account = account

    @abc.abstractmethod
    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return what fits the wish now; see `Market.offers`."""

    @abc.abstractmethod
    def creation(self, offer: Offer, wish: Wish, token: str) -> Call:
        """Return the one creation call.

        Raises:
            BadAnswer: the offer cannot be taken so; nothing was sent.
        """

    @abc.abstractmethod
    def made(self, data: object) -> str | None:
        """Return the id of the machine that a 2xx answer says was made; None = it does not say so."""

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call; the public key, which is long and no secret, is left out."""
        return self.told(self.creation(offer, msgspec.structs.replace(wish, public_key=""), token))

    def told(self, call: Call) -> str:
        """Return a call in words."""
        body = printable(msgspec.json.encode(call.body).decode(), 2000)
        return f"{call.method} {self.account.http.base_url}{printable(call.path)} {body}"

    async def prepare(self, wish: Wish, token: str) -> Mapping[str, object]:
        """Do what must come before and costs nothing, such as registering the key; return what the body needs of it.

        Raises:
            ProviderError: it could not be done; then nothing is created.
        """
        return {}

    async def create(self, offer: Offer, wish: Wish, token: str, permit: RentPermit) -> Instance:
        """Send the one creation call; see `Market.create`. An error that names what was made has made it."""
        account = self.account
        await account.pace.turn(CREATE)
        call = self.creation(offer, wish, token)
        use_rent_permit(permit, offer, token, account.ref, steady())
        try:
            more = await self.prepare(wish, token)
        except ProviderError as error:
            raise ProviderError(f"nothing was rented: {error}", sent=False) from None
        body = {**call.body, **more} if isinstance(call.body, dict) else call.body
        try:
            answer = await account.http.send(call.method, call.path, body)
        except ProviderError as error:
            if not error.made:
                raise
            return self._fresh(error.made, token, f"it was made, and {account.platform} answered: {error}")
        made = self.made(answer.data)
        if made is None:
            raise BadAnswer(
                f"{account.platform} did not say what it made; look for {printable(token, 60)}",
                console=account.http.console,
                status=answer.status,
            )
        return self._fresh(made, token, None)

    def _fresh(self, instance: str, token: str, doubt: str | None) -> Instance:
        account = self.account
        meter = Meter(
            lifecycle=Lifecycle.STARTING,
            at=account.clock(),
            currency=account.currency,
            source=account.source,
            doubt=doubt,
        )
        return Instance(id=instance, name=token, meter=meter)

    async def find(self, token: str) -> tuple[Instance, ...]:
        """Look for the token in the names of a whole list; see `Market.find`."""
        machines = await self.account.machines()
        return tuple(self.account.listed(one) for one in machines if token in one.name)
