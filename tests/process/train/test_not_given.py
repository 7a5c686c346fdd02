"""State that changes and that a run was not given is named, in the checkpoint and the receipt, too."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rgt_train import Options, Run
from rgt_train.checkpoint import AsyncSaver
from rgt_train.state_search import StateSearch
from torch.utils.data import DataLoader, TensorDataset

STEPS = 10
DATA = TensorDataset(torch.randn(STEPS * 2, 4))


class Gate(torch.nn.Module):
    """A layer with a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.tau = 1.0
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.layer(x) * self.tau
        return scaled


class ExponentialAverage:
    """Averaged weights without a state_dict of torch's classes."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.shadow = {name: value.clone() for name, value in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        return self.shadow

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state


class Outer(torch.optim.SGD):
    """An optimizer whose steps are made by another one, whose state it does not save."""

    def __init__(self, parameters: Any) -> None:
        parameters = list(parameters)
        super().__init__(parameters, lr=0.1)
        self.inner = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


class Case:
    """One training: its parts, what its loop does before run.step, and what is given to the run."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Gate()
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler: Any = None
        self.scaler: Any = None
        self.given: dict[str, Any] = {"optimizer": self.optimizer}
        self.each: Callable[[], object] = lambda: None

    def train(self, out: Path, capsys: pytest.CaptureFixture[str], stop_at: int = 0) -> str:
        """Train, in a loop that carries nothing itself; return what was reported."""
        run = Run(
            out, model=self.model, samples=STEPS * 2, batch_size=2, epochs=2,
            options=Options(save_every=2, log_every=0, background=False), **self.given,
        )  # fmt: skip
        with run:
            for _epoch in run.epochs():
                for (x,) in DataLoader(DATA, batch_sampler=run.batches()):
                    self.optimizer.zero_grad()
                    self.model(x).square().mean().backward()
                    self.optimizer.step()
                    self.each()
                    run.step(1.0)
                    if run.step_now == stop_at:
                        return capsys.readouterr().out
        return capsys.readouterr().out


def no_optimizer(case: Case) -> None:
    case.given = {}


def inner_optimizer(case: Case) -> None:
    case.optimizer = case.given["optimizer"] = Outer(case.model.parameters())


def scheduler(case: Case) -> None:
    case.scheduler = torch.optim.lr_scheduler.ExponentialLR(case.optimizer, 0.9)
    case.each = case.scheduler.step


def scaler(case: Case) -> None:
    case.scaler = torch.amp.GradScaler("cpu")

    def scale() -> None:
        case.scaler.scale(torch.ones(1))
        case.scaler._growth_tracker += 1

    case.each = scale


def averaged(case: Case) -> None:
    case.scaler = torch.optim.swa_utils.AveragedModel(case.model)
    case.each = lambda: case.scaler.update_parameters(case.model)


def own_average(case: Case) -> None:
    case.scaler = ExponentialAverage(case.model)
    case.each = lambda: case.scaler.shadow["layer.bias"].add_(1)


def target_network(case: Case) -> None:
    case.scaler = copy.deepcopy(case.model)

    def follow() -> None:
        for old, new in zip(case.scaler.parameters(), case.model.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)

    case.each = follow


def attribute(case: Case) -> None:
    def anneal() -> None:
        case.model.tau *= 0.9

    case.each = anneal


def optimizer_attribute(case: Case) -> None:
    optimizer = Outer(case.model.parameters())
    optimizer.step = optimizer.inner.step  # type: ignore[method-assign]
    case.optimizer, case.given = optimizer, {"optimizer": {"a": optimizer, "b": optimizer.inner}}
    case.each = lambda: setattr(optimizer, "turns", getattr(optimizer, "turns", 0) + 1)


CASES: dict[Callable[[Case], None], str] = {
    no_optimizer: "optimizer Adam (add it as optimizer=)",
    inner_optimizer: "optimizer SGD (inside a given object, ",
    scheduler: "scheduler ExponentialLR (add it as scheduler=)",
    scaler: "scaler GradScaler (add it as scaler=)",
    averaged: "ema AveragedModel (add it as ema=)",
    own_average: "object ExponentialAverage (changed; add it: extra={…})",
    target_network: "model Gate (changed; add it by name: model={…})",
    attribute: "module attribute tau (changed; ",
    optimizer_attribute: "module attribute optimizer.a.turns (changed; ",
}


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
def test_state_that_was_not_given_is_named_in_the_run_and_in_the_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prepare: Callable[[Case], None]
) -> None:
    for stop_at, begin in ((STEPS + 2, "the run was not given "), (0, "resume: not given: ")):
        case = Case()
        prepare(case)
        text = case.train(tmp_path, capsys, stop_at)
        named = [line for line in text.splitlines() if CASES[prepare] in line]
        assert named, text
        assert begin in named[0], text
    assert "the same bits as far as given" in text


def test_a_run_that_was_given_everything_names_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stop_at in (STEPS + 2, 0):
        case = Case()
        scheduler(case)
        case.scaler = torch.amp.GradScaler("cpu")
        average = torch.optim.swa_utils.AveragedModel(case.model)
        average.update_parameters(case.model)
        case.given |= {"scheduler": case.scheduler, "scaler": case.scaler, "ema": average}
        text = case.train(tmp_path, capsys, stop_at)
        assert "not given" not in text


