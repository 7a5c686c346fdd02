"""What the system tests know about the repository: its root, its tracked files, its modules."""

from __future__ import annotations

import ast
import os
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = {
    "rgt_tui": ROOT / "rgt_tui",
    "rgt_box": ROOT / "remote/rgt_box",
    "rgt_train": ROOT / "remote/rgt_train",
    "rgt_wire": ROOT / "remote/rgt_wire",
}
"""Our top-level packages and where they lie."""

PRODUCT_FOLDERS = ("rgt_tui", "remote", "scripts", "benchmarks", "profiles")

UNTRACKED_FOLDERS = {
    ".git",
    ".venv",
    ".venv-frameworks",
    ".interpreters",
    "build",
    "dist",
    "__pycache__",
    ".hypothesis",
}


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks or would track; in an unpacked archive, all that is no build output."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return tuple(_walk(ROOT))
    paths = (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a fixture; Python before 3.11.4, such as Debian 12's, knows no filters."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in UNTRACKED_FOLDERS and not path.name.endswith("_cache"):
                yield from _walk(path)
        elif path.is_file():
            yield path


def product_files(*suffixes: str) -> list[Path]:
    """The files of the product with one of these suffixes."""
    return [
        path
        for path in tracked_files()
        if path.suffix in suffixes and path.relative_to(ROOT).parts[0] in PRODUCT_FOLDERS
    ]


def modules_of(package: str) -> list[str]:
    """The dotted names of a package and all that is in it, `__main__` left out: importing that runs it."""
    base = PACKAGES[package]
    names = []
    for path in sorted(base.rglob("*.py")):
        parts = path.relative_to(base.parent).with_suffix("").parts
        if parts[-1] == "__main__":
            continue
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """The path as a person reads it in a failure."""
    return str(path.relative_to(ROOT))
