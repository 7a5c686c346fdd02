"""``queue.txt``: one cell a line, ``<cfg> <task> [epochs]``; ``#`` starts a comment."""

from __future__ import annotations

import os

BOM = b"\xef\xbb\xbf"


class Line:
    """One cell's line of the queue.

    Attributes:
        twin: The earlier line of the same name, which makes this one unusable; None normally.
    """

    __slots__ = ("cfg", "epochs", "name", "number", "task", "twin")

    def __init__(self, number: int, cfg: str, task: str, epochs: int | None) -> None:
        self.number, self.cfg, self.task, self.epochs = number, cfg, task, epochs
        self.name = cell_name(cfg)
        self.twin: Line | None = None


def cell_name(cfg: str) -> str:
    """Return a cell's name: the config's base name without its last extension."""
    base = os.path.basename(cfg.rstrip("/"))
    return os.path.splitext(base)[0] or base


def scan(data: bytes, path: str) -> tuple[list[Line], list[str]]:
    """Read every line that names a cell, also one whose name is taken.

    Windows line ends are not this function's concern (`lineends` finds them, in all files): the cells are read as
    if they were not there.

    Args:
        data: The file's bytes.
        path: For the messages.

    Returns:
        The lines, and all problems at once.
    """
    found: list[Line] = []
    problems: list[str] = []
    if b"\0" in data:
        return [], ["%s:1: is no plain text (UTF-16, by the look of it); save it as UTF-8" % path]
    names: dict[str, Line] = {}
    for number, raw in enumerate(data[len(BOM) if data.startswith(BOM) else 0 :].split(b"\n"), 1):
        where = "%s:%d" % (path, number)
        try:
            words = raw.split(b"#", 1)[0].decode("utf-8").split()
        except UnicodeDecodeError:
            problems.append("%s: is no UTF-8; rename the config and write its name in UTF-8" % where)
            continue
        if not words:
            continue
        if len(words) not in (2, 3):
            problems.append("%s: %d words; write <cfg> <task> [epochs]" % (where, len(words)))
            continue
        if len(words) == 3 and not (words[2].isdigit() and words[2].isascii() and int(words[2]) > 0):
            problems.append("%s: epochs must be a whole number above 0, not %r" % (where, words[2]))
            continue
        line = Line(number, words[0], words[1], int(words[2]) if len(words) == 3 else None)
        line.twin = names.setdefault(line.name, line)
        if line.twin is line:
            line.twin = None
        else:
            problems.append(
                "%s: the name %r is already taken by line %d; both cells would write to one directory: "
                "rename one of the configs" % (where, line.name, line.twin.number)
            )
        found.append(line)
    return found, problems


def commented(data: bytes) -> list[Line]:
    """Return what would be cells if their lines were not commented out. Prose may look like one: a file decides."""
    lines: list[Line] = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        text = raw.lstrip(BOM).strip()
        if text.startswith(b"#"):
            for line in scan(text.lstrip(b"# \t"), "")[0]:
                line.number = number
                lines.append(line)
    return lines


def parse_queue(data: bytes, path: str) -> tuple[list[Line], list[str]]:
    """Return the cells of a queue file, each name once, and all problems (see `scan`)."""
    lines, problems = scan(data, path)
    return [line for line in lines if line.twin is None], problems
