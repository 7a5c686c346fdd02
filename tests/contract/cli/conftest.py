"""The real `rgt` in a process of its own, against a real sshd.

`Rgt(...)` and `Rgt.on` fork it from a server that has its imports; `Rgt.command` and `Rgt.start` start all of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet.config import dump_fleet
from rgt_tui.model import BoxSpec
from tests import warm_rgt
from tests.contract.ssh.conftest import RealSshd, lone_sshd

real_sshd = lone_sshd

PATIENCE = 60.0


@dataclass
class Rgt:
    """Runs `rgt` as a person does, in a directory and a home of its own."""

    folder: Path
    fleet: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RGT_", "XDG_", "SSH_AUTH"))
        }
        return kept | {"HOME": str(self.folder), "COLUMNS": "120"} | self.env

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "rgt_tui.cli.entry", *words]

    def __call__(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return warm_rgt.rgt(*words, cwd=self.folder, env=self.environment(), timeout=timeout)

    def on(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a command on the fleet file."""
        return self(words[0], "--fleet", str(self.fleet), *words[1:], timeout=timeout)

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(words[0], "--fleet", str(self.fleet), *words[1:]),
            cwd=self.folder,
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def describe(self, specs: Sequence[BoxSpec]) -> None:
        """Write the fleet file; how full the disks of this machine are says nothing of what is tested."""
        self.write(
            dump_fleet(specs) + "".join(f"[alerts.{kind}]\nenabled = false\n" for kind in DISKS)
        )

    def write(self, text: str) -> None:
        """Write the fleet file as one thing: a running rgt may read it at any moment."""
        beside = self.fleet.with_name(self.fleet.name + ".new")
        beside.write_text(text)
        beside.replace(self.fleet)


@pytest.fixture
def rgt(tmp_path: Path) -> Rgt:
    return Rgt(folder=tmp_path, fleet=tmp_path / "fleet.toml")


DISKS = ("bytes", "inodes", "filling")
"""Alerts about what other programs write."""


@contextmanager
def mounted_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own at a new folder, with a size as ``mount`` takes it."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def lab(rgt: Rgt, real_sshd: RealSshd) -> BoxSpec:
    """A fleet of one box that is reached, and on which nothing trains, whatever else runs on this machine."""
    spec = msgspec.structs.replace(real_sshd.spec, name="lab", pattern="^no such training$")
    rgt.describe([spec])
    return spec
