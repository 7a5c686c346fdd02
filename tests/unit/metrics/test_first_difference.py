"""The first step at which two curves differ by more than their noise."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec.structs import replace

from rgt_tui.cli import curves
from rgt_tui.model import RunResume, RunState, Series
from rgt_tui.ui import circumstances_of
from rgt_tui.ui.plot import find_first_difference
from tests.ui.boxes import running_box

COUNT = 2000
LEVEL = 4 * np.exp(-np.arange(COUNT) / 500) + 1


def curve(seed: int, noise: float = 0.05) -> np.ndarray:
    return LEVEL + noise * np.random.default_rng(seed).standard_normal(COUNT)


def series(values: np.ndarray, every: int = 1) -> Series:
    return Series([every * place for place in range(len(values))], [float(y) for y in values])


@pytest.mark.parametrize("seed", range(10))
def test_other_seeds_alone_are_no_difference(seed: int) -> None:
    assert find_first_difference(series(curve(seed)), series(curve(seed + 100))) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_lasting_shift_is_found_where_it_begins(seed: int) -> None:
    shifted = curve(seed + 100)
    shifted[1000:] += 0.2
    found = find_first_difference(series(curve(seed)), series(shifted))
    assert found is not None and abs(found.step - 1000) <= 3


def test_runs_that_agreed_exactly_differ_at_the_first_other_value() -> None:
    one, two = curve(1), curve(1)
    two[700:] = curve(2)[700:]
    found = find_first_difference(series(one), series(two))
    assert found is not None and (found.step, found.equal_steps, found.noise) == (700, 700, 0.0)
    assert found.values == (one[700], two[700])


def test_rounding_is_no_difference() -> None:
    one = curve(1)
    assert find_first_difference(series(one), series(np.round(one, 3))) is None
    assert find_first_difference(series(one), series(one)) is None


def test_only_common_steps_count_and_the_last_value_of_a_step() -> None:
    one, two = series(curve(1)), series(curve(1)[:1000], every=2)
    found = find_first_difference(one, two)
    assert found is not None and found.step % 2 == 0
    resumed = Series([0, 1, 2, 1, 2], [9.0, 9.0, 9.0, 1.0, 1.0])
    assert find_first_difference(resumed, Series([1, 2], [1.0, 1.0])) is None


def test_values_that_are_no_numbers_are_left_out() -> None:
    one, two = curve(1), curve(1)
    two[5] = np.nan
    assert find_first_difference(series(one), series(two)) is None


def test_without_a_common_step_it_says_so() -> None:
    with pytest.raises(ValueError, match="in common"):
        find_first_difference(Series([1], [1.0]), Series([2], [1.0]))


def test_the_command_prints_the_step_and_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    box = running_box("autodl-demo")
    values = curve(1)
    other = values.copy()
    other[700:] += 1.0
    one = RunState("a", series={"loss": series(values)})
    two = RunState("b", series={"loss": series(other)}, resumes=(RunResume(320, "SIGTERM", 320),))
    elsewhere = replace(box, spec=replace(box.spec, name="lab"))
    assert curves.compare_runs((box, one), (elsewhere, two), "loss", as_json=False) == 0
    text = capsys.readouterr().out
    assert "differ from step 700 on" in text and "resumed no" in text and "320 (SIGTERM)" in text
    assert curves.compare_runs((box, one), (elsewhere, two), "loss", as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["boxes"]) == (700, ["autodl-demo", "lab"])
    assert found["differences"]["resumed"] == ["no", "320 (SIGTERM)"]
    with pytest.raises(ValueError, match="no series"):
        curves.compare_runs((box, one), (box, two), "lr", as_json=False)


def test_where_a_run_ran_is_part_of_what_can_differ() -> None:
    box = running_box("autodl-demo")
    known = circumstances_of(box, box.runs[0])
    assert {"GPU", "platform", "box", "resumed"} <= set(known)
