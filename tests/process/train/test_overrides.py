"""What a receipt says of optimizers, schedules and lost work: no more than was looked at."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import NotStarted, Options, Run
from rgt_train.tracking.run_log import AttemptHistory, RunLog

from tests.process.train.harness import Zygote, events

Say = Callable[[], str]
STEPS = 12


class Made:
    """What a launch makes before its run."""

    def __init__(self, **optimizer: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 3)
        kind = optimizer.pop("kind", torch.optim.SGD)
        groups = optimizer.pop("groups", self.model.parameters())
        self.optimizer = kind(groups, **{"lr": 0.1, **optimizer})
        self.parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}

    def schedule(self, kind: Any, *words: Any, **more: Any) -> Made:
        """Give it a schedule."""
        self.parts["scheduler"] = kind(self.optimizer, *words, **more)
        return self

    def train(self, out: Path, upto: int = STEPS, **options: Any) -> list[float]:
        """Train up to a step; return the learning rates of the steps."""
        rates: list[float] = []
        run = Run(
            out,
            **self.parts,
            samples=STEPS,
            epochs=1,
            options=Options(save_every=100, background=False, **options),
        )
        with run:
            for _ in run.epochs():
                for _ in run.batches():
                    rates.append(float(self.optimizer.param_groups[0]["lr"]))
                    self.optimizer.zero_grad()
                    self.model(torch.randn(2, 3)).square().mean().backward()
                    self.optimizer.step()
                    if "scheduler" in self.parts:
                        self.parts["scheduler"].step()
                    run.step(1.0)
                    if run.step_now == upto:
                        return rates  # leaves early, and saves
        return rates


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Say:
    """What was said of resumes since it was last asked for."""

    def lines() -> str:
        said = capsys.readouterr().out.splitlines()
        return "\n".join(line for line in said if line.startswith("resume:"))

    return lines


def halving(made: Made) -> Made:
    return made.schedule(torch.optim.lr_scheduler.StepLR, 2, gamma=0.5)


def test_an_edited_rate_does_not_win_and_is_told_at_each_resume(tmp_path: Path, told: Say) -> None:
    Made().train(tmp_path, 4)
    assert "resume" not in told()
    for at in (5, 6):
        assert Made(lr=0.01).train(tmp_path, at) == [0.1]
        said = told()
        assert (
            "resume: optimizer lr is 0.01 in the code now and was 0.1: the checkpoint's goes on "
            "(Options(override=('lr',)) takes the code's)" in said
        )
        assert "the same bits as far as given" in said
    assert Made().train(tmp_path, 7) == [0.1]
    assert "lr" not in told()


def test_an_override_is_taken_once_and_named(tmp_path: Path, told: Say) -> None:
    Made().train(tmp_path, 4)
    assert Made(lr=0.01, weight_decay=0.2).train(tmp_path, 5, override=("lr",)) == [0.01]
    said = told()
    assert "resume: optimizer lr overridden: 0.1 → 0.01" in said
    assert (
        "resume: optimizer weight_decay is 0.2 in the code now and was 0: the checkpoint's goes on"
        in said
    )
    assert "bits may differ from the uninterrupted run: optimizer lr overridden" in said
    made = Made(lr=0.01, weight_decay=0.2)
    made.optimizer.param_groups[0]["lr"] = 0.01
    assert made.train(tmp_path, 6, override=("lr",)) == [0.01]
    said = told()
    assert "overridden" not in said, "nothing was edited since"
    assert "weight_decay" in said


def test_a_rate_that_the_loop_has_lowered_is_not_raised_by_an_old_override(tmp_path: Path) -> None:
    Made().train(tmp_path, 4)
    made = Made(lr=0.05)
    made.train(tmp_path, 5, override=("lr",))
    made = Made(lr=0.05)
    run = Run(
        tmp_path,
        **made.parts,
        samples=STEPS,
        epochs=1,
        options=Options(save_every=100, background=False, override=("lr",)),
    )
    with run:
        for _ in run.epochs():
            made.optimizer.param_groups[0]["lr"] = 0.001
            run.step(1.0)
            break
    assert Made(lr=0.05).train(tmp_path, 7, override=("lr",)) == [0.001]


def test_an_overridden_rate_goes_on_in_its_schedule(tmp_path: Path, told: Say) -> None:
    plain = halving(Made()).train(tmp_path / "plain")
    assert plain[:6] == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]
    halving(Made()).train(tmp_path / "run", 3)
    rates = halving(Made(lr=0.2)).train(tmp_path / "run", override=("lr",))
    assert rates == pytest.approx([2 * rate for rate in plain[3:]])
    assert "resume: optimizer lr overridden: 0.1 → 0.2" in told()


@pytest.mark.parametrize("kind", ["lambda", "cosine", "sequential"])
def test_schedules_of_other_forms_take_the_rate_over(tmp_path: Path, kind: str) -> None:
    schedules = torch.optim.lr_scheduler

    def scheduled(made: Made) -> Made:
        if kind == "lambda":
            return made.schedule(schedules.LambdaLR, lambda step: 1 / (1 + step))
        if kind == "cosine":
            return made.schedule(schedules.CosineAnnealingLR, T_max=STEPS)
        parts = [
            schedules.ConstantLR(made.optimizer, 0.5, 3),
            schedules.ExponentialLR(made.optimizer, 0.8),
        ]
        return made.schedule(schedules.SequentialLR, parts, [5])

    plain = scheduled(Made()).train(tmp_path / "plain")
    assert len(set(plain)) > 2
    scheduled(Made()).train(tmp_path / "run", 3)
    rates = scheduled(Made(lr=0.3)).train(tmp_path / "run", override=("lr",))
    assert rates == pytest.approx([3 * rate for rate in plain[3:]])


def test_an_edited_schedule_is_told_and_may_be_taken(tmp_path: Path, told: Say) -> None:
    def milestones(*steps: int) -> Made:
        return Made().schedule(torch.optim.lr_scheduler.MultiStepLR, list(steps), gamma=0.5)

    milestones(4, 8).train(tmp_path, 2)
    assert milestones(6, 9).train(tmp_path, 6)[-1] == 0.05
    assert "resume: scheduler milestones is [6, 9] in the code now and was [4, 8]" in told()
    assert milestones(7, 9).train(tmp_path, 9, override=("milestones",)) == [0.05, 0.025, 0.025]
    assert "resume: scheduler milestones overridden: [4, 8] → [7, 9]" in told()


def test_another_schedule_is_named(tmp_path: Path, told: Say) -> None:
    halving(Made()).train(tmp_path, 3)
    Made().schedule(torch.optim.lr_scheduler.ExponentialLR, 0.9).train(tmp_path, 5)
    said = told()
    assert (
        "resume: scheduler is an ExponentialLR now, the checkpoint's is a StepLR: it took over what"
        in said
    )
    assert "bits may differ from the uninterrupted run: scheduler of another class" in said


def test_another_optimizer_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    Made(kind=torch.optim.RMSprop).train(tmp_path, 3)
    made = Made(kind=torch.optim.AdamW)
    before = made.model.weight.detach().clone()
    with pytest.raises(
        NotStarted,
        match=r"is the state of an RMSprop, this run has an AdamW: .*Launch with RMSprop",
    ):
        made.train(tmp_path)
    assert torch.equal(before, made.model.weight)
    assert len(Made(kind=torch.optim.RMSprop).train(tmp_path)) == STEPS - 3


def test_groups_that_differ_are_told_apart(tmp_path: Path, told: Say) -> None:
    def grouped(first: float, second: float) -> Made:
        made = Made()
        made.optimizer = torch.optim.SGD(
            [
                {"params": [made.model.weight], "lr": first},
                {"params": [made.model.bias], "lr": second},
            ]
        )
        made.parts["optimizer"] = made.optimizer
        return made

    grouped(0.1, 0.1).train(tmp_path, 2)
    made = grouped(0.1, 0.3)
    assert made.train(tmp_path, 3) == [0.1]
    assert made.optimizer.param_groups[1]["lr"] == 0.1
    assert "optimizer of group 1 lr is 0.3 in the code now and was 0.1" in told()
    made = grouped(0.1, 0.3)
    made.train(tmp_path, 4, override=("lr",))
    assert [group["lr"] for group in made.optimizer.param_groups] == [0.1, 0.3]
    made = grouped(0.3, 0.3)
    made.train(tmp_path, 5, override=("lr",))
    assert [group["lr"] for group in made.optimizer.param_groups] == [0.3, 0.3]
    assert "optimizer of group 0 lr overridden: 0.1 → 0.3" in told().splitlines()[-2]


def test_an_override_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(
        NotStarted, match=r"override: there is no 'rate'; known are .*\blr\b.*weight_decay"
    ):
        Made().train(tmp_path, override=("rate",))


def test_a_checkpoint_that_does_not_say_what_was_declared_is_loaded(tmp_path: Path) -> None:
    made = Made()
    made.train(tmp_path, 3)
    run = Run(
        tmp_path,
        **Made().parts,
        samples=STEPS,
        epochs=1,
        options=Options(log_every=0, background=False),
    )
    assert run._state.apply_overrides({}) == ([], [])
    run._state.refuse_other_classes({"sampler": run._state.sampler}, "there")
    run.close()


LOST = """
import os, sys
import torch
from rgt_train import Options, Run
model = torch.nn.Linear(1, 1)
options = Options(save_every=50, log_every=LOGGED, background=False, pace_s=0.012)
run = Run("run", model=model, samples=100, epochs=1, options=options)
with run:
    for _ in run.epochs():
        for _ in run.batches():
            run.step(1.0)
            if run.step_now == int(sys.argv[1]):
                END