def test_a_part_that_is_given_from_now_on_starts_afresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case()
    scheduler(case)
    assert "not given scheduler" in case.train(tmp_path, capsys, STEPS + 2)
    case = Case()
    scheduler(case)
    case.given["scheduler"] = case.scheduler
    text = case.train(tmp_path, capsys)
    assert "not restored: scheduler (not in the checkpoint): it starts afresh" in text
    assert "not given" not in text


def make_run(out: Path, **given: Any) -> Run:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    return Run(
        out, model=model, samples=STEPS * 2, batch_size=2, epochs=3,
        options=Options(save_every=2, log_every=0, background=False), **given,
    )  # fmt: skip


def loop_of_enumerate(run: Run) -> Iterator[Any]:
    loader = DataLoader(DATA, batch_sampler=run.batches())
    for _epoch in run.epochs():
        for _number, _batch in enumerate(loader):
            run.step(1.0)
            yield


def loop_of_workers(run: Run) -> Iterator[Any]:
    loader = DataLoader(DATA, batch_sampler=run.batches(), num_workers=1)
    for _epoch in run.epochs():
        for _number, _batch in enumerate(run.loading(loader)):
            run.step(1.0)
            yield


def loop_of_epochs(run: Run) -> Iterator[Any]:
    for _number, _epoch in enumerate(run.epochs()):
        for _batch in run.batches():
            run.step(1.0)
            yield


def loop_with_a_counter(run: Run) -> Iterator[Any]:
    counter = 0
    for _epoch in run.epochs():
        for _batch in run.batches():
            counter += 1
            run.step(counter)
            yield


def loop_with_a_hidden_state(run: Run) -> Iterator[Any]:
    hidden = torch.zeros(2)
    for _epoch in run.epochs():
        for batch in run.batches():
            hidden = torch.tanh(hidden + batch[0])
            run.step(hidden.mean())
            yield


def loop_with_patience(run: Run) -> Iterator[Any]:
    patience = 0
    for epoch in run.epochs():
        for _batch in run.batches():
            run.step(1.0)
            yield
        patience += epoch > 0
        assert patience < 5


def loop_with_a_generator(run: Run) -> Iterator[Any]:
    noise, generator = np.random.default_rng(0), torch.Generator()
    for _epoch in run.epochs():
        for _batch in run.batches():
            run.step(float(noise.random()) + float(torch.rand(1, generator=generator)))
            yield


LOOPS: dict[Callable[[Run], Iterator[Any]], str] = {
    loop_of_enumerate: "enumerate(loader) (starts again from 0: ",
    loop_of_workers: "enumerate(loader) (starts again from 0: ",
    loop_of_epochs: "enumerate(run.epochs()) (starts again from 0: ",
    loop_with_a_counter: "variable counter (changed by the loop; ",
    loop_with_a_hidden_state: "variable hidden (changed by the loop; ",
    loop_with_patience: "variable patience (changed by the loop; ",
    loop_with_a_generator: "variable generator, noise (changed by the loop; ",
}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_what_a_loop_keeps_for_itself_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loop: Callable[[Run], Iterator[Any]]
) -> None:
    with make_run(tmp_path) as run:
        for _ in loop(run):
            if run.step_now == 2 * STEPS + 2:
                break
    text = capsys.readouterr().out
    assert re.search(r"step \d+: the run was not given " + re.escape(LOOPS[loop]), text), text
    with make_run(tmp_path) as run:
        list(loop(run))
    assert f"resume: not given: {LOOPS[loop]}" in capsys.readouterr().out


def test_what_a_loop_reads_from_the_run_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"patience": 0, "history": list[float]()}
    for last in (STEPS + 2, 0):
        with make_run(tmp_path, extra=own) as run:
            loader = DataLoader(DATA, batch_sampler=run.batches())
            for epoch in run.epochs():
                rate = 0.1 / (epoch + 1)
                for number, _batch in run.enumerate(loader):
                    step = run.step_now
                    loss = rate * (number + step + epoch * len(loader))
                    own["history"].append(loss)  # type: ignore[attr-defined]
                    run.step(loss)
                    if step + 1 == last:
                        break
                own["patience"] += 1  # type: ignore[operator]
                if run.step_now == last:
                    break
    assert "not given" not in capsys.readouterr().out


def test_an_error_of_the_search_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("odd object")

    monkeypatch.setattr("rgt_train.state_search.carried_names", fail)
    with make_run(tmp_path) as run:
        list(loop_with_a_counter(run))
    text = capsys.readouterr().out
    assert "not given search RuntimeError: odd object (so not all was examined)" in text
    assert run.finished


def test_the_search_is_no_part_of_what_a_save_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It walks through all objects at some saves, which would make the interval longer."""
    calls: list[str] = []

    def noting(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(self: Any, *given: Any) -> Any:
            calls.append(f"{name} begins")
            done = real(self, *given)
            calls.append(f"{name} ends")
            return done

        monkeypatch.setattr(owner, name, call)

    noting(StateSearch, "_compare_attributes")
    noting(AsyncSaver, "begin_save")
    Case().train(tmp_path, capsys)
    search, save = (
        [f"{name} begins", f"{name} ends"] for name in ("_compare_attributes", "begin_save")
    )
    assert calls == search + (search + save) * STEPS  # first when the memory is prepared
