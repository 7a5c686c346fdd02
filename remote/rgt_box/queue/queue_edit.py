"""Edit a queue that is in use: lines are appended or commented out, nothing else is changed."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.queue import queue_file, queue_state
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

LOCK = "queue.lock"
MOST_BYTES = 8 << 20
"""Of a queue file, some 100,000 cells: the runner reads no larger one."""


class NotEdited(Exception):
    """The queue was left unchanged; the message says why."""


def add_lines(job: Job, data: bytes) -> JsonObject:
    """Append lines, all of them or none; cells that the queue already has are skipped.

    Args:
        job: The job.
        data: The lines as in the queue file; they may end in comments.

    Returns:
        ``added`` and ``there``, names of cells.

    Raises:
        NotEdited: A line is not a cell, its name is used by another cell, or the file would become
            too large.
        OSError: It cannot be written.
    """
    if len(data) > MOST_BYTES:  # the rest was not read, and its last line may be half of one
        raise NotEdited(
            f"more than {MOST_BYTES >> 20} MiB of lines; nothing was added: use several jobs"
        )
    rows = [row for row in data.replace(b"\r\n", b"\n").split(b"\n") if row.strip()]
    wanted, problems = queue_file.parse_queue(b"\n".join(rows), "line")
    if problems or not wanted:
        raise NotEdited("; ".join(problems) or "there is no line to add")
    held = _acquire_edit_lock(job)
    try:
        present = {line.name: line for line in job.read_all_lines()[0]}
        path = job.path("queue.txt")
        fresh: list[bytes] = []
        there: list[str] = []
        for line in wanted:
            known = present.get(line.name)
            if known is None:
                fresh.append(rows[line.number - 1])
            elif (known.cfg, known.task, job.epochs_of(known)) == (
                line.cfg,
                line.task,
                job.epochs_of(line),
            ):
                there.append(line.name)
            else:
                raise NotEdited(
                    "%s: the name %r is taken by line %d; rename the config: both would write to "
                    "the same directory" % (path, line.name, known.number)
                )
        if fresh:
            _append_lines(path, fresh)
    finally:
        held.release()
    return {"added": [line.name for line in wanted if line.name not in there], "there": there}


def _append_lines(path: str, rows: list[bytes]) -> None:
    """Append with one write: a concurrent reader sees either none or all of the lines."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        glue = b""
        if size and os.pread(fd, 1, size - 1) != b"\n":
            glue = b"\n"
        added = glue + b"\n".join(rows) + b"\n"
        if size + len(added) > MOST_BYTES:
            raise NotEdited(
                f"{path} would become larger than {MOST_BYTES >> 20} MiB, which no runner reads; "
                "nothing was added: put these cells into another job"
            )
        try:
            files.write_all(fd, added)
        except OSError:
            os.ftruncate(fd, size)  # even half a line could be read as a cell
            raise
        os.fsync(fd)
    finally:
        os.close(fd)


def comment_out_lines(job: Job, names: list[str], why: str) -> JsonObject:
    """Comment out the lines of cells; a cell that is running or done keeps its line.

    Returns:
        ``out``, ``kept`` (with the reason) and ``absent``, names of cells.

    Raises:
        OSError: It cannot be written.
    """
    held = _acquire_edit_lock(job)
    try:
        path = job.path("queue.txt")
        data = files.read_existing(path) or b""
        rows = data.split(b"\n")
        # The first line of a name is the one that runs; its twins are ignored anyway.
        lines = {line.name: line for line in job.read_all_lines()[0] if line.twin is None}
        state = {cell["name"]: cell for cell in queue_state.queue_frame(job, job.folder)["cells"]}
        out: list[str] = []
        kept: dict[str, str] = {}
        for name in names:
            line = lines.get(name)
            if line is None:
                continue
            how = state.get(name, {}).get("state")
            if how in ("running", "done"):
                kept[name] = f"it is {how}"
                continue
            mark = b"# %s: " % why.encode("utf-8", "replace").replace(b"\n", b" ")
            rows[line.number - 1] = mark + rows[line.number - 1]
            out.append(name)
        if out:
            # A rename: the running queue must never read a half-edited file.
            files.replace_file(path, b"\n".join(rows), sync=True, mode=0o644)
    finally:
        held.release()
    return {"out": out, "kept": kept, "absent": [name for name in names if name not in lines]}


def _acquire_edit_lock(job: Job) -> files.FileLock:
    held = files.FileLock(job.path(LOCK))
    if not held.acquire(10.0):
        raise NotEdited(f"{job.path('queue.txt')} is being edited by another process")
    return held


def mark_for_rerun(job: Job, names: list[str]) -> JsonObject:
    """Make done or failed cells run again at the next launch, because their copies were lost.

    Returns:
        ``again`` and ``absent``, names of cells.

    Raises:
        NotEdited: A runner is active and would overwrite the change.
        OSError: It cannot be written.
    """
    # The runner's own lock: it keeps the state in memory and would overwrite ours.
    held = files.FileLock(job.path("runner.lock"))
    if not held.acquire(1.0):
        raise NotEdited(f"a runner is active on {job.folder}, or it is sealed; nothing was changed")
    try:
        state = queue_state.load_state(job)
        known = queue_state.cells_by_name(state)
        found = [name for name in names if name in known]
        for name in found:
            known[name].update(
                state="interrupted",
                durable="pending",
                since=None,
                reason="its result was lost: it will run again",
            )
        if found:
            for name in found:
                files.unlink_if_exists(queue_state.lane_state_path(job, name))
            state.update(done=False, runner_alive=False, runner_pid=None)
            problem = queue_state.store_state(job.path("state.json"), state)
            if problem:
                raise NotEdited(problem)
    finally:
        held.release()
    return {"again": found, "absent": [name for name in names if name not in known]}
