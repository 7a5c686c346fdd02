"""Which paths are not pushed: the patterns of ``.gitignore``, ``.rgtignore`` and the command line.

The patterns mean what gitignore(5) says (https://git-scm.com/docs/gitignore): the last that matches counts, ``!`` takes
back, a ``/`` before the end ties a pattern to the directory of its file, ``/`` at the end means directories only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ALWAYS_LEFT_OUT = (
    ".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "venv", "node_modules", "wandb", "mlruns", "checkpoints",
    ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".DS_Store",
)  # fmt: skip
"""Of code: what no run needs, or what a run writes."""
FILES = (".gitignore", ".rgtignore")
"""Read in every directory, in this order."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    folders_only: bool
    keeps: bool
    base: str
    """Directory of the file that it stands in, with a slash at the end; empty = the top."""
    said: str


class IgnoreRules:
    """The rules that hold in a directory; `with_file` gives those that hold below another one.

    Args:
        patterns: Those that hold from the top on.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._rules = tuple(rule for text in patterns if (rule := _rule(text, "", "")) is not None)

    def with_file(self, folder: str, name: str, text: str) -> IgnoreRules:
        """Return these rules and after them those of a file.

        Args:
            folder: Where it stands, below the top; empty = the top.
            name: Of the file.
            text: What is in it.
        """
        base = f"{folder}/" if folder else ""
        added = tuple(rule for line in text.splitlines() if (rule := _rule(line, base, name)) is not None)
        found = IgnoreRules()
        found._rules = self._rules + added
        return found

    def why(self, path: str, *, is_folder: bool) -> str | None:
        """Return which pattern leaves a path out; None = none does.

        Args:
            path: Below the top, with slashes. That a directory above it is left out is not looked at.
            is_folder: Whether it is a directory.
        """
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            if path.startswith(rule.base) and rule.pattern.fullmatch(path[len(rule.base) :]):
                return None if rule.keeps else rule.said
        return None


def _rule(line: str, base: str, source: str) -> _Rule | None:
    text = re.sub(r"(?<!\\)[ \t]+$", "", line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    said = f"{text} in {base}{source}" if source else text
    text = text[1:] if keeps else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    tied = "/" in text
    try:
        pattern = re.compile(("" if tied else "(?:.*/)?") + _expression(text.lstrip("/")), re.DOTALL)
    except re.error:
        return None  # a bracket that git, too, could not make sense of
    return _Rule(pattern, folders_only, keeps, base, said)


def _expression(text: str) -> str:
    """Return a pattern of gitignore as a regular expression, whose work does not explode however many stars it has.

    A star takes as little as lets what stands behind it follow, and is not asked again: where that fails no other
    place would do, for whatever can stand behind a later place can stand behind the first.
    """
    chunks: list[list[str]] = [[""]]
    """What stands between two ``**/``, in pieces between two stars."""
    at = 0
    while at < len(text):
        rest = text[at:]
        pieces = chunks[-1]
        if rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
            chunks.append([""])
            at += 3
        elif rest == "**" and (at == 0 or text[at - 1] == "/"):
            pieces[-1] += ".+"
            at += 2
        elif rest[0] == "*":
            if len(pieces) == 1 or pieces[-1]:
                pieces.append("")
            at += 1
        elif rest[0] == "?":
            pieces[-1] += "[^/]"
            at += 1
        elif rest[0] == "[" and (bracket := re.match(r"\[(!|\^)?(\]?[^\]/]*)\]", rest)):
            inside = bracket[2].replace("\\", "\\\\").replace("[", "\\[")
            pieces[-1] += f"[{'^/' if bracket[1] else ''}{inside}]"
            at += bracket.end()
        elif rest[0] == "\\" and len(rest) > 1:
            pieces[-1] += re.escape(rest[1])
            at += 2
        else:
            pieces[-1] += re.escape(rest[0])
            at += 1
    first, *middle, last = [[""], *chunks] if len(chunks) == 1 else chunks
    found = _chunk(first) + "".join(f"(?>(?:.*?/)??{_chunk(pieces)})" for pieces in middle)
    return (
        found
        + ("(?:.*/)?" if len(chunks) > 1 else "")
        + _chunk(last[:-1] or [""])
        + (f"[^/]*{last[-1]}" if len(last) > 1 else last[0])
    )


def _chunk(pieces: list[str]) -> str:
    return pieces[0] + "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:])
