"""Curves side by side: boxes, a pinned run, axes that runs log, evaluations; to the log at a step, and from a spot."""

from __future__ import annotations

import math

import msgspec
import pytest
from rgt_wire.metric_roles import best_is_highest

from rgt_tui.model import (
    EPOCH,
    TIME,
    BoxState,
    FleetState,
    FoundRun,
    RunState,
    ScreenPosition,
    Series,
    clean_decoded,
)
from rgt_tui.ui import RgtApp, list_differences, options_of, settings_of
from rgt_tui.ui.plot import RunKey, XAxis
from rgt_tui.ui.screens import CurvesScreen, listed_runs
from rgt_tui.ui.widgets import CurveLegend, EventLine, text_of
from tests.ui.fakes import NOW, FakeFleet, curve, running_box, trouble_box, warn_box
from tests.ui.snap import resize, settle, until
from tests.ui.test_curves import BOX, box_with_history, header, legend, opened, plot, runs_of


def placed(run: RunState, *, start: float, seconds: float = 1.0) -> RunState:
    """Return the run with a time and an epoch at each of its points, and with evaluations."""
    steps = [x for x, _ in run.series["loss"]]
    more = {
        TIME: Series().with_points([(x, start + x * seconds) for x in steps]),
        EPOCH: Series().with_points([(x, x / 1000) for x in steps]),
        "val_loss": Series().with_points([(x, 3.3) for x in steps if x % 500 == 250]),
        "train/num_tokens": Series().with_points([(x, x * 4096.0) for x in steps]),
    }
    return msgspec.structs.replace(run, series={**run.series, **more})


def fleet_of(*boxes: BoxState) -> FakeFleet:
    return FakeFleet(FleetState(boxes, (), NOW))


def timed_box() -> BoxState:
    box = box_with_history()
    a, b, c = box.runs
    return msgspec.structs.replace(
        box, runs=(placed(a, start=NOW - 9000), placed(b, start=NOW - 6500, seconds=0.5), c)
    )


def axis(screen: CurvesScreen) -> XAxis:
    return screen.settings.axis


def said(screen: CurvesScreen) -> str:
    return text_of(screen.query_one(EventLine).shown_lines[0])


