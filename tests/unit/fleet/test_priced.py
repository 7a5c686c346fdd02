"""A price that a person wrote down: counted while the box is seen, unknown when not, never free."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.fleet import METER_LIMITS, build_local_meter, is_priced
from rgt_tui.health import worst_case_of
from rgt_tui.model import (
    FLEET_FILE,
    BoxSpec,
    BoxState,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    ProviderRef,
    Sample,
)

SPEC = BoxSpec(name="a", host="h", per_hour=3.6, currency="EUR")
replace = msgspec.structs.replace


def box(at: float | None, link: LinkState = LinkState.LIVE, meter: Meter | None = None) -> BoxState:
    sample = None if at is None else Sample(boot="b", seq=1, at=at)
    return BoxState(spec=SPEC, link=link, sample=sample, sample_at=at, meter=meter or Meter())


def test_only_a_box_that_nobody_can_be_asked_about_is_priced_by_the_file() -> None:
    assert is_priced(SPEC)
    assert not is_priced(replace(SPEC, per_hour=None))
    assert not is_priced(replace(SPEC, provider=ProviderRef("runpod", "x")))


@pytest.mark.parametrize("platform", ["local", "slurm", "colab", "kaggle"])
def test_where_nobody_charges_money_nothing_bills_unless_a_person_says_a_price(
    platform: str,
) -> None:
    mine = replace(SPEC, profile=platform, per_hour=None)
    assert is_priced(mine)
    state = replace(box(100.0), spec=mine)
    meter = build_local_meter(state, 100.0, 0.0)
    assert (meter.kind, meter.per_hour, meter.at, meter.error) == (MeterKind.NONE, 0.0, 100.0, None)
    assert "nothing is billed" in meter.source
    worst = worst_case_of(replace(state, meter=meter), (), 100.0)
    assert (worst.amount, worst.at_least, worst.text) == (0.0, False, "nothing bills it")
    away = build_local_meter(
        replace(state, link=LinkState.UNREACHABLE, meter=meter), 9000.0, 8900.0
    )
    assert (away.kind, away.per_hour, away.lifecycle) == (MeterKind.NONE, 0.0, Lifecycle.UNKNOWN)
    power = build_local_meter(replace(state, spec=replace(mine, per_hour=0.2)), 100.0, 0.0)
    assert (power.kind, power.per_hour) == (MeterKind.COMPUTE_AND_STORAGE, 0.2)
    assert not is_priced(replace(mine, provider=ProviderRef("slurm", "1")))


@pytest.mark.parametrize(
    "platform", ["generic-ssh", "lambda", "kubernetes", "paperspace-gradient", "featurize"]
)
def test_elsewhere_no_price_is_never_none(platform: str) -> None:
    assert not is_priced(replace(SPEC, profile=platform, per_hour=None))


def test_a_box_that_reports_costs_what_the_file_says() -> None:
    first = build_local_meter(box(100.0), 100.0, 0.0)
    assert (first.kind, first.lifecycle) == (MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING)
    assert (first.per_hour, first.currency, first.source) == (3.6, "EUR", FLEET_FILE)
    assert (first.spent, first.spent_since, first.at) == (0.0, 100.0, 100.0)
    assert (first.at_least, first.spent_at_least) == (False, True), (
        "it may have been on before anybody looked"
    )
    second = build_local_meter(box(110.0, meter=first), 110.0, 10.0)
    assert second.spent == pytest.approx(0.01)
    assert second.spent_since == 100.0


def test_a_box_that_does_not_report_is_unknown_and_not_free() -> None:
    before = build_local_meter(
        box(110.0, meter=build_local_meter(box(100.0), 100.0, 0.0)), 110.0, 10.0
    )
    lost = build_local_meter(box(112.0, LinkState.UNREACHABLE, before), 200.0, 2.0)
    assert (lost.kind, lost.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN)
    assert lost.per_hour == 3.6
    assert lost.spent_at_least
    assert lost.spent == pytest.approx(0.012), "up to its last sample the box was seen"
    assert build_local_meter(box(112.0, LinkState.UNREACHABLE, lost), 900.0, 0.0) is lost
    stale = build_local_meter(box(112.0, LinkState.LIVE, before), 200.0, 2.0)
    assert stale.kind is MeterKind.UNKNOWN


def test_what_nobody_saw_is_not_counted() -> None:
    lost = build_local_meter(
        box(100.0, LinkState.UNREACHABLE, build_local_meter(box(100.0), 100.0, 0.0)), 130.0, 0.0
    )
    back = build_local_meter(box(5000.0, meter=lost), 5000.0, 4900.0)
    assert back.kind is MeterKind.COMPUTE_AND_STORAGE
    assert back.spent == 0.0
    asleep = build_local_meter(box(9000.0, meter=back), 9000.0, 4000.0)
    assert asleep.spent == 0.0


def test_what_an_earlier_rgt_counted_goes_on() -> None:
    old = replace(build_local_meter(box(100.0), 100.0, 0.0), spent=7.0)
    again = build_local_meter(box(90000.0, meter=old), 90000.0, 0.0)
    assert (again.spent, again.spent_since) == (7.0, 100.0)


def test_a_meter_of_another_source_is_not_taken_over() -> None:
    told = Meter(
        kind=MeterKind.COMPUTE_AND_STORAGE, spent=99.0, at=99.0, per_hour=1.0, source="runpod"
    )
    assert build_local_meter(box(100.0, meter=told), 100.0, 1.0).spent == 0.0


@given(st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=40))
def test_never_more_than_the_time_that_passed(steps: list[tuple[float, bool]]) -> None:
    now, meter, seen = 1000.0, Meter(), 0.0
    for passed, there in steps:
        now += passed
        before = meter.spent or 0.0
        state = box(
            now if there else None, LinkState.LIVE if there else LinkState.UNREACHABLE, meter
        )
        meter = build_local_meter(state, now, passed if there else 0.0)
        grown = (meter.spent or 0.0) - before
        assert 0.0 <= grown <= 3.6 * min(passed, METER_LIMITS.longest_gap_s) / 3600 + 1e-9
        seen += grown
        assert meter.kind is not MeterKind.NONE
    assert (meter.spent or 0.0) == pytest.approx(seen)
