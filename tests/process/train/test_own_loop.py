"""A person's own loop, as the documentation shows it, and the harder kinds of data loading."""

from __future__ import annotations

import difflib
import re
import signal
from pathlib import Path

import pytest
import torch
from rgt_train import Options, Run
from rgt_train.loop import AdamW

from tests.process.train.harness import (
    ROOT,
    Zygote,
    assert_same,
    events,
    final_state,
    losses,
    steps_kept,
)


def block(name: str) -> str:
    page = (ROOT / "docs" / "wrap-your-loop.md").read_text()
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", page, re.S)
    assert found
    return found.group(1)


def test_the_difference_is_small() -> None:
    before, after = (
        [line.strip() for line in block(name).splitlines() if line.strip()]
        for name in ("before", "after")
    )
    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    assert len(added) <= 6, added


def dying(place: Path, step: int) -> Path:
    """Return a copy of the script in `place` that kills itself right after `step`."""
    text = (place / "train.py").read_text()
    call = "run.step(loss.item())"
    assert text.count(call) == 1
    death = (
        f"{call}; run.step_now == {step} and __import__('os').kill(__import__('os').getpid(), 9)"
    )
    (place / "dying.py").write_text(text.replace(call, death))
    return place / "dying.py"


def test_the_documented_loop_resumes(trainers: Zygote, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "train.py").write_text(block("before"))
    plain_loop = trainers.launch_script(tmp_path / "before" / "train.py")
    assert plain_loop.wait() == 0, plain_loop.text()
    places = tmp_path / "plain", tmp_path / "killed"
    for place in places:
        place.mkdir()
        (place / "train.py").write_text(block("after"))
    plain, killed = (place / "run" for place in places)
    assert trainers.launch_script(places[0] / "train.py").wait() == 0
    assert trainers.launch_script(dying(places[1], 50)).wait() == -signal.SIGKILL
    again = trainers.launch_script(places[1] / "train.py")
    assert again.wait() == 0, again.text()
    assert "restored model, optimizer, scheduler, data position" in again.text()
    assert events(killed, "resume")[0]["step"] == 10
    assert losses(killed) == losses(plain)
    assert len(losses(killed)) == 120
    for left, right in zip(final_state(killed, 120), final_state(plain, 120), strict=True):
        for random in (left.get("rng", {}), right.get("rng", {})):
            for unseeded in ("python", "numpy"):  # the example seeds torch alone
                random.pop(unseeded, None)
                random.get("head", {}).pop(unseeded, None)
        assert_same(left, right)
    last = trainers.launch_script(places[1] / "train.py")
    assert last.wait() == 0
    assert "already finished" in last.text()


WORKERS = """
import random, sys
import torch
from torch.utils.data import DataLoader, Dataset
from rgt_train import Options, Run

class Noisy(Dataset):
    def __len__(self): return 48
    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(run.sample_seed(index))
        return torch.full((4,), index / 48) + torch.randn(4, generator=draw)

torch.manual_seed(1); random.seed(1)
nn = torch.nn
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
ema = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
run = Run(
    "run", model=model, optimizer=optimizer, ema=ema, samples=48, batch_size=4, epochs=2, seed=3, accumulate=2,
    options=Options(save_every=1),
)
with run:
    for epoch in run.epochs():
        optimizer.zero_grad()
        for number, batch in enumerate(DataLoader(Noisy(), batch_sampler=run.batches(), num_workers=WORKERS)):
            loss = (model(batch) ** 2).mean() * random.random()
            loss.backward()
            if number % 2:
                optimizer.step(); optimizer.zero_grad(); ema.update_parameters(model)
                run.step(loss.item())
"""


