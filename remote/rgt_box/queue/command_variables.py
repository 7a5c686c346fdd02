"""``$RGT_OUT`` and the like in a command: filled in where no shell does it, refused where it could not work.

A command of several words is run without a shell. Without this, ``--out '$RGT_OUT'`` would reach the program as these
nine characters, and its results would land in a directory of that name.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Match

OUT, CELL, SMOKE = "RGT_OUT", "RGT_CELL", "RGT_SMOKE"
"""Environment variables that rgt sets: directory of the run, name of the cell, "1" while the smoke command runs."""
_VARIABLE = re.compile(r"\$(?:\{(RGT_[A-Z0-9_]+)\}|(RGT_[A-Z0-9_]+))")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"))
_IN_SINGLE_QUOTES = re.compile(r"\"(?:[^\"\\]|\\.)*\"|\\.|'([^']*)'", re.S)


class WrongVariable(Exception):
    """A variable in the command would not have the meaning that was intended; the message says what to write."""


def fill_words(words: list[str], values: dict[str, str]) -> list[str]:
    """Return a command that no shell sees with its variables filled in; a script for ``sh -c`` is left to that shell.

    Args:
        words: The command.
        values: Variable → value.

    Raises:
        WrongVariable: it names a variable of rgt's that does not exist.
    """
    found = []
    for at, word in enumerate(words):
        if _is_script(words, at):
            check_line(word, values)
            found.append(word)
        else:
            found.append(fill(word, values))
    return found


def _is_script(words: list[str], at: int) -> bool:
    """Tell whether a word is what a shell gets by ``-c``, also ``-lc``."""
    return (
        at > 1 and bool(re.match(r"-[a-z]*c$", words[at - 1])) and os.path.basename(words[at - 2]) in _SHELLS
    )


def fill(text: str, values: dict[str, str]) -> str:
    """Return a text with its variables filled in.

    Raises:
        WrongVariable: it names one that does not exist.
    """

    def put(match: Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name not in values:
            raise WrongVariable(_unknown(name, values))
        return values[name]

    return _VARIABLE.sub(put, text)


def check_line(line: str, values: dict[str, str]) -> None:
    """Check a line for a shell, which fills in its variables itself.

    Raises:
        WrongVariable: one does not exist, or is in single quotes, in which a shell leaves it as it is.
    """
    for match in _VARIABLE.finditer(line):
        name = match.group(1) or match.group(2)
        if name not in values and name != SMOKE and not re.search(r"\b%s=" % name, line):
            raise WrongVariable(_unknown(name, values))
    for match in _IN_SINGLE_QUOTES.finditer(line):
        inside = match.group(1) or ""
        # With blanks it is a line for something else, such as trap or another shell.
        if _VARIABLE.search(inside) and not re.search(r"\s", inside):
            raise WrongVariable(
                'in single quotes a shell leaves %s as it is: write "%s", in double quotes' % (inside, inside)
            )


def _unknown(name: str, values: dict[str, str]) -> str:
    if name == SMOKE:
        return "$%s is set for the smoke command alone" % name
    return "rgt sets no $%s for a command; it sets %s" % (
        name,
        " and ".join("$%s" % each for each in sorted(values)),
    )
