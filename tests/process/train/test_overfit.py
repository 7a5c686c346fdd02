"""One batch is trained alone: a loss that does not fall is a mistake, and ends with 1."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rgt_train import UsageError, cli, overfit, tasks

from tests.process.train import frameworks

HUGGING_FACE = """
import os, sys, torch
from transformers import Trainer, TrainingArguments
from rgt_train.callbacks import RgtCallback, overfit_one_batch, resume

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}

data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(400)]
args = TrainingArguments("out", num_train_epochs=9, report_to="none", save_steps=1, eval_strategy="epoch", use_cpu=True,
                         per_device_train_batch_size=2, gradient_accumulation_steps=8, warmup_steps=500,
                         learning_rate=float(sys.argv[1]))
trainer = Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=[RgtCallback()])
if sys.argv[2] == "resume":
    os.environ["RGT_OVERFIT_ONE_BATCH"] = "40"
    resume(trainer)
    print("not reached")
print(overfit_one_batch(trainer, steps=60).steps)
"""
LIGHTNING = """
import os, sys, torch, lightning as L
from lightning.pytorch.loggers import CSVLogger
from rgt_train.callbacks import RgtLightningCallback, overfit_one_batch, resume

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return {"loss": ((self.layer(batch) - 1) ** 2).mean()}

    def validation_step(self, batch, index):
        raise AssertionError("nothing is validated")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=float(sys.argv[1]))

data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=2, shuffle=True)
trainer = L.Trainer(accelerator="cpu", max_epochs=1, logger=CSVLogger("out"), accumulate_grad_batches=4,
                    callbacks=[RgtLightningCallback()])
if sys.argv[2] == "resume":
    os.environ["RGT_OVERFIT_ONE_BATCH"] = "40"
    resume(trainer, Model(), data, data)
    print("not reached")
print(overfit_one_batch(trainer, Model(), data, data, steps=60).steps)
"""


@pytest.mark.parametrize("task", tasks.SHIPPED)
def test_the_tasks_learn_one_batch(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--task", task, "--overfit-one-batch"]) == 0
    assert " in 100 steps of one batch (ratio 0." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_learning_rate_of_nothing_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--overfit-one-batch", "4", "--set", "lr=0"]) == 1
    assert "in 4 steps of one batch (ratio 1, at most 0.5 expected)" in capsys.readouterr().out
    assert cli.main(["--overfit-one-batch", "1"]) == 2


@pytest.mark.parametrize(
    ("losses", "passed"),
    [
        ([2.0, 1.0], True),
        ([2.0, 1.1], False),
        ([2.0] * 20 + [0.1] * 9 + [1.9], True),
        ([2.0, math.nan, 0.1], False),
        ([-1.0, -1.0], False),
        ([-1.0, -5.0], True),
    ],
)
def test_what_counts_as_falling(losses: list[float], passed: bool) -> None:
    verdict = overfit.judge_losses(losses)
    assert (verdict.passed, "FAILED" in verdict.text) == (passed, not passed), verdict


def test_a_slow_fall_says_how_many_steps_it_needs() -> None:
    slow = overfit.judge_losses([3.0 * 0.999**step for step in range(60)])
    assert not slow.passed and "falls steadily, but slowly: try 800 steps" in slow.text
    assert overfit.judge_losses([3.0 * 0.999**step for step in range(800)]).passed
    for flat in ([3.0] * 60, [3.0, 2.8] * 30, [3.0 + step for step in range(60)], [3.0, 2.9, 2.8]):
        assert "or it needs more steps" in overfit.judge_losses(flat).text


def test_one_loss_is_not_judged() -> None:
    with pytest.raises(UsageError, match="at least 2 steps"):
        overfit.judge_losses([1.0])


@pytest.mark.parametrize("script", [HUGGING_FACE, LIGHTNING], ids=["transformers", "lightning"])
def test_the_trainers_of_others(tmp_path: Path, script: str) -> None:
    called = frameworks.run(script, tmp_path, "0.1", "call")
    assert " in 60 steps of one batch (ratio " in called.stdout and "\n60\n" in called.stdout
    resumed = frameworks.run(script, tmp_path, "0.1", "resume")
    assert " in 40 steps of one batch (ratio " in resumed.stdout
    assert "not reached" not in resumed.stdout
    frozen = frameworks.run(script, tmp_path, "0", "call", check=False)
    assert frozen.returncode == 1 and "overfit: FAILED: loss " in frozen.stdout, frozen.stderr
    written = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if "checkpoint" in path or "metrics" in path], written
