"""Danger clocks: counted from the stop, never too long, and silent while nothing counts."""

from __future__ import annotations

import pytest

from rgt_tui.health import danger_clock, pending_clock
from rgt_tui.model.box import Link
from rgt_tui.model.money import Lifecycle, Meter, MeterKind
from rgt_tui.profiles import load_profile
from tests.unit.triage.builders import NOW, box

DAY = 86400.0
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="AutoDL")


def test_a_running_box_has_no_counting_clock() -> None:
    assert danger_clock(load_profile("autodl"), box(), NOW) is None
    assert danger_clock(load_profile("generic-ssh"), box(), NOW) is None


@pytest.mark.parametrize(
    ("ago", "left", "level"),
    [
        (0.5 * DAY, 14.5 * DAY, "info"),
        (10 * DAY, 5 * DAY, "warn"),
        (13 * DAY, 2 * DAY, "error"),
        (16 * DAY, 0.0, "error"),
    ],
)
def test_autodl_counts_fifteen_days_from_the_stop(ago: float, left: float, level: str) -> None:
    found = danger_clock(load_profile("autodl"), box(meter=STOPPED), NOW, stopped_at=NOW - ago)
    assert found is not None
    assert (found.seconds_left, found.level, found.approx) == (left, level, False)
    assert "/root/autodl-fs" in found.consequence


def test_without_a_time_of_the_stop_the_last_sample_is_taken() -> None:
    state = box(link=Link.UNREACHABLE, meter=STOPPED, sample_at=NOW - DAY)
    found = danger_clock(load_profile("autodl"), state, NOW)
    assert found is not None
    assert found.seconds_left == 14 * DAY


def test_a_box_never_seen_alive_has_an_unknown_rest() -> None:
    found = danger_clock(load_profile("autodl"), box(meter=STOPPED, sample_at=None), NOW)
    assert found is not None
    assert (found.seconds_left, found.level) == (None, "warn")


def test_runpod_counts_about_thirty_days() -> None:
    found = danger_clock(load_profile("runpod"), box(meter=STOPPED), NOW, stopped_at=NOW)
    assert found is not None
    assert (found.seconds_left, found.approx) == (30 * DAY, True)


def test_a_charge_without_end_is_shown_without_a_time() -> None:
    found = danger_clock(load_profile("vastai"), box(meter=STOPPED), NOW)
    assert found is not None
    assert (found.what, found.seconds_left) == ("disk bills while stopped", None)


@pytest.mark.parametrize(("id_", "seconds"), [("autodl", 15 * DAY), ("runpod", 30 * DAY), ("vastai", None)])
def test_what_a_stop_would_start(id_: str, seconds: float | None) -> None:
    found = pending_clock(load_profile(id_))
    assert found is not None
    assert (found.seconds_left, found.counting) == (seconds, False)


def test_no_stop_no_clock() -> None:
    assert pending_clock(load_profile("generic-ssh")) is None
