"""Marking boxes of the fleet, and what is then done for all of them."""

from __future__ import annotations

from typing import cast

from rgt_tui.ui.screens import ChoiceScreen, FleetScreen, TeardownScreen, TransfersScreen
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.boxes import many_boxes
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_fast_keys import wait_for


async def test_marks_are_shown_counted_and_cleared() -> None:
    async with running(many_boxes(6), size=(120, 34)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        first, second, third, fourth, *_ = table.row_names
        await pilot.press("space", "space")
        await settle(pilot)
        assert table.marked_names == [first, second] and table.picked_key == third
        assert "2 marked  ≥ $0.69/h" in screen_text(app) and f"+{first}" in screen_text(app)
        await pilot.press("v", "j")
        await settle(pilot)
        assert table.marked_names == [first, second, third, fourth], "the range moves along"
        await pilot.press("v", "k", "space")
        await settle(pilot)
        assert table.marked_names == [first, second, fourth], "the range is kept, one is unmarked"
        await pilot.press("escape")
        await settle(pilot)
        assert table.marked_names == [] and "4 marked" not in screen_text(app)
        await pilot.press("asterisk")
        assert len(table.marked_names) == 6
        await pilot.press("asterisk")
        assert table.marked_names == []


async def test_what_a_filter_hides_is_left_alone() -> None:
    async with running(many_boxes(6), size=(120, 34)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        await pilot.press("asterisk", "slash", *table.row_names[0], "enter")
        await settle(pilot)
        assert table.marked_names == [table.row_names[0]]
        assert "1 marked" in screen_text(app)


async def test_without_a_mark_the_key_says_how_to_set_one() -> None:
    async with running(many_boxes(3), size=(120, 34), keys=("m",)) as (app, _, _fleet):
        assert "no box is marked: space marks one" in screen_text(app)


async def test_all_marked_boxes_are_disconnected_and_connected_again() -> None:
    async with running(many_boxes(4), size=(120, 34)) as (app, pilot, fleet):
        names = app.screen.query_one(FleetTable).row_names[:2]
        await pilot.press("space", "space", "m")
        await settle(pilot)
        assert isinstance(app.screen, ChoiceScreen)
        assert "2 boxes:  p pull results  m mute 1 h" in screen_text(app)
        assert all(f"+{name}" in screen_text(app) for name in names), "the table stays in sight"
        await pilot.press("d")
        await settle(pilot)
        assert fleet.told == [("pause", name, True) for name in names]
        assert f"disconnected from {', '.join(names)}" in screen_text(app)
        assert app.screen.query_one(FleetTable).marked_names == []


async def test_tear_down_pages_open_one_after_the_other() -> None:
    async with running(many_boxes(4), size=(120, 34)) as (app, pilot, fleet):
        fleet_screen = cast("FleetScreen", app.screen)
        marked = fleet_screen.query_one(FleetTable).row_names[:2]
        await pilot.press("space", "space", "m", "D")
        opened = []
        for _ in marked:
            await wait_for(pilot, lambda: isinstance(app.screen, TeardownScreen))
            opened.append(cast("TeardownScreen", app.screen).box_name)
            fleet.advance(1.0)  # a dialog that has just opened takes no key
            await pilot.press("escape")
            await wait_for(pilot, lambda: getattr(app.screen, "box_name", None) != opened[-1])
        assert sorted(filter(None, opened)) == sorted(marked)
        await wait_for(pilot, lambda: app.screen is fleet_screen)


async def test_results_of_all_marked_boxes_are_pulled() -> None:
    async with running(many_boxes(3), size=(120, 34)) as (app, pilot, _):
        names = app.screen.query_one(FleetTable).row_names
        await pilot.press("asterisk", "m", "p")
        await wait_for(pilot, lambda: len(app.pulls.list_pulls()) == 3)
        assert {box for box, _ in app.pulls.list_pulls()} == {*names}
        await pilot.press("x")
        await wait_for(pilot, lambda: isinstance(app.screen, TransfersScreen))
