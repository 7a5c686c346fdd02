"""Copies results that a stop would erase to storage that survives it.

What nobody owns is not copied; by what was armed, the person has been told which directories survive.
"""

from __future__ import annotations

import fnmatch
import glob
import os

from rgt_box import files, place
from rgt_box.background import describe
from rgt_box.commands import hashing, mirror, result_walk
from rgt_box.discovery import found_run
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Saved(NamedTuple):
        """What came of it."""

        text: str
        problems: "list[str]"
else:
    from collections import namedtuple

    Saved = namedtuple("Saved", "text problems")

FOLDER = "rgt-autostop"
"""Where copies stand, in the first directory that survives: each under its own path."""
HARMLESS = ("is a link that leads out of", ": refused")
"""Failures of a mirror that lose no result: links, sockets and the like."""


def save(jobs: list[str], patterns: list[str], ignore: list[str], durable: list[str]) -> Saved:
    """Copy what is outside `durable` into its first directory, read back and compared.

    Args:
        jobs: Job directories.
        patterns: Globs of results.
        ignore: Globs of what is no result.
        durable: Directories that survive a stop.
    """
    sources = [path for path in sources_of(jobs, patterns) if not _ignored(path, ignore)]
    outside = [path for path in sources if not any(is_below(path, where) for where in durable)]
    inside = len(sources) - len(outside)
    if not outside:
        return Saved("every known result (%d places) lies where it survives a stop" % inside, [])
    if not durable:
        return Saved("", ["no directory survives a stop: %s" % ", ".join(outside[:3])])
    problems: list[str] = []
    copied = 0
    cache = hashing.HashCache(hashing.default_path())
    try:
        for path in outside:
            target = os.path.join(os.path.realpath(durable[0]), FOLDER, os.path.realpath(path).lstrip("/"))
            if not os.path.isdir(path):
                target = os.path.dirname(target)
            work = Copy(os.path.realpath(path), target, cache)
            try:
                work.run()
            except mirror.NoRoom as error:
                problems.append("%s: %s" % (path, error))
            except OSError as error:
                problems.append("%s: %s" % (path, describe(error)))
            problems += work.lost
            copied += work.files
    finally:
        cache.close()
    text = "%d files of %d places were copied to %s, and compared" % (
        copied,
        len(outside),
        os.path.join(durable[0], FOLDER),
    )
    return Saved(text, problems)


class Copy(mirror.Mirror):
    """A mirror that keeps what it says.

    Attributes:
        files: Files that are there, whole.
        lost: What could not be copied and is a result, with why.
    """

    def __init__(self, source: str, target: str, cache: hashing.HashCache) -> None:
        super().__init__(source, target, cache, quiet=True)
        self._top = source
        self.files = 0
        self.lost: list[str] = []

    def _print(self, row: dict[str, Any]) -> None:
        if row.get("end"):
            self.files = int(row["verified"])
        elif row.get("status") == "failed" and not any(word in str(row.get("error")) for word in HARMLESS):
            self.lost.append("%s/%s: %s" % (self._top, row.get("path"), row.get("error")))


def sources_of(jobs: list[str], patterns: list[str]) -> list[str]:
    """Return the directories and files that are known to hold results, none below another."""
    found: list[str] = []
    for folder in jobs:
        job = queue_file.Job(folder)
        outs = [cell.get("out") for cell in queue_state.load_state(job)["cells"]]
        found += [
            path
            for path in [*outs, *(job.out(line.name) for line in job.lines()[0])]
            if isinstance(path, str)
        ]
        found += [job.path(name) for name in ("logs", "job.json", "queue.txt", "state.json", "master.log")]
    for pattern in patterns:
        found += glob.glob(os.path.abspath(os.path.expanduser(pattern)), recursive=True)
    for raw in state_files.read_json(place.state_dir(), state_files.FOUND).get("runs") or []:
        run = found_run.load(raw)
        if run is not None:
            here = (os.path.expanduser("~"), run.cwd)
            found += [path for path in run.dirs if os.path.realpath(path) not in here]
            found += [*run.files, *run.logs]
    whole = [path for path in dict.fromkeys(found) if os.path.exists(path) and not _is_everybodys(path)]
    return [path for path in whole if not any(other != path and is_below(path, other) for other in whole)]


def _is_everybodys(path: str) -> bool:
    return os.fsencode(os.path.realpath(path)) in result_walk.COMMON


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a directory, or below it; links are followed."""
    return files.is_below(os.path.realpath(path), os.path.realpath(folder))


def _ignored(path: str, ignore: list[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in ignore)
