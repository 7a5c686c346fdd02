"""A fact about money or data without a source fails; an old one is said, and fails where a person asks for it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from rgt_tui.model import (
    BillingAction,
    ClockClaim,
    ClockMode,
    DangerClock,
    FactSource,
    Interruption,
    NetworkFacts,
    Overrides,
    Profile,
    StoragePrice,
    StorageTier,
    TrafficFacts,
)
from rgt_tui.profiles import (
    all_profiles,
    check_sources,
    describe_check_months,
    list_old_facts,
)

NOW = date(2026, 11, 22)
PAGE = FactSource(id="page", fact="all of it", url="https://x.example/page", verified="2026-10")
CLAIM = ClockClaim(url="https://x.example/clock", verified="2026-10")
PRICE = StoragePrice(1.0, "USD", "GB-month", "2026-10", "https://x.example/price")


def clock(*claims: ClockClaim) -> DangerClock:
    return DangerClock(
        what="it goes",
        consequence="gone",
        applies_when="always",
        mode=ClockMode.NOTICE,
        claims=claims,
    )


FULL = Profile(
    id="x",
    name="X",
    kind="ssh",
    confidence="from-docs",
    top_danger="-",
    overrides=Overrides(detach="tmux"),
    tiers=(StorageTier("disk", prices=(PRICE,), sources=("page",)),),
    billing=(BillingAction("stop", "Stop", "park", sources=("page",)),),
    clocks=(clock(CLAIM),),
    network=NetworkFacts(
        traffic=TrafficFacts(metered=True, note="-", url="https://x.example/t", verified="2026-10")
    ),
    interruption=Interruption(spot_available=True, spot_grace_s=5, sources=("page",)),
    sources=(PAGE,),
)


def found(max_age: int | None = None, **over: Any) -> list[tuple[str, bool]]:
    outcome = check_sources([msgspec.structs.replace(FULL, **over)], NOW, max_age)
    assert outcome.has_failures is any(one.fails for one in outcome.shortfalls)
    return [(one.key, one.fails) for one in outcome.shortfalls]


def test_nothing_is_said_of_facts_with_a_fresh_source() -> None:
    assert check_sources([FULL], NOW, 6).shortfalls == ()
    assert check_sources([FULL], NOW).facts == 6


@pytest.mark.parametrize(
    ("over", "key"),
    [
        ({"tiers": (StorageTier("disk"),)}, "tiers.disk"),
        ({"billing": (BillingAction("stop", "Stop", "park"),)}, "billing.stop"),
        ({"clocks": (clock(ClockClaim(verified="2026-10")),)}, "clocks.it goes.claims[0]"),
        (
            {
                "network": NetworkFacts(
                    traffic=TrafficFacts(metered=False, note="free", verified="2026-10")
                )
            },
            "network.traffic",
        ),
        ({"interruption": Interruption(spot_available=True)}, "interruption"),
    ],
)
def test_a_fact_without_a_source_fails(over: dict[str, Any], key: str) -> None:
    assert found(**over) == [(key, True)]


def test_a_source_that_names_nothing_is_none() -> None:
    empty = FactSource(id="page", fact="all of it", verified="2026-10")
    assert found(sources=(empty,)) == [
        ("tiers.disk", True),
        ("billing.stop", True),
        ("interruption", True),
    ]


@pytest.mark.parametrize(
    ("month", "max_age", "expected"),
    [
        ("2026-05", None, []),
        ("2026-04", None, [False]),
        ("2026-04", 7, [False]),
        ("2026-04", 6, [True]),
        ("2026-08", 3, []),
        ("2026-08", 2, [True]),
        ("2025-11", 12, [False]),
        ("2025-10", 12, [True]),
        ("2026-11", 0, []),
        ("2026-12", None, [True]),
    ],
)
def test_age(month: str, max_age: int | None, expected: list[bool]) -> None:
    """Six months are fresh, then it is said; more than a person allows fails, and so does what is yet to come."""
    old = clock(msgspec.structs.replace(CLAIM, verified=month))
    fresh = "2026-11"
    rest = {
        "tiers": (),
        "billing": (),
        "network": NetworkFacts(),
        "interruption": Interruption(),
        "sources": (msgspec.structs.replace(PAGE, verified=fresh),),
    }
    assert [fails for _, fails in found(max_age, clocks=(old,), **rest)] == expected


def test_what_was_never_dated_is_said_and_fails_where_an_age_is_asked_for() -> None:
    undated = clock(msgspec.structs.replace(CLAIM, verified=None))
    assert found(clocks=(undated,)) == [("clocks.it goes.claims[0]", False)]
    said = (
        check_sources([msgspec.structs.replace(FULL, clocks=(undated,))], NOW).shortfalls[0].words
    )
    assert said == "never dated (https://x.example/clock)"
    assert found(99, clocks=(undated,)) == [("clocks.it goes.claims[0]", True)]


def test_the_newest_source_of_a_fact_counts_and_each_claim_of_a_clock_for_itself() -> None:
    old = FactSource(id="old", fact="as well", url="https://x.example/old", verified="2025-01")
    both = (StorageTier("disk", sources=("page", "old")),)
    assert found(tiers=both, sources=(PAGE, old)) == []
    aged = msgspec.structs.replace(CLAIM, verified="2025-01")
    assert found(clocks=(clock(CLAIM, aged),)) == [("clocks.it goes.claims[1]", False)]


def test_every_shipped_fact_about_money_or_data_has_a_source() -> None:
    outcome = check_sources(all_profiles().values(), NOW)
    assert [(one.profile, one.key, one.words) for one in outcome.shortfalls if one.fails] == []
    assert outcome.facts > 10 * len(all_profiles())


def test_every_shipped_fact_about_money_or_data_has_a_month() -> None:
    outcome = check_sources(all_profiles().values(), NOW, 1200)
    assert [one.words for one in outcome.shortfalls if "never dated" in one.words] == []


def test_an_action_names_the_months_of_its_facts_and_warns_of_those_older_than_six_months() -> None:
    (action,) = FULL.billing
    assert describe_check_months(FULL, action) == (
        "what Stop does (2026-10), what survives in disk (2026-10)"
    )
    undated = msgspec.structs.replace(PAGE, verified=None)
    bare = msgspec.structs.replace(FULL, sources=(undated,))
    assert describe_check_months(bare, None) == "what survives in disk (not dated)"

    def warned(year: int, month: int) -> tuple[str, ...]:
        now = datetime(year, month, 1, tzinfo=UTC).timestamp()
        return list_old_facts(FULL, action, now)

    assert warned(2027, 4) == ()
    facts = "what survives in disk, what disk costs, what Stop does, it goes"
    assert warned(2027, 5) == (f"last checked 7 months ago, in 2026-10: {facts}",)
    price = msgspec.structs.replace(PRICE, verified="2021-08")
    old = msgspec.structs.replace(FULL, tiers=(StorageTier("disk", prices=(price,)),))
    now = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    assert list_old_facts(old, action, now) == (
        "last checked 63 months ago, in 2021-08: what disk costs",
    )


def test_one_fresh_claim_is_enough_for_a_clock() -> None:
    old = msgspec.structs.replace(CLAIM, verified="2020-01")
    both = msgspec.structs.replace(FULL, clocks=(clock(old, CLAIM),))
    now = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    assert list_old_facts(both, None, now) == ()
    stale = msgspec.structs.replace(FULL, clocks=(clock(old),))
    assert list_old_facts(stale, None, now) == ("last checked 82 months ago, in 2020-01: it goes",)
