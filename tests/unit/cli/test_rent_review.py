"""What a person sees before a machine is rented."""

from __future__ import annotations

import pytest

from rgt_tui.cli.renting.arriving import review_lines
from rgt_tui.model import Offer, RentReview
from rgt_tui.profiles import load_profile


def shown(kind: str) -> str:
    offer = Offer(
        kind=kind,
        id="o1",
        gpu="A100",
        gpu_count=1,
        compute_per_hour=1.0,
        storage_per_hour=0.1,
        notes=("it is old",),
    )
    review = RentReview(
        box="lab", offer=offer, account="default@vendor", costs=("$1.10 an hour",), refusals=(), will_send="POST /pods",
        phrase="rent lab", digest="d",
    )  # fmt: skip
    return "".join(review_lines(review))


@pytest.mark.parametrize("kind", ["runpod", "lambda", "vastai"])
def test_what_binds_a_volume_to_its_place_is_said_before_it_is_rented(kind: str) -> None:
    bound = [tier.name for tier in load_profile(kind).tiers if tier.region_lock]
    assert bound
    text = shown(kind)
    for name in bound:
        assert text.index(f"{name} is bound to where it is made") < text.index("POST /pods")
    assert load_profile(kind).top_danger in text
    assert "it is old" in text


def test_a_platform_without_a_profile_is_said_to_be_unknown() -> None:
    assert "unknown: it has no profile" in shown("nobody")
