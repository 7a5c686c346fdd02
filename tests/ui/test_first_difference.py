"""The key that goes to the first step where two runs differ."""

from __future__ import annotations

from msgspec.structs import replace

from rgt_tui.model import RunState, Series
from rgt_tui.ui.screens import CurvesScreen
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text


def two_runs(shift: float) -> FakeFleet:
    """Return a fleet with two runs of a box that agree up to step 100."""
    fleet = FakeFleet()
    steps = list(range(200))
    noise = [0.1 * ((7 * step) % 11 - 5) for step in steps]
    other = [value + shift * (step >= 100) for step, value in zip(steps, noise, strict=True)]
    box = fleet.state.find_box("autodl-demo")
    assert box is not None
    runs = [
        RunState(name, step=199, loss=1.0, series={"loss": Series(steps, values)})
        for name, values in (("gpt-a", noise), ("gpt-b", other))
    ]
    fleet.change("autodl-demo", runs=tuple(runs), queues=(), found=())
    state = fleet.state
    fleet.push(replace(state, boxes=tuple(b for b in state.boxes if b.spec.name == "autodl-demo")))
    return fleet


async def test_the_crosshair_goes_to_the_first_difference() -> None:
    async with running(two_runs(2.0), keys=("c", "x", "d")) as (app, _, _):
        assert isinstance(app.screen, CurvesScreen)
        assert app.screen.settings.pinned == 100.0
        assert "they differ from step 100 on" in screen_text(app)
        assert "no known difference" in screen_text(app)


async def test_without_a_difference_the_crosshair_stays() -> None:
    async with running(two_runs(0.0), keys=("c", "d")) as (app, _, _):
        assert isinstance(app.screen, CurvesScreen)
        assert app.screen.settings.pinned is None
        assert "do not differ" in screen_text(app)


async def test_the_pinned_and_the_selected_run_are_compared() -> None:
    fleet = two_runs(2.0)
    box = fleet.state.boxes[0]
    third = replace(box.runs[0], name="gpt-c")
    fleet.change("autodl-demo", runs=(*box.runs, third))
    async with running(fleet, keys=("c", "d")) as (app, pilot, _):
        assert "pin a run with R" in screen_text(app)
        await pilot.press("j", "R", "j", "j", "d")
        assert "do not differ" in screen_text(app)
        await pilot.press("k", "d")
        assert "they differ from step 100 on" in screen_text(app)
