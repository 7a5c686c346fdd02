"""Names of found runs: the same again after a reconnect, a restart of the agent, and of the training. Pure."""

from __future__ import annotations

import os
import re
import zlib

from rgt_box.found.arguments import hint, lasting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.found.commands import Command

MOST = 40
_OTHER = re.compile(r"[^\w.\-+]+")


def plain(text: str) -> str:
    """Return a part of a name: letters, digits and ``. - + _``, bounded."""
    return _OTHER.sub("_", text)[:MOST].strip("_") or "run"


def base(command: Command, cwd: str | None) -> str:
    """Return ``DIRECTORY/SCRIPT``; only the script where the directory is unknown."""
    script = os.path.basename(command.script)
    stem = "python" if script == "-c" else (script[:-3] if script.endswith(".py") else script)
    if stem == "__main__":
        stem = os.path.basename(os.path.dirname(command.script)) or stem
    folder = os.path.basename((cwd or "").rstrip("/"))
    return "%s/%s" % (plain(folder), plain(stem)) if folder else plain(stem)


def key(command: Command, cwd: str | None) -> int:
    """Return a number that stays when the same training is started again, also when it resumes."""
    text = "\0".join([cwd or "", os.path.basename(command.script), *lasting(command.args)])
    return zlib.crc32(text.encode("utf-8", "replace"))


def choose(command: Command, cwd: str | None, taken: dict[str, int], alive: set[str]) -> str:
    """Return a name for a training that has just been found.

    Args:
        command: What it runs.
        cwd: Where.
        taken: Name → key of every remembered run, the oldest first.
        alive: Names of those that run now.
    """
    mine = key(command, cwd)
    for name in reversed(list(taken)):
        if taken[name] == mine and name not in alive:
            return name
    first = base(command, cwd)
    tries = [first]
    more = plain(hint(command.args)) if hint(command.args) else ""
    if more and more != "run":
        tries.append("%s:%s" % (first, more))
    tries += ["%s~%d" % (tries[-1], number) for number in range(2, len(taken) + 3)]
    return next(name for name in tries if name not in taken)
