from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.geometry import Region

from rgt_tui.ui import notation
from rgt_tui.ui.widgets import (
    Line,
    LineWidget,
    PaneSection,
    Span,
    Tone,
    clip_line,
    curve_spark,
    draw_bar,
    draw_frame,
    draw_sections,
    draw_sparkline,
    find_differing_runs,
    fit_name,
    fit_text,
    join_fitting,
    lines,
    make_line,
    merge_spans,
    name_width,
    resample,
    spread_line,
    text_of,
    thin_bar,
    width_of,
    wrap_text,
)
from tests.ui.fakes import curve

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Mn", "Me", "Cf")), max_size=30)


@given(TEXT, st.integers(0, 40))
def test_fit_is_exact(text: str, width: int) -> None:
    from rich.cells import cell_len

    assert cell_len(fit_text(text, width)) == cell_len(fit_name(text, width)) == width
    assert cell_len(fit_text(text, width, right=True)) == width


def test_names_that_begin_alike_are_told_apart_by_their_ends() -> None:
    names = [f"autodl-westd-4090-{n:02}" for n in range(12)]
    assert fit_name(names[1], 16) == "autodl-we…090-01"
    assert len({fit_name(name, 10) for name in names}) == len(names)
    assert fit_name("训练训练训练训练", 11) == "训练训…训练"
    assert fit_name("lab", 5) == "lab  "


@pytest.mark.parametrize(
    ("longest", "width", "cells"), [(7, 60, 7), (26, 80, 20), (26, 200, 26), (99, 300, 50)]
)
def test_names_have_the_width_that_they_need_where_there_is_room(
    longest: int, width: int, cells: int
) -> None:
    assert name_width(["lab", "n" * longest], width) == cells
    assert name_width([], width) == 0


@given(st.lists(TEXT, max_size=5), st.integers(0, 60))
def test_clip_and_spread_are_exact(texts: list[str], width: int) -> None:
    made = tuple(Span(text) for text in texts)
    assert width_of(clip_line(made, width)) == width
    assert width_of(spread_line(made, make_line("right"), width)) == width


def test_pick_keeps_the_most_important_in_their_order() -> None:
    parts = [(2, make_line("second")), (1, make_line("first")), (3, make_line("third"))]
    assert text_of(join_fitting(100, parts)) == "second  first  third"
    assert text_of(join_fitting(13, parts)) == "second  first"
    assert text_of(join_fitting(5, parts)) == "first"
    assert join_fitting(3, parts) == ()


def test_merged_joins_neighbours_of_one_tone() -> None:
    spans = (Span("a"), Span("b"), Span("", Tone.WARN), Span("c", Tone.DIM), Span("d", Tone.DIM))
    assert merge_spans(spans) == (Span("ab"), Span("cd", Tone.DIM))


def test_differing_gives_the_runs_of_changed_cells_near_ones_as_one() -> None:
    assert find_differing_runs(make_line("abcdef"), make_line("abcdef")) == []
    assert find_differing_runs(make_line("abcdef"), make_line("abXdeY")) == [(2, 6)]
    assert find_differing_runs(
        make_line("a" + "-" * 20 + "b"), make_line("X" + "-" * 20 + "Y")
    ) == [(0, 1), (21, 22)]
    assert find_differing_runs(make_line("abc"), make_line(Span("abc", Tone.WARN))) == [(0, 3)]
    assert find_differing_runs(make_line("汉字"), make_line("汉子")) == [(0, 4)]


@given(st.one_of(st.none(), st.floats(-10, 200), st.just(math.nan)), st.integers(1, 40))
def test_bars_are_exact(value: float | None, width: int) -> None:
    assert width_of(draw_bar(value, width)) == width
    assert width_of(draw_bar(value, width, limit=90)) == width
    assert width_of(thin_bar(value, width)) == width


def test_a_bar_is_full_only_at_100_and_empty_only_at_0() -> None:
    assert "·" not in text_of(draw_bar(100, 10))
    assert text_of(draw_bar(99.99, 10)) != text_of(draw_bar(100, 10))
    assert text_of(draw_bar(0.01, 10)) != text_of(draw_bar(0, 10))


