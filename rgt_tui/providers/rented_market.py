"""Shared base of markets: matching offers to a wish, their order, and the creation call."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import Lifecycle, Meter, Offer, RentalRequest, RentPermit, steady_time
from rgt_tui.providers.control_plane import (
    BadAnswer,
    Instance,
    ProviderError,
    make_printable,
    use_rent_permit,
)
from rgt_tui.providers.rented import MachineCall, RentedAccount

CREATE = "create"
"""Key of `Pace`."""


def unknown_gpu(
    platform: str, wish: RentalRequest, known: Iterable[str], console: str
) -> ProviderError:
    """Return the error for a wish that no GPU of a platform fits."""
    names = ", ".join(sorted({make_printable(name, 60) for name in known})[:40])
    return ProviderError(
        translate(
            "{platform} has no GPU that is {gpu!r}; it has: {names}",
            platform=platform,
            gpu=make_printable(wish.gpu, 60),
            names=names or "none that it names",
        ),
        console=console,
    )


def check_wish(platform: str, wish: RentalRequest, *, currency: str, spot: str = "") -> None:
    """Refuse a wish that no offer of a platform could fit, before anything is requested.

    Args:
        platform: Its name, for the message.
        wish: The request.
        currency: The platform's billing currency: a limit in another one cannot be compared.
        spot: Why it has no spot machines; empty = it has.

    Raises:
        ProviderError: with what to change; nothing was sent.
    """
    if wish.spot and spot:
        raise ProviderError(translate("{spot}; ask for it without spot", spot=spot), sent=False)
    if wish.max_per_hour is not None and wish.currency != currency:
        raise ProviderError(
            translate(
                "{platform} bills in {currency}: give --max-price in {currency}, not in "
                "{currency_2}",
                platform=platform,
                currency=currency,
                currency_2=make_printable(wish.currency, 8),
            ),
            sent=False,
        )
    if wish.gpu_count < 1 or wish.disk_gb < 0:
        raise ProviderError(
            translate(
                "{gpu_count} GPUs with {disk_gb} GB of disk cannot be rented",
                gpu_count=wish.gpu_count,
                disk_gb=wish.disk_gb,
            ),
            sent=False,
        )


def in_order(offers: Iterable[Offer], wish: RentalRequest) -> tuple[Offer, ...]:
    """Return the offers within the maximum price, the cheapest first.

    An offer with an unknown price is kept as the last: a person decides.
    """
    fitting = [
        offer
        for offer in offers
        if wish.max_per_hour is None
        or offer.per_hour is None
        or offer.per_hour <= wish.max_per_hour
    ]
    return tuple(
        sorted(
            fitting,
            key=lambda one: (
                one.per_hour is None,
                one.per_hour or one.compute_per_hour or 0.0,
                one.id,
            ),
        )
    )


# Shared base of HTTP platforms' markets: the one creation call, and finding a machine by name after
# a lost answer.


class RentedMarket(abc.ABC):
    """Rents machines of one account; see `Market`."""

    def __init__(self, account: RentedAccount) -> None:
        self.account = account

    @abc.abstractmethod
    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return the current offers for the wish; see `Market.offers`."""

    @abc.abstractmethod
    def build_creation_call(self, offer: Offer, wish: RentalRequest, token: str) -> MachineCall:
        """Return the one creation call.

        Raises:
            BadAnswer: the offer cannot be taken; nothing was sent.
        """

    @abc.abstractmethod
    def find_created_id(self, data: object) -> str | None:
        """Return the id of the machine made according to a 2xx answer; None = it has none."""

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call, without the public key, which is long but no secret."""
        return self.format_call(
            self.build_creation_call(offer, msgspec.structs.replace(wish, public_key=""), token)
        )

    def format_call(self, call: MachineCall) -> str:
        """Return a call as text."""
        body = make_printable(msgspec.json.encode(call.body).decode(), 2000)
        return f"{call.method} {self.account.http.base_url}{make_printable(call.path)} {body}"

    async def prepare_creation(self, wish: RentalRequest, token: str) -> Mapping[str, object]:
        """Do free preparations, such as registering the key; return additional fields of the body.

        Raises:
            ProviderError: it failed; then nothing is created.
        """
        return {}

    async def create_instance(
        self, offer: Offer, wish: RentalRequest, token: str, permit: RentPermit
    ) -> Instance:
        """Send the one creation call; see `Market.create`.

        An error that names a machine has made it.
        """
        account = self.account
        await account.pace.wait_turn(CREATE)
        call = self.build_creation_call(offer, wish, token)
        use_rent_permit(permit, offer, token, account.ref, steady_time())
        try:
            more = await self.prepare_creation(wish, token)
        except ProviderError as error:
            raise ProviderError(
                translate("nothing was rented: {error}", error=error), sent=False
            ) from None
        body = {**call.body, **more} if isinstance(call.body, dict) else call.body
        try:
            answer = await account.http.send(call.method, call.path, body)
        except ProviderError as error:
            if not error.made:
                raise
            return self._build_new_instance(
                error.made,
                token,
                translate(
                    "it was created, and {platform} answered: {error}",
                    platform=account.platform,
                    error=error,
                ),
            )
        made = self.find_created_id(answer.data)
        if made is None:
            raise BadAnswer(
                translate(
                    "{platform} did not return what it created; search for {token}",
                    platform=account.platform,
                    token=make_printable(token, 60),
                ),
                console=account.http.console,
                status=answer.status,
            )
        return self._build_new_instance(made, token, None)

    def _build_new_instance(self, instance: str, token: str, doubt: str | None) -> Instance:
        account = self.account
        meter = Meter(
            lifecycle=Lifecycle.STARTING,
            at=account.clock(),
            currency=account.currency,
            source=account.source,
            doubt=doubt,
        )
        return Instance(id=instance, name=token, meter=meter)

    async def find_by_token(self, token: str) -> tuple[Instance, ...]:
        """Find machines of the complete list whose name has the token; see `Market.find`."""
        machines = await self.account.read_machines()
        return tuple(self.account.build_instance(one) for one in machines if token in one.name)
