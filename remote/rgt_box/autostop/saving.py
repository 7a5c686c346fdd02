"""Finds which running work is known to save on SIGTERM.

Known are our trainer, runs with our callbacks, and queue jobs that declare it. Any other process
counts as not saving, because SIGTERM could cost hours of work, until the user accepts that.
"""

from __future__ import annotations

import os
import re
import signal

from rgt_box import files, ownership, procstat
from rgt_box.autostop import idle_clock
from rgt_box.discovery import found_run
from rgt_box.queue import job_making, queue_file, queue_state
from rgt_box.recorder import state_files
from rgt_box.sampling import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    class SavingRun(NamedTuple):
        """A process or queue cell that is working or holds memory that a stop would lose."""

        name: str
        pid: int
        ticks: int
        saves: bool
        """It is known to save on SIGTERM and then exit."""
        cell: bool
        """It is a cell of a queue, whose runner forwards SIGTERM to it."""
        folders: "tuple[str, ...]"
        """Directories it writes to."""
else:
    from collections import namedtuple

    SavingRun = namedtuple("SavingRun", "name pid ticks saves cell folders")

TRAINER = re.compile(r"(^|/)(rgt_train(/__main__\.py)?|rgt-train-[0-9a-f]+\.pyz)$")
"""Matches the program in our trainer's command line (SIGTERM saves after the step, see
docs/trainer.md)."""
SIGTERM_BIT = 1 << 14


def list_saving_runs(
    sample: Mapping[str, Any], signs: Mapping[str, Any], plan: Mapping[str, Any]
) -> list[SavingRun]:
    """Return cells, training runs, and processes that are busy or hold memory, each once.

    Idle processes accepted at arming are left out: losing their memory is fine.
    """
    cells = running_cells(list(plan.get("jobs") or []))
    known_runs = found_runs()
    accepted = {(pid, ticks) for pid, ticks in plan.get("accepted") or []}
    rows: dict[str, SavingRun] = {}
    for row in signs.get("processes") or []:
        # A cell leads a session of its own, so its session ID finds all of its descendants.
        name = row["run"]
        cell = cells.get(processes.cell_session(row["pid"], cells) or 0)
        if cell is not None:
            name = cell[0]
        holds = row["vram"] or row["rss"] >= (1 << 30)
        works = idle_clock.cpu_demand_pct(row) >= idle_clock.OTHER_PCT
        if not (name or cell or holds or works) or (row["pid"], row["ticks"]) in accepted:
            continue
        name = name or command_label(row["cmd"])
        # The ranks and loader workers of one run have the same name.
        if name in rows:
            continue
        known = known_runs.get(name)
        pid, ticks = (known.pid, known.ticks) if known is not None else (row["pid"], row["ticks"])
        folders = tuple(
            [*cell[2]]
            if cell is not None
            else [*known.dirs, *map(os.path.dirname, known.files)]
            if known
            else []
        )
        saves = (cell is not None and cell[1]) or is_ours(pid, folders)
        rows[name] = SavingRun(name, pid, ticks, saves, cell is not None, folders)
    return list(rows.values())


def command_label(cmd: str) -> str:
    """Return a short label of a command line: the program and its first non-option argument."""
    words = cmd.split()
    program = "?"
    if words:
        program = os.path.basename(words[0])
    rest = [os.path.basename(word) for word in words[1:] if not word.startswith("-")]
    return " ".join([program, *rest[:1]])[:80]


def is_ours(pid: int, folders: tuple[str, ...] = ()) -> bool:
    """Return whether a process is our trainer, or uses our callbacks and catches SIGTERM."""
    words = procstat.read_cmdline(pid)
    module = any(word == "-m" and TRAINER.search(after) for word, after in zip(words, words[1:]))  # noqa: RUF007
    if module or any(
        # Only the program's place in the command line: a later word may name our trainer by chance.
        TRAINER.search(word)
        for word in words[1:4]
        if word.startswith("/") or word.endswith(".pyz")
    ):
        return True
    started = procstat.boot_time() + (procstat.start_ticks(pid) or 0) / procstat.CLOCK_TICKS
    for folder in folders:
        run = files.read_json(os.path.join(folder, "run.json"), 1 << 20) or {}
        last = run.get("last")
        at = None
        if isinstance(last, dict):
            at = last.get("time")
        # run.json of an earlier process proves nothing about this one. Two seconds: the start time
        # is computed from the boot time, which follows clock adjustments.
        if isinstance(at, (int, float)) and at >= started - 2.0:
            return catches_sigterm(pid)
    return False


