"""What the traffic of a pull costs: the machine's own price before the platform's, and what nobody says is not free."""

from __future__ import annotations

import math

import pytest

from rgt_tui.model import Meter, MoneyAmount
from rgt_tui.profiles import TransferCost, estimate_transfer_cost, load_profile

GB = 10**9
HOST = Meter(out_per_gb=0.002, source="vast.ai")


@pytest.mark.parametrize(
    ("profile", "meter", "free", "price", "words"),
    [
        ("generic-ssh", None, False, None, "charges for traffic; 67.5 GB will leave"),
        ("runpod", None, True, 0.0, "no fee for traffic"),
        (
            "vastai",
            None,
            False,
            None,
            "it costs money: 67.5 GB will leave the box. The host sets a price",
        ),
        ("vastai", HOST, False, 0.135, "at most $0.14: $0.002 per GB (vast.ai)"),
        ("vastai", Meter(out_per_gb=0.0, source="vast.ai"), True, 0.0, "costs nothing (vast.ai)"),
        ("vastai", Meter(out_per_gb=0.0, error="timed out"), False, None, "The host sets a price"),
        ("vastai", Meter(out_per_gb=math.nan), False, None, "The host sets a price"),
        ("vastai", Meter(out_per_gb=-1.0), False, None, "The host sets a price"),
        (
            "digitalocean",
            Meter(),
            False,
            0.6286,
            "67.5 GB will leave the box, at most $0.63. The price of a size",
        ),
    ],
)
def test_the_price_of_traffic(
    profile: str, meter: Meter | None, free: bool, price: float | None, words: str
) -> None:
    found = estimate_transfer_cost(load_profile(profile), round(67.5 * GB), meter)
    assert found.free is free
    assert (found.price.value if found.price else None) == (
        price and pytest.approx(price, abs=1e-3)
    )
    assert words in found.words


def test_in_a_few_words() -> None:
    assert (
        estimate_transfer_cost(load_profile("vastai"), GB, HOST).size_and_price
        == "1.0 GB for <$0.01"
    )
    assert (
        estimate_transfer_cost(load_profile("vastai"), 100 * GB, HOST).size_and_price
        == "100 GB for at most $0.20"
    )
    assert (
        estimate_transfer_cost(load_profile("local"), GB).size_and_price == "1.0 GB, price unknown"
    )


@pytest.mark.parametrize(
    ("count", "price", "covered"),
    [
        (5, MoneyAmount(0.5), True),
        (4, MoneyAmount(0.4), True),
        (6, MoneyAmount(0.5), False),
        (5, MoneyAmount(0.6), False),
        (5, MoneyAmount(0.5, "EUR"), False),
        (5, None, False),
    ],
)
def test_who_agreed_is_asked_again_only_for_more(
    count: int, price: MoneyAmount | None, covered: bool
) -> None:
    agreed = TransferCost(bytes=5, free=False, price=MoneyAmount(0.5), words="")
    assert (
        agreed.covers_cost(TransferCost(bytes=count, free=False, price=price, words="")) is covered
    )
    unknown = TransferCost(bytes=5, free=False, words="")
    assert unknown.covers_cost(unknown)
    assert not unknown.covers_cost(agreed)
