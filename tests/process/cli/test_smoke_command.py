"""``rgt smoke``: a training runs here first, two batches on the CPU, whatever its framework."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.train import frameworks
from tests.system.tree import ROOT

RGT = (sys.executable, "-m", "rgt_tui")
HUGGING_FACE = """
import torch
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(400)]
args = TrainingArguments("real", num_train_epochs=50, report_to="wandb", save_steps=1, fp16=True,
                         eval_strategy="epoch", gradient_accumulation_steps=8)
trainer = Trainer(Model(), args, train_dataset=data, eval_dataset=data)
trainer.train(resume_from_checkpoint=True)
trainer.save_model()
print("steps:", trainer.state.global_step)
"""
LIGHTNING = """
import torch, lightning as L
from lightning.pytorch.loggers import CSVLogger

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return (self.layer(batch) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4)
trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp", max_epochs=100, logger=CSVLogger("logs"))
trainer.fit(Model(), data, ckpt_path="missing.ckpt")
print("steps:", trainer.global_step)
"""
OWN_LOOP = """
import torch
from rgt_train import Options, Run
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(100, 2)
with Run("real", model=model, optimizer=optimizer, samples=100, batch_size=4, epochs=9,
         options=Options(mirror="s3://bucket/x")) as run:
    for _ in run.epochs():
        for indices in run.batches():
            loss = (model(data[indices]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss.item())
print("steps:", run.step_now)
"""
KERAS = """
class TorchTrainer:
    def fit(self, x=None, y=None, epochs=1, steps_per_epoch=None, validation_steps=None, initial_epoch=0):
        print("steps:", epochs * (steps_per_epoch or 1000))

    def evaluate(self, x=None, steps=None):
        print("evaluated:", steps)
"""


def smoke(
    cwd: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'remote'}"}
    return subprocess.run(
        [*RGT, "smoke", *words], cwd=cwd, env=full | (env or {}), capture_output=True, text=True
    )


def script(cwd: Path, text: str) -> str:
    (cwd / "train.py").write_text(text)
    return "train.py"


@pytest.mark.parametrize(
    ("text", "framework"),
    [(HUGGING_FACE, "transformers 5"), (LIGHTNING, "lightning 2"), (OWN_LOOP, "rgt-train")],
    ids=["transformers", "lightning", "rgt_train"],
)
def test_a_training_of_a_known_framework_runs_two_batches_and_saves_nothing_here(
    tmp_path: Path, text: str, framework: str
) -> None:
    python = str(frameworks.require())
    done = smoke(tmp_path, "--env", "HF_HUB_OFFLINE=1", "--", python, script(tmp_path, text))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps: 2\n" in done.stderr, "the command's own output is shown"
    assert f"smoke: limited  {framework}" in done.stdout
    assert "smoke: passed on the CPU in " in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_keras_runs_two_batches(tmp_path: Path) -> None:
    """Its module is a stand-in: Keras is not among the frameworks of the tests."""
    module = tmp_path / "keras/src/backend/torch"
    module.mkdir(parents=True)
    (module / "trainer.py").write_text(KERAS)
    text = "from keras.src.backend.torch.trainer import TorchTrainer as T\nT().fit([1], epochs=50)\nT().evaluate([1])"
    done = smoke(tmp_path, "--batches", "3", "--", sys.executable, script(tmp_path, text))
    assert (done.returncode, done.stderr) == (0, "steps: 3\nevaluated: 3\n"), done.stdout
    assert "limited  keras: TorchTrainer.fit with epochs=1, steps_per_epoch=3" in done.stdout


def test_the_trainer_itself_is_given_its_own_option(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "rgt_train", "--out", "real")
    done = smoke(tmp_path, "--", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke: 2 steps ok" in done.stderr and "not proved" not in done.stderr
    assert "limited  by the command's own --smoke" in done.stdout
    assert not (tmp_path / "real").exists()


def test_one_batch_is_overfitted_by_the_trainer_or_nobody(tmp_path: Path) -> None:
    trainer = (sys.executable, "-m", "rgt_train", "--out", "real")
    learns = smoke(tmp_path, "--overfit-one-batch", "30", "--", *trainer)
    assert learns.returncode == 0, learns.stdout + learns.stderr
    assert "smoke: overfit: loss 3" in learns.stdout and ": it learns" in learns.stdout
    words = ("--overfit-one-batch", "5", "--json", "--", *trainer, "--set", "lr=0")
    frozen = smoke(tmp_path, *words)
    row = json.loads(frozen.stdout)
    assert (frozen.returncode, row["exit"]) == (1, 1)
    assert row["overfit"].startswith("overfit: FAILED: loss 3")
    unchecked = smoke(tmp_path, "--overfit-one-batch", "5", "--", "true")
    assert unchecked.returncode == 1
    assert "FAILED: nothing was trained on one batch alone" in unchecked.stdout


def test_another_command_runs_as_it_is_and_says_so(tmp_path: Path) -> None:
    line = 'echo "<$CUDA_VISIBLE_DEVICES> $WANDB_MODE $RGT_SMOKE"; touch "$RGT_OUT/made"; exit 7'
    done = smoke(tmp_path, "--", line)
    assert (done.returncode, done.stderr) == (7, "<> disabled 1\n")
    assert "the command ran as it is" in done.stdout and "FAILED: exit 7" in done.stdout
    assert list(tmp_path.iterdir()) == []
    own = smoke(tmp_path, "--", "sh", "-c", "kill -9 $$", "--max-steps=2")
    assert own.returncode == 137
    assert "limited  by the command's own --max-steps=2" in own.stdout
    assert "as it is" not in own.stdout


def test_the_time_limit_ends_it_with_a_status_of_its_own(tmp_path: Path) -> None:
    done = smoke(tmp_path, "--seconds", "1s", "--json", "--", "sleep 600")
    row: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == row["exit"] == 124
    assert (row["limits"], row["own_option"]) == ([], None)
    assert row["reason"] == "did not end within 1 s"


def test_what_went_wrong_is_named(tmp_path: Path) -> None:
    done = smoke(tmp_path, "--", sys.executable, script(tmp_path, "import no_such_module_x"))
    assert done.returncode == 1
    assert "No module named" in done.stdout and "  fix 1" in done.stdout
    needs = 'raise AssertionError("Torch not compiled with CUDA enabled")'
    done = smoke(tmp_path, "--", sys.executable, script(tmp_path, needs))
    assert done.returncode == 1
    assert "it requires a GPU, which is hidden here" in done.stdout and "fix 1" not in done.stdout


def test_a_sitecustomize_of_the_machine_still_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("print('own site')")
    env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path / 'site'}"}
    done = smoke(tmp_path, "--", sys.executable, "-c", "print('command')", env=env)
    assert "own site\ncommand\n" in done.stderr, done.stderr


def test_the_smoke_command_of_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    job = tmp_path / "job.toml"
    job.write_text('run = "exit 7"\npush = "code"\nsmoke = "pwd; echo $LR"\n[env]\nLR = 1\n')
    done = smoke(tmp_path, "--job", "job.toml")
    # In a copy of the directory that the file names.
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"/.*/rgt-smoke-\w+/project\n1\n", done.stderr)
    # On the box this field is the interpreter of the jobs.
    job.write_text('run = "exit 7"\nsmoke = "{py} -c \'exit(9)\'"\n')
    assert smoke(tmp_path, "--job", "job.toml").returncode == 9
    job.write_text('run = "exit 7"\n')
    assert smoke(tmp_path, "--job", "job.toml").returncode == 7
    assert smoke(tmp_path, "--job", "job.toml", "--", "exit 5").returncode == 5
    job.write_text('run = "train {cfg}"\ncells = ["a.yaml"]\n')
    sweep = smoke(tmp_path, "--job", "job.toml")
    assert sweep.returncode == 2 and "job.toml: smoke: missing" in sweep.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which command?"),
        (("--env", "X", "--", "true"), "--env"),
        (("--in", "missing", "--", "true"), "no such directory"),
        (("--batches", "0", "--", "true"), "at least 1"),
        (("--overfit-one-batch", "1", "--", "true"), "at least 2 steps"),
        (("--", "/no/such/program", "x"), "cannot be started"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = smoke(tmp_path, *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_no_result_here_is_replaced_or_left_for_the_next_push(tmp_path: Path) -> None:
    """A checkpoint of two batches in the project would be pushed, and the box would resume from it."""
    for folder in ("data", "outputs"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".gitignore").write_text("data/\noutputs/\n")
    (tmp_path / "data" / "words.txt").write_text("a b c")
    (tmp_path / "outputs" / "latest.pt").write_bytes(b"a week of training")
    command = script(
        tmp_path,
        "import pathlib\n"
        "assert pathlib.Path('data/words.txt').read_text() == 'a b c'\n"
        "for name in ('outputs', 'new'):\n"
        "    pathlib.Path(name).mkdir(exist_ok=True)\n"
        "    pathlib.Path(name, 'latest.pt').write_bytes(b'two batches')\n",
    )
    done = smoke(tmp_path, "--", sys.executable, command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs" / "latest.pt").read_bytes() == b"a week of training"
    assert not (tmp_path / "new").exists()
