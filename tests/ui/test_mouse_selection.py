"""Text that the mouse selects: on every screen, seen in every theme, copied as it stands, and no click."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.color import ColorSystem
from textual import events
from textual.app import App
from textual.pilot import Pilot

from rgt_tui.model import FleetState
from rgt_tui.ui import THEMES, RgtApp, themes_of
from rgt_tui.ui.screens import BoxScreen, FleetScreen, HelpScreen
from rgt_tui.ui.widgets import (
    HeaderLine,
    Line,
    LineWidget,
    Pane,
    Span,
    draw_frame,
    make_line,
    text_of,
)
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from rgt_tui.ui.widgets.teardown.confirm import DialogButton
from tests.ui.fakes import NOW, FakeFleet, running_box
from tests.ui.screen_pictures import rows_on
from tests.ui.snap import running, screen_text, settle
from tests.ui.stages import SCREENS, rest, staged, staged_fleet

DIALOGS = {"teardown", "question", "palette"}
"""Where `y` is typed, or means a key of the dialog; or where Textual's own widgets show the text."""


class Words(NamedTuple):
    """Two words of a line that is on the screen."""

    widget: LineWidget
    y: int
    start: int
    text: str


def words_on(app: RgtApp) -> list[Words]:
    """Return two words of each widget that shows any in its body."""
    found: list[Words] = []
    for widget in app.screen.query(LineWidget):
        if (
            not widget.display
            or not widget.size.height
            or widget.id in ("header", "event", "keys", "notice")
        ):
            continue
        for y, row in enumerate(widget.shown_lines):
            match = (
                re.search(r"[A-Za-z]{3,}[ -][A-Za-z]+", text_of(row))
                if widget.allow_select
                else None
            )
            if match is not None:
                found.append(Words(widget, y, match.start(), match[0]))
                break
    return found


def mouse(
    app: App[None],
    kind: type[events.MouseEvent],
    widget: LineWidget,
    offset: tuple[int, int],
    *,
    button: int = 1,
) -> None:
    """Send what a terminal sends: the app itself makes a click of a button that is pressed and let go."""
    x, y = widget.region.x + offset[0], widget.region.y + offset[1]
    app.post_message(kind(None, x, y, 0, 0, button, False, False, False, screen_x=x, screen_y=y))


