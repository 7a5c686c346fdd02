"""What is not known in full is a lower bound, in sums too; prices come from the profiles, in their own currency."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import (
    Meter,
    MeterKind,
    MoneyAmount,
    StoragePrice,
    StorageTier,
    format_money,
    format_sums,
)
from rgt_tui.profiles import (
    HOURS,
    all_profiles,
    describe_tier_prices,
    find_cost_so_far,
    find_hourly_cost,
    fleet_rate,
    fleet_spent,
    list_caveats,
    load_profile,
    project_cost,
    storage_per_hour,
    sum_amounts,
)

AMOUNTS = st.lists(
    st.none()
    | st.builds(
        MoneyAmount,
        st.floats(0, 1e6),
        st.sampled_from(["USD", "CNY", "EUR"]),
        st.booleans(),
    )
)


@given(AMOUNTS)
def test_a_sum_is_per_currency_and_exact_only_if_all_of_it_is(
    amounts: list[MoneyAmount | None],
) -> None:
    sums = {each.currency: each for each in sum_amounts(amounts)}
    for currency in ("USD", "CNY", "EUR"):
        of_it = [each for each in amounts if each is not None and each.currency == currency]
        if not of_it:
            assert currency not in sums
            continue
        assert sums[currency].value == pytest.approx(sum(each.value for each in of_it))
        assert sums[currency].at_least == (any(each.at_least for each in of_it) or None in amounts)


def test_nothing_known_is_no_sum_rather_than_zero() -> None:
    assert sum_amounts([]) == sum_amounts([None, None]) == ()
    assert format_sums(sum_amounts([None])) == "?"
    assert format_sums((MoneyAmount(1.11), MoneyAmount(1.98, "CNY", True))) == "$1.11 + ≥ ¥1.98"


def test_a_box_without_a_price_makes_the_fleet_s_rate_a_lower_bound_unless_it_is_off() -> None:
    known = Meter(MeterKind.COMPUTE_AND_STORAGE, per_hour=1.0, spent=2.0)
    off = Meter(MeterKind.NONE, at=1.0)
    assert fleet_rate([known, off]) == (MoneyAmount(1.0),)
    assert fleet_rate([known, Meter()]) == (MoneyAmount(1.0, at_least=True),)
    assert fleet_rate([known, Meter(MeterKind.NONE, at=1.0, error="503")]) == (
        MoneyAmount(1.0, at_least=True),
    )
    assert fleet_spent([known, Meter()]) == (MoneyAmount(2.0, at_least=True),)
    assert fleet_rate([known, Meter(per_hour=2.0, currency="CNY", at_least=True)]) == (
        MoneyAmount(1.0),
        MoneyAmount(2.0, "CNY", True),
    )


def test_what_a_meter_knows() -> None:
    meter = Meter(per_hour=0.5, at_least=True, spent=3.0, currency="CNY")
    assert (find_hourly_cost(meter), find_cost_so_far(meter)) == (
        MoneyAmount(0.5, "CNY", True),
        MoneyAmount(3.0, "CNY"),
    )
    assert find_hourly_cost(Meter()) is find_cost_so_far(Meter(spent=math.nan)) is None


def test_a_projection_keeps_currency_and_bound() -> None:
    assert project_cost(MoneyAmount(0.5, "CNY", True), 7200) == MoneyAmount(1.0, "CNY", True)
    assert project_cost(MoneyAmount(0.5), -5) == MoneyAmount(0.0)


@pytest.mark.parametrize(
    ("amount", "currency", "at_least", "text"),
    [
        (1.98, "CNY", False, "¥1.98"),
        (2, "GBP", False, "£2.00"),
        (7, "PLN", False, "7.00 PLN"),
        (0.004, "USD", False, "<$0.01"),
        (0.0, "USD", False, "$0.00"),
        (None, "USD", True, "?"),
        (math.inf, "USD", False, "?"),
        (0.5, "USD", True, "≥ $0.50"),
        (0.509, "USD", True, "≥ $0.50"),
        (0.29, "USD", True, "≥ $0.29"),
        (0.01, "USD", True, "≥ $0.01"),
        (0.005, "USD", False, "$0.01"),
        (0.0, "USD", True, "≥ $0.00"),
        (0.0055, "USD", True, "> $0.00"),
        (1999.9, "USD", True, "≥ $1,999"),
        (1, "\x1b[31mX", False, "1.00 X"),
    ],
)
def test_money_in_words(amount: float | None, currency: str, at_least: bool, text: str) -> None:
    assert format_money(amount, currency, at_least) == text


@given(st.floats(0, 1e5))
def test_a_written_lower_bound_holds(value: float) -> None:
    text = format_money(value, "USD", True)
    assert float(text.lstrip("≥> $").replace(",", "")) <= value + 1e-9


def hourly(
    platform: str, tier: str, size: float, *, running: bool, grade: str | None = None
) -> float:
    found = storage_per_hour(load_profile(platform), tier, size, running=running, grade=grade)
    assert found is not None
    return found.value


def test_storage_is_priced_by_the_profile() -> None:
    assert hourly("runpod", "volume-disk", 100, running=True) == pytest.approx(10 / 730)
    assert hourly("runpod", "volume-disk", 100, running=False) == pytest.approx(20 / 730)
    for size, month in ((1000, 70), (3000, 170)):
        assert hourly("runpod", "network-volume", size, running=False) == pytest.approx(month / 730)
    fast = hourly("runpod", "network-volume", 3000, running=True, grade="HIGH_PERFORMANCE")
    assert fast == pytest.approx(420 / 730)
    free, above = (hourly("autodl", "shared-fs", size, running=False) for size in (20, 120))
    assert free == 0.0
    assert above == pytest.approx(1 / 24)
    shared = storage_per_hour(load_profile("autodl"), "shared-fs", 120, running=False)
    assert shared is not None
    assert shared.currency == "CNY"


def test_a_price_by_the_hour_and_one_by_the_gib() -> None:
    assert hourly("gpushare", "hy-nas", 100, running=False) == pytest.approx(0.07)
    assert hourly("featurize", "work", 130, running=True) == pytest.approx(1.0)
    assert hourly("lanrui", "netdisk", 110, running=False) == pytest.approx(15 / 730)
    assert hourly("lambda", "nfs-filesystem", 2**30 / 1e9 * 365, running=True) == pytest.approx(0.1)


def test_a_small_price_does_not_look_like_none() -> None:
    nas = next(tier for tier in load_profile("gpushare").tiers if tier.name == "hy-nas")
    assert describe_tier_prices(nas, running=False) == "¥0.0007 per GB and hour (2026-06)"


def test_what_has_no_price_is_unknown_not_free() -> None:
    profile = load_profile("runpod")
    assert storage_per_hour(profile, "container-disk", 10, running=False) is None
    assert storage_per_hour(profile, "network-volume", 10, running=True, grade="NEW") is None
    assert storage_per_hour(profile, "nothing", 10, running=True) is None
    assert storage_per_hour(profile, "volume-disk", math.nan, running=True) is None
    assert describe_tier_prices(StorageTier("x"), running=True) == "price unknown"


def test_prices_in_words_have_their_month() -> None:
    tiers = {tier.name: tier for tier in load_profile("runpod").tiers}
    assert (
        describe_tier_prices(tiers["volume-disk"], running=False)
        == "$0.20 per GB and month (2026-08)"
    )
    volume = describe_tier_prices(tiers["network-volume"], running=False)
    assert volume == (
        "$0.07 per GB and month, above 1,000 GB $0.05, HIGH_PERFORMANCE $0.14 per GB and month (2026-06)"
    )
    shared = next(tier for tier in load_profile("autodl").tiers if tier.name == "shared-fs")
    assert (
        describe_tier_prices(shared, running=False)
        == "up to 20 GB free, above it ¥0.01 per GB and day (2026-08)"
    )
    old = StoragePrice(1.0, "EUR", "GB-day", "2025-01", "https://x.example", above_gb=5)
    new = StoragePrice(2.0, "EUR", "GB-day", "2026-01", "https://x.example")
    assert describe_tier_prices(StorageTier("x", prices=(old, new)), running=True).endswith(
        "(2025-01)"
    )


def test_every_price_of_the_profiles_has_a_source_and_a_unit() -> None:
    prices = [
        price
        for profile in all_profiles().values()
        for tier in profile.tiers
        for price in tier.prices
    ]
    assert len(prices) >= 6
    assert all(price.url.startswith("https://") and price.per in HOURS for price in prices)


def test_what_is_not_known_of_a_meter_is_said() -> None:
    assert list_caveats(Meter(per_hour=1.0)) == ()
    meter = Meter(unpriced=("volume disk", "net\x1b[31m"), doubt="the disks may be in it")
    assert list_caveats(meter) == (
        "without a price that is known: volume disk, net",
        "the disks may be in it",
    )
    more = Meter(currency="CNY", books_differ=0.5, books_differ_since=1_790_000_000.0)
    assert list_caveats(more)[0].startswith(
        "the provider's books say ¥0.50 more than price × time since "
    )
