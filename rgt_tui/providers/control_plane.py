"""What every control plane can do, and the errors by which it says that it could not.

Nothing here talks to a network, so that importing it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from rgt_tui.model import Bid, Leftover, Meter, Offer, Permit, ProviderRef, RentPermit, Verb, Wish


class ProviderError(Exception):
    """A control plane did not do or say what was asked. The message says what to do next; it holds no key.

    `console` is the web page on which a person can look and act: it stands in the message.
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
        """Of the HTTP answer; None = there was none. What it proves says `rgt_tui.providers.answers`."""
        self.sent = sent
        """False only where it is certain that the request never left: then nothing can have been done."""
        self.code = code
        """The platform's own word for the error, where its body has one: some say it with a status of 200."""
        self.made = ""
        """Id of the machine that was made although the platform answered an error."""


class AuthError(ProviderError):
    """The key is missing, wrong, or may not do this (401, 403)."""


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
        """Seconds to wait, where the provider says so."""


class NotFound(ProviderError):
    """The provider does not know this id (404). That alone does not prove that the machine is gone."""


class Conflict(ProviderError):
    """The machine's present state does not allow the action (409)."""


class Unreachable(ProviderError):
    """No usable answer: no connection, a timeout, or a server error. The state of the machine is unknown."""


class BadAnswer(ProviderError):
    """An answer that is not what the provider documents."""


class PermitRefused(Exception):
    """A billing action was asked for without a permit that covers it. Nothing was sent."""


class Instance(msgspec.Struct, frozen=True):
    """One machine as the provider's list shows it."""

    id: str
    name: str
    meter: Meter
    host: str | None = None
    """Where SSH answers, if the provider says so."""
    port: int | None = None
    user: str | None = None
    gpu: str | None = None
    """The platform's own word."""
    gpu_count: int | None = None
    region: str | None = None
    below: str | None = None
    """The id by which another platform knows the very machine, where this one rents it there."""


class Provider(Protocol):
    """One box's control plane. It acts on the instance it was opened for, and reads any of the account."""

    @property
    def ref(self) -> ProviderRef:
        """The machine that this object may stop or destroy, and whose it is."""
        ...

    @property
    def instance(self) -> str:
        """The id of the machine that this object may stop or destroy."""
        ...

    @property
    def console_url(self) -> str:
        """Where a person can see and end the machine without this program."""
        ...

    async def read(self, instance: str) -> Meter:
        """Ask for the present state of one machine.

        Trouble is an answer, too: it comes back as a meter of kind ``unknown`` whose `error` says why, so
        that the caller can keep the last good values (see `keep_last_good`). Only a 404 on the machine *and*
        its absence from a complete list make it ``gone``.
        """
        ...

    async def list(self) -> tuple[Instance, ...]:
        """List the account's machines.

        Raises:
            ProviderError: the list could not be had whole. A part is never returned as if it were all.
        """
        ...

    async def start(self) -> str:
        """Send the call that starts the machine again, once; return the provider's answer in words.

        It begins a meter: the caller has the person's word for it, and sends it never again by itself.

        Raises:
            ProviderError: what the provider, or the way to it, said instead. A platform without the verb says so with
                `sent` False.
        """
        ...

    async def stop(self, permit: Permit) -> str:
        """Send the park call once; return the provider's answer in words. It says *requested*, not *stopped*.

        Raises:
            PermitRefused: the permit is for another verb, machine or account, was used, or has expired. Nothing was
                sent.
            ProviderError: what the provider, or the way to it, said instead.
        """
        ...

    async def destroy(self, permit: Permit) -> str:
        """Send the destroy call once; as `stop`."""
        ...

    def describe(self, verb: Verb, instance: str) -> str:
        """Return the exact call that would be sent, for a person to read before it is."""
        ...

    def native_label(self, verb: Verb) -> str:
        """Return the platform's own word for the verb, as its console shows it."""
        ...

    def action(self, verb: Verb) -> str:
        """Return the word for the verb among ``Meter.actions``."""
        ...

    def keeps_billing(self, verb: Verb, instance: str) -> tuple[str, ...]:
        """Say what would keep costing money after the verb, a line each, by the last reading."""
        ...

    def tiers(self, instance: str) -> dict[str, str]:
        """Return mount point → name of the profile's storage tier, as far as the last reading says."""
        ...