async def drag(
    pilot: Pilot[None], widget: LineWidget, start: tuple[int, int], end: tuple[int, int]
) -> None:
    """Press the button at a cell of a widget, move to another one, and let it go there."""
    mouse(pilot.app, events.MouseDown, widget, start)
    for offset in (((start[0] + end[0]) // 2, end[1]), end):
        mouse(pilot.app, events.MouseMove, widget, offset)
    mouse(pilot.app, events.MouseUp, widget, end)
    heard = asyncio.Event()
    pilot.app.call_later(heard.set)
    await heard.wait()
    await pilot.pause()


@pytest.mark.parametrize("place", [place for place in SCREENS if place not in DIALOGS])
async def test_what_stands_on_a_screen_is_selected_by_mouse_and_copied(
    place: str, state_home: Path
) -> None:
    async with staged(place, "live", home=state_home, size=(120, 34)) as (app, pilot):
        screen = app.screen
        shown = words_on(app)
        assert shown, screen_text(app)
        for words in shown:
            end = (words.start + len(words.text) - 1, words.y)
            plain = rows_on(app)
            await drag(pilot, words.widget, (words.start, words.y), end)
            marked = rows_on(app)
            assert app.screen is screen, f"a drag over {words} was a click"
            x, y = words.widget.region.x + words.start, words.widget.region.y + words.y
            grounds = {cell.paper for cell in marked[y][x : x + len(words.text)]}
            assert len(grounds) == 1 and plain[y][x].paper not in grounds, (
                f"{words} is not seen to be selected"
            )
            assert marked[y][x - 1].paper not in grounds, "more is marked than was selected"
            await pilot.press("y")
            await rest(app, pilot)
            assert app.clipboard == words.text, words
            assert not screen.selections, (
                "what was copied is selected no more: y copies what it always does"
            )


async def test_several_lines_of_a_pane_are_copied_without_its_frame() -> None:
    async with running(keys=("enter",)) as (app, pilot, _):
        pane = next(one for one in app.screen.query(Pane) if one.size.height > 4)
        rows = [text_of(row) for row in pane.shown_lines]
        await drag(pilot, pane, (4, 1), (len(rows[3]) - 6, 3))
        await pilot.press("y")
        await settle(pilot)
        assert app.clipboard.splitlines() == [
            rows[1][4:-2].rstrip(),
            rows[2][2:-2].rstrip(),
            rows[3][2:-5].rstrip(),
        ]
        assert "copied 3 lines" in screen_text(app)


async def test_a_drag_that_leaves_its_pane_selects_to_the_edge_of_it() -> None:
    async with running(size=(120, 34)) as (app, pilot, _):
        why = app.screen.query_one("#why", LineWidget)
        beside = app.screen.query_one("#since", LineWidget)
        assert beside.region.x >= why.region.right, "they stand side by side"
        rows = [text_of(row) for row in why.shown_lines]
        await pilot.mouse_down(why, offset=(6, 1))
        await pilot.hover(beside, offset=(5, 2))
        await pilot.mouse_up(beside, offset=(5, 2))
        await pilot.pause()
        assert set(app.screen.selections) == {why}
        await pilot.press("y")
        await settle(pilot)
        assert app.clipboard.splitlines() == [rows[1][6:-2].rstrip(), rows[2][2:-2].rstrip()]
        # Let go outside of the terminal: the next drag begins anew.
        await pilot.mouse_down(why, offset=(6, 1))
        await pilot.hover(why, offset=(9, 1))
        words = text_of(beside.shown_lines[0])
        at = words.index("since")
        await drag(pilot, beside, (at, 0), (at + 4, 0))
        await pilot.press("y")
        assert app.clipboard == "since"


async def test_a_drag_over_rows_or_crumbs_is_no_click_and_a_click_is_one() -> None:
    async with running(keys=("enter",)) as (app, pilot, _):
        header = app.screen.query_one(HeaderLine)
        await drag(pilot, header, (6, 0), (9, 0))
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        await pilot.press("y")
        assert app.clipboard == text_of(header.shown_lines[0])[6:10]
        await pilot.click(header, offset=(6, 0))
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        table = app.screen.query_one(FleetTable)
        picked = table.picked_key
        await drag(pilot, table, (4, 3), (4, 3))
        await settle(pilot)
        assert table.picked_key != picked, "pressed and let go at one place: a click"
        picked = table.picked_key
        await drag(pilot, table, (3, 3), (12, 4))
        await settle(pilot)
        assert table.picked_key == picked and app.screen.selections
        await drag(pilot, table, (3, 2), (3, 2))
        await settle(pilot)
        assert not app.screen.selections and table.picked_key != picked
        await pilot.click(table, offset=(3, 3), times=2)
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen), "a double click opens, and selects nothing"
        await pilot.press("q")
        await settle(pilot)
        assert not app.screen.selections


async def test_escape_ends_the_selection_first_and_what_is_to_do_is_said() -> None:
    async with running(keys=("enter", "a")) as (app, pilot, _):
        alerts = app.screen
        shown = words_on(app)[0]
        await drag(pilot, shown.widget, (shown.start, shown.y), (shown.start + 4, shown.y))
        await pilot.pause()
        assert "y copies the selection" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is alerts and not alerts.selections
        await pilot.press("question_mark")
        await settle(pilot)
        shown = words_on(app)[0]
        await drag(pilot, shown.widget, (shown.start, shown.y), (shown.start + 4, shown.y))
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, HelpScreen) and not app.screen.selections
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is alerts
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)


@pytest.mark.parametrize("place", ["question", "teardown"])
async def test_escape_ends_the_selection_of_a_dialog_before_the_dialog(
    place: str, state_home: Path
) -> None:
    fleet = staged_fleet(place, "live")
    async with staged(place, "live", home=state_home, size=(120, 34), fleet=fleet) as (app, pilot):
        fleet.advance(5.0)  # a dialog that comes up by itself takes no key at first
        dialog, shown = app.screen, words_on(app)[0]
        await drag(pilot, shown.widget, (shown.start, shown.y), (shown.start + 4, shown.y))
        assert dialog.selections
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is dialog and not dialog.selections
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is not dialog


@pytest.mark.parametrize("how", ["click", "key"])
async def test_cancel_closes_the_teardown_also_where_something_is_selected(
    how: str, state_home: Path
) -> None:
    fleet = staged_fleet("teardown", "live")
    async with staged("teardown", "live", home=state_home, size=(120, 34), fleet=fleet) as (
        app,
        pilot,
    ):
        fleet.advance(5.0)
        await rest(app, pilot)  # its figures stand where they stay
        dialog, shown = app.screen, words_on(app)[0]
        await drag(pilot, shown.widget, (shown.start, shown.y), (shown.start + 4, shown.y))
        button = dialog.query_one("#cancel", DialogButton)
        if how == "click":
            await pilot.click(button)
        else:
            button.focus()
            await pilot.press("enter")
        await settle(pilot)
        assert app.screen is not dialog


