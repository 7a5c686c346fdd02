"""Danger clocks and the worst case on the screen: as the alert says, the soonest first, and never a false zero."""

from __future__ import annotations

import msgspec

from rgt_tui.health import AlertState, RememberedBox, clock_readings, step_alerts
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxState,
    FleetSpend,
    FleetState,
    Lifecycle,
    LinkState,
    MachineLife,
    Meter,
    MeterKind,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ui.widgets import text_of
from rgt_tui.ui.widgets.fleet_rows import FleetRow, clock_cell
from rgt_tui.ui.widgets.teardown.confirm_state import ConfirmState
from rgt_tui.ui.widgets.teardown.confirm_view import DialogSetting, facts_lines
from tests.ui.boxes import NOW, profile, running_box
from tests.ui.snap import running, screen_text

replace = msgspec.structs.replace
DAY = 86400.0
PARKED = MachineLife(
    existed=True,
    ran=True,
    rested=True,
    asked="park",
    seen_at=NOW - 11 * DAY,
    stopped_at=NOW - 11 * DAY,
)


def stopped_box(
    name: str = "autodl-demo", *, currency: str = "CNY", life: MachineLife = PARKED
) -> BoxState:
    meter = Meter(
        MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, 0.05, currency=currency, at=NOW, source="AutoDL"
    )
    box = running_box(name)
    spec = replace(box.spec, profile="autodl")
    return replace(
        box,
        spec=spec,
        link=LinkState.UNREACHABLE,
        meter=meter,
        life=life,
        sample=None,
        sample_at=None,
    )


async def test_the_header_adds_the_worst_cases_up_per_currency() -> None:
    state = FleetState((stopped_box(), stopped_box("autodl-2")), (), NOW)
    async with running(state, size=(160, 34)) as (app, _, __):
        assert "at most ¥9.60 more" in screen_text(app).splitlines()[0]


async def test_what_nothing_ends_is_beside_the_sum_which_is_then_a_lower_bound() -> None:
    state = FleetState((stopped_box(), running_box("autodl-run")), (), NOW)
    async with running(state, size=(200, 34)) as (app, _, __):
        assert "could cost ≥ ¥4.80, 1 box without a limit" in screen_text(app).splitlines()[0]


async def test_no_end_at_all_is_no_zero() -> None:
    async with running(FleetState((running_box(),), (), NOW), size=(160, 34)) as (app, _, __):
        head = screen_text(app).splitlines()[0]
        assert "no spending limit" in head
        assert "0.00" not in head


async def test_a_narrow_header_drops_what_could_be_lost_before_what_is_wasted_now() -> None:
    spend = FleetSpend(today=(("USD", 8.9),), idle_today=(("USD", 3.1),))
    state = replace(FleetState((stopped_box(),), (), NOW), spend=spend)
    seen = set()
    for width in (200, 120, 100, 80, 70, 60):
        async with running(state, size=(width, 24)) as (app, _, __):
            head = screen_text(app).splitlines()[0]
            seen.add(("idle $3.10" in head, "at most" in head))
    assert (True, True) in seen and (True, False) in seen
    assert (False, True) not in seen


async def test_the_box_page_has_the_worst_case_the_clocks_and_the_dangers() -> None:
    state = FleetState((stopped_box(),), (), NOW)
    async with running(state, size=(200, 50), keys=("enter",)) as (app, _, __):
        text = " ".join(part.strip("│ ") for part in screen_text(app).split())
        assert "platform AutoDL" in text
        assert "at most ¥4.80 until auto-release in 4d 0h" in text
        assert "4d 0h left: auto-release: all data lost" in text
        assert "a stopped box is released after 15 days" in text


def test_the_column_says_how_far_the_time_can_be_relied_on() -> None:
    def cell(life: MachineLife) -> str:
        box = stopped_box(life=life)
        row = FleetRow(box, None, clock_readings(profile("autodl"), box, NOW), "AutoDL")  # type: ignore[arg-type]
        return text_of(clock_cell(row, 6)).strip()

    assert cell(PARKED) == "4d 0h"
    assert cell(replace(PARKED, stopped_at=NOW)) == "≥4d"
    assert cell(replace(PARKED, seen_at=None)) == "≤4d"


def test_screen_and_alert_say_the_same_words() -> None:
    box = stopped_box(life=replace(PARKED, seen_at=NOW - 14 * DAY))
    (shown, *_) = clock_readings(profile("autodl"), box, NOW)
    raised = step_alerts(AlertState(memory=RememberedBox(past=box.life)), box, NOW).raised
    (alert,) = [alert for alert in raised if alert.id == "clock"]
    (real, *_) = clock_readings(load_profile("autodl"), box, NOW)
    assert alert.text == real.text
    assert (real.seconds_left, real.bound) == (shown.seconds_left, shown.bound)


def test_the_dialog_says_what_happens_without_the_person() -> None:
    review = ActionReview(
        "a", BillingVerb.PARK, "Stop", "1", False, None, None, "CNY", (), (), (), (), (), "POST", "running", NOW,
        dangers=("15d 0h after a stop: auto-release",),
    )  # fmt: skip
    state = ConfirmState("a", BillingVerb.PARK, NOW, review=review)
    text = [
        text_of(made)
        for made in facts_lines(state, DialogSetting(Meter(), None, "AutoDL", NOW), 80)
    ]
    assert any("without you" in made and "auto-release" in made for made in text)
