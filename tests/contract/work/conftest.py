from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.cli.conftest import lab as lab
from tests.contract.cli.conftest import real_sshd as real_sshd
from tests.contract.cli.conftest import rgt as rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    """A box whose tmux server, if it has one, is its own and ends with it."""
    folder = tmp_path_factory.mktemp("worker")
    with fresh_sshd(folder) as running:
        (folder / "home/.bashrc").write_text(f"export TMUX_TMPDIR={folder}\n")
        yield running
        subprocess.run(
            ["tmux", "kill-server"],
            env={"TMUX_TMPDIR": str(folder)},
            capture_output=True,
            check=False,
        )


@pytest.fixture
def box(rgt: Rgt, worker: RealSshd) -> BoxSpec:
    """A fleet of that one box."""
    spec = msgspec.structs.replace(worker.spec, name="lab", pattern="^no such training$")
    rgt.describe([spec])
    return spec


@pytest.fixture
def home(worker: RealSshd) -> Path:
    """The home directory on the box."""
    return worker.folder / "home"