@pytest.mark.full_matrix
@pytest.mark.parametrize("key", ["ctrl+c", "super+c"])
@pytest.mark.parametrize("place", ["question", "teardown", "fleet", "help"])
async def test_the_keys_that_copy_elsewhere_copy_a_selection_here_too(
    place: str, key: str, state_home: Path
) -> None:
    """In a dialog `y` may be typed; the fingerprint of a host key is to be compared with another one."""
    fleet = staged_fleet(place, "live")
    async with staged(place, "live", home=state_home, size=(120, 34), fleet=fleet) as (app, pilot):
        fleet.advance(5.0)  # a dialog that comes up by itself takes no key at first
        shown = words_on(app)[0]
        await drag(
            pilot,
            shown.widget,
            (shown.start, shown.y),
            (shown.start + len(shown.text) - 1, shown.y),
        )
        await pilot.press(key)
        await rest(app, pilot)
        assert app.clipboard == shown.text
        assert (state_home / "copied.txt").read_text() == f"{shown.text}\n"


@pytest.mark.full_matrix
@pytest.mark.parametrize(
    "colours", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]
)
@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_the_selection_is_seen_and_read_in_every_theme_and_few_colours(
    theme: str, colours: ColorSystem
) -> None:
    async with running() as (app, pilot, _):
        if colours is ColorSystem.STANDARD:
            for few in themes_of(16):
                app.register_theme(few)
            app.add_class("few-colours")
        app.theme = theme
        await settle(pilot)
        table = app.screen.query_one(FleetTable)
        at = table.selected_line()
        assert at is not None
        other = at + 1 if at + 1 < table.size.height else at - 1
        for y in (at, other):
            before = table.render_lines(table.size.region)[y]
            await drag(pilot, table, (3, y), (30, y))
            after = table.render_lines(table.size.region)[y]
            chosen, free = list(after.crop(3, 31)), list(before.crop(3, 31))
            free += list(
                table.render_lines(table.size.region)[other if y == at else at].crop(3, 31)
            )
            grounds = set()
            for segment in chosen:
                style = segment.style
                assert style is not None and style.color is not None and style.bgcolor is not None
                ink, ground = style.color.downgrade(colours), style.bgcolor.downgrade(colours)
                assert ink != ground, f"{segment.text!r} cannot be read"
                grounds.add(ink if style.reverse else ground)
            assert len(grounds) == 1
            for segment in free:
                style = segment.style
                assert style is not None and style.bgcolor is not None
                assert style.bgcolor.downgrade(colours) not in grounds, (
                    "it looks as what is not selected"
                )


async def test_without_colours_the_selection_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running() as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        await drag(pilot, table, (3, 2), (12, 2))
        drawn = table.render_lines(table.size.region)[2]
        assert all(one.style is not None and one.style.reverse for one in drawn.crop(3, 13))
        assert not any(one.style is not None and one.style.reverse for one in drawn.crop(13, 60))


async def test_wide_characters_are_selected_where_the_pointer_is() -> None:
    box = running_box("训练盒子-한국어")
    async with running(FleetState((box,), (), NOW)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        row = next(y for y, made in enumerate(table.shown_lines) if "训练" in text_of(made))
        text = text_of(table.shown_lines[row])
        start = text.index("训")  # nothing before it is wide
        await drag(pilot, table, (start + 2, row), (start + 6, row))
        await pilot.press("y")
        await settle(pilot)
        assert app.clipboard == "练盒子"


async def test_nothing_is_asked_about_a_selection_while_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hundred rows that change each second are not to pay for what nobody does."""
    asked: list[str] = []
    fleet = FakeFleet()
    async with running(fleet) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        monkeypatch.setattr(
            type(table),
            "text_selection",
            property(lambda self: asked.append("text_selection")),
            raising=False,
        )
        fleet.change("vast-demo", sample_at=NOW - 42)
        app.tick(force=True)
        await pilot.pause()
        strips = table.render_lines(table.size.region)
        assert not asked
        assert all(
            "offset" not in (one.style.meta if one.style else {})
            for strip in strips
            for one in strip
        )


def test_of_a_frame_the_text_is_taken() -> None:
    from textual.geometry import Offset
    from textual.selection import SELECT_ALL, Selection

    from rgt_tui.ui import marked_text

    drawn: list[Line] = draw_frame(
        [make_line("one"), make_line(Span("│ "), "a box writes a frame │")],
        40,
        5,
        title=make_line("title  here"),
        hint=make_line("y copies"),
    )
    assert marked_text(drawn, SELECT_ALL) == "title  here  y copies\none\n│ a box writes a frame │"
    first = text_of(drawn[0])
    at = first.index("here")
    assert marked_text(drawn, Selection(Offset(at, 0), Offset(at + 4, 0))) == "here"
    assert marked_text(drawn, Selection(Offset(0, 1), Offset(4, 1))) == "on"
    assert marked_text(drawn, Selection(Offset(5, 3), Offset(9, 9))) == ""
    bare = [make_line(" a "), make_line(" b")]
    assert marked_text(bare, Selection(Offset(0, 0), Offset(99, 1))) == " a\n b"
    assert marked_text(bare, Selection(Offset(5, 7), None)) == ""
