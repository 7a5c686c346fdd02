"""Every field of a profile is on the platform's page: a fact that no line has is one that nobody sees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from rgt_tui.model import (
    ClockClaim,
    ClockMode,
    ClockStart,
    DangerClock,
    FactSource,
    Profile,
    StoragePrice,
)
from rgt_tui.profiles import all_profiles, platform_sections

replace = msgspec.structs.replace
FIXED: dict[str, Any] = {
    "mode": ClockMode.COUNTDOWN,
    "counts_from": ClockStart.STOP,
    "per": "GB-day",
    "when": "stopped",
    "currency": "PLN",
    "spot_available": True,
}
"""Where only certain words are possible."""
ELSEWHERE = {
    "name",  # the title of the page
    "clocks[1].claims[1].after_s",  # where sources disagree, the figure of the worst counts, and all words are there
    "clocks[1].claims[1].approx",
    "clocks[2].claims[0].approx",  # a charge has no figure that could be rounded
}


def made(kind: msgspec.inspect.Type, name: str, numbers: Iterator[int]) -> Any:
    """Make a value of a type, of which no field is empty."""
    if name in FIXED:
        return FIXED[name]
    match kind:
        case msgspec.inspect.StructType(fields=fields):
            return kind.cls(**{one.name: made(one.type, one.name, numbers) for one in fields})
        case msgspec.inspect.VarTupleType(item_type=item):
            return (made(item, "", numbers),)
        case msgspec.inspect.DictType(value_type=item):
            return {f"word{next(numbers)}": made(item, "", numbers)}
        case msgspec.inspect.UnionType(types=types):
            given = next(one for one in types if not isinstance(one, msgspec.inspect.NoneType))
            return made(given, name, numbers)
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return next(numbers)
        case msgspec.inspect.FloatType():
            return 86_400.0 * next(numbers)
    return f"word{next(numbers)}"


def full() -> Profile:
    """Return a profile with everything in it: a clock in each mode, and sources that contradict each other."""
    numbers = itertools.count(1)
    profile: Profile = made(msgspec.inspect.type_info(Profile), "", numbers)
    clock = replace(profile.clocks[0], runs=None, watched_by=None)
    bare: DangerClock = replace(clock, counts_from=None)
    clocks = (
        replace(clock, what="counts"),
        replace(
            clock, what="counts too",
            claims=(ClockClaim(says="early", after_s=60.0, cited_as="a"), ClockClaim(says="late",
            after_s=90.0, cited_as="b")),
        ),
        replace(
            bare, what="costs", mode=ClockMode.CHARGE, runs="running", claims=(ClockClaim(cited_as="a"),)
        ),
        replace(bare, what="trips", mode=ClockMode.TRIPWIRE, watched_by="stopped"),
        replace(bare, what="is said", mode=ClockMode.NOTICE),
    )  # fmt: skip
    page_, other = (
        FactSource(
            id=id_,
            fact=f"fact of {id_}",
            url=f"https://{id_}.example",
            cited_as="a page",
            verified="2026-06",
        )
        for id_ in ("page", "other")
    )
    return replace(
        profile,
        clocks=clocks,
        sources=(page_, other),
        tiers=tuple(replace(one, sources=("page", "other")) for one in profile.tiers),
        billing=tuple(replace(one, sources=("page", "other")) for one in profile.billing),
        contradictions=tuple(
            replace(one, sources=("page", "other")) for one in profile.contradictions
        ),
        interruption=replace(profile.interruption, sources=("page", "other")),
    )


def changed(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the value with one thing in it changed, and where, for each thing in it."""
    match value:
        case msgspec.Struct():
            for name in value.__struct_fields__:
                for where, other in changed(
                    getattr(value, name), f"{path}.{name}" if path else name
                ):
                    yield where, replace(value, **{name: other})
        case tuple():
            yield path, ()
            for number, item in enumerate(value):
                for where, other in changed(item, f"{path}[{number}]"):
                    yield where, (*value[:number], other, *value[number + 1 :])
        case dict():
            yield path, {}
            for key, item in value.items():
                for where, other in changed(item, f"{path}.{key}"):
                    yield where, {**value, key: other}
        case bool():
            yield path, not value
        case ClockMode() | ClockStart():
            return
        case str():
            yield (
                path,
                {"GB-day": "GB-month", "stopped": "running", "running": "stopped"}.get(
                    value, "changed"
                ),
            )
        case int() | float():
            yield path, value + 7200


def page(profile: Profile) -> tuple[Any, ...]:
    return platform_sections(
        profile, lambda alert: "The box was stopped" if alert == "stopped" else None
    )


def test_whatever_changes_in_a_profile_shows_on_its_page() -> None:
    profile = full()
    before = page(profile)
    others = list(changed(profile, ""))
    unseen = {where for where, other in others if page(other) == before}
    assert sorted(unseen ^ ELSEWHERE) == []
    assert len(others) > 200


def test_how_a_clock_counts_is_on_the_page() -> None:
    profile = full()
    clock = profile.clocks[0]
    pages = {
        page(replace(profile, clocks=(replace(clock, counts_from=start),))) for start in ClockStart
    }
    assert len(pages) == len(ClockStart)
    modes = {
        page(replace(profile, clocks=(replace(clock, counts_from=None, mode=mode),)))
        for mode in ClockMode
    }
    assert len(modes) == len(ClockMode)


def test_what_is_not_known_is_not_no() -> None:
    profile = full()
    tier = replace(profile.tiers[0], survives_stop=None, bills_while_stopped=None)
    text = str(page(replace(profile, tiers=(tier,))))
    assert "stop: unknown" in text
    assert "unknown whether it bills while stopped" in text
    assert "no source says what it costs" in str(
        page(replace(profile, network=replace(profile.network, traffic=None)))
    )


def test_the_worst_danger_comes_first_and_every_shipped_page_has_the_sections_that_decide() -> None:
    for profile in all_profiles().values():
        sections = {section.title: section.rows for section in platform_sections(profile)}
        assert sections["in short"][0].text == profile.top_danger
        assert set(sections) >= {
            "what survives",
            "what stops the bill",
            "clocks",
            "interruption",
            "network",
        }
        modes = [row for row in sections["clocks"] if row.label in set(ClockMode)]
        assert len(modes) == len(profile.clocks)


def test_a_price_of_less_than_a_cent_is_not_shown_as_nothing() -> None:
    tier = replace(
        full().tiers[0],
        prices=(StoragePrice(0.0007, "CNY", "GB-hour", "2026-06", "https://x.example"),),
    )
    text = str(page(replace(full(), tiers=(tier,))))
    assert "¥0.0007 per GB and hour" in text
    assert "¥0.00 " not in text
