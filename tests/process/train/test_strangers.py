"""Loops of public code, stopped once and launched again: the same bits, or the lost state is named."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rgt_train import Options, Run, state_search
from rgt_train.checkpoint import read_tensors
from rgt_train.state_search import StateSurvey
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, EPOCHS = 6, 3
X = torch.randn(STEPS * 4, 4, generator=torch.Generator().manual_seed(1))


class Training:
    """One launch of a script: seeded, built, and given to a run as a hurried person would.

    Args:
        out: The run directory.
        stop_at: The step after which the loop is left; 0 trains to the end.
        save_every: Steps between two saves.
    """

    def __init__(self, out: Path, stop_at: int, save_every: int = 100) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.out, self.stop_at, self.save_every = out, stop_at, save_every
        self.epochs = EPOCHS
        self.model: Any = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 4)
        )
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.result: list[torch.Tensor] = []

    def make_run(self, **given: Any) -> Run:
        """Create the run."""
        if not given:
            given = {"samples": len(X), "batch_size": 4}
        given.setdefault("optimizer", self.optimizer)
        options = Options(save_every=self.save_every, log_every=0, background=False)
        return Run(self.out, model=self.model, epochs=self.epochs, options=options, **given)

    def step(self, run: Run, loss: torch.Tensor) -> bool:
        """Train one step; return whether to leave the loop."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        run.step(loss)
        return run.step_now == self.stop_at

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss of all weights."""
        loss: torch.Tensor = (self.model(x) - x).square().mean()
        return loss


def permutation_of_an_epoch(training: Training) -> None:
    with training.make_run(steps_per_epoch=STEPS) as run:
        for _epoch in run.epochs():
            order = torch.randperm(len(X))
            for step in run.steps():
                at = step % STEPS * 4
                if training.step(run, training.loss(X[order[at : at + 4]])):
                    return


class Negatives(Dataset[torch.Tensor]):
    """Samples that are drawn again at the beginning of each epoch."""

    def draw(self) -> None:
        """Draw them."""
        self.drawn = torch.tensor(np.random.randn(len(X), 4)) + random.random()

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.drawn[index].float()


def negatives_of_an_epoch(training: Training) -> None:
    data = Negatives()
    with training.make_run() as run:
        for _epoch in run.epochs():
            data.draw()
            for x in DataLoader(data, batch_sampler=run.batches()):
                if training.step(run, training.loss(x)):
                    return


def bare_parameter(training: Training) -> None:
    weights, image = nn.Parameter(torch.zeros(2)), torch.rand(4, requires_grad=True)
    training.optimizer.add_param_group({"params": [weights], "lr": 0.1})
    other = torch.optim.SGD([image], lr=0.1, momentum=0.9)
    training.result = [weights, image]
    with training.make_run(
        samples=len(X), batch_size=4, optimizer={"a": training.optimizer, "b": other}
    ) as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                other.step()
                other.zero_grad()
                loss = training.loss(x + image)
                if training.step(run, loss * (-weights[0]).exp() + weights.sum()):
                    return


def norm_that_is_frozen_once(training: Training) -> None:
    with training.make_run() as run:
        training.model.train()
        for epoch in run.epochs():
            if epoch == 1:
                training.model[1].eval()
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                if training.step(run, training.loss(x)):
                    return


def validation_that_never_switches_back(training: Training) -> None:
    training.model.train()
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                if training.step(run, training.loss(x)):
                    return
            training.model.eval()


def accumulation_by_hand(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            for number, (x,) in run.enumerate(
                DataLoader(TensorDataset(X), batch_sampler=run.batches())
            ):
                loss = training.loss(x) / 4
                loss.backward()  # type: ignore[no-untyped-call]
                if number % 4 == 3:
                    training.optimizer.step()
                    training.optimizer.zero_grad()
                run.step(loss)
                if run.step_now == training.stop_at:
                    return


def optimizer_of_every_second_step(training: Training) -> None:
    layers = training.model
    often = torch.optim.SGD(layers[0].parameters(), lr=0.1)
    seldom = torch.optim.Adam([*layers[1].parameters(), *layers[3].parameters()], lr=0.01)
    with training.make_run(
        samples=len(X), batch_size=4, optimizer={"often": often, "seldom": seldom}
    ) as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                loss = training.loss(x)
                loss.backward()  # type: ignore[no-untyped-call]
                often.step()
                often.zero_grad()
                if run.step_now % 2:
                    seldom.step()
                    seldom.zero_grad()
                run.step(loss)
                if run.step_now == training.stop_at:
                    return


def weight_norm_of_a_teacher(training: Training) -> None:
    training.model[0] = nn.utils.weight_norm(training.model[0])
    training.model[0].requires_grad_(False)
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                training.model[0].weight_v.data.mul_(0.9).add_(x.mean())
                if training.step(run, training.loss(x)):
                    return


def loss_of_several_turns(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                for _ in range(2):  # which might make no turn, as far as the code says
                    loss = training.loss(x)
                if training.step(run, loss):
                    return


class AlternatingHeads(nn.Module):
    """A model one of whose heads is used in some steps alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        head = self.other if step % 3 == 0 else self.one
        found: torch.Tensor = head(self.body(x))
        return found


