"""Between two steps: a signal in the validation, modes of modules, errors that only follow from a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, StopRequest, exits
from rgt_train.boundary import OptimizerHooks
from rgt_train.tracking.run_log import RunLog

from tests.process.train.harness import (
    TIMEOUT,
    Zygote,
    assert_same,
    checkpoint_of,
    events,
    final_state,
    losses,
    steps_kept,
)


def terminate() -> None:
    """Ask this process to end."""
    os.kill(os.getpid(), signal.SIGTERM)


def nothing(*_: object) -> None:
    """Do so."""


class Course:
    """A loop whose scheduler steps once an epoch, before the validation."""

    def __init__(self, out: Path) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.run = Run(
            out, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, samples=5, epochs=3,
            options=Options(save_every=100, log_every=0, background=False),
        )  # fmt: skip
        self.rates: list[float] = []

    def step(self) -> None:
        """One step."""
        loss = self.model(torch.rand(1, 3)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.rates.append(self.optimizer.param_groups[0]["lr"])

    def train(self, validation: Callable[[Course, int], None] = nothing) -> list[float]:
        """Train to the end; return the learning rates of the steps."""
        with self.run as run:
            for epoch in run.epochs():
                for _ in run.batches():
                    self.step()
                    run.step(1.0)
                torch.rand(2)
                self.scheduler.step()
                with run.evaluating():
                    validation(self, epoch)
                    run.check()
                run.validated(1.0 / (1 + epoch))
        return self.rates


def test_a_signal_in_the_validation_does_not_step_the_scheduler_twice(tmp_path: Path) -> None:
    plain = Course(tmp_path / "plain")
    rates = plain.train()
    assert rates == [0.1] * 5 + [0.05] * 5 + [0.025] * 5
    stopped = Course(tmp_path / "run")
    with pytest.raises(exits.TrainingStop):
        stopped.train(lambda _, epoch: terminate() if epoch == 1 else None)
    assert steps_kept(tmp_path / "run") == [10]
    assert stopped.optimizer.param_groups[0]["lr"] == 0.025, "only what is saved is as it was"
    again = Course(tmp_path / "run")
    assert again.train() == rates[10:]
    for left, right in zip(
        final_state(tmp_path / "run", 15), final_state(tmp_path / "plain", 15), strict=True
    ):
        assert_same(left, right)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
def test_a_signal_in_the_validation_of_a_resume_does_neither(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(exits.TrainingStop):
            Course(tmp_path).train(lambda _, epoch: terminate())
    assert Course(tmp_path).train()[0] == 0.05


def test_the_best_of_an_epoch_has_the_scheduler_of_its_step(tmp_path: Path) -> None:
    import json

    course = Course(tmp_path)
    course.train()
    document = json.loads((tmp_path / "best" / "state.json").read_text())
    assert "0.025" in json.dumps(document["objects"]["optimizer"]["param_groups"])
    assert document["progress"]["best"] == pytest.approx(1 / 3)


def test_a_sharded_save_has_the_learning_rates_of_the_step_too(tmp_path: Path) -> None:
    from rgt_train.ranks import sharded_state

    course = Course(tmp_path)
    with course.run:
        course.step()
        state = course.run._state
        state.keep_epoch_end()
        random = state.random_here()
        torch.rand(1)
        course.scheduler.step()
        taken = sharded_state.take_state(state)
        rates = [value for key, value in taken.plain.items() if key.endswith(".lr")]
        assert rates == [0.1] * 2
        assert taken.objects["scheduler"]["last_epoch"] == 0
        assert course.optimizer.param_groups[0]["lr"] == 0.05
        assert state.random_here() == random
        state.epoch_end = None
        assert sharded_state.take_state(state).objects["scheduler"]["last_epoch"] == 1


@pytest.mark.parametrize("how", ["counted", "by .data", "replaced"])
def test_weights_that_change_after_the_epoch_are_not_saved_as_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    def average(course: Course, epoch: int) -> None:
        weight = course.model.weight
        if how == "by .data":
            weight.data.mul_(0.5)
        elif how == "replaced":
            weight.data = weight.data * 0.5
        else:
            with torch.no_grad():
                weight.mul_(0.5)
        if epoch == 1:
            terminate()

    with pytest.raises(exits.TrainingStop):
        Course(tmp_path).train(average)
    assert steps_kept(tmp_path) == []
    told = capsys.readouterr().out
    assert (
        "step 10 is not saved: model/weight changed after the last step of the epoch; a relaunch does that"
        in told
    )


def test_leaving_in_the_middle_of_a_step_does_not_save_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = Course(tmp_path)
    with course.run as run:
        for _ in run.epochs():
            for _ in range(3):
                course.step()
                if run.step_now < 2:
                    run.step(1.0)
            break
    assert steps_kept(tmp_path) == []
    assert (
        "step 2 is not saved: an optimizer has changed weights without a run.step"
        in capsys.readouterr().out
    )


def test_between_the_optimizers_step_and_ours_nobody_stops(tmp_path: Path) -> None:
    course = Course(tmp_path)
    with pytest.raises(exits.TrainingStop), course.run as run:
        for _ in run.epochs():
            for _ in run.batches():
                course.step()
                terminate()
                run.check()
                run.step(1.0)
    assert steps_kept(tmp_path) == [1]


class Backbone(torch.nn.Linear):
    """A module that does more than set a flag when its mode changes."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.merged = False

    def train(self, mode: bool = True) -> Backbone:
        """Merge for evaluation."""
        self.merged = not mode
        super().train(mode)
        return self


