"""Which run a metrics file belongs to, and which files a found run has.

Whose a file of metrics is, where several trainings write into one directory. Pure.

The sources of metrics of one found run: what it has open, and what it wrote below its directories.
"""

from __future__ import annotations

import os
import re
import stat
import time

from rgt_box.files import is_below
from rgt_box.metrics.discover import GENTLE, Finder, Source, run_name
from rgt_box.metrics.formats import candidates, identify, preference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.discovery.found_run import Run

SLACK = 2.0
"""Seconds by which a file may seem older than the process that wrote it: both clocks are coarse."""
LATE = 30.0
"""Seconds after a training was found to be gone in which a file of it may still have been written."""


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
        """Replace the runs by the present ones.

        Args:
            runs: All of them, ended ones included.
            taken: Directories that are followed under another name.
        """
        self._runs, self._taken = runs, [os.path.abspath(path) for path in taken]
        names = {run.name for run in runs}
        self._owned = {path: name for path, name in self._owned.items() if name in names}

    def is_mine(self, run: Run, path: str, mtime: float) -> bool:
        """Tell whether a file is a run's: it opened it, was told to write there, or no other run can have."""
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
            (len(folder), run.name)
            for run in self._runs
            for folder in run.dirs
            if is_below(path, folder)
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
        if not names and len(beside) == 1:
            return beside.pop()
        return None


WALK_EVERY, WALK_MOST = 10.0, 120.0
"""Seconds between two walks below a directory, at least and at most …"""
COST = 500.0
"""… and in between so many times as long as a walk takes."""
MOST_ROOTS = 8
SHALLOW = GENTLE._replace(depth=3, entries=1500)
HOMES = (
    "/root",
    "/home",
    "/workspace",
    "/mnt",
    "/data",
    "/tmp",
    "/opt",
    "/srv",
    "/scratch",
    "/content",
)
"""Directories that hold everything of a box: only what stands near their top is looked at."""


class RunSources:
    """Finds the sources of one run again and again.

    Args:
        run: The run; see `update`.
        claims: Who owns which file.

    Attributes:
        reads_consoles: Also read what it prints where there are files of metrics: they say nothing.
        cut: Directories of which only a part was searched.
        own: Files of rgt's own format (run below it → path); they are followed as they are.
    """

    def __init__(self, run: Run, claims: Claims) -> None:
        self._run, self._claims = run, claims
        self._walks: dict[str, tuple[Finder, float, list[Source]]] = {}
        self._kinds: dict[str, tuple[tuple[int, int], str | None]] = {}
        self.consoles: list[str] = []
        self.reads_consoles = False
        self.cut: set[str] = set()
        self.own: dict[str, str] = {}
        self.paths: list[str] = []

    def update(self, run: Run, consoles: list[str]) -> None:
        """Take over what is known of the run now.

        Args:
            run: The run.
            consoles: Files that hold what it prints.
        """
        self._run, self.consoles = run, consoles

    def scan(self) -> list[Source]:
        """Return the run's sources, without those of other trainings or of unknown origin."""
        run = self._run
        found: dict[str, Source] = {}
        for path in run.files:
            kind = self._kind(path, candidates(path))
            if kind is not None:
                found[path] = Source(
                    path, kind[0], run_name(self._base(path), path, kind[0]), kind[1]
                )
        for root in self.roots():
            for source in self._walk(root):
                if source.kind != "console" and self._claims.is_mine(
                    run, source.path, source.mtime
                ):
                    found[source.path] = source
        # A directory of event files is read as a whole: the files in it are not read once more by themselves.
        whole = {source.path for source in found.values() if source.kind == "tensorboard_dir"}
        sources = _renamed(
            [source for path, source in found.items() if os.path.dirname(path) not in whole]
        )
        self.own = {source.run: source.path for source in sources if source.kind == "rgt"}
        # What is printed says the same, less exactly, and is dear to read.
        better = any(preference(source.kind) < preference("console") for source in sources)
        for path in self.consoles if self.reads_consoles or not better else ():
            kind = self._kind(path, ("console",))
            if kind is not None:
                sources.append(Source(path, kind[0], "", kind[1]))
        self.paths = [source.path for source in sources]
        return sources

    def _base(self, path: str) -> str:
        cwd = self._run.cwd
        if cwd and is_below(path, cwd):
            return cwd
        return os.path.dirname(path)

    def _kind(self, path: str, kinds: tuple[str, ...]) -> tuple[str, float] | None:
        """Return (kind, mtime) of a file; it is looked into until it is known."""
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return None
            version = (status.st_ino, status.st_size)
            known = self._kinds.get(path)
            if (
                known is None
                or known[0][0] != version[0]
                or (known[1] is None and known[0] != version)
            ):
                known = self._kinds[path] = version, identify(path, kinds)
        except OSError:
            return None
        if known[1] is None:
            return None
        return (known[1], status.st_mtime)

    def roots(self) -> list[str]:
        """Return the directories below which to look: told ones, those of open files, and where the training runs."""
        run = self._run
        roots: list[str] = []
        for path in sorted(
            {*run.dirs, *map(os.path.dirname, run.files)} - {run.cwd or "", "/"}, key=len
        ):
            if not any(is_below(path, root) for root in roots):
                roots.append(path)
        return roots[:MOST_ROOTS] + ([run.cwd] if run.cwd and run.cwd != "/" else [])

    def _walk(self, root: str) -> list[Source]:
        finder, due, found = self._walks.get(root) or (None, 0.0, [])
        now = time.monotonic()
        if finder is None:
            finder = Finder(root, limits=SHALLOW if is_home(root) else GENTLE)
        elif now < due:
            return found
        found = finder.scan()
        (self.cut.add if finder.cut else self.cut.discard)(root)
        wait = min(WALK_MOST, max(WALK_EVERY, COST * (time.monotonic() - now)))
        self._walks[root] = finder, now + wait, found
        return found


def is_home(root: str) -> bool:
    """Tell whether a directory may hold everything of a box."""
    return root in HOMES or os.path.dirname(root) == "/home"


def _renamed(sources: list[Source]) -> list[Source]:
    """Give the first of several runs below one training no name of its own: the others are shown beside it."""
    names = sorted({source.run for source in sources}, key=natural)
    return [source._replace(run="" if source.run == names[0] else source.run) for source in sources]


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which ``fold_2`` comes before ``fold_10``."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.findall(r"\d{1,18}|\D+", text)
    ]
