"""A box that stops itself, on the screens: the clock in its row, the words on its page, what it did once it is off."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import (
    ArmedRecord,
    AutostopMode,
    AutostopReading,
    BoxState,
    EndAction,
    FleetState,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    SelfStopState,
)
from rgt_tui.ui.widgets import Tone, own_stop_lines, text_of, why_lines
from rgt_tui.ui.widgets.fleet_rows import FleetRow, clock_cell
from tests.ui.boxes import NOW, profile, running_box
from tests.ui.snap import running, screen_text

replace = msgspec.structs.replace
CLOCK = AutostopReading(idle_s=2148.0, limit_s=2700.0, stops_in_s=552.0)
ARMED = ArmedRecord(
    box="lab",
    kind="runpod",
    account="default@vendor",
    instance="pod1",
    boot="b",
    mode=AutostopMode.IDLE,
    action=EndAction.PARK,
    limit_s=2700.0,
    at=NOW - 9000.0,
)


def armed(reading: AutostopReading = CLOCK) -> BoxState:
    box = running_box("lab")
    assert box.sample is not None
    return replace(box, sample=replace(box.sample, autostop=reading))


def row(box: BoxState) -> FleetRow:
    from rgt_tui.health import assess_box, clock_readings

    return FleetRow(
        box, assess_box(box, NOW), clock_readings(profile(box.spec.profile), box, NOW), "RunPod"
    )


def test_the_row_has_the_clock_of_its_own_stop() -> None:
    assert text_of(clock_cell(row(armed()), 6)) == "⏻9m12"[:6].rjust(6)
    (span,) = clock_cell(row(armed(replace(CLOCK, state="warned"))), 6)
    assert span.tone is Tone.WARN
    quiet = text_of(clock_cell(row(armed(replace(CLOCK, idle_s=0.0, stops_in_s=None))), 6))
    assert "⏻" not in quiet


@pytest.mark.parametrize("width", [30, 44, 100])
def test_the_page_has_the_words_and_how_it_is_put_off(width: int) -> None:
    text = "\n".join(text_of(one) for one in own_stop_lines(armed(), width, NOW))
    assert "parks itself in 9m12" in text.replace("\n  ", " ")
    assert "rgt keep lab 2h" in text
    assert own_stop_lines(running_box("lab"), width, NOW) == []


def test_the_selected_box_says_it_once() -> None:
    text = " ".join(text_of(one) for one in why_lines(row(armed()), 100, NOW))
    assert text.count("parks itself in") == 1
    warned = armed(replace(CLOCK, state="warned"))
    text = " ".join(text_of(one) for one in why_lines(row(warned), 100, NOW))
    assert text.count("parks itself in") == 1


async def test_a_box_that_is_off_says_what_it_was_armed_for_at_every_size() -> None:
    meter = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, 0.05, at=NOW, source="RunPod")
    known = SelfStopState(armed=(ARMED,), off_at=NOW - 3600.0, stopping_at=NOW - 3610.0)
    box = replace(
        running_box("lab"),
        link=LinkState.UNREACHABLE,
        meter=meter,
        sample=None,
        sample_at=None,
        self_stop=known,
    )
    for size in ((120, 34), (80, 24)):
        async with running(FleetState((box,), (), NOW), size=size) as (app, _, __):
            assert "parked itself by" in screen_text(app)
