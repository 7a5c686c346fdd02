"""Money: prices and sums with their currency and whether they are a lower bound, added, projected, and written out.

What is not known in full is a lower bound and is written as one (``≥ $0.50``). Currencies are never added together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from rgt_tui.model import MACHINE, Amount, Meter, MeterKind, Price, Profile, Tier, Unlisted, clean
from rgt_tui.profiles.readings import size

HOURS = {"GB-month": 730.0, "GiB-month": 730.0, "GB-day": 24.0, "GB-hour": 1.0}
"""Hours in what a price is said for; a month is taken as 365 days / 12."""
UNITS = {
    "GB-month": "GB and month",
    "GiB-month": "GiB and month",
    "GB-day": "GB and day",
    "GB-hour": "GB and hour",
}
GIB = 1e9 / 2**30
"""GiB in a GB."""
STATES = ("running", "stopped", "always")
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥", "JPY": "¥"}
LEAST = "≥ "


def rate(meter: Meter) -> Amount | None:
    """Return what an hour costs now, as far as known; None = unknown."""
    return _amount(meter.per_hour, meter.currency, meter.at_least)


def spent(meter: Meter) -> Amount | None:
    """Return what the box has cost, as far as known; None = unknown."""
    return _amount(meter.spent, meter.currency, meter.spent_at_least, meter.spent_estimated)


def _amount(
    value: float | None, currency: str, at_least: bool, estimated: bool = False
) -> Amount | None:
    if value is None or not math.isfinite(value):
        return None
    return Amount(value, currency, at_least, estimated)


def total(amounts: Iterable[Amount | None]) -> tuple[Amount, ...]:
    """Add amounts up, one sum a currency, in the order in which the currencies come.

    A sum with a lower bound in it is one, and one with an estimate in it is one. An unknown amount (None) may be of any
    currency: it makes all of them lower bounds. Nothing known gives no sum at all, never zero.
    """
    given = list(amounts)
    unknown = any(each is None for each in given)
    sums: dict[str, Amount] = {}
    for each in given:
        if each is not None:
            before = sums.get(each.currency, Amount(0.0, each.currency))
            at_least = before.at_least or each.at_least or unknown
            estimated = before.estimated or each.estimated
            sums[each.currency] = Amount(
                before.value + each.value, each.currency, at_least, estimated
            )
    return tuple(sums.values())


def thing_price(thing: Unlisted) -> str:
    """Say what an unlisted thing costs: an hour of a machine, or a month of what stays for long."""
    if thing.per_hour is None or not math.isfinite(thing.per_hour):
        return "price unknown"
    hour = f"{money(thing.per_hour, thing.currency, thing.at_least)}/h"
    if thing.what == MACHINE:
        return hour
    month = money(thing.per_hour * HOURS["GB-month"], thing.currency, thing.at_least)
    return f"{hour}, {month} a month"


def thing_words(thing: Unlisted) -> str:
    """Say in a few words what it is that no box names: its kind, name, id, size, state."""
    cards = f"{thing.gpu_count} × " if thing.gpu_count and thing.gpu_count > 1 else ""
    details = (
        f"{cards}{thing.gpu}" if thing.gpu else "",
        f"{thing.size_gb:g} GB" if thing.size_gb is not None else "",
        thing.region or "",
        thing.status,
        f"on {', '.join(thing.used_by)}" if thing.used_by else "",
    )
    name = f"{thing.name} ({thing.id})" if thing.name and thing.name != thing.id else thing.id
    return clean(", ".join(part for part in (f"{thing.what} {name}", *details) if part))


def fleet_rate(meters: Iterable[Meter]) -> tuple[Amount, ...]:
    """Return what an hour of all boxes costs; a box that is known to bill nothing takes no part in the doubt."""
    return total(rate(meter) for meter in meters if not (meter.per_hour is None and _is_off(meter)))


def fleet_spent(meters: Iterable[Meter]) -> tuple[Amount, ...]:
    """Return what all boxes have cost."""
    return total(spent(meter) for meter in meters)


def _is_off(meter: Meter) -> bool:
    return meter.kind is MeterKind.NONE and meter.error is None


def projected(per_hour: Amount, seconds: float) -> Amount:
    """Return what so many seconds cost at a price; a lower bound remains one."""
    return Amount(per_hour.value * max(0.0, seconds) / 3600.0, per_hour.currency, per_hour.at_least)


def storage_per_hour(
    profile: Profile, tier: str, gigabytes: float, *, running: bool, grade: str | None = None
) -> Amount | None:
    """Return what an hour of a tier of that size costs by the profile; None = it has no price for it.

    Args:
        profile: The platform.
        tier: Name of its tier.
        gigabytes: Its size as it is billed.
        running: The state of the box: some platforms charge more while it is stopped.
        grade: The platform's word for the kind of storage; one that the profile does not know has no price.
    """
    found = next((one for one in profile.tiers if one.name == tier), None)
    bands = _bands(found, running, grade) if found is not None else []
    if not bands or not math.isfinite(gigabytes):
        return None
    ends = [band.above_gb for band in bands[1:]] + [math.inf]
    value = sum(
        max(0.0, min(gigabytes, end) - band.above_gb) * band.amount * _unit(band) / HOURS[band.per]
        for band, end in zip(bands, ends, strict=True)
    )
    return Amount(value, bands[0].currency)


def _unit(price: Price) -> float:
    """Return how many units of a price make a GB."""
    if price.per.startswith("GiB"):
        return GIB
    return 1.0


def _bands(tier: Tier, running: bool, grade: str | None) -> list[Price]:
    state = "running" if running else "stopped"
    fitting = [
        price for price in tier.prices if price.when in (state, "always") and price.grade == grade
    ]
    return sorted(fitting, key=lambda price: price.above_gb)


def price_words(tier: Tier, *, running: bool) -> str:
    """Return a tier's prices, e.g. ``$0.20 per GB and month (2026-08)``; without any: that none is known."""
    grades = dict.fromkeys(price.grade for price in tier.prices)
    said = [
        (f"{grade} " if grade else "") + _bands_in_words(bands)
        for grade in grades
        if (bands := _bands(tier, running, grade))
    ]
    if not said:
        return "price not known"
    oldest = min(price.verified for price in tier.prices)
    return f"{', '.join(said)} ({oldest})"


