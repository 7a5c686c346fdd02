"""A loop's own positions after a resume: batch numbers, epoch lengths, means, batches drawn ahead."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_box.metrics import BY_NAME
from rgt_train import Options, Run
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH = 40, 4
STEPS = SAMPLES // BATCH
DATA = TensorDataset(torch.arange(SAMPLES).float()[:, None])


def make_run(out: Path, **given: Any) -> Run:
    """Return a run of three epochs of ten steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    facts: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "samples": SAMPLES,
        "batch_size": BATCH,
        "epochs": 3,
        "options": Options(log_every=0, background=False),
        **given,
    }
    return Run(out, **facts)


PRINTED = """
def train(run, loader, optimizer):
    mean, seen = 0.0, 0
    for epoch in run.epochs():
        total = 0.0
        for batch in loader:
            value = float(batch[0].sum())
            mean = 0.9 * mean + 0.1 * value
            total += value
            seen += len(batch[0])
            if run.step_now % 4 == 0:
                print(f"mean {mean:.3f} total {total}")
            optimizer.param_groups[0]["lr"] = 0.1 / seen
            run.step(value)
"""


def test_a_mean_that_is_only_printed_is_named_because_the_log_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(PRINTED)
    train = runpy.run_path(str(tmp_path / "train.py"))["train"]
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_run(tmp_path / "run", model=model, optimizer=optimizer) as run:
        train(run, DataLoader(DATA, batch_sampler=run.batches()), optimizer)
    named = [line for line in capsys.readouterr().out.splitlines() if "not given" in line]
    assert {"mean", "seen"} <= {word.strip(",") for line in named for word in line.split()}, named


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop_at", [3, STEPS, 2 * STEPS + 1])
def test_length_and_numbers_are_those_of_the_epoch(
    tmp_path: Path, stop_at: int, workers: int
) -> None:
    numbers: list[int] = []
    for last in (stop_at, 0):
        with make_run(tmp_path) as run:
            loader = DataLoader(DATA, batch_sampler=run.batches(), num_workers=workers)
            for epoch in run.epochs():
                for number, _batch in run.enumerate(loader):
                    assert len(loader) == STEPS
                    numbers.append(epoch * len(loader) + number)
                    run.step(float(number))
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
                assert run.epoch_loss == sum(range(STEPS)) / STEPS
    assert numbers == list(range(3 * STEPS))


def test_numbers_of_a_stream_go_on(tmp_path: Path) -> None:
    numbers: list[int] = []
    for last in (13, 0):
        with make_run(tmp_path, samples=0, stream=list(range(STEPS))) as run:
            for epoch in run.epochs():
                for number, batch in run.enumerate(run.stream()):
                    assert number == batch
                    numbers.append(epoch * STEPS + number)
                    run.step(1.0)
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
    assert numbers == list(range(3 * STEPS))


@pytest.mark.parametrize("stop_at", [1, 7, STEPS])
def test_a_batch_that_was_drawn_and_not_used_is_drawn_again(tmp_path: Path, stop_at: int) -> None:
    """The loop of nanoGPT: two micro-batches a step, each drawn during the forward pass of the previous one."""

    def draw() -> torch.Tensor:
        return torch.rand(1)

    def train(out: Path, last: int) -> list[float]:
        used: list[float] = []
        run = make_run(out, samples=0, epochs=None, max_steps=2 * STEPS, steps_per_epoch=STEPS)
        with run:
            batch = run.draw_ahead(draw)
            for _epoch in run.epochs():
                for _step in run.steps():
                    for _micro in range(2):
                        used.append(float(batch + torch.rand(1)))
                        batch = run.draw_ahead(draw)
                    random.random()
                    run.step(used[-1])
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
        return used

    whole = train(tmp_path / "whole", 0)
    first = train(tmp_path / "cut", stop_at)
    torch.rand(3)
    assert first + train(tmp_path / "cut", 0) == whole


@pytest.mark.parametrize("stop_at", [1, 7, STEPS])
def test_a_batch_that_a_loop_took_from_its_loader_in_advance_comes_again(
    tmp_path: Path, stop_at: int
) -> None:
    used: list[float] = []
    for last in (stop_at, 0):
        with make_run(tmp_path) as run:
            loader = DataLoader(DATA, batch_sampler=run.batches())
            for _epoch in run.epochs():
                batches = iter(loader)
                batch = next(batches, None)
                while batch is not None:
                    used.append(float(batch[0].sum()))
                    batch = next(batches, None)
                    run.step(1.0)
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
    order = make_run(tmp_path / "other").sampler
    expected = [sum(batch) for epoch in range(3) for batch in order.iterate_batches(epoch)]
    assert used == expected


def test_the_agent_reads_the_lines_of_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent has only them, where the run's directory is on another machine."""
    with make_run(tmp_path / "run", options=Options(log_every=1, unit="img")) as run:
        for _ in run.epochs():
            for batch in DataLoader(DATA, batch_sampler=run.batches()):
                run.step(float(batch[0].sum()))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    rows = [row for line in lines for row in BY_NAME["rgt"].parse(line, {})]
    assert [row.step for row in rows] == list(range(1, 3 * STEPS + 1))
    assert all("img_s" in row.values for row in rows), rows[-1].values
