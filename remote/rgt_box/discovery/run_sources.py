"""Decides which run a metrics file belongs to, and finds the metrics files of a found run.

`FileClaims` assigns files when several runs write into one directory (pure).

`RunSources` lists a run's sources: the files it has open, and those it wrote below its directories.
"""

from __future__ import annotations

import os
import re
import stat
import time
from itertools import islice

from rgt_wire import checkpoint_layouts

from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.files import is_below
from rgt_box.metrics.discover import GENTLE, MetricSource, SourceFinder, run_name
from rgt_box.metrics.formats import candidates, identify_kind, preference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from rgt_box.discovery.found_run import FoundRun
    from rgt_box.metrics.discover import WalkLimits

SLACK = 2.0
"""Seconds by which a file may seem older than the process that wrote it: both clocks are coarse."""


class FileClaims:
    """Assigns metrics files to runs.

    Attributes:
        torn: Run → files that several runs may have written, so they are assigned to none.
    """

    def __init__(self) -> None:
        self._runs: list[FoundRun] = []
        self._taken: list[str] = []
        self._owned: dict[str, str] = {}
        self.torn: dict[str, set[str]] = {}

    def replace_runs(self, runs: list[FoundRun], taken: list[str]) -> None:
        """Replace the runs with the current ones.

        Args:
            runs: All runs, including ended ones.
            taken: Directories that are followed under another name.
        """
        self._runs, self._taken = runs, [os.path.abspath(path) for path in taken]
        names = {run.name for run in runs}
        self._owned = {path: name for path, name in self._owned.items() if name in names}

    def is_mine(self, run: FoundRun, path: str, mtime: float) -> bool:
        """Return whether a run owns a file.

        It does if it opened the file, was given its directory, or is the only candidate.
        """
        # A job's own directory: its queue reports these files.
        if any(is_below(path, folder) for folder in self._taken):
            return False
        sure = self._sure_owner(path)
        if sure is not None:
            return sure == run.name
        # Seconds after a run's end was noticed in which a file may still belong to it.
        late = 30.0
        if not run.was_running_at(mtime, SLACK, late):
            return False
        # Once assigned, it stays: the next run that starts there must not take over its curve.
        owner = self._owned.get(path)
        if owner is not None:
            return owner == run.name
        near = [
            other
            for other in self._runs
            if _nearest_root(other, path) and other.was_running_at(mtime, SLACK, late)
        ]
        deepest = max((_nearest_root(other, path) for other in near), default=0)
        # The deepest directory wins: a run in a project's root does not own its subprojects.
        near = [other for other in near if _nearest_root(other, path) == deepest]
        if near == [run]:
            self._owned[path] = run.name
            return True
        if run in near:
            self.torn.setdefault(run.name, set()).add(path)
        return False

    def _sure_owner(self, path: str) -> str | None:
        """Return the run that has a file open or was given its directory; None if unclear."""
        opened = [run.name for run in self._runs if path in run.files or path in run.logs]
        if opened:
            return opened[-1]  # a restart that continues in the same file
        longest = 0
        names: set[str] = set()
        for run in self._runs:
            for given in run.dirs:
                if not is_below(path, given) or len(given) < longest:
                    continue
                if len(given) > longest:
                    longest = len(given)
                    names = set()
                names.add(run.name)
        if len(names) == 1:
            return names.pop()
        folder = os.path.dirname(path)
        beside = set()
        for run in self._runs:
            folders = map(os.path.dirname, run.files)
            if folder != run.cwd and folder in folders:
                beside.add(run.name)
        if not names and len(beside) == 1:
            return beside.pop()
        return None


def _nearest_root(run: FoundRun, path: str) -> int:
    """Return the length of a run's deepest directory around a file; 0 if it has none."""
    roots = [root for root in (run.cwd, *run.roots) if root and is_below(path, root)]
    return max(map(len, roots), default=0)


