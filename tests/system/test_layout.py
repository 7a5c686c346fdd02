"""The shape of the tree: sizes, docstrings, locks, and nothing in it that belongs to one machine."""

from __future__ import annotations

import ast
import re
import stat
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.system.tree import PACKAGES, ROOT, parse, product_files, shown, tracked_files

LONGEST = 650
"""Lines of code, without blank ones, comments and docstrings.

A smell rather than a law: whoever needs more splits the file first and asks then."""


MOST_MODULES = 26
"""Of one folder, with its ``__init__.py``: more are not found by looking."""


def code_lines(path: Path) -> int:
    lines = {
        number
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node in ast.walk(parse(path)) if path.suffix == ".py" else ():
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and node.end_lineno is not None
        ):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def test_no_product_file_is_too_long() -> None:
    lengths = {shown(path): code_lines(path) for path in product_files(".py", ".tcss", ".sh")}
    assert {name: count for name, count in lengths.items() if count > LONGEST} == {}


def test_every_package_and_module_says_what_it_is() -> None:
    silent = [
        shown(path) for path in product_files(".py") if ast.get_docstring(parse(path)) is None
    ]
    assert silent == []


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for base in PACKAGES.values() for path in base.rglob("*.py")}
    assert (
        sorted(shown(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []
    )


def test_no_folder_of_the_product_is_crowded() -> None:
    modules = Counter(
        shown(path.parent) for base in PACKAGES.values() for path in base.rglob("*.py")
    )
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES} == {}


# Put together from pieces, so that this file does not find itself.
MACHINE_PATHS = tuple("/" + rest for rest in ("work/", "root/.pyenv", "opt/wheels", "opt/pypi"))
REGISTRY_HOSTS = tuple(
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("deb", "debian", "org"),
        ("npmjs", "org"),
    )
)
PATHS, HOSTS = ("|".join(map(re.escape, each)) for each in (MACHINE_PATHS, REGISTRY_HOSTS))
FOREIGN = re.compile(rf"(?<!\w)(?:{PATHS})|{HOSTS}")


def foreign_in(text: str) -> list[str]:
    return sorted(set(FOREIGN.findall(text)))


def test_foreign_words_are_found() -> None:
    assert foreign_in(f"see {MACHINE_PATHS[0]}main and https://files.{REGISTRY_HOSTS[1]}/x") == [
        MACHINE_PATHS[0],
        REGISTRY_HOSTS[1],
    ]
    assert foreign_in("/workspace/ckpt, contract/work/test_run.py and org.pypi") == []


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    found = {}
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content[:8192]:
            continue
        if words := foreign_in(content.decode("utf-8", errors="replace")):
            found[shown(path)] = words
    assert found == {}


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[Unreleased\]$", text, re.MULTILINE)


def test_scripts_are_strict_and_executable() -> None:
    scripts = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci/run"]
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        assert text.startswith("#!/usr/bin/env bash\n"), shown(script)
        assert "\nset -euo pipefail\n" in text, shown(script)
        assert script.stat().st_mode & stat.S_IXUSR, shown(script)


# The locks and what they were made from.


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def pins(lock: Path) -> dict[str, str]:
    found = re.findall(
        r"^([A-Za-z0-9_.-]+)==([^\s\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {canonicalize_name(name): version for name, version in found}


BASE = ROOT / "requirements/base.lock"
DEV = ROOT / "requirements/dev.lock"
TORCH = ROOT / "requirements/torch.lock"
FRAMEWORKS = ROOT / "requirements/frameworks.lock"


def requirements_of(section: str) -> list[str]:
    tables = project()
    found: dict[str, list[str]] = {
        "dependencies": tables["project"]["dependencies"],
        "dev": tables["dependency-groups"]["dev"],
        "build": tables["build-system"]["requires"],
        "train": tables["project"]["optional-dependencies"]["train"],
    }
    return found[section]


@pytest.mark.parametrize("section", ["dependencies", "dev", "build", "train"])
def test_the_locks_satisfy_the_project(section: str) -> None:
    # torch itself has no hash that holds everywhere: its version stands in torch.in.
    train = section == "train"
    locked = pins(TORCH.with_suffix(".in")) | pins(TORCH) if train else pins(DEV) | pins(BASE)
    unmet = [
        text
        for text in requirements_of(section)
        if not Requirement(text).specifier.contains(
            locked.get(canonicalize_name(Requirement(text).name), "0"), prereleases=True
        )
    ]
    assert unmet == [], "run: make lock"


def test_the_lock_sources_ask_for_what_the_project_asks_for() -> None:
    files = (BASE.with_suffix(".in"), DEV.with_suffix(".in"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    asked = {str(Requirement(line)) for line in lines if line and not line.startswith(("#", "-"))}
    wanted = {
        str(Requirement(text))
        for section in ("dependencies", "dev", "build")
        for text in requirements_of(section)
    }
    assert wanted <= asked


@pytest.mark.parametrize("lock", [BASE, DEV, TORCH, FRAMEWORKS], ids=lambda lock: lock.stem)
def test_every_locked_package_has_a_hash(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9_.-]+==)", text, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_torch_lock_fits_every_build_and_agrees_with_the_other() -> None:
    torch, base = pins(TORCH), pins(DEV) | pins(BASE)
    assert "torch" not in torch
    assert "torch" not in pins(FRAMEWORKS)
    assert [f"{name}=={version}" for name, version in torch.items() if "+" in version] == []
    assert {name for name in torch.keys() & base.keys() if torch[name] != base[name]} == set()


def test_the_two_locks_of_one_environment_agree() -> None:
    base, dev = pins(BASE), pins(DEV)
    assert {name for name in base.keys() & dev.keys() if base[name] != dev[name]} == set()