def zero_with_the_optimizer(model: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=False)


def zero_by_data(model: nn.Module, optimizer: Any) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.zero_()


@pytest.mark.parametrize("zero", [zero_with_the_optimizer, zero_by_data])
@pytest.mark.parametrize("when", ["before the backward pass", "after the step"])
@pytest.mark.parametrize("stop_at", [4, 7, 9])
def test_gradients_zeroed_in_place_are_not_saved_and_change_no_bit(
    tmp_path: Path, zero: Callable[[nn.Module, Any], None], when: str, stop_at: int
) -> None:
    found: list[list[torch.Tensor]] = []
    for out, last in (("whole", 0), ("cut", stop_at), ("cut", 0)):
        training = Training(tmp_path / out, last)
        training.model = AlternatingHeads()
        training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.01)
        with training.make_run() as run:
            for _epoch in run.epochs():
                for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                    if when == "before the backward pass":
                        zero(training.model, training.optimizer)
                    (training.model(x, run.step_now) - x).square().mean().backward()
                    training.optimizer.step()
                    if when == "after the step":
                        zero(training.model, training.optimizer)
                    run.step(0.0)
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
        if last:
            (saved,) = (tmp_path / "cut" / "checkpoints").glob(
                f"step-*{last}-a1/trainer.safetensors"
            )
            assert not [
                key
                for key in read_tensors(memoryview(saved.read_bytes()))
                if key.startswith("grad")
            ]
        found.append([*training.model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))


EQUAL: list[Callable[[Training], None]] = [
    permutation_of_an_epoch, negatives_of_an_epoch, bare_parameter, norm_that_is_frozen_once,
    validation_that_never_switches_back, weight_norm_of_a_teacher, loss_of_several_turns,
    accumulation_by_hand, optimizer_of_every_second_step,
]  # fmt: skip


@pytest.mark.parametrize("loop", EQUAL, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("stop_at", [STEPS + 3, STEPS])
def test_a_resume_continues_with_the_same_bits(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    loop: Callable[[Training], None],
    stop_at: int,
) -> None:
    found: list[list[torch.Tensor]] = []
    for out, last in (("whole", 0), ("cut", stop_at), ("cut", 0)):
        training = Training(tmp_path / out, last, save_every=STEPS)
        loop(training)
        found.append([*training.model.state_dict().values(), *training.result])
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(found[0], found[1], strict=True))
    # Whether a data set that changes with the epochs depends on the one before is not known.
    assert ("not given" in capsys.readouterr().out) == (loop is negatives_of_an_epoch)


def test_more_epochs_draw_what_a_longer_run_draws(tmp_path: Path) -> None:
    found: list[list[torch.Tensor]] = []
    for out, epochs in (("whole", EPOCHS), ("cut", EPOCHS - 1), ("cut", EPOCHS)):
        training = Training(tmp_path / out, 0)
        training.epochs = epochs
        permutation_of_an_epoch(training)
        found.append([*training.model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))


def others(loader: DataLoader[Any]) -> Iterator[torch.Tensor]:
    while True:
        for (x,) in loader:
            yield x


def iterator_of_other_data(training: Training) -> None:
    unlabelled = iter(others(DataLoader(TensorDataset(X), batch_size=4, shuffle=True)))
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                if training.step(run, training.loss(x + next(unlabelled))):
                    return


def loaders_in_a_zip(training: Training) -> None:
    target = DataLoader(TensorDataset(X), batch_size=4, shuffle=True)
    with training.make_run() as run:
        for _epoch in run.epochs():
            source = DataLoader(TensorDataset(X), batch_sampler=run.batches())
            for (x,), (y,) in zip(source, target, strict=False):
                if training.step(run, training.loss(x + y)):
                    return


