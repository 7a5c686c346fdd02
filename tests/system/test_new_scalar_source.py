"""Follows the recipe *a scalar source* of CONTRIBUTING.md in a copy of the agent: two files, and it is found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRESS = (
    "Epoch\tAverageEpRet\tLossPi\tTotalEnvInteracts\n"
    "0\t-120.5\t-0.02\t4000\n"
    "1\t-80.25\tnan\t8000\n"
    "2\t-60.0\t-0.01\t12"  # the line is still being written
)
LAYOUT = '    "spinningup": RowLayout(("TotalEnvInteracts",)),\n'
MARK = """def _spinningup(path: str, name: str, head: bytes) -> bool:
    return {"epoch", "totalenvinteracts"} <= set(_column_names(head))


"""
ROW = '    FileFormat("spinningup", ("progress.txt",), 1, _spinningup, _TABLE),\n'


def put(path: Path, text: str, before: str) -> None:
    old = path.read_text(encoding="utf-8")
    assert old.count(before) == 1, (path, before)
    path.write_text(old.replace(before, text + before), encoding="utf-8")


def scalars(home: Path, place: Path) -> dict[str, dict[str, object]]:
    words = [sys.executable, "-m", "rgt_box", "scalars", str(place), "--json"]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    return {row["tag"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_a_layout_a_mark_and_a_row_are_a_source_that_is_found(tmp_path: Path) -> None:
    run = tmp_path / "ppo_s0"
    run.mkdir()
    (run / "progress.txt").write_text(PROGRESS)
    copy = tmp_path / "copy"
    for package in ("rgt_box", "rgt_wire"):
        source = ROOT / "remote" / package
        shutil.copytree(source, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    before = {row["source"] for row in scalars(copy, run).values()}
    assert before == {"keras"}, "before, it is read over its epochs, as any such table"
    put(copy / "rgt_box/metrics/tables.py", LAYOUT, '    "keras": RowLayout(()),\n')
    put(copy / "rgt_box/metrics/formats.py", MARK, "def _is_keras_csv(")
    put(copy / "rgt_box/metrics/formats.py", ROW, '    FileFormat("keras",')
    found = scalars(copy, run)
    assert set(found) == {"epoch", "AverageEpRet", "LossPi"}
    assert {row["source"] for row in found.values()} == {"spinningup"}
    assert [found["AverageEpRet"][key] for key in ("x", "points", "last")] == [
        "step",
        2,
        [8000, -80.25],
    ]
    assert [found["LossPi"][key] for key in ("points", "nonfinite", "last")] == [
        2,
        1,
        [8000, "nan"],
    ]
