"""Money and renting: costs of a box, a person's request, offers, and other billed items."""

from __future__ import annotations

import enum

from rgt_tui.language import translate
from rgt_tui.model.plain import FrozenStruct

FLEET_FILE = "fleet file"
"""`Meter.source` of a price from the fleet file: no provider was queried."""


class RentalRequest(FrozenStruct, kw_only=True):
    """A person's request, in terms that apply to every platform."""

    gpu: str
    """A model's common name, e.g. ``A100`` or ``RTX 4090``; adapters translate it to the platform's
    own spelling."""
    gpu_count: int = 1
    max_per_hour: float | None = None
    """Maximum hourly price of compute and disk together, in `currency`; None = the person sees
    every price."""
    currency: str = "USD"
    spot: bool = False
    """Whether it may be interrupted for a lower price. Spot requests only match spot offers, and
    the reverse."""
    disk_gb: int = 100
    region: str | None = None
    """The platform's own name for it; None = anywhere."""
    image: str | None = None
    """A container image, or the platform's own name of one; None = the adapter's plain CUDA image
    with sshd."""
    public_key: str = ""
    """One line as in ``authorized_keys``: the key that the machine accepts."""


class ImageDigest(FrozenStruct, kw_only=True):
    """An image by its digest, or why that is unknown."""

    image: str
    """As it was given."""
    by_digest: str = ""
    """``NAME@sha256:…``; empty if unknown."""
    reason: str = ""
    """Why it is unknown."""

    @property
    def is_pinned(self) -> bool:
        """Whether the image was given by its digest."""
        return self.image == self.by_digest

    @property
    def tag_warning(self) -> str:
        """A warning that a tag may move, with its present digest; empty if it is pinned."""
        if self.is_pinned:
            return ""
        if self.by_digest:
            return translate(
                "{image} is a tag, which may name another image later; now it is {by_digest}",
                image=self.image,
                by_digest=self.by_digest,
            )
        return translate(
            "{image} is a tag, which may name another image later; its digest is unknown: {reason}",
            image=self.image,
            reason=self.reason,
        )


class Offer(FrozenStruct, kw_only=True):
    """An offer that fulfils a request, with a price just queried."""

    kind: str
    """Of the provider, as in the fleet file."""
    id: str
    """The argument of the platform's creation call: an ask, or a type of machine with its
    location."""
    gpu: str
    """The platform's own name."""
    gpu_count: int
    gpu_memory_gb: float | None = None
    """Of one GPU."""
    # Without a default: an adapter must say "unknown", not forget it.
    compute_per_hour: float | None
    """Of the entire machine, all its GPUs; None = known only after the creation."""
    storage_per_hour: float | None
    """Of the requested disk; None = unknown, which is not free."""
    in_per_gb: float | None = None
    out_per_gb: float | None = None
    """Traffic prices; None = unknown."""
    currency: str = "USD"
    spot: bool = False
    disk_gb: int | None = None
    """The offered disk, maybe more than requested. None = the platform decides."""
    region: str | None = None
    stock: str | None = None
    """The platform's own text about availability."""
    reliability: float | None = None
    """0 to 1; None = not reported."""
    ends_at: float | None = None
    """When the rental would end by its contract (epoch seconds); None = open."""
    notes: tuple[str, ...] = ()
    """Notes for the person before accepting it, a sentence each."""

    @property
    def per_hour(self) -> float | None:
        """Compute and disk together; None while either is unknown."""
        # A sum with an unknown part would pass a limit that the real price exceeds.
        if self.compute_per_hour is None or self.storage_per_hour is None:
            return None
        return self.compute_per_hour + self.storage_per_hour


class Leftover(FrozenStruct, kw_only=True):
    """Something other than a machine that is or may be billed, and outlives its machine."""

    what: str
    """``volume``, ``address``, ``snapshot``, ``image`` or another plain noun."""
    id: str
    name: str = ""
    per_hour: float | None = None
    """None = unknown, which is not free."""
    currency: str = "USD"
    size_gb: float | None = None
    region: str | None = None
    used_by: tuple[str, ...] = ()
    """Ids of the machines that it is attached to now; empty = none reported."""
    how: str = ""
    """How to delete it: the call, or what to click."""


class Bid(FrozenStruct, kw_only=True):
    """The bid for an interruptible machine. None = unknown."""

    kind: str
    """Of the provider, as in the fleet file."""
    instance: str
    is_bid: bool | None
    """False = it was rented on demand."""
    per_hour: float | None
    """The bid, for compute."""
    least: float | None
    """The lowest bid that keeps the machine, or gets it back, now."""
    storage_per_hour: float | None
    currency: str = "USD"
    gpu: str | None = None
    gpu_count: int | None = None
    status: str = ""
    """The platform's own state."""
    # Not read from `status`: vast.ai shows a paused bid as stopped, while it is meant to run.
    outbid: bool = False
    """A higher bid has taken the machine: it is paused, but intended to run."""


