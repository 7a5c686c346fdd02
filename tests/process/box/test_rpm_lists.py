"""Files that rpm has installed are no results: a package is built and entered into a database by rpm itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.process.box.harness import Agent
from tests.process.box.test_results import groups, put, results

pytestmark = pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="there is no rpmbuild")
SPEC = """
Name: tool
Version: 1
Release: 1
Summary: Two files
License: none
BuildArch: noarch
%description
Two files.
%install
mkdir -p %{buildroot}/opt/tool/lib "%{buildroot}/opt/tool/with space"
echo 1 > %{buildroot}/opt/tool/lib/best.pt
echo 2 > "%{buildroot}/opt/tool/with space/r\u00e9sultat.txt"
%files
/opt/tool
"""
PACKAGED = ("opt/tool/lib/best.pt", "opt/tool/with space/r\u00e9sultat.txt")


def rpm(program: str, *words: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"}
    subprocess.run([program, *words], check=True, capture_output=True, env=env)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A root directory in which the package is installed, by the list of rpm, and a result lies next to its files."""
    (tmp_path / "tool.spec").write_text(SPEC)
    rpm("rpmbuild", "-bb", "--define", f"_topdir {tmp_path}/top", str(tmp_path / "tool.spec"))
    (package,) = (tmp_path / "top/RPMS/noarch").iterdir()
    root = tmp_path / "box"
    for name in (*PACKAGED, "opt/tool/lib/mine.pt"):
        put(root / name, "x")
    database = root / "usr/lib/sysimage/rpm"
    database.mkdir(parents=True)
    rpm("rpm", "--dbpath", str(database), "--initdb")
    rpm(
        "rpm", "--dbpath", str(database), "-i", "--justdb", "--nodeps", "--ignorearch", str(package)
    )
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/rpm").symlink_to("../../usr/lib/sysimage/rpm")
    return root


def test_what_rpm_lists_is_no_result_and_what_lies_next_to_it_is(agent: Agent, box: Path) -> None:
    found = results(agent, box)
    assert {path: group.files for path, group in groups(found).items()} == {
        str(box / "opt/tool/lib"): 1
    }
    assert groups(found)[str(box / "opt/tool/lib")].newest_path.endswith("/mine.pt")
    (listed,) = [rule for rule in found.skipped if rule.rule == "packages, by their lists of files"]
    assert (listed.files, listed.proved) == (2, True)


def test_without_rpm_its_files_count_and_no_database_is_made(
    agent: Agent, box: Path, tmp_path: Path
) -> None:
    for name in (box / "usr/lib/sysimage/rpm").iterdir():
        name.unlink()
    found = results(agent, box)
    assert sum(group.files for group in groups(found).values()) == 3
    assert list((box / "usr/lib/sysimage/rpm").iterdir()) == []
