"""What it costs that bytes leave a box, as far as its platform's profile and its provider say it."""

from __future__ import annotations

import math

import msgspec

from rgt_tui.model.money import Amount, Meter
from rgt_tui.model.plain import clean
from rgt_tui.model.profile import Profile
from rgt_tui.profiles.prices import GIB, exact, money
from rgt_tui.profiles.readings import size


class Toll(msgspec.Struct, frozen=True, kw_only=True):
    """What so many bytes that leave a box cost."""

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
        """How much it is and what it costs, in a few words."""
        if self.price is None:
            return f"{size(self.bytes)}, price not known"
        return f"{size(self.bytes)}, {_at_most(self.price)}"

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
            words = f"this machine's traffic costs nothing ({clean(meter.source)}); {leaving}"
            return Toll(bytes=count, free=True, price=price, words=words)
        each = f"{exact(own, meter.currency)} per GB ({clean(meter.source)})"
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
            bytes=count, free=True, price=Amount(0.0, traffic.currency), words=f"{traffic.note} {source}"
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
    return said if said.startswith("<") else f"at most {said}"
