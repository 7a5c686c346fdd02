"""Which of a platform's GPUs is the one that a person asked for, and which offer is within the price."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import Offer, RentalRequest
from rgt_tui.model.gpu_names import GPUS, same_gpu
from rgt_tui.providers import ProviderError
from rgt_tui.providers.rented_market import check_wish, in_order

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
    # Vast.ai's names, as its search spells them
    ("A100", "A100 SXM4", 80),
    ("A100 40GB", "A100 PCIE", 40),
    ("V100", "Tesla V100", 16),
    ("T4", "Tesla T4", 15),
    ("RTX 6000 Ada", "RTX 6000Ada", 48),
    ("Quadro RTX 8000", "Q RTX 8000", 48),
    ("RTX 4080 SUPER", "RTX 4080S", 16),
    ("RTX 4080S", "NVIDIA GeForce RTX 4080 SUPER", None),
    ("RTX 4070 Ti SUPER", "RTX 4070S Ti", 16),
    ("RTX PRO 6000", "RTX PRO 6000 WS", 96),
    ("RTX PRO 6000", "RTX PRO 6000 S", 96),
    ("B300", "B300 PC", None),
    # RunPod's
    ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 96),
    ("MI300X", "AMD Instinct MI300X OAM", 192),
    ("H100 SXM", "NVIDIA H100 80GB HBM3", None),
    ("B300", "NVIDIA B300 SXM6 AC", 288),
    # Lambda's
    ("GH200", "GH200 (96 GB)", None),
    ("H100 SXM", "8x H100 (80 GB SXM5)", None),
    # Paperspace's
    ("A100 80GB", "A100-80G", None),
    ("V100 16GB", "V100", 16),
    # NVML's on the box
    ("V100 32GB", "Tesla V100-SXM2-32GB", 32),
    ("L4 24GB", "NVIDIA L4", 22.5),
    ("A6000", "NVIDIA RTX A6000", 47.5),
    ("GH200 96GB", "NVIDIA GH200 480GB", 95.6),
    ("H200", "NVIDIA H200", 140.4),
    # A memory, alone or with a model
    ("24GB+", "RTX 4090", None),
    ("24GB+", "Tesla P40", 22.4),
    ("24GB+", "NVIDIA L4", 22.5),
    ("24 GB+", "H100 SXM", 79.6),
    ("80GB", "A100 80GB", 80),
    ("A100 40GB+", "A100 SXM4", 80),
    ("A100:80GB", "A100 SXM4", 80),
    ("RTX 4090 24GB", "NVIDIA GeForce RTX 4090", None),
    # What the table lacks is compared by its words
    ("X9000", "Acme X9000", None),
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
    ("H100", "NVIDIA H100 NVL", 94),
    ("A100 SXM", "A100 PCIE", 80),
    ("RTX 4080", "RTX 4080S", 16),
    ("RTX 6000 Ada", "Q RTX 6000", 24),
    ("RTX PRO 6000", "RTX 6000Ada", 48),
    ("24GB+", "RTX 4080", 16),
    ("24GB+", "some card", None),
    ("80GB", "A100 SXM4", 40),
    ("A100 80GB+", "A100 SXM4", 40),
    ("A100", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.8),
    ("B300", "NVIDIA B300 MIG 1g.34gb", 34),
    ("24GB+", "B300 MIG 1g.34gb", 34),
    ("A16", "NVIDIA A16-8Q", 8),
    ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
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


def test_every_row_of_the_table_is_found_by_its_own_names_and_by_no_other_row() -> None:
    for row in GPUS:
        for name in (row.name, *row.vast):
            assert [other.name for other in GPUS if same_gpu(other.name, name)] == [row.name], name


def offer(name: str, compute: float | None, storage: float | None = 0.0) -> Offer:
    return Offer(
        kind="acme",
        id=name,
        gpu="A100",
        gpu_count=1,
        compute_per_hour=compute,
        storage_per_hour=storage,
    )


def test_the_cheapest_comes_first_and_an_unknown_price_is_never_the_cheapest() -> None:
    offers = [
        offer("no price", None),
        offer("dear", 2.0),
        offer("no disk price", 0.1, None),
        offer("cheap", 1.0),
    ]
    names = [one.id for one in in_order(offers, RentalRequest(gpu="A100"))]
    assert names == ["cheap", "dear", "no price", "no disk price"]
    limited = [one.id for one in in_order(offers, RentalRequest(gpu="A100", max_per_hour=1.0))]
    assert limited == ["cheap", "no price", "no disk price"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spot": True}, "Acme has no spot; ask for it without spot"),
        ({"max_per_hour": 9.0, "currency": "CNY"}, "give --max-price in USD, not in CNY"),
        ({"gpu_count": 0}, "0 GPUs"),
        ({"disk_gb": -1}, "-1 GB"),
    ],
)
def test_what_no_offer_could_fit_is_refused_unasked(change: dict[str, object], words: str) -> None:
    wish = msgspec.structs.replace(RentalRequest(gpu="A100"), **change)
    with pytest.raises(ProviderError, match=words) as caught:
        check_wish("Acme", wish, currency="USD", spot="Acme has no spot")
    assert not caught.value.sent


def test_what_can_fit_is_not_refused() -> None:
    check_wish("Acme", RentalRequest(gpu="A100", spot=True, max_per_hour=1.0), currency="USD")
    check_wish("Acme", RentalRequest(gpu="A100", currency="CNY"), currency="USD", spot="none")
