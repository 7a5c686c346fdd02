"""The state of a queue: the ``queue`` frame, ``state.json``, one file per lane, and ``master.log``.

A lane runs one cell in parallel to others of the same queue, with its own lock and state file: one
task of a Slurm job array, or one pod of an indexed Kubernetes Job. Lanes are independent:
``JOB/lanes/NAME.lock`` prevents a second runner of the same cell, ``JOB/lanes/NAME.json`` stores
the cell's state. Readers merge the lanes with ``state.json``; for each cell the newer record
counts.

The mapping from task to cell is frozen in ``JOB/indexes.json`` when the tasks are submitted: the
queue may be edited while they wait, and commenting out a line must not give the following tasks
other cells.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import sys
import time
from functools import lru_cache

from rgt_box import files, jsonline, procstat
from rgt_box.queue.queue_file import Job, QueueLine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

FOLDER = "lanes"
INDEXES = "indexes.json"
TELLS_WITHIN = 0.5
"""Seconds that a process which has just taken a lock has to write its pid."""
_silent: dict[str, object] = {}
"""Locks whose owner has not written its pid in that time → the file's signature then."""


def read_frozen_cells(job: Job) -> list[str] | None:
    """Return the cells' names by task index; None if no submission has frozen them.

    Raises:
        ValueError: The file is damaged: a guess could run another cell.
    """
    data = files.read_file(job.path(INDEXES))
    if data is None and not os.path.lexists(job.path(INDEXES)):
        return None
    cells = (jsonline.loads_dict(data or b"") or {}).get("cells")
    if not isinstance(cells, list) or not all(isinstance(name, str) for name in cells):
        raise ValueError(
            f"{job.path(INDEXES)} is damaged; tasks that wait need it: restore it from the "
            "submission"
        )
    return [str(name) for name in cells]


def freeze_cell_indexes(job: Job) -> list[str]:
    """Give every cell of the queue a permanent index; return the names by index.

    Raises:
        OSError: It could not be written.
        ValueError: See `read_frozen_cells`.
    """
    held = files.FileLock(job.path("indexes.lock"))
    freezing_wait = 30.0
    if not held.acquire(freezing_wait):
        raise ValueError(f"another submission of {job.folder} is in progress")
    try:
        before = read_frozen_cells(job) or []
        # Only appended: the tasks of a running array refer to a cell by its number.
        names = before + [line.name for line in job.read_lines()[0] if line.name not in before]
        if names != before:
            files.replace_file(
                job.path(INDEXES), jsonline.encode_line({"cells": names}), sync=True, mode=0o644
            )
        return names
    finally:
        held.release()


def lanes_folder(job: Job) -> str:
    """Return the directory of a job's lanes."""
    return job.path(FOLDER)


def lane_state_path(job: Job, name: str) -> str:
    """Return the state file of a cell's lane."""
    return job.path(FOLDER, name + ".json")


def lane_lock_path(job: Job, name: str) -> str:
    """Return the lock file of a cell's lane."""
    return job.path(FOLDER, name + ".lock")


def lane_names(job: Job) -> list[str]:
    """Return the names of the cells that have a lane."""
    try:
        found = os.listdir(lanes_folder(job))
    except OSError:
        return []
    return sorted(name[: -len(".json")] for name in found if name.endswith(".json"))


def is_lane_alive(job: Job, name: str) -> bool:
    """Return whether a lane's runner is active."""
    return files.is_locked(lane_lock_path(job, name))


def read_lanes(job: Job) -> dict[str, JsonObject]:
    """Return name → state of every readable lane."""
    found = {}
    for name in lane_names(job):
        state = files.read_json(lane_state_path(job, name))
        if state is not None:
            found[name] = state
    return found


def overlay_cells(
    cells: list[JsonObject], at: Any, found: dict[str, JsonObject]
) -> list[JsonObject]:
    """Return the cells, replaced by those of newer lanes.

    Args:
        cells: The cells in ``state.json``.
        at: When that was written; None if it never was.
        found: What `read_lanes` returned.
    """
    newer: dict[str, JsonObject] = {}
    for name, state in found.items():
        mine = [
            cell
            for cell in state.get("cells") or []
            if isinstance(cell, dict) and cell.get("name") == name
        ]
        # The newer record wins: a lane may have run after the queue, or before it.
        if mine and float(state.get("at") or 0.0) > float(at or 0.0):
            newer[name] = mine[0]
    # In the queue's order; lanes of cells that are no longer in the queue follow.
    known = [newer.pop(cell["name"], cell) for cell in cells]
    return known + list(newer.values())


