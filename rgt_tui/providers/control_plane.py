"""The interface of every control plane, and its errors.

Nothing here uses a network, so importing it is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    Bid,
    BillingVerb,
    FrozenStruct,
    Leftover,
    Meter,
    Offer,
    Permit,
    ProviderRef,
    RentalRequest,
    RentPermit,
    format_duration,
)


class ProviderError(Exception):
    """A control plane failed. The message says what to do next, and contains no key.

    `console` is the web page on which a person can check and act; it is part of the message.
    """

    def __init__(
        self,
        message: str,
        *,
        console: str = "",
        status: int | None = None,
        sent: bool = True,
        code: str = "",
    ) -> None:
        super().__init__(f"{message} ({console})" if console else message)
        self.status = status
        """HTTP status; None = there was no answer. `rgt_tui.providers.answers` says what it proves.
        """
        self.sent = sent
        """False only if the request certainly never left, so nothing can have been done."""
        self.code = code
        """The platform's own error code, if its body has one: some send errors with status 200."""
        self.made = ""
        """Id of the machine that was made although the platform answered an error."""


class AuthError(ProviderError):
    """The key is missing, wrong, or lacks the permission (401, 403)."""


class ListRefused(AuthError):
    """The key may not list machines, but perhaps read each by its name."""


class RateLimited(ProviderError):
    """Too many requests (429)."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        console: str = "",
        status: int | None = None,
    ) -> None:
        super().__init__(message, console=console, status=status)
        self.retry_after = retry_after
        """Seconds to wait, if the provider gives them."""


class NotFound(ProviderError):
    """The provider does not know this id (404).

    That alone does not prove that the machine is gone.
    """


class StateConflict(ProviderError):
    """The machine's current state does not allow the action (409)."""


class Unreachable(ProviderError):
    """No usable answer: no connection, a timeout, or a server error.

    The state of the machine is unknown.
    """


class BadAnswer(ProviderError):
    """An answer that differs from the provider's documentation."""


class PermitRefused(Exception):
    """A billing action was requested without a permit that covers it. Nothing was sent."""


class Instance(FrozenStruct):
    """One machine as shown in the provider's list."""

    id: str
    name: str
    meter: Meter
    host: str | None = None
    """Host for SSH, if the provider reports it."""
    port: int | None = None
    user: str | None = None
    gpu: str | None = None
    """The platform's own name of the model."""
    gpu_count: int | None = None
    region: str | None = None
    below: str | None = None
    """Id of the machine at the underlying platform, if this one rents it there."""


class Provider(Protocol):
    """One box's control plane.

    It acts on its own instance, and reads any instance of the account.
    """

    @property
    def ref(self) -> ProviderRef:
        """The machine that this object may stop or destroy, and its account."""
        ...

    @property
    def instance(self) -> str:
        """The id of the machine that this object may stop or destroy."""
        ...

    @property
    def console_url(self) -> str:
        """The page on which a person can see and end the machine without this program."""
        ...

    async def read(self, instance: str) -> Meter:
        """Read the current state of one machine.

        Errors are returned as a meter of kind ``unknown`` with `error` set, so that the caller can
        keep the last good values (see `keep_last_good`). Only a 404 on the machine *and* its
        absence from a complete list make it ``gone``.
        """
        ...

    async def list(self) -> tuple[Instance, ...]:
        """List the account's machines.

        Raises:
            ProviderError: the list is incomplete. A part is never returned as the whole.
        """
        ...

    async def start(self) -> str:
        """Send the call that starts the machine again, once; return the provider's answer as text.

        It starts a meter: the caller has a person's confirmation, and never repeats it
        automatically.

        Raises:
            ProviderError: the error of the provider or the connection. A platform without the verb
                raises it with `sent` False.
        """
        ...

    async def stop(self, permit: Permit) -> str:
        """Send the park call once.

        Return the provider's answer as text: *requested*, not *stopped*.

        Raises:
            PermitRefused: the permit is for another verb, machine or account, was used, or has
                expired. Nothing was sent.
            ProviderError: the error of the provider or the connection.
        """
        ...

    async def destroy(self, permit: Permit) -> str:
        """Send the destroy call once; see `stop`."""
        ...

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact call that would be sent, for a person to read first."""
        ...

    def native_label(self, verb: BillingVerb) -> str:
        """Return the platform's own word for the verb, as on its console."""
        ...

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word for the verb among ``Meter.actions``."""
        ...

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return what would keep billing after the verb, one line each, by the last reading."""
        ...

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return mount point → name of the profile's storage tier, by the last reading."""
        ...


class AccountData(Protocol):
    """The common data of an account."""

    ref: ProviderRef
    """Any machine of the account."""


OwnerT = TypeVar("OwnerT", bound=AccountData)


