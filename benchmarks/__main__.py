"""Runs every benchmark, or the named ones, each in a process of its own."""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent


def is_benchmark(path: Path) -> bool:
    """Whether the module has a function `run(quick)`; it is not imported to find out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "run"
        and [argument.arg for argument in node.args.args] == ["quick"]
        for node in tree.body
    )


def names() -> list[str]:
    """The benchmarks there are."""
    return [path.stem for path in sorted(HERE.glob("*.py")) if is_benchmark(path)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs them one after the other, all of them even when one fails."""
    present = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", nargs="*", help=f"one of: {', '.join(present)} (default: all)")
    parser.add_argument("--list", action="store_true", help="only print their names")
    parser.add_argument("--quick", action="store_true", help="each ends within 60 s")
    parser.add_argument("--json", action="store_true", help="a line of JSON after each table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.name if name not in present]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are: {', '.join(present)})")
    chosen: list[str] = options.name or present
    if options.list:
        print("\n".join(chosen))
        return 0
    flags = [
        flag for flag, wanted in (("--quick", options.quick), ("--json", options.json)) if wanted
    ]
    failed = []
    for name in chosen:
        command = [sys.executable, "-m", f"benchmarks.{name}", *flags]
        try:
            code = subprocess.run(command, cwd=HERE.parent, check=False).returncode
        except KeyboardInterrupt:
            return 130
        if code != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if failed:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
