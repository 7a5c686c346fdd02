"""What rgt says about checkpoints of the real accelerate and transformers, and about the scripts that wrote them."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from rgt_box.discovery import script_look

from rgt_tui.profiles import faults_of
from rgt_tui.transfer import Verification, verify_directory
from tests.process.train import frameworks

LOOP = """
import os, sys, torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

out, last, cut = sys.argv[1], int(sys.argv[2]), sys.argv[3]
project = ProjectConfiguration(project_dir=out, automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(cpu=True, project_config=project)

class Progress:
    step = 0
    def state_dict(self):
        if cut == "registered" and self.step == last: raise SystemExit
        return {"step": self.step}
    def load_state_dict(self, state): self.step = state["step"]

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(list(range(64)), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
progress = Progress()
accelerator.register_for_checkpointing(progress)
#RESUME
for batch in loader:
    print(batch.tolist())
    accelerator.backward(model(torch.ones(4, 4)).mean())
    optimizer.step()
    progress.step += 1
    if cut == "random" and progress.step == last: torch.get_rng_state = sys.exit
    accelerator.save_state()
    if progress.step == last: break
"""
RESUMED = "accelerator.load_state()"
NAMED = f"""{RESUMED}
newest = max(int(name.rpartition("_")[2]) for name in os.listdir(out + "/checkpoints"))
accelerator.project_configuration.iteration = newest + 1"""
SKIPPED = f"""{NAMED}
loader = accelerator.skip_first_batches(loader, progress.step)"""


def run_loop(out: Path, last: int, resume: str = "", cut: str = "") -> tuple[list[list[int]], str]:
    """Run the loop up to a step; return its batches, and what it said last."""
    script = LOOP.replace("#RESUME", resume)
    done = frameworks.run(script, out.parent, str(out), str(last), cut, check=False)
    batches = [ast.literal_eval(line) for line in done.stdout.splitlines() if line[:1] == "["]
    return batches, (done.stderr.strip().splitlines() or [""])[-1]


def advice(folder: Path, script: str) -> dict[str, list[str]]:
    """Return what rgt advises about a script that runs, by page of the handbook."""
    (folder / "train.py").write_text(script)
    words = [str(frameworks.require()), "train.py"]
    seen = script_look.inspect_script(0, words, str(folder), {})
    found: dict[str, list[str]] = {}
    for text, fault in faults_of(seen["uses"], seen["marks"]):
        found.setdefault(fault.page, []).append(text)
    return found


def complete(found: Verification) -> list[str]:
    return [one.path for one in found.checkpoints]


def test_total_limit_keeps_the_newest_and_each_of_them_is_complete(tmp_path: Path) -> None:
    run_loop(tmp_path / "out", 3)
    found = verify_directory(tmp_path / "out")
    assert found.ok, found.errors
    assert complete(found) == ["checkpoints/checkpoint_1", "checkpoints/checkpoint_2"]


@pytest.mark.parametrize(
    ("cut", "missing"),
    [("random", "random_states_0.pkl"), ("registered", "custom_checkpoint_0.pkl")],
)
def test_a_save_that_was_cut_off_is_no_checkpoint(tmp_path: Path, cut: str, missing: str) -> None:
    out = tmp_path / "out"
    run_loop(out, 3, cut=cut)
    found = verify_directory(out)
    assert [(row.path, row.reason) for row in found.errors] == [
        (f"checkpoints/checkpoint_2/{missing}", "it is missing: the save was cut off")
    ]
    assert complete(found) == ["checkpoints/checkpoint_1"]
    if cut == "random":  # the only one, as total_limit=1 leaves it
        shutil.rmtree(out / "checkpoints/checkpoint_1")
        assert not verify_directory(out).ok


def test_a_loop_that_never_loads_is_told_so(tmp_path: Path) -> None:
    run_loop(tmp_path / "out", 2)
    again, _ = run_loop(tmp_path / "out", 1)
    assert again == [[0, 1, 2, 3]], "it starts from scratch"
    told = advice(tmp_path, LOOP)["C10"]
    assert any("never calls accelerator.load_state" in text for text in told), told
    assert all(text.startswith("accelerate 1.15.0: ") for text in told)


def test_the_data_begin_again_without_skip_first_batches(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_loop(out, 2)
    repeated, _ = run_loop(out, 3, NAMED)
    assert repeated == [[0, 1, 2, 3]]
    (told,) = advice(tmp_path, LOOP.replace("#RESUME", NAMED))["C13"]
    assert "accelerator.skip_first_batches(loader, n)" in told
    goes_on, _ = run_loop(out, 4, SKIPPED)
    assert goes_on == [[12, 13, 14, 15]]
    assert advice(tmp_path, LOOP.replace("#RESUME", SKIPPED)) == {}


def test_the_names_begin_again_after_load_state(tmp_path: Path) -> None:
    """Its new saves are the oldest by number, so that total_limit removes them first."""
    out = tmp_path / "out"
    run_loop(out, 3)
    _, said = run_loop(out, 9, RESUMED)
    assert "already exists. Please manually override `self.save_iteration`" in said
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["checkpoint_2"]
    (told,) = advice(tmp_path, LOOP.replace("#RESUME", RESUMED))["C10"]
    assert "accelerator.project_configuration.iteration = the newest number + 1" in told


BEST = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
data = [{"input_ids": (torch.arange(8) + i) % 32, "labels": (torch.arange(8) + i) % 32} for i in range(16)]
arguments = TrainingArguments(sys.argv[1], max_steps=4, per_device_train_batch_size=4, learning_rate=30.0, save_steps=1,
    eval_strategy="steps", eval_steps=1, save_total_limit=2, load_best_model_at_end=True, report_to="none",
    use_cpu=True, disable_tqdm=True)
trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:4])
trainer.train(resume_from_checkpoint=False)
"""


def test_the_best_checkpoint_that_the_trainer_loads_at_the_end(tmp_path: Path) -> None:
    frameworks.run(BEST, tmp_path, str(tmp_path / "out"))
    found = verify_directory(tmp_path / "out")
    assert found.ok, found.errors
    best, newest = complete(found)
    assert (best, newest) == ("checkpoint-1", "checkpoint-4")
    assert not any("best checkpoint" in row.reason for row in found.unproven)
    (told,) = advice(tmp_path, BEST)["C17"]
    assert "the weights at the end are those of the best checkpoint" in told
    shutil.rmtree(tmp_path / "out" / best)
    reasons = {row.path: row.reason for row in verify_directory(tmp_path / "out").unproven}
    assert "it names checkpoint-1 as the best" in reasons["checkpoint-4/trainer_state.json"]