class OneMachine(Generic[OwnerT]):
    """Base class for the control plane of one machine: the account, and the machine's id."""

    def __init__(self, account: OwnerT, instance: str) -> None:
        self._account = account
        self._instance = instance

    @property
    def ref(self) -> ProviderRef:
        """The machine that this object may stop or destroy, and its account."""
        return msgspec.structs.replace(self._account.ref, instance=self._instance)

    @property
    def instance(self) -> str:
        """The machine that this object may stop or destroy."""
        return self._instance


class Account(Protocol):
    """One account at a control plane.

    Its boxes share its connections, its key and its rate limit.
    """

    def open_control_plane(self, instance: str) -> Provider:
        """Return the control plane of one box. Nothing is sent."""
        ...

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List what the account is billed for besides machines, e.g. volumes and addresses.

        Raises:
            ProviderError: the list is incomplete, or this platform has no call for it (`sent`
                False).
        """
        ...

    def open_market(self) -> Market | None:
        """Return the market that rents machines.

        None = a person rents them on the platform's console.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Market(Protocol):
    """Rents machines of an account. No platform has idempotency keys: a creation is sent once."""

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return the current offers for a wish, the cheapest first; empty = nothing is available.

        Raises:
            ProviderError: the platform could not be read, or does not know something in the wish.
        """
        ...

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call of `create_instance`, without secrets, for a person to read first."""
        ...

    async def create_instance(
        self, offer: Offer, wish: RentalRequest, token: str, permit: RentPermit
    ) -> Instance:
        """Send the one creation call; return the machine as far as the answer describes it.

        Args:
            offer: One of `find_offers`.
            wish: The wish it was found for.
            token: Random, up to 40 characters of ``a-z0-9-``; it becomes (part of) the machine's
                name or label, the only way to find a machine whose answer was lost.
            permit: A person's confirmation, valid once, for this offer at this price.

        Raises:
            PermitRefused: the permit covers something else, was used, or has expired. Nothing was
                sent.
            ProviderError: `rgt_tui.providers.answers.creation_proof` says what it proves; without a
                row there, the machine may exist and bill.
        """
        ...

    async def find_by_token(self, token: str) -> tuple[Instance, ...]:
        """Return the machines whose name or label has the token.

        Lists lag, so none is no proof yet.

        Raises:
            ProviderError: the list is incomplete.
        """
        ...


def leftover_gaps(account: Account) -> tuple[str, ...]:
    """Return what may bill besides machines and the last `Account.list_leftovers` could not list."""
    found: tuple[str, ...] = getattr(account, "leftover_gaps", ())
    return found


class Bidder(Protocol):
    """Reads and changes the bids for an account's machines."""

    @property
    def limits(self) -> tuple[float, float]:
        """The minimum and maximum bid per hour."""
        ...

    async def read_bid(self, instance: str) -> Bid:
        """Read the current bid for a machine.

        Raises:
            ProviderError: it could not be read.
        """
        ...

    def describe_bid(self, instance: str, price: float) -> str:
        """Return the exact call that `change_bid` would send."""
        ...

    async def change_bid(self, offer: Offer, token: str, permit: RentPermit) -> str:
        """Send the one call; return the platform's answer as text.

        Args:
            offer: The machine at the new price; its id is the instance.
            token: Token of the permit.
            permit: A person's confirmation, valid once, for this machine at this price.

        Raises:
            PermitRefused: the permit covers something else, was used, or has expired. Nothing was
                sent.
            ProviderError: `is_refused` says what it proves.
        """
        ...

    def is_refused(self, error: ProviderError) -> bool:
        """Return whether an error proves that the bid is unchanged."""
        ...


def bidder_of(account: Account) -> Bidder | None:
    """Return the bidder of an account; None = its platform has no bids."""
    found: Bidder | None = getattr(account, "bidder", None)
    return found


class AccountContext(FrozenStruct):
    """The parameters for opening any account."""

    clock: Callable[[], float]
    """Returns Unix time."""
    env: Mapping[str, str]
    """Environment with the keys."""
    home: Path
    """Home directory with the vendors' own key files."""
    timeout_s: float


Open = Callable[[ProviderRef, AccountContext], Account]
"""Opens the account of a box. Nothing is sent; a missing key shows in the first reading."""


_used: dict[str, float] = {}
"""The used permits of this process with their expiry; expired ones are refused for that reason."""


