"""Counts how much code there is and how plainly it is written, and fails when a figure exceeds its limit.

The limits are in ``code_limits.toml``. ``--lower`` replaces each limit by today's smaller figure; a
limit rises by hand alone, in the commit that needs it, which says what the added code is for.
Tokens have a limit for each program: what one saves, another may not spend.
Formatting changes only the number of long lines: tokens are counted, and docstrings are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "rgt_tui": "client",
    "remote/rgt_box": "agent",
    "remote/rgt_train": "trainer",
    "remote/rgt_wire": "shared",
}
"""Folder of each program's code: its name in the figures."""
LIMITS = ROOT / "scripts" / "code_limits.toml"
SHORT_NAME = 8
"""Letters of a name that says too little if it is one word."""
LINE_LENGTH = 100
"""Columns; longer are only texts for the terminal, SQL and other languages inside of a string."""
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
HABITS = re.compile(
    r"\b(anew|whoever|whatever|nobody|somebody|told|tells?|so (?:long|many|often)|stands?|beside"
    r"|behind|is to be"
    r"|are to be|for ever|takes? in|comes? of|of those|those who|that which|what (?:has|is|was|of)"
    r"|is none|are none"
    r"|bygone)\b",
    re.IGNORECASE,
)
"""Words that a reader of English documentation would not expect."""


def count_module(text: str) -> Counter[str]:
    """Return the figures of one module's source."""
    figures = Counter(modules=1)
    prose: list[str] = []
    doc_lines: set[int] = set()
    for node in ast.walk(tree := ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            prose.append(node.value.value)
            doc_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.IfExp):
            figures["conditional_expressions"] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name.strip("_")
            # Names such as __init__ are Python's own.
            ours = not node.name.startswith("__")
            figures["short_names"] += ours and "_" not in name and len(name) <= SHORT_NAME
    for statement in tree.body:
        value = getattr(statement, "value", None)
        figures["bare_constants"] += isinstance(value, ast.Constant) and type(value.value) in (
            int,
            float,
        )
    figures["long_lines"] += sum(len(line) > LINE_LENGTH for line in text.splitlines())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            prose.append(token.string)
        figures["tokens"] += token.type not in NO_CODE and token.start[0] not in doc_lines
    figures["odd_words"] += len(HABITS.findall(" ".join(prose)))
    return figures


def count_deep_imports(text: str) -> int:
    """Return how many names a test imports from a module inside a package instead of from the package."""
    found = 0
    for node in ast.walk(ast.parse(text)):
        if (
            not isinstance(node, ast.ImportFrom)
            or not node.module
            or not node.module.startswith("rgt_")
        ):
            continue
        path = node.module.replace(".", "/")
        if not any((ROOT / top / path / "__init__.py").exists() for top in ("", "remote")):
            found += len(node.names)
    return found


def count_tree() -> Counter[str]:
    """Return the figures of the product and its tests."""
    figures: Counter[str] = Counter()
    for folder, program in PROGRAMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            found = count_module(path.read_text(encoding="utf-8"))
            figures += found
            figures[f"tokens_{program}"] += found["tokens"]
    for path in sorted((ROOT / "tests").rglob("*.py")):
        figures["deep_test_imports"] += count_deep_imports(path.read_text(encoding="utf-8"))
    return figures


def main(argv: list[str] | None = None) -> int:
    """Print the figures and their limits; returns 1 when one exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower the limits to today's figures")
    lower = parser.parse_args(argv).lower
    figures = count_tree()
    limits: dict[str, int] = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    if lower:
        limits = {name: min(limit, figures[name]) for name, limit in limits.items()}
        LIMITS.write_text(
            "".join(f"{name} = {limit}\n" for name, limit in limits.items()), encoding="utf-8"
        )
    exceeded = [name for name, limit in limits.items() if figures[name] > limit]
    for name, limit in limits.items():
        print(
            f"{name:24} {figures[name]:>9,} of at most "
            f"{limit:>9,}{'  EXCEEDED' if name in exceeded else ''}"
        )
    if exceeded:
        print(
            f"code figures: make the code shorter or plainer; the limits are in {LIMITS.name}",
            file=sys.stderr,
        )
    if exceeded:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
