"""The command of a cell: a list of words with fields in braces, filled in without a shell."""

from __future__ import annotations

import re

FIELDS = ("py", "cfg", "task", "epochs", "name", "out", "durable")
PATH_FIELDS = ("name",)
"""What may stand in ``out`` and ``durable``."""

_FIELD = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def fill(template: str, values: dict[str, str]) -> str:
    """Put values into ``{name}`` fields, in one pass: what a value holds is never taken for a field.

    ``{{word}}`` stands for ``{word}`` itself. Other braces stay (a command may carry JSON), and so does ``${word}``,
    which belongs to a shell.
    """

    def put(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        return "{%s}" % escaped if escaped else values.get(name, match.group(0))

    return _FIELD.sub(put, template)


def unknown(template: str, known: tuple[str, ...] = FIELDS) -> list[str]:
    """Return the fields of a template that nothing will fill in."""
    return [name for _, name in _FIELD.findall(template) if name and name not in known]


def words(command: str | list[str]) -> list[str]:
    """Return a command as a list of words; a string is split as a POSIX shell would, but no shell ever runs it.

    Raises:
        ValueError: when a quote is left open.
    """
    if isinstance(command, list):
        return [str(word) for word in command]
    import shlex  # here, because most jobs give a list

    return shlex.split(command)


def quoted(path: str) -> str:
    """Return a path that can be pasted into a shell."""
    import shlex

    return shlex.quote(path)
