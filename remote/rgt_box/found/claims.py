"""Whose a file of metrics is, where several trainings write into one directory. Pure."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.found.run import Run

SLACK = 2.0
"""Seconds by which a file may seem older than the process that wrote it: both clocks are coarse."""
LATE = 30.0
"""Seconds after a training was found to be gone in which a file of it may still have been written."""


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a directory or stands below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Claims:
    """Who owns which file.

    Attributes:
        torn: Run → files of which could not be told which of several trainings writes them.
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._taken: list[str] = []
        self._owned: dict[str, str] = {}
        self.torn: dict[str, set[str]] = {}

    def update(self, runs: list[Run], taken: list[str]) -> None:
        """Take over the runs as they are now.

        Args:
            runs: All of them, ended ones included.
            taken: Directories that are followed under another name.
        """
        self._runs, self._taken = runs, [os.path.abspath(path) for path in taken]
        names = {run.name for run in runs}
        self._owned = {path: name for path, name in self._owned.items() if name in names}

    def is_mine(self, run: Run, path: str, mtime: float) -> bool:
        """Tell whether a file is a run's: it opened it, was told to write there, or nobody else can have written it."""
        if any(is_below(path, folder) for folder in self._taken):
            return False
        sure = self._sure(path)
        if sure is not None:
            return sure == run.name
        if not run.lived(mtime, SLACK, LATE):
            return False
        owner = self._owned.get(path)
        if owner is not None:
            return owner == run.name
        near = [
            other
            for other in self._runs
            if other.cwd and is_below(path, other.cwd) and other.lived(mtime, SLACK, LATE)
        ]
        deepest = max((len(other.cwd or "") for other in near), default=0)
        near = [other for other in near if len(other.cwd or "") == deepest]
        if near == [run]:
            self._owned[path] = run.name
            return True
        if run in near:
            self.torn.setdefault(run.name, set()).add(path)
        return False

    def _sure(self, path: str) -> str | None:
        """Return the run that has a file open or was told to write there; None where that is none, or several."""
        opened = [run.name for run in self._runs if path in run.files]
        if opened:
            return opened[-1]  # a restart that goes on in the same file
        told = [
            (len(folder), run.name) for run in self._runs for folder in run.dirs if is_below(path, folder)
        ]
        longest = max((length for length, _ in told), default=0)
        names = {name for length, name in told if length == longest}
        if len(names) == 1:
            return names.pop()
        beside = {
            run.name
            for run in self._runs
            for file in run.files
            if os.path.dirname(file) == os.path.dirname(path) != run.cwd
        }
        return beside.pop() if not names and len(beside) == 1 else None
