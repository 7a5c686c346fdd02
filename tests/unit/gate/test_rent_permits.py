"""What the gate asks before a machine is rented: the offer of now, its full price, and the person's word."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from rgt_tui.gate import RentCase, rent_permit, rent_review
from rgt_tui.model import Offer, Refusal, RentalRequest, RentPermit

TICKS, TOKEN = 5000.0, "rgt-lab-0011"
OFFER = Offer(
    kind="vastai",
    id="42",
    gpu="RTX 4090",
    gpu_count=2,
    compute_per_hour=0.80,
    storage_per_hour=0.02,
    in_per_gb=0.0,
    out_per_gb=0.005,
    spot=True,
    disk_gb=100,
    region="NO",
)
WISH = RentalRequest(gpu="RTX 4090", gpu_count=2, spot=True, max_per_hour=1.0)
CASE = RentCase(
    box="lab", account="default@vendor", wish=WISH, shown=OFFER, fresh=OFFER, at=TICKS - 1
)

replace = msgspec.structs.replace


def judged(case: RentCase = CASE, *, typed: str = "lab", **given: Any) -> RentPermit | Refusal:
    return rent_permit(
        case, given.pop("token", TOKEN), given.pop("ticks", TICKS), typed=typed, **given
    )


def test_the_permit_is_for_this_offer_at_this_price_for_a_minute() -> None:
    assert judged() == RentPermit(
        box="lab",
        kind="vastai",
        account="default@vendor",
        offer="42",
        per_hour=OFFER.per_hour,
        currency="USD",
        spot=True,
        token=TOKEN,
        expires=TICKS + 60.0,
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fresh": None}, "no longer offered"),
        ({"at": None}, "could not be read again"),
        ({"at": TICKS - 31}, "31 s ago"),
        ({"at": TICKS + 2}, "-2 s ago"),
        ({"at": math.nan}, "at most 30 s"),
        ({"open": "renting x is open"}, "renting x is open: settle that first"),
        ({"taken": "boxes.lab already exists"}, "already exists"),
        ({"readonly": True}, "--readonly"),
        (
            {"fresh": replace(OFFER, compute_per_hour=0.81)},
            "its price has changed: $0.83/h now, $0.82/h when",
        ),
        ({"fresh": replace(OFFER, storage_per_hour=None)}, "its price has changed: ?/h now"),
        ({"fresh": replace(OFFER, compute_per_hour=math.nan)}, "its price has changed"),
        ({"fresh": replace(OFFER, currency="CNY")}, "in CNY now"),
        ({"fresh": replace(OFFER, spot=False)}, "its kind differs from the review"),
        ({"fresh": replace(OFFER, gpu_count=1)}, "its GPU differs from the review"),
        ({"fresh": replace(OFFER, out_per_gb=0.5)}, "its price of traffic differs from the review"),
        ({"wish": replace(WISH, spot=False)}, "requested on-demand, this offer is spot"),
        ({"wish": replace(WISH, gpu_count=4)}, "requested 4 GPUs"),
        ({"wish": replace(WISH, disk_gb=101)}, "requested 101 GB of disk"),
        (
            {"wish": replace(WISH, max_per_hour=0.8)},
            "it costs $0.82/h, more than the maximum of $0.80",
        ),
        ({"wish": replace(WISH, max_per_hour=math.nan)}, "it costs $0.82/h"),
        ({"wish": replace(WISH, currency="CNY")}, "the maximum price per hour is in CNY"),
        (
            {
                "shown": replace(OFFER, storage_per_hour=None),
                "fresh": replace(OFFER, storage_per_hour=None),
            },
            "this offer's price is unknown",
        ),
        ({"box": ""}, "not exactly ''"),
    ],
)
def test_everything_that_stands_against_it_is_said(change: dict[str, Any], words: str) -> None:
    verdict = judged(replace(CASE, **change))
    assert isinstance(verdict, Refusal)
    assert any(words in reason for reason in verdict.reasons), verdict.reasons


def test_the_name_is_typed_exactly_and_a_longer_phrase_where_nobody_knows_the_price() -> None:
    for typed in ("", "Lab", "lab ", "lab at any price"):
        assert isinstance(judged(typed=typed), Refusal)
    unknown = replace(OFFER, compute_per_hour=None)
    case = replace(CASE, shown=unknown, fresh=unknown, wish=replace(WISH, max_per_hour=None))
    assert isinstance(judged(case), Refusal)
    permit = judged(case, typed="lab at any price")
    assert isinstance(permit, RentPermit) and permit.per_hour is None


def test_a_cheaper_price_and_another_stock_change_nothing() -> None:
    fresh = replace(OFFER, compute_per_hour=0.5, stock="low", reliability=0.9)
    assert isinstance(judged(replace(CASE, fresh=fresh)), RentPermit)


def test_a_script_confirms_exactly_what_it_was_shown_for_a_minute() -> None:
    shown = rent_review(CASE, TICKS, will_send="PUT /asks/42")
    assert isinstance(judged(digest=shown.digest), RentPermit)
    other = replace(OFFER, compute_per_hour=0.79)
    for case, ticks in (
        (replace(CASE, shown=other, fresh=other), TICKS),
        (replace(CASE, wish=replace(WISH, region="SE")), TICKS),
        (replace(CASE, at=TICKS + 69), TICKS + 70),
    ):
        assert isinstance(judged(case, ticks=ticks, digest=shown.digest), Refusal)
    assert isinstance(judged(digest="0" * 64), Refusal)
    assert isinstance(judged(token=""), Refusal)


def test_the_review_has_the_full_price() -> None:
    shown = rent_review(CASE, TICKS, will_send="PUT /asks/42")
    assert (shown.refusals, shown.phrase) == ((), "lab")
    assert shown.costs == (
        "compute: $0.80/h for 2 × RTX 4090, spot",
        "disk: $0.02/h for 100 GB",
        "together: $0.82/h, $19.68 a day",
        "traffic in: free; out: $5.00 a TB",
    )
    bare = replace(
        OFFER,
        compute_per_hour=None,
        storage_per_hour=None,
        in_per_gb=None,
        out_per_gb=None,
        disk_gb=None,
    )
    costs = rent_review(replace(CASE, shown=bare), TICKS, will_send="").costs
    assert [line.count("unknown") for line in costs] == [1, 1, 1, 2]
