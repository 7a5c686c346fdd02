"""Copies results that a stop would erase to storage that survives it.

Directories shared by everyone (`result_walk.COMMON`) are not copied.
"""

from __future__ import annotations

import fnmatch
import glob
import os

from rgt_box import files, place
from rgt_box.background import error_text
from rgt_box.commands import file_tree, hashing, mirror, result_walk, work_folders
from rgt_box.discovery import found_run
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from rgt_wire import JsonObject

    class CopySummary(NamedTuple):
        """Summary of the copies, and the problems that must prevent a stop."""

        text: str
        problems: "list[str]"
else:
    from collections import namedtuple

    CopySummary = namedtuple("CopySummary", "text problems")

FOLDER = "rgt-autostop"
"""Directory for copies, below the first durable directory; each copy keeps its full path."""
HARMLESS = (mirror.LINK_OUTSIDE, ": refused")
"""Errors of a mirror that lose no result: links, sockets and the like."""


def copy_results(
    jobs: list[str], patterns: list[str], ignore: list[str], durable: list[str]
) -> CopySummary:
    """Copy results outside `durable` into its first directory, and verify the copies.

    Args:
        jobs: Job directories.
        patterns: Globs of results.
        ignore: Globs of files that are not results.
        durable: Directories that survive a stop.
    """
    sources = [path for path in list_sources(jobs, patterns) if not _is_ignored(path, ignore)]
    outside = [path for path in sources if not is_kept(path, durable)]
    outside += [path for path in mounts_within(sources, durable) if not _is_ignored(path, ignore)]
    inside = sum(is_kept(path, durable) for path in sources)
    problems: list[str] = []
    for run in _found_runs():
        for path in run.container_paths():
            if not _is_ignored(path, ignore):
                problems.append(f"{path}: is in a container, from which nothing can be copied")
    if not outside and not problems:
        return CopySummary(
            "every known result (%d directories) is on storage that survives a stop" % inside, []
        )
    if not durable:
        return CopySummary(
            "", [*problems, f"no directory survives a stop: {', '.join(outside[:3])}"]
        )
    copied = 0
    cache = hashing.HashCache(hashing.default_path())
    try:
        for path in outside:
            target = os.path.join(
                os.path.realpath(durable[0]), FOLDER, os.path.realpath(path).lstrip("/")
            )
            # The mirror of a single file expects the directory that will contain it.
            if not os.path.isdir(path):
                target = os.path.dirname(target)
            work = ResultMirror(os.path.realpath(path), target, cache, durable)
            try:
                work.run_until_steady()
            except mirror.NoRoomError as error:
                problems.append(f"{path}: {error}")
            except OSError as error:
                # A directory that vanished is no loss: the run removed it itself.
                if not files.is_missing(path):
                    problems.append(f"{path}: {error_text(error)}")
            problems += work.lost
            copied += work.files
    finally:
        cache.close()
    text = "%d files of %d directories were copied to %s, and compared" % (
        copied,
        len(outside),
        os.path.join(durable[0], FOLDER),
    )
    return CopySummary(text, problems)


class ResultMirror(mirror.MirrorRun):
    """A mirror that collects its output and skips durable directories, such as its own target.

    Pseudo file systems mounted inside the source, such as /proc, are skipped too.

    Attributes:
        files: Number of files whose copy is complete and verified.
        lost: Error texts of results that could not be copied.
    """

    def __init__(
        self, source: str, target: str, cache: hashing.HashCache, durable: list[str]
    ) -> None:
        kept = [os.path.realpath(path) for path in durable if is_below(path, source)]
        no_storage = map(os.fsdecode, result_walk.read_mounts().pseudo)
        kept += [path for path in no_storage if is_below(path, source)]
        left_out = frozenset(os.fsencode(os.path.relpath(path, source)) for path in kept)
        super().__init__(source, target, cache, quiet=True, left_out=left_out)
        self._top = source
        self.files = self._gone = 0
        self.lost: list[str] = []

    def run_until_steady(self) -> None:
        """Copy until no file disappears during a pass: a file renamed meanwhile may be missed.

        Raises:
            NoRoomError, OSError: as `run`.
        """
        # Times a tree is copied again while its files keep disappearing.
        walks = 3
        for _ in range(walks):
            self._gone = 0
            self.lost = []
            self.copy_tree()
            if not self._gone:
                return
        self.lost.append(f"{self._top}: files were added or removed while they were copied")

    def _copy_entry(self, entry: file_tree.TreeEntry) -> JsonObject | None:
        try:
            row = super()._copy_entry(entry)
        except FileNotFoundError:
            if not entry.is_gone():
                raise
            row = {"status": "failed"}
        # Renamed from .tmp, most likely: the next pass finds it under its final name.
        if row is not None and row["status"] == "failed" and entry.is_gone():
            self._gone += 1
            return None
        return row

    def _print_row(self, row: JsonObject) -> None:
        if row.get("end"):
            self.files = int(row["verified"])
        elif row.get("status") == "failed" and not any(
            word in str(row.get("error")) for word in HARMLESS
        ):
            self.lost.append(f"{self._top}/{row.get('path')}: {row.get('error')}")


def list_sources(jobs: list[str], patterns: list[str]) -> list[str]:
    """Return the directories and files known to hold results, none inside another."""
    found: list[str] = []
    for folder in jobs:
        job = queue_file.Job(folder)
        outs = [cell.get("out") for cell in queue_state.load_state(job)["cells"]]
        found += [
            path
            for path in [*outs, *(job.run_folder(line.name) for line in job.read_lines()[0])]
            if isinstance(path, str)
        ]
        work = work_folders.find_job_folder(job.workdir)
        if work is not None:
            found.append(work[0])
        found += [
            job.path(name) for name in ("logs", "job.json", "queue.txt", "state.json", "master.log")
        ]
    for pattern in patterns:
        found += glob.glob(os.path.abspath(os.path.expanduser(pattern)), recursive=True)
    for run in _found_runs():
        dirs, written = run.written_paths()
        found += [*dirs, *written]
    mounts = result_walk.read_mounts()
    found = [path for path in found if not mounts.is_pseudo(os.fsencode(os.path.realpath(path)))]
    whole = [
        path
        for path in dict.fromkeys(found)
        if not (files.is_missing(path) or _is_shared_folder(path))
    ]
    return [
        path
        for path in whole
        if not any(other != path and is_below(path, other) for other in whole)
    ]


def _found_runs() -> list[found_run.FoundRun]:
    raws = state_files.read_found(place.state_dir())
    return [run for run in map(found_run.load_run, raws) if run is not None]


def _is_shared_folder(path: str) -> bool:
    return os.fsencode(os.path.realpath(path)) in result_walk.COMMON


def is_kept(path: str, durable: list[str]) -> bool:
    """Return whether a path is inside a durable directory and on the same device.

    A disk mounted inside the directory does not count: it may not survive.
    """
    try:
        device = os.stat(path).st_dev
        return any(is_below(path, where) and os.stat(where).st_dev == device for where in durable)
    except OSError:
        return False


def mounts_within(sources: list[str], durable: list[str]) -> list[str]:
    """Return mount points inside durable results: these disks and tmpfs may not survive a stop."""
    found: list[str] = []
    for point in map(os.fsdecode, result_walk.read_mounts().rows):
        if not any(is_below(point, source) for source in sources):
            continue
        if is_kept(os.path.dirname(point), durable) and not is_kept(point, durable):
            found.append(point)
    return found


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a directory or inside it, after resolving links."""
    return files.is_below(os.path.realpath(path), os.path.realpath(folder))


def _is_ignored(path: str, ignore: list[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in ignore)