WALK_EVERY, WALK_MOST = 10.0, 120.0
"""Minimum and maximum seconds between two walks of a directory; see `COST`."""
COST = 500.0
"""Between walks, wait this many times the duration of the last walk."""
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
"""Directories that may hold everything on a box: only files near their top are listed."""


class RunSources:
    """Finds the sources of one run, repeatedly.

    Args:
        run: The run; see `update`.
        claims: Assigns files to runs.

    Attributes:
        reads_consoles: Also read console output if there are metrics files, because they have no
            metrics.
        own_log: A log that the run writes itself, if its console output is empty or silent.
        cut: Directories that were searched only in part.
        own: Files in rgt's own format (name of the sub-run → path); they are followed directly.
    """

    def __init__(self, run: FoundRun, claims: FileClaims) -> None:
        self._run = run
        self._claims = claims
        self._walks: dict[str, tuple[SourceFinder, float, list[MetricSource]]] = {}
        self._kinds: dict[str, tuple[tuple[int, int], str | None]] = {}
        self._begun: dict[str, float] = {}
        self.consoles: list[str] = []
        self.reads_consoles = False
        self.own_log = ""
        self.cut: set[str] = set()
        self.own: dict[str, str] = {}
        self.paths: list[str] = []

    def update_run(self, run: FoundRun, consoles: list[str]) -> None:
        """Update the run and its console files.

        Args:
            run: The run.
            consoles: Files with its console output.
        """
        self._run = run
        self.consoles = consoles

    def scan(self) -> list[MetricSource]:
        """Return the run's sources, without those of other runs or of unknown origin."""
        run = self._run
        found: dict[str, MetricSource] = {}
        for path in run.files:
            kind = self._identify_kind(path, candidates(path))
            if kind is not None:
                found[path] = MetricSource(
                    path, kind[0], run_name(self._base_folder(path), path, kind[0]), kind[1]
                )
        printed: list[MetricSource] = []
        # Not `consoles`: these hold the log of its own, too.
        console_written = _last_write(run.logs)
        if _last_write([self.own_log]) <= console_written:
            self.own_log = ""
        # Python buffers what it prints into a file, hours of it where an epoch is a few lines.
        silent_s = 60.0
        is_silent = console_written < time.time() - silent_s
        for root in self.search_roots():
            for source in self._walk_root(root):
                # The output that it prints is read as such, unless it goes nowhere.
                if source.kind == "console" and not is_silent:
                    continue
                if self._claims.is_mine(run, source.path, source.mtime):
                    if source.kind == "console":
                        printed.append(source)
                    else:
                        found[source.path] = source
        # A directory of event files is one source; its files are not read again individually.
        whole = {source.path for source in found.values() if source.kind == "tensorboard_dir"}
        kept = [source for path, source in found.items() if os.path.dirname(path) not in whole]
        for source in kept:
            if source.path not in self._begun:
                self._begun[source.path] = _first_write(source.path)
        sources = _clear_current_name(kept, self._begun)
        self.own = {source.run: source.path for source in sources if source.kind == "rgt"}
        # Console output repeats the same values with less precision, and is slow to read.
        better = any(preference(source.kind) < preference("console") for source in sources)
        printed.sort(key=lambda source: source.mtime)
        for source in printed[-1:]:
            if source.mtime > console_written:
                self.own_log = source.path
        consoles = self.consoles or [source.path for source in printed[-1:]]
        for path in consoles if self.reads_consoles or not better else ():
            kind = self._identify_kind(path, ("console",))
            if kind is not None:
                sources.append(MetricSource(path, kind[0], "", kind[1]))
        self.paths = [source.path for source in sources]
        return sources

    def _base_folder(self, path: str) -> str:
        cwd = self._run.cwd
        if cwd and is_below(path, cwd):
            return cwd
        return os.path.dirname(path)

    def _identify_kind(self, path: str, kinds: tuple[str, ...]) -> tuple[str, float] | None:
        """Return (kind, mtime) of a file; its content is inspected until the kind is known."""
        try:
            status = os.stat(path)
            # Opening a pipe or a device could block.
            if not stat.S_ISREG(status.st_mode):
                return None
            version = (status.st_ino, status.st_size)
            known = self._kinds.get(path)
            if (
                known is None
                or known[0][0] != version[0]
                # A file without a known format may get one when it grows; a known format stays.
                or (known[1] is None and known[0] != version)
            ):
                known = self._kinds[path] = version, identify_kind(path, kinds)
        except OSError:
            return None
        if known[1] is None:
            return None
        return (known[1], status.st_mtime)

    def search_roots(self) -> list[str]:
        """Return the directories to search."""
        return search_roots(self._run)

    def _walk_root(self, root: str) -> list[MetricSource]:
        finder, due, found = self._walks.get(root) or (None, 0.0, [])
        now = time.monotonic()
        if finder is None:
            finder = SourceFinder(
                root, limits=walk_limits(root), since=self._run.first_start - SLACK
            )
        elif now < due:
            return found
        found = finder.scan()
        (self.cut.add if finder.cut else self.cut.discard)(root)
        wait = min(WALK_MOST, max(WALK_EVERY, COST * (time.monotonic() - now)))
        self._walks[root] = finder, now + wait, found
        return found


