"""A training that a person's own code ends: the result stays, whatever was killed on the way to it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from rgt_train import Run, UsageError

from tests.process.train.harness import Zygote, events, losses
from tests.process.train.test_forgotten import STEPS, made

SCRIPT = """
import os, signal
import torch
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Options, Run

torch.manual_seed(3)
data = TensorDataset(torch.randn(24, 4))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
own = {"patience": 0, "seen": [], "sizes": (1, 2)}
run = Run("run", model=model, optimizer=optimizer, samples=24, batch_size=4, epochs=50, extra=own,
          options=Options(save_every=4))
with run:
    for epoch in run.epochs():
        for (batch,) in DataLoader(data, batch_sampler=run.batches()):
            loss = model(batch).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            run.step(loss)
            if run.step_now == int(os.environ.get("KILL_AT", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
        own["seen"].append(epoch)
        better = run.validated(float(min(epoch, 3)), "score", mode="max")
        own["patience"] = 0 if better else own["patience"] + 1
        if os.environ.get("KILL_AFTER") == str(epoch):
            os.kill(os.getpid(), signal.SIGTERM)
            run.check()
        if own["patience"] >= 4:
            run.finish()
            break
print("own", own)
"""
END = "own {'patience': 4, 'seen': [0, 1, 2, 3, 4, 5, 6, 7], 'sizes': (1, 2)}"


def test_a_patience_counter_survives_kills(trainers: Zygote, tmp_path: Path) -> None:
    """Killed within an epoch (6 steps), and asked to stop behind one: what is behind it is done again once."""
    places = tmp_path / "plain", tmp_path / "killed"
    for place in places:
        place.mkdir()
        (place / "train.py").write_text(SCRIPT)
    plain, killed = (place / "train.py" for place in places)
    whole = trainers.launch_script(plain)
    assert whole.wait() == 0, whole.text()
    assert END in whole.text()
    for name, value, code in (
        ("KILL_AT", "33", -signal.SIGKILL),
        ("KILL_AFTER", "6", 75),
        ("KILL_AT", "45", -signal.SIGKILL),
    ):
        cut = trainers.launch_script(killed, env={name: value})
        assert cut.wait() == code, cut.text()
    again = trainers.launch_script(killed)
    assert again.wait() == 0, again.text()
    assert END in again.text()
    assert losses(places[1] / "run") == losses(places[0] / "run")
    assert json.loads((places[1] / "run" / "result.json").read_text()).items() >= {
        "step": 48, "best": 3.0, "planned": 300}.items()  # fmt: skip
    idle = trainers.launch_script(killed)
    assert idle.wait() == 0, idle.text()
    assert "already finished: step 48" in idle.text()
    assert (
        "own {'patience': 3, 'seen': [0, 1, 2, 3, 4, 5, 6], 'sizes'" in idle.text()
    )  # as at the last run.step


def finishing(out: Path, epochs: int, at: int) -> Run:
    """Train, and finish at step `at`."""
    with made(out, epochs=epochs) as run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
                if run.step_now == at:
                    run.finish()
                    break
    return run


def test_a_finished_run_stays_finished_unless_more_is_asked_for(tmp_path: Path) -> None:
    run = finishing(tmp_path, 3, STEPS + 1)
    assert run.finished
    assert [event["step"] for event in events(tmp_path, "done")] == [STEPS + 1]
    again = finishing(tmp_path, 3, 0)
    assert again.finished
    assert again.step_now == STEPS + 1
    again.finish()  # nothing to do
    more = finishing(tmp_path, 4, 0)
    assert more.finished
    assert more.step_now == 4 * STEPS


def test_no_result_is_made_of_half_a_step(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(UsageError, match=r"between optimizer\.step\(\) and run\.step"),
        made(tmp_path, model=model, optimizer=optimizer) as run,
    ):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        run.finish()
    assert not (tmp_path / "result.json").exists()


def test_the_highest_is_the_best_where_it_is_asked_for(tmp_path: Path) -> None:
    with made(tmp_path) as run:
        run.step(1.0)
        assert [run.validated(v, "acc", mode="max") for v in (float("nan"), 0.5, 0.5, 0.4, 0.6)] == [
            False, True, False, False, True]  # fmt: skip
        assert run.progress.best == 0.6
        with pytest.raises(UsageError, match="mode is 'maximum'"):
            run.validated(1.0, mode="maximum")


def test_a_run_is_not_finished_between_the_two_halves_of_a_step(tmp_path: Path) -> None:
    told = r"run\.finish\(\) comes between optimizer\.step\(\) and run\.step: call run\.step first"
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(UsageError, match=told),
        made(tmp_path, model=model, optimizer=optimizer) as run,
    ):
        for _epoch in run.epochs():
            for _batch in run.batches():
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                run.finish()
    assert not (tmp_path / "result.json").exists()
