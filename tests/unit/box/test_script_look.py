"""What is read of a training's script and of what is installed, and what is left alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from rgt_box.discovery import script_look, training_commands

HF = "from transformers import Trainer\ntrainer = Trainer(model)\ntrainer.train()\n"


def look(folder: Path, text: str, *args: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    (folder / "train.py").write_text(text)
    return script_look.inspect_script(
        os.getpid(), ["python", "train.py", *args], str(folder), env or {}
    )


@pytest.mark.parametrize(
    ("text", "args", "marks"),
    [
        (HF, (), ["train()"]),
        (HF.replace("train()", "train(resume_from_checkpoint=True)"), (), ["resume", "newest"]),
        (HF + "ProjectConfiguration(total_limit=1)", (), ["train()", "total_limit=1"]),
        (
            "import lightning as L\nModelCheckpoint(save_top_k=1)\nAsyncCheckpointIO()",
            (),
            ["ModelCheckpoint", "save_top_k=1", "AsyncCheckpointIO"],
        ),
        ("nn.BatchNorm2d(8)", (), ["BatchNorm"]),
        ("nn.SyncBatchNorm.convert_sync_batchnorm(m)", (), ["SyncBatchNorm"]),
        (HF.replace("train()", "train(resume_from_checkpoint=None)"), (), []),
        (HF, ("--resume_from_checkpoint", "x"), ["resume", "train()"]),
        (
            HF + "args = TrainingArguments(save_total_limit=1)",
            (),
            ["train()", "save_total_limit=1"],
        ),
        (HF + "args = TrainingArguments(save_total_limit=10)", (), ["train()"]),
        ("import lightning as L\nL.Trainer().fit(model)", (), ["fit"]),
        ('import lightning as L\nL.Trainer().fit(model, ckpt_path="last")', (), ["resume", "fit"]),
        ("accelerator.save_state('a')", (), ["save_state"]),
        (
            "accelerator.register_for_checkpointing(ema)\naccelerator.load_state('a')\n"
            "loader = accelerator.skip_first_batches(loader, 3)",
            (),
            ["resume", "load_state", "register_for_checkpointing", "skip_first_batches"],
        ),
        ("C(use_stateful_dataloader=True)", (), ["skip_first_batches"]),
        ("load_best_model_at_end=False", (), []),
        ("x = 1", ("--load_best_model_at_end", "True"), ["load_best_model_at_end"]),
        ("x = 1", ("--deepspeed", "ds.json"), ["DeepSpeed"]),
    ],
)
def test_marks(tmp_path: Path, text: str, args: tuple[str, ...], marks: list[str]) -> None:
    assert look(tmp_path, text, *args)["marks"] == marks


def test_frameworks_come_with_the_version_that_is_installed(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    for name in ("transformers-5.23.0", "pytorch_lightning-2.5.1", "numpy-2.3.0"):
        (packages / f"{name}.dist-info").mkdir()
    text = HF + "  import pytorch_lightning\n# import deepspeed\n"
    found = look(tmp_path, text, env={"VIRTUAL_ENV": str(tmp_path / "venv"), "HOME": "/root"})
    assert found["uses"][0] == "pytorch-lightning 2.5.1"
    assert found["uses"][1].startswith("transformers 5.23.0")
    assert len(found["uses"]) == 2
    assert found["cache"] == "/root/.cache/huggingface/hub"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "HOME": "/root"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/root"}, "/c/huggingface/hub"),
        ({}, None),
    ],
)
def test_where_the_cache_is(env: dict[str, str], expected: str | None) -> None:
    assert script_look.hub_cache(env) == expected


def test_only_ordinary_scripts_of_moderate_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "big.py").write_bytes(b"#" * (script_look.LARGEST + 1))
    (tmp_path / "odd.py").write_bytes(b"\xff\xfe\x00")
    for name in ("pipe.py", "big.py", "missing.py", "x.sh", "a\0.py"):
        assert script_look.script_text(name, str(tmp_path), "") is None
    assert script_look.script_text("odd.py", str(tmp_path), "") is not None
    assert script_look.script_text("odd.py", None, "") is None
    assert script_look.inspect_script(os.getpid(), ["python", "-c", "x"], str(tmp_path), {}) == {}


UNITS = (
    "save_total_limit", "total_limit", "save_top_k", "save_last", "resume_from_checkpoint", "ckpt_path", ".train(",
    "import", "sync_batchnorm", "deepspeed.initialize", "model.fit", "xgb",
)  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_a_hostile_script_is_looked_through_in_one_go(tmp_path: Path, unit: str) -> None:
    """While a pattern is searched for nothing else of the agent runs: what tried each blank anew took minutes."""
    assert len(look(tmp_path, unit + " " * (script_look.LARGEST - len(unit)))["marks"]) <= 1
    command = training_commands.parse_command(["python", "train.py"])
    assert script_look.training_call(command, str(tmp_path), "") == ""


def test_nor_do_many_beginnings_cost_more(tmp_path: Path) -> None:
    part = "".join(unit + between for unit in UNITS for between in (" ", "\t", "\n", "=", " ="))
    assert "marks" in look(tmp_path, part * (script_look.LARGEST // len(part)))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("    scaler.scale(loss).backward()", "backward()"),
        ("    accelerator.backward(loss)", "backward()"),
        ("with tf.GradientTape() as tape:", "GradientTape()"),
        ("loss, grads = jax.value_and_grad(loss_fn)(params)", "value_and_grad()"),
        ("trainer.train()", "trainer.train()"),
        ("    trainer.fit(model, data)", "trainer.fit()"),
        ("history = model.fit(x, y, epochs=3)", "model.fit()"),
        ("booster = xgb.train(params, data)", "xgb.train()"),
        ("model.train()", ""),  # a mode of torch's modules, which evaluations restore, too
        ("scaler.fit(x)", ""),
        ("# loss.backward() is not called here", ""),
        ('"""Calls loss.backward() for\n\nx.backward() you."""', ""),
        ("print('then loss.backward()')", ""),
        ("losses['a'].backward()  # don't", "backward()"),
        ("fabric.launch()\nfabric.backward(loss)", "backward()"),
        ("loss.backward()\napp.run(main)", "backward()"),
        ("loss.backward()\napp.run(debug=True)", ""),
        ("loss.backward()\nuvicorn.run(app)", ""),
        ("loss.backward()\ndemo.queue().launch(share=True)", ""),
    ],
)
def test_what_a_script_calls_shows_that_it_trains(tmp_path: Path, line: str, shown: str) -> None:
    (tmp_path / "main.py").write_text(f"import torch\n{line}\n")
    command = training_commands.parse_command(["python", "main.py"])
    assert script_look.training_call(command, str(tmp_path), "") == shown


@pytest.mark.parametrize(
    "option", ["--eval", "--evaluate", "--test-only", "--predict", "--inference"]
)
def test_a_run_that_only_evaluates_is_no_training(tmp_path: Path, option: str) -> None:
    (tmp_path / "main.py").write_text("loss.backward()\n")
    command = training_commands.parse_command(["python", "main.py", option, "--eval_every", "5"])
    assert script_look.training_call(command, str(tmp_path), "") == ""
    command = training_commands.parse_command(["python", "main.py", "--eval_every", "5"])
    assert script_look.training_call(command, str(tmp_path), "") == "backward()"


@pytest.mark.parametrize("part", ['\\\\"', "'", '"""', "'\\n", "#'"])
def test_strings_of_a_hostile_script_cost_little(tmp_path: Path, part: str) -> None:
    (tmp_path / "main.py").write_text(part * (script_look.LARGEST // len(part)))
    command = training_commands.parse_command(["python", "main.py"])
    began = time.monotonic()
    assert script_look.training_call(command, str(tmp_path), "") == ""
    assert time.monotonic() - began < 5
