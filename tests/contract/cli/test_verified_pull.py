"""From a box to a proof: pulled over a real sshd, verified, and what a flipped byte then does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.model import BoxSpec
from rgt_tui.transfer import FolderRow, Ledger, ledger_path
from tests.contract.cli.conftest import Rgt
from tests.unit.transfer.hostile_files import FILES


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    shutil.copytree(FILES, folder)
    for path in folder.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    return folder


def verified(rgt: Rgt, folder: Path) -> dict[str, Any]:
    done = rgt("verify", str(folder), "--json", "--no-torch")
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_was_pulled_is_proven_by_the_boxs_own_hashes(
    rgt: Rgt, lab: BoxSpec, results: Path
) -> None:
    assert rgt.on("pull", "lab", str(results)).returncode == 0
    top = rgt.folder / "pulled" / "lab"
    copies = top / str(results).lstrip("/")
    found = verified(rgt, top)
    assert (found["ok"], len(found["checkpoints"]), found["only_hashed"]) == (True, 5, 0)
    assert not [each for each in found["unproven"] if "checksums" in each["reason"]]

    weights = copies / "weights.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (copies / "logs/metrics.jsonl").unlink()
    found = verified(rgt, top)
    at = str(copies.relative_to(top))
    assert {each["path"] for each in found["errors"]} == {
        f"{at}/weights.safetensors",
        f"{at}/logs/metrics.jsonl",
    }

    weights.unlink()
    assert rgt.on("pull", "lab", str(results)).returncode == 0
    assert verified(rgt, top)["ok"], "what came anew is what the box has"


def test_a_pull_that_is_not_finished_or_lacks_a_file_is_no_whole_directory(
    rgt: Rgt, lab: BoxSpec, results: Path
) -> None:
    assert rgt.on("pull", "lab", str(results)).returncode == 0
    top = rgt.folder / "pulled" / "lab"
    copies = top / str(results).lstrip("/")
    (top / ".rgt-parts").mkdir()
    (top / ".rgt-parts/0123").write_bytes(b"half")
    assert [each["path"] for each in verified(rgt, top)["errors"]] == [".rgt-parts"]
    shutil.rmtree(top / ".rgt-parts")
    ledger = Ledger(ledger_path("lab", rgt.environment()))
    folder = FolderRow(
        path=str(results), local=str(copies), fingerprint="f", files=1, bytes=1,
        missing=((f"{results}/logs/gone", "it changed while it was read"),),
    )  # fmt: skip
    ledger.append_rows([folder])
    ledger.close()
    (error,) = verified(rgt, copies)["errors"]
    assert error == {
        "path": "logs/gone",
        "reason": "it was not pulled: it changed while it was read",
    }
