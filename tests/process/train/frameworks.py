"""Running code where the libraries are installed that the trainer has bridges to (`make frameworks`)."""

from __future__ import annotations

import atexit
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.process.train.harness import ENV, ROOT
from tests.warm_python import WarmPython

PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
TIMEOUT = 500.0
"""Seconds; one that hangs is ended by it, and none is slow: several libraries of this size, beside five other tests."""


OFFLINE = {
    "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip
IMPORTS = """
import torch, torch._dynamo, lightning.pytorch.callbacks, torchdata.stateful_dataloader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
import rgt_train.callbacks.recorder, rgt_train.cli, rgt_train.ending, rgt_train.loop
rgt_train.callbacks.recorder.MIRROR_GRACE_S = rgt_train.ending.MIRROR_GRACE_S = 250.0  # no platform kills here
"""


@cache
def warm() -> WarmPython:
    """Start the one server of this worker; it ends with it."""
    server = WarmPython(require(), IMPORTS, {**ENV, **OFFLINE})
    atexit.register(server.close)
    return server


def require() -> Path:
    """Return the interpreter that has them; skips the test where it was not built."""
    if not PYTHON.exists():
        pytest.skip("needs .venv-frameworks: make frameworks")
    return PYTHON


def run(
    script: str, cwd: Path, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `script` there, in the directory `cwd`, without reaching for a network."""
    env = {**ENV, **OFFLINE, "HOME": str(cwd)}
    done = warm().run(["-c", script, *arguments], cwd=cwd, env=env, timeout=TIMEOUT)
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done
