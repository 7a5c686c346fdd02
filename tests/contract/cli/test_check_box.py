"""`rgt check-box` on a real box: a machine that is active and whose CUDA fails is refused before money runs."""

from __future__ import annotations

import json
import venv
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.model import BoxSpec, RentalTerms
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.process.box.test_measure import FAKE


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of the box whose torch is ours."""
    folder = tmp_path_factory.mktemp("box-python")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "torch-2.9.0.dist-info").mkdir()
    (packages / "torch-2.9.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n"
    )
    return folder / "bin/python"


def check(
    rgt: Rgt, sshd: RealSshd, python: Path, *words: str, **over: Any
) -> tuple[int, dict[str, Any]]:
    spec = msgspec.structs.replace(sshd.spec, name="lab", python=str(python), **over)
    rgt.describe([spec])
    done = rgt.on("check-box", "lab", "--quick", "--json", *words)
    assert done.stdout, done.stderr
    body = json.loads(done.stdout)
    assert (body["exit"], body["ok"]) == (done.returncode, done.returncode == 0)
    return done.returncode, body


def test_active_and_cuda_fails_is_refused(rgt: Rgt, real_sshd: RealSshd, python: Path) -> None:
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    (packages / "torch.py").write_text("import os\nos.environ['FAKE_CUDA'] = 'broken'\n" + FAKE)
    code, body = check(rgt, real_sshd, python, asked=RentalTerms(gpu="A100", gpu_count=1))
    rows = {row["id"]: row for row in body["rows"]}
    assert (code, rows["cuda"]["verdict"]) == (1, "refuse")
    assert "CUDA driver initialization failed" in rows["cuda"]["text"]
    assert "rent another" in rows["cuda"]["advice"]
    # Without a GPU, and where none was asked for, that is no fault.
    code, body = check(rgt, real_sshd, python)
    rows = {row["id"]: row for row in body["rows"]}
    assert (code, rows["gpu"]["text"], rows["cuda"]["verdict"]) == (
        0,
        "no GPU; none was requested",
        "ok",
    )
    assert rows["disk-write"]["verdict"] in ("ok", "doubtful")
    assert list((real_sshd.folder / "home").glob(".rgt-measure*")) == []


def test_a_box_that_is_not_reached_is_3(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    done = rgt.on("check-box", "lab")
    assert (done.returncode, done.stdout) == (3, "")
