"""The line that keys act on: a cursor in every list, and colours that stay apart where a terminal has few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from rich.color import ColorSystem

from rgt_tui.ui import SCREENS, THEMES, current_glyphs, screen_class
from rgt_tui.ui.screens import TeardownScreen
from rgt_tui.ui.widgets import LineWidget, SelectableList, Span, Tone, split_line, text_of
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from rgt_tui.ui.widgets.teardown.evidence_list import EvidenceList
from tests.ui.fakes import FakeFleet, many_boxes
from tests.ui.snap import running, screen_text, settle
from tests.ui.stages import rest, staged

FEW = (ColorSystem.EIGHT_BIT, ColorSystem.STANDARD)
LISTS = {
    "fleet": ((), "#table"),
    "alerts": (("a",), "#alerts"),
    "phases": (("p", "j", "j"), "#checks"),
    "curves": (("c", "j"), "#legend"),
    "log": (("l", "e"), "#log"),
}
"""How to come to each list with a cursor, and the widget that draws it."""


STAGED = {
    "journal": "HappeningList",
    "teardown": "EvidenceList",
    "handbook": "SelectableList",
    "transfers": "SelectableList",
    "audit": "SelectableList",
    "welcome": "SelectableList",
}
"""Screens whose lists need something staged to show, and the list of each."""


def assert_seen(drawn: LineWidget) -> None:
    """The selected line has the cursor, and colours of its own that can be read where there are few."""
    at = drawn.selected_line()
    assert at is not None, f"{drawn} has no selection"
    column = drawn.selected_from
    chosen = list(drawn.render_line(at))
    other = list(drawn.render_line(at + 1 if at + 1 < drawn.size.height else at - 1))
    text = "".join(segment.text for segment in chosen)
    assert text[column] == current_glyphs().cursor
    assert current_glyphs().cursor not in "".join(segment.text for segment in other)[: column + 1]
    plain = other[-1].style
    assert plain is not None
    assert plain.bgcolor is not None
    here = 0
    for segment in chosen:
        here += len(segment.text)
        if here <= column:
            continue
        style = segment.style
        assert style is not None
        assert style.bgcolor is not None
        assert style.color is not None
        for system in FEW:
            ground = style.bgcolor.downgrade(system)
            assert ground != plain.bgcolor.downgrade(system), (
                f"{system.name}: the row is as all others"
            )
            if segment.text.strip():
                ink = style.color.downgrade(system)
                assert ink != ground, f"{system.name}: {segment.text!r} cannot be read"


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
@pytest.mark.parametrize("place", list(LISTS))
@pytest.mark.parametrize("size", [(80, 24), (120, 34)])
async def test_the_selected_line_is_seen_in_few_colours_and_every_text_on_it_is_read(
    place: str, theme: str, size: tuple[int, int]
) -> None:
    keys, widget = LISTS[place]
    async with running(keys=keys, size=size) as (app, pilot, _):
        app.theme = theme
        await settle(pilot)
        await pilot.pause()
        assert_seen(app.screen.query_one(widget, LineWidget))


@pytest.mark.parametrize("place", list(STAGED))
async def test_so_it_is_in_every_other_list(place: str, state_home: Path) -> None:
    async with staged(place, "live", home=state_home) as (app, pilot):
        if place == "teardown":
            app.screen.query_one(EvidenceList).focus()
            await rest(app, pilot)
        lists = [
            drawn for drawn in app.screen.query(LineWidget) if drawn.selected_line() is not None
        ]
        assert [type(drawn).__name__ for drawn in lists] == [STAGED[place]]
        for theme in THEMES:
            app.theme = theme.name
            await rest(app, pilot)
            assert_seen(lists[0])


@pytest.mark.parametrize("place", ["handbook", "welcome", "phases"])
async def test_the_wheel_moves_the_selection(place: str, state_home: Path) -> None:
    async with staged(place, "live", home=state_home) as (app, pilot):
        listed = app.screen.query_one(SelectableList)
        await pilot.press("home")
        await rest(app, pilot)
        assert listed.selected_index == 0
        listed.on_mouse_scroll_down(cast("Any", None))
        await rest(app, pilot)
        assert listed.selected_index == listed.WHEEL == 3
        assert listed.selected_line() is not None
        listed.on_mouse_scroll_up(cast("Any", None))
        assert listed.selected_index == 0


def test_no_list_is_left_out() -> None:
    for place in SCREENS:
        screen_class(place)

    def below(kind: type[LineWidget]) -> Iterator[type[LineWidget]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    lists = {
        kind
        for kind in below(LineWidget)
        if "selected_line" in vars(kind) or issubclass(kind, SelectableList)
    }
    with_cursor = {kind.__name__ for kind in lists}
    assert with_cursor == {*STAGED.values(), "FleetTable", "Checklist", "CurveLegend", "LogPane"}


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_colour_of_a_theme_is_readable_on_both_grounds_in_few_colours(theme: object) -> None:
    from rich.color import Color
    from textual.theme import Theme

    assert isinstance(theme, Theme)
    inks = [
        theme.foreground,
        theme.accent,
        theme.warning,
        theme.error,
        theme.success,
        theme.variables["rgt-faint"],
    ]
    grounds = [theme.background, theme.variables["rgt-raised"]]
    for system in FEW:
        below = [Color.parse(str(ground)).downgrade(system).number for ground in grounds]
        assert len(set(below)) == 2, f"{system.name}: both grounds are one colour"
        for ink in inks:
            assert Color.parse(str(ink)).downgrade(system).number not in below, (
                f"{system.name}: {ink}"
            )


async def test_without_colours_the_cursor_tells_which_line_keys_act_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(keys=("j",)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        rows = [
            row for row in screen_text(app).splitlines() if row.startswith(current_glyphs().cursor)
        ]
        assert len(rows) == 1
        assert table.picked_key is not None
        assert table.picked_key in rows[0]
        await pilot.press("D")
        await settle(pilot)
        assert isinstance(app.screen, TeardownScreen)
        assert app.screen.box_name == table.picked_key


@pytest.mark.parametrize("place", ["fleet", "box"])
async def test_the_pane_that_has_the_keys_says_so_without_colours(place: str) -> None:
    async with running(keys=("enter",) if place == "box" else ()) as (app, pilot, _):
        for _ in range(3):
            await pilot.press("tab")
            await settle(pilot)
            marked = [
                pane
                for pane in app.screen.query(LineWidget)
                if pane.display
                and any(f"─{current_glyphs().cursor}" in text_of(row) for row in pane.shown_lines)
            ]
            assert marked == ([app.focused] if app.focused is not None else [])


async def test_a_key_brings_the_row_that_it_acts_on_back_into_sight() -> None:
    async with running(FakeFleet(many_boxes(60)), size=(120, 20)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        for _ in range(20):
            table.scroll_lines(table.WHEEL)
        assert table.selected_line() is None, "scrolled away"
        await pilot.press("D")
        await settle(pilot)
        await pilot.press("escape")
        assert table.selected_line() is not None
        assert isinstance(app.screen, TeardownScreen)
        assert app.screen.box_name == table.picked_key


def test_a_line_is_split_at_a_cell_also_within_wide_characters() -> None:
    row = (Span("ab", Tone.DIM), Span("cd"), Span("漢字", Tone.STRONG))
    assert split_line(row, 0) == ((), row)
    left, right = split_line(row, 3)
    assert (text_of(left), text_of(right)) == ("abc", "d漢字")
    assert right[0] == Span("d")
    left, right = split_line(row, 6)
    assert (text_of(left), text_of(right)) == ("abcd漢", "字")
    assert split_line(row, 99) == (row, ())