class Owner(Protocol):
    """What an account knows of itself."""

    ref: ProviderRef
    """Any machine of it."""


OwnerT = TypeVar("OwnerT", bound=Owner)


class OneMachine(Generic[OwnerT]):
    """What every adapter's control plane of one machine begins with: the account, and which machine of it."""

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
    """One account at a control plane. Its boxes share its connections, its key and its rate limit."""

    def box(self, instance: str) -> Provider:
        """Return the control plane of one box. Nothing is sent."""
        ...

    async def leftovers(self) -> tuple[Leftover, ...]:
        """List what the account is billed for that is no machine, e.g. volumes, addresses and snapshots.

        Raises:
            ProviderError: the list could not be had whole, or this platform has no call for it (`sent` False).
        """
        ...

    def market(self) -> Market | None:
        """Return what rents machines here; None = a person does that on the platform's console."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Market(Protocol):
    """Where machines of an account are rented. No platform has an idempotency key: a creation is sent once."""

    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return what matches the request now, the cheapest first; empty = nothing is available.

        Raises:
            ProviderError: the platform could not be asked, or the wish names what it does not know.
        """
        ...

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call that `create` would send, without secrets, for a person to read before it is."""
        ...

    async def create(self, offer: Offer, wish: Wish, token: str, permit: RentPermit) -> Instance:
        """Send the one creation call; return the machine as far as the answer tells it.

        Args:
            offer: One of `offers`.
            wish: What it was found by.
            token: Random, up to 40 characters of ``a-z0-9-``; it becomes (a part of) the machine's name or label, which
                is all by which a machine can be found whose answer was lost.
            permit: The person's word, good once, for this offer at this price.

        Raises:
            PermitRefused: the permit covers something else, was used, or has expired. Nothing was sent.
            ProviderError: see `rgt_tui.providers.answers.creation_proof` for what it proves; without a row there the
                machine may exist and bill.
        """
        ...

    async def find(self, token: str) -> tuple[Instance, ...]:
        """Return the machines whose name or label holds the token. Lists lag: none is not yet a proof.

        Raises:
            ProviderError: the list could not be had whole.
        """
        ...


def leftover_gaps(account: Account) -> tuple[str, ...]:
    """Return what may bill besides machines and the last `Account.leftovers` could not list."""
    found: tuple[str, ...] = getattr(account, "leftover_gaps", ())
    return found


class Bidder(Protocol):
    """Reads and changes what is bid for machines of an account."""

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the most that can be bid, an hour."""
        ...

    async def read_bid(self, instance: str) -> Bid:
        """Read what is bid for a machine now.

        Raises:
            ProviderError: it could not be read.
        """
        ...

    def describe_bid(self, instance: str, price: float) -> str:
        """Return the exact call that `change_bid` would send."""
        ...

    async def change_bid(self, offer: Offer, token: str, permit: RentPermit) -> str:
        """Send the one call; return the platform's answer in words.

        Args:
            offer: The machine at the new price; its id is the instance.
            token: That of the permit.
            permit: The person's word, good once, for this machine at this price.

        Raises:
            PermitRefused: the permit covers something else, was used, or has expired. Nothing was sent.
            ProviderError: see `is_refused` for what it proves.
        """
        ...

    def is_refused(self, error: ProviderError) -> bool:
        """Return whether an error proves that the bid is as it was."""
        ...


def bidder_of(account: Account) -> Bidder | None:
    """Return what changes the bids of an account's machines; None = its platform has none."""
    found: Bidder | None = getattr(account, "bidder", None)
    return found


class Context(msgspec.Struct, frozen=True):
    """What every account is opened with."""

    clock: Callable[[], float]
    """Epoch seconds."""
    env: Mapping[str, str]
    """Where keys are looked for."""
    home: Path
    """Where the vendors' own files with keys are."""
    timeout_s: float


Open = Callable[[ProviderRef, Context], Account]
"""Opens the account that a box belongs to. Nothing is sent; a missing key shows in the first reading."""


_used: dict[str, float] = {}
"""The permits of this process that were used, and when each expires; an expired one is refused for that."""


