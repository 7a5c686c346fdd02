"""Finds the sources below a run's directory: one bounded walk, followed by cheap rescans."""

from __future__ import annotations

import math
import os
import re
import stat
import time
from fnmatch import fnmatchcase

from rgt_box.metrics.formats import candidates, identify_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NamedTuple

    class MetricSource(NamedTuple):
        """One file (or directory of event files) with scalars."""

        path: str
        kind: str
        """A key of `formats.BY_KIND`."""
        run: str
        """The run below the directory that it belongs to."""
        mtime: float

    class WalkLimits(NamedTuple):
        """Limits of one walk."""

        depth: int
        entries: int
        """Maximum entries of all directories together."""
        folder: int
        """Maximum entries of one directory; the rest is ignored, and its subdirectories are not
        entered."""
        seconds: float
        hidden: bool
        """Whether to enter directories whose name begins with a dot."""
        pruned: tuple[str, ...]
else:
    from collections import namedtuple

    MetricSource = namedtuple("MetricSource", "path kind run mtime")
    WalkLimits = namedtuple("WalkLimits", "depth entries folder seconds hidden pruned")

DEPTH, DEEPEST = 6, 16
"""Levels of directories below a run's; the second applies if the run itself changed them."""
ENTRIES = 50_000
"""Directory entries read in one walk."""
SECONDS = 5.0
PER_KIND = 40
"""Files of one kind that are followed; the newest are kept."""
PER_METRIC = 400
"""The same for a kind with one file per metric."""

PRUNED = (
    ".git",
    ".hg",
    ".svn",
    ".cache",
    ".venv",
    "venv",
    "node_modules",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "global_step*",
    ".ipynb_checkpoints",
    ".*_cache",
    "tmp-checkpoint-*",
)
"""Directories without scalars but with many files."""

WHOLE = WalkLimits(DEPTH, ENTRIES, ENTRIES, SECONDS, True, PRUNED)
"""For a directory that the user named as a run's."""
GENTLE = WalkLimits(
    4,
    4000,
    1000,
    1.0,
    False,
    PRUNED + ("data", "dataset*", "*_data", "imagenet*", "env", "envs", "miniconda*", "anaconda*"),
)
"""For a working directory, which may contain anything: datasets are not walked."""

_MADE = re.compile(
    r"checkpoint-\d+|runs|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*|lightning_logs|version_\d+|vis_data"
    r"|\d{8}[_-]\d{4,6}"
    r"|wandb|(?:offline-)?run-\d{8}_\d{6}-\w+|files|logs?|tb|tensorboard|tb_logs|events"
    r"|network_train|attempt_\d+"
    r"|dvclive|plots"
)
"""Directories that frameworks create inside a run's directory."""
_RANK_OF_ATTEMPT = re.compile(r"attempt_\d+/\d{1,4}")
"""A directory of torchrun with what one rank printed; other numbers are jobs of a sweep."""
_SWEEP = re.compile(r".*/\d{4}-\d\d-\d\d/(\d\d-\d\d-\d\d/.+)")
"""What Hydra's jobs of one sweep have in common, and the time and the number of a job."""


def run_name(root: str, path: str, kind: str) -> str:
    """Return the run of a file: its directory below `root`, without framework subdirectories."""
    parts = os.path.dirname(os.path.relpath(path, root)).split("/")
    if kind == "tensorboard_dir":
        parts = os.path.relpath(path, root).split("/")
    parts = [part for part in parts if part not in ("", ".")]
    # One file per metric: the directories below are parts of the metrics' names.
    if "metrics" in parts and (
        kind == "mlflow_files" or parts[parts.index("metrics") - 1] == "plots"
    ):
        parts = parts[: parts.index("metrics")]
    elif (
        kind in ("tensorboard", "tensorboard_dir")
        and parts
        and parts[-1] in ("train", "validation")
    ):
        parts.pop()
    # Only from the end: a user's own directory below ``runs`` keeps its name.
    while parts and (
        _MADE.fullmatch(parts[-1]) or _RANK_OF_ATTEMPT.fullmatch("/".join(parts[-2:]))
    ):
        parts.pop()
    name = "/".join(parts) or os.path.basename(os.path.realpath(root))
    return _SWEEP.sub(r"\1", name)


