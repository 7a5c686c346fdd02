"""Whether each fact of a profile about money or data has a source, and how old its last check is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

import msgspec

from rgt_tui.model.profile import Claim, Price, Profile, Source, Traffic

OLD_MONTHS = 6
"""A fact that was not looked at for longer is said."""


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the source of one fact."""

    profile: str
    key: str
    """Where the fact stands, such as ``tiers.data``."""
    words: str
    fails: bool
    """False = a warning."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of the sources found."""

    facts: int
    """How many facts about money or data were looked at."""
    shortfalls: tuple[Shortfall, ...]

    @property
    def fails(self) -> bool:
        """One of them is more than a warning."""
        return any(one.fails for one in self.shortfalls)


def check_sources(profiles: Iterable[Profile], as_of: date, max_age: int | None = None) -> Outcome:
    """Look at every fact about money or data: survival, prices, billing actions, clocks, traffic, spot grace.

    Args:
        profiles: The platforms.
        as_of: The day from which the age is counted.
        max_age: Months after which a fact fails; so does one that was never dated. None = it only warns.
    """
    facts, found = 0, []
    for profile in profiles:
        for key, cited in _facts(profile):
            facts += 1
            said = _wrong(cited, as_of, max_age)
            if said is not None:
                words, fails = said
                found.append(Shortfall(profile=profile.id, key=key, words=words, fails=fails))
    return Outcome(facts=facts, shortfalls=tuple(found))


Cited = Source | Claim | Price | Traffic


def _facts(profile: Profile) -> Iterator[tuple[str, tuple[Cited, ...]]]:
    """Yield each fact about money or data: where it stands, and what is cited for it."""
    rows = {source.id: source for source in profile.sources if source.id is not None}

    def named(ids: tuple[str, ...]) -> tuple[Cited, ...]:
        return tuple(rows[id_] for id_ in ids if id_ in rows)

    for tier in profile.tiers:
        yield f"tiers.{tier.name}", named(tier.sources)
        for number, price in enumerate(tier.prices):
            yield f"tiers.{tier.name}.prices[{number}]", (price,)
    for action in profile.billing:
        yield f"billing.{action.verb}", named(action.sources)
    for clock in profile.clocks:
        # Each on its own: where sources disagree, one of them may have been looked at long ago.
        for number, claim in enumerate(clock.claims):
            yield f"clocks.{clock.what}.claims[{number}]", (claim,)
    if profile.network.traffic is not None:
        yield "network.traffic", (profile.network.traffic,)
    if profile.interruption.spot_available:
        yield "interruption", named(profile.interruption.sources)


def _wrong(cited: tuple[Cited, ...], as_of: date, max_age: int | None) -> tuple[str, bool] | None:
    """Say what is wrong with the sources of a fact, and whether it fails; None = nothing."""
    real = [one for one in cited if one.url or getattr(one, "cited_as", None)]
    if not real:
        return "no source", True
    months = [one.verified for one in real if one.verified is not None]
    if not months:
        return f"never dated ({_where(real[0])})", max_age is not None
    newest = max(months)
    age = _months(newest, as_of)
    where = _where(next(one for one in real if one.verified == newest))
    if age < 0:
        return f"verified in {newest}, which is not over yet ({where})", True
    if age > OLD_MONTHS or (max_age is not None and age > max_age):
        return (
            f"last looked at {age} months ago, in {newest} ({where})",
            max_age is not None and age > max_age,
        )
    return None


def _months(month: str, as_of: date) -> int:
    year, number = map(int, month.split("-"))
    return (as_of.year - year) * 12 + as_of.month - number


def _where(source: Cited) -> str:
    return ", ".join(part for part in (source.url, getattr(source, "cited_as", None)) if part)
