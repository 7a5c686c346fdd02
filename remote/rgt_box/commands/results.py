"""The ``results`` verb: lists every file on the box that could be lost, by directory and owner."""

from __future__ import annotations

import glob
import os
import sys
import time

from rgt_box import jsonline, landing, options, place, procstat
from rgt_box.commands import file_tree, hashing, result_rules, result_walk, work_folders
from rgt_box.discovery import found_run, run_sources
from rgt_box.queue import queue_file, queue_state
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, TypeVar

    from rgt_wire import JsonObject

    from rgt_box.commands.result_walk import WalkLevel


if TYPE_CHECKING:
    W = TypeVar("W", bound=result_walk.ResultWalk)

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
"""Maximum bytes of the answer; the client accepts no more."""
TOO_LONG = "too many directories with an owner to list: name fewer"


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    why = find_option_error(found)
    if why:
        print(f"{why} (see --help)", file=sys.stderr)
        return 2
    # A walk over the whole disk must not slow down a training.
    os.nice(NICE)
    looked = ResultSearch(found)
    line = jsonline.encode_line(looked.answer)
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


def find_option_error(found: JsonObject) -> str:
    """Return the error in the parsed options; "" if nothing."""
    since = found["since"]
    if since is None or 0 <= since < 1e11:
        return ""
    return f"--since must be seconds since 1970, not {since!r}"


def find_results(found: JsonObject) -> JsonObject:
    """Return the answer to parsed options; see `SPEC`."""
    return ResultSearch(found).answer


class ResultSearch:
    """A walk with parsed options, and its answer.

    Attributes:
        walk: The finished walk.
        answer: The object that ``results`` prints.
    """

    def __init__(self, found: JsonObject) -> None:
        at = time.time()
        self._found = found
        self._since = found["since"]
        no_since = ""
        if self._since is not None:
            no_since = why_machine_is_older(self._since, at, folders_to_walk()[:1], found["job"])
            if no_since:
                self._since = None
        self._owners = build_owners(found["job"], found["run"], found["results"], outputs=True)
        self.walk = self._new_walk(result_walk.ResultWalk)
        self.walk.walk_roots(folders_to_walk())
        self.answer = result_walk.walk_answer(self.walk, at, self._since, no_since)

    def _new_walk(self, kind: type[W]) -> W:
        found = self._found
        return kind(
            self._owners,
            self._since,
            own_places(found["job"]),
            tuple(found["ignore"]),
            tuple(map(os.path.expanduser, found["survives"])),
            disown=tuple(found["disown"]),
        )

    def list_files(self, chosen: set[bytes], write: Callable[[bytes], Any]) -> None:
        """Write a line for each file of the chosen directories, and a final line."""
        again = self._new_walk(FileListingWalk)
        write_files(again, folders_to_walk(), set(self.walk.groups), chosen, write)


