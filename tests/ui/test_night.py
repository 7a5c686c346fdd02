"""The night ahead on the screen: it draws the forecast, and each proposal is one key."""

from __future__ import annotations

import msgspec

from rgt_tui.ui import ClipboardText
from rgt_tui.ui.screens import CommandScreen, NightScreen
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text, settle, until


async def test_n_shows_every_box_and_what_is_unknown() -> None:
    fleet = FakeFleet()
    async with running(lambda: fleet, size=(80, 24), keys=("N",)) as (app, pilot, _):
        await settle(pilot)
        assert isinstance(app.screen, NightScreen)
        text = screen_text(app)
        for box in fleet.state.boxes:
            assert box.spec.name in text
        assert "unknown" in text
        assert "by 07:00" in text
        copied = app.screen.to_copy()
        assert isinstance(copied, ClipboardText)
        assert "before you sleep" in copied.text


async def test_a_proposal_opens_its_command_and_a_dry_run_needs_no_confirmation() -> None:
    fleet = FakeFleet()
    async with running(lambda: fleet, size=(120, 34), keys=("N",)) as (app, pilot, _):
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, NightScreen)
        assert screen.forecast is not None
        offered = [one.command for one in screen.forecast.advice]
        number = next(
            n for n, one in enumerate(offered, 1) if one.startswith(("autostop", "lease"))
        )
        await pilot.press(str(number))
        await until(pilot, lambda: isinstance(app.screen, CommandScreen))
        box = offered[number - 1].split()[1]
        await pilot.press(*box, "enter")
        await until(pilot, lambda: "--dry-run" in screen_text(app))
        assert f"$ rgt {offered[number - 1].replace(' ', ' --dry-run ', 1)}" in screen_text(app)
        assert "--confirm" not in screen_text(app).split("$ rgt", 1)[1].splitlines()[0]


async def test_without_advice_a_key_says_so() -> None:
    fleet = FakeFleet()
    fleet.push(msgspec.structs.replace(fleet.state, boxes=()))
    async with running(lambda: fleet, size=(120, 34)) as (app, pilot, _):
        await settle(pilot)
        app.open_screen("night", None)
        await until(pilot, lambda: isinstance(app.screen, NightScreen))
        await settle(pilot)
        await pilot.press("1")
        await until(pilot, lambda: "there is no advice 1" in screen_text(app))