def _last_write(paths: list[str]) -> float:
    """Return when one of some files was last written; 0 if all are empty or deleted."""
    last = 0.0
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if status.st_size > 0:
            last = max(last, status.st_mtime)
    return last


def search_roots(run: FoundRun) -> list[str]:
    """Return the directories in which a run may write.

    These are output directories, those of open files, and the working directory.
    """
    roots: list[str] = []
    for path in sorted(
        {*run.dirs, *map(os.path.dirname, run.files)} - {run.cwd or "", "/"}, key=len
    ):
        if not any(is_below(path, root) for root in roots):
            roots.append(path)
    most_roots = 8
    return [*roots[:most_roots], *_shared_roots(run)]


def _shared_roots(run: FoundRun) -> list[str]:
    """Return the working directory, and the roots of the environment that are not below it."""
    found = [run.cwd] if run.cwd and run.cwd != "/" else []
    for root in run.roots:
        if not any(is_below(root, other) for other in found):
            found.append(root)
    return found


def checkpoint_search(root: str, since: float) -> CheckpointSearch:
    """Return a search for checkpoints below a directory of `search_roots`."""
    if is_home(root):
        return CheckpointSearch(root, since, most=SHALLOW.entries, depth=SHALLOW.depth)
    return CheckpointSearch(root, since)


def list_outputs(
    runs: list[FoundRun], is_input: Callable[[str, int], bool]
) -> Iterator[tuple[FoundRun, str]]:
    """Yield (run, path) of what runs have saved below their working directories.

    A path is a directory that holds checkpoints or metrics files of the run, with everything that
    was written next to them since its start, or such a file in the working directory itself, unless
    that holds older data as well.

    Args:
        runs: The runs.
        is_input: Returns for name and size whether a file that is older than a run is left out.
    """
    claims = FileClaims()
    claims.replace_runs(runs, [])
    saved: dict[str, list[tuple[str, float]]] = {}
    first = min((run.first_start for run in runs), default=0.0) - SLACK
    for run in runs:
        for root in search_roots(run):
            if root not in saved:
                saved[root] = _list_saved(root, first)
            for path, at in saved[root]:
                # If two runs share a directory, one of them saved it.
                if not claims.is_mine(run, path, at) and path not in claims.torn.get(run.name, ()):
                    continue
                began = run.first_start - SLACK
                claimed = _output_folder(path, root, began)
                # All files next to it would be claimed with it.
                if os.path.isdir(claimed) or not _holds_old_data(
                    os.path.dirname(claimed), began, is_input
                ):
                    yield run, claimed


