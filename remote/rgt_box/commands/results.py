"""The ``results`` verb: every file on the box that could be lost, grouped by directory, with its owner."""

from __future__ import annotations

import glob
import os
import sys
import time

from rgt_box import jsonline, landing, options, own_temporary, place
from rgt_box.commands import file_tree, machine_age, result_listing, result_walk, work_folders
from rgt_box.discovery import found_run
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    W = TypeVar("W", bound=result_walk.Walk)

HELP = """
usage: results [--job DIR]... [--run DIR]... [--results GLOB]... [--since EPOCH] [--ignore GLOB]... [--survives DIR]...
               [--disown GLOB]... [--list DIR]... [--list-owned]

List what could be lost on this box, as one JSON object: its files by directory, with owner, count, bytes, the newest,
and a fingerprint that stays the same as long as none of them changes. Files of packages, caches and the system are
counted under "skipped", by rule, with the newest; what cannot be read is under "problems": the list is then incomplete.

  --job DIR        its cells own their directories, and it owns the directory that it works in, or all of the pushed
                   code that this is in: caches and unchanged pushed files are left out there
  --disown GLOB    directories there that are not the job's
  --run DIR        a run's directory; globs allowed
  --results GLOB   directories or files that are results
  --since EPOCH    when the machine was created: files on the root disk that nobody owns and whose ctime is older came
                   with the image; ignored, with the reason as "no_since", if anything on the box is older
  --ignore GLOB    leave out what matches, and all below it
  --survives DIR   do not look inside: it outlives the instance
  --list DIR       after the object, also list the files of this one of its directories, a line each, as manifest
                   --no-hash does: {"root"}, {"path", "stamp", "device"}, {"path", "link"}, {"path", "error"},
                   {"end": true}
  --list-owned     the same for every directory with an owner

Exit status: 0 looked at everything, or named what it could not; 1 too much to list; 2 wrong command line.

Example: results --job ~/jobs/sweep --since 1760000000
"""
SPEC = {
    "--job": "list",
    "--run": "list",
    "--results": "list",
    "--since": "float",
    "--ignore": "list",
    "--survives": "list",
    "--disown": "list",
    "--list": "list",
    "--list-owned": "flag",
}
NICE = 10
MOST_BYTES = 8 << 20
"""Of the answer: the client takes no more."""
TOO_LONG = "there are too many directories with an owner to list: name fewer"


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    why = unusable(found)
    if why:
        print("%s (--help tells more)" % why, file=sys.stderr)
        return 2
    os.nice(NICE)
    looked = Look(found)
    line = jsonline.line(looked.answer)
    if len(line) > MOST_BYTES:
        print(TOO_LONG, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(line)
    if found["list"] or found["list-owned"]:
        chosen = {os.fsencode(path) for path in found["list"]}
        if found["list-owned"]:
            chosen |= {path for path, group in looked.walk.groups.items() if group.owner}
        looked.list_files(chosen, sys.stdout.buffer.write)
    sys.stdout.buffer.flush()
    return 0


def unusable(found: dict[str, Any]) -> str:
    """Return what is wrong with parsed options; "" = nothing."""
    since = found["since"]
    return "" if since is None or 0 <= since < 1e11 else "--since must be seconds since 1970, not %r" % since


def look(found: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to parsed options; see `SPEC`."""
    return Look(found).answer


class Look:
    """A walk with parsed options, and its answer.

    Attributes:
        walk: It is over.
        answer: What ``results`` prints of it.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        at = time.time()
        self._found, self._since, no_since = found, found["since"], ""
        if self._since is not None:
            no_since = machine_age.contradiction(self._since, at, roots()[:1], found["job"])
            self._since = None if no_since else self._since
        self.walk = self._made(result_walk.Walk)
        self.walk.run(roots())
        self.answer = result_walk.answer(self.walk, at, self._since, no_since)

    def _made(self, kind: type[W]) -> W:
        found = self._found
        return kind(
            owners_of(found["job"], found["run"], found["results"]),
            self._since,
            own_places(found["job"]),
            tuple(found["ignore"]),
            tuple(map(os.path.expanduser, found["survives"])),
            disown=tuple(found["disown"]),
        )

    def list_files(self, chosen: set[bytes], write: Callable[[bytes], Any]) -> None:
        """Write a line for each file of the chosen directories of the answer, and a last one."""
        again = self._made(result_listing.Files)
        result_listing.write_files(again, roots(), set(self.walk.groups), chosen, write)


def files_of_job(job: queue_file.Job, folder: str) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the files of the directory that a job works in, each with its ctime, and what could not be listed.

    Args:
        job: The job.
        folder: That directory: see `work_folders.folder_of`.
    """
    owners = owners_of([job.folder], [], [])
    walk = result_listing.Files(owners, own=own_places([job.folder]), disown=tuple(job.settings["ignore"]))
    files: list[tuple[str, float]] = []
    problems: list[str] = []

    def take(line: bytes) -> None:
        row = jsonline.loads_dict(line) or {}
        name = file_tree.raw_name(row)
        if name is None:
            return
        path = os.path.join(folder, os.fsdecode(name))
        if "stamp" in row:
            files.append((path, row["stamp"][2] / 10**9))
        elif "error" in row:
            problems.append("%s: %s" % (path, row["error"]))

    result_listing.write_files(walk, roots(), {os.fsencode(folder)}, {os.fsencode(folder)}, take)
    return files, problems


def roots() -> list[str]:
    """Return where to begin: at the root; ``RGT_ROOTS`` names other directories, with ``:`` between."""
    return [path for path in os.environ.get("RGT_ROOTS", "/").split(":") if path]


def owners_of(jobs: list[str], runs: list[str], results: list[str]) -> result_walk.Owners:
    """Return whose which directory is: of the cells, of named and of found runs, and of a person's globs."""
    owners = result_walk.Owners()
    loaded = [queue_file.Job(folder) for folder in jobs]
    for job in loaded:
        _of_job(owners, job)
    for pattern in runs:
        for path in _matching(pattern):
            owners.add(path, "run %s" % os.path.basename(os.path.normpath(path)))
    for raw in state_files.read_json(place.state_dir(), state_files.FOUND).get("runs") or []:
        run = found_run.load(raw)
        if run is not None:
            _of_found(owners, run)
    for pattern in results:
        inside = "\0"
        for path in _matching(pattern):
            if not (path + "/").startswith(inside):  # of "DIR/**" the directory alone says it all
                owners.add(path, "results %s" % pattern)
                inside = path.rstrip("/") + "/" if os.path.isdir(path) else inside
    work_folders.claim(owners, loaded)
    return owners


def _matching(pattern: str) -> list[str]:
    found = glob.iglob(os.path.abspath(os.path.expanduser(pattern)), recursive=True)
    return sorted(found, key=lambda path: path.rstrip("/").split("/"))


def _of_job(owners: result_walk.Owners, job: queue_file.Job) -> None:
    known = queue_state.load_state(job)["cells"]
    places = {str(cell["name"]): [cell.get("out"), cell.get("durable_path")] for cell in known}
    for line in job.lines()[0]:
        places.setdefault(line.name, []).extend([job.out(line.name), job.durable(line.name)])
    for name, paths in places.items():
        for path in paths:
            if isinstance(path, str) and os.path.isdir(path):
                owners.add(path, "cell %s" % name)
    owner = "job %s" % job.folder
    for path in (job.path("logs"), job.path(queue_state.FOLDER), job.path("queue.txt")):
        owners.add(path, owner)
    for line in job.lines()[0]:
        owners.add(job.config(line), owner)


def _of_found(owners: result_walk.Owners, run: found_run.Run) -> None:
    """A found run has the directories that it was told to write to, and those of its metrics and logs."""
    dirs, files = run.written()
    for path in [*filter(os.path.isdir, dirs), *files]:
        owners.add(path, "run %s" % run.name)


def own_places(jobs: list[str]) -> tuple[str, ...]:
    """Return the files and directories of rgt itself: they change all the time, and are nobody's result."""
    state = place.state_dir()
    found = [
        *state_files.places(state),
        *place.neighbours(state),
        landing.home(),
        *landing.spares(),
        *own_temporary.listed(),
    ]
    for folder in jobs:
        job = queue_file.Job(folder)
        for where in (job.folder, queue_state.lanes_folder(job)):
            found += glob.glob(os.path.join(glob.escape(where), "*.lock"))
    return tuple(found)
