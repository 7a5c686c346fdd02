"""Curves as files and as a grid: what a picture and a table hold, where they go, what the keys of the grid do."""

from __future__ import annotations

import csv
import importlib.util
import math
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.model import FleetState, RunResume, RunState, Series
from rgt_tui.ui import (
    NotExported,
    RgtApp,
    check_suffix,
    export_points,
    exports,
    propose_file_name,
    write_export,
)
from rgt_tui.ui.plot import Board, PlotSettings, ShownRun, XAxis, draw_svg, run_tag
from rgt_tui.ui.widgets import (
    MetricGrid,
    choose_grid,
    curve_tone,
    format_newest,
    run_names,
    text_of,
    width_of,
)
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, settle, until
from tests.ui.test_curve_compare import said, timed_box
from tests.ui.test_curves import BOX, header, opened

SVG = "{http://www.w3.org/2000/svg}"


def picture(runs: list[ShownRun], chosen: PlotSettings | None = None) -> ET.Element:
    board = Board()
    board.update(runs, chosen or PlotSettings(), None)
    curves = board.build_curves()
    return ET.fromstring(
        draw_svg(curves, [f"<{c.number}>" for c in curves], "a & b", chosen or PlotSettings())
    )


def test_a_picture_has_lines_marks_names_and_axes() -> None:
    box = timed_box()
    drawn = picture([ShownRun(BOX, run) for run in box.runs])
    words = ["".join(each.itertext()) for each in drawn.iter(f"{SVG}text")]
    assert {"a & b", "<0>", "<1>", "<2>", "step", "500", "✕", "⇡", "★"} <= set(words)
    assert len(list(drawn.iter(f"{SVG}circle"))) >= 4
    lines = list(drawn.iter(f"{SVG}polyline"))
    assert len(lines) >= 4, "the gap breaks a line in two"
    assert {line.get("stroke-dasharray") for line in lines} >= {None, "7 3"}
    clocked = picture(
        [ShownRun(BOX, run) for run in box.runs], PlotSettings(axis=XAxis.CLOCK, smooth=0.9)
    )
    assert any(":" in ("".join(each.itertext())) for each in clocked.iter(f"{SVG}text"))


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(-50, 500), st.just(10**17)),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        max_size=40,
    ),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_any_curve_makes_a_picture(told: list[tuple[int, float]], log: bool) -> None:
    series = Series().with_points([(0, 1.0), *told])
    run = RunState("\x1b[31m<&>", series={"loss": series}, resumes=(RunResume(3, "x", 1),))
    drawn = picture([ShownRun("b", run)], PlotSettings() if log else PlotSettings().toggled_log())
    for line in drawn.iter(f"{SVG}polyline"):
        for pair in (line.get("points") or "").split():
            assert all(math.isfinite(float(number)) for number in pair.split(","))


def test_the_table_has_every_point_as_it_came() -> None:
    (run, *_) = timed_box().runs
    run = msgspec.structs.replace(run, name="=cmd()")
    bare = RunState("bare", series={"loss": Series().with_points([(5, math.nan), (5, 1e300)])})
    rows = list(
        csv.reader(
            export_points([ShownRun(BOX, run), ShownRun(BOX, bare)], "loss").decode().splitlines()
        )
    )
    assert rows[0] == ["box", "run", "metric", "step", "epoch", "time", "value"]
    assert len(rows) == 1 + 2401 + 2
    assert rows[2][:5] == [BOX, "'=cmd()", "loss", "1", "0.001"]
    assert rows[2][5].startswith("2026-11-21T07:3")
    assert rows[-2][3:] == ["5", "", "", "nan"]


def test_the_ending_says_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check_suffix(name) for name in ("a.svg", "b.CSV")] == [".svg", ".csv"]
    for name in ("a", "a.pdf", ""):
        with pytest.raises(NotExported, match=r"end with \.svg, \.csv or \.png"):
            check_suffix(name)
    monkeypatch.setattr(exports, "PNG_NEEDS", "no_such_module_here")
    with pytest.raises(NotExported, match="pip install resvg-py"):
        check_suffix("a.png")
    assert propose_file_name("a/../b c", "train/loss") == "a-..-b-c-train-loss.svg"


def test_nothing_is_overwritten_and_what_cannot_be_written_goes_to_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_export("a.csv", b"1", os.environ) == tmp_path / "a.csv"
    assert write_export("a.csv", b"2", os.environ) == tmp_path / "a-2.csv"
    assert (tmp_path / "a.csv").read_bytes() == b"1"
    assert write_export("none/a.csv", b"3", os.environ) == state_home / "exports" / "a.csv"
    with pytest.raises(NotExported, match="nothing written: /nowhere"):
        write_export("/nowhere/a.csv", b"4", os.environ)
    with pytest.raises(NotExported, match="nothing written: ~no-such-user"):
        write_export("~no-such-user/a.csv", b"5", os.environ)


