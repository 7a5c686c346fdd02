"""No verb of the agent without a caller: what nobody can reach from rgt is of use to nobody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from rgt_box.__main__ import VERBS

from tests.system.tree import PACKAGES, parse, product_files, shown

ON_THE_BOX = {"record": "watch starts the recorder, and remove stops it, there"}
"""Verbs that the agent calls itself."""
CALLS = ("build_command", "open")
"""Names of what takes the verb as its first argument."""


def words(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that stand where a verb stands: first in a list of words, or first given to a call."""
    for node in ast.walk(tree):
        first: ast.expr | None = None
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
            first = node.elts[0]
        elif isinstance(node, ast.Call) and node.args:
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            first = node.args[0] if name in CALLS else None
        elif isinstance(node, ast.Constant):
            first = (
                node if str(node.value).startswith("rgt_box.") else None
            )  # a module that is run here
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


@cache
def callers() -> dict[str, set[str]]:
    """Return verb → the client's files that name it as one."""
    by_module = {module: verb for verb, (module, _) in VERBS.items()}
    found: dict[str, set[str]] = {verb: set() for verb in VERBS}
    for path in product_files(".py"):
        # The tables of rgt's own commands and their parsers name commands, not verbs.
        if (
            not path.is_relative_to(PACKAGES["rgt_tui"])
            or path.stem == "commands"
            or path.stem.endswith("parsers")
        ):
            continue
        for word in words(parse(path)):
            verb = by_module.get(word, word)
            if verb in found:
                found[verb].add(shown(path))
    return found


def test_a_caller_is_told_from_a_mention() -> None:
    said = "x = ['grep', '--', y]\nz = deployed.build_command('sample')\nif a == 'reap': print('mirror', ('b', 'cat'))"
    assert set(words(ast.parse(said))) == {"grep", "sample", "b"}


def test_every_verb_of_the_agent_is_reached_from_rgt() -> None:
    idle = sorted(verb for verb, files in callers().items() if not files and verb not in ON_THE_BOX)
    assert idle == [], "give each a command, or a caller"


def test_what_a_person_asks_for_is_a_command() -> None:
    """These were verbs that only somebody on the box could call."""
    for verb in (
        "gpu-health",
        "reap",
        "mirror",
        "grep",
        "manifest",
        "launch",
        "queue",
        "reconcile",
    ):
        assert any(file.split("/")[:3] == ["rgt_tui", "cli", "work"] for file in callers()[verb]), (
            verb
        )
