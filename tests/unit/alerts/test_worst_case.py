"""The worst case: rate times the longest that may be left, never a zero for what is not known."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from rgt_tui.health import WorstCase, clock_readings, worst_case_of, worst_of
from rgt_tui.model import BoxState, Lifecycle, LinkState, MachineLife, Meter, MeterKind, MoneyAmount
from rgt_tui.profiles import load_profile
from tests.unit.triage.builders import NOW, box, sample

replace = msgspec.structs.replace
HOUR, DAY = 3600.0, 86400.0
RUNNING = Meter(MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, 0.5, at=NOW, source="Vast.ai")
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, 0.01, at=NOW, source="RunPod")
PARKED = MachineLife(existed=True, ran=True, rested=True, seen_at=NOW, stopped_at=NOW)


def case(platform: str, **over: Any) -> WorstCase:
    given: dict[str, Any] = {"link": LinkState.LIVE, "sample": sample(), "sample_at": NOW, **over}
    state: BoxState = box(**given)
    return worst_case_of(state, clock_readings(load_profile(platform), state, NOW), NOW)


def test_a_stopped_pod_costs_its_storage_until_it_is_removed() -> None:
    found = case("runpod", meter=STOPPED, life=PARKED, link=LinkState.UNREACHABLE)
    assert found.amount == pytest.approx(0.01 * 30 * 24)
    assert (found.at_least, found.until) == (False, "removal of a long-stopped Pod")
    assert found.text.startswith(
        "at most about $7.20 until removal of a long-stopped Pod in about 30d 0h"
    )


def test_the_longest_that_may_be_left_counts_not_the_least() -> None:
    """It may have stopped ten days ago or just now: for the data the one is the worse, for the money the other."""
    life = replace(PARKED, seen_at=NOW - 10 * DAY)
    found = case(
        "runpod", meter=STOPPED, life=life, link=LinkState.UNREACHABLE, sample=None, sample_at=None
    )
    assert found.amount == pytest.approx(0.01 * 30 * 24)


def test_a_running_box_that_nothing_ends_has_no_end() -> None:
    found = case("vastai", meter=RUNNING)
    assert (found.amount, found.at_least, found.per_hour, found.until) == (None, True, 0.5, None)
    assert found.text == "no limit: $0.50/h until you stop it"


def test_the_balance_ends_what_a_running_box_costs() -> None:
    found = case("vastai", meter=replace(RUNNING, balance=10.0, burn_per_hour=2.0))
    assert found.amount == pytest.approx(2.5)
    assert found.until == "zero balance"


def test_the_end_of_the_rental_ends_it() -> None:
    assert case("vastai", meter=replace(RUNNING, ends_at=NOW + 4 * HOUR)).amount == pytest.approx(
        2.0
    )


@pytest.mark.parametrize("rate", [None, math.nan, math.inf])
def test_an_unknown_rate_is_said_and_never_nothing(rate: float | None) -> None:
    found = case("runpod", meter=replace(STOPPED, per_hour=rate), life=PARKED)
    assert (found.amount, found.at_least) == (None, True)
    assert found.text == "price unknown"


def test_a_box_that_may_have_stopped_bounds_nothing() -> None:
    """Nobody sees it: perhaps its 15 days run, perhaps it bills at its full rate."""
    meter = Meter(per_hour=1.98, currency="CNY", at=NOW - DAY, source="fleet file")
    found = case("autodl", meter=meter, link=LinkState.UNREACHABLE, sample_at=NOW - DAY)
    assert (found.amount, found.at_least, found.until) == (None, True, None)
    assert found.text.startswith("no limit: ≥ ¥1.98/h")


def test_what_was_read_long_ago_is_a_lower_bound() -> None:
    meter = replace(RUNNING, ends_at=NOW + 4 * HOUR, at=NOW - HOUR)
    found = case("vastai", meter=meter)
    assert (found.amount, found.at_least) == (2.0, True)
    assert found.text.startswith(
        "≥ $2.00 until end date set by the host in 4h00 (the meter was last read 1h00 ago)"
    )


def test_where_nobody_says_whether_it_bills_the_sum_is_a_lower_bound() -> None:
    meter = replace(RUNNING, kind=MeterKind.UNKNOWN, ends_at=NOW + 4 * HOUR)
    found = case("vastai", meter=meter)
    assert (found.amount, found.at_least) == (2.0, True)
    assert "unknown whether it is billed now" in found.text
    at_the_limit = case("vastai", meter=replace(RUNNING, ends_at=NOW + 4 * HOUR, at=NOW - 600))
    assert not at_the_limit.at_least


def test_a_box_that_is_gone_costs_nothing_more() -> None:
    found = case(
        "runpod",
        meter=Meter(MeterKind.NONE, Lifecycle.GONE, 0.0, at=NOW, source="RunPod"),
        sample_at=NOW - DAY,
    )
    assert (found.amount, found.at_least, found.text) == (0.0, False, "nothing bills it any more")


def test_a_price_that_is_not_known_in_full_is_a_lower_bound() -> None:
    meter = replace(RUNNING, ends_at=NOW + 4 * HOUR, at_least=True, unpriced=("volume disk",))
    found = case("vastai", meter=meter)
    assert (found.amount, found.at_least) == (2.0, True)
    assert "≥ $2.00 until" in found.text
    assert "the price of volume disk is unknown" in found.text


def test_a_lower_bound_of_nothing_is_unknown() -> None:
    found = case("vastai", meter=replace(RUNNING, per_hour=0.0, at_least=True))
    assert (found.amount, found.at_least, found.text) == (None, True, "price unknown")


def test_a_clock_that_is_over_and_has_ended_nothing_bounds_nothing() -> None:
    """Its time was up ten days ago, and the provider still shows it, and bills it."""
    life = replace(PARKED, seen_at=NOW - 40 * DAY, stopped_at=NOW - 40 * DAY)
    found = case(
        "runpod", meter=STOPPED, life=life, link=LinkState.UNREACHABLE, sample=None, sample_at=None
    )
    assert (found.amount, found.at_least) == (None, True)
    assert found.text.startswith("no limit: $0.01/h")


def test_no_meter_at_all_is_not_free() -> None:
    found = case("generic-ssh", meter=Meter())
    assert (found.amount, found.at_least) == (None, True)


def test_the_sum_is_per_currency_and_counts_what_it_lacks() -> None:
    bounded = case("vastai", meter=replace(RUNNING, ends_at=NOW + 4 * HOUR))
    yuan = case("vastai", meter=replace(RUNNING, ends_at=NOW + 2 * HOUR, currency="CNY"))
    endless = case("vastai", meter=RUNNING)
    found = worst_of([bounded, bounded, yuan, endless])
    assert (found.amounts, found.open) == (
        (MoneyAmount(4.0, "USD", True), MoneyAmount(1.0, "CNY", True)),
        1,
    )
    assert worst_of([bounded, yuan]).amounts == (MoneyAmount(2.0), MoneyAmount(1.0, "CNY"))
    assert worst_of([endless]).amounts == ()
    assert worst_of([]).open == 0