def list_job_files(job: queue_file.Job, folder: str) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the files of a job's working directory with their ctimes, and the listing problems.

    Args:
        job: The job.
        folder: That directory: see `work_folders.find_job_folder`.
    """
    owners = build_owners([job.folder], [], [])
    walk = FileListingWalk(
        owners, own=own_places([job.folder]), disown=tuple(job.settings["ignore"])
    )
    files: list[tuple[str, float]] = []
    problems: list[str] = []

    def write_job_row(line: bytes) -> None:
        row = jsonline.loads_dict(line) or {}
        name = file_tree.raw_name(row)
        if name is None:
            return
        path = os.path.join(folder, os.fsdecode(name))
        if "stamp" in row:
            files.append((path, row["stamp"][2] / 10**9))
        elif "error" in row:
            problems.append(f"{path}: {row['error']}")

    write_files(
        walk, folders_to_walk(), {os.fsencode(folder)}, {os.fsencode(folder)}, write_job_row
    )
    return files, problems


def folders_to_walk() -> list[str]:
    """Return the directories to walk: ``/``, or those in ``RGT_ROOTS``, separated by ``:``."""
    return [path for path in os.environ.get("RGT_ROOTS", "/").split(":") if path]


def build_owners(
    jobs: list[str], runs: list[str], results: list[str], *, outputs: bool = False
) -> result_walk.FolderOwners:
    """Return the owners of directories: cells, named runs, found runs, and the user's globs.

    Args:
        jobs: Job directories.
        runs: Globs of runs' directories.
        results: Globs of the user.
        outputs: Also search the working directories of found runs for what they have saved.
    """
    owners = result_walk.FolderOwners()
    loaded = [queue_file.Job(folder) for folder in jobs]
    for job in loaded:
        _claim_job(owners, job)
    for pattern in runs:
        for path in _expand_glob(pattern):
            owners.claim_path(path, f"run {os.path.basename(os.path.normpath(path))}")
    rows = state_files.read_found(place.state_dir())
    found = [run for run in map(found_run.load_run, rows) if run is not None]
    for run in found:
        _claim_found_run(owners, run)
    for pattern in results:
        inside = "\0"
        for path in _expand_glob(pattern):
            if not (path + "/").startswith(inside):  # for "DIR/**" the directory alone is enough
                owners.claim_path(path, f"results {pattern}")
                if os.path.isdir(path):
                    inside = path.rstrip("/") + "/"
    # Last: the first claim of a directory wins, and a job's working directory is the least specific
    # one.
    work_folders.claim_work_folders(owners, loaded)
    if outputs:
        # Of a job's run, the queue knows the directories.
        unqueued = [run for run in found if not run.job]
        for run, path in run_sources.list_outputs(unqueued, result_rules.is_input):
            if not owners.is_claimed(path):
                begun = run.first_start - run_sources.SLACK
                owners.claim_path(path, f"run {run.name}", begun=begun)
    return owners


def _expand_glob(pattern: str) -> list[str]:
    found = glob.iglob(os.path.abspath(os.path.expanduser(pattern)), recursive=True)
    return sorted(found, key=lambda path: path.rstrip("/").split("/"))


def _claim_job(owners: result_walk.FolderOwners, job: queue_file.Job) -> None:
    known = queue_state.load_state(job)["cells"]
    places = {}
    for cell in known:
        places[str(cell["name"])] = [cell.get("out"), cell.get("durable_path")]
    for line in job.read_lines()[0]:
        places.setdefault(line.name, []).extend(
            [job.run_folder(line.name), job.durable_folder(line.name)]
        )
    for name, paths in places.items():
        for path in paths:
            if isinstance(path, str) and os.path.isdir(path):
                owners.claim_path(path, f"cell {name}")
    owner = f"job {job.folder}"
    for path in (job.path("logs"), job.path(queue_state.FOLDER), job.path("queue.txt")):
        owners.claim_path(path, owner)
    for line in job.read_lines()[0]:
        owners.claim_path(job.config_path(line), owner)


def _claim_found_run(owners: result_walk.FolderOwners, run: found_run.FoundRun) -> None:
    """Claim the directories that a found run writes to, and those of its metrics and logs."""
    dirs, files = run.written_paths()
    begun = run.first_start - run_sources.SLACK
    for path in [*filter(os.path.isdir, dirs), *files]:
        owners.claim_path(path, f"run {run.name}", begun=begun)


def own_places(jobs: list[str]) -> tuple[str, ...]:
    """Return rgt's own files and directories: they change constantly and are not results."""
    state = place.state_dir()
    found = [
        *state_files.state_folders(state),
        *place.neighbours(state),
        landing.agent_home(),
        *landing.spare_folders(),
        *place.list_own_folders(),
    ]
    for folder in jobs:
        job = queue_file.Job(folder)
        for where in (job.folder, queue_state.lanes_folder(job)):
            # Locks are written at every start of a queue: they would change the fingerprint.
            found += glob.glob(os.path.join(glob.escape(where), "*.lock"))
    return tuple(found)


# Checks the provider's creation time of the machine against things on the box that cannot be older.
# Files older than the machine came with its image and are not missed. A creation time that is too
# late, or a clock that was wrong while files were written, would make results look like such files.
# So a single contradiction is enough to ignore the time.


def why_machine_is_older(since: float, now: float, roots: list[str], jobs: list[str]) -> str:
    """Return why the machine must be older than `since`; "" if nothing on the box contradicts it.

    Args:
        since: Epoch seconds.
        now: The box's clock.
        roots: Root directories of the machine's file system.
        jobs: Job directories.
    """
    if since > now:
        return "by the box's clock, the machine was created in the future"
    # Process start times are exact to one tick since boot, and the boot time to one second.
    clock_slack_s = 2.0
    for what, at in iterate_creation_times(roots, jobs):
        if at < since - clock_slack_s:
            text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
            return f"{what} is older than the machine: of {text}, by the box's clock"
    return ""