def test_workers_accumulation_and_ema(trainers: Zygote, tmp_path: Path) -> None:
    for name, workers in (("plain", 0), ("killed", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(WORKERS.replace("WORKERS", str(workers)))
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    assert trainers.launch_script(plain / "train.py").wait() == 0
    assert trainers.launch_script(dying(killed, 4)).wait() == -signal.SIGKILL
    again = trainers.launch_script(killed / "train.py")
    assert again.wait() == 0, again.text()
    assert losses(killed / "run") == losses(plain / "run")
    left, right = (final_state(place / "run", 12) for place in (killed, plain))
    assert_same(left[0], right[0])
    assert_same(left[1]["objects"], right[1]["objects"])


ACCUMULATED = """
import os, signal
import torch
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Options, Run

torch.manual_seed(1)
data = TensorDataset(torch.randn(96, 4))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
run = Run(
    "run", model=model, optimizer=optimizer, samples=96, batch_size=4, epochs=2, accumulate=4,
    options=Options(save_every=2),
)
batches = 0
with run:
    for epoch in run.epochs():
        optimizer.zero_grad()
        for (batch,) in DataLoader(data, batch_sampler=run.batches()):
            loss = (model(batch) ** 2).mean()
            loss.backward()
            batches += 1
            if batches == SIGNAL_AT:
                os.kill(os.getpid(), signal.SIGTERM)
            if run.micro():
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss.item())
"""


@pytest.mark.parametrize("at", [3, pytest.param(18, marks=pytest.mark.full), 31])
def test_stopped_in_the_middle_of_an_accumulation(
    trainers: Zygote, tmp_path: Path, at: int
) -> None:
    for name, where in (("plain", 0), ("stopped", at)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(ACCUMULATED.replace("SIGNAL_AT", str(where)))
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    assert trainers.launch_script(plain / "train.py").wait() == 0
    first = trainers.launch_script(stopped / "train.py")
    assert first.wait() == 75, first.text()
    (stopped / "train.py").write_text(ACCUMULATED.replace("SIGNAL_AT", "0"))
    again = trainers.launch_script(stopped / "train.py")
    assert again.wait() == 0, again.text()
    assert f"gradients of {at % 4} batches" in again.text()
    assert losses(stopped / "run") == losses(plain / "run")
    left, right = (final_state(place / "run", 12) for place in (stopped, plain))
    assert_same(left[0], right[0])
    assert_same(left[1]["objects"], right[1]["objects"])


def small_run(out: Path, **more: object) -> tuple[Run, torch.nn.Linear]:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    return Run(
        out,
        model=model,
        samples=8,
        batch_size=2,
        epochs=1,
        options=Options(save_every=2, log_every=0),
    ), model


def test_leaving_early_saves_and_an_exception_does_not(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run, _ = small_run(out)
    with run:
        for _epoch in run.epochs():
            run.step(1.0)
            break
    assert steps_kept(out) == [1]
    run, _ = small_run(out)
    with pytest.raises(ZeroDivisionError), run:
        run.step(1 / 0)
    assert steps_kept(out) == [1]
    run, _ = small_run(out)
    with run:
        assert run.step_now == 1
        assert run.batches().batches_left == 3
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(0.5)
    assert run.finished
    assert [event["reason"] for event in events(out, "resume")] == [
        "left early",
        "ZeroDivisionError: division by zero",
    ]


def test_validation_leaves_the_random_state_alone(tmp_path: Path) -> None:
    run, model = small_run(tmp_path / "run")
    with run:
        model.train()
        before = torch.get_rng_state()
        with run.evaluating():
            torch.rand(5)
            assert not model.training
            assert not torch.is_grad_enabled()
        assert model.training
        assert torch.equal(before, torch.get_rng_state())
        assert run.validated(2.0)
        assert not run.validated(2.0)
        assert not run.validated(float("nan"))
        assert run.validated(1.0)


def test_a_state_that_cannot_be_loaded_is_told_at_the_first_save(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, object]:
            return {"path": tmp_path}

        def load_state_dict(self, state_dict: dict[str, object]) -> None: ...

    model = torch.nn.Linear(2, 1)
    run = Run(
        tmp_path / "run", model=model, scheduler=Odd(), samples=8, batch_size=2, epochs=1,
        options=Options(save_every=1, log_every=0),
    )  # fmt: skip
    with pytest.raises(Exception, match=r"cannot be stored safely: scheduler/path is a "), run:
        run.step(1.0)
    assert steps_kept(tmp_path / "run") == []


def test_our_adamw_is_torchs() -> None:
    torch.manual_seed(0)
    start = torch.randn(5, 3)
    mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    ours, reference = (
        AdamW([mine], weight_decay=0.1),
        torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1),
    )
    for _ in range(20):
        for parameter in (mine, theirs):
            parameter.grad = (parameter.detach() ** 2).sin() + 0.1
        ours.step(0.01)
        reference.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
