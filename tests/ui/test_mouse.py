"""The mouse: the button that goes back, the crumb that does, and the hints in the frames of panes."""

from __future__ import annotations

import pytest
from textual import events
from textual._xterm_parser import XTermParser

from rgt_tui.ui import (
    BACK_KEY,
    BOX_TARGET,
    LOG_LINES,
    extra_button,
    find_hinted_command,
    hear_back_button,
)
from rgt_tui.ui.screens import BoxScreen, CurvesScreen, FleetScreen, TeardownScreen
from rgt_tui.ui.widgets import LineWidget, draw_border, make_line, text_of
from tests.ui.snap import running, screen_text, settle


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("\x1b[<128;10;5M", (True, True)),
        ("\x1b[<144;10;5M", (True, True)),  # with ctrl
        ("\x1b[<128;10;5m", (True, False)),  # let go
        ("\x1b[<160;10;5M", (True, False)),  # moved
        ("\x1b[<129;10;5M", (True, False)),  # forward
        ("\x1b[<0;10;5M", (False, False)),
        ("\x1b[<65;10;5M", (False, False)),
        ("\x1b[<99999999;1;1M", (False, False)),
    ],
)
def test_the_eighth_button_is_back_and_no_button_beyond_the_third_is_a_click(
    code: str, found: tuple[bool, bool]
) -> None:
    assert extra_button(code) == found
    hear_back_button()
    made = XTermParser().parse_mouse_code(code)
    if found[0]:
        assert isinstance(made, events.Key) if found[1] else made is None
    elif code.endswith("5M"):
        assert isinstance(made, events.MouseEvent)


async def test_the_back_button_goes_one_screen_back_and_answers_no_dialog() -> None:
    async with running(keys=("enter", "c")) as (app, pilot, fleet):
        assert isinstance(app.screen, CurvesScreen)
        await pilot.press(BACK_KEY)
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        await pilot.press("D")
        await settle(pilot)
        await pilot.press(BACK_KEY)
        await settle(pilot)
        assert isinstance(app.screen, TeardownScreen) and not fleet.told


async def test_the_name_at_the_left_goes_back_where_there_is_a_screen_below() -> None:
    async with running(keys=("enter", "c")) as (app, pilot, _):
        assert screen_text(app).startswith("‹rgt  fleet")
        await pilot.click("#header", offset=(1, 0))
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        await pilot.click("#header", offset=(0, 0))
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert screen_text(app).startswith(" rgt  fleet")


async def test_a_hint_in_a_frame_does_what_its_key_does() -> None:
    async with running(size=(200, 50)) as (app, pilot, _):
        await pilot.click(
            "#loss", offset=(_hint(app.screen.query_one("#loss", LineWidget), " c "), 0)
        )
        await settle(pilot)
        assert isinstance(app.screen, CurvesScreen)
        await pilot.press("q")
        await settle(pilot)
        why = app.screen.query_one("#why", LineWidget)
        await pilot.click("#why", offset=(_hint(why, "copies fix 1"), 0))
        await settle(pilot)
        assert "copies fix 2" in text_of(why.shown_lines[0])
        await pilot.click("#why", offset=(4, 0))
        await settle(pilot)
        assert "copies fix 2" in text_of(why.shown_lines[0]), "the title is no hint"


def _hint(widget: LineWidget, words: str) -> int:
    text = text_of(widget.shown_lines[0])
    assert words in text, text
    return text.index(words) + 1


def test_what_a_box_writes_is_no_hint_and_nothing_dangerous_is_done_by_one() -> None:
    made = draw_border(40, "╭", "╮", title=make_line("loss"), hint=make_line("c"))
    at = text_of(made).index(" c ") + 1
    found = find_hinted_command(made, at, BOX_TARGET)
    assert found is not None and found.id == "box.curves"
    assert (
        find_hinted_command(made, at - 3, BOX_TARGET) is None
        and find_hinted_command(made, 2, BOX_TARGET) is None
    )
    assert find_hinted_command(make_line(text_of(made)), at, BOX_TARGET) is None, (
        "a line of a log that looks like a border"
    )
    danger = draw_border(40, "╭", "╮", hint=make_line("D"))
    assert find_hinted_command(danger, text_of(danger).index("D"), BOX_TARGET) is None
    two = draw_border(40, "╭", "╮", hint=make_line("e error  F follow"))
    keys = [
        find_hinted_command(two, text_of(two).index(word), LOG_LINES)
        for word in ("error", "follow")
    ]
    assert [key.shown_key for key in keys if key is not None] == ["e", "F"]