def iterate_creation_times(roots: list[str], jobs: list[str]) -> Iterator[tuple[str, float]]:
    """Yield (description, time) of things created on this machine, by its clock at that time."""
    starts = [procstat.start_ticks(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    known = [ticks for ticks in starts if ticks is not None]
    first = 0.0
    if known:
        first = min(known) / procstat.CLOCK_TICKS
    if known:
        yield "the oldest process", procstat.boot_time() + first
    mounts = result_walk.read_mounts().rows
    # Seconds after kernel boot within which the first process of a full machine has started.
    boot_s = 60.0
    for root in roots:
        # Created with the container before anything runs in it; /dev is created at every start.
        yield from _oldest_change("/.dockerenv", [os.path.join(root, ".dockerenv")])
        dev = os.path.join(root, "dev")
        # In a container with the host's /dev, /dev is older than the container.
        if first < boot_s or mounts.get(os.fsencode(dev), ("", ""))[0] != "devtmpfs":
            yield from _oldest_change("a file in /dev", _list_paths(dev))
    state = place.state_dir()
    folders = [os.path.expanduser(folder) for folder in jobs]
    # Files on a separate disk may be older than the machine.
    yield from _oldest_change(
        "the agent of rgt",
        _list_paths(landing.agent_home()) if _is_on_root(landing.agent_home(), roots) else [],
    )
    yield from _oldest_change(
        "a job",
        [os.path.join(folder, "job.json") for folder in folders if _is_on_root(folder, roots)],
    )
    if not _is_on_root(state, roots):
        return
    for raw in state_files.read_found(state):
        if isinstance(raw, dict):
            started = raw.get("started")
        else:
            started = None
        if isinstance(started, (int, float)):
            yield "a run", float(started)


def _is_on_root(path: str, roots: list[str]) -> bool:
    try:
        return os.stat(path).st_dev == os.stat(roots[0]).st_dev
    except (OSError, IndexError):
        return False


def _oldest_change(what: str, paths: list[str]) -> Iterator[tuple[str, float]]:
    times = []
    for path in paths:
        try:
            times.append(os.lstat(path).st_ctime)
        except OSError:
            continue
    if times:
        yield what, min(times)


def _list_paths(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


# Lists the individual files of chosen directories of ``results``, as ``manifest --no-hash`` does. A
# pull of exactly these files gets exactly what ``results`` counts: no files of rgt, no packages,
# and nothing from a subdirectory that is listed separately.


class FileListingWalk(result_walk.ResultWalk):
    """A walk over the chosen directories that reports each file instead of counting it.

    Attributes:
        known: Every directory of the first walk's list, with or without an owner.
        chosen: Directories whose files are reported.
        write: Called with each line.
        counts: Files, bytes and problems reported.
    """

    known: frozenset[bytes] = frozenset()
    chosen: frozenset[bytes] = frozenset()

    def set_output(
        self, known: set[bytes], chosen: set[bytes], write: Callable[[bytes], Any]
    ) -> None:
        """Set the directories to report and the function that receives the lines."""
        self.known, self.chosen, self.write = frozenset(known), frozenset(chosen), write
        self._above = {above for path in chosen for above in result_walk.parent_folders(path)}
        self._root: bytes | None = None
        self.counts = {"files": 0, "bytes": 0, "links": 0, "problems": 0}

    def _enter_folder(self, path: bytes, above: WalkLevel | None) -> WalkLevel | None:
        # Only the way to the chosen directories and their contents: the second walk need not see
        # the whole disk.
        if path in self._above or _deepest_containing(path, self.chosen) is not None:
            return super()._enter_folder(path, above)
        return None

    def _add_result(self, level: WalkLevel, path: bytes, seen: os.stat_result) -> None:
        if self._write_row(level, path, hashing.listing_fields(seen)):
            self.counts["files"] += 1
            self.counts["bytes"] += seen.st_size

    def _note_link(self, level: WalkLevel, name: str) -> None:
        path = os.path.join(level.path, os.fsencode(name))
        if level.rule is not None or level.ignored is not None or path in self._own:
            return
        try:
            target = os.fsencode(os.readlink(name, dir_fd=level.fd))
        except OSError:
            return  # it was removed
        if level.pushed is not None and level.pushed.is_link(path, target):
            return
        if self._write_row(level, path, file_tree.name_fields(target, "link")):
            self.counts["links"] += 1

    def _record_problem(self, path: bytes, text: str, level: WalkLevel) -> None:
        if self._write_row(level, path, {"error": text}):
            self.counts["problems"] += 1

    def _write_row(self, level: WalkLevel, path: bytes, row: JsonObject) -> bool:
        """Write the line of an entry if its directory is chosen."""
        root: bytes | None = level.root
        if not level.owner:
            root = _deepest_containing(level.path, self.known)
        if root is None or root not in self.chosen:
            return False
        if root != self._root:
            self._root = root
            self.write(jsonline.encode_line(file_tree.name_fields(root, "root")))
        name = path[len(root.rstrip(b"/")) + 1 :] or b"."
        self.write(jsonline.encode_line(dict(file_tree.name_fields(name), **row)))
        return True


def _deepest_containing(path: bytes, folders: frozenset[bytes]) -> bytes | None:
    """Return the deepest of `folders` that is `path` or contains it."""
    return next((at for at in [path, *result_walk.parent_folders(path)] if at in folders), None)


def write_files(
    walk: FileListingWalk,
    roots: list[str],
    known: set[bytes],
    chosen: set[bytes],
    write: Callable[[bytes], Any],
) -> None:
    """Walk again and write a line per file of the chosen directories, and a final line.

    Args:
        walk: Created with the same options as the first walk.
        roots: The same roots as in the first walk.
        known: Directories in the first walk's answer.
        chosen: Directories whose files are listed.
        write: Receives each line.
    """
    walk.set_output(known, chosen & known, write)
    walk.walk_roots(roots)
    for path in sorted(chosen - known):
        write(jsonline.encode_line(file_tree.name_fields(path, "root")))
        write(
            jsonline.encode_line(
                {"path": ".", "error": "no longer contains results: list them again"}
            )
        )
        walk.counts["problems"] += 1
    write(jsonline.encode_line(dict(walk.counts, end=True)))
