"""Partial updates: the same screen as Textual's own, with far fewer bytes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
import textual
from rich.cells import cell_len
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor

from rgt_tui.model.box import Link
from rgt_tui.ui.compositing import TightCompositor, TightUpdate
from tests.ui.fakes import NOW, FakeFleet, demo_state
from tests.ui.snap import running, screen_text

SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\n)|([^\x1b\n]+)")
WIDTH, HEIGHT = 120, 34


class Terminal:
    """As much of a terminal as partial updates use: cursor moves, styles, and cells."""

    def __init__(self) -> None:
        self.cells = [[(" ", "")] * WIDTH for _ in range(HEIGHT)]

    def feed(self, data: str) -> None:
        x = y = 0
        style = ""
        for numbers, letter, newline, text in SEQUENCE.findall(data):
            if letter == "H":
                y, x = (int(number) - 1 for number in numbers.split(";"))
            elif letter == "m":
                style = "" if numbers in ("", "0") else f"{style};{numbers}"
            elif newline:
                continue
            for character in text:
                self.cells[y][x] = (character, style)
                x += cell_len(character)


async def partial(app_size: tuple[int, int] = (WIDTH, HEIGHT)) -> tuple[ChopsUpdate, Console]:
    """Return a real partial update of the fleet screen, made by Textual itself."""
    fleet = FakeFleet(demo_state())
    async with running(lambda: fleet, size=app_size) as (app, pilot, _):
        compositor = app.screen._compositor
        assert isinstance(compositor, TightCompositor)
        caught: list[ChopsUpdate] = []
        original = Compositor.render_partial_update

        def spy(self: Compositor) -> ChopsUpdate | None:
            update = original(self)
            if update is not None:
                caught.append(update)
            return update

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Compositor, "render_partial_update", spy)
            fleet.change("autodl-demo", link=Link.UNREACHABLE, reason="ssh: timed out", sample_at=NOW - 90)
            app.tick()
            await pilot.pause()
        assert caught
        return caught[0], app.console


async def test_the_tight_update_draws_the_same_changed_cells() -> None:
    update, console = await partial()
    tight = TightUpdate(update.chops, update.spans, update.chop_ends)
    wide_screen, tight_screen = Terminal(), Terminal()
    wide_screen.feed(update.render_segments(console))
    tight_screen.feed(tight.render_segments(console))
    for y, x1, x2 in update.spans:
        assert tight_screen.cells[y][x1:x2] == wide_screen.cells[y][x1:x2]
    changed = {(y, x) for y, x1, x2 in update.spans for x in range(x1, x2)}
    drawn = {(y, x) for y in range(HEIGHT) for x in range(WIDTH) if tight_screen.cells[y][x] != (" ", "")}
    assert drawn <= changed, "cells outside of the changed spans were written"


async def test_it_needs_fewer_bytes() -> None:
    update, console = await partial()
    tight = TightUpdate(update.chops, update.spans, update.chop_ends)
    assert len(tight.render_segments(console)) < len(update.render_segments(console))


def without_the_class(patch: pytest.MonkeyPatch) -> None:
    """The compositor has another name."""
    patch.delattr("textual._compositor.Compositor")
    patch.delitem(sys.modules, "rgt_tui.ui.compositing")


def with_another_constructor(patch: pytest.MonkeyPatch) -> None:
    """The compositor is made from something."""
    patch.setattr(TightCompositor, "__init__", lambda self, screen: None)


class OtherUpdate(ChopsUpdate):
    """An update whose parts have other names."""

    def __init__(self, update: ChopsUpdate) -> None:
        self.update = update

    def render_segments(self, console: Console) -> str:
        return self.update.render_segments(console)


def with_other_names(patch: pytest.MonkeyPatch) -> None:
    """What changed is described in another way."""
    original = Compositor.render_partial_update

    def other(self: Compositor) -> ChopsUpdate | None:
        update = original(self)
        return None if update is None else OtherUpdate(update)

    patch.setattr(Compositor, "render_partial_update", other)


def with_other_lines(patch: pytest.MonkeyPatch) -> None:
    """What changed has the old names and another meaning."""
    patch.setattr(TightUpdate, "_pieces", lambda self, y, x1, x2: self.chops[y].items(y))


@pytest.mark.parametrize(
    "unlike", [without_the_class, with_another_constructor, with_other_names, with_other_lines]
)
async def test_another_textual_draws_by_itself(
    unlike: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    fleet = FakeFleet(demo_state())
    async with running(lambda: fleet, size=(WIDTH, HEIGHT)) as (app, pilot, _):
        drawn: list[str] = []
        monkeypatch.setattr(
            type(app),
            "_display",
            lambda self, screen, update: drawn.append(update.render_segments(app.console)),
        )
        fleet.change("autodl-demo", link=Link.UNREACHABLE, reason="ssh: timed out", sample_at=NOW - 90)
        app.tick()
        await pilot.pause()
        assert "unreachable" in screen_text(app), f"not drawn with Textual {textual.__version__}"
        assert "unreachable" in "".join(drawn)
