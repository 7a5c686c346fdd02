"""The client on the newer Pythons that set-up provides: its syntax, and all that it takes of their standard libraries.

The libraries that it depends on are installed for one Python alone, so it is not started there.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.process.box.harness import pythons
from tests.system.tree import PACKAGES, ROOT

LOOK = """
import importlib, json, pathlib, sys, warnings
warnings.simplefilter("error")
wrong = []
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, Warning) as error:
        wrong.append(f"{path}: {error}")
for module, name in json.load(sys.stdin):
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except (ImportError, Warning) as error:
        wrong.append(f"from {module} import {name}: {error}" if name else f"import {module}: {error}")
print(json.dumps(wrong))
"""


def read_statements(path: Path) -> Iterator[ast.stmt]:
    """Yields each statement of a module, nested ones too; expressions, most of a tree, are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Python that is tested says what is wrong
        nodes: list[ast.AST] = [ast.parse(path.read_bytes())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.stmt):
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, part, ())


@cache
def imported_names(folder: Path) -> frozenset[tuple[str, str]]:
    """Returns (module, name) of each import below a folder; the name of ``import module`` is empty.

    This Python reads them once for all others, because that takes most of the time.
    """
    wanted = set()
    for path in folder.rglob("*.py"):
        for node in read_statements(path):
            if isinstance(node, ast.Import):
                wanted |= {(name.name, "") for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                wanted |= {(node.module, name.name) for name in node.names}
    return frozenset(wanted)


def find_errors(python: str, folder: Path) -> list[str]:
    """Returns what another Python cannot compile or import: only its own standard library is imported."""
    wanted = [
        (module, name)
        for module, name in sorted(imported_names(folder))
        if module.partition(".")[0] in sys.stdlib_module_names
    ]
    done = subprocess.run(
        [python, "-I", "-c", LOOK, str(folder)],
        cwd=ROOT,
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors: list[str] = json.loads(done.stdout)
    return errors


@pytest.mark.parametrize("python", pythons(12, 13))
def test_the_client_compiles_and_finds_its_standard_library(python: str) -> None:
    assert find_errors(python, PACKAGES["rgt_tui"]) == []
    assert len(imported_names(PACKAGES["rgt_tui"])) > 300


@pytest.mark.parametrize("python", pythons(13))
def test_what_a_newer_python_lacks_would_be_found(python: str, tmp_path: Path) -> None:
    """Telnetlib went with 3.13, and an escape that is none warns since 3.12."""
    for name, text in (
        ("a.py", "import telnetlib"),
        ("b.py", "from os import no_such"),
        ("c.py", "x = '\\d'"),
    ):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    assert len(find_errors(python, tmp_path)) == 3