def use_permit(permit: Permit, verb: Verb, ref: ProviderRef, now: float) -> None:
    """Use a permit up, right before the one call that it is for; refuse one that does not cover exactly this now.

    Args:
        permit: What the gate gave out.
        verb: The action about to be sent.
        ref: The machine this provider was opened for, and whose it is.
        now: `rgt_tui.model.evidence.steady`.

    Raises:
        PermitRefused: with every reason at once; an unused permit stays unused.
    """
    reasons = [
        f"the permit is for {what} {printable(given) or '(none)'}, not for {printable(wanted) or '(none)'}"
        for what, given, wanted in (
            ("verb", permit.verb.value, verb.value),
            ("provider", permit.kind, ref.kind),
            ("account", permit.account, ref.account),
            ("instance", permit.instance, ref.instance),
        )
        if given != wanted or not wanted
    ]
    # `not <` rather than `>=`: an expiry that is not a number must refuse, too.
    if not now < permit.expires:
        reasons.append(
            f"the permit expired {max(0.0, now - permit.expires):.0f} s ago; review the box again"
        )
    if not permit.nonce:
        reasons.append("the permit has no nonce, so that nobody could tell that it was used")
    elif permit.nonce in _used:
        reasons.append("the permit was used already; review the box again")
    if reasons:
        raise PermitRefused("; ".join(reasons) + ". Nothing was sent.")
    for nonce in [nonce for nonce, expires in _used.items() if not now < expires]:
        del _used[nonce]
    _used[permit.nonce] = permit.expires


def use_rent_permit(
    permit: RentPermit, offer: Offer, token: str, ref: ProviderRef, now: float
) -> None:
    """Use a permit to rent up, right before the one creation call; refuse one that does not cover exactly this now.

    Args:
        permit: What the gate gave out.
        offer: What is about to be taken.
        token: What the machine's name or label will hold.
        ref: Any machine of the account that would pay.
        now: `rgt_tui.model.evidence.steady`.

    Raises:
        PermitRefused: with every reason at once; an unused permit stays unused.
    """
    reasons = [
        f"the permit is for {what} {printable(given) or '(none)'}, not for {printable(wanted) or '(none)'}"
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
        reasons.append(
            f"the permit is for {'spot' if permit.spot else 'on-demand'}, the offer is not"
        )
    if permit.per_hour is not None and not (
        offer.per_hour is None or offer.per_hour <= permit.per_hour
    ):
        reasons.append(
            f"the offer costs {offer.per_hour:.4f} an hour, agreed: {permit.per_hour:.4f}"
        )
    if not now < permit.expires:
        reasons.append(
            f"the permit expired {max(0.0, now - permit.expires):.0f} s ago; look at the offers again"
        )
    used = f"rent {permit.token}"
    if used in _used:
        reasons.append("the permit was used already; look at the offers again")
    if reasons:
        raise PermitRefused("; ".join(reasons) + ". Nothing was sent.")
    _used[used] = math.inf


class Pause:
    """A while for which something is not asked for; over as well once the clock was set to before it began."""

    def __init__(self) -> None:
        self._begun = self._ends = 0.0

    def begin(self, now: float, seconds: float) -> None:
        """Start over; `now` by the client's clock."""
        self._begun, self._ends = now, now + seconds

    def left(self, now: float) -> float:
        """Return the seconds that are left of it; 0 = it is over."""
        if self._begun <= now < self._ends:
            return self._ends - now
        return 0.0


def keep_last_good(last: Meter, fresh: Meter) -> Meter:
    """Return what a row should show after a reading: that one, or the last good one with the fresh error.

    The time stays that of the last good reading, so that the age of the numbers is seen to grow.
    """
    if fresh.error is None or last.at is None:
        return fresh
    return msgspec.structs.replace(last, error=fresh.error)


def printable(text: object, limit: int = 300) -> str:
    """Return `text` without control, escape or direction-changing characters, cut to `limit` characters.

    A provider's strings end up on a terminal; they are not trusted more than a box's log.
    """
    kept = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * limit])
    kept = " ".join(kept.split())
    if len(kept) <= limit:
        return kept
    return kept[: limit - 1] + "…"