def _bands_in_words(bands: Sequence[Price]) -> str:
    first, *more = bands
    unit = f"per {UNITS[first.per]}"
    head = f"{tariff(first)} {unit}"
    if first.above_gb:
        head = f"up to {first.above_gb:,.0f} GB free, above it {head}"
    rest = [f"above {band.above_gb:,.0f} GB {tariff(band)}" for band in more]
    return ", ".join((head, *rest))


def tariff(price: Price) -> str:
    """Return the figure of a price; one of less than a hundredth keeps its digits, for it is not free."""
    return exact(price.amount, price.currency)


def exact(amount: float, currency: str) -> str:
    """Return the figure of what one of something costs; see `tariff`."""
    if 0 < amount < 0.01:
        return _with(f"{amount:.3g}", currency)
    return figure(amount, currency)


def caveats(meter: Meter) -> tuple[str, ...]:
    """Say what is not known of a meter's figures, a line each: parts without a price, doubts, books that differ."""
    said = []
    if meter.unpriced:
        said.append(f"without a price that is known: {', '.join(meter.unpriced)}")
    if meter.doubt:
        said.append(meter.doubt)
    differ = books_differ(meter.books_differ, meter.books_differ_since, meter.currency)
    if differ is not None:
        said.append(differ)
    return tuple(map(clean, said))


def books_differ(by: float | None, since: float | None, currency: str) -> str | None:
    """Say by how much a provider's books and rgt's own count differ, and since when; None = they do not.

    Args:
        by: The books less the own count.
        since: Client clock from which on they were compared.
        currency: Of both.
    """
    if by is None or since is None:
        return None
    way = "more" if by > 0 else "less"
    begun = datetime.fromtimestamp(since).astimezone().strftime("%m-%d %H:%M")
    return (
        f"the provider's books say {money(abs(by), currency)} {way} than price × time since {begun}"
    )


