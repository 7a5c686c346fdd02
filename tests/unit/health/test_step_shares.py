"""What the trainer measured of its own steps decides; what is no such pair says nothing."""

from __future__ import annotations

import math

import pytest

from rgt_tui.health.rows.conditions_gpu import DATA, TALK, measure_step_share
from rgt_tui.model import RunState, Series


def logged(**curves: list[float]) -> RunState:
    named = {
        name.replace("__", "/"): Series(list(range(len(ys))), ys) for name, ys in curves.items()
    }
    return RunState("a", series=named)


@pytest.mark.parametrize(
    ("curves", "percent"),
    [
        ({"data_time": [0.2] * 10, "step_time": [0.5] * 10}, 40.0),
        ({"data_time": [0.1] * 20, "time": [0.5] * 20}, 20.0),
        ({"train__data_time": [0.1] * 20, "train__time": [0.4] * 20}, 25.0),
        ({"data_time": [9.0] * 50 + [0.1] * 50, "step_time": [9.0] * 50 + [0.4] * 50}, 25.0),
        ({"data_time": [math.nan] * 5 + [0.1] * 12, "step_time": [0.4] * 17}, 25.0),
        ({"data_time": [0.2] * 9, "step_time": [0.5] * 9}, None),
        ({"data_time": [0.2] * 30}, None),
        ({"step_time": [0.2] * 30}, None),
        ({"data_time": [0.6] * 30, "step_time": [0.5] * 30}, None),
        ({"data_time": [-0.1] * 30, "step_time": [0.5] * 30}, None),
        ({"data_time": [0.0] * 30, "step_time": [0.0] * 30}, None),
        ({"data_time": [math.inf] * 30, "step_time": [0.5] * 30}, None),
    ],
)
def test_the_share_of_a_step(curves: dict[str, list[float]], percent: float | None) -> None:
    found = measure_step_share(logged(**curves), DATA)
    assert (None if found is None else found.percent) == (
        None if percent is None else pytest.approx(percent)
    )
    assert measure_step_share(logged(**curves), TALK) is None
