"""A command line → what it runs. Pure."""

from __future__ import annotations

import os
import re

from rgt_box.found import vocabulary as known
from rgt_box.sampling.processes import AGENT, WRAPPERS, is_helper, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Command(NamedTuple):
        """What a command line runs."""

        kind: str
        """python, kernel (a notebook), starter, wrapper, border, never or other."""
        script: str
        """Script (a path) or module (dotted), as it was given; "" where there is none."""
        args: "list[str]"
        """What follows the script."""
        why: str
        """Why its words alone tell a training; "" when they do not."""
else:
    from collections import namedtuple

    Command = namedtuple("Command", "kind script args why")

PYTHON = re.compile(r"(?:i?python[\d.]*(?:-dbg|t)?|pypy[\d.]*)$", re.I)
_VALUED = re.compile(r"-[A-Za-z]*[WX]$")
_MODULE = re.compile(r"-[A-Za-z]*m$")
_CODE = re.compile(r"-[A-Za-z]*c$")
LOOK = 4
"""How many arguments may be the subcommand."""


def read(words: list[str]) -> Command:
    """Return what a command line runs."""
    name = program(words)
    if not words:
        return Command("never", "", [], "")
    if any(AGENT.search(word) for word in words[:5]) or is_helper(words):
        return Command("never", "", [], "")
    if name in known.BORDERS:
        return Command("border", "", [], "")
    if name in WRAPPERS or name in known.CARRIERS:
        return Command("wrapper", "", words[1:], "")
    if PYTHON.match(name):
        return _python(words)
    if name in known.NEVER:
        return Command("never", "", [], "")
    return _started(name, words[1:]) or Command("other", words[0], words[1:], "")


def _python(words: list[str]) -> Command:
    script, args, is_module = python_script(words)
    if script == "-c":
        return Command("python", script, args, "")
    if not script:
        return Command("never", "", [], "")  # a prompt
    base = os.path.basename(script)
    stem = base[:-3] if base.endswith(".py") else base
    top = script.split(".")[0] if is_module else stem
    if top in known.KERNELS:
        return Command("kernel", script, args, "")
    if script in known.TRANSPARENT or stem in known.TRANSPARENT:
        inner = follower(args)
        return _script(inner, args[args.index(inner) + 1 :]) if inner else Command("python", script, args, "")
    if is_module and script in known.MODULES:
        return _started(known.MODULES[script], args) or Command("python", script, args, "")
    if stem in known.CARRIERS:
        return Command("wrapper", script, args, "")
    if top in known.NEVER or stem in known.NEVER:
        return Command("never", script, args, "")
    started = None if is_module or base.endswith(".py") else _started(stem, args)
    return started or _script(script, args, is_module)


def _script(script: str, args: list[str], is_module: bool = False) -> Command:
    why = ""
    if is_module:
        parts = script.split(".")[-2:]
    else:
        parts = [os.path.splitext(os.path.basename(script))[0]]
        if parts == ["__main__"]:
            parts = [os.path.basename(os.path.dirname(script))]
    if any(known.speaks_of_training(part) for part in parts):
        why = "its name says so"
    elif any(arg in known.SUBCOMMANDS for arg in args[:LOOK]) or any(
        arg in ("--do_train", "--do-train") for arg in args
    ):
        why = "its arguments say so"
    return Command("python", script, args, why)


def _started(name: str, args: list[str]) -> Command | None:
    """Return the command of a program that starts trainings; None where it does not."""
    wanted = known.STARTERS.get(name)
    if wanted is None or not (wanted is known.ANY or any(arg in wanted for arg in args[:LOOK])):
        return None
    script = follower(args)
    rest = args[args.index(script) + 1 :] if script else args
    why = "" if name in known.UNSPECIFIC else "%s starts it" % name
    return Command("starter", script or name, rest, why)


def python_script(words: list[str]) -> tuple[str, list[str], bool]:
    """Return (script, its arguments, whether it is a module) of a Python command line; ``-c`` for code, "" for none."""
    at = 1
    while at < len(words):
        word = words[at]
        if _MODULE.match(word):
            return (words[at + 1] if at + 1 < len(words) else ""), words[at + 2 :], True
        if _CODE.match(word):
            return "-c", words[at + 2 :], False
        if not word.startswith("-"):
            return word, words[at + 1 :], False
        at += 2 if _VALUED.match(word) or word == "--check-hash-based-pycs" else 1
    return "", [], False


def follower(args: list[str]) -> str:
    """Return the script that a starter is told to run: the first ``.py``, else what follows ``-m``; "" for none."""
    for at, arg in enumerate(args):
        if arg.endswith(".py") and not arg.startswith("-"):
            return arg
        if arg in ("-m", "--module") and at + 1 < len(args):
            return args[at + 1]
    return ""
