"""Money: prices and sums with currency and lower-bound flag; adding and projecting.

An amount that is not fully known is a lower bound and shown as one (``≥ $0.50``). Amounts of
different currencies are never added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from rgt_tui.language import translate
from rgt_tui.model import (
    MACHINE,
    FrozenStruct,
    Meter,
    MeterKind,
    MoneyAmount,
    Profile,
    StoragePrice,
    StorageTier,
    UnlistedItem,
    clean_text,
    format_money,
    format_unit_price,
    size,
)

# A convention of rgt: vendors bill by the second and publish prices per month.
HOURS = {"GB-month": 730.0, "GiB-month": 730.0, "GB-day": 24.0, "GB-hour": 1.0}
"""Hours per unit of a price; a month is 365 days / 12."""
UNITS = {
    "GB-month": "GB and month",
    "GiB-month": "GiB and month",
    "GB-day": "GB and day",
    "GB-hour": "GB and hour",
}
GIB = 1e9 / 2**30
"""GiB per GB."""
STATES = ("running", "stopped", "always")


def find_hourly_cost(meter: Meter) -> MoneyAmount | None:
    """Return the current hourly cost, as known so far; None = unknown."""
    return _build_amount(meter.per_hour, meter.currency, meter.at_least)


def find_cost_so_far(meter: Meter) -> MoneyAmount | None:
    """Return what the box has cost, as known so far; None = unknown."""
    return _build_amount(meter.spent, meter.currency, meter.spent_at_least, meter.spent_estimated)


def _build_amount(
    value: float | None, currency: str, at_least: bool, estimated: bool = False
) -> MoneyAmount | None:
    # A provider's NaN must not spread through all sums.
    if value is None or not math.isfinite(value):
        return None
    return MoneyAmount(value, currency, at_least, estimated)


def sum_amounts(amounts: Iterable[MoneyAmount | None]) -> tuple[MoneyAmount, ...]:
    """Return one sum per currency, in order of first appearance.

    A sum containing a lower bound or an estimate is one itself. An unknown amount (None) may be of
    any currency, so it makes all sums lower bounds. If nothing is known there is no sum at all,
    never zero.
    """
    by_currency: dict[str, list[MoneyAmount]] = {}
    unknown = False
    for each in amounts:
        if each is None:
            unknown = True
        else:
            by_currency.setdefault(each.currency, []).append(each)
    return tuple(
        MoneyAmount(
            sum(each.value for each in given),
            currency,
            unknown or any(each.at_least for each in given),
            any(each.estimated for each in given),
        )
        for currency, given in by_currency.items()
    )


def thing_price(thing: UnlistedItem) -> str:
    """Return the price of an unlisted thing: per hour for a machine, else also per month."""
    if thing.per_hour is None or not math.isfinite(thing.per_hour):
        return translate("price unknown")
    hour = f"{format_money(thing.per_hour, thing.currency, thing.at_least)}/h"
    # A machine is rented by the hour; a volume is noticed on the monthly bill.
    if thing.what == MACHINE:
        return hour
    month = format_money(thing.per_hour * HOURS["GB-month"], thing.currency, thing.at_least)
    return f"{hour}, {month} a month"


def describe_unlisted_item(thing: UnlistedItem) -> str:
    """Return a short description of a thing that no box names: kind, name, id, size, state."""
    cards = ""
    if thing.gpu_count and thing.gpu_count > 1:
        cards = f"{thing.gpu_count} × "
    details = (
        f"{cards}{thing.gpu}" if thing.gpu else "",
        f"{thing.size_gb:g} GB" if thing.size_gb is not None else "",
        thing.region or "",
        thing.status,
        f"on {', '.join(thing.used_by)}" if thing.used_by else "",
    )
    if thing.name and thing.name != thing.id:
        name = f"{thing.name} ({thing.id})"
    else:
        name = thing.id
    return clean_text(", ".join(part for part in (f"{thing.what} {name}", *details) if part))


def fleet_rate(meters: Iterable[Meter]) -> tuple[MoneyAmount, ...]:
    """Return the hourly cost of all boxes. A box known to bill nothing adds no uncertainty."""
    return sum_amounts(
        find_hourly_cost(meter)
        for meter in meters
        # A destroyed machine has no price, and would make the fleet's sum a lower bound from then
        # on.
        if not (meter.per_hour is None and _is_off(meter))
    )


def fleet_spent(meters: Iterable[Meter]) -> tuple[MoneyAmount, ...]:
    """Return what all boxes have cost."""
    return sum_amounts(find_cost_so_far(meter) for meter in meters)


def _is_off(meter: Meter) -> bool:
    return meter.kind is MeterKind.NONE and meter.error is None


def project_cost(per_hour: MoneyAmount, seconds: float) -> MoneyAmount:
    """Return the cost of a duration at a price. A lower bound remains one."""
    return MoneyAmount(
        per_hour.value * max(0.0, seconds) / 3600.0, per_hour.currency, per_hour.at_least
    )


def storage_per_hour(
    profile: Profile, tier: str, gigabytes: float, *, running: bool, grade: str | None = None
) -> MoneyAmount | None:
    """Return the hourly cost of a storage tier by the profile; None = it has no price.

    Args:
        profile: The platform.
        tier: Name of its tier.
        gigabytes: The billed size.
        running: The state of the box: some platforms charge more while it is stopped.
        grade: The platform's name for the kind of storage; an unknown one has no price.
    """
    found = next((one for one in profile.tiers if one.name == tier), None)
    if found is not None:
        bands = _list_price_bands(found, running, grade)
    else:
        bands = []
    if not bands or not math.isfinite(gigabytes):
        return None
    # Each band ends where the next begins; below the first, storage is free.
    ends = [band.above_gb for band in bands[1:]] + [math.inf]
    value = sum(
        max(0.0, min(gigabytes, end) - band.above_gb)
        * band.amount
        * _units_per_gb(band)
        / HOURS[band.per]
        for band, end in zip(bands, ends, strict=True)
    )
    return MoneyAmount(value, bands[0].currency)


def _units_per_gb(price: StoragePrice) -> float:
    """Return the number of a price's units per GB."""
    if price.per.startswith("GiB"):
        return GIB
    return 1.0


