"""NaN and loss spikes: what is skipped, where it began, when the run goes back, and that all of it is deterministic."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError, exits, guards
from rgt_train.data.position import Progress, merged
from rgt_train.guards import NEW_LEVEL, GuardRules, StepGuard, nonfinite
from rgt_train.tracking.report import RunReport

from tests.process.train.harness import Zygote, assert_same, events, final_state, losses, metrics


def guard(tmp_path: Path, progress: Progress, **rules: object) -> StepGuard:
    return StepGuard(RunReport(tmp_path), progress, GuardRules(**rules))  # type: ignore[arg-type]


def calm(count: int) -> list[float]:
    draw = random.Random(0)
    return [2.0 + 0.05 * draw.gauss(0, 1) for _ in range(count)]


def test_a_step_that_is_not_finite_is_skipped_and_some_in_a_row_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(step=7, done_steps=3)
    judge = guard(tmp_path, progress, max_bad_steps=2)
    assert judge.is_healthy(1.0, 1.0)
    assert not judge.is_healthy(math.nan, 1.0)
    assert judge.is_healthy(1.0, 1.0)
    assert not judge.is_healthy(1.0, math.inf)
    with pytest.raises(exits.TrainingStop) as caught:
        judge.is_healthy(math.nan, math.nan)
    assert (caught.value.code, progress.bad_row, progress.bad_total) == (exits.FAILED, 2, 3)
    assert (
        "step 8 skipped: loss nan, gradient norm 1.0 (epoch 1, step 4 of it; 1 in a row"
        in capsys.readouterr().out
    )


class TestCulprit:
    def model(self) -> tuple[Any, torch.optim.SGD]:
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        groups: list[dict[str, Any]] = [
            {"params": list(model[0].parameters()), "name": "stem"},
            {"params": list(model[1].parameters())},
        ]
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        return model, torch.optim.SGD(groups, lr=0.1)

    def test_all_is_well(self) -> None:
        model, optimizer = self.model()
        assert nonfinite({"model": model}, optimizer) == ""

    def test_the_gradient_nearest_to_the_loss(self) -> None:
        model, optimizer = self.model()
        for parameter in (model[0].weight, model[0].bias):
            assert parameter.grad is not None
            parameter.grad.view(-1)[:2] = math.nan
        assert nonfinite({"model": model}, optimizer) == (
            "2 of 4 gradients are not finite, nearest to the loss is 0.bias of parameter group 0 (stem) "
            "(2 NaN and 0 infinite of 4)"
        )

    def test_all_gradients(self) -> None:
        model, optimizer = self.model()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.fill_(math.inf)
        assert "all 4 gradients are not finite (from the loss on, or clipped before" in nonfinite(
            {"model": model}, optimizer
        )

    def test_a_weight_comes_first(self) -> None:
        model, optimizer = self.model()
        with torch.no_grad():
            model[1].weight[0, 0] = math.nan
        assert nonfinite({"a": model, "b": torch.nn.Linear(1, 1)}, optimizer) == (
            "1 of 6 weights are not finite, the first is a.1.weight of parameter group 1 (1 NaN and 0 infinite of 8)"
        )


class TestSpike:
    def test_nothing_is_judged_before_there_is_a_history(self) -> None:
        assert guards.find_spike(calm(guards.ENOUGH - 1), 100.0, 10.0) is None

    def test_noise_is_none_and_a_jump_is_one(self) -> None:
        losses = calm(64)
        assert all(guards.find_spike(losses[:k], losses[k], 10.0) is None for k in range(24, 64))
        found = guards.find_spike(losses, 3.0, 10.0)
        assert found is not None
        assert found.median == pytest.approx(2.0, abs=0.05)
        assert "spreads above the median" in str(found)

    def test_a_loss_that_falls_is_none(self) -> None:
        assert guards.find_spike([10.0 / (k + 1) for k in range(40)], 0.01, 10.0) is None

    def test_a_calm_stretch_does_not_make_a_ripple_a_spike(self) -> None:
        assert guards.find_spike([2.0] * 40, 2.1, 10.0) is None
        assert guards.find_spike([2.0] * 40, 2.3, 10.0) is not None

    def test_an_outlier_in_the_history_does_not_hide_the_next(self) -> None:
        assert guards.find_spike([*calm(40), 50.0, 50.0], 50.0, 10.0) is not None


class TestActions:
    def test_warn_applies_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        progress = Progress(step=40, recent=calm(40))
        assert guard(tmp_path, progress, spike="warn").is_healthy(9.0, 1.0)
        assert "step 41: loss 9.0000 is" in capsys.readouterr().out
        assert metrics(tmp_path)[0]["action"] == "warn"

    def test_ignore_says_nothing(self, tmp_path: Path) -> None:
        assert guard(tmp_path, Progress(recent=calm(40)), spike="ignore").is_healthy(9.0, 1.0)
        assert metrics(tmp_path) == []

    def test_skip_leaves_the_history_alone_and_a_new_level_is_accepted(
        self, tmp_path: Path
    ) -> None:
        progress = Progress(recent=calm(40))
        judge = guard(tmp_path, progress, spike="skip")
        before = list(progress.recent)
        verdicts = [judge.is_healthy(9.0, 1.0) for _ in range(NEW_LEVEL)]
        assert verdicts == [False] * (NEW_LEVEL - 1) + [True]
        assert before != progress.recent == [9.0]

    def test_rollback_names_the_window(self, tmp_path: Path) -> None:
        progress = Progress(step=40, recent=calm(40))
        judge = guard(tmp_path, progress, spike="rollback", spike_window=3)
        asked: list[tuple[int, int]] = []

        def go_back(first: int, last: int) -> bool:
            asked.append((first, last))
            return True

        judge.go_back = go_back
        with pytest.raises(guards.RollbackStop) as caught:
            judge.is_healthy(9.0, 1.0)
        assert asked == [(39, 41)]
        assert caught.value.code == exits.PREEMPTED

    def test_no_way_back_is_a_skip_and_too_many_stop(self, tmp_path: Path) -> None:
        progress = Progress(step=40, recent=calm(40))
        judge = guard(tmp_path, progress, spike="rollback", max_rollbacks=1)
        assert not judge.is_healthy(9.0, 1.0)
        progress.left_out = [[3, 4]]
        with pytest.raises(exits.TrainingStop) as caught:
            judge.is_healthy(9.0, 1.0)
        assert caught.value.code == exits.FAILED

    def test_an_unknown_action_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="spike is 'panic': use ignore, warn, skip, rollback"):
            guard(tmp_path, Progress(), spike="panic")


def test_ranges_are_kept_once() -> None:
    assert merged([[5, 6]], [(1, 2), (5, 6)]) == [[1, 2], [5, 6]]


def test_a_decision_that_cannot_be_read_stops_the_launch(tmp_path: Path) -> None:
    (tmp_path / guards.LEFT_OUT_FILE).write_text("{")
    with pytest.raises(UsageError, match="lists the steps that are left out"):
        guards.read_left_out(tmp_path)


SPIKY = '''
import os, sys, torch
from rgt_train import Options, Run
from rgt_train.guards import until_done

POISON = 333

def main():
    torch.manual_seed(1)
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(480, 6, generator=draw); y = x @ torch.randn(6, 1, generator=draw)
    y[POISON] += 4000.0
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run = Run("run", model=model, optimizer=optimizer, samples=480, batch_size=4, epochs=2, seed=11,
              options=Options(save_every=7, keep=4, spike="rollback", spike_window=2))
    with run:
        for epoch in run.epochs():
            for batch in run.batches():
                assert run.progress.step + 1 not in (KILL_AT), os.kill(os.getpid(), 9)
                loss = ((model(x[batch]) - y[batch]) ** 2).mean()
                optimizer.zero_grad(); loss.backward()
                if run.healthy(loss.item()):
                    optimizer.step()
                run.step(loss.item())
until_done(main)
'''  # fmt: skip


def spiky(place: Path, kill_at: str = "") -> Path:
    place.mkdir(exist_ok=True)
    (place / "train.py").write_text(SPIKY.replace("KILL_AT", kill_at))
    return place / "train.py"


def test_a_rollback_is_deterministic_and_survives_kills(trainers: Zygote, tmp_path: Path) -> None:
    plain = trainers.launch_script(spiky(tmp_path / "plain"))
    assert plain.wait() == 0, plain.text()
    assert "going back, leaving out steps" in plain.text()
    told = [e for e in events(tmp_path / "plain/run", "spike") if e["action"] == "rollback"]
    assert told, plain.text()
    first, last = told[0]["first"], told[0]["step"]
    assert last == first + 1
    left_out = {e["step"] for e in events(tmp_path / "plain/run", "left-out")}
    assert {first, last} <= left_out
    # Killed before the spike, just behind the gap, and much later; each relaunch is the identical command.
    for number, at in enumerate((first - 3, last + 1, last + 15)):
        died = trainers.launch_script(spiky(tmp_path / "killed", f"{at},"))
        assert died.wait() == -9, (number, died.text())
    again = trainers.launch_script(spiky(tmp_path / "killed"))
    assert again.wait() == 0, again.text()
    wanted, got = (
        final_state(tmp_path / "plain/run", 240),
        final_state(tmp_path / "killed/run", 240),
    )
    assert_same(got[0], wanted[0])
    assert_same(got[1]["objects"], wanted[1]["objects"])
    assert got[1]["progress"] == wanted[1]["progress"]
    assert [first, last] in got[1]["progress"]["left_out"]

    def trained(out: Path) -> dict[int, float]:
        return {step: loss for step, loss in losses(out).items() if step not in left_out}

    assert trained(tmp_path / "killed/run") == trained(tmp_path / "plain/run")
