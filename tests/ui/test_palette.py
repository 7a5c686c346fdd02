"""ctrl+p finds boxes, runs, screens and commands; what is dangerous is never found by accident."""

from __future__ import annotations

import pytest
from textual.command import CommandPalette
from textual.content import Content

from rgt_tui.model import FleetState
from rgt_tui.ui import PaletteEntry, PaletteProvider, find_entries, score_entry
from rgt_tui.ui.screens import FleetAwareScreen, FleetScreen
from rgt_tui.ui.widgets import HeaderLine
from tests.ui.boxes import running_box, trouble_box, warn_box
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle


def entry(
    title: str, *, dangerous: bool = False, about: str = "", rank: float = 0.0
) -> PaletteEntry:
    return PaletteEntry(title, "", lambda: None, about, rank=rank, dangerous=dangerous)


def test_the_nearest_name_stands_first() -> None:
    entries = [
        entry("start"),
        entry("restart"),
        entry("a start"),
        entry("starter"),
        entry("s-t-a-r-t"),
    ]
    titles = [one.title for _, one in find_entries(entries, "Start")]
    assert titles == ["start", "starter", "a start", "restart", "s-t-a-r-t"]
    assert score_entry(entry("x", about="runpod"), "runpod") > 0
    assert score_entry(entry("gpt-a"), "gtb") == 0


@pytest.mark.parametrize("typed", ["t", "td", "dow", "trd", "down", "tear", "a", "e", "t d"])
def test_what_is_dangerous_stands_behind_everything_and_is_never_guessed(typed: str) -> None:
    entries = [
        entry("tear down", dangerous=True),
        entry("td"),
        entry("tidy down"),
        entry("down tear"),
    ]
    ranked = [one.title for _, one in find_entries(entries, typed)]
    assert "tear down" not in ranked[:-1]
    assert score_entry(entry("tear down", dangerous=True, about="stop the meter"), "meter") == 0
    assert score_entry(entry("tear down", dangerous=True), "trdn") == 0


async def find(pilot: object, text: str) -> None:
    """Open the palette, type, and take the first thing that is found."""
    from textual.pilot import Pilot

    assert isinstance(pilot, Pilot)
    await pilot.press("ctrl+p", *text)
    await settle(pilot)
    await pilot.press("enter")
    await settle(pilot)
    if isinstance(pilot.app.screen, CommandPalette):
        await pilot.press("enter")
        await settle(pilot)


@pytest.mark.parametrize(
    ("typed", "place", "box"),
    [
        ("runpod", "box", "runpod-demo"),
        ("vast.ai", "box", "vast-demo"),
        ("gpt-c", "curves", "autodl-demo"),
        ("handbook", "handbook", None),
        ("alerts", "alerts", None),
        ("curves", "curves", "vast-demo"),
    ],
)
async def test_enter_opens_what_was_found(typed: str, place: str, box: str | None) -> None:
    async with running() as (app, pilot, _):
        await find(pilot, typed)
        top = app.screen
        assert isinstance(top, FleetAwareScreen)
        assert (top.PLACE, top.box_name) == (place, box)
        assert app.return_code is None


async def test_no_screen_stands_there_twice() -> None:
    async with running(size=(120, 40)) as (app, pilot, _):
        for word in ("transfers", "audit", "journal", "handbook", "alerts"):
            await pilot.press("ctrl+p", *word)
            await settle(pilot)
            titles = [
                row for row in screen_text(app).splitlines() if row.strip().split("  ")[0] == word
            ]
            assert len(titles) == 2, "what was typed, and what it found"
            await pilot.press("escape")
        await pilot.press("enter", "ctrl+p", *"journal")
        await settle(pilot)
        assert "Screen, of all boxes." in screen_text(app), "the key opens that of the box"


async def test_tear_down_is_marked_and_opens_the_review_alone() -> None:
    async with running(size=(120, 40)) as (app, pilot, fleet):
        await pilot.press("ctrl+p", *"tear d")
        await settle(pilot)
        assert "▲ tear down  (D)" in screen_text(app)
        await pilot.press("escape")
        await find(pilot, "tear d")
        assert getattr(app.screen, "PLACE", "") == "tear down"
        assert fleet.executed == []


async def test_boxes_of_a_platform_are_found_and_hostile_names_are_only_text() -> None:
    boxes = (running_box("a[red]"), warn_box("b"), trouble_box("c"))
    async with running(FakeFleet(FleetState(boxes, (), NOW))) as (app, _, __):
        finder = PaletteProvider(app.screen)
        hits = [hit async for hit in finder.search("a[red]")]
        assert str(hits[0].prompt) == "a[red]"
        help_text = Content.from_markup(hits[0].help or "").plain
        assert help_text == "Box: ● running, AutoDL"
        runs = [hit async for hit in finder.search("run of a[red]")]
        assert runs and "[red]" in Content.from_markup(runs[0].help or "").plain
        platform = [str(hit.text) async for hit in finder.search("runpod")]
        assert platform == ["b"]
        assert [hit async for hit in finder.search("nothing of the kind")] == []


async def test_a_crumb_goes_back_to_its_screen() -> None:
    async with running(keys=("enter", "c")) as (app, pilot, _):
        assert "fleet › vast-demo › curves" in screen_text(app)
        depth = len(app.screen_stack)
        line = screen_text(app).splitlines()[0]
        await pilot.click(HeaderLine, offset=(line.index("curves"), 0))
        await settle(pilot)
        assert len(app.screen_stack) == depth, "the last crumb is here"
        await pilot.click(HeaderLine, offset=(line.index("vast-demo") + 2, 0))
        await settle(pilot)
        assert (app.screen.PLACE, len(app.screen_stack)) == ("box", 2)  # type: ignore[attr-defined]
        await pilot.click(HeaderLine, offset=(1, 0))
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        await pilot.press("c")
        await settle(pilot)
        line = screen_text(app).splitlines()[0]
        await pilot.click(HeaderLine, offset=(line.index("vast-demo"), 0))
        await settle(pilot)
        assert [getattr(one, "PLACE", "") for one in app.screen_stack] == ["fleet", "box"], (
            "it was not below"
        )
        await pilot.click(HeaderLine, offset=(line.index("fleet"), 0))
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