async def test_export_writes_where_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = RgtApp(lambda: FakeFleet(FleetState((timed_box(),), (), NOW)))
    async with app.run_test(size=(140, 34)) as pilot:
        screen = await opened(pilot)

        async def export(name: str) -> None:
            await pilot.press("X")
            await settle(pilot)
            await pilot.press("ctrl+u", *name, "enter")
            await until(pilot, lambda: not screen.query("EntryLine"))
            await settle(pilot)

        await export("mine.csv")
        await until(pilot, lambda: "written:" in said(screen))
        assert "mine.csv" in said(screen)
        assert (tmp_path / "mine.csv").read_text().count("\n") > 5000
        await export("mine.svg")
        await until(pilot, lambda: (tmp_path / "mine.svg").exists())
        if importlib.util.find_spec("resvg_py"):
            await export("mine.png")
            await until(pilot, lambda: (tmp_path / "mine.png").exists())
            assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
        await export("mine.doc")
        assert "the name must end with" in said(screen)
        await pilot.press("X")
        await settle(pilot)
        await pilot.press("escape")
        await pilot.press("j", "v", "space", "X")
        assert "nothing to export" in said(screen)


async def test_the_grid_shows_all_metrics_and_opens_one() -> None:
    app = RgtApp(lambda: FakeFleet(FleetState((timed_box(),), (), NOW)))
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("g")
        await settle(pilot)
        grid = screen.query_one(MetricGrid)

        def shown() -> str:
            return "\n".join(text_of(each) for each in grid.shown_lines)

        names = text_of(grid.shown_lines[0])
        for each in timed_box().runs:
            assert each.name in names, "a number or a colour alone is no name"
        for metric in ("loss", "val_loss", "lr", "train/num_tokens"):
            assert metric in shown()
        assert "▌ loss" in shown()
        await pilot.press("right")
        assert "▌ val_loss" in shown()
        await pilot.press("j")
        assert "▌ train/num_tokens" in shown()
        await pilot.press("k", "left", "j")
        assert "▌ lr" in shown()
        await pilot.press("enter")
        await settle(pilot)
        assert not screen.grid
        assert screen.settings.metric == "lr"
        assert "lr" in header(screen)
        assert screen.plot_widget.drawn_frame is not None
        await pilot.press("g", "escape")
        assert not screen.grid
        assert app.screen is screen
        await pilot.press("g")
        await settle(pilot)
        await pilot.click("#grid", offset=(5, 3))
        await until(pilot, lambda: screen.settings.metric == "loss")
        await pilot.click("#grid", offset=(5, 3))
        await until(pilot, lambda: not screen.grid)


async def test_a_grid_without_a_metric_says_why() -> None:
    bare = msgspec.structs.replace(timed_box(), runs=())
    async with RgtApp(lambda: FakeFleet(FleetState((bare,), (), NOW))).run_test(
        size=(80, 24)
    ) as pilot:
        screen = await opened(pilot)
        await pilot.press("g")
        await settle(pilot)
        assert "has logged a point yet" in text_of(screen.query_one(MetricGrid).shown_lines[0])
        await pilot.press("j", "right", "enter")


@pytest.mark.parametrize(
    ("count", "size", "made"),
    [(4, (120, 30), (2, 2)), (4, (80, 20), (2, 2)), (1, (200, 50), (1, 1)), (9, (60, 20), (1, 2)),
     (5, (200, 50), (3, 2)), (6, (120, 30), (3, 2)), (3, (200, 20), (3, 1)), (0, (20, 4), (1, 1)), (1, (0, 0), (1, 1))],
)  # fmt: skip
def test_as_many_plots_as_fit(count: int, size: tuple[int, int], made: tuple[int, int]) -> None:
    assert choose_grid(count, *size) == made


async def test_every_number_in_the_grid_has_a_name_above_it() -> None:
    async with running(size=(120, 34), keys=("c", "g")) as (app, _, __):
        grid = app.screen.query_one(MetricGrid)
        board = next(iter(grid._boards.values()))
        assert len(board.runs) > 1
        first = grid.shown_lines[0]
        below = "\n".join(text_of(row) for row in grid.shown_lines[1:])
        for each in board.runs:
            number = run_tag(board.run_number(each.key))
            assert f"{number} {each.run.name}" in text_of(first) and number in below
            assert curve_tone(board.run_number(each.key)) in {
                span.tone for span in first if number in span.text
            }


def test_names_that_do_not_fit_are_counted() -> None:
    board = Board()
    runs = [ShownRun("lab", RunState(name=f"a-long-name-{place}")) for place in range(9)]
    board.update(runs, PlotSettings(), None)
    made = run_names(board, 60)
    assert width_of(made) == 60 and " more" in text_of(made) and "1 a-long-name-0" in text_of(made)
    assert text_of(run_names(board, 400)).count("a-long-name") == 9


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (7680.0, "7,680"),
        (-41_200.4, "-41,200"),
        (1.2844, "1.284"),
        (math.nan, "NaN"),
        (2e6, "2.0e6"),
    ],
)
def test_a_value_in_the_grid_has_as_many_decimals_as_mean_something(
    value: float, told: str
) -> None:
    assert format_newest(value).replace("+", "") == told
