from __future__ import annotations

from rgt_tui.model.alert import Alert
from rgt_tui.model.box import Link
from rgt_tui.ui.screens.alerts import AlertList, AlertRow, AlertsScreen, detail_lines, row_line
from rgt_tui.ui.screens.box import BoxScreen
from rgt_tui.ui.widgets.spans import Tone, text_of
from tests.ui.fakes import NOW
from tests.ui.snap import running, screen_text, settle


async def test_the_alerts_of_all_boxes_worst_first() -> None:
    async with running(keys=("a",)) as (app, _, _):
        assert isinstance(app.screen, AlertsScreen)
        rows = app.screen.query_one(AlertList)._rows
        assert rows
        levels = [row.alert.level for row in rows]
        assert levels == sorted(levels, key=["error", "warn"].index)
        assert "vast-demo" in screen_text(app)


async def test_muting_says_for_how_long_and_asks_the_fleet() -> None:
    async with running(keys=("a",)) as (app, pilot, fleet):
        picked = app.screen.query_one(AlertList).picked
        assert picked is not None
        await pilot.press("m")
        await pilot.press("M")
        await pilot.press("u")
        assert fleet.told == [
            ("mute", picked.box, picked.alert.id, 3600.0),
            ("mute", picked.box, picked.alert.id, None),
            ("mute", picked.box, picked.alert.id, 0.0),
        ]
        assert "unmuted" in screen_text(app)


async def test_enter_opens_the_box_of_the_alert() -> None:
    async with running(keys=("a", "enter")) as (app, _, _):
        assert isinstance(app.screen, BoxScreen)


async def test_a_box_shows_its_own_alerts_only() -> None:
    async with running(keys=("enter", "a")) as (app, _, _):
        assert isinstance(app.screen, AlertsScreen)
        assert {row.box for row in app.screen.query_one(AlertList)._rows} == {"vast-demo"}


def test_a_muted_alert_is_dim_and_says_so() -> None:
    row = AlertRow("lab", Alert("memory", "error", "memory 98 %", "memory", since=NOW - 90, muted=True))
    made = row_line(row, 80, 5, NOW)
    assert {span.tone for span in made} == {Tone.DIM}
    assert "muted" in text_of(made)
    assert "1m30" in text_of(made)


def test_the_details_name_what_to_do() -> None:
    row = AlertRow("lab", Alert("memory", "error", "memory 98 %", since=NOW - 90), "lower the workers")
    text = "\n".join(text_of(made) for made in detail_lines(row, 60, NOW))
    assert "lower the workers" in text
    assert "1m30 ago" in text


async def test_pause_connect_and_interval_ask_the_fleet() -> None:
    async with running(keys=("enter",)) as (app, pilot, fleet):
        await pilot.press("P")
        await pilot.press("I")
        fleet.change("vast-demo", link=Link.PAUSED)
        await settle(pilot)
        await pilot.press("P")
        fleet.change("vast-demo", link=Link.UNREACHABLE)
        await settle(pilot)
        await pilot.press("r")
        assert fleet.told == [
            ("pause", "vast-demo", True),
            ("interval", "vast-demo", 2.0),
            ("pause", "vast-demo", False),
            ("retry", "vast-demo"),
        ]
        assert "connecting to vast-demo" in screen_text(app)