def _list_saved(root: str, since: float) -> list[tuple[str, float]]:
    """Return the paths and times of checkpoints and metrics files below a directory."""
    if root.startswith("/proc/"):  # a container's, which is valid only while its process lives
        return []
    # Seconds. Enough that only the number of entries ends the walk: two listings must agree.
    limits = walk_limits(root)._replace(seconds=20.0)
    walk = SourceFinder(root, limits=limits, since=since).scan()
    found = [(source.path, source.mtime) for source in walk if source.kind != "console"]
    return found + [(one.path, one.at) for one in checkpoint_search(root, since).poll_checkpoints()]


def _output_folder(path: str, root: str, since: float) -> str:
    """Return the topmost directory around a path below `root` in which everything is newer."""
    folder = os.path.dirname(path)
    if not is_below(folder, root) or folder == root:
        return path
    while os.path.dirname(folder) != root and _is_written_since(os.path.dirname(folder), since):
        folder = os.path.dirname(folder)
    return folder


def _holds_old_data(folder: str, since: float, is_input: Callable[[str, int], bool]) -> bool:
    """Return whether the files of a directory that are older than a time are too large for code.

    Those that are left out anyway do not count.
    """
    total, most_bytes = 0, 1 << 20
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                is_old = stat.S_ISREG(status.st_mode) and status.st_mtime < since
                if is_old and not (
                    status.st_ctime < since and is_input(entry.name, status.st_size)
                ):
                    total += status.st_size
    except OSError:
        return True
    return total > most_bytes


def _is_written_since(folder: str, since: float) -> bool:
    """Return whether all files below a directory are newer than a time, and none is of a data set."""
    most_files, count = 2000, 0
    for at, folders, names in os.walk(folder):
        if any(checkpoint_layouts.is_data_folder(name) for name in folders):
            return False
        for name in names:
            count += 1
            try:
                written = os.lstat(os.path.join(at, name)).st_mtime
            except OSError:
                continue
            if written < since or count > most_files:
                return False
    return True


def walk_limits(root: str) -> WalkLimits:
    """Return the limits of a walk for metrics files."""
    if is_home(root):
        return SHALLOW
    return GENTLE


def is_home(root: str) -> bool:
    """Return whether a directory may hold everything on a box."""
    return root in HOMES or os.path.dirname(root) == "/home"


def _first_write(path: str) -> float:
    """Return about when a source was begun: the oldest time in its directory, and of that itself."""
    folder = path
    if not os.path.isdir(path):
        folder = os.path.dirname(path)
    times = [time.time()]
    most_entries = 200
    try:
        times.append(os.stat(folder).st_mtime)
        with os.scandir(folder) as entries:
            for entry in islice(entries, most_entries):
                times.append(entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        pass  # it was deleted meanwhile
    return min(times)


def _clear_current_name(sources: list[MetricSource], begun: dict[str, float]) -> list[MetricSource]:
    """Clear the name of the current sub-run; the others are shown next to it.

    It is the first one, until another with the same kind of file begins after its last write: the
    next job of a sweep. Those that are written at the same time do not take turns.
    """
    runs: dict[str, list[MetricSource]] = {}
    for source in sources:
        runs.setdefault(source.run, []).append(source)
    current = min(runs, key=natural_sort_key, default="")
    starts = {name: min(begun[each.path] for each in runs[name]) for name in runs}
    for name in sorted(runs, key=lambda name: starts[name]):
        last = max(each.mtime for each in runs[current])
        files = {(each.kind, os.path.basename(each.path)) for each in runs[current]}
        is_like_it = any((each.kind, os.path.basename(each.path)) in files for each in runs[name])
        if is_like_it and starts[name] > last:
            current = name
    return [each._replace(run="" if each.run == current else each.run) for each in sources]


def natural_sort_key(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which ``fold_2`` comes before ``fold_10``."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.findall(r"\d{1,18}|\D+", text)
    ]
