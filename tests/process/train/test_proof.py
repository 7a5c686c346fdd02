"""A second process repeats steps from a checkpoint: what it proves, and what it refutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.train.harness import Zygote

SCRIPT = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Options, Run

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 4))
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
factor = 1.0
run = Run("run", model=model, optimizer=optimizer, samples=40, batch_size=2, epochs=2,
          options=Options(save_every=3, log_every=0, prove=4))
with run:
    for epoch in run.epochs():
        for (x,) in DataLoader(data, batch_sampler=run.batches()):
            EXTRA
            loss = model(x).square().mean() * factor
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            run.step(loss.item())
            if run.step_now == int(os.environ.get("STOP_AT", 0)):
                os.kill(os.getpid(), 15)
"""


def launch(trainers: Zygote, place: Path, extra: str, *, code: int = 0, **variables: str) -> str:
    place.mkdir(exist_ok=True)
    (place / "train.py").write_text(SCRIPT.replace("EXTRA", extra))
    trainer = trainers.launch_script(place / "train.py", env=variables)
    assert trainer.wait() == code, trainer.text()
    return trainer.text()


def test_a_proof_stands_in_the_checkpoint_and_the_receipt(trainers: Zygote, tmp_path: Path) -> None:
    text = launch(trainers, tmp_path, "pass")
    assert "proved over 4 steps: a relaunch from step 3 makes the same weights" in text
    assert not list((tmp_path / "run").glob(".tmp-*"))
    (tmp_path / "run" / "result.json").unlink()
    assert "bit for bit, proved over 4 steps" in launch(trainers, tmp_path, "pass")


def test_a_proof_does_not_cover_state_that_was_seen_and_not_given(
    trainers: Zygote, tmp_path: Path
) -> None:
    extra = "model.calls = getattr(model, 'calls', 0) + 1"
    assert "proved over 4 steps" in launch(trainers, tmp_path, extra)
    (tmp_path / "run" / "result.json").unlink()
    text = launch(trainers, tmp_path, extra)
    assert "resume: not given: module attribute calls" in text
    assert "the same bits as far as given, proved over 4 steps" in text


def test_state_that_was_not_given_is_refuted(trainers: Zygote, tmp_path: Path) -> None:
    extra = "factor *= 1.1"
    text = launch(trainers, tmp_path, extra)
    assert "not proved: a relaunch from step 3 makes other weights: step 4 has another loss" in text
    (tmp_path / "run" / "result.json").unlink()
    text = launch(trainers, tmp_path, extra)
    assert "bits may differ from the uninterrupted run: a replay of 4 steps: step 4 has" in text


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (
            "assert 'RGT_TRAIN_REPLAY' not in os.environ, 'not twice'",
            "the replay ended with exit code 1: AssertionError: not twice",
        ),
        (
            "run.step_now == 4 and run.finish()\n            if run._over: break",
            "there were no 4 steps after a checkpoint",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_proved_is_said(
    trainers: Zygote, tmp_path: Path, extra: str, reason: str
) -> None:
    assert f"nothing is proved: {reason}" in launch(trainers, tmp_path, extra)


def test_a_signal_gives_the_proof_up(trainers: Zygote, tmp_path: Path) -> None:
    text = launch(trainers, tmp_path, "pass", code=75, STOP_AT="6")
    assert "proved" not in text
    assert "proved over 4 steps: a relaunch from step 9" in launch(trainers, tmp_path, "pass")
