"""Changes between run.step and the next batch: reported once and in the receipt, or undone if the docs allow them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 12
DATA = TensorDataset(torch.arange(SAMPLES).float().unsqueeze(1))


class Loop:
    """A loop with a scheduler and averaged weights; `after` is called between run.step and the next batch."""

    def __init__(self, out: Path, **given: Any) -> None:
        torch.manual_seed(0)
        random.seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        options = Options(save_every=1, background=False)
        facts: dict[str, Any] = {"samples": SAMPLES, "options": options, **given}
        self.run = Run(
            out, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, ema=self.average,
            epochs=2, **facts,
        )  # fmt: skip

    def update(self, batch: torch.Tensor) -> None:
        """Make one update."""
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()

    def train(
        self,
        after: Callable[[Loop], object] = lambda loop: None,
        stop: int = 99,
        workers: int = 0,
    ) -> None:
        """Train, up to step `stop`; the batches of a step are read as run.batches() gives them."""
        with self.run as run:
            for _epoch in run.epochs():
                for (batch,) in DataLoader(DATA, batch_sampler=run.batches(), num_workers=workers):
                    self.update(batch)
                    self.scheduler.step()
                    self.average.update_parameters(self.model)
                    run.step(1.0)
                    if run.step_now == stop:
                        return
                    after(self)


def validate(loop: Loop) -> None:
    """Evaluate without `run.evaluating`, as a plain loop does: two loaders, one with workers' seeds."""
    loop.model.eval()
    with torch.no_grad():
        for _ in range(2):
            for (batch,) in DataLoader(DATA, batch_size=4):
                loop.model(batch)
    loop.model.train()


CHANGES: dict[str, tuple[Callable[[Loop], object], str]] = {
    "scheduler": (lambda loop: loop.scheduler.step(), "a scheduler or learning rate"),
    "rate": (lambda loop: loop.optimizer.param_groups[0].update(lr=loop.run.step_now), "a scheduler or learning rate"),
    "average": (lambda loop: loop.average.update_parameters(loop.model), "ema/module.0.weight changes between"),
    "draws": (lambda loop: torch.rand(3), "random numbers are drawn between run.step and the next batch"),
    "python": (lambda loop: random.random(), "random numbers are drawn between run.step and the next batch"),
}  # fmt: skip
CHANGES["weights"] = (
    lambda loop: torch.nn.init.ones_(loop.model[0].weight),  # type: ignore[arg-type]
    "model/0.weight changes between run.step and the next batch",
)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", list(CHANGES))
def test_what_a_resume_would_leave_out_is_reported_once_and_in_the_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, workers: int
) -> None:
    change, told = CHANGES[kind]
    Loop(tmp_path).train(change, 5, workers)
    first = capsys.readouterr().out
    assert first.count(f"warning: {told}") == 1
    assert first.count("warning: ") == 1
    Loop(tmp_path).train(change, 7, workers)
    assert f"bits may differ from the uninterrupted run: {told}" in capsys.readouterr().out


def test_a_change_right_after_the_step_of_a_checkpoint_is_in_its_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That checkpoint is written before the change, so the ledger has it; a later one, without it, has not."""

    def late(loop: Loop) -> None:
        if loop.run.step_now == 3:
            loop.scheduler.step()
        if loop.run.step_now == 4:
            raise KeyError  # like a kill: step 4 is not saved

    loop = Loop(tmp_path, options=Options(save_every=3, background=False))
    with pytest.raises(KeyError):
        loop.train(late)
    capsys.readouterr()
    Loop(tmp_path, options=Options(save_every=3, background=False)).train(stop=7)
    assert "bits may differ from the uninterrupted run: a scheduler" in capsys.readouterr().out
    Loop(tmp_path).train(stop=9)
    assert "resume: same torch" in capsys.readouterr().out


def test_a_step_before_the_optimizers_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stop in (4, 6):
        loop = Loop(tmp_path)
        with loop.run as run:
            for _epoch in run.epochs():
                for batch in run.batches():
                    run.step(1.0)
                    loop.update(torch.ones(len(batch), 1))
                    if run.step_now == stop:
                        break
                break
    told = capsys.readouterr().out
    assert (
        "bits may differ from the uninterrupted run: optimizer.step() comes after run.step" in told
    )


@pytest.mark.parametrize(
    ("stop", "workers"), [(3, 0), (5, 0), (12, 0), (15, 0), (3, 2), (5, 2), (15, 2)]
)
def test_a_validation_after_a_step_changes_no_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stop: int, workers: int
) -> None:
    """A resume does not repeat it, and it draws a number for each loader."""

    def after(loop: Loop) -> None:
        if loop.run.step_now % 3 == 0:
            validate(loop)

    whole, cut = Loop(tmp_path / "whole"), tmp_path / "cut"
    whole.train(after, workers=workers)
    Loop(cut).train(after, stop, workers)
    again = Loop(cut)
    again.train(after, workers=workers)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    told = capsys.readouterr().out
    assert "warning: " not in told
    assert "bits may differ" not in told


def prefetched(loop: Loop, loader: Any) -> None:
    """Request each batch in the middle of the step before it."""
    batches = iter(loader)
    batch = next(batches, None)
    while batch is not None:
        loop.optimizer.zero_grad()
        loss = loop.model(batch[0]).square().mean()
        following = next(batches, None)
        loss.backward()
        loop.optimizer.step()
        loop.scheduler.step()
        loop.run.step(1.0)
        batch = following


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_is_requested_early_is_no_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    loop = Loop(tmp_path)
    with loop.run as run:
        for _epoch in run.epochs():
            prefetched(loop, DataLoader(DATA, batch_sampler=run.batches(), num_workers=workers))
            torch.rand(1)
    assert "warning: " not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["stream", "steps", "accumulated", "plain"])
@pytest.mark.parametrize("draws", [False, True])
def test_other_ways_to_read_batches_are_compared_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, draws: bool
) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "stream": {"samples": 0, "stream": list(torch.ones(12, 1, 1))},
        "steps": {"samples": 0, "steps_per_epoch": 5},
        "accumulated": {"accumulate": 3},
        "plain": {},
    }
    loop = Loop(tmp_path, **kinds[kind])
    with loop.run as run:
        for _epoch in run.epochs():
            source: Any = {"stream": run.stream, "steps": run.steps}.get(kind, run.batches)()
            for _batch in source:
                if kind != "accumulated" or run.micro():
                    loop.update(torch.ones(1, 1))
                    run.step(1.0)
                    if draws:
                        torch.rand(5)
            torch.rand(2)  # after the last step of an epoch a resume does it again
            loop.scheduler.step()
    assert ("warning: random numbers are drawn" in capsys.readouterr().out) is draws


def test_weights_that_are_loaded_after_the_run_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(tmp_path)
    torch.nn.init.ones_(loop.model[0].weight)  # type: ignore[arg-type]
    loop.train(stop=3)
    assert (
        "warning: model/0.weight (torch.float32) was changed after Run(…)"
        in capsys.readouterr().out
    )
    loop = Loop(tmp_path)
    torch.nn.init.zeros_(loop.model[0].weight)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"weight .* was changed after Run"):
        loop.train()
    loop = Loop(tmp_path)
    weight: Any = loop.model[0].weight
    weight.data = weight.data.clone()  # the same weights elsewhere
    loop.train()
    assert loop.run.finished
