"""Every main screen in Chinese: its characters take two cells, and no frame may break at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from rgt_tui import language
from rgt_tui.model import break_lines, wrap_cells
from rgt_tui.ui import commands
from rgt_tui.ui.plot import RunKey
from rgt_tui.ui.widgets import (
    CurveLegend,
    CurvePlot,
    EntryLabel,
    EntryNote,
    KeyLine,
    LegendEntry,
    layout_keys,
    text_of,
    width_of,
    wrap_text,
)
from tests.ui.stages import SCREENS, rest, staged

SIZES = ((80, 24), (120, 34))
FIRST = ("fleet", "box", "alerts", "help", "teardown")
LEFT, RIGHT = "│╭╰├", "│╮╯┤"


@pytest.mark.parametrize(
    "screen",
    [pytest.param(one, marks=() if one in FIRST else pytest.mark.full) for one in SCREENS],
    ids=lambda one: one.replace(" ", "_"),
)
async def test_a_screen_keeps_its_frames_in_wide_characters(
    screen: str, tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with staged(screen, "live", home=state_home, night=None, size=SIZES[0]) as (app, pilot):
        for size in SIZES:
            await rest(app, pilot, size)
            rows = [
                "".join(segment.text for segment in strip)
                for strip in app.screen._compositor.render_strips()
            ]
            assert any("\u4e00" <= letter <= "\u9fff" for row in rows for letter in row)
            for row in rows:
                assert cell_len(row) == size[0], row
                if row[0] in LEFT:
                    assert row[-1] in RIGHT, row


def test_a_key_stands_where_a_click_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
    line = KeyLine(commands.FLEET)
    (drawn,) = line.make_lines(120, 1)
    # One letter a cell, and nothing for the second cell of a wide one.
    cells = [
        part
        for span in drawn
        for letter in span.text
        for part in (letter, *[""] * (cell_len(letter) - 1))
    ]
    places = layout_keys(commands.FLEET, 120)
    assert len(places) > 3
    for start, end, command in places:
        shown = f"{command.shown_key} {command.shown_title}"
        assert "".join(cells[start:end]) == shown


def test_an_entry_leaves_room_for_its_label_and_its_note() -> None:
    label, note = EntryLabel("端口号"), EntryNote()
    note.show_note("没有匹配")
    widths = [one.styles.width.value for one in (label, note) if one.styles.width is not None]
    assert widths == [6 + 3, 8 + 2]


def test_an_empty_plot_has_its_text_in_the_middle() -> None:
    plot = CurvePlot()
    plot.show_board(None, ("没有曲线",))
    (drawn,) = [row for row in plot.make_lines(40, 4) if row]
    assert width_of(drawn) == (40 - 8) // 2 + 8


def test_a_legend_has_room_for_wide_names() -> None:
    run = LegendEntry(RunKey("a", "训练一号实验"), 0, 0.5, "running", 7, None, shown=True)
    legend = CurveLegend(id="legend")
    legend.show_runs("loss", [run], None)
    _, row, *_ = legend.make_lines(legend.needed_width(), 4)
    assert "训练一号实验" in text_of(row)


def test_a_legend_is_as_wide_as_its_title() -> None:
    legend = CurveLegend(id="legend")
    legend.show_runs("损失在第九步的值", [], None)
    assert legend.needed_width() == 16 + 2


# From GB/T 15834-2011, 5.1: marks that do not stand at the start, and that do not stand at the end,
# of a line.
NOT_FIRST = set("。？！，、；：”’）】》〉」』％")
NOT_LAST = set("“‘（【《〈「『")


@pytest.mark.parametrize("width", [9, 20, 33, 76])
def test_no_line_starts_or_ends_with_the_wrong_punctuation(width: int) -> None:
    """The translations are the texts; the marks are the standard's."""
    known = vars(language.load_catalogue("zh_CN"))["_catalog"]
    sentences = [text for key, text in known.items() if key and cell_len(text) > width]
    assert len(sentences) > 100
    for text in sentences:
        screen = [text_of(row) for row in wrap_text(text.replace("\n", " "), width, most=1000)]
        printed = wrap_cells(text.replace("\n", " "), width)
        for rows in (screen, printed):
            assert "".join(rows).replace(" ", "") == "".join(text.split())
            assert max(map(cell_len, rows)) <= width, rows
            # A run of quotes and brackets can be wider than a narrow line.
            wrong = [row for row in rows[1:] if row[:1] in NOT_FIRST]
            wrong += [row for row in rows[:-1] if row[-1:] in NOT_LAST]
            assert wrong == [], rows


def test_a_chinese_sentence_fills_its_lines() -> None:
    rows = wrap_text("GPU 空闲已经有二十分钟（无进程）；仍在计费", 16)
    assert [text_of(row) for row in rows] == ["GPU 空闲已经有二", "十分钟（无进", "程）；仍在计费"]


@pytest.mark.parametrize("text", ["；" * 9, "（" * 9, "a" * 5 + "；" * 5, "，a，b"])
@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_punctuation_alone_is_wrapped_too(text: str, width: int) -> None:
    assert "".join(text_of(row) for row in wrap_text(text, width)) == text


# A run is named by whoever started it.
@example("…" * 90, 80, 4)
@example("。" * 50, 12, 8)
@given(
    st.text("。？！，、；：”’）】》〉」』％…（ a数", max_size=60),
    st.integers(2, 40),
    st.integers(0, 45),
)
def test_wrapping_ends_and_loses_only_blanks(text: str, width: int, indent: int) -> None:
    measured = 0

    def count_measured_cells(row: str) -> int:
        nonlocal measured
        measured += 1
        # An endless loop would take all memory.
        assert measured < 20_000
        return cell_len(row)

    rows = break_lines(text, width, indent, count_measured_cells)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert all(row.startswith(" " * indent) for row in rows[1:])
    if width >= indent + 2:
        assert max(map(cell_len, rows)) <= width
