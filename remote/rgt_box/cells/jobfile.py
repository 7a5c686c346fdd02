"""The files of a job directory that say what to run: ``job.json`` and ``queue.txt``."""

from __future__ import annotations

import os
import sys

from rgt_box import files, jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMAND = [
    "{py}", "-m", "rgt_train", "--config", "{cfg}", "--task", "{task}", "--epochs", "{epochs}", "--out", "{out}",
]  # fmt: skip
KEEP = ["best", "best.json", "metrics.jsonl", "result.json"]
DEFAULTS: dict[str, Any] = {
    "command": COMMAND,
    "py": None,
    "out": None,
    "durable": None,
    "keep": KEEP,
    "env": {},
    "workdir": None,
    "default_epochs": 20,
    "retries": 0,
    "nice": 0,
}
TYPES: dict[str, Any] = {
    "command": list,
    "py": str,
    "out": str,
    "durable": str,
    "keep": list,
    "env": dict,
    "workdir": str,
    "default_epochs": int,
    "retries": int,
    "nice": int,
}
FIELDS = ("py", "cfg", "task", "epochs", "name", "out", "durable")
CRLF_FIX = "sed -i 's/\\r$//' %s"


class Line:
    """One cell's line of the queue."""

    __slots__ = ("cfg", "epochs", "name", "number", "task")

    def __init__(self, number: int, cfg: str, task: str, epochs: int | None) -> None:
        self.number, self.cfg, self.task, self.epochs = number, cfg, task, epochs
        self.name = cell_name(cfg)


class Job:
    """A loaded job directory.

    Attributes:
        folder: The directory, absolute.
        settings: ``job.json`` with its defaults filled in.
        problems: What is wrong with it, in words.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(os.path.expanduser(folder))
        self.settings, self.problems = load_settings(os.path.join(self.folder, "job.json"))

    def path(self, *parts: str) -> str:
        """Return a path in the job directory."""
        return os.path.join(self.folder, *parts)

    def lines(self) -> tuple[list[Line], list[str]]:
        """Read the queue as it stands now; returns its cells and what is wrong."""
        data = files.read(self.path("queue.txt"))
        if data is None:
            return [], ["%s cannot be read" % self.path("queue.txt")]
        return parse_queue(data, self.path("queue.txt"))

    @property
    def workdir(self) -> str:
        """Where cells start."""
        own = self.settings["workdir"]
        return os.path.join(self.folder, os.path.expanduser(own)) if own else self.folder

    def out(self, name: str) -> str | None:
        """Return the run directory of a cell."""
        return self._named("out", name)

    def durable(self, name: str) -> str | None:
        """Return the durable directory of a cell, if the job has one."""
        return self._named("durable", name)

    def _named(self, key: str, name: str) -> str | None:
        template = self.settings[key]
        if not template:
            return None
        return os.path.normpath(
            os.path.join(self.workdir, os.path.expanduser(fill(template, {"name": name})))
        )

    def log(self, name: str) -> str:
        """Return the log of a cell."""
        return self.path("logs", name + ".log")

    def command(self, line: Line) -> list[str]:
        """Return the command of a cell, with every field filled in."""
        epochs = self.settings["default_epochs"] if line.epochs is None else line.epochs
        values = {
            "py": self.settings["py"] or sys.executable,
            "cfg": line.cfg,
            "task": line.task,
            "epochs": str(epochs),
            "name": line.name,
            "out": self.out(line.name) or "",
            "durable": self.durable(line.name) or "",
        }
        return [fill(str(word), values) for word in self.settings["command"]]


def cell_name(cfg: str) -> str:
    """Return a cell's name: the config's base name without its last extension."""
    base = os.path.basename(cfg.rstrip("/"))
    return os.path.splitext(base)[0] or base


def fill(template: str, values: dict[str, str]) -> str:
    """Put values into ``{name}`` fields; other braces stay (a command may carry JSON)."""
    for key, value in values.items():
        template = template.replace("{%s}" % key, value)
    return template


def load_settings(path: str) -> tuple[dict[str, Any], list[str]]:
    """Read ``job.json``; returns it with defaults, and what is wrong with it."""
    raw = files.read(path, 1 << 20)
    data = jsonline.loads_dict(raw) if raw is not None else None
    if data is None:
        return dict(DEFAULTS), ["%s %s" % (path, "is missing" if raw is None else "is no JSON object")]
    problems = []
    settings = dict(DEFAULTS)
    for key, value in data.items():
        if key not in DEFAULTS:
            continue  # a newer client may know more
        if value is None:
            continue
        if not isinstance(value, TYPES[key]) or isinstance(value, bool):
            problems.append('%s: "%s" must be a %s' % (path, key, TYPES[key].__name__))
            continue
        settings[key] = value
    if not settings["out"]:
        problems.append('%s: "out" is required' % path)
    for key in ("out", "durable"):
        if settings[key] and "{name}" not in settings[key]:
            problems.append('%s: "%s" needs {name}, or all cells would share one directory' % (path, key))
    for kept in settings["keep"]:
        if not isinstance(kept, str) or os.path.isabs(kept) or ".." in kept.split("/") or kept in ("", "."):
            problems.append('%s: "keep" must hold paths below "out", not %r' % (path, kept))
    return settings, problems


def parse_queue(data: bytes, path: str) -> tuple[list[Line], list[str]]:
    """Parse a queue file: ``<cfg> <task> [epochs]`` per line, ``#`` starts a comment.

    Args:
        data: The file's bytes.
        path: For the messages.

    Returns:
        The cells, and all problems at once.
    """
    lines: list[Line] = []
    problems: list[str] = []
    if b"\r" in data:
        problems.append("%s has Windows line ends; fix: %s" % (path, CRLF_FIX % path))
    names: dict[str, int] = {}
    for number, row in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = row.split("#", 1)[0].split()
        if not words:
            continue
        where = "%s:%d" % (path, number)
        if len(words) not in (2, 3):
            problems.append("%s: %d words; a cell is <cfg> <task> [epochs]" % (where, len(words)))
            continue
        if len(words) == 3 and not (words[2].isdigit() and int(words[2]) > 0):
            problems.append("%s: epochs must be a whole number above 0, not %r" % (where, words[2]))
            continue
        line = Line(number, words[0], words[1], int(words[2]) if len(words) == 3 else None)
        if line.name in names:
            problems.append(
                "%s: the name %r is already taken by line %d" % (where, line.name, names[line.name])
            )
            continue
        names[line.name] = number
        lines.append(line)
    return lines, problems


def check(job: Job) -> tuple[list[Line], list[str]]:
    """Return the cells and everything that keeps the queue from being run."""
    lines, problems = job.lines()
    problems = job.problems + problems
    if not os.path.isdir(job.workdir):
        problems.append("workdir %s is no directory" % job.workdir)
    for line in lines:
        config = os.path.join(job.workdir, os.path.expanduser(line.cfg))
        if not os.path.isfile(config):
            problems.append("line %d: config %s does not exist" % (line.number, config))
    if not lines and not problems:
        problems.append("%s has no cell" % job.path("queue.txt"))
    return lines, problems


def written_dirs(folder: str) -> list[str]:
    """Return the directories that the runs of a job write to (their mounts are worth watching)."""
    job = Job(folder)
    found = [job.out("x"), job.durable("x")]
    return [os.path.dirname(path) for path in found if path]
