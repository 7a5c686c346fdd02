"""Lines past Textual's cache of styled lines: what they show is what it would have shown."""

from __future__ import annotations

import pytest
from textual._styles_cache import StylesCache
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rgt_tui.ui.widgets import LineWidget, PaintedGround, Pane, width_of
from tests.ui.fakes import FakeFleet, demo_state
from tests.ui.snap import resize, running, settle


def cells(strips: list[Strip]) -> list[list[tuple[str, str]]]:
    """Return each cell with how it looks."""
    return [[(sign, str(one.style)) for one in strip for sign in one.text] for strip in strips]


@pytest.mark.parametrize("colours", ["", "1"])
@pytest.mark.parametrize("place", ["fleet", "box", "curves"])
async def test_they_are_those_that_textual_draws(
    place: str, colours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if colours:
        monkeypatch.setenv("NO_COLOR", colours)
    async with running(FakeFleet(demo_state())) as (app, pilot, fleet):
        if place != "fleet":
            app.open_screen(place, fleet.state.boxes[0].spec.name)
            await settle(pilot)
        assert isinstance(app.screen, PaintedGround)
        looked = 0
        for widget in (app.screen, *app.screen.query(LineWidget), *app.screen.query(PaintedGround)):
            width, height = widget.size
            for crop in (Region(0, 0, width, height), Region(3, 1, width - 5, height - 1)):
                if width > 8 and height > 1:
                    looked += 1
                    assert cells(widget.render_lines(crop)) == cells(
                        Widget.render_lines(widget, crop)
                    ), widget
        assert looked > 6


async def test_of_what_has_a_frame_or_is_seen_through_textual_draws_the_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Widget] = []
    render = StylesCache.render_widget

    def noted(self: StylesCache, widget: Widget, crop: Region) -> list[Strip]:
        drawn.append(widget)
        return render(self, widget, crop)

    monkeypatch.setattr(StylesCache, "render_widget", noted)
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        assert not [one for one in drawn if isinstance(one, LineWidget | PaintedGround)]
        pane = app.screen.query_one("#why", Pane)
        for name, value in (
            ("border", ("round", "red")),
            ("padding", 1),
            ("tint", "red 30%"),
            ("opacity", 0.5),
            ("text_opacity", 0.5),
            ("outline", ("round", "red")),
            ("hatch", ("cross", "red")),
        ):
            drawn.clear()
            before = dict(pane.styles.inline.get_rules())
            setattr(pane.styles, name, value)
            pane.refresh()
            await pilot.pause()
            assert pane in drawn, name
            for rule in pane.styles.inline.get_rules().keys() - before.keys():
                pane.styles.inline.clear_rule(rule)


async def test_what_the_first_paint_has_made_is_not_made_again_for_the_size_that_it_was_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[LineWidget] = []
    make = LineWidget._update_drawn

    def noted(self: LineWidget, width: int, height: int) -> None:
        made.append(self)
        make(self, width, height)

    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        pane = app.screen.query_one("#why", Pane)
        monkeypatch.setattr(LineWidget, "_update_drawn", noted)
        pane.on_resize(Resize(pane.size, pane.size))
        assert made == []
        await resize(pilot, 100, 40)
        await settle(pilot)
        assert pane in made
        assert {width_of(row) for row in pane.shown_lines} == {pane.size.width}