async def test_the_x_axis_counts_what_the_runs_log() -> None:
    async with RgtApp(lambda: fleet_of(timed_box())).run_test(size=(140, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("j", "left_square_bracket", "left_square_bracket")
        step = screen.settings.pinned
        assert step is not None
        await pilot.press("x")
        assert axis(screen) is XAxis.EPOCH
        assert screen.settings.pinned == pytest.approx(step / 1000)
        assert "x epoch" in header(screen)
        assert "2 of 3 runs" in header(screen)
        assert "no epoch" in legend(screen)
        await pilot.press("x")
        assert axis(screen) is XAxis.SINCE
        assert screen.plot_widget.drawn_frame is not None
        assert screen.plot_widget.drawn_frame.window == (0.0, 2400.0)
        assert "35m" in plot(screen)
        assert "at time since its start" in legend(screen)
        await pilot.press("x")
        assert axis(screen) is XAxis.CLOCK
        assert screen.plot_widget.drawn_frame is not None
        assert screen.plot_widget.drawn_frame.window == (NOW - 9000, NOW - 5300)
        await pilot.press("x")
        assert axis(screen) is XAxis.TOKENS
        assert screen.settings.pinned == pytest.approx(step * 4096)
        await pilot.press("plus", "right_square_bracket", "0", "x")
        assert axis(screen) is XAxis.STEP
        assert screen.settings.pinned is not None


async def test_an_axis_that_nobody_logs_is_named_and_passed_over() -> None:
    async with RgtApp(lambda: fleet_of(box_with_history())).run_test(size=(140, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("x")
        assert axis(screen) is XAxis.STEP
        for word in ("epoch", "time", "tokens"):
            assert word in said(screen)


async def test_runs_of_several_boxes_and_a_pinned_one() -> None:
    mine, other = box_with_history(), trouble_box()
    async with RgtApp(lambda: fleet_of(mine, other, warn_box())).run_test(size=(140, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("R")
        assert "select a run to pin" in said(screen)
        await pilot.press("j", "R", "B")
        assert screen.settings.reference == RunKey(BOX, "gpt-a")
        assert "6 of 6 runs of 3 boxes" in header(screen)
        assert "pinned gpt-a" in header(screen)
        assert "autodl-demo gpt-a" in legend(screen)
        assert "vast-demo lstm-b" in legend(screen)
        assert "config gpt-a.toml → lst" in legend(screen)
        numbers = {key: screen.board.run_number(key) for key in screen.board.shown_runs}
        await pilot.press("b")
        await settle(pilot)
        for _ in "*":
            await pilot.press("backspace")
        await pilot.press(*"vast*", "enter")
        await until(pilot, lambda: "5 of 5 runs of 2 boxes" in header(screen))
        assert all(screen.board.run_number(key) == numbers[key] for key in screen.board.shown_runs)
        await pilot.press("B", "R")
        assert screen.scope == ()
        assert screen.settings.reference is None
        assert "3 of 3 runs" in header(screen)


async def test_the_average_over_seeds_replaces_the_shown_runs() -> None:
    losses = {f"s{number}": [3.0 + number, 2.0 + number, 1.0 + number] for number in range(5)}
    box = runs_of(**losses)
    short = msgspec.structs.replace(box.runs[4], series={"loss": curve(1), "lr": curve(2)})
    fleet = fleet_of(msgspec.structs.replace(box, runs=(*box.runs[:4], short)))
    async with RgtApp(lambda: fleet).run_test(size=(150, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("j", "space", "S")
        assert [each.run.name for each in screen.board.runs] == ["IQM", "mean", "low", "high"]
        assert "over 4 runs" in header(screen), "the hidden run does not count"
        assert "band 95% bootstrap" in header(screen)
        assert "of 2: s4 ends there" in header(screen)
        assert "IQM" in legend(screen)
        await pilot.press("m")
        assert screen.settings.metric == "lr", "the metrics of the runs, not of the average"
        assert "two runs or more" not in header(screen)
        assert [each.run.name for each in screen.board.runs] == list(losses), "only one has it"
        await pilot.press("m", "S", "S")
        await pilot.press("S")
        assert "4 of 5 runs" in header(screen)


async def test_one_run_has_no_average() -> None:
    async with RgtApp(lambda: fleet_of(runs_of(only=[1.0, 2.0]))).run_test(size=(140, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("S")
        assert "two runs or more" in said(screen)
        assert [each.run.name for each in screen.board.runs] == ["only"]


async def test_the_pinned_run_stays_the_reference_on_the_curves_of_other_boxes() -> None:
    mine, other = box_with_history(), trouble_box()
    app = RgtApp(lambda: fleet_of(mine, other))
    async with app.run_test(size=(140, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("j", "R", "s", "space", "q")
        await settle(pilot)
        app.open_screen("curves", "vast-demo")
        await settle(pilot)
        other_screen = app.screen
        assert isinstance(other_screen, CurvesScreen)
        screen = other_screen
        assert screen.settings.reference == RunKey(BOX, "gpt-a") and screen.settings.smooth == 0.6
        assert set(screen.board.shown_runs) == {
            RunKey(BOX, "gpt-a"), *(RunKey("vast-demo", run.name) for run in other.runs)
        }, "the reference alone comes from the other box, and is hidden no more"  # fmt: skip
        assert "pinned gpt-a" in header(screen) and "config gpt-a.toml → lst" in legend(screen)
        await pilot.press("B")
        assert "no other box" not in said(screen) and len(screen.board.shown_runs) == 5
        await pilot.press("B", "j", "R")
        await settle(pilot)
        assert screen.settings.reference != RunKey(BOX, "gpt-a")
        assert {key.box for key in screen.board.shown_runs} == {"vast-demo"}


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 34), (200, 50)], ids=str)
async def test_in_what_the_others_differ_from_the_pinned_run_is_always_said(
    size: tuple[int, int],
) -> None:
    mine, other = timed_box(), trouble_box()
    async with RgtApp(lambda: fleet_of(mine, other)).run_test(size=size) as pilot:
        screen = await opened(pilot)
        await pilot.press("j", "R", "B")
        await settle(pilot)
        assert screen.query_one(CurveLegend).brief < 2
        assert "config" in legend(screen)


async def test_a_box_that_is_alone_says_so() -> None:
    async with RgtApp(lambda: fleet_of(box_with_history())).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("B")
        assert "there is no other box" in said(screen)


async def test_enter_opens_the_log_at_the_step_of_the_crosshair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = RgtApp(lambda: fleet_of(timed_box()))
    opens: list[tuple[str, str | None, ScreenPosition | None]] = []
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        monkeypatch.setattr(app, "open_screen", lambda *of: opens.append(of))
        await pilot.press("enter")
        assert "put the crosshair on a step first" in said(screen)
        assert opens == []
        await pilot.press("j", "left_square_bracket", "left_square_bracket", "enter")
        ((place, box, spot),) = opens
        assert (place, box) == ("log", BOX)
        assert spot is not None
        assert (spot.run, spot.log) == ("gpt-a", "/jobs/demo/logs/gpt-a.log")
        assert spot.step is not None
        assert spot.at == pytest.approx(NOW - 9000 + spot.step)
        await pilot.press("j", "j", "enter")  # gpt-c ends at 655: a run that was there is taken
        assert opens[-1][2] is not None
        assert opens[-1][2].run == "gpt-a"
        await pilot.press("space", "v", "enter")
        assert "no shown run has that step" in said(screen)


@pytest.mark.parametrize(
    ("spot", "selected", "step"),
    [
        (ScreenPosition(run="gpt-b", step=700), "gpt-b", 700.0),
        (ScreenPosition(run="gpt-a", at=NOW - 9000 + 1234.4), "gpt-a", 1234.0),
        (ScreenPosition(at=NOW), "gpt-c", None),
        (ScreenPosition(run="nobody", step=3), None, None),
    ],
)
async def test_it_opens_at_a_spot(
    spot: ScreenPosition, selected: str | None, step: float | None
) -> None:
    app = RgtApp(lambda: fleet_of(timed_box()))
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: app.fleet is not None)
        app.open_screen("curves", BOX, spot)
        await until(
            pilot,
            lambda: isinstance(app.screen, CurvesScreen) and app.screen.fleet_state is not None,
        )
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, CurvesScreen)
        assert screen.spot is None
        assert (screen.selected.run if screen.selected else None) == selected
        assert screen.settings.pinned == step
        if selected is None:
            assert "no run nobody here" in said(screen)


async def test_evaluations_are_points_beside_the_loss_and_best_values_are_marked() -> None:
    async with RgtApp(lambda: fleet_of(timed_box())).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert plot(screen).count("○") >= 4
        assert plot(screen).count("★") == 3
        await pilot.press("V")
        assert plot(screen).count("○") == 0
        await pilot.press("m", "m", "V")
        assert "evaluations are drawn with the loss" in said(screen)
        assert plot(screen).count("★") == 0, (
            "nobody knows which end of a learning rate is the better one"
        )


async def test_the_table_at_the_crosshair_is_copied(state_home: object) -> None:
    app = RgtApp(lambda: fleet_of(timed_box()))
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("left_square_bracket")
        copied = screen.to_copy()
        assert copied is not None
        first, *rows = copied.text.splitlines()
        assert first == "loss at step 2,400"
        assert rows[0].split() == ["gpt-a", "1.632", "done", "2,400"]
        await pilot.press("y")
        assert "copied the values of the runs" in said(screen)
        await pilot.press("j", "R")
        await settle(pilot)
        compared = screen.to_copy()
        assert compared is not None
        rows = compared.text.splitlines()[1:]
        assert rows[0].endswith("pinned") and "→" in rows[1], "and in what the others differ"


async def test_the_legend_lies_where_no_curve_is_and_else_below() -> None:
    box = box_with_history()
    steady = Series().with_points([(s, 1.0 + s % 7) for s in range(3000)])
    noise = msgspec.structs.replace(
        box, runs=tuple(msgspec.structs.replace(run, series={"loss": steady}) for run in box.runs)
    )
    app = RgtApp(lambda: fleet_of(box))
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        drawn = screen.query_one(CurveLegend)
        assert not screen.has_class("below")
        assert screen.plot_widget.region.width == 120, "the plot has the whole width"
        assert drawn.region.right == screen.plot_widget.region.right
        app.fleet.push(FleetState((noise,), (), NOW))  # type: ignore[union-attr]
        app.tick(force=True)
        await settle(pilot)
        assert screen.has_class("below")
        assert drawn.region.y >= screen.plot_widget.region.bottom
        await pilot.press("L")
        await settle(pilot)
        for size in ((60, 20), (80, 24)):
            await resize(pilot, *size)
            await settle(pilot)
            assert drawn.region.y >= screen.plot_widget.region.bottom


def test_the_options_of_a_command() -> None:
    found = options_of(
        "python -m train --lr=3e-4 --batch-size 32 --fp16 model.seed=7 --note 'a b' -x"
    )
    assert found == {
        "lr": "3e-4",
        "batch": "32",
        "fp16": "on",
        "seed": "7",
        "note": "a b",
        "x": "on",
    }
    assert options_of("python 'unclosed --lr 1")["lr"] == "1"


def test_what_differs_is_short_and_what_matters_comes_first() -> None:
    one = {
        "config": "configs/a.toml",
        "seed": "1",
        "lr": "3e-4",
        "epochs": "4",
        "note": "x",
        "warm": "1",
    }
    other = {
        "config": "configs/b.toml",
        "seed": "2",
        "lr": "0.0003",
        "epochs": "8",
        "note": "y",
        "warm": "2",
    }
    assert list_differences(one, other) == (
        "seed 1 → 2", "epochs 4 → 8", "note x → y", "2 more differ",
    )  # fmt: skip
    config = {"config": "configs/a.toml"}, {"config": "configs/b.toml", "lr": "1"}
    assert list_differences(*config) == ("config a.toml → b.toml", "lr – → 1"), (
        "what one of them does not tell is last"
    )
    assert list_differences(
        {"data": "/mnt/one/of/the/datasets/train.bin"}, {"data": "/mnt/x/train.bin"}
    ) == ("data …/the/datasets/train.bin → /mnt/x/train.bin",), "a path keeps its end"
    assert list_differences(one, one) == ()
    assert list_differences({"lr": "1e-3"}, {}) == ("lr 1e-3 → –",)
    assert list_differences(clean_decoded({"a": "\x1b[31mred"}), {"a": "x" * 99})[0].isprintable()


def test_what_a_found_run_was_started_with() -> None:
    found = FoundRun(name="t", pid=1, started=0.0, command="python train.py --seed 3 --lr 1e-3")
    box = msgspec.structs.replace(running_box(), found=(found,))
    run = RunState(
        "t/sub", series={"lr": Series().with_points([(0, 1e-5), (1, 1e-3), (2, math.nan)])}
    )
    assert settings_of(box, run) == {"seed": "3", "lr": "1e-3"}
    assert settings_of(None, run)["peak lr"] == "0.001"


def test_what_the_config_of_a_cell_says() -> None:
    box = running_box()
    (queue,) = box.queues
    cells = tuple(
        msgspec.structs.replace(cell, told={"lr": lr, "seed": "1"})
        for cell, lr in zip(queue.cells, ("3e-4", "1e-3", "1e-3", "1e-3"), strict=True)
    )
    box = msgspec.structs.replace(box, queues=(msgspec.structs.replace(queue, cells=cells),))
    one, other = (settings_of(box, run) for run in box.runs[:2])
    assert list_differences(one, other)[:2] == ("lr 3e-4 → 1e-3", "config gpt-a.toml → gpt-b.toml")


def test_of_too_many_runs_those_are_listed_that_moved_last() -> None:
    box = running_box()
    runs = tuple(RunState(f"r{n}", progressed_at=NOW + n) for n in range(250))
    kept, left_out = listed_runs([msgspec.structs.replace(box, runs=runs)], BOX)
    assert (len(kept), left_out) == (200, 50)
    assert kept[0].run.name == "r50"


@pytest.mark.parametrize(
    ("metric", "highest"),
    [
        ("loss", False),
        ("train/val_loss", False),
        ("eval_accuracy", True),
        ("lr", None),
        ("map_size_x", None),
    ],
)
def test_which_end_of_a_metric_is_the_better_one(metric: str, highest: bool | None) -> None:
    assert best_is_highest(metric) is highest
