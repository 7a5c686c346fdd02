"""How often to save, and how often failures are expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from rgt_train.cadence import (
    ASSUMED,
    CEILING_S,
    FLOOR_S,
    FailureRate,
    SaveCadence,
    assumed_mtbf,
    daly_interval_s,
)
from rgt_train.tracking.run_log import RunLog

RARE = FailureRate(4 * 3600.0)


@pytest.mark.parametrize(("mtbf_min", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_figures_of_daly(mtbf_min: float, minutes: float) -> None:
    found = daly_interval_s(5 * 60, mtbf_min * 60) / 60
    assert found == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


def test_limits() -> None:
    assert daly_interval_s(100, 40) == 40
    with pytest.raises(ValueError, match="positive"):
        daly_interval_s(0, 1)


def test_fixed_steps_are_multiples() -> None:
    cadence = SaveCadence(10, RARE)
    assert [step for step in range(1, 41) if cadence.is_due(step, 0)] == [10, 20, 30, 40]
    assert cadence.current_interval().reason == "every 10 steps, as asked"
    assert SaveCadence(1, RARE).current_interval().reason == "every 1 step, as asked"


def test_chosen_from_what_the_training_feels() -> None:
    cadence = SaveCadence(0, RARE)
    assert cadence.current_interval().steps == 10
    cadence.measured_step(0.5)
    cadence.measured_save(2.0, durable_s=5.0)
    choice = cadence.current_interval()
    assert choice.steps == round(daly_interval_s(2.0, 4 * 3600) / 0.5)
    assert "2000 ms" in choice.reason
    assert not cadence.is_due(choice.steps, 1)
    assert cadence.is_due(choice.steps + 1, 1)


@pytest.mark.parametrize(
    ("seconds", "steps"), [(0.5, 10), (89.0, 10), (100.0, 9), (600.0, 1), (5000.0, 1)]
)
def test_the_first_save_comes_within_the_ceiling(seconds: float, steps: int) -> None:
    cadence = SaveCadence(0, RARE)
    cadence.measured_step(seconds)
    assert cadence.is_due(steps, 0)
    assert not cadence.is_due(steps - 1, 0)


def test_an_interval_follows_slower_steps_and_each_save() -> None:
    """It is not chosen at each step, which takes as long as a third of the step's end."""
    cadence = SaveCadence(0, RARE)
    cadence.measured_step(0.001)
    assert not cadence.is_due(9, 0)
    for _ in range(3):
        cadence.measured_step(400.0)
    assert cadence.is_due(2, 0), "a step takes longer than the whole last second did"
    cadence.measured_save(0.5)
    assert cadence.is_due(10, 0) == (cadence.current_interval().steps <= 10)
    for _ in range(60):
        cadence.measured_step(0.01)
        assert cadence.is_due(10**6, 0)
    cadence.measured_save(0.0001, 0.01)
    steps = cadence.current_interval().steps
    assert (cadence.is_due(steps, 0), cadence.is_due(steps - 1, 0)) == (True, False)


def test_steps_that_were_all_made_beside_a_save_are_steps() -> None:
    cadence = SaveCadence(0, RARE)
    cadence.measured_step(300.0, saving=True)
    assert cadence.current_interval().steps == 3
    cadence.measured_save(60.0)
    cadence.measured_step(300.0, saving=True)
    assert cadence.current_interval().steps == 3
    assert "ceiling" in cadence.current_interval().reason


def test_slower_steps_during_a_write_count_and_a_wait_counts_once() -> None:
    cadence = SaveCadence(0, RARE)
    for _ in range(9):
        cadence.measured_step(0.5)
    for _ in range(4):
        cadence.measured_step(
            0.75, saving=True
        )  # one second in all, 0.3 of it waiting for the copy
    cadence.measured_save(0.4, durable_s=3.0, waited_s=0.3)
    assert cadence.current_interval().steps == round(daly_interval_s(0.1 + 1.0, 4 * 3600) / 0.5)
    cadence.measured_save(0.4, waited_s=0.3)  # nothing is left over for the next one
    assert "750 ms" in cadence.current_interval().reason


@pytest.mark.parametrize(
    ("cost", "mtbf", "write", "seconds", "word"),
    [
        (1e-5, 60.0, 0.0, FLOOR_S, "floor"),
        (900.0, 48 * 3600.0, 0.0, CEILING_S, "ceiling"),
        (0.1, 60.0, 25.0, 25.0, "a write takes 25 s"),
    ],
)
def test_floor_and_ceiling(
    cost: float, mtbf: float, write: float, seconds: float, word: str
) -> None:
    cadence = SaveCadence(0, FailureRate(mtbf))
    cadence.measured_step(0.1)
    cadence.measured_save(cost, write)
    assert cadence.current_interval().steps == round(seconds / 0.1)
    assert word in cadence.current_interval().reason


class TestLedger:
    def test_tells_the_end_of_the_last(self, tmp_path: Path) -> None:
        first = RunLog(tmp_path)
        assert (first.attempt, first.past.cause) == (1, None)
        first.record_start(0)
        first.record_alive(10)
        second = RunLog(tmp_path)
        assert (second.attempt, second.past.cause) == (2, "killed")
        second.record_start(10)
        second.record_end(20, "SIGTERM")
        (tmp_path / "ledger.jsonl").open("a").write("torn {\n[1]\n")
        assert RunLog(tmp_path).past.cause == "SIGTERM"

    def test_failures_weigh_against_the_prior(self, tmp_path: Path) -> None:
        prior = ASSUMED["rented"]
        nothing = RunLog(tmp_path).past.expected_failures(prior)
        assert nothing.mtbf_s == 3600 * prior.hours
        assert "assumed" in nothing.source
        lines = [
            '{"event": "start", "time": 0}', '{"event": "alive", "time": 7200}',
            '{"event": "start", "time": 8000, "nodes": 4}', '{"event": "end", "time": 11600, "cause": "SIGTERM"}',
            '{"event": "start", "time": 12000}', '{"event": "end", "time": 15600, "cause": "left early"}',
        ]  # fmt: skip
        (tmp_path / "ledger.jsonl").write_text("\n".join(lines) + "\n")
        past = RunLog(tmp_path).past
        assert (past.up_s, past.failures) == (7200 + 4 * 3600 + 3600, 2)
        expected = (3600 * prior.hours + past.up_s) / 3
        assert past.expected_failures(prior).mtbf_s == pytest.approx(expected)
        assert past.expected_failures(prior, nodes=8).mtbf_s == pytest.approx(expected / 8)

    def test_a_clock_that_stepped_back_counts_for_nothing(self, tmp_path: Path) -> None:
        lines = [
            '{"event": "start", "time": 9000000}',
            '{"event": "end", "time": 7, "cause": "SIGTERM"}',
        ]
        (tmp_path / "ledger.jsonl").write_text("\n".join(lines) + "\n")
        past = RunLog(tmp_path).past
        assert (past.up_s, past.failures) == (0.0, 1)
        assert SaveCadence(0, past.expected_failures(ASSUMED["owned"])).current_interval().steps > 0

    def test_the_prior_follows_the_platform(self) -> None:
        assert assumed_mtbf("spot") is ASSUMED["spot"]
        assert assumed_mtbf("", {"SLURM_JOB_ID": "7"}) is ASSUMED["batch"]
        assert assumed_mtbf("", {}) is ASSUMED["unknown"]
        with pytest.raises(ValueError, match="known are spot"):
            assumed_mtbf("moon")