class BidReview(FrozenStruct, kw_only=True):
    """What a person must see before a bid is changed."""

    box: str
    bid: Bid
    price: float
    """The new bid per hour."""
    lines: tuple[str, ...]
    """The present bid, the new one, and its maximum cost per day."""
    refusals: tuple[str, ...]
    will_send: str
    """The exact call."""
    phrase: str
    """What must be typed, exactly."""
    digest: str
    """Identifies this change, for 60 s."""


class RentReview(FrozenStruct, kw_only=True):
    """What a person must see before a machine is rented."""

    box: str
    """Its name in the fleet file."""
    offer: Offer
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    costs: tuple[str, ...]
    """The full price, a line each: compute, disk, both per hour and per day, traffic. Unknown parts
    are named as unknown."""
    refusals: tuple[str, ...]
    """Why the gate is closed now (except that the name is not typed yet)."""
    will_send: str
    """The exact call."""
    phrase: str
    """What must be typed, exactly; longer if the price is unknown."""
    digest: str
    """Identifies this offer at this price for this box, for 60 s."""


MACHINE = "machine"
"""`UnlistedItem.what` of an item that could be a box."""


class UnlistedItem(FrozenStruct, kw_only=True):
    """Something that is or may be billed to an account and belongs to no box of the fleet file."""

    kind: str
    """Of the provider, as in the fleet file."""
    what: str
    """``machine``, or as `Leftover.what`."""
    id: str
    name: str = ""
    per_hour: float | None = None
    """None = unknown, which is not free."""
    at_least: bool = False
    """`per_hour` is a lower bound."""
    currency: str = "USD"
    status: str = ""
    """Of a machine, the platform's own state."""
    bills: bool = True
    """False only if the platform reports that it is not charged now."""
    spot: bool | None = None
    gpu: str | None = None
    """The platform's own name."""
    gpu_count: int | None = None
    size_gb: float | None = None
    region: str | None = None
    used_by: tuple[str, ...] = ()
    """Ids of the machines that it is attached to; their price includes it."""
    how: str = ""
    """How to delete it."""
    host: str | None = None
    """SSH address, if the platform reports one."""
    port: int | None = None
    user: str | None = None


class AccountBill(FrozenStruct, kw_only=True):
    """Billed items of one account that belong to no box of the fleet file. Client clock."""

    kind: str
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    base_url: str | None = None
    key_env: str | None = None
    things: tuple[UnlistedItem, ...] = ()
    """Machines first."""
    machines_at: float | None = None
    """When the machines were last listed completely; None = never, so they are unknown."""
    machines_error: str | None = None
    """Why the last attempt failed; `things` then has the machines of `machines_at`."""
    leftovers_at: float | None = None
    """The same for volumes, addresses, snapshots and the like."""
    leftovers_error: str | None = None
    gaps: tuple[str, ...] = ()
    """Kinds of items that may be billed but are not listed by the platform's API, or for this
    key."""

    @property
    def per_hour(self) -> tuple[MoneyAmount, ...]:
        """The hourly price of all of it, one sum per currency; empty = no price is known.

        A sum is a lower bound if a price or a list is unknown. Items attached to a machine count in
        that machine's price.
        """
        # An attached volume is in its machine's price already.
        counted = [thing for thing in self.things if thing.bills and not thing.used_by]
        # A list that was never complete may lack something that bills.
        unknown = (
            self.machines_at is None
            or self.leftovers_at is None
            or any(thing.per_hour is None for thing in counted)
        )
        sums: dict[str, MoneyAmount] = {}
        for thing in counted:
            if thing.per_hour is not None:
                before = sums.get(thing.currency, MoneyAmount(0.0, thing.currency, unknown))
                at_least = before.at_least or thing.at_least
                sums[thing.currency] = MoneyAmount(
                    before.value + thing.per_hour, thing.currency, at_least
                )
        return tuple(sums.values())


# Money: the present and past costs of a box.


class MeterKind(enum.StrEnum):
    """What the provider charges for now. ``unknown`` is never shown as free."""

    COMPUTE_AND_STORAGE = "compute+storage"
    STORAGE_ONLY = "storage_only"
    NONE = "none"
    UNKNOWN = "unknown"


