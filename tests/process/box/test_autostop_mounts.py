"""Which results a box saves before it stops itself where other disks, or memory, are mounted among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.box.harness import private_mount

SAVE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rgt_box.autostop import result_copies
saved = result_copies.copy_results([], json.loads(sys.argv[2]), [], json.loads(sys.argv[3]))
print(json.dumps([saved.text, saved.problems]))
"""


def test_what_is_in_memory_within_a_durable_directory_is_copied_out_of_it(
    agent_file: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    volume, scratch = tmp_path / "volume", tmp_path / "volume/exp/scratch"
    scratch.mkdir(parents=True)
    (volume / "exp/kept.txt").write_text("1")
    words = private_mount(f"mount -t tmpfs tmpfs {scratch}", f"echo 1 > {scratch}/lost.txt")
    given = [str(agent_file), json.dumps([str(volume / "exp")]), json.dumps([str(volume)])]
    done = subprocess.run(
        [*words, sys.executable, "-c", SAVE, *given],
        env=os.environ | {"RGT_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        check=True,
    )
    text, problems = json.loads(done.stdout)
    assert problems == []
    assert text.startswith("1 files of 1 directories were copied")
    copies = volume / "rgt-autostop"
    names = [path.relative_to(copies) for path in copies.rglob("*") if path.is_file()]
    assert [str(name) for name in names] == [str(scratch / "lost.txt").lstrip("/")]