def _list_price_bands(tier: StorageTier, running: bool, grade: str | None) -> list[StoragePrice]:
    state = "running" if running else "stopped"
    fitting = [
        price for price in tier.prices if price.when in (state, "always") and price.grade == grade
    ]
    return sorted(fitting, key=lambda price: price.above_gb)


def describe_tier_prices(tier: StorageTier, *, running: bool) -> str:
    """Return a tier's prices, e.g. ``$0.20 per GB and month (2026-08)``, or that none is known."""
    grades = dict.fromkeys(price.grade for price in tier.prices)
    said = [
        (f"{grade} " if grade else "") + _describe_bands(bands)
        for grade in grades
        if (bands := _list_price_bands(tier, running, grade))
    ]
    if not said:
        return translate("price unknown")
    # The oldest, because a reader must not take an old price for a checked one.
    oldest = min(price.verified for price in tier.prices)
    return f"{', '.join(said)} ({oldest})"


def _describe_bands(bands: Sequence[StoragePrice]) -> str:
    first, *more = bands
    head = translate(
        "{price} per {unit}", price=format_price(first), unit=translate(UNITS[first.per])
    )
    if first.above_gb:
        head = translate(
            "up to {above_gb:,.0f} GB free, above it {head}", above_gb=first.above_gb, head=head
        )
    rest = [
        translate("above {gb:,.0f} GB {price}", gb=band.above_gb, price=format_price(band))
        for band in more
    ]
    return ", ".join((head, *rest))


def format_price(price: StoragePrice) -> str:
    """Return the amount of a price; below a hundredth it keeps its digits, as it is not free."""
    return format_unit_price(price.amount, price.currency)


def list_caveats(meter: Meter) -> tuple[str, ...]:
    """Return what is uncertain about a meter, a line each: unpriced parts, doubts, the books."""
    said = []
    if meter.unpriced:
        said.append(
            translate(
                "without a price that is known: {unpriced}", unpriced=", ".join(meter.unpriced)
            )
        )
    if meter.doubt:
        said.append(translate(meter.doubt))
    differ = books_differ(meter.books_differ, meter.books_differ_since, meter.currency)
    if differ is not None:
        said.append(differ)
    return tuple(map(clean_text, said))


