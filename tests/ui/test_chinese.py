"""Every main screen in Chinese: its characters take two cells, and no frame may break at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from rgt_tui import language
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
