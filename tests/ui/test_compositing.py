"""Partial updates: the same screen as Textual's own, with far fewer bytes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import textual
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate
from textual.app import App
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from rgt_tui.model import LinkState
from rgt_tui.ui import ON, TightCompositor, TightUpdate, draw_pieces, switch_style
from rgt_tui.ui.compositing import CellStyle
from rgt_tui.ui.widgets import LineWidget
from tests.ui.fakes import NOW, FakeFleet, demo_state
from tests.ui.snap import running, screen_text

SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\n)|([^\x1b\n]+)")
WIDTH, HEIGHT = 120, 34
ENDS = {"22": (1, 2), "23": (3,), "24": (4, 21), "25": (5, 6), "27": (7,), "28": (8,), "29": (9,)}
"""Attributes that a code ends."""


class Pen(NamedTuple):
    """How a terminal draws."""

    attributes: frozenset[int] = frozenset()
    ink: str = "39"
    ground: str = "49"

    def after(self, numbers: str) -> Pen:
        """Return how it draws after a sequence that sets its rendition."""
        pen, codes = self, iter(numbers.split(";"))
        for code in codes:
            if code in ("", "0"):
                pen = Pen()
            elif code in ("38", "48"):
                kind = next(codes)
                colour = ";".join(
                    [code, kind, *(next(codes) for _ in range(3 if kind == "2" else 1))]
                )
                pen = pen._replace(ink=colour) if code == "38" else pen._replace(ground=colour)
            elif code in ENDS:
                pen = pen._replace(attributes=pen.attributes - set(ENDS[code]))
            elif int(code) < 22:
                pen = pen._replace(attributes=pen.attributes | {int(code)})
            elif int(code) % 60 < 40:
                pen = pen._replace(ink=code)
            else:
                pen = pen._replace(ground=code)
        return pen


class Terminal:
    """As much of a terminal as updates use: cursor moves, styles, and cells as a person sees them."""

    def __init__(self) -> None:
        self.cells = [[(" ", Pen())] * WIDTH for _ in range(HEIGHT)]
        self.pen = Pen()

    def feed(self, data: str) -> None:
        x = y = 0
        for numbers, letter, newline, text in SEQUENCE.findall(data):
            if letter == "H":
                y, x = (int(number) - 1 for number in numbers.split(";"))
            elif letter == "G":
                x = int(numbers) - 1
            elif letter == "m":
                self.pen = self.pen.after(numbers)
            else:
                assert newline or text, f"what is \\x1b[{numbers}{letter}?"
            for character in text:
                self.cells[y][x] = (character, self.seen(character))
                x += cell_len(character)

    def seen(self, character: str) -> Pen:
        """Return what of the pen a person sees: of a blank, no ink and none of what is done to ink."""
        on_blanks = self.pen.attributes - {1, 2, 3}
        return self.pen if character != " " or on_blanks else Pen(ground=self.pen.ground)


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
            fleet.change(
                "autodl-demo",
                link=LinkState.UNREACHABLE,
                reason="ssh: timed out",
                sample_at=NOW - 90,
            )
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
    drawn = {
        (y, x)
        for y in range(HEIGHT)
        for x in range(WIDTH)
        if tight_screen.cells[y][x] != (" ", Pen())
    }
    assert drawn <= changed, "cells outside of the changed spans were written"


async def test_only_the_lines_that_changed_are_drawn_and_they_are_those_of_the_whole_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = (Region(5, 2, 4, 1), Region(100, HEIGHT - 3, 10, 2))
    crops: list[Region] = []
    render = LineWidget.render_lines

    def noted(self: LineWidget, crop: Region) -> list[Strip]:
        crops.append(crop)
        return render(self, crop)

    whole, part = Terminal(), Terminal()
    async with running(FakeFleet(demo_state()), size=(WIDTH, HEIGHT)) as (app, _, _):
        compositor = app.screen._compositor
        assert isinstance(compositor, TightCompositor)
        whole.feed(compositor.render_full_update().render_segments(app.console))
        compositor._dirty_regions.update(changed)
        monkeypatch.setattr(LineWidget, "render_lines", noted)
        update = compositor.render_partial_update()
        assert update is not None
        part.feed(update.render_segments(app.console))
    cells = {(y, x) for one in changed for y in one.line_range for x in one.column_range}
    for y in range(HEIGHT):
        for x in range(WIDTH):
            assert part.cells[y][x] == (whole.cells[y][x] if (y, x) in cells else (" ", Pen())), (
                y,
                x,
            )
    assert any(whole.cells[y][x][0] != " " for y, x in cells), "nothing to see there: a weak test"
    assert 0 < sum(crop.height for crop in crops) < 8


async def test_it_needs_fewer_bytes() -> None:
    update, console = await partial()
    tight = TightUpdate(update.chops, update.spans, update.chop_ends)
    assert len(tight.render_segments(console)) < len(update.render_segments(console)) / 3


@pytest.mark.parametrize(
    "system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]
)
async def test_a_whole_screen_looks_the_same_with_half_the_bytes(system: ColorSystem) -> None:
    fleet = FakeFleet(demo_state())
    async with running(lambda: fleet, size=(WIDTH, HEIGHT)) as (app, _, _):
        app.console._color_system = system
        compositor = app.screen._compositor
        assert isinstance(compositor, TightCompositor)
        tight, wide = compositor.render_full_update(), Compositor.render_full_update(compositor)
        for strip in (strip for row in wide.strips for strip in row):
            strip._render_cache = None  # of a terminal with other colours, as what is below
            for style in (style for _, style, _ in strip if style is not None):
                style._ansi = None
        sent, usual = tight.render_segments(app.console), wide.render_segments(app.console)
    tight_screen, wide_screen = Terminal(), Terminal()
    tight_screen.feed(sent)
    wide_screen.feed(usual)
    for y in range(HEIGHT):
        assert list(enumerate(tight_screen.cells[y])) == list(enumerate(wide_screen.cells[y])), (
            f"line {y}"
        )
    assert any(seen.attributes for row in tight_screen.cells for _, seen in row), (
        "nothing bold: a weak test"
    )
    assert len(sent) < len(usual) / 2


ALL_LOOKS = [
    CellStyle(sum(1 << bit for bit in bits), ink, ground)
    for bits in [(), (0,), (1,), (0, 1), (2,), (3,), (6,), (0, 3, 6), (8,), (1, 6, 8), (9,), (3, 9)]
    for ink, ground in [("39", "49"), ("38;2;1;2;3", "49"), ("38;2;1;2;3", "48;5;7"), ("91", "100")]
]


def test_from_any_look_to_any_other() -> None:
    for before in ALL_LOOKS:
        pen = Pen().after(switch_style(CellStyle(), before)[2:-1] or "0")
        assert pen == Pen(
            frozenset(int(ON[bit]) for bit in range(10) if before.attributes >> bit & 1),
            *before[1:],
        )
        for after in ALL_LOOKS:
            sent = switch_style(before, after)
            assert (sent == "") == (before == after)
            assert (pen.after(sent[2:-1]) if sent else pen) == Pen().after(
                switch_style(CellStyle(), after)[2:-1] or "0"
            )


def test_a_terminal_draws_plainly_after_an_update() -> None:
    strip = Strip(
        [Segment("a", Style(bold=True, color="red")), Segment(" ", Style(bgcolor="blue"))]
    )
    terminal = Terminal()
    terminal.feed(draw_pieces([(0, 0, strip), (0, 5, strip), (1, 0, strip)], ColorSystem.TRUECOLOR))
    assert terminal.pen == Pen()
    assert [character for character, _ in terminal.cells[0][:7]] == [
        "a",
        " ",
        " ",
        " ",
        " ",
        "a",
        " ",
    ]
    assert terminal.cells[1][1] == (" ", Pen(ground="44"))


def test_a_blank_takes_no_ink_but_what_is_seen_on_it() -> None:
    ink, line = Style(color="#102030"), Style(color="#405060", underline=True)
    one = draw_pieces([(0, 0, Strip([Segment("a", ink), Segment("  ", Style(color="#405060")), Segment("b", ink)]))],
                ColorSystem.TRUECOLOR)  # fmt: skip
    assert one == "\x1b[1;1H\x1b[38;2;16;32;48ma  b\x1b[0m"
    under = draw_pieces(
        [(0, 0, Strip([Segment("a", ink), Segment("  ", line)]))], ColorSystem.TRUECOLOR
    )
    assert under == "\x1b[1;1H\x1b[38;2;16;32;48ma\x1b[4;38;2;64;80;96m  \x1b[0m"


def test_a_link_is_drawn_by_textual_itself() -> None:
    update = TightUpdate([{0: Strip([Segment("a", Style(link="file:///a"))])}], [(0, 0, 1)], [[1]])
    assert "\x1b]8;" in update.render_segments(Console(color_system="truecolor"))


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
    patch.setattr(TightUpdate, "_pieces_of_line", lambda self, y, x1, x2: self.chops[y].items(y))


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
        fleet.change(
            "autodl-demo", link=LinkState.UNREACHABLE, reason="ssh: timed out", sample_at=NOW - 90
        )
        app.tick()
        await pilot.pause()
        assert "unreachable" in screen_text(app), f"not drawn with Textual {textual.__version__}"
        assert "unreachable" in "".join(drawn)


def test_of_widgets_side_by_side_only_the_changed_cells_are_written() -> None:
    side_by_side = {
        0: Strip([Segment("abcd")]),
        4: Strip([Segment("efgh")]),
        8: Strip([Segment("ijkl")]),
    }
    update = TightUpdate([{}, side_by_side], [(1, 2, 6), (1, 9, 10)], [[], [4, 8, 12]])
    sent = update.render_segments(Console(color_system="truecolor"))
    assert sent == "\x1b[2;3Hcd\x1b[5Gef\x1b[10Gj", "a move within a line is short"


def test_another_full_update_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    other = OtherUpdate(TightUpdate([], [], []))
    monkeypatch.setattr(Compositor, "render_full_update", lambda self: other)
    drawn_by: object = TightCompositor().render_full_update()
    assert drawn_by is other


async def test_what_many_updates_drew_is_what_one_whole_screen_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what a box says, a hint that comes and goes, the cursor, a screen opened over another and left."""
    drawn_all: list[str] = []
    async with running(FakeFleet(demo_state()), size=(WIDTH, HEIGHT)) as (app, pilot, fleet):

        def draw(self: App[None], screen: Screen[None], update: CompositorUpdate | None) -> None:
            if update is not None:
                drawn_all.append(update.render_segments(app.console))

        monkeypatch.setattr(type(app), "_display", draw)
        terminal = Terminal()
        terminal.feed(app.screen._compositor.render_full_update().render_segments(app.console))
        for turn, key in enumerate(
            ["j", "k", "tab", "p", "J", "T", "?", "escape", "o", "slash", "a", "escape", "b"]
        ):
            fleet.advance(1)
            fleet.change(
                "vast-demo",
                sample_at=NOW + turn,
                link=LinkState.LIVE if turn % 2 else LinkState.UNREACHABLE,
            )
            app.tick()
            await pilot.pause()
            await pilot.press(key)
            await pilot.pause()
            for sent in drawn_all:
                terminal.feed(sent)
            drawn_all.clear()
            whole = Terminal()
            whole.feed(app.screen._compositor.render_full_update().render_segments(app.console))
            for y in range(HEIGHT):
                assert terminal.cells[y] == whole.cells[y], f"line {y} after {key}"
