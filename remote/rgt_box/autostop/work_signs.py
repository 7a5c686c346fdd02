"""Signs of work that a sample lacks: CPU time of every process, queues, and new results.

It reads the whole process table with the same rules as the run finder, so it does not depend on a
connected viewer.
"""

from __future__ import annotations

import glob
import itertools
import os
import time

from rgt_box import background, masking, procstat
from rgt_box.autostop import progress_watch
from rgt_box.discovery import training_commands
from rgt_box.queue import detach, queue_command, queue_file, queue_state
from rgt_box.sampling import gpu
from rgt_box.sampling.processes import AGENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.autostop.idle_clock import ClockReading
    from rgt_box.sampling.sampler import BoxSampler

    class ChangedEntry(NamedTuple):
        """A file or directory with its change time and size."""

        path: str
        changed: int
        """ctime in nanoseconds."""
        size: int
        folder: bool
        """It is a directory to descend into."""

    class NewestChange(NamedTuple):
        """The newest change below some directories."""

        at: int
        """ctime in nanoseconds; 0 if nothing was found."""
        path: str
        mark: int
        """A hash that differs if any entry changed."""
        whole: bool
        """Every entry was read before the deadline."""
else:
    from collections import namedtuple

    ChangedEntry = namedtuple("ChangedEntry", "path changed size folder")
    NewestChange = namedtuple("NewestChange", "at path mark whole")

FILES_EACH = 4000
"""Result entries to stat per reading; the next reading continues with the rest."""
OWN_WORK = ("send", "cat", "mirror", "measure", "gpu-health", "manifest")
"""Agent verbs that do work the user asked for; all others only observe."""
FILES_WAIT, FILES_HANG = 0.5, 15.0
"""Seconds to wait for jobs and results per reading, and after which their previous values
expire."""


class WorkSigns:
    """Collects signs of work at each reading.

    Args:
        plan: ``jobs``, ``results``, ``pattern`` of the armed plan; ``cards`` as counted then.
        wait: Seconds to wait for the disks of jobs and results; keep it short if the caller also
            samples.
    """

    def __init__(self, plan: Mapping[str, Any], wait: float = FILES_WAIT) -> None:
        self._jobs = [str(path) for path in plan.get("jobs") or []]
        self._results = ResultWatch(self._jobs, [str(path) for path in plan.get("results") or []])
        self._files = background.Background(self._check_results, 0.0, max(wait, FILES_HANG))
        self._wait = wait
        self._written: list[str] = []
        self._cpu: dict[tuple[int, int], tuple[int, float]] = {}
        """Process → CPU time in ticks, and seconds spent waiting for a core."""
        self._looked: float | None = None
        self._typed: float | None = None
        self._open: tuple[float, dict[int, set[int]]] = (float("-inf"), {})
        self.failed: list[str] = []
        """Names of failed queue cells."""

    def read_signs(
        self, at: ClockReading, sample: Mapping[str, Any], sampler: BoxSampler
    ) -> JsonObject:
        """Return the signs that a sample lacks; see `idle_clock.judge`."""
        active: list[str] = []
        unknown: list[str] = []
        first = self._looked is None
        if first:
            # CPU time is a difference of two readings.
            unknown.append("only one reading so far")
        if self._looked is None:
            passed = 0.0
        else:
            passed = at.boot - self._looked
        self._looked = at.boot
        if sampler.failing:
            unknown.append(f"cannot be checked: {', '.join(sorted(sampler.failing))}")
        # Process 1 always exists; it is invisible only with hidepid (proc(5)).
        if procstat.read_stat(1) is None:
            unknown.append("the processes of other users are hidden")
        if sampler.gpu_source == "none" and has_cards():
            unknown.append("there is a GPU, and it cannot be read")
        cards = self._read_open_cards(at, sample)
        at_work, error = self._files.poll(self._wait)
        if at_work is None or error is not None:
            unknown.append("jobs and results cannot be checked: %s" % (error or "no answer yet"))
            at_work = [], [], self.failed, False
        runners, lanes, self.failed, slurm = at_work
        active += lanes
        typed = sample.get("input_at")
        if typed is not None and self._typed is not None and typed != self._typed:
            active.append("somebody typed at a terminal")
        self._typed = typed
        while self._written:
            active.append(f"a result was written: {self._written.pop()}")
        processes = self._processes(passed, sample, cards)
        # A container does not reveal which device file is which card. So one process with any card
        # open accounts for all of them: it already counts as holding memory.
        opened = any(row["vram"] for row in processes)
        named = {card.get("index"): opened for card in sample.get("gpus") or []}
        signs = {"active": active, "unknown": unknown, "processes": processes, "named": named}
        return dict(signs, slurm=slurm, runners=runners)

    def _check_results(self) -> tuple[list[JsonObject], list[str], list[str], bool]:
        """Return runners, busy lanes, failed cells, and whether a job uses Slurm; in a thread."""
        written = self._results.find_new_write()
        if written:
            self._written.append(written)
        slurm = any(os.path.exists(os.path.join(job, detach.RECORD)) for job in self._jobs)
        lanes = [
            f"{name} is running in a separate lane"
            for job in self._jobs
            for name in queue_command.busy_lanes(queue_file.Job(job))
        ]
        return progress_watch.list_runners(self._jobs), lanes, failed_cells(self._jobs), slurm

    def _read_open_cards(self, at: ClockReading, sample: Mapping[str, Any]) -> dict[int, set[int]]:
        """Return pid → cards it has open; {} if no card has memory in use."""
        if not any(
            int(card.get("vram_used") or 0) and not card.get("sim")
            for card in sample.get("gpus") or []
        ):
            return {}
        # Seconds between two scans of every process's file descriptors.
        cards_every = 60.0
        if at.boot - self._open[0] >= cards_every:
            self._open = at.boot, gpu.find_card_holders(gpu.device_prefix())
        return self._open[1]

    def _processes(
        self, passed: float, sample: Mapping[str, Any], cards: Mapping[int, set[int]]
    ) -> list[JsonObject]:
        runs = {}
        for proc in sample.get("procs") or []:
            runs[proc["pid"]] = str(proc.get("run") or proc.get("cmd") or "")
        listed = {}
        for card in sample.get("gpus") or []:
            for user in card.get("procs") or []:
                if user.get("mapped"):
                    listed[user["pid"]] = user.get("bytes")
        before = self._cpu
        self._cpu = {}
        boot = procstat.boot_time()
        found = []
        for pid in _other_pids():
            row = read_process(pid)
            if row is None:
                continue
            known = (pid, row["ticks"])
            self._cpu[known] = row["cpu"], row["waited"]
            if not row["counts"]:
                continue
            # A process that is new since the last reading has used all of its CPU time since then.
            cpu, waited = before.get(known, (0, 0.0) if before else self._cpu[known])
            share = waits = None
            if passed > 0:
                share = 100.0 * (row["cpu"] - cpu) / procstat.CLOCK_TICKS / passed
                waits = 100.0 * (row["waited"] - waited) / passed
            run = runs.get(pid) or row["run"]
            vram = pid in listed or (pid in cards and not row["looks_on"])
            row.update(
                started=round(boot + row["ticks"] / procstat.CLOCK_TICKS, 2),
                cpu_pct=share,
                waits_pct=waits,
                run=run,
                vram=vram,
                bytes=listed.get(pid) if vram else row["rss"],
                works=bool(run or vram or row["notebook"]),
                name=run or row["cmd"][:80],
            )
            found.append(row)
        return found


