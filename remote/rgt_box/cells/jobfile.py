"""A job directory: its ``job.json`` and ``queue.txt``, and the paths that follow from them."""

from __future__ import annotations

import os
import sys

from rgt_box import files
from rgt_box.cells import template
from rgt_box.cells.queuefile import Line, cell_name, commented, parse_queue, scan
from rgt_box.cells.settings import KEEP, Settings

__all__ = ["KEEP", "Job", "Line", "cell_name", "parse_queue", "written_dirs"]


class Job:
    """A loaded job directory.

    Attributes:
        folder: The directory, absolute.
        source: ``job.json`` as read, which knows the line of each key.
        settings: Its values, with defaults filled in.
        problems: What is wrong with it, in words.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(os.path.expanduser(folder))
        self.source = Settings(self.path("job.json"))
        self.settings, self.problems = self.source.values, self.source.problems

    def path(self, *parts: str) -> str:
        """Return a path in the job directory."""
        return os.path.join(self.folder, *parts)

    def lines(self) -> tuple[list[Line], list[str]]:
        """Read the queue as it stands now; returns its cells and what is wrong."""
        lines, problems = self.roster()
        return [line for line in lines if line.twin is None], problems

    def roster(self) -> tuple[list[Line], list[str]]:
        """Like `lines`, but with the lines whose name is taken."""
        path = self.path("queue.txt")
        data = files.read(path)
        if data is None:
            return [], ["%s is missing or cannot be read; write one line for each cell" % path]
        return scan(data, path)

    def commented(self) -> list[Line]:
        """Return the lines of the queue that are commented out and name a config that is there."""
        data = files.read(self.path("queue.txt")) or b""
        return [line for line in commented(data) if os.path.isfile(self.config(line))]

    @property
    def workdir(self) -> str:
        """Where cells start."""
        own = self.settings["workdir"]
        return os.path.join(self.folder, os.path.expanduser(own)) if own else self.folder

    def config(self, line: Line) -> str:
        """Return the path of a cell's config."""
        return os.path.join(self.workdir, os.path.expanduser(line.cfg))

    def out(self, name: str) -> str | None:
        """Return the run directory of a cell."""
        return self._named("out", name)

    def durable(self, name: str) -> str | None:
        """Return the durable directory of a cell, if the job has one."""
        return self._named("durable", name)

    def _named(self, key: str, name: str) -> str | None:
        pattern = self.settings[key]
        if not pattern:
            return None
        filled = template.fill(os.path.expanduser(pattern), {"name": name})
        return os.path.normpath(os.path.join(self.workdir, filled))

    def log(self, name: str) -> str:
        """Return the log of a cell."""
        return self.path("logs", name + ".log")

    def epochs(self, line: Line) -> int:
        """Return how many epochs a cell is to run."""
        return int(self.settings["default_epochs"]) if line.epochs is None else line.epochs

    def command(self, line: Line) -> list[str]:
        """Return the command of a cell, with every field filled in."""
        values = {
            "py": self.settings["py"] or sys.executable,
            "cfg": line.cfg,
            "task": line.task,
            "epochs": str(self.epochs(line)),
            "name": line.name,
            "out": self.out(line.name) or "",
            "durable": self.durable(line.name) or "",
        }
        return [template.fill(word, values) for word in template.words(self.settings["command"])]


def written_dirs(folder: str) -> list[str]:
    """Return the directories that the runs of a job write to (their mounts are worth watching)."""
    job = Job(folder)
    found = [job.out("x"), job.durable("x")]
    return [os.path.dirname(path) for path in found if path]
