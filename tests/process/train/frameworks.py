"""Running code where the libraries are installed that the trainer has bridges to (`make frameworks`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.process.train.harness import ENV, ROOT

PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
TIMEOUT = 150


def require() -> Path:
    """Return the interpreter that has them; skips the test where it was not built."""
    if not PYTHON.exists():
        pytest.skip("needs .venv-frameworks: make frameworks")
    return PYTHON


def run(script: str, cwd: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `script` there, in the directory `cwd`, without reaching for a network."""
    offline = {
        "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "TOKENIZERS_PARALLELISM": "false",
        "HOME": str(cwd), "HF_HUB_DISABLE_TELEMETRY": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    done = subprocess.run(
        [str(require()), "-c", script, *arguments],
        cwd=cwd,
        env={**ENV, **offline},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done