class _FolderEntries:
    """The remembered entries of one directory."""

    __slots__ = ("files", "folders", "links", "mtime_ns", "sure")

    def __init__(self) -> None:
        self.mtime_ns = -1
        self.sure = False
        self.files: list[str] = []
        self.folders: list[str] = []
        self.links: list[str] = []


class SourceFinder:
    """Finds sources below one directory, repeatedly.

    Args:
        root: The run's directory; it need not exist yet.
        clock: Used for the time limit.
        limits: Limits of each walk.
        since: Directories that changed at or after this time are entered below the limit, too:
            frameworks nest what they write, as in ``logs/train/runs/DATE/csv/version_0``.

    Attributes:
        cut: Why the last walk was incomplete (``size`` or ``time``); "" if it was complete.
    """

    def __init__(
        self,
        root: str,
        clock: Callable[[], float] = time.monotonic,
        limits: WalkLimits = WHOLE,
        since: float = math.inf,
    ) -> None:
        self.root = root
        self._clock = clock
        self._limits = limits
        self._since = since
        self.cut = ""
        self._folders: dict[str, _FolderEntries] = {}
        self._kinds: dict[str, tuple[tuple[int, int, int], str | None]] = {}
        self._order: dict[str, int] = {}
        self._entries = 0
        self._deadline = 0.0

    def scan(self) -> list[MetricSource]:
        """Return the current sources: known ones first in a stable order, new ones by age.

        A directory with an unchanged mtime is not listed again. A file's content is checked once,
        and again if its kind is unknown and it has changed.
        """
        self.cut = ""
        self._entries = 0
        self._deadline = self._clock() + self._limits.seconds
        found = []
        for path in self._list_candidates():
            if self._clock() > self._deadline:
                self.cut = "time"
                break
            source = self._identify_source(path)
            if source is not None:
                found.append(source)
        found = _keep_newest(_latest_state(_event_dirs(self.root, found)))
        # Known sources keep their place, because the order decides which of two files of one kind
        # continues the other.
        found.sort(
            key=lambda source: (
                self._order.get(source.path, len(self._order)),
                source.mtime,
                source.path,
            )
        )
        for source in found:
            self._order.setdefault(source.path, len(self._order))
        return found

    def _list_candidates(self) -> list[str]:
        """Return files with a matching name, nearest first; linked directories come last."""
        hits: list[str] = []
        seen: set[tuple[int, int]] = set()
        known: dict[str, _FolderEntries] = {}
        level = [(self.root, 0, -1)]
        links = []
        # Files with a matching name whose kind is checked.
        hits_limit = 2000
        while level:
            below: list[tuple[str, int, int]] = []
            for path, depth, device in level:
                if (
                    self._clock() > self._deadline
                    or self._entries > self._limits.entries
                    or len(hits) > hits_limit
                ):
                    if self._clock() <= self._deadline:
                        self.cut = "size"
                    else:
                        self.cut = "time"
                    self._folders = known
                    return hits[:hits_limit]
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                # A linked directory may lead back up. Another file system below the run is a mount:
                # a data set or a network disk, on which a walk can take minutes.
                if (status.st_dev, status.st_ino) in seen or device not in (-1, status.st_dev):
                    continue
                seen.add((status.st_dev, status.st_ino))
                folder = known[path] = self._list_folder(path, status)
                hits += [os.path.join(path, name) for name in folder.files]
                is_fresh = self._since <= status.st_mtime and depth < DEEPEST
                if is_fresh or depth < self._limits.depth:
                    below += [
                        (os.path.join(path, name), depth + 1, status.st_dev)
                        for name in folder.folders
                    ]
                    links += [(os.path.join(path, name), depth + 1, -1) for name in folder.links]
            level = below
            # Links last: a directory that is reached by both keeps its own path, and so its run's
            # name.
            if not level:
                level = links
                links = []
        self._folders = known
        return hits[:hits_limit]

    def _list_folder(self, path: str, status: os.stat_result) -> _FolderEntries:
        folder = self._folders.get(path)
        if folder is not None and folder.sure and folder.mtime_ns == status.st_mtime_ns:
            return folder
        folder = _FolderEntries()
        folder.mtime_ns = status.st_mtime_ns
        # Seconds after which an unchanged mtime proves that a directory is unchanged.
        settled = 2.0
        folder.sure = time.time() - status.st_mtime > settled
        try:
            with os.scandir(path) as entries:
                for count, entry in enumerate(entries):
                    self._entries += 1
                    if self._entries > self._limits.entries:
                        folder.sure = False
                        break
                    if count >= self._limits.folder:
                        # Many similar entries: a dataset or part of one.
                        folder.folders = []
                        folder.links = []
                        break
                    _sort_entry(folder, path, entry, self._limits)
        except OSError:
            folder.sure = False
        folder.files.sort()
        folder.folders.sort()
        folder.links.sort()
        return folder

    def _identify_source(self, path: str) -> MetricSource | None:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return None
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            # A new file is empty until its program flushes, so an unknown kind is not final.
            known = self._kinds.get(path)
            if (
                known is None
                or known[0][0] != version[0]
                or (known[1] is None and known[0] != version and _is_due(known[0], status))
            ):
                known = self._kinds[path] = version, identify_kind(path, candidates(path))
        except OSError:
            self._kinds.pop(path, None)
            return None
        kind = known[1]
        if kind is None:
            return None
        return MetricSource(path, kind, run_name(self.root, path, kind), status.st_mtime)


