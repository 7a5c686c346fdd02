"""The real sshd, and an end for what it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd


@pytest.fixture(scope="session", autouse=True)
def recorders_end(real_sshd: RealSshd) -> Iterator[None]:
    """The recorder outlives every connection, and must not outlive the tests."""
    yield
    end_recorder(real_sshd)


def end_recorder(box: RealSshd) -> None:
    """Stop what a session has left on a box."""
    for agent in (box.folder / "home/.cache/rgt").glob("rgt-box-*.pyz"):
        state = {**os.environ, "XDG_CACHE_HOME": str(agent.parent.parent)}
        subprocess.run(
            [sys.executable, "-I", "-S", str(agent), "record", "--stop"], env=state, check=False
        )