def catches_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM (``SigCgt`` of proc(5))."""
    status = procstat.read_bytes("/proc/%d/status" % pid, 8192) or b""
    caught = re.search(rb"^SigCgt:\s*([0-9a-f]+)", status, re.M)
    return bool(caught and int(caught.group(1), 16) & SIGTERM_BIT)


def running_cells(jobs: list[str]) -> dict[int, tuple[str, bool, list[str]]]:
    """Return pid of a running cell → (name, whether it saves on SIGTERM, output directories)."""
    found = {}
    for folder in jobs:
        job = queue_file.Job(folder)
        for pid, name in processes.LiveCells([folder]).read().items():
            own = job.settings["command"] == queue_file.COMMAND
            said = job.settings["on_sigterm"] == queue_file.ON_SIGTERM
            out = job.run_folder(name)
            if out:
                folders = [out]
            else:
                folders = []
            # The runner passes SIGTERM on to this process.
            saves = own or said or is_ours(pid, tuple(folders))
            found[pid] = (name, saves, folders)
    return found


def found_runs() -> dict[str, found_run.FoundRun]:
    """Return name → training run that the recorder has found and that has not ended."""
    from rgt_box import place

    runs = [found_run.load_run(raw) for raw in state_files.read_found(place.state_dir())]
    return {run.name: run for run in runs if run is not None and run.ended is None}


def runner_processes(jobs: list[str]) -> list[tuple[int, int]]:
    """Return (pid, start in ticks) of running queue runners and lanes.

    They forward a signal to their cells and exit.
    """
    found = []
    for folder in jobs:
        job = queue_file.Job(folder)
        if queue_state.is_runner_alive(job):
            paths = [job.path("runner.lock")]
        else:
            paths = []
        names = [
            name for name in queue_state.lane_names(job) if queue_state.is_lane_alive(job, name)
        ]
        for path in [*paths, *(queue_state.lane_lock_path(job, name) for name in names)]:
            holder: Mapping[str, Any] = files.lock_holder(path)
            pid = holder.get("pid")
            ticks = holder.get("ticks")
            known = (
                isinstance(pid, int) and isinstance(ticks, int) and procstat.is_alive(pid, ticks)
            )
            if known and ownership.is_own_process(pid or 0):
                found.append((pid or 0, ticks or 0))
    return found


def ask_runs_to_save(jobs: list[str]) -> tuple[list[str], list[str]]:
    """Send SIGTERM to every queue and training run that is known to save on it.

    Returns:
        Names of the runs that were asked, and of the runs that were left alone, as SIGTERM is not
        known to make them save.
    """
    asked = []
    unasked = []
    known = [*jobs, *state_files.known_launched_jobs(), *job_making.job_folders()]
    for folder in dict.fromkeys(map(os.path.abspath, known)):
        cells = running_cells([folder]).values()
        names = [cell[0] for cell in cells]
        # The runner forwards the signal to every cell, so a single one that does not save decides.
        if not all(cell[1] for cell in cells):
            unasked += names
            continue
        runners = runner_processes([folder])
        if [_send_sigterm(*runner) for runner in runners].count(True):
            asked += names or [os.path.basename(folder)]
    for run in found_runs().values():
        # Runs of a job were handled with their queue above.
        if run.job or not procstat.is_alive(run.pid, run.ticks):
            continue
        folders = (*run.dirs, *map(os.path.dirname, run.files))
        if is_ours(run.pid, folders) and _send_sigterm(run.pid, run.ticks):
            asked.append(run.name)
        else:
            unasked.append(run.name)
    return asked, unasked


def _send_sigterm(pid: int, ticks: int) -> bool:
    if not (procstat.is_alive(pid, ticks) and ownership.is_own_process(pid)):
        return False
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError:
        return False
    return True
