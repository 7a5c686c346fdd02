"""The wheel holds what the program needs away from its source tree, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from tests.system.tree import ROOT, tracked_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def described(folder: Path, **environment: str) -> Message:
    """Build the metadata alone and return it."""
    code = "import sys; from hatchling.build import *; print(prepare_metadata_for_build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return message_from_string(
        (folder / done.stdout.strip() / "METADATA").read_text(encoding="utf-8")
    )


def test_with_an_address_the_package_s_page_has_links_that_lead_there(tmp_path: Path) -> None:
    """The package index shows the README, and no relative link works there."""
    home = "https://forge.example/team/rgt"
    found = described(tmp_path, RGT_HOMEPAGE=home + "/")
    urls = dict(url.split(", ") for url in found.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} == set(urls)
    assert all(url.startswith(home) for url in urls.values())
    links = re.findall(r"\]\(([^)\s]+)\)", str(found.get_payload()))
    ours = [
        re.sub(rf"^{re.escape(home)}/(blob|raw)/main/", "", link).partition("#")[0]
        for link in links
    ]
    assert len(ours) > 15
    assert [name for name in ours if not (ROOT / name).exists()] == []
    assert not [link for link in links if not link.startswith("https://")]


def test_without_one_the_package_names_none(tmp_path: Path) -> None:
    found = described(tmp_path, RGT_HOMEPAGE="")
    assert found.get_all("Project-URL") is None
    assert (
        str(found.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    )


def shipped() -> dict[str, str]:
    """Where the source files that belong into the wheel stand in it, and where they come from."""
    places = (
        ("rgt_tui/", "rgt_tui/"),
        ("profiles/", "rgt_tui/_data/profiles/"),
        ("handbook/", "rgt_tui/_data/handbook/"),
        ("remote/rgt_box/", "rgt_tui/_data/remote/rgt_box/"),
        ("remote/rgt_wire/", "rgt_tui/_data/remote/rgt_wire/"),
        ("remote/rgt_wire/", "rgt_wire/"),
        ("remote/rgt_train/", "rgt_train/"),
    )
    found = {}
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        for source, target in places:
            if name.startswith(source):
                found[target + name.removeprefix(source)] = name
    return found


def test_the_wheel_holds_every_source_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert shipped().keys() - inside == set()
    assert {name for name in inside - shipped().keys() if not name.endswith("/")} == set()


def test_the_unpacked_wheel_runs_away_from_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "un packed")
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "import rgt_tui.profiles as profiles;"
        "assert len(profiles.all_profiles()) > 0;"
        "from rgt_tui.cli.entry import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "un packed"), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rgt ")
