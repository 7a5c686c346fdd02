"""State that changes later than in the first steps, or at the beginning of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import exits
from torch.utils.data import DataLoader, TensorDataset

from tests.process.train.test_strangers import STEPS, Training, X


def loader_of(run: Any) -> DataLoader[Any]:
    """Return a loader of the rest of an epoch."""
    return DataLoader(TensorDataset(X), batch_sampler=run.batches())


def scheduler_before_the_batches(training: Training) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, gamma=0.5)
    with training.make_run(samples=len(X), batch_size=4, scheduler=scheduler) as run:
        for _epoch in run.epochs():
            scheduler.step()
            for (x,) in loader_of(run):
                if training.step(run, training.loss(x)):
                    return
    training.result = [torch.tensor(scheduler.last_epoch)]


def rate_lowered_before_the_batches(training: Training) -> None:
    group = training.optimizer.param_groups[0]
    with training.make_run() as run:
        for _epoch in run.epochs():
            group["lr"] *= 0.5
            for (x,) in loader_of(run):
                if training.step(run, training.loss(x)):
                    return
    assert group is training.optimizer.param_groups[0]
    training.result = [torch.tensor(group["lr"])]


def stage_counted_before_the_batches(training: Training) -> None:
    own: dict[str, Any] = {"stage": 0, "seen": [0.0]}
    with training.make_run(samples=len(X), batch_size=4, extra=own) as run:
        for _epoch in run.epochs():
            own["stage"] += 1
            for (x,) in loader_of(run):
                own["seen"].append(0.1)
                loss = training.loss(x) * own["stage"] * len(own["seen"])
                if training.step(run, loss):
                    return
    training.result = [torch.tensor(own["stage"])]


def accumulation_that_grows(training: Training) -> None:
    own = {"last": -1}
    with training.make_run(samples=len(X), batch_size=4, extra=own) as run:
        for _epoch in run.epochs():
            for (x,) in loader_of(run):
                loss = training.loss(x)
                loss.backward()  # type: ignore[no-untyped-call]
                if run.step_now - own["last"] >= (3 if run.step_now > STEPS else 1):
                    training.optimizer.step()
                    training.optimizer.zero_grad()
                    own["last"] = run.step_now
                run.step(loss)
                if run.step_now == training.stop_at:
                    return


def accumulation_that_grows_and_clears_before(training: Training) -> None:
    own = {"first": True, "last": -1}
    with training.make_run(samples=len(X), batch_size=4, extra=own) as run:
        for _epoch in run.epochs():
            for (x,) in loader_of(run):
                if own["first"]:
                    training.optimizer.zero_grad()
                loss = training.loss(x)
                loss.backward()  # type: ignore[no-untyped-call]
                own["first"] = run.step_now - own["last"] >= (3 if run.step_now > 4 else 1)
                if own["first"]:
                    training.optimizer.step()
                    own["last"] = run.step_now
                run.step(loss)
                if run.step_now == training.stop_at:
                    return


EQUAL: list[Callable[[Training], None]] = [
    scheduler_before_the_batches, rate_lowered_before_the_batches,
    stage_counted_before_the_batches, accumulation_that_grows,
    accumulation_that_grows_and_clears_before,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
@pytest.mark.parametrize("loop", EQUAL, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("stop_at", [3, STEPS, STEPS + 4, STEPS + 5, 2 * STEPS])
def test_a_resume_continues_with_the_same_bits(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    loop: Callable[[Training], None],
    stop_at: int,
) -> None:
    found: list[list[torch.Tensor]] = []
    for out, last in (("whole", 0), ("cut", stop_at), ("cut", stop_at + 1), ("cut", 0)):
        training = Training(tmp_path / out, last, save_every=STEPS)
        loop(training)
        found.append([*training.model.state_dict().values(), *training.result])
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[3], strict=True))
    assert "not given" not in capsys.readouterr().out


def batches_read_by_next(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            loader = loader_of(run)
            batches = iter(loader)
            for _ in range(len(loader)):
                (x,) = next(batches)
                if training.step(run, training.loss(x)):
                    return


def batches_read_until_the_end(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            batches = iter(loader_of(run))
            while True:
                try:
                    (x,) = next(batches)
                except StopIteration:
                    break
                if training.step(run, training.loss(x)):
                    return


def batches_read_with_a_default(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            batches = iter(loader_of(run))
            batch = next(batches, None)
            while batch is not None:
                if training.step(run, training.loss(batch[0])):
                    return
                batch = next(batches, None)


def clock_between_two_steps(training: Training) -> None:
    end = time.time()
    mark = time.perf_counter()
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in loader_of(run):
                assert time.time() >= end
                assert time.perf_counter() >= mark
                left = training.step(run, training.loss(x))
                end = time.time()
                mark = time.perf_counter()
                if left:
                    return


updates = 0


def count_from_the_run(training: Training, run: Any) -> bool:
    """Train an epoch; return whether to leave the loop."""
    global updates
    for (x,) in loader_of(run):
        updates = run.step_now + 1
        if training.step(run, training.loss(x) * updates):
            return True
    return False


def counter_read_from_the_run_in_a_function(training: Training) -> None:
    with training.make_run() as run:
        for _epoch in run.epochs():
            if count_from_the_run(training, run):
                return


class Penalty:
    """Weights of an earlier task."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.means = [p.detach().clone() for p in model.parameters()]