def _is_due(version: tuple[int, int, int], status: os.stat_result) -> bool:
    """Return whether to read a file of unknown kind again that changed since `version`.

    One that grows all the time may be large, and would be read at each scan.
    """
    small = 64 << 10
    quiet = 10.0
    return (
        status.st_size <= small
        or not version[1] <= status.st_size < version[1] * 5 / 4
        or time.time() - status.st_mtime > quiet
    )


def _sort_entry(
    folder: _FolderEntries, path: str, entry: os.DirEntry[str], limits: WalkLimits
) -> None:
    name = entry.name
    try:
        if entry.is_dir(follow_symlinks=False):
            if name.startswith(".") and not limits.hidden:
                return
            if not any(fnmatchcase(name, pattern) for pattern in limits.pruned):
                folder.folders.append(name)
        elif entry.is_symlink():
            if entry.is_dir():
                folder.links.append(name)
        elif candidates(os.path.join(path, name)):
            folder.files.append(name)
    except OSError:
        return


def _event_dirs(root: str, sources: list[MetricSource]) -> list[MetricSource]:
    """Replace several event files of one directory by the directory: a resume writes a new file."""
    folders: dict[str, list[MetricSource]] = {}
    for source in sources:
        if source.kind == "tensorboard":
            folders.setdefault(os.path.dirname(source.path), []).append(source)
    several = {path: files for path, files in folders.items() if len(files) > 1}
    rest = [s for s in sources if s.kind != "tensorboard" or os.path.dirname(s.path) not in several]
    kind = "tensorboard_dir"
    return rest + [
        MetricSource(path, kind, run_name(root, path, kind), max(file.mtime for file in files))
        for path, files in several.items()
    ]


def _latest_state(sources: list[MetricSource]) -> list[MetricSource]:
    """Keep one ``trainer_state.json`` per run: the newest has the whole history."""
    newest: dict[str, MetricSource] = {}
    for source in sources:
        if source.kind == "hf_trainer":
            other = newest.get(source.run)
            if other is None or (source.mtime, source.path) > (other.mtime, other.path):
                newest[source.run] = source
    return [source for source in sources if source.kind != "hf_trainer"] + list(newest.values())


def _keep_newest(sources: list[MetricSource]) -> list[MetricSource]:
    """Keep the newest `PER_KIND` (or `PER_METRIC`) sources of each kind."""
    kept: list[MetricSource] = []
    for kind in {source.kind for source in sources}:
        same = [source for source in sources if source.kind == kind]
        same.sort(key=lambda source: (source.mtime, source.path))
        # Their files have one metric each.
        if kind in ("mlflow_files", "deepspeed"):
            kept += same[-PER_METRIC:]
        else:
            kept += same[-PER_KIND:]
    return kept