def hidden_state_with_a_graph(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            hidden = (torch.zeros(4),)
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                hidden = (hidden[0].detach(),)
                out = training.model(x + hidden[0])
                hidden = (out.mean(0),)
                if training.step(run, out.square().mean()):
                    return


class Scaled(nn.Module):
    """A layer whose scale is in no state_dict."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = x * self.scale
        return scaled


def buffer_in_no_state(training: Training) -> None:
    training.model = nn.Sequential(Scaled(), training.model)
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                training.model[0].scale *= 0.9
                if training.step(run, training.loss(x)):
                    return


def teacher_in_training_mode(training: Training) -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.BatchNorm1d(4))]
    teacher = nn.Sequential(*layers).requires_grad_(False)
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                if training.step(
                    run, training.loss(x) + (training.model(x) - teacher(x)).square().mean()
                ):
                    return


class Paced(nn.Module):
    """A loss without tensors, whose weight grows."""

    def __init__(self) -> None:
        super().__init__()
        self.pace = 1.0

    def forward(self, loss: torch.Tensor) -> torch.Tensor:
        self.pace *= 1.1
        return loss * self.pace


def attribute_of_a_criterion(training: Training) -> None:
    criterion = Paced()
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                if training.step(run, criterion(training.loss(x))):
                    return


def state_of_a_callback(training: Training) -> None:
    def make_callback() -> Callable[[float], None]:
        average = 0.0

        def lower_rate(loss: float) -> None:
            nonlocal average
            average = 0.9 * average + 0.1 * loss
            training.optimizer.param_groups[0]["lr"] = 0.01 * average

        return lower_rate

    callbacks = {"on_step": [make_callback()]}
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                loss = training.loss(x)
                for callback in callbacks["on_step"]:
                    callback(loss.item())
                if training.step(run, loss):
                    return


NAMED: dict[Callable[[Training], None], str] = {
    iterator_of_other_data: "iterator unlabelled (a relaunch begins it again: ",
    loaders_in_a_zip: "iterator of another DataLoader (",
    hidden_state_with_a_graph: "variable hidden (changed by the loop; ",
    buffer_in_no_state: "module attribute 0.scale (changed; ",
    teacher_in_training_mode: "model teacher (Sequential) (changed; ",
    attribute_of_a_criterion: "model criterion (Paced) (changed; ",
    state_of_a_callback: "variable callbacks (changed by the loop; ",
}


@pytest.mark.parametrize("loop", NAMED, ids=lambda loop: loop.__name__)
def test_what_a_resume_would_lose_is_named_before_and_in_the_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loop: Callable[[Training], None]
) -> None:
    loop(Training(tmp_path, 5, save_every=2))
    text = capsys.readouterr().out
    assert f"the run was not given {NAMED[loop]}" in text, text
    loop(Training(tmp_path, 0))
    text = capsys.readouterr().out
    assert f"resume: not given: {NAMED[loop]}" in text, text
    assert "bit for bit" not in text


@pytest.mark.parametrize("first_save", [2, 3, 5])
@pytest.mark.parametrize("loop", [teacher_in_training_mode, buffer_in_no_state])
def test_the_first_checkpoint_names_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    loop: Callable[[Training], None],
    first_save: int,
) -> None:
    loop(Training(tmp_path, first_save, save_every=first_save))
    capsys.readouterr()
    loop(Training(tmp_path, 0))
    text = capsys.readouterr().out
    assert f"resume: not given: {NAMED[loop]}" in text, text


def test_the_first_step_of_a_launch_walks_through_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    walk = state_search._list_objects

    def count_walk(wanted: Callable[[type], bool]) -> list[Any]:
        walks.append(1)
        return walk(wanted)

    monkeypatch.setattr(state_search, "_list_objects", count_walk)
    training = Training(tmp_path, 0)
    counts = []
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                training.step(run, training.loss(x))
                counts.append(len(walks))
    assert counts[:5] == [0, 1, 1, 2, 2]


def test_an_object_is_named_at_the_fourth_step_without_a_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher_in_training_mode(Training(tmp_path, 5))
    named = f"the run was not given {NAMED[teacher_in_training_mode]}"
    assert f"step 4: {named}" in capsys.readouterr().out


def test_a_finished_run_names_what_the_code_after_the_loop_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        hidden_state_with_a_graph(Training(tmp_path, 0))
    text = capsys.readouterr().out
    assert "not given: variable hidden (changed by the loop; " in text.split("already finished")[1]


def test_variables_of_another_file_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "weight = 0.0\ndef grow():\n    global weight\n    weight += 1\n    return weight\n"
    (tmp_path / "own_losses.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import own_losses  # type: ignore[import-not-found]

    for stop_at in (5, 6, 7):  # a launch of one step names it no more, and must not forget it
        training = Training(tmp_path / "run", stop_at)
        with training.make_run() as run:
            for _epoch in run.epochs():
                for (x,) in DataLoader(TensorDataset(X), batch_sampler=run.batches()):
                    if training.step(run, training.loss(x) * own_losses.grow()):
                        break
                if run.step_now == stop_at:
                    break
        text = capsys.readouterr().out
        assert ("not given variable own_losses.weight (changed " in text) == (stop_at == 5), text
        assert ("not given: variable own_losses.weight (changed " in text) == (stop_at > 5), text


class Slotted:
    """An object without a dictionary of attributes."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1


def test_other_holders_of_state_are_read() -> None:
    queue, slotted = torch.zeros(1000), Slotted()

    def make_hook() -> Any:
        seen: list[int] = []

        def hook(*_: Any) -> None:
            seen.append(1)

        return hook

    layer = nn.Linear(2, 2)
    layer.register_forward_hook(make_hook())
    found: list[dict[str, Any]] = []
    for _ in range(2):
        survey = StateSurvey(())
        survey.add_value("queue", queue)
        survey.add_value("slotted", slotted)
        survey.add_value("partial", functools.partial(print, slotted=[len(found)]))
        survey.add_module("layer", layer)
        found.append(survey.found)
        queue[17] = 1  # none of the values that are sampled
        slotted.count += 1
        layer(torch.zeros(2))
    changed = {path for path, value in found[1].items() if found[0].get(path, value) != value}
    assert changed == {
        "queue",
        "slotted.count",
        "partial[2]['slotted'][0]",
        "layer.hook.seen[",
    }


def labels_of_the_present_weights(training: Training, seed: int = 0) -> None:
    data = torch.randn(len(X), 4, generator=torch.Generator().manual_seed(seed))
    with training.make_run() as run:
        for _epoch in run.epochs():
            with torch.no_grad():
                labels = copy.deepcopy(training.model).eval()(data)
            for x, y in DataLoader(TensorDataset(data, labels), batch_sampler=run.batches()):
                if training.step(run, (training.model(x) - y).square().mean()):
                    return


def test_content_that_a_relaunch_makes_otherwise_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stop_at in (STEPS + 2, STEPS + 3):
        labels_of_the_present_weights(Training(tmp_path, stop_at))
    text = capsys.readouterr().out
    assert f"step {STEPS + 3}: the run was not given content of labels (not that of the " in text
    labels_of_the_present_weights(Training(tmp_path, 0))
    assert "resume: not given: content of labels (" in capsys.readouterr().out


def test_a_split_without_a_seed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, stop_at in ((1, 1), (2, 2)):
        labels_of_the_present_weights(Training(tmp_path, stop_at), seed)
    assert "step 2: the run was not given content of data, labels (" in capsys.readouterr().out


def test_a_resume_at_the_end_of_an_epoch_names_no_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stop_at in (STEPS, 0):
        labels_of_the_present_weights(Training(tmp_path, stop_at))
    assert "not given" not in capsys.readouterr().out


class Pairs:
    """A labelled and an unlabelled batch at a time, of loaders with generators of their own."""

    def __init__(self) -> None:
        self.loaders = [
            DataLoader(
                TensorDataset(X[:count]), batch_size=4, shuffle=True,
                generator=torch.Generator().manual_seed(count),
            )
            for count in (24, 8)
        ]  # fmt: skip

    def __len__(self) -> int:
        return len(self.loaders[0])

    def __iter__(self) -> Iterator[Any]:
        labelled, unlabelled = self.loaders
        return zip(labelled, others(unlabelled), strict=False)


@pytest.mark.parametrize("stop_at", [STEPS + 3, 2 * STEPS + 4])
def test_two_loaders_as_one_stream_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stop_at: int
) -> None:
    found: list[list[torch.Tensor]] = []
    for out, last in (("whole", 0), ("cut", stop_at), ("cut", 0)):
        training = Training(tmp_path / out, last)
        with training.make_run(stream=Pairs()) as run:
            for _epoch in run.epochs():
                for (x,), y in run.stream():
                    if training.step(run, training.loss(x + y)):
                        break
                if run.step_now == last:
                    break
        found.append([*training.model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))
    assert "not given" not in capsys.readouterr().out