def lane_signatures(job: Job) -> list[Any]:
    """Return a value that changes when a lane's state changes, or a lane starts or ends."""
    return [
        (name, files.signature(lane_state_path(job, name)), is_lane_alive(job, name))
        for name in lane_names(job)
    ]


BLOCK = 16384
"""state.json is padded to a multiple of this, so that it can grow in place on a full disk."""

CELL_FIELDS = (
    "name", "cfg", "task", "epochs", "state", "attempts", "started", "ended", "exit_code", "signal",
    "reason",
    "durable", "durable_path", "out", "log", "best", "flag", "told",
)  # fmt: skip

FULL = (errno.ENOSPC, errno.EDQUOT)


def new_cell(job: Job, line: QueueLine) -> JsonObject:
    """Return the state of a cell that has not run yet."""
    return {
        "name": line.name,
        "cfg": line.cfg,
        "task": line.task,
        "epochs": job.settings["default_epochs"] if line.epochs is None else line.epochs,
        "state": "waiting",
        "attempts": 0,
        "durable": "pending" if job.settings["durable"] else None,
        "durable_path": job.durable_folder(line.name),
        "out": job.run_folder(line.name),
        "log": job.log_path(line.name),
    }


def merged_cells(
    job: Job, known: dict[str, JsonObject], lines: list[QueueLine]
) -> list[JsonObject]:
    """Return one cell per queue line, in its order, keeping known state by name."""
    cells = []
    for line in lines:
        cell = new_cell(job, line)
        before = known.get(line.name)
        if before is not None:
            cell.update(
                {
                    key: value
                    for key, value in before.items()
                    # The queue file may have been edited; recorded results stay.
                    if key not in ("cfg", "task", "epochs")
                }
            )
        cells.append(cell)
    return cells


def load_state(job: Job) -> JsonObject:
    """Return the merged content of ``state.json`` and the lanes.

    Files that are missing or (for an instant, on a full disk) half written are ignored.
    """
    found: JsonObject = {}
    # Attempts to read a state.json that is not valid: on a full disk it is overwritten in place,
    # which takes an instant.
    reads = 4
    for _ in range(reads):
        # A queue of 8 MiB has some 200,000 cells, each with 500 bytes of state.
        read = files.read_json(job.path("state.json"), 256 << 20)
        if read is not None:
            found = read
            break
        if not os.path.exists(job.path("state.json")):
            break
        time.sleep(0.005)
    cells = found.get("cells")
    if not isinstance(cells, list):
        found["cells"] = []
    else:
        found["cells"] = [
            cell for cell in cells if isinstance(cell, dict) and isinstance(cell.get("name"), str)
        ]
    found["cells"] = overlay_cells(found["cells"], found.get("at"), read_lanes(job))
    return found


def cells_by_name(state: JsonObject) -> dict[str, JsonObject]:
    """Return the cells of a state by their names."""
    return {cell["name"]: cell for cell in state.get("cells", [])}


def find_lock_owner(job: Job) -> str:
    """Return the owner of the queue's lock: ``runner``, ``seal`` or, if free, an empty string.

    A sealed queue runs nothing, and nothing can start. The owner writes its pid shortly after
    taking the lock, and the pid remains for a moment after it, so the file is read again if the
    process is gone. An owner that never writes, for example on a full disk, counts as a runner;
    only the first call waits for it.
    """
    path = job.path("runner.lock")
    until = None
    while files.is_locked(path):
        holder = files.lock_holder(path)
        pid = holder.get("pid")
        if isinstance(pid, int) and procstat.is_alive(pid, holder.get("ticks")):
            if holder.get("seal"):
                return "seal"
            return "runner"
        written = files.signature(path)
        now = time.monotonic()
        if until is None:
            until = now + TELLS_WITHIN
        if now >= until or _silent.get(path) == written:
            _silent[path] = written
            return "runner"
        time.sleep(0.01)
    return ""