def test_sparklines() -> None:
    assert draw_sparkline([], 3) == "···"
    assert draw_sparkline([0, 0, 100, 100], 2, low=0, high=100) == "⣀⣿"
    assert draw_sparkline([None, None, math.nan, 1.0], 2) == "·x"
    assert resample([1.0, 3.0, None, None], 2) == [2.0, None]
    long = curve(100_000)
    assert len(curve_spark(long, 8)) == 8
    assert curve_spark(None, 8) == ""


@pytest.mark.parametrize("width", [4, 10, 33])
@pytest.mark.parametrize("height", [2, 3, 9])
def test_frames_have_their_size(width: int, height: int) -> None:
    body = [make_line(f"line {i} with some text") for i in range(20)]
    parts = [
        PaneSection(make_line("a long title indeed"), body, make_line("hint")),
        PaneSection(make_line("two"), body),
    ]
    for made in (
        draw_frame(body, width, height, title=make_line("t"), hint=make_line("h")),
        draw_sections(parts, width, height),
    ):
        assert len(made) == height
        assert {width_of(row) for row in made} == {width}


def test_wrapped_breaks_words_and_long_paths() -> None:
    rows = [text_of(row) for row in wrap_text("fix the path /workspace/very/long/name now", 12)]
    assert all(len(row) <= 12 for row in rows)
    assert "".join(rows).replace(" ", "") == "fixthepath/workspace/very/long/namenow"


def test_a_character_wider_than_the_room_has_a_line_of_its_own() -> None:
    assert [text_of(row) for row in wrap_text("中文a", 1)] == ["中", "文", "a"]


class _Two(LineWidget):
    def __init__(self, rows: Sequence[Line]) -> None:
        super().__init__(id="two")
        self.rows = rows
        self.asked: list[tuple[Region, ...]] = []
        self.styles.height = 3

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        return self.rows

    def refresh(self, *regions: Region, **options: bool) -> _Two:
        if hasattr(self, "asked"):
            self.asked.append(regions)
        super().refresh(*regions, **options)
        return self


async def test_only_what_changed_is_drawn_again() -> None:
    widget = _Two([make_line("gpu 41%"), make_line("vram 12"), make_line("same")])

    class Small(App[None]):
        def compose(self) -> ComposeResult:
            yield widget

    async with Small().run_test(size=(20, 3)) as pilot:
        await pilot.pause()
        widget.asked.clear()
        widget.rows = [make_line("gpu 47%"), make_line("vram 12"), make_line("same")]
        widget.redraw()
        assert widget.asked == [(Region(5, 0, 1, 1),)]
        widget.asked.clear()
        widget.redraw()
        assert widget.asked == []


async def test_the_same_tuple_of_lines_is_not_looked_at_again_and_a_list_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (make_line("gpu 41%"), make_line("vram 12"))
    widget = _Two(rows)
    clipped: list[Line] = []

    def noted(spans: Line, width: int) -> Line:
        clipped.append(spans)
        return clip_line(spans, width)

    class Small(App[None]):
        def compose(self) -> ComposeResult:
            yield widget

    async with Small().run_test(size=(20, 3)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(lines, "clip_line", noted)
        widget.redraw()
        assert clipped == []
        widget.rows = (*rows[:1], make_line("vram 13"))
        widget.redraw()
        assert text_of(widget.shown_lines[1]).strip() == "vram 13"
        widget.rows = kept = list(rows)
        widget.redraw()
        kept[0] = make_line("gpu 47%")
        widget.redraw()
        assert text_of(widget.shown_lines[0]).strip() == "gpu 47%"


async def test_no_control_character_reaches_the_terminal() -> None:
    widget = _Two([make_line("a\x1b[31mb\x9bc\u202ed")])

    class Small(App[None]):
        def compose(self) -> ComposeResult:
            yield widget

    async with Small().run_test(size=(20, 3)) as pilot:
        await pilot.pause()
        text = widget.render_line(0).text
        assert not any(ord(c) < 32 or 0x7F <= ord(c) <= 0x9F or c == "\u202e" for c in text)


def test_ascii_bars_and_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_ASCII", "1")
    notation.current_glyphs.cache_clear()
    made = draw_frame(
        [draw_bar(50, 6, limit=90), make_line(draw_sparkline([1, 2, 3], 3))],
        20,
        5,
        title=make_line("t"),
    )
    assert all(text_of(row).isascii() for row in made)
