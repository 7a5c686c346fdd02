"""`rgt push --trainer` as a person types it, against a real sshd."""

from __future__ import annotations

import subprocess

import msgspec

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt


def test_push_prints_a_launch_that_works(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("push", "--trainer", "lab", "--json")
    assert done.returncode == 0, done.stderr
    told = msgspec.json.decode(done.stdout)
    assert told["box"] == "lab" and told["problem"] is None and told["torch"].startswith("2.")
    assert told["path"].endswith(f"rgt-train-{told['sha256'][:16]}.pyz")
    # The box is this machine: what it prints for a shell there runs here. That it trains is tested with the box.
    words = f"{told['launch']} --help"
    explained = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=rgt.folder)
    assert explained.returncode == 0 and "launch again" in explained.stdout, explained.stderr
    shown = rgt.on("push", "--trainer", "lab")
    assert told["launch"] in shown.stdout and told["path"] in shown.stdout


def test_push_says_what_is_wrong(rgt: Rgt, lab: BoxSpec) -> None:
    assert rgt.on("push", "lab").returncode == 2
    unknown = rgt.on("push", "--trainer", "lib")
    assert unknown.returncode == 2 and "did you mean 'lab'?" in unknown.stderr
