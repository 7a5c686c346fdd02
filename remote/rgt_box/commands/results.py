"""The ``results`` verb: every file on the box that could be lost, grouped by directory, with its owner."""

from __future__ import annotations

import glob
import os
import sys
import time

from rgt_box import jsonline, landing, options, own_temporary, place, procstat
from rgt_box.commands import file_tree, hashing, result_walk, work_folders
from rgt_box.discovery import found_run
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, TypeVar

    from rgt_box.commands.result_walk import Level


CLOCK_SLACK_S = 2.0
"""Process starts are known to a tick since boot, and the time of the boot to a second."""

BOOT_S = 60.0
"""Seconds after the boot of the kernel within which the first process of a whole machine has started."""


if TYPE_CHECKING:
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
        print(f"{why} (--help tells more)", file=sys.stderr)
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
    if since is None or 0 <= since < 1e11:
        return ""
    return f"--since must be seconds since 1970, not {since!r}"


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
            no_since = contradiction(self._since, at, roots()[:1], found["job"])
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
        again = self._made(Files)
        write_files(again, roots(), set(self.walk.groups), chosen, write)


def files_of_job(job: queue_file.Job, folder: str) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the files of the directory that a job works in, each with its ctime, and what could not be listed.

    Args:
        job: The job.
        folder: That directory: see `work_folders.folder_of`.
    """
    owners = owners_of([job.folder], [], [])
    walk = Files(owners, own=own_places([job.folder]), disown=tuple(job.settings["ignore"]))
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
            problems.append(f"{path}: {row['error']}")

    write_files(walk, roots(), {os.fsencode(folder)}, {os.fsencode(folder)}, take)
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
            owners.add(path, f"run {os.path.basename(os.path.normpath(path))}")
    for raw in state_files.read_json(place.state_dir(), state_files.FOUND).get("runs") or []:
        run = found_run.load(raw)
        if run is not None:
            _of_found(owners, run)
    for pattern in results:
        inside = "\0"
        for path in _matching(pattern):
            if not (path + "/").startswith(inside):  # of "DIR/**" the directory alone says it all
                owners.add(path, f"results {pattern}")
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
                owners.add(path, f"cell {name}")
    owner = f"job {job.folder}"
    for path in (job.path("logs"), job.path(queue_state.FOLDER), job.path("queue.txt")):
        owners.add(path, owner)
    for line in job.lines()[0]:
        owners.add(job.config(line), owner)


def _of_found(owners: result_walk.Owners, run: found_run.Run) -> None:
    """A found run has the directories that it was told to write to, and those of its metrics and logs."""
    dirs, files = run.written()
    for path in [*filter(os.path.isdir, dirs), *files]:
        owners.add(path, f"run {run.name}")


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


# Checks a provider's word for when the machine was created against what on the box is certainly not older.
#
# Files that are older than the machine came with its image, and nobody would miss them. A date that is too
# late, or a clock that was wrong while files were written, would take results for such files: so one
# contradiction is enough.


def contradiction(since: float, now: float, roots: list[str], jobs: list[str]) -> str:
    """Return why the machine cannot have been created as late as `since`; "" = nothing on the box speaks against it.

    Args:
        since: Epoch seconds.
        now: The box's clock.
        roots: Where the file system of the machine begins.
        jobs: Job directories.
    """
    if since > now:
        return "the machine was created later than now, by the box's clock"
    for what, at in witnesses(roots, jobs):
        if at < since - CLOCK_SLACK_S:
            text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
            return f"{what} is older than the machine: of {text}, by the box's clock"
    return ""


def witnesses(roots: list[str], jobs: list[str]) -> Iterator[tuple[str, float]]:
    """Yield what came to be on this machine, and when, by the clock that it had then."""
    starts = [procstat.start_ticks(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    known = [ticks for ticks in starts if ticks is not None]
    first = min(known) / procstat.CLOCK_TICKS if known else 0.0
    if known:
        yield "the oldest process", procstat.boot_time() + first
    mounts = result_walk.read_mounts().rows
    for root in roots:
        # Made with the container, before anything in it runs, and in /dev again at every start.
        yield from _changed("/.dockerenv", [os.path.join(root, ".dockerenv")])
        dev = os.path.join(root, "dev")
        # A container that is shown the /dev of its host is younger than that.
        if first < BOOT_S or mounts.get(os.fsencode(dev), ("", ""))[0] != "devtmpfs":
            yield from _changed("a file in /dev", _inside(dev))
    state = place.state_dir()
    folders = [os.path.expanduser(folder) for folder in jobs]
    # What lies on a disk of its own may have been there before the machine.
    yield from _changed(
        "the agent of rgt", _inside(landing.home()) if _is_on_root(landing.home(), roots) else []
    )
    yield from _changed(
        "a job",
        [os.path.join(folder, "job.json") for folder in folders if _is_on_root(folder, roots)],
    )
    if not _is_on_root(state, roots):
        return
    for raw in state_files.read_json(state, state_files.FOUND).get("runs") or []:
        started = raw.get("started") if isinstance(raw, dict) else None
        if isinstance(started, (int, float)):
            yield "a run", float(started)


def _is_on_root(path: str, roots: list[str]) -> bool:
    try:
        return os.stat(path).st_dev == os.stat(roots[0]).st_dev
    except (OSError, IndexError):
        return False


def _changed(what: str, paths: list[str]) -> Iterator[tuple[str, float]]:
    times = []
    for path in paths:
        try:
            times.append(os.lstat(path).st_ctime)
        except OSError:
            continue
    if times:
        yield what, min(times)


def _inside(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


# Lists the files of chosen directories of ``results``, one by one, as ``manifest --no-hash`` lists a tree.
#
# A pull that fetches exactly these files has exactly what the list of results counts: nothing of rgt's own,
# nothing of a package, nothing of a directory below that is listed separately.


class Files(result_walk.Walk):
    """A walk over the chosen directories only, which reports each file instead of counting it.

    Attributes:
        known: Every directory of the first walk's list, with or without an owner.
        chosen: Those whose files are reported.
        write: Called with each line.
        counts: Files, bytes and problems reported.
    """

    known: frozenset[bytes] = frozenset()
    chosen: frozenset[bytes] = frozenset()

    def choose(self, known: set[bytes], chosen: set[bytes], write: Callable[[bytes], Any]) -> None:
        """Set the directories to report, and who takes the lines."""
        self.known, self.chosen, self.write = frozenset(known), frozenset(chosen), write
        self._above = {above for path in chosen for above in result_walk.parents(path)}
        self._root: bytes | None = None
        self.counts = {"files": 0, "bytes": 0, "links": 0, "problems": 0}

    def _entered(self, path: bytes, above: Level | None) -> Level | None:
        if path in self._above or _nearest(path, self.chosen) is not None:
            return super()._entered(path, above)
        return None

    def _add(self, level: Level, path: bytes, seen: os.stat_result) -> None:
        if self._report(level, path, hashing.listed(seen)):
            self.counts["files"] += 1
            self.counts["bytes"] += seen.st_size

    def _note_link(self, level: Level, name: str) -> None:
        path = os.path.join(level.path, os.fsencode(name))
        if level.rule is not None or level.ignored is not None or path in self._own:
            return
        try:
            target = os.fsencode(os.readlink(name, dir_fd=level.fd))
        except OSError:
            return  # it is gone
        if level.pushed is not None and level.pushed.is_link(path, target):
            return
        if self._report(level, path, file_tree.named(target, "link")):
            self.counts["links"] += 1

    def _problem(self, path: bytes, text: str, level: Level) -> None:
        if self._report(level, path, {"error": text}):
            self.counts["problems"] += 1

    def _report(self, level: Level, path: bytes, row: dict[str, Any]) -> bool:
        """Write the line of an entry if its directory is chosen."""
        root = level.root if level.owner else _nearest(level.path, self.known)
        if root is None or root not in self.chosen:
            return False
        if root != self._root:
            self._root = root
            self.write(jsonline.line(file_tree.named(root, "root")))
        name = path[len(root.rstrip(b"/")) + 1 :] or b"."
        self.write(jsonline.line(dict(file_tree.named(name), **row)))
        return True


def _nearest(path: bytes, folders: frozenset[bytes]) -> bytes | None:
    """Return the deepest of some directories that is `path` or contains it."""
    return next((at for at in [path, *result_walk.parents(path)] if at in folders), None)


def write_files(
    walk: Files,
    roots: list[str],
    known: set[bytes],
    chosen: set[bytes],
    write: Callable[[bytes], Any],
) -> None:
    """Walk again, and write the lines of the files of the chosen directories, and the last line.

    Args:
        walk: Made like the first one.
        roots: As for the first one.
        known: Directories of the first one's list.
        chosen: Those whose files are to be listed.
        write: Takes each line.
    """
    walk.choose(known, chosen & known, write)
    walk.run(roots)
    for path in sorted(chosen - known):
        write(jsonline.line(file_tree.named(path, "root")))
        write(jsonline.line({"path": ".", "error": "holds no results any more: list them again"}))
        walk.counts["problems"] += 1
    write(jsonline.line(dict(walk.counts, end=True)))