def _other_pids() -> list[int]:
    return [
        int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
    ]


def read_process(pid: int) -> JsonObject | None:
    """Return a process's ticks, cpu (including reaped children), rss, cmd, run and notebook flag.

    ``waited`` is the seconds for which its first thread was runnable but had no core. ``counts`` is
    False for processes that only observe. Kernel threads and exited processes return None.
    """
    text = procstat.read_bytes("/proc/%d/stat" % pid, 4096)
    try:
        stat = procstat.ProcessStat(pid, text or b"")
        # rindex: the command's name in parentheses may contain spaces and parentheses itself.
        after = (text or b"")[(text or b"").rindex(b")") + 2 :].split()
        # ``PF_KTHREAD`` of the kernel's include/linux/sched.h, in the flags of ``/proc/PID/stat``.
        # Checking for children of pid 2 is not enough: in a container, pid 2 can be any process.
        kernel_thread = 0x00200000
        reaped, kernels = int(after[13]) + int(after[14]), int(after[6]) & kernel_thread
    except (ValueError, IndexError):
        return None
    if stat.state in "ZX" or kernels:
        return None
    words = procstat.read_cmdline(pid, 4096)
    command = training_commands.parse_command(words)
    ours = next((at for at, word in enumerate(words[:5]) if AGENT.search(word)), None)
    verb = ""
    if ours is not None and len(words) > ours + 1:
        verb = words[ours + 1]
    # Children reaped by pid 1, sshd, tmux and the like are others' work, mostly short rgt calls.
    own_only = pid == 1 or command.kind == "border" or ours is not None
    cmd = " ".join(masking.mask_words(words))[:300]
    return {
        "pid": pid,
        "ticks": stat.start,
        "cpu": stat.cpu + (0 if own_only else reaped),
        "waited": _run_queue_wait(pid),
        "rss": stat.rss,
        "cmd": cmd or "pid %d" % pid,
        "run": cmd[:80] if command.why else "",
        "notebook": command.kind == "kernel",
        "looks_on": gpu.is_onlooker(words),
        "counts": ours is None or verb in OWN_WORK,
    }