class Lifecycle(enum.StrEnum):
    """A provider's state of the machine, in terms of rgt."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    GONE = "gone"
    UNKNOWN = "unknown"


def is_gone(meter: Meter) -> bool:
    """Return whether the provider's newest reading reports the machine as gone."""
    return meter.error is None and meter.lifecycle is Lifecycle.GONE


class MoneyAmount(FrozenStruct):
    """A sum of money or an hourly price, in one currency.

    Amounts of two currencies are never added.
    """

    value: float
    currency: str = "USD"
    at_least: bool = False
    """A lower bound: the price of a part is unknown."""
    estimated: bool = False
    """A part is price × time that was neither watched nor billed: neither a fact nor a lower
    bound."""


class Meter(FrozenStruct):
    """The costs and state of one box, with their source."""

    kind: MeterKind = MeterKind.UNKNOWN
    lifecycle: Lifecycle = Lifecycle.UNKNOWN
    per_hour: float | None = None
    """Hourly price in the present state."""
    compute_per_hour: float | None = None
    storage_per_hour: float | None = None
    spent: float | None = None
    """Since the machine was created, or since it is known (`spent_since`)."""
    spent_since: float | None = None
    currency: str = "USD"
    at: float | None = None
    """Client clock of the reading."""
    source: str = "no provider"
    native_status: str | None = None
    actions: tuple[str, ...] = ()
    """Actions that the provider would accept now, by its own names."""
    error: str | None = None
    """Why the last reading failed; the values above are then the last good ones."""
    ssh_host: str | None = None
    """Present SSH address according to the provider; it may change with every start."""
    ssh_port: int | None = None
    created: float | None = None
    """When the machine was created, by the provider's clock."""
    started: float | None = None
    """When it was last started, by the provider's clock; None = not reported, for some providers
    while it is stopped."""
    balance: float | None = None
    """Balance of the account that pays for the box, if the provider reports it."""
    burn_per_hour: float | None = None
    """Hourly costs of the entire account, including its other machines."""
    at_least: bool = False
    """`per_hour` and `storage_per_hour` are lower bounds: the items in `unpriced` are billed as
    well."""
    unpriced: tuple[str, ...] = ()
    """Items that are or may be billed at an unknown price, e.g. ``volume disk``."""
    spent_at_least: bool = False
    """`spent` is a lower bound: the costs of a part are unknown."""
    spent_estimated: bool = False
    """`spent` is price × time since `spent_since`, not a billed amount."""
    clock_skew: float | None = None
    """Seconds that this computer's clock is ahead of the provider's (its ``Date`` header); None =
    they agree, or it is unknown."""
    # RunPod, for one, does not say whether its price includes the disks.
    doubt: str | None = None
    """Ambiguity in the provider's figures above, as text; they are then the higher
    interpretation."""
    booked: float | None = None
    """Amount spent according to the provider's own books, last read at `booked_at`; `spent` may be
    newer."""
    booked_at: float | None = None
    books_differ: float | None = None
    """Books minus rgt's own count (price × time) since `books_differ_since`; None = they agree, or
    were not compared."""
    books_differ_since: float | None = None
    """Client clock of the start of the comparison."""
    # A machine may call itself by another id than the one in the list: `identity` accepts these.
    names: tuple[str, ...] = ()
    """Other ids of the machine according to the provider: a pod's UID, the number of an array's
    task."""
    spot: bool | None = None
    """Whether the machine may be interrupted for its lower price; None = unknown."""
    out_per_gb: float | None = None
    """Price per GB of outgoing traffic, if the provider reports it."""
    tiers: dict[str, str] = {}
    """Mount point → name of the storage tier, as reported by the provider for this machine."""
    ends_at: float | None = None
    """When the rental ends by its contract (client clock), if the provider reports it."""
    others: dict[str, str] = {}
    """Other running machines that the provider's verbs end as well, such as the other pods of a
    Job: name → what each holds."""
    chosen: str = ""
    """If there are others: which machine is the box, and what it holds."""

    def state_text(self, detail: str = "") -> str:
        """Return the state and its source, e.g. ``RunPod says stopped (EXITED)``, then its note.

        Args:
            detail: Continues the first sentence.
        """
        # Adapters append notes to their name after "; ".
        source, _, note = self.source.partition("; ")
        # rgt's own words for a machine that a complete list lacks; not a state of the platform.
        if "not in the list" in (self.native_status or ""):
            text = translate("{source} no longer lists it", source=source) + detail
        else:
            native = ""
            if self.native_status:
                native = f" ({self.native_status})"
            state = f"{translate(self.lifecycle.value)}{native}"
            text = translate("{source} says {state}", source=source, state=state) + detail
        if note:
            return f"{text}. {note[0].upper()}{note[1:]}"
        return text
