"""Prepare a cell's command: the platform's modules and proxy, and values for ``$RGT_OUT`` etc.

The hook lines come from the platform's profile. They run in a shell that then ``exec``s the
command: their settings last as long as the cell, and the pid, signals and exit status are the
command's own. Local hosts bypass the proxy: loopback, this host, the master of a distributed run,
and domains that the platform's own list omits.
"""

from __future__ import annotations

import os
import re

from rgt_box import background

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Match

    from rgt_wire import JsonObject


PROXY, ENV = "proxy", "env"
NEAR = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_MASTER = re.compile(r"--?(?:master[-_]addr|rdzv[-_]endpoint)(?:=(.+))?$")
_DOMAIN = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?$")
_MODULES = """\
if ! type module >/dev/null 2>&1; then
  for rgt_init in "$MODULESHOME/init/sh" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/modules/init/sh; do
    [ -r "$rgt_init" ] && . "$rgt_init" && break
  done
fi
"""
"""A non-login shell does not define ``module``.
See https://modules.readthedocs.io and https://lmod.readthedocs.io.
"""


OUT, CELL, SMOKE = "RGT_OUT", "RGT_CELL", "RGT_SMOKE"
"""Environment variables set by rgt: the run's directory, the cell's name, and "1" while the smoke
command runs.
"""
_VARIABLE = re.compile(r"\$(?:\{(RGT_[A-Z0-9_]+)\}|(RGT_[A-Z0-9_]+))")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"))
_IN_SINGLE_QUOTES = re.compile(r"\"(?:[^\"\\]|\\.)*\"|\\.|'([^']*)'", re.S)


def valid_hooks(told: Any) -> JsonObject:
    """Return an object's valid hooks: ``env`` and ``proxy``, one line each, and ``no_proxy``."""
    found: JsonObject = {}
    if isinstance(told, dict):
        for key in (ENV, PROXY):
            line = told.get(key)
            if isinstance(line, str) and line.strip() and "\0" not in line and "\n" not in line:
                found[key] = line
        near = told.get("no_proxy")
        if isinstance(near, list):
            found["no_proxy"] = [
                name for name in near if isinstance(name, str) and _DOMAIN.match(name)
            ]
    return found


def wrap_with_hooks(words: list[str], told: JsonObject, env: dict[str, str]) -> list[str]:
    """Return the command with the hooks run first; unchanged if there are no hooks.

    Args:
        words: The command of a cell.
        told: As `valid_hooks` returns them.
        env: The environment that the cell will have.
    """
    lines = [told[key] for key in (ENV, PROXY) if key in told]
    if not lines:
        return words
    shell = background.which("bash")
    script = ""
    for line in lines:
        if not shell:
            line = re.sub(r"^source(?=\s)", ".", line)
        if line.split()[0] == "module":
            script += _MODULES
        script += '{}\nrgt_hook=$?\n[ "$rgt_hook" = 0 ] || echo {} "(exit $rgt_hook)" >&2\n'.format(
            line,
            quote_for_shell(f"rgt: the platform's hook failed: {line}"),
        )
    if PROXY in told:
        near = ",".join(no_proxy_hosts(words, told, env))
        script += (
            'if [ -n "$http_proxy$https_proxy$HTTP_PROXY$HTTPS_PROXY$all_proxy$ALL_PROXY" ]; then\n'
        )
        script += (
            f'  no_proxy="${{no_proxy:+$no_proxy,}}{near}"; NO_PROXY="$no_proxy"; export '
            "no_proxy NO_PROXY\nfi\n"
        )
    return [
        shell or "/bin/sh",
        "-c",
        script + 'unset rgt_hook rgt_init\nexec "$@"',
        "rgt-cell",
        *words,
    ]


def no_proxy_hosts(words: list[str], told: JsonObject, env: dict[str, str]) -> list[str]:
    """Return the hosts that must bypass the proxy."""
    found = [*NEAR, os.uname().nodename, env.get("MASTER_ADDR", "")]
    for at, word in enumerate(words):
        match = _MASTER.match(word)
        if match:
            value = match.group(1) or (words[at + 1] if at + 1 < len(words) else "")
            found.append(value.rpartition(":")[0] if value.count(":") == 1 else value)
    found += told.get("no_proxy", [])
    return [name for name in dict.fromkeys(found) if name in NEAR or _DOMAIN.match(name)]


def quote_for_shell(text: str) -> str:
    """Quote a text as one shell word."""
    import shlex  # here, because most cells have no hook

    return shlex.quote(text)


# Variables such as ``$RGT_OUT`` in a command: filled in where no shell does it, refused where they
# cannot work.
#
# A command of several words runs without a shell. Otherwise the program would receive ``--out
# '$RGT_OUT'`` literally and write its results to a directory of that name.


class WrongVariable(Exception):
    """A variable in the command would not work as intended; the message says what to write."""


def fill_words(words: list[str], values: dict[str, str]) -> list[str]:
    """Fill in the variables of a command that runs without a shell.

    A script for ``sh -c`` is left to that shell.

    Args:
        words: The command.
        values: Variable → value.

    Raises:
        WrongVariable: The command names an rgt variable that does not exist.
    """
    found = []
    for at, word in enumerate(words):
        if _is_script(words, at):
            check_line(word, values)
            found.append(word)
        else:
            found.append(fill_variables(word, values))
    return found


def _is_script(words: list[str], at: int) -> bool:
    """Return whether a word is the script argument of a shell's ``-c`` (also ``-lc``)."""
    return (
        at > 1
        and bool(re.match(r"-[a-z]*c$", words[at - 1]))
        and os.path.basename(words[at - 2]) in _SHELLS
    )


def fill_variables(text: str, values: dict[str, str]) -> str:
    """Return a text with its variables filled in.

    Raises:
        WrongVariable: The text names a variable that does not exist.
    """

    def replace_variable(match: Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name not in values:
            raise WrongVariable(_unknown_variable_text(name, values))
        return values[name]

    return _VARIABLE.sub(replace_variable, text)


def check_line(line: str, values: dict[str, str]) -> None:
    """Check the variables in a line that a shell will expand itself.

    Raises:
        WrongVariable: A variable does not exist, or is in single quotes, where a shell does not
            expand it.
    """
    for match in _VARIABLE.finditer(line):
        name = match.group(1) or match.group(2)
        if name not in values and name != SMOKE and not re.search(rf"\b{name}=", line):
            raise WrongVariable(_unknown_variable_text(name, values))
    for match in _IN_SINGLE_QUOTES.finditer(line):
        inside = match.group(1) or ""
        # Text with spaces is a command line for something else, such as trap or another shell.
        if _VARIABLE.search(inside) and not re.search(r"\s", inside):
            raise WrongVariable(
                f'a shell does not expand {inside} in single quotes: write "{inside}", in double '
                "quotes"
            )


def _unknown_variable_text(name: str, values: dict[str, str]) -> str:
    if name == SMOKE:
        return f"${name} is set only for the smoke command"
    return "rgt sets no ${} for a command; it sets {}".format(
        name,
        " and ".join(f"${each}" for each in sorted(values)),
    )
