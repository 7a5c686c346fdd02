"""A second user of the box, who trains on it and chooses all that the agent sees of that."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.box.conftest import agent as agent

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that every user reaches, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="rgt-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home_of_nobody(open_folder: Path) -> Path:
    folder = open_folder / "nobody"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


TRAIN = """
import os, sys, time
real, effective = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setresgid(real, effective, effective)
os.setresuid(real, effective, effective)
CODE
print("up", flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def training(
    folder: Path, tmux: str, real: int = NOBODY, effective: int = NOBODY, code: str = ""
) -> Iterator[int]:
    """A training below what calls itself a tmux server: its words and its environment are its own to choose.

    Args:
        folder: Where it runs.
        tmux: Socket that its environment names.
        real: Its user.
        effective: What it may do: another's for a set-user-ID program.
        code: What it does first, as that user.
    """
    name = f"train_{uuid.uuid4().hex[:8]}.py"
    (folder / name).write_text(TRAIN.replace("CODE", code))
    env = {"PATH": os.environ["PATH"], "TMUX": f"{tmux},1,0", "TMUX_PANE": "%7"}
    script = f"{shlex.quote(sys.executable)} {name} {real} {effective} & echo $!; wait"
    reader, terminal = os.openpty()
    parent = subprocess.Popen(
        ["tmux: server", "-c", script], executable="/bin/sh", stdout=terminal,
        stderr=terminal, env=env, start_new_session=True,
        cwd=folder,
    )  # fmt: skip
    os.close(terminal)
    try:
        with open(reader, encoding="utf-8") as lines:
            said = {
                lines.readline().strip() for _ in range(2)
            }  # the shell's and the child's, in either order
            assert "up" in said, said
            (pid,) = said - {"up"}
            yield int(pid)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