def money(
    amount: float | None,
    currency: str,
    at_least: bool = False,
    *,
    estimated: bool = False,
    none: str = "?",
) -> str:
    """Return an amount with its currency: ``$0.42``, ``¥1.98``, ``7.00 PLN``, ``≥ $0.50``; `none` when unknown.

    A little is written ``<$0.01``, for it is not free; a lower bound is rounded down, for it must hold. An estimate is
    written ``~$0.42`` and is no lower bound: it may be less as well.
    """
    if amount is None or not math.isfinite(amount):
        return none
    if estimated:
        return f"~{figure(amount, currency)}"
    if not at_least:
        if 0 < amount < 0.005:
            return f"<{_with('0.01', currency)}"
        return figure(amount, currency)
    if 0 < amount < 0.01:
        return f"> {_with('0.00', currency)}"
    unit = 100.0 if abs(amount) < 1000 else 1.0
    return LEAST + figure(math.floor(amount * unit + 1e-9) / unit, currency)


def figure(amount: float, currency: str) -> str:
    """Return an amount with two decimals, none from a thousand on."""
    return _with(f"{amount:,.2f}" if abs(amount) < 1000 else f"{amount:,.0f}", currency)


def _with(digits: str, currency: str) -> str:
    symbol = SYMBOLS.get(currency)
    if symbol:
        return f"{symbol}{digits}"
    return f"{digits} {clean(currency)[:3]}"


def written(amounts: Iterable[Amount], none: str = "?") -> str:
    """Return sums side by side, never added: ``$1.11 + ≥ ¥1.98``; `none` where there is not one."""
    texts = (
        money(each.value, each.currency, each.at_least, estimated=each.estimated)
        for each in amounts
    )
    return " + ".join(texts) or none


class Toll(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs to transfer some bytes out of a box."""

    bytes: int
    """At most: what has come in part already is counted whole."""
    free: bool
    """A source says that nothing is charged. What nobody says is not free."""
    price: Amount | None = None
    """Of these bytes, at most; None = nobody says."""
    words: str
    """Both, with the source."""

    @property
    def short(self) -> str:
        """Size and price, e.g. ``4.3 GB for at most $0.34``."""
        if self.price is None:
            return f"{size(self.bytes)}, price unknown"
        return f"{size(self.bytes)} for {_at_most(self.price)}"

    def covers(self, other: Toll) -> bool:
        """Say whether who has agreed to this one need not be asked about another."""
        if other.bytes > self.bytes:
            return False
        if self.price is None or other.price is None:
            return self.price == other.price
        same = self.price.currency == other.price.currency
        return same and other.price.value <= self.price.value


def toll(profile: Profile, count: int, meter: Meter | None = None) -> Toll:
    """Return what it costs that bytes leave a box.

    Args:
        profile: Of its platform.
        count: How many, at most.
        meter: The provider's newest word on the machine, which may have a price of its own.
    """
    leaving = f"{size(count)} will leave the box"
    own = meter.out_per_gb if meter is not None and meter.error is None else None
    if meter is not None and own is not None and math.isfinite(own) and own >= 0:
        price = Amount(own * count / 1e9, meter.currency)
        if not own:
            words = f"this machine's traffic costs nothing ({meter.source}); {leaving}"
            return Toll(bytes=count, free=True, price=price, words=words)
        each = f"{exact(own, meter.currency)} per GB ({meter.source})"
        words = f"it costs money: {leaving}, {_at_most(price)}: {each}"
        return Toll(bytes=count, free=False, price=price, words=words)
    traffic = profile.network.traffic
    if traffic is None:
        words = f"whether {profile.name} charges for traffic is not known; {leaving}"
        return Toll(bytes=count, free=False, words=words)
    said = (traffic.url or traffic.cited_as or "no source", traffic.verified or "not dated")
    source = f"({', '.join(said)})"
    if not traffic.metered:
        return Toll(
            bytes=count,
            free=True,
            price=Amount(0.0, traffic.currency),
            words=f"{traffic.note} {source}",
        )
    begun = f"it costs money: {leaving}"
    if traffic.most_per_gib is None:
        words = f"{begun}. {traffic.note} What this one takes is not known {source}"
        return Toll(bytes=count, free=False, words=words)
    price = Amount(traffic.most_per_gib * count / 1e9 * GIB, traffic.currency)
    words = f"{begun}, {_at_most(price)}. {traffic.note} {source}"
    return Toll(bytes=count, free=False, price=price, words=words)


def _at_most(price: Amount) -> str:
    said = money(price.value, price.currency)
    if said.startswith("<"):
        return said
    return f"at most {said}"