def _run_queue_wait(pid: int) -> float:
    """Return the run-queue wait in seconds from ``/proc/PID/schedstat``; 0 if not available."""
    # The second field is the wait in nanoseconds (Documentation/scheduler/sched-stats.rst).
    words = (procstat.read_bytes("/proc/%d/schedstat" % pid, 256) or b"").split()
    if len(words) > 1 and words[1].isdigit():
        return int(words[1]) / 1e9
    return 0.0


def has_cards() -> bool:
    """Return whether the kernel lists an NVIDIA GPU, readable or not."""
    # /proc lists cards even if the driver library is missing in the container.
    return bool(procstat.nvidia_cards()) or bool(glob.glob(gpu.device_prefix() + "[0-9]*"))


def failed_cells(jobs: list[str]) -> list[str]:
    """Return the names of the failed cells."""
    found = []
    for folder in jobs:
        cells = queue_state.load_state(queue_file.Job(folder))["cells"]
        found += [str(cell["name"]) for cell in cells if cell.get("state") == "failed"]
    return found


class ResultWatch:
    """Watches directories of results, with a bounded number of files per reading.

    Args:
        jobs: Job directories; their outputs and durable copies are watched.
        patterns: Globs of results.
    """

    def __init__(self, jobs: list[str], patterns: list[str]) -> None:
        self._jobs = jobs
        self._patterns = patterns
        self._known: dict[str, int] | None = None
        """Directory → hash of its entries. None until the first full pass: only later changes are
        new."""
        self._now: dict[str, int] = {}
        self._left: list[str] = []

    def find_new_write(self, most: int = FILES_EACH) -> str:
        """Return a directory in which something was written since the last reading, or ""."""
        news = ""
        self._left = self._left or result_roots(self._jobs, self._patterns)
        while self._left and most > 0:
            top = self._left.pop()
            entries = _list_entries(top)
            most -= max(1, len(entries))
            # A network volume may list millions of files: a pass may take several readings.
            self._left += [entry.path for entry in entries if entry.folder and entry.path != top]
            self._now[top] = hash(tuple(entries))
            if self._known is not None and self._known.get(top) != self._now[top]:
                news = top
        if not self._left:
            self._known = self._now
            self._now = {}
        return news


def result_roots(jobs: list[str], patterns: list[str]) -> list[str]:
    """Return output, work and durable directories of the cells, and the matches of the globs."""
    # Imported here because it loads many modules; only armed boxes need it.
    from rgt_box.commands import work_folders

    found: list[str] = []
    for folder in jobs:
        job = queue_file.Job(folder)
        for cell in queue_state.load_state(job)["cells"]:
            found += [
                path
                for path in (cell.get("out"), cell.get("durable_path"))
                if isinstance(path, str)
            ]
        for line in job.read_lines()[0]:
            found += [
                path for path in (job.run_folder(line.name), job.durable_folder(line.name)) if path
            ]
        work = work_folders.find_job_folder(job.workdir)
        if work is not None and work[0] != os.path.realpath(
            job.folder
        ):  # the job's own files change without any work
            found.append(work[0])
    for pattern in patterns:
        found += glob.glob(os.path.expanduser(pattern))[:FILES_EACH]
    return list(dict.fromkeys(found))


def _list_entries(top: str) -> list[ChangedEntry]:
    """Return a path and its direct entries, at most `FILES_EACH` of them.

    Package directories are not descended into: next to a job's results they can hold a million
    files.
    """
    from rgt_box.commands import result_rules  # as above

    found = []
    try:
        seen = os.lstat(top)
        found.append(ChangedEntry(top, seen.st_ctime_ns, seen.st_size, False))
        with os.scandir(top) as inside:
            for entry in itertools.islice(inside, FILES_EACH):
                try:
                    seen, folder = (
                        entry.stat(follow_symlinks=False),
                        entry.is_dir(follow_symlinks=False),
                    )
                except OSError:
                    continue
                folder = folder and not result_rules.holds_packages(entry.path)
                found.append(ChangedEntry(entry.path, seen.st_ctime_ns, seen.st_size, folder))
    except OSError:
        pass  # it is a file, or was removed: its parent directory's ctime shows that
    return found


def newest_change(folders: list[str], deadline: float, until: float = float("inf")) -> NewestChange:
    """Return the newest change below some directories.

    Args:
        folders: Directories, or files.
        deadline: When to give up (monotonic clock).
        until: Ignore later ctimes (epoch seconds): they were made while the clock was wrong.
    """
    newest = 0
    path = ""
    mark = 0
    left = list(folders)
    while left:
        if time.monotonic() > deadline:
            return NewestChange(newest, path, mark, False)
        top = left.pop()
        for entry in _list_entries(top):
            # XOR does not depend on the order, which scandir does not guarantee.
            mark ^= hash(entry)
            if newest < entry.changed <= until * 1e9:
                newest = entry.changed
                path = entry.path
            if entry.folder and entry.path != top:
                left.append(entry.path)
    return NewestChange(newest, path, mark, True)
