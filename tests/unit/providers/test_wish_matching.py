"""Which of a platform's GPUs is the one that a person asked for, and which offer is within the price."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model.renting import Offer, Wish
from rgt_tui.providers import ProviderError, same_gpu
from rgt_tui.providers.markets.wish_matching import check_wish, in_order

SAME = [
    ("A100", "NVIDIA A100 80GB PCIe", None),
    ("a100 80gb", "NVIDIA A100 80GB PCIe", 80),
    ("A100 80GB", "A100-SXM4-80GB", None),
    ("A100-40G", "1x A100 (40 GB SXM4)", 40),
    ("RTX 4090", "NVIDIA GeForce RTX 4090", 24),
    ("rtx4090", "RTX_4090", None),
    ("4090", "RTX 4090", None),
    ("H100", "nvidia_h100", 80),
    ("H100 80GB", "nvidia_h100", 80),
    ("H100 80GB", "nvidia_h100", 79.6),
    ("RTX 6000 Ada", "nvidia_rtx6000_ada", 48),
    ("L40S", "NVIDIA L40S", None),
    ("4090D", "RTX 4090D", None),
    ("MI300X", "amd_mi300x", 192),
    ("RTX A4000", "Quadro RTX A4000", None),
    ("RTX A4000", "A4000", None),
    ("NVIDIA H100", "H100", None),
]
OTHERS = [
    ("RTX 3080", "NVIDIA GeForce RTX 3080 Ti", None),
    ("RTX 4080", "RTX 4080 SUPER", None),
    ("RTX 4090", "RTX 4090 D", None),
    ("4090", "4090D", None),
    ("RTX 6000", "RTX PRO 6000", None),
    ("RTX 4000 Ada", "RTX 4000 SFF Ada", None),
    ("L40", "NVIDIA L40S", None),
    ("H100", "H200", None),
    ("A10", "NVIDIA A100 80GB PCIe", None),
    ("A100 80GB", "A100-SXM4-40GB", 40),
    ("A100 80GB", "A100", 40),
    ("A100 80GB", "A100", None),
    ("80GB", "A100 80GB", 80),
    ("", "A100", None),
    ("RTX", "RTX 4090", None),
    ("RTX 6000", "RTX A6000", None),
    ("A100", "", None),
]


@pytest.mark.parametrize(("wished", "native", "memory"), SAME)
def test_the_same_gpu_by_another_name(wished: str, native: str, memory: float | None) -> None:
    assert same_gpu(wished, native, memory)


@pytest.mark.parametrize(("wished", "native", "memory"), OTHERS)
def test_another_gpu(wished: str, native: str, memory: float | None) -> None:
    assert not same_gpu(wished, native, memory)


def offer(name: str, compute: float | None, storage: float | None = 0.0) -> Offer:
    return Offer(
        kind="acme", id=name, gpu="A100", gpu_count=1, compute_per_hour=compute, storage_per_hour=storage
    )


def test_the_cheapest_comes_first_and_an_unknown_price_is_never_the_cheapest() -> None:
    offers = [
        offer("no price", None),
        offer("dear", 2.0),
        offer("no disk price", 0.1, None),
        offer("cheap", 1.0),
    ]
    names = [one.id for one in in_order(offers, Wish(gpu="A100"))]
    assert names == ["cheap", "dear", "no price", "no disk price"]
    limited = [one.id for one in in_order(offers, Wish(gpu="A100", max_per_hour=1.0))]
    assert limited == ["cheap", "no price", "no disk price"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spot": True}, "Acme has no spot; ask for it without spot"),
        ({"max_per_hour": 9.0, "currency": "CNY"}, "say the most per hour in USD, not in CNY"),
        ({"gpu_count": 0}, "0 GPUs"),
        ({"disk_gb": -1}, "-1 GB"),
    ],
)
def test_what_no_offer_could_fit_is_refused_unasked(change: dict[str, object], words: str) -> None:
    wish = msgspec.structs.replace(Wish(gpu="A100"), **change)
    with pytest.raises(ProviderError, match=words) as caught:
        check_wish("Acme", wish, currency="USD", spot="Acme has no spot")
    assert not caught.value.sent


def test_what_can_fit_is_not_refused() -> None:
    check_wish("Acme", Wish(gpu="A100", spot=True, max_per_hour=1.0), currency="USD")
    check_wish("Acme", Wish(gpu="A100", currency="CNY"), currency="USD", spot="none")
