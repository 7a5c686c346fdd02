"""The programs in examples/: each runs to its end, and, launched again after an interruption, goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.train import frameworks
from tests.process.train.harness import ENV, ROOT, events, metrics

EXAMPLES = ROOT / "examples"
PATIENCE_S = 300.0


def launch(
    example: str, out: Path, *words: str, python: str = sys.executable, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run an example's script in a directory of its own."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [python, *words] if words[:1] == ("-m",) else [python, example, *words]
    done = subprocess.run(
        command,
        cwd=out.parent,
        env={**os.environ, **ENV, **frameworks.OFFLINE, "HOME": str(out.parent), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def script(name: str) -> str:
    return str(EXAMPLES / name)


def test_the_page_names_each_example_and_no_other() -> None:
    named = set(re.findall(r"^\| \[(\w+)\]\(", (EXAMPLES / "README.md").read_text(), re.M))
    assert named == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}


def test_the_own_loop_goes_on_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "run"
    launch(script("own_loop/train.py"), out, "--out", str(out), "--epochs", "1", RGT_SMOKE="1")
    assert [line["step"] for line in metrics(out) if "loss" in line][-1] == 20
    assert (
        "done at step 20"
        in launch(script("own_loop/train.py"), out, "--out", str(out), "--epochs", "1").stdout
    )


def test_the_cells_are_a_script_in_dev_mode(tmp_path: Path) -> None:
    done = launch(script("cells/experiment.py"), tmp_path / "x")
    assert "dev mode True: 256 samples, 2 epochs" in done.stdout
    assert "after step 16" in done.stdout
    titles = re.findall(r"^# %% (.+)$", (EXAMPLES / "cells/experiment.py").read_text(), re.M)
    assert titles[:3] == ["[markdown]", "Settings", "Data"]
    out = tmp_path / "given"
    launch(script("cells/experiment.py"), out, RGT_OUT=str(out))
    assert metrics(out)[-1]["event"] == "done"


@pytest.mark.full
def test_the_trainer_of_transformers_goes_on(tmp_path: Path) -> None:
    out, python = tmp_path / "run", str(frameworks.require())
    for steps in ("10", "20"):
        launch(
            script("hf_trainer/train.py"), out, "--out", str(out), "--steps", steps, python=python
        )
    (resumed,) = events(out, "resume")
    assert resumed["step"] == 10
    assert metrics(out)[-1]["event"] == "done"


@pytest.mark.full
def test_lightning_goes_on(tmp_path: Path) -> None:
    out, python = tmp_path / "run", str(frameworks.require())
    for epochs in ("1", "3"):
        launch(
            script("lightning/train.py"), out, "--out", str(out), "--epochs", epochs, python=python
        )
    (resumed,) = events(out, "resume")
    assert resumed["step"] == 8
    assert metrics(out)[-1]["event"] == "done"


@pytest.mark.full
def test_a_sharded_training_on_two_ranks(tmp_path: Path) -> None:
    out = tmp_path / "run"
    launch(
        "", out, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        script("fsdp2/train.py"), "--out", str(out), "--epochs", "1", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    assert [line["step"] for line in metrics(out) if "loss" in line][-1] == 20
    assert metrics(out)[-1]["event"] == "done"
