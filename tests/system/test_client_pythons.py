"""The client on the newer Pythons that set-up provides: its syntax, and all that it takes of their standard libraries.

The libraries that it depends on are installed for one Python alone, so it is not started there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.box.harness import pythons
from tests.system.tree import PACKAGES, ROOT

LOOK = """
import ast, importlib, json, pathlib, sys, warnings
warnings.simplefilter("error")
known = set(json.loads(sys.argv[1]))
wrong, wanted = [], set()
for path in sorted(pathlib.Path(sys.argv[2]).rglob("*.py")):
    try:
        tree = compile(path.read_bytes(), str(path), "exec", ast.PyCF_ONLY_AST)
        compile(tree, str(path), "exec")
    except (SyntaxError, Warning) as error:
        wrong.append(f"{path}: {error}")
        continue
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= {(name.name, "") for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            wanted |= {(node.module, name.name) for name in node.names}
for module, name in sorted(wanted):
    if module.partition(".")[0] not in known:
        continue
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except (ImportError, Warning) as error:
        wrong.append(f"from {module} import {name}: {error}" if name else f"import {module}: {error}")
print(json.dumps([len(wanted), wrong]))
"""


def look(python: str, folder: str) -> tuple[int, list[str]]:
    known = json.dumps(sorted(sys.stdlib_module_names))
    done = subprocess.run(
        [python, "-I", "-c", LOOK, known, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, wrong = json.loads(done.stdout)
    return count, wrong


@pytest.mark.parametrize("python", pythons(12, 13))
def test_the_client_compiles_and_finds_its_standard_library(python: str) -> None:
    count, wrong = look(python, str(PACKAGES["rgt_tui"]))
    assert wrong == []
    assert count > 300


@pytest.mark.parametrize("python", pythons(13))
def test_what_a_newer_python_lacks_would_be_found(python: str, tmp_path: Path) -> None:
    """Telnetlib went with 3.13, and an escape that is none warns since 3.12."""
    for name, text in (
        ("a.py", "import telnetlib"),
        ("b.py", "from os import no_such"),
        ("c.py", "x = '\\d'"),
    ):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    _, wrong = look(python, str(tmp_path))
    assert len(wrong) == 3