def penalty_after_an_epoch(training: Training) -> None:
    penalty = None
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in loader_of(run):
                loss = training.loss(x)
                if penalty is not None:
                    pairs = zip(training.model.parameters(), penalty.means, strict=True)
                    loss = loss + sum((p - mean).square().sum() for p, mean in pairs)
                if training.step(run, loss):
                    return
            if penalty is None:
                penalty = Penalty(training.model)


def best_weights_from_the_fifth_step(training: Training) -> None:
    best = None
    with training.make_run() as run:
        for _epoch in run.epochs():
            for (x,) in loader_of(run):
                loss = training.loss(x)
                if best is not None:
                    loss = loss + (training.model[0].weight - best).square().sum()
                if run.step_now == STEPS - 2:
                    best = training.model[0].weight.detach().clone()
                if training.step(run, loss):
                    return


NAMED: dict[Callable[[Training], None], str] = {
    penalty_after_an_epoch: "variable penalty",
    best_weights_from_the_fifth_step: "variable best",
    batches_read_by_next: "next(batches) (",
}


@pytest.mark.parametrize("loop", NAMED, ids=lambda loop: loop.__name__)
def test_what_a_resume_would_lose_is_named_before_and_in_the_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loop: Callable[[Training], None]
) -> None:
    loop(Training(tmp_path, STEPS + 2, save_every=2))
    text = capsys.readouterr().out
    assert f"the run was not given {NAMED[loop]}" in text, text
    training = Training(tmp_path, STEPS + 3)
    loop(training)
    text = capsys.readouterr().out
    assert f"resume: not given: {NAMED[loop]}" in text, text


@pytest.mark.parametrize(
    "loop",
    [
        batches_read_until_the_end,
        batches_read_with_a_default,
        clock_between_two_steps,
        counter_read_from_the_run_in_a_function,
    ],
    ids=lambda loop: loop.__name__,
)
def test_a_right_loop_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loop: Callable[[Training], None]
) -> None:
    loop(Training(tmp_path, STEPS + 2, save_every=2))
    loop(Training(tmp_path, 0, save_every=2))
    assert "not given" not in capsys.readouterr().out


def test_a_loop_that_reads_more_batches_than_are_left_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches_read_by_next(Training(tmp_path, STEPS + 2))
    with pytest.raises(exits.ShownError, match=r"`for batch in loader`"):
        batches_read_by_next(Training(tmp_path, 0))
    assert len(capsys.readouterr().err.splitlines()) == 1