"""


@pytest.mark.parametrize(
    ("logged", "end", "least", "told"),
    [
        (1, "os.kill(os.getpid(), 9)", 35, "work lost: 35 steps$"),
        (50, "os.kill(os.getpid(), 9)", 0, r"work lost: 0 to 49 steps \(one in 50 was noted\)$"),
        (20, "os.kill(os.getpid(), 9)", 30, r"work lost: 30 to 49 steps \(one in 20 was noted\)$"),
        (
            0,
            "os.kill(os.getpid(), 9)",
            0,
            r"work lost: at least 0 steps \(what came after step 50 was not noted\)$",
        ),
        (50, "raise ValueError('x')", 35, "work lost: 35 steps$"),
    ],
)
def test_lost_work_is_counted_as_far_as_it_is_known(
    trainers: Zygote, tmp_path: Path, logged: int, end: str, least: int, told: str
) -> None:
    (tmp_path / "train.py").write_text(LOST.replace("LOGGED", str(logged)).replace("END", end))
    first = trainers.launch_script(tmp_path / "train.py", "85")
    assert first.wait() in (-signal.SIGKILL, 1), first.text()
    again = trainers.launch_script(tmp_path / "train.py", "0")
    again.wait_line(r"resume: at step 50 of 100 .*" + told)
    assert again.wait() == 0
    assert events(tmp_path / "run", "resume")[0]["lost_steps"] == least


def test_lost_steps_of_lines_that_were_noted_together() -> None:
    past = AttemptHistory(attempts=1, step=40, log_every=1, together=16)
    assert past.describe_lost_steps(45, 40) == (
        5,
        "5 to 20 steps (16 were noted at a time)",
    )
    past = AttemptHistory(attempts=1, step=40, log_every=10, together=16)
    assert past.describe_lost_steps(60, 40) == (
        20,
        "20 to 179 steps (one in 10 was noted, 16 were noted at a time)",
    )
    told = AttemptHistory(attempts=1, step=40, log_every=1, together=16, told=True)
    assert told.describe_lost_steps(45, 40) == (5, "5 steps")


def test_a_ledger_of_an_earlier_version_counts_what_it_knows(tmp_path: Path) -> None:
    lines = [
        {"event": "start", "time": 1.0, "step": 5},
        {"event": "alive", "time": 2.0, "step": 40},
    ]
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert RunLog(tmp_path).past.describe_lost_steps(None, 30) == (
        10,
        "at least 10 steps (what came after step 40 was not noted)",
    )
    assert AttemptHistory().describe_lost_steps(None, 0) == (0, "0 steps")


def test_copied_logs_do_not_say_how_much_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 3720.0)
    past = AttemptHistory(attempts=1, cause="killed", step=40, log_every=1, copied_at=3000.0)
    told = "0 to unknown steps (the mirror's logs end 12 min before this launch)"
    assert past.describe_lost_steps(40, 40) == (0, told)
    assert replace(past, told=True).describe_lost_steps(40, 40) == (0, "0 steps"), (
        "its last line is its end"
    )
