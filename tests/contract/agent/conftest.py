from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.agent.trainings import Place, place
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd
from tests.process.box.conftest import agent as agent


@pytest.fixture
def exp(tmp_path: Path) -> Iterator[Place]:
    with place(
        tmp_path / f"exp{uuid.uuid4().hex[:8]}"
    ) as made:  # other tests' trainings run here, too
        yield made


@pytest.fixture
def lab(real_sshd: RealSshd) -> Iterator[RealSshd]:
    """A box whose recorder ends with the test, and forgets."""
    yield real_sshd
    home = real_sshd.folder / "home"
    env = dict(os.environ, HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"))
    for file in (home / ".cache" / "rgt").glob("*.pyz"):
        words = [sys.executable, "-I", "-S", str(file), "record", "--stop"]
        subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    for left in (home / ".cache" / "rgt").iterdir():
        if left.suffix != ".pyz":
            shutil.rmtree(left) if left.is_dir() else left.unlink()