def is_sealed(job: Job) -> bool:
    """Return whether the queue's lock is held by a seal."""
    return find_lock_owner(job) == "seal"


def is_runner_alive(job: Job) -> bool:
    """Return whether a runner holds the queue's lock."""
    return find_lock_owner(job) == "runner"


def code_version(folder: str, edits: bool = False) -> str | None:
    """Return the version of the code in a directory: pushed, or the commit of a git checkout.

    Both are a name, a hyphen and 12 hexadecimal digits. None = neither.

    Args:
        folder: The directory.
        edits: Also compare the files with that version, which reads all of them. If some were
            edited, ``+edits-`` and 12 digits follow, the same for the same edits.
    """
    parts = folder.split(os.sep)
    for end in range(len(parts), 0, -1):
        # A number follows if the version was edited before it was pushed again.
        pushed = re.fullmatch(r"(.+-[0-9a-f]{12})(?:\.\d+)?", parts[end - 1])
        if pushed and edits:
            return pushed[1] + _hash_edits(os.sep.join(parts[:end]))
        if pushed:
            return pushed[1]
    found = _find_checkout(folder, int(time.monotonic() / 30.0))
    if found is None:
        return None
    top, git_folder, commit = found
    version = f"{os.path.basename(top)}-{commit[:12]}"
    if edits:
        version += _hash_edits(top, git_folder, commit)
    return version


def _hash_edits(top: str, git_folder: str = "", commit: str = "") -> str:
    # Late: only a check of a queue needs them.
    from rgt_box.commands import restorable_files
    from rgt_box.push import version_files

    if git_folder:
        paths = restorable_files.list_edits(top, git_folder, _common_folder(git_folder), commit)
    else:
        paths = version_files.list_edits(top)
    if not paths:
        return ""
    return "+edits-" + version_files.hash_files(top, paths)[:12]


@lru_cache(maxsize=64)
def _find_checkout(folder: str, _: int) -> tuple[str, str, str] | None:
    """Return top, git directory and commit of a checkout; read again when the second number changes."""
    above = os.path.realpath(folder)
    while above != os.path.dirname(above):
        git_folder = os.path.join(above, ".git")
        # A linked work tree or a submodule has a file that names it.
        text = (files.read_file(git_folder, 1 << 16) or b"").decode("utf-8", "surrogateescape")
        if text.startswith("gitdir: "):
            git_folder = os.path.join(above, text[len("gitdir: ") :].rstrip("\n"))
        commit = _checked_out_commit(git_folder)
        if commit:
            return above, git_folder, commit
        above = os.path.dirname(above)
    return None


def _common_folder(git_folder: str) -> str:
    """Return the directory of branches and objects, which linked work trees share."""
    text = files.read_file(os.path.join(git_folder, "commondir"), 1 << 16) or b"."
    return os.path.join(git_folder, text.decode("utf-8", "surrogateescape").rstrip("\n"))


def _checked_out_commit(folder: str) -> str:
    """Return the commit of a ``.git`` directory; empty without one."""

    def read_words(*names: str) -> list[str]:
        text = files.read_file(os.path.join(*names), 1 << 20) or b""
        return text.decode("utf-8", "replace").split()

    words = read_words(folder, "HEAD")
    if words[:1] == ["ref:"] and len(words) == 2 and words[1].startswith("refs/"):
        common = _common_folder(folder)
        packed = read_words(common, "packed-refs")
        known = dict(zip(packed[1:], packed))
        words = read_words(common, words[1]) or [known.get(words[1], "")]
    if words and re.fullmatch(r"[0-9a-f]{40,64}", words[0]):
        return words[0]
    return ""


