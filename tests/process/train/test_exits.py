"""How a loop of a person's own ends where it cannot start: by the interpreter itself, without any handling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rgt_train import Run, exits

from tests.process.train.harness import ENV

UNCAUGHT = """
from rgt_train import exits

@exits.raises_not_started
def start(name):
    raise exits.UsageError(f"cannot use {name}")

try:
    start("here")
except exits.UsageError as error:
    assert isinstance(error, Exception) and str(error) == "cannot use here"
start("there")
"""


def test_a_mistake_ends_with_one_line_and_code_2() -> None:
    done = subprocess.run([sys.executable, "-c", UNCAUGHT], env=ENV, capture_output=True, text=True)
    assert done.returncode == exits.USAGE
    assert done.stderr == "rgt_train: cannot use here\nrgt_train: cannot use there\n"


def test_a_run_that_cannot_start_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(exits.NotStarted, match="cannot use") as told:
        Run(tmp_path / "file", model=torch.nn.Linear(1, 1), samples=4, epochs=1)
    assert told.value.code == exits.USAGE
    assert capsys.readouterr().err.count("rgt_train: cannot use") == 1
    assert exits.NotStarted.of(told.value) is told.value
    assert capsys.readouterr().err == "", "said once"
