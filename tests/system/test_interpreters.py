"""Where the interpreters of the agent's tests come from: set-up puts them there, whatever the machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.tree import ROOT

MINORS = (8, 9, 10, 11, 12, 13)
PYTHON = """#!/bin/sh
case "$3" in *version_info*) echo 3.{minor} ;; *realpath*) echo "$0" ;; esac
"""
UV = """#!/bin/sh
echo "uv $*" >> "$LOG"
for version; do
    case $version in 3.*) ;; *) continue ;; esac
    at=$UV_PYTHON_INSTALL_DIR/cpython-$version.9-linux/bin
    mkdir -p "$at" && cp "$SHELF/python$version" "$at/" || exit 1
done
"""


class Machine:
    """A tree with the script alone, and a PATH with what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.root, self.shelf, self.log = folder / "tree", folder / "shelf", folder / "log"
        self.path = folder / "bin"
        for each in (self.root / "scripts", self.root / ".venv/bin", self.shelf, self.path):
            each.mkdir(parents=True)
        shutil.copy(ROOT / "scripts/interpreters.sh", self.root / "scripts")
        for minor in MINORS:
            self.write(self.shelf / f"python3.{minor}", PYTHON.format(minor=minor))

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, ci: str = "") -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.path}:/usr/bin:/bin",
            "HOME": str(self.root.parent),
            "PYENV_ROOT": str(self.root.parent / "pyenv"),
            "UV_PYTHON_INSTALL_DIR": str(self.root.parent / "uv"),
            "SHELF": str(self.shelf),
            "LOG": str(self.log),
            "CI": ci,
        }
        words = ["bash", str(self.root / "scripts/interpreters.sh")]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    def there(self) -> list[int]:
        return [
            minor for minor in MINORS if (self.root / f".interpreters/python3.{minor}").is_file()
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def hidden(machine: Machine) -> None:
    """What this machine itself has under these names is another version there."""
    for minor in MINORS:
        machine.write(machine.path / f"python3.{minor}", PYTHON.format(minor=2))


def test_what_the_machine_has_is_linked_and_the_rest_is_fetched(machine: Machine) -> None:
    hidden(machine)
    machine.write(machine.path / "python3.9", PYTHON.format(minor=9))
    machine.write(machine.root.parent / "pyenv/versions/3.10.4/bin/python", PYTHON.format(minor=10))
    machine.write(machine.root / ".venv/bin/uv", UV)
    done = machine.run("true")
    assert (done.returncode, machine.there()) == (0, list(MINORS)), done.stderr
    assert os.readlink(machine.root / ".interpreters/python3.9") == str(machine.path / "python3.9")
    assert "pyenv/versions/3.10.4" in os.readlink(machine.root / ".interpreters/python3.10")
    assert machine.log.read_text().split()[-4:] == ["3.8", "3.11", "3.12", "3.13"]
    machine.log.unlink()
    assert machine.run("true").returncode == 0
    assert not machine.log.exists(), "nothing is fetched that is there"
    # One that was removed since, or updated in its place, is put there again.
    machine.write(machine.path / "python3.9", PYTHON.format(minor=10))
    assert machine.run("true").returncode == 0
    assert "/uv/" in os.readlink(machine.root / ".interpreters/python3.9")


def test_what_fetches_them_comes_with_the_tools() -> None:
    """A bare Debian has one Python and no uv; set-up puts it into `.venv`, where the script looks first."""
    assert re.search(r"^uv==\S+ \\$", (ROOT / "requirements/dev.lock").read_text(), re.MULTILINE)
    assert ".venv/bin/uv" in (ROOT / "scripts/interpreters.sh").read_text()


def test_a_version_that_cannot_be_had_is_named_and_fails_ci(machine: Machine) -> None:
    hidden(machine)
    machine.write(machine.root / ".venv/bin/uv", "#!/bin/sh\nexit 1\n")
    for ci, status in (("", 0), ("true", 1)):
        done = machine.run(ci)
        assert done.returncode == status
        assert "no Python 3.8 3.9 3.10 3.11 3.12 3.13 here" in done.stderr