def queue_frame(job: Job, path: str, edits: bool = False) -> JsonObject:
    """Return the ``queue`` frame for a reader that is not the runner.

    A cell that is recorded as running while no runner has the lock is shown as interrupted.

    Args:
        job: The job.
        path: The client's name for the job.
        edits: See `code_version`.
    """
    lines, problems = job.read_lines()
    # Twice: a runner that ends between the two reads writes its final state before releasing the
    # lock.
    for _ in range(2):
        state = load_state(job)
        alive = is_runner_alive(job)
        # A queue file that cannot be read now says nothing: its known cells stay.
        cells = [cell for cell in state["cells"] if "state" in cell]
        if lines or not problems:
            cells = merged_cells(job, cells_by_name(state), lines)
        at_work = {name for name in lane_names(job) if is_lane_alive(job, name)}
        left = [
            cell for cell in cells if cell["state"] == "running" and cell["name"] not in at_work
        ]
        if alive or not left:
            break
    else:
        for cell in left:
            cell.update(
                state="interrupted", reason="the runner has ended; launch it again to continue"
            )
    shown = [jsonline.drop_empty({key: cell.get(key) for key in CELL_FIELDS}) for cell in cells]
    problems = job.problems + problems
    return jsonline.drop_empty(
        {
            "t": "queue",
            "path": path,
            "at": round(time.time(), 3),
            "cells": shown,
            "runner_pid": state.get("runner_pid") if alive else None,
            "runner_alive": alive or bool(at_work),
            "done": bool(state.get("done")) and is_over(cells),
            "error": "; ".join(problems) or state.get("error"),
            "code": code_version(job.workdir, edits),
            "same_command": (files.read_json(job.path("job.json"), 1 << 20) or {}).get(
                "same_command"
            ),
        }
    )


def shortened(frame: JsonObject, most: int) -> JsonObject:
    """Return a ``queue`` frame of at most `most` bytes, without optional fields of its cells.

    Cells are never left out: a partial queue might look done. A frame that is still too long has no
    cells, and an error.
    """
    keep = (
        "name",
        "cfg",
        "task",
        "epochs",
        "state",
        "attempts",
        "exit_code",
        "signal",
        "durable",
        "best",
    )
    for less in (("durable_path", "told"), ("durable_path", "told", "out", "log"), None):
        cells = []
        for cell in frame["cells"]:
            if less is None:
                kept = {key: value for key, value in cell.items() if key in keep}
            else:
                kept = {key: value for key, value in cell.items() if key not in less}
            cells.append(kept)
        found = dict(frame, cells=cells)
        if len(jsonline.dumps(found)) < most:
            return found
    error = "%d cells are too many to report at once: split the queue" % len(frame["cells"])
    return dict(frame, cells=[], done=False, error=error)


def is_over(cells: list[JsonObject]) -> bool:
    """Return whether every cell is done or failed."""
    return all(cell["state"] in ("done", "failed") for cell in cells)