def test_evaluating_leaves_the_mode_of_every_module(tmp_path: Path) -> None:
    nn = torch.nn
    backbone, frozen, other = Backbone(), nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(0.5))
    model = nn.Sequential(backbone, frozen, nn.Dropout(0.5))
    other.eval()
    run = Run(tmp_path, model={"a": model, "b": other}, samples=4, epochs=1)
    frozen.eval()
    with run, run.evaluating():
        assert [m.training for m in model.modules()] == [False] * 4
        assert backbone.merged
        other.train()
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert not other.training
    assert not other[0].training
    assert not backbone.merged


class TestHooks:
    def test_a_capturable_optimizer_may_change_weights_without_a_word(self) -> None:
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([weight])
        assert OptimizerHooks([optimizer], nothing).sees_all_changes
        optimizer.param_groups[0]["capturable"] = True
        hooks = OptimizerHooks([optimizer], nothing)
        assert not hooks.sees_all_changes
        assert "capturable" in hooks.silent[0]

    def test_a_captured_step_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        weight, calls = torch.nn.Parameter(torch.ones(2)), []
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.grad = torch.ones(2)
        hooks = OptimizerHooks(
            [optimizer], lambda: calls.append("before"), lambda: calls.append("captured")
        )
        optimizer.step()
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        for _ in range(2):
            optimizer.step()
        assert calls == ["before", "captured"]
        assert hooks.touched
        hooks.close()
        optimizer.step()
        assert calls == ["before", "captured"]


class TestSignals:
    def test_it_is_told_before_the_interpreter_comes_to_its_handler(self) -> None:
        stop, told = StopRequest(), threading.Event()
        stop.tell = lambda name: told.set() if name == "SIGUSR1" else None
        try:
            signal.signal(
                signal.SIGUSR1, nothing
            )  # as if a long operation kept the handler from being called
            os.kill(os.getpid(), signal.SIGUSR1)
            assert told.wait(TIMEOUT)
            assert stop.name == "SIGUSR1"
            assert stop.wait(3600)
        finally:
            stop.close()

    def test_a_childs_signals_are_its_own(self) -> None:
        stop, told = StopRequest(), threading.Event()
        stop.tell = lambda name: told.set()
        try:
            pid = os.fork()
            if pid == 0:
                terminate()
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
            assert not stop.requested
            terminate()
            assert told.wait(TIMEOUT)
        finally:
            stop.close()


def test_an_error_in_the_middle_of_a_step_that_follows_from_a_signal_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = Course(tmp_path)
    with pytest.raises(exits.TrainingStop) as stopped, course.run as run:
        for _ in run.epochs():
            for _ in run.batches():
                course.step()
                if run.step_now == 2:
                    terminate()
                    raise RuntimeError(
                        "DataLoader worker (pid 7) is killed by signal: Terminated. "
                    )
                run.step(1.0)
    assert stopped.value.code == exits.PREEMPTED
    assert steps_kept(tmp_path) == [], "the weights are those of no step"
    assert "step 3 was not over" in capsys.readouterr().out
    assert RunLog(tmp_path).past.cause == "SIGTERM"
    assert events(tmp_path, "stop")[0]["reason"] == "SIGTERM"


def test_an_error_without_a_signal_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgt_train.ending.LATE_S", 0.01)
    course = Course(tmp_path)
    with pytest.raises(RuntimeError, match="out of memory"), course.run:
        raise RuntimeError("DataLoader worker (pid 7) is out of memory")
    assert RunLog(tmp_path).past.cause == "RuntimeError: DataLoader worker (pid 7) is out of memory"


GROUP = """
import multiprocessing, os, signal, sys
import torch
from torch.utils.data import DataLoader, Dataset
from rgt_train import Options, Run

SIGNAL, WHERE = ARGUMENTS
os.setpgrp()

class Data(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        if WHERE == "fetch" and run.step_now == 0 and index == order[13]:
            os.killpg(0, SIGNAL)
        return torch.full((3,), index / 40)

torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = Run("run", model=model, optimizer=optimizer, samples=40, batch_size=2, epochs=1, options=Options(save_every=50))
order = run.sampler.permutation_of(0).tolist()
with run:
    for _ in run.epochs():
        for batch in DataLoader(Data(), batch_sampler=run.batches(), num_workers=2):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            if WHERE == "step" and run.step_now == 4:
                os.killpg(0, SIGNAL)
                while SIGNAL == signal.SIGTERM and any(p.is_alive() for p in multiprocessing.active_children()):
                    pass  # torch's handler raises here, if it may
            optimizer.step()
            run.step(loss.item())
"""


@pytest.mark.parametrize(
    ("number", "where"),
    [(signal.SIGTERM, "step"), (signal.SIGTERM, "fetch"), (signal.SIGINT, "step")],
)
def test_a_signal_to_all_processes_of_a_job_loses_nothing(
    trainers: Zygote, tmp_path: Path, number: signal.Signals, where: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(GROUP.replace("ARGUMENTS", f"{int(number)}, {where!r}"))
    first = trainers.launch_script(script)
    assert first.wait() == exits.PREEMPTED, first.text()
    out = tmp_path / "run"
    stopped: dict[str, Any] = events(out, "stop")[0]
    assert stopped["reason"] == number.name
    assert 1 <= stopped["step"] < 20
    assert max(losses(out)) == stopped["step"]
    assert checkpoint_of(out, stopped["step"]).is_dir()
    assert f"{number.name}: stopping as soon as the step is over" in first.text()
    script.write_text(GROUP.replace("ARGUMENTS", "0, ''"))
    again = trainers.launch_script(script)
    assert again.wait() == 0, again.text()
    assert events(out, "resume")[0]["lost_steps"] == 0
