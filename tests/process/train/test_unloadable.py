"""State that no relaunch could load is refused before it is relied on; a fold's random state reaches the next one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from rgt_train import Options, Run, UsageError, exits

from tests.process.train.harness import events, steps_kept


def add_module(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    model.add_module("adapter", torch.nn.Linear(2, 2))


def prune(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    torch.nn.utils.prune.l1_unstructured(model[0], "weight", 0.3)  # type: ignore[no-untyped-call]


def add_group(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})


def extend_group(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.zeros(1)))


def grow_buffer(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    model.memory = torch.zeros(5)


CHANGES: dict[str, tuple[Callable[..., None], str]] = {
    "a module": (add_module, "model is not built as it was .*2 unexpected: adapter.weight, adapter.bias"),
    "pruned": (prune, "1 missing: 0.weight; 2 unexpected: 0.weight_orig, 0.weight_mask"),
    "a group": (add_group, "optimizer is not built .*unexpected: parameter group 1.*make every parameter group"),
    "a parameter": (extend_group, r"parameter group 0 \(3,\) → \(2,\)|parameter group 0 \(2,\) → \(3,\)"),
    "a buffer": (grow_buffer, r"memory \(3,\) → \(5,\)|memory \(5,\) → \(3,\)"),
}  # fmt: skip


def train(out: Path, change: Callable[..., None], at: int = 5) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.register_buffer("memory", torch.zeros(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    run = Run(
        out, model=model, optimizer=optimizer, samples=20, epochs=1,
        options=Options(save_every=1, background=False),
    )  # fmt: skip
    with run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                model[0](torch.ones(1, 2)).sum().backward()
                optimizer.step()
                if run.step_now == at:
                    change(model, optimizer)
                run.step(1.0)


@pytest.mark.parametrize("kind", list(CHANGES))
@pytest.mark.parametrize("at", [0, 5])
def test_what_a_relaunch_would_not_build_is_refused_at_the_first_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, at: int
) -> None:
    change, told = CHANGES[kind]
    with pytest.raises(SystemExit, match=told) as ended:
        train(tmp_path, change, at)
    assert ended.value.code == exits.FAILED
    assert steps_kept(tmp_path) == ([4, 5] if at else [])
    assert len(capsys.readouterr().err.splitlines()) == 1
    train(tmp_path, lambda *_: None)  # without the change it goes on


def test_an_error_of_a_rebuilt_model_names_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prune_and_fail(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
        prune(model, optimizer)
        raise RuntimeError("sizes differ")

    with pytest.raises(
        SystemExit, match=r"model is not built as it was .*RuntimeError: sizes differ"
    ):
        train(tmp_path, prune_and_fail)
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(RuntimeError, match=r"^sizes differ$"):
        train(tmp_path / "other", lambda *_: (_ for _ in ()).throw(RuntimeError("sizes differ")))


class Odd(torch.optim.SGD):
    """Keeps a value of its own for every parameter."""

    def __init__(self, parameters: Any, value: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.value = value

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Keep it."""
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["own"] = self.value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            "text",
            r"optimizer cannot load its own state: optimizer/state/0/own 'text' → '<generator",
        ),
        (np.ones(3), "optimizer cannot load its own state: "),
    ],
)
def test_a_value_that_torchs_optimizer_cannot_load_is_refused_at_the_first_step(
    tmp_path: Path, value: Any, told: str
) -> None:
    model = torch.nn.Linear(2, 2)
    run = Run(tmp_path, model=model, optimizer=Odd(model.parameters(), value), samples=4, epochs=1)
    with pytest.raises(UsageError, match=told), run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run._state.others["optimizer"].step()  # type: ignore[attr-defined]
                run.step(1.0)
    assert run.step_now == 1


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, 0.1, total_steps=50, cycle_momentum=False
    ),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "sequence": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 2)], [3]
    ),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True, fused=True),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "lbfgs": torch.optim.LBFGS,
    "sgd": lambda p: torch.optim.SGD(p, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_optimizer_and_schedule_of_torch_takes_its_own_state(
    tmp_path: Path, optimizer: str, dtype: torch.dtype
) -> None:
    model = torch.nn.Linear(2, 2).to(dtype)
    used = OPTIMIZERS[optimizer](model.parameters())
    schedules = {name: make(used) for name, make in SCHEDULES.items() if name != "sequence"}
    if optimizer == "sgd":
        schedules["sequence"] = SCHEDULES["sequence"](used)
    before = [p.data_ptr() for p in model.parameters()]
    run = Run(tmp_path, model=model, optimizer=used, scheduler=schedules, samples=3, epochs=1)

    def closure() -> torch.Tensor:
        used.zero_grad()
        loss: torch.Tensor = model(torch.ones(1, 2, dtype=dtype)).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                used.step(closure)
                run.step(1.0)
    assert run.finished
    assert [p.data_ptr() for p in model.parameters()] == before


def test_sparse_gradients_of_an_unfinished_step_end_it_and_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Embedding(8, 2, sparse=True)
    optimizer: Any = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    run = Run(tmp_path, model=model, optimizer=optimizer, samples=40, accumulate=4, epochs=1)
    with pytest.raises(exits.TrainingStop), run:
        for _epoch in run.epochs():
            for number, batch in zip(range(99), run.batches(), strict=False):
                model(torch.tensor(batch) % 8).sum().backward()
                if number == 13:
                    signal.raise_signal(signal.SIGTERM)
                if run.micro():
                    optimizer.step()
                    optimizer.zero_grad()
                    run.step(1.0)
    assert steps_kept(tmp_path) == [4]
    assert "cannot be stored" not in capsys.readouterr().out
    assert events(tmp_path, "stop")[0]["step"] == 4


def fold(out: Path, *, finish: bool) -> None:
    """Train a fold whose validation after the last step draws random numbers."""
    model = torch.nn.Linear(2, 2)
    run = Run(out, model=model, samples=4, epochs=2)
    with run:
        for epoch in run.epochs():
            for _batch in run.batches():
                torch.rand(1)
                run.step(1.0)
            torch.rand(3)
            if finish and epoch == 1:
                run.finish()
                break
        torch.rand(2)  # a test after the loop, which a finished run makes again


@pytest.mark.parametrize("finish", [False, True])
def test_the_next_fold_begins_with_the_random_state_of_the_last_one(
    tmp_path: Path, finish: bool
) -> None:
    drawn = []
    for _launch in range(3):
        torch.manual_seed(7)
        fold(tmp_path, finish=finish)
        drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2])


def test_a_finished_fold_that_is_passed_over_leaves_its_random_state(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    with Run(tmp_path, model=model, samples=2, epochs=1) as run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
            torch.rand(3)
    expected = torch.rand(4)
    torch.manual_seed(1)
    assert Run(tmp_path, model=model, samples=2, epochs=1).finished
    assert torch.equal(torch.rand(4), expected)
