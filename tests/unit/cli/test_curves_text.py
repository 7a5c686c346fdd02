"""Curves as text: which run, which series, what a pipe and a narrow locale get."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import msgspec
import pytest

from rgt_tui.cli import chosen_run, chosen_series, draw_plot, for_output
from rgt_tui.cli import curves as command_curves
from rgt_tui.cli.watch_arguments import CurvesArguments
from rgt_tui.model import BoxState, RunState, Series
from rgt_tui.ui.plot import metrics_of
from tests.unit.cli.test_status_line import box


def run(
    name: str = "gpt",
    last_at: float = 1.0,
    series: Mapping[str, list[float]] | None = None,
    **more: list[float],
) -> RunState:
    every = {**(series or {}), **more}
    curves = {key: Series(list(range(len(values))), values) for key, values in every.items()}
    return RunState(name=name, last_at=last_at, series=curves)


def test_the_run_that_wrote_last_is_meant() -> None:
    state = box(
        runs=(
            run("old", 1.0, loss=[1.0]),
            run("new", 2.0, loss=[1.0]),
            RunState(name="bare", last_at=9.0),
        )
    )
    assert chosen_run(state, None).name == "new"
    assert chosen_run(state, "old").name == "old"


def test_a_wrong_name_is_answered_with_those_there_are() -> None:
    state = box(runs=(run("a", loss=[1.0], lr=[0.1]),))
    with pytest.raises(LookupError, match="there are: a"):
        chosen_run(state, "b")
    with pytest.raises(LookupError, match="there are: loss, lr"):
        chosen_series(run(loss=[1.0], lr=[0.1]), ["nope"])
    with pytest.raises(LookupError, match="no run on it has a curve"):
        chosen_run(box(), None)


def test_losses_are_plotted_unless_others_are_named() -> None:
    found = run(lr=[0.1], val_loss=[2.0], loss=[1.0])
    assert chosen_series(found, None) == ["loss", "val_loss"]
    assert chosen_series(found, ["lr"]) == ["lr"]
    assert chosen_series(run(reward=[1.0]), None) == ["reward"]


def test_a_plot_fits_its_size_and_counts_what_it_leaves_out() -> None:
    text, left_out = draw_plot(run(loss=[3.0, math.nan, 2.0, math.inf, 1.0]), ["loss"], 60, 12)
    lines = for_output(text, "utf-8", colours=False).splitlines()
    assert left_out == 2
    assert len(lines) == 12
    assert max(map(len, lines)) <= 60
    assert "gpt: loss" in lines[0]
    assert any("\u2801" <= char <= "\u28ff" for line in lines for char in line)


def test_a_logarithmic_plot_leaves_out_what_is_not_positive() -> None:
    assert draw_plot(run(loss=[1.0, 0.0, -1.0, 10.0]), ["loss"], 60, 12, log=True)[1] == 2


def test_a_pipe_has_no_colours_and_a_narrow_locale_only_ascii() -> None:
    text, _ = draw_plot(run("evil\x1b[31m", loss=[3.0, 2.0, 1.0]), ["loss"], 60, 12)
    assert "\x1b" not in for_output(text, "utf-8", colours=False)
    assert for_output(text, "ANSI_X3.4-1968", colours=False).isascii()


def test_json_has_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command_curves._print_json(
            "lab", msgspec.structs.replace(run(loss=[3.0, math.nan])), ["loss"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {
        "box": "lab", "run": "gpt", "metric": "loss", "steps": [0, 1], "values": [3.0, "nan"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "values", [[1e308, -1e308, 3.0], [5e307, -5e307, 3.0], [1.7e308, 3.0], [-1e308, 1e-320]]
)
def test_values_near_the_end_of_what_a_float_holds_are_left_out(values: list[float]) -> None:
    run = RunState(name="a", series={"loss": Series(list(range(len(values))), values)})
    text, left_out = draw_plot(run, ("loss",), 60, 10)
    assert left_out == sum(abs(value) > 1e300 for value in values)
    assert "a: loss" in text


def seeds(*ends: int) -> dict[tuple[str, str], RunState]:
    """Runs whose loss is their number, up to a step."""
    return {
        ("lab", f"s{number}"): run(f"s{number}", loss=[float(number)] * (end + 1))
        for number, end in enumerate(ends)
    }


def test_an_average_over_seeds_names_its_rule_and_the_run_that_ends_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command_curves._print_average(
        seeds(9, 9, 4, 9, 9), "loss", CurvesArguments(width=60, height=10)
    )
    out, err = capsys.readouterr()
    assert "loss over 5 runs" in out
    assert "step 4: IQM 2, " in out
    assert "(95% bootstrap interval of the IQM), mean 2\n" in out
    assert "5 runs (s0, s1, s2, s3 and 1 more), steps 0 to 4 of 9: s2 ends there" in out
    assert not err
    command_curves._print_average(
        seeds(3, 3), "loss", CurvesArguments(width=60, height=10, band="range")
    )
    out, err = capsys.readouterr()
    assert "step 3: IQM 0.5, 0 to 1 (lowest and highest run), mean 0.5\n" in out
    assert "2 runs are few: report 5 seeds or more" in err


def test_an_average_as_json_has_all_its_curves(capsys: pytest.CaptureFixture[str]) -> None:
    command_curves._print_average(seeds(1, 1, 1), "loss", CurvesArguments(json=True, band="std"))
    assert json.loads(capsys.readouterr().out) == {
        "boxes": ["lab"], "runs": ["s0", "s1", "s2"], "metric": "loss", "band": "std",
        "steps": [0, 1], "iqm": [1.0, 1.0], "mean": [1.0, 1.0], "low": [0.0, 0.0], "high": [2.0, 2.0],
    }  # fmt: skip
    with pytest.raises(ValueError, match="it takes two runs"):
        command_curves._print_average(seeds(1), "loss", CurvesArguments())


async def test_brackets_in_the_name_of_a_run_are_no_pattern(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("lr[0.1]-s0", "lr[0.1]-s1", "lr0-s0", "lr.-s1")
    state = box(runs=tuple(run(name, loss=[1.0, 2.0]) for name in names))

    async def gather(*_: object) -> tuple[BoxState, ...]:
        return (state,)

    monkeypatch.setattr(command_curves, "_gather_boxes", gather)
    found = CurvesArguments(box="lab", run="lr[0.1]-s?", metrics=[], json=True, band="std")
    assert await command_curves._print_over_seeds([], found) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == ["lr[0.1]-s0", "lr[0.1]-s1"]


PPO = {
    "lr": [3e-4],
    "approx_kl": [0.01],
    "entropy_loss": [-0.5],
    "ep_len_mean": [200.0],
    "ep_rew_mean": [21.0],
    "fps": [900.0],
    "policy_gradient_loss": [-0.01],
    "value_loss": [33.0],
}


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (PPO, ["ep_rew_mean", "entropy_loss", "policy_gradient_loss", "value_loss"]),
        ({"lr": [1.0], "episodic_return": [1.0]}, ["episodic_return"]),
        (
            {"loss": [1.0], "val_loss": [1.0], "lr": [1.0], "rollout/ep_rew_mean": [1.0]},
            ["rollout/ep_rew_mean", "loss", "val_loss"],
        ),
        ({"lr": [1.0], "loss": [1.0], "acc": [1.0]}, ["loss"]),
        ({"lr": [1.0], "grad_norm": [1.0], "mIoU": [1.0]}, ["mIoU"]),
        ({"lr": [1.0], "grad_norm": [1.0]}, ["lr"]),
        ({}, []),
    ],
)
def test_rewards_and_losses_are_plotted_first(
    series: dict[str, list[float]], expected: list[str]
) -> None:
    assert chosen_series(run(series=series), None) == expected


def test_the_screen_begins_with_them_too() -> None:
    assert metrics_of([run(series=PPO)])[:2] == ["ep_rew_mean", "entropy_loss"]
    assert metrics_of([run(lr=[1.0], loss=[1.0], acc=[1.0])]) == ["loss", "lr", "acc"]
