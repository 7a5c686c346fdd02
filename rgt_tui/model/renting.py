"""Money and renting: what a box costs, what a person asks for, what platforms offer, what else of an account bills."""

from __future__ import annotations

import enum

import msgspec

FLEET_FILE = "fleet file"
"""`Meter.source` of a price that the person wrote down: no provider was asked."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for, in words that every platform can be asked with."""

    gpu: str
    """A model as people say it, e.g. ``A100`` or ``RTX 4090``; a platform's own spelling is the adapter's matter."""
    gpu_count: int = 1
    max_per_hour: float | None = None
    """The most that compute and disk together may cost an hour, in `currency`; None = the person sees every price."""
    currency: str = "USD"
    spot: bool = False
    """May be taken away for a lower price. An offer that is not spot does not fit such a wish, nor the reverse."""
    disk_gb: int = 100
    region: str | None = None
    """The platform's own word for it; None = anywhere."""
    image: str | None = None
    """A container image, or the platform's own name of one; None = the adapter's plain CUDA image with sshd."""
    public_key: str = ""
    """One line as in ``authorized_keys``; whom the machine lets in."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One way to have a wish fulfilled, at a price that was asked for just now."""

    kind: str
    """Of the provider, as in the fleet file."""
    id: str
    """What the platform's creation call takes: an ask, a type of machine with its place."""
    gpu: str
    """The platform's own word."""
    gpu_count: int
    gpu_memory_gb: float | None = None
    """Of one GPU."""
    compute_per_hour: float | None
    """Of the whole machine, all its GPUs; None = the platform tells it only after the creation."""
    storage_per_hour: float | None
    """Of the disk that was wished for; None = not known, which is not free."""
    in_per_gb: float | None = None
    out_per_gb: float | None = None
    """What traffic costs; None = not known."""
    currency: str = "USD"
    spot: bool = False
    disk_gb: int | None = None
    """What would be had; it may be more than was wished for. None = the platform decides."""
    region: str | None = None
    stock: str | None = None
    """What the platform says of how many there are, in its own words."""
    reliability: float | None = None
    """0 to 1, where the platform says so."""
    ends_at: float | None = None
    """When the rental would end by its contract (epoch seconds); None = open."""
    notes: tuple[str, ...] = ()
    """What a person should know before taking it, a sentence each."""

    @property
    def per_hour(self) -> float | None:
        """Compute and disk together; None while either is unknown."""
        if self.compute_per_hour is None or self.storage_per_hour is None:
            return None
        return self.compute_per_hour + self.storage_per_hour


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Something of an account that is billed, or may be, and is no machine: it outlives the machine it was made for."""

    what: str
    """``volume``, ``address``, ``snapshot``, ``image`` or another plain word."""
    id: str
    name: str = ""
    per_hour: float | None = None
    """None = the platform does not tell, which is not free."""
    currency: str = "USD"
    size_gb: float | None = None
    region: str | None = None
    used_by: tuple[str, ...] = ()
    """Ids of the machines that it hangs on now; empty = none that the platform names."""
    how: str = ""
    """How a person gets rid of it: the call, or what to click."""


class Bid(msgspec.Struct, frozen=True, kw_only=True):
    """What is bid for a machine that may be taken away. None = the platform does not say."""

    kind: str
    """Of the provider, as in the fleet file."""
    instance: str
    is_bid: bool | None
    """False = it was rented on demand."""
    per_hour: float | None
    """The bid, for compute."""
    least: float | None
    """The least that keeps the machine, or gets it back, now."""
    storage_per_hour: float | None
    currency: str = "USD"
    gpu: str | None = None
    gpu_count: int | None = None
    status: str = ""
    """The platform's own word."""
    outbid: bool = False
    """Somebody else's bid has taken it: it rests, and is still meant to run."""


class BidReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a person must see before a bid is changed."""

    box: str
    bid: Bid
    price: float
    """The new bid, an hour."""
    lines: tuple[str, ...]
    """The bid now, the new one, what it costs at most a day."""
    refusals: tuple[str, ...]
    will_send: str
    """The exact call."""
    phrase: str
    """What must be typed, exactly."""
    digest: str
    """Names this change, for 60 s."""


class RentReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a person must see before a machine is rented."""

    box: str
    """The name that the fleet file will give it."""
    offer: Offer
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    costs: tuple[str, ...]
    """The full price, a line each: compute, disk, both for an hour and a day, traffic. What nobody says is said so."""
    refusals: tuple[str, ...]
    """Why the gate is closed now (the name not yet typed is not among them)."""
    will_send: str
    """The exact call."""
    phrase: str
    """What must be typed, exactly; longer where the price is not known."""
    digest: str
    """Names this offer at this price for this box, for 60 s."""


MACHINE = "machine"
"""What an `Unlisted` is that could be a box."""


class Unlisted(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an account is billed for, or may be, and that no box of the fleet file names."""

    kind: str
    """Of the provider, as in the fleet file."""
    what: str
    """``machine``, or as `Leftover.what`."""
    id: str
    name: str = ""
    per_hour: float | None = None
    """None = the platform does not tell, which is not free."""
    at_least: bool = False
    """`per_hour` is a lower bound."""
    currency: str = "USD"
    status: str = ""
    """Of a machine, the platform's own word."""
    bills: bool = True
    """False only where the platform says that nothing is charged for it now."""
    spot: bool | None = None
    gpu: str | None = None
    """The platform's own word."""
    gpu_count: int | None = None
    size_gb: float | None = None
    region: str | None = None
    used_by: tuple[str, ...] = ()
    """Ids of the machines that it hangs on; their price holds it already."""
    how: str = ""
    """How a person gets rid of it."""
    host: str | None = None
    """Where SSH answers, if the platform says so."""
    port: int | None = None
    user: str | None = None


class AccountBill(msgspec.Struct, frozen=True, kw_only=True):
    """What one account is billed for that no box of the fleet file names. Times are client clock."""

    kind: str
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    base_url: str | None = None
    key_env: str | None = None
    things: tuple[Unlisted, ...] = ()
    """Machines first."""
    machines_at: float | None = None
    """When the machines were last listed whole; None = never: then nobody knows."""
    machines_error: str | None = None
    """Why the last attempt failed; `things` then holds the machines of `machines_at`."""
    leftovers_at: float | None = None
    """The same for volumes, addresses, snapshots and the like."""
    leftovers_error: str | None = None
    gaps: tuple[str, ...] = ()
    """What may bill besides and the platform's API, or this key, does not list."""

    @property
    def per_hour(self) -> tuple[Amount, ...]:
        """What all of it costs an hour, a sum a currency; a lower bound where a price or a list is not known.

        Empty = no price of it is known; what hangs on a machine counts in that machine's price.
        """
        counted = [thing for thing in self.things if thing.bills and not thing.used_by]
        unknown = (
            self.machines_at is None
            or self.leftovers_at is None
            or any(thing.per_hour is None for thing in counted)
        )
        sums: dict[str, Amount] = {}
        for thing in counted:
            if thing.per_hour is not None:
                before = sums.get(thing.currency, Amount(0.0, thing.currency, unknown))
                at_least = before.at_least or thing.at_least
                sums[thing.currency] = Amount(
                    before.value + thing.per_hour, thing.currency, at_least
                )
        return tuple(sums.values())


# Money: what a box costs now, and what it has cost.


class MeterKind(enum.StrEnum):
    """What the provider charges for right now. ``unknown`` is never shown as free."""

    COMPUTE_AND_STORAGE = "compute+storage"
    STORAGE_ONLY = "storage_only"
    NONE = "none"
    UNKNOWN = "unknown"


class Lifecycle(enum.StrEnum):
    """A provider's state of the machine, in our words."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    GONE = "gone"
    UNKNOWN = "unknown"


def is_gone(meter: Meter) -> bool:
    """Tell whether the provider says, in its newest reading, that the machine is gone."""
    return meter.error is None and meter.lifecycle is Lifecycle.GONE


class Amount(msgspec.Struct, frozen=True):
    """A sum of money, or a price of an hour, in one currency. Amounts of two currencies are never added."""

    value: float
    currency: str = "USD"
    at_least: bool = False
    """A lower bound: a part of it has a price that nobody said."""
    estimated: bool = False
    """A part of it is price × time that nobody watched and nobody billed: neither a fact nor a lower bound."""


class Meter(msgspec.Struct, frozen=True):
    """The meter of one box, with the source that says so."""

    kind: MeterKind = MeterKind.UNKNOWN
    lifecycle: Lifecycle = Lifecycle.UNKNOWN
    per_hour: float | None = None
    """What one hour costs in the present state."""
    compute_per_hour: float | None = None
    storage_per_hour: float | None = None
    spent: float | None = None
    """Since the machine was created, or as long as we know of it (`spent_since`)."""
    spent_since: float | None = None
    currency: str = "USD"
    at: float | None = None
    """Client clock of the reading."""
    source: str = "no provider"
    native_status: str | None = None
    actions: tuple[str, ...] = ()
    """What the provider would accept now, in its own words."""
    error: str | None = None
    """Why the last reading failed; the values above are then the last good ones."""
    ssh_host: str | None = None
    """Where SSH answers now, as the provider says; it may change with every start."""
    ssh_port: int | None = None
    created: float | None = None
    """When the machine was made, by the provider's clock."""
    started: float | None = None
    """When it was started last, by the provider's clock; None = not told, as by some of a machine that is stopped."""
    balance: float | None = None
    """What is left on the account that pays for the box, where the provider says so."""
    burn_per_hour: float | None = None
    """What the whole account costs an hour, its other machines included."""
    at_least: bool = False
    """`per_hour` and `storage_per_hour` are lower bounds: what `unpriced` names is billed as well."""
    unpriced: tuple[str, ...] = ()
    """What is billed, or may be, at a price that nobody said, e.g. ``volume disk``."""
    spent_at_least: bool = False
    """`spent` is a lower bound: of a part nobody said, or saw, what it cost."""
    spent_estimated: bool = False
    """`spent` is price × time since `spent_since`, and nobody billed it."""
    clock_skew: float | None = None
    """Seconds that this computer's clock is ahead of the provider's (its ``Date`` header); None = they agree, or the
    provider does not say."""
    doubt: str | None = None
    """What the provider leaves open about the figures above, in words; they are then the higher reading."""
    booked: float | None = None
    """What the provider's own books say was spent, as they were last read at `booked_at`; `spent` may have run on."""
    booked_at: float | None = None
    books_differ: float | None = None
    """The books less rgt's own count (price × time) since `books_differ_since`; None = they agree, or none was made."""
    books_differ_since: float | None = None
    """Client clock from which on the two were compared."""
    names: tuple[str, ...] = ()
    """What else the machine may call itself, by the provider: a pod's UID, the number of an array's task."""
    spot: bool | None = None
    """Whether the machine may be taken away for its lower price; None = the platform does not say."""
    out_per_gb: float | None = None
    """What a GB costs that leaves the machine, where the provider says so."""
    tiers: dict[str, str] = {}
    """Mount point → name of the storage tier, as the provider says it of this machine."""
    ends_at: float | None = None
    """When the rental ends by its contract (client clock), where the provider says so."""

    def state_text(self, detail: str = "") -> str:
        """Say who reports which state, e.g. ``RunPod says stopped (EXITED)``, then what the source adds.

        Args:
            detail: Continues the first sentence.
        """
        source, _, note = self.source.partition("; ")
        if "not in the list" in (self.native_status or ""):
            text = f"{source} no longer lists it{detail}"
        else:
            native = f" ({self.native_status})" if self.native_status else ""
            text = f"{source} says {self.lifecycle.value}{native}{detail}"
        if note:
            return f"{text}. {note[0].upper()}{note[1:]}"
        return text
