"""`rgt curves` against a real sshd: the curves of a run on the box, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt


@pytest.fixture
def trained(rgt: Rgt, lab: BoxSpec, tmp_path: Path) -> str:
    """A box with one run that logged; returns its name."""
    folder = tmp_path / "runs" / "gpt-small"
    folder.mkdir(parents=True)
    lines = [{"step": step, "loss": 5.0 / (1 + step), "lr": 0.001} for step in range(200)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rgt.describe([msgspec.structs.replace(lab, runs=(str(folder),))])
    return "gpt-small"


def test_curves_come_from_the_box_as_text_and_as_json(rgt: Rgt, trained: str) -> None:
    done = rgt.on("curves", "lab", "--width", "70", "--height", "15")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (len(lines), max(map(len, lines)) <= 70) == (15, True)
    assert f"{trained}: loss" in lines[0]
    assert "\x1b" not in done.stdout
    asked = rgt.on("curves", "lab", trained, "--metric", "lr", "--json")
    (row,) = map(json.loads, asked.stdout.splitlines())
    assert (row["box"], row["run"], row["metric"], len(row["steps"])) == ("lab", trained, "lr", 200)


def test_a_wrong_run_or_series_is_named_with_those_there_are(rgt: Rgt, trained: str) -> None:
    done = rgt.on("curves", "lab", "gpt-smal")
    assert (done.returncode, f"there are: {trained}" in done.stderr) == (1, True), done.stderr
    done = rgt.on("curves", "lab", trained, "--metric", "losss")
    assert (done.returncode, "there are: " in done.stderr) == (1, True), done.stderr