def use_permit(permit: Permit, verb: BillingVerb, ref: ProviderRef, now: float) -> None:
    """Use a permit right before its one call; refuse one that does not cover exactly this.

    Args:
        permit: The gate's permit.
        verb: The action about to be sent.
        ref: The machine this provider was opened for, and its account.
        now: `rgt_tui.model.evidence.steady`.

    Raises:
        PermitRefused: with every reason at once; an unused permit stays unused.
    """
    reasons = [
        translate(
            "the permit is for {what} {given}, not for {wanted}",
            what=what,
            given=make_printable(given) or "(none)",
            wanted=make_printable(wanted) or "(none)",
        )
        for what, given, wanted in (
            ("verb", permit.verb.value, verb.value),
            ("provider", permit.kind, ref.kind),
            ("account", permit.account, ref.account),
            ("instance", permit.instance, ref.instance),
        )
        if given != wanted or not wanted
    ]
    # `not <` instead of `>=`: NaN must refuse, too.
    if not now < permit.expires:
        reasons.append(
            translate(
                "the permit expired {time} ago; review the box again",
                time=format_duration(now - permit.expires),
            )
        )
    if not permit.nonce:
        reasons.append(translate("the permit has no nonce, so its use could not be recorded"))
    elif permit.nonce in _used:
        reasons.append(translate("the permit was used already; review the box again"))
    if reasons:
        raise PermitRefused("; ".join(reasons) + translate(". Nothing was sent."))
    for nonce in [nonce for nonce, expires in _used.items() if not now < expires]:
        del _used[nonce]
    # Before anything is sent: a failed call may have been carried out, and must not be repeated.
    _used[permit.nonce] = permit.expires


def use_rent_permit(
    permit: RentPermit, offer: Offer, token: str, ref: ProviderRef, now: float
) -> None:
    """Use a rent permit right before the one creation call; refuse one that does not cover it.

    Args:
        permit: The gate's permit.
        offer: The offer about to be taken.
        token: Becomes part of the machine's name or label.
        ref: Any machine of the account that would pay.
        now: `rgt_tui.model.evidence.steady`.

    Raises:
        PermitRefused: with every reason at once; an unused permit stays unused.
    """
    reasons = [
        translate(
            "the permit is for {what} {given}, not for {wanted}",
            what=what,
            given=make_printable(given) or "(none)",
            wanted=make_printable(wanted) or "(none)",
        )
        for what, given, wanted in (
            ("provider", permit.kind, ref.kind),
            ("account", permit.account, ref.account),
            ("offer", permit.offer, offer.id),
            ("currency", permit.currency, offer.currency),
            ("token", permit.token, token),
        )
        if given != wanted or not wanted
    ]
    if permit.spot is not offer.spot:
        kind = "on-demand"
        if permit.spot:
            kind = "spot"
        reasons.append(translate("the permit is for {kind}, the offer is not", kind=kind))
    # `not (… <= …)`: a price that is NaN must refuse.
    if permit.per_hour is not None and not (
        offer.per_hour is None or offer.per_hour <= permit.per_hour
    ):
        reasons.append(
            translate(
                "the offer costs {per_hour:.4f} an hour, agreed: {per_hour_2:.4f}",
                per_hour=offer.per_hour,
                per_hour_2=permit.per_hour,
            )
        )
    if not now < permit.expires:
        reasons.append(
            translate(
                "the permit expired {time} ago; review the offers again",
                time=format_duration(now - permit.expires),
            )
        )
    used = f"rent {permit.token}"
    if used in _used:
        reasons.append(translate("the permit was used already; review the offers again"))
    if reasons:
        raise PermitRefused("; ".join(reasons) + translate(". Nothing was sent."))
    # Never forgotten: a token names one creation, and a second one would rent a second machine.
    _used[used] = math.inf


class RequestPause:
    """A pause between requests; it also ends if the clock is set to before its beginning."""

    def __init__(self) -> None:
        self._begun = self._ends = 0.0

    def begin(self, now: float, seconds: float) -> None:
        """Start the pause at `now` (client clock)."""
        self._begun, self._ends = now, now + seconds

    def seconds_left(self, now: float) -> float:
        """Return the seconds that remain; 0 = it is over."""
        # `_begun <=`: a clock set back by an hour must not extend a pause of seconds to an hour.
        if self._begun <= now < self._ends:
            return self._ends - now
        return 0.0


def keep_last_good(last: Meter, fresh: Meter) -> Meter:
    """Return what to show after a reading: it, or the last good one with the new error.

    The time remains that of the last good reading, so that the displayed age grows.
    """
    if fresh.error is None or last.at is None:
        return fresh
    return msgspec.structs.replace(last, error=fresh.error)


def make_printable(text: object, limit: int = 300) -> str:
    """Return `text` without control, escape or bidi characters, cut to `limit` characters.

    A provider's strings are shown on a terminal, and are trusted no more than a box's log.
    """
    kept = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * limit])
    kept = " ".join(kept.split())
    if len(kept) <= limit:
        return kept
    return kept[: limit - 1] + "…"