def padded_json(state: JsonObject) -> bytes:
    """Return the state as JSON, padded with spaces to full blocks with spare room."""
    data = jsonline.dumps(state)
    size = (len(data) + BLOCK // 4 + BLOCK - 1) // BLOCK * BLOCK
    # Spaces at the end are valid JSON.
    return data + b" " * (size - len(data) - 1) + b"\n"


def store_state(path: str, state: JsonObject) -> str | None:
    """Replace ``state.json`` atomically, or in place when the disk has no room for a second copy.

    Returns:
        None, or why it could not be stored at all (the queue continues anyway).
    """
    data = padded_json(state)
    try:
        files.replace_file(path, data, sync=True, mode=0o644)
        return None
    except OSError as error:
        # Only a full disk is worth another try in place.
        if error.errno not in FULL:
            return f"state.json: {error.strerror}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"state.json: {error.strerror}"
    try:
        size = os.fstat(fd).st_size
        grows = max(0, len(data) - size)
        # The room first, as spaces after the old state: without any, that stays readable.
        if os.pwrite(fd, b" " * grows, size) < grows:
            os.ftruncate(fd, size)
            return f"state.json: {os.strerror(errno.ENOSPC)}"
        # In place, within blocks that the file already has: this works on a full disk. As long as
        # the file, so that no end of the old state follows the new one.
        os.pwrite(fd, data.ljust(size), 0)
        os.fsync(fd)
        return None
    except OSError as error:
        return f"state.json: {error.strerror}"
    finally:
        os.close(fd)


class QueueJournal:
    """The state of one queue and its markers.

    Args:
        job: The job.
        only: Name of the cell, if this is the journal of its lane; None for the whole queue.

    Attributes:
        state: The ``queue`` frame, plus the runner's own fields.
        lines: The cells' lines at the last `reread_queue`.
    """

    def __init__(self, job: Job, only: str | None = None) -> None:
        self._job = job
        self._only = only
        if only is None:
            self._path = job.path("state.json")
        else:
            self._path = lane_state_path(job, only)
        self._unwritten: list[bytes] = []
        self.lines: list[QueueLine] = []
        if only is None:
            self.state = load_state(job)
        else:
            self.state = self._lane_state(only)
        self.state.update(runner_pid=os.getpid(), runner_alive=True, done=False, error=None)

    def _lane_state(self, name: str) -> JsonObject:
        """Return the state a lane continues with: its own fields, and its cell's newest record."""
        state = files.read_json(self._path) or {}
        known = cells_by_name(load_state(self._job))
        if name in known:
            state["cells"] = [known[name]]
        else:
            state["cells"] = []
        return state

    def reread_queue(self) -> list[JsonObject]:
        """Re-read the queue (lines may have been appended) and return its cells."""
        lines, problems = self._job.read_lines()
        self.state["error"] = "; ".join(problems) or None
        # A queue file that cannot be read now must not make the runner forget its cells.
        if lines or not problems:
            self.lines = [line for line in lines if self._only in (None, line.name)]
            self.state["cells"] = merged_cells(self._job, cells_by_name(self.state), self.lines)
        cells: list[JsonObject] = self.state["cells"]
        return cells

    def all_cells(self) -> list[JsonObject]:
        """Return all cells of the queue, including those of other lanes."""
        found: list[JsonObject]
        if self._only:
            found = load_state(self._job)["cells"]
        else:
            found = self.state["cells"]
        return found

    def cell_state(self, name: str) -> JsonObject:
        """Return the state of a cell, which the caller may change in place."""
        return cells_by_name(self.state)[name]

    def save_state(self) -> None:
        """Write the state; a failure is reported, and the queue continues."""
        self.state.update(
            t="queue", path=self._job.folder, at=clock_seconds(), runner_pid=os.getpid()
        )
        problem = store_state(self._path, self.state)
        if problem:
            print(problem, file=sys.stderr, flush=True)

    def print_line(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def write_marker(self, marker: str) -> None:
        """Print a marker and write it to master.log, at once or when the disk has space again."""
        self.print_line(marker)
        self._unwritten.append(marker.encode("utf-8", "replace") + b"\n")
        try:
            path = self._job.path("master.log")
            fd = files.open_appending(path, 0o644)
            try:
                while self._unwritten:
                    # After a line cut off by a full disk or a power loss, start on a new line. Do
                    # not truncate the file: other lanes write here, too.
                    line = b"\n" * files.is_torn(path) + self._unwritten[0]
                    # A short write leaves the marker in the list; the next attempt starts on a new
                    # line.
                    if os.write(fd, line) == len(line):
                        self._unwritten.pop(0)
            finally:
                os.close(fd)
        except OSError as error:
            print(f"master.log: {error.strerror}", file=sys.stderr, flush=True)


def clock_seconds() -> float:
    """Return the box's clock (epoch seconds), as a file written now would be stamped.

    Linux stamps files with the time of its last tick, up to 10 ms ago: by the exact clock, what a
    cell writes at once would be older than the cell.
    """
    linux_coarse_clock = 5  # CLOCK_REALTIME_COARSE in linux/time.h; Python has no name for it
    now = time.time()
    if sys.platform == "linux":
        now = time.clock_gettime(linux_coarse_clock)
    return math.floor(now * 1000) / 1000


STOP_REQUEST = "stop_request.json"
"""Written by ``rgt stop`` next to a queue: the runner then records that a user stopped it, not the
machine.
"""
BY_PERSON = "rgt stop"


def note_stop(job: Job, pid: int, ticks: int) -> None:
    """Record which runner is about to get SIGTERM.

    A full disk is not a reason to let the run continue.
    """
    with contextlib.suppress(OSError):
        files.write_json(job.path(STOP_REQUEST), {"pid": pid, "ticks": ticks})


def withdraw_stop(job: Job) -> None:
    """Remove the stop request, if there is one."""
    files.unlink_if_exists(job.path(STOP_REQUEST))


def is_stopped_by_person(job: Job) -> bool:
    """Return whether a user has asked this runner to stop.

    A request for an earlier runner is ignored.
    """
    pid = os.getpid()
    return files.read_json(job.path(STOP_REQUEST)) == {
        "pid": pid,
        "ticks": procstat.start_ticks(pid),
    }