def books_differ(by: float | None, since: float | None, currency: str) -> str | None:
    """Return the difference between a provider's books and rgt's count; None = no difference.

    Args:
        by: The books minus rgt's count.
        since: Client clock of the start of the comparison.
        currency: Currency of both.
    """
    if by is None or since is None:
        return None
    begun = datetime.fromtimestamp(since).astimezone().strftime("%m-%d %H:%M")
    amount = format_money(abs(by), currency)
    if by > 0:
        return translate(
            "the provider's books say {amount} more than price × time since {begun}",
            amount=amount,
            begun=begun,
        )
    return translate(
        "the provider's books say {amount} less than price × time since {begun}",
        amount=amount,
        begun=begun,
    )


class TransferCost(FrozenStruct, kw_only=True):
    """The cost of transferring some bytes out of a box."""

    bytes: int
    """Upper limit: partially transferred files count in full."""
    free: bool
    """A source states that it is free. An unknown price is not free."""
    price: MoneyAmount | None = None
    """Maximum price for these bytes; None = unknown."""
    words: str
    """Both as text, with the source."""

    @property
    def size_and_price(self) -> str:
        """Size and price, e.g. ``4.3 GB for at most $0.34``."""
        if self.price is None:
            return translate("{bytes}, price unknown", bytes=size(self.bytes))
        return translate("{bytes} for {price}", bytes=size(self.bytes), price=_at_most(self.price))

    def covers_cost(self, other: TransferCost) -> bool:
        """Return whether consent to this toll also covers another one."""
        # Consent was given for a size; more bytes are another question.
        if other.bytes > self.bytes:
            return False
        # Unknown covers unknown only.
        if self.price is None or other.price is None:
            return self.price == other.price
        same = self.price.currency == other.price.currency
        return same and other.price.value <= self.price.value


def estimate_transfer_cost(
    profile: Profile, count: int, meter: Meter | None = None
) -> TransferCost:
    """Return the cost of transferring bytes out of a box.

    Args:
        profile: Profile of its platform.
        count: Maximum number of bytes.
        meter: The provider's newest reading, which may have the machine's own price.
    """
    leaving = translate("{count} will leave the box", count=size(count))
    if meter is not None and meter.error is None:
        # The machine's own price beats the platform's maximum: at vast.ai each host sets it.
        own = meter.out_per_gb
    else:
        own = None
    if meter is not None and own is not None and math.isfinite(own) and own >= 0:
        price = MoneyAmount(own * count / 1e9, meter.currency)
        # 0 from the provider is a fact, unlike a missing price.
        if not own:
            words = translate(
                "this machine's traffic costs nothing ({source}); {leaving}",
                source=meter.source,
                leaving=leaving,
            )
            return TransferCost(bytes=count, free=True, price=price, words=words)
        each = f"{format_unit_price(own, meter.currency)} per GB ({meter.source})"
        words = translate(
            "it costs money: {leaving}, {price}: {each}",
            leaving=leaving,
            price=_at_most(price),
            each=each,
        )
        return TransferCost(bytes=count, free=False, price=price, words=words)
    traffic = profile.network.traffic
    if traffic is None:
        words = translate(
            "unknown whether {name} charges for traffic; {leaving}",
            name=profile.name,
            leaving=leaving,
        )
        return TransferCost(bytes=count, free=False, words=words)
    said = (
        traffic.url or traffic.cited_as or translate("no source"),
        traffic.verified or translate("not dated"),
    )
    source = f"({', '.join(said)})"
    if not traffic.metered:
        return TransferCost(
            bytes=count,
            free=True,
            price=MoneyAmount(0.0, traffic.currency),
            words=f"{traffic.note} {source}",
        )
    begun = translate("it costs money: {leaving}", leaving=leaving)
    if traffic.most_per_gib is None:
        words = translate(
            "{begun}. {note} The price on this machine is unknown {source}",
            begun=begun,
            note=traffic.note,
            source=source,
        )
        return TransferCost(bytes=count, free=False, words=words)
    price = MoneyAmount(traffic.most_per_gib * count / 1e9 * GIB, traffic.currency)
    words = f"{begun}, {_at_most(price)}. {traffic.note} {source}"
    return TransferCost(bytes=count, free=False, price=price, words=words)


def _at_most(price: MoneyAmount) -> str:
    said = format_money(price.value, price.currency)
    if said.startswith("<"):
        return said
    return translate("at most {said}", said=said)
