"""The ``results`` verb: every file on the box that could be lost, grouped by directory, with its owner."""

from __future__ import annotations

import glob
import os
import sys
import time

from rgt_box import jsonline, landing, options, place
from rgt_box.commands import result_walk
from rgt_box.discovery import found_run
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: results [--job DIR]... [--run DIR]... [--results GLOB]... [--since EPOCH] [--ignore GLOB]... [--survives DIR]...

List what could be lost on this box, as one JSON object: its files by directory, with owner, count, bytes, the newest,
and a fingerprint that stays the same as long as none of them changes. What belongs to packages, caches and the system
is counted under "skipped", by rule; what cannot be read is listed under "problems": the list is then incomplete.

  --job DIR        its cells own their directories
  --run DIR        a run's directory; globs allowed
  --results GLOB   directories or files that are results
  --since EPOCH    leave out files whose ctime is older: they came with the image
  --ignore GLOB    leave out what matches, and all below it
  --survives DIR   do not look inside: it outlives the instance

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
    line = jsonline.line(look(found))
    if len(line) > MOST_BYTES:
        print(TOO_LONG, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def unusable(found: dict[str, Any]) -> str:
    """Return what is wrong with parsed options; "" = nothing."""
    since = found["since"]
    return "" if since is None or 0 <= since < 1e11 else "--since must be seconds since 1970, not %r" % since


def look(found: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to parsed options; see `SPEC`."""
    at = time.time()
    walk = result_walk.Walk(
        owners_of(found["job"], found["run"], found["results"]),
        found["since"],
        own_places(found["job"]),
        tuple(found["ignore"]),
        tuple(map(os.path.expanduser, found["survives"])),
    )
    walk.run(roots())
    return result_walk.answer(walk, at, found["since"])


def roots() -> list[str]:
    """Return where to begin: at the root; ``RGT_ROOTS`` names other directories, with ``:`` between."""
    return [path for path in os.environ.get("RGT_ROOTS", "/").split(":") if path]


def owners_of(jobs: list[str], runs: list[str], results: list[str]) -> result_walk.Owners:
    """Return whose which directory is: of the cells, of named and of found runs, and of a person's globs."""
    owners = result_walk.Owners()
    for folder in jobs:
        _of_job(owners, queue_file.Job(folder))
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


def _of_found(owners: result_walk.Owners, run: found_run.Run) -> None:
    """A found run has the directories that it was told to write to, and those of its metrics and logs."""
    for path in run.dirs:
        if os.path.isdir(path) and os.path.realpath(path) not in (os.path.expanduser("~"), run.cwd):
            owners.add(path, "run %s" % run.name)
    for path in [*run.files, *run.logs]:
        owners.add(path, "run %s" % run.name)


def own_places(jobs: list[str]) -> tuple[str, ...]:
    """Return the files and directories of rgt itself: they change all the time, and are nobody's result."""
    state = place.state_dir()
    found = [*state_files.places(state), *place.neighbours(state), landing.home(), *landing.spares()]
    for folder in jobs:
        job = queue_file.Job(folder)
        for where in (job.folder, queue_state.lanes_folder(job)):
            found += glob.glob(os.path.join(glob.escape(where), "*.lock"))
    return tuple(found)
