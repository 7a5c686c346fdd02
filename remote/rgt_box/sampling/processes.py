"""The training processes: found by their command line every few seconds, read on every tick."""

from __future__ import annotations

import os
import re
import time

from rgt_box import background, files, jsonline, masking, ownership, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Mapping

    from rgt_wire import JsonObject

    Rows = Callable[[Collection[int], Mapping[int, str]], dict[int, tuple[int, list[str], str]]]


SMOKE = "smoke.json"
"""File of a job with the process of its smoke command while it runs, and afterwards its result."""


class LiveCells:
    """The running cells and smoke commands of job directories.

    Files are reread only when changed.
    """

    def __init__(self, jobs: list[str]) -> None:
        self._folders = [os.path.abspath(os.path.expanduser(job)) for job in jobs]
        self._known: dict[str, tuple[Any, JsonObject]] = {}

    def read(self) -> dict[int, str]:
        """Return pid → name of each live cell."""
        found = {}
        for path in self._state_paths():
            state = self._read_state(path)
            pid = state.get("cell_pid")
            name = running_cell(state)
            if isinstance(pid, int) and name and procstat.is_alive(pid, state.get("cell_ticks")):
                found[pid] = name
        return found

    def read_smoke(self) -> dict[int, str]:
        """Return pid → label of each running smoke command.

        It is not a run, and its results do not count.
        """
        found = {}
        for folder in self._folders:
            process = self._read_state(os.path.join(folder, SMOKE)).get("running")
            if not isinstance(process, dict):
                continue
            pid = process.get("pid")
            if isinstance(pid, int) and procstat.is_alive(pid, process.get("ticks")):
                found[pid] = f"{os.path.basename(folder)} (smoke)"
        return found

    def _read_state(self, path: str) -> JsonObject:
        signature = files.signature(path)
        if path not in self._known or self._known[path][0] != signature:
            self._known[path] = (signature, files.read_json(path) or {})
        return self._known[path][1]

    def _state_paths(self) -> list[str]:
        """Return the state files of each queue and of its lanes."""
        found = []
        for folder in self._folders:
            found.append(os.path.join(folder, "state.json"))
            try:
                names = os.listdir(os.path.join(folder, "lanes"))
            except OSError:
                continue
            found += [
                os.path.join(folder, "lanes", name)
                for name in sorted(names)
                if name.endswith(".json")
            ]
        return found


def running_cell(state: JsonObject) -> str | None:
    """Return the name of the running cell in a ``state.json``."""
    cells = state.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("state") == "running":
            return str(cell.get("name"))
    return None


def cell_session(pid: int, cells: Collection[int]) -> int | None:
    """Return the session of the cell that a process belongs to: its own, or that of an ancestor.

    torchrun and others give each process that they start a session of its own.

    Args:
        pid: The process.
        cells: Sessions of cells.
    """
    if not cells:
        return None
    deepest = 64
    for _ in range(deepest):
        stat = procstat.read_stat(pid)
        if stat is None:
            return None
        if stat.session in cells:
            return stat.session
        pid = stat.ppid
    return None


WRAPPERS = frozenset(
    (
        "ash", "bash", "cat", "dash", "docker", "emacs", "env", "fish", "grep", "htop", "ionice",
        "ksh", "kubectl",
        "less", "more", "nano", "nice", "nohup", "nvidia-smi", "ps", "rg", "salloc", "sbatch",
        "screen", "script",
        "setsid", "sh", "srun", "ssh", "sshd", "su", "sudo", "tail", "tee", "time", "timeout",
        "tmux", "top", "vi",
        "vim", "watch", "zsh",
    )
)  # fmt: skip
"""Programs whose arguments may contain the pattern although they are not the training."""
HELPERS = re.compile(
    r"multiprocessing\.(resource_tracker|forkserver)|compile_worker|(^|/)(wandb-core|wandb-service"
    r"|tensorboard)\b"
)
"""Helper processes that a training starts, by their command lines."""

AGENT = re.compile(r"(^|/)(rgt-box-[0-9a-f]+\.pyz|rgt_box(/__main__\.py)?)$")


def is_helper(words: list[str]) -> bool:
    """Return whether a command line is a helper; a wrapper's arguments may only mention one."""
    return program_name(words) not in WRAPPERS and bool(HELPERS.search(" ".join(words)))


def program_name(words: list[str]) -> str:
    """Return the program's name: ``tmux`` for ``tmux: server``, ``bash`` for ``-bash``."""
    if words:
        return os.path.basename(words[0]).lstrip("-").split(":")[0]
    return ""


def is_training(words: list[str], pattern: re.Pattern[str]) -> bool:
    """Return whether a command line matches, and is neither a wrapper nor the agent itself."""
    if not words or not pattern.search(" ".join(words)):
        return False
    return program_name(words) not in WRAPPERS and not any(AGENT.search(word) for word in words[:5])


RESCAN = 5.0
"""Seconds between two scans of all of /proc; fewer if `background.poll_period` is shorter."""

YOUNG = 2
"""Scans during which a new pid is read again: a fork shows its parent's command line until it calls
exec.
"""

FULL = 12
"""Every this many scans all pids are read again: a script may `exec` the trainer after a long
download.
"""

MOST, MAX_CMD = 32, 300
"""Maximum number of processes and of characters per command line in a sample, which has to fit the
ring.
"""


def omp_threads(pid: int) -> int | None:
    """Return a process's ``OMP_NUM_THREADS``; None if it is not set or not readable."""
    for word in (procstat.read_whole("/proc/%d/environ" % pid, 1 << 20) or b"").split(b"\0"):
        if word.startswith(b"OMP_NUM_THREADS="):
            first = word[16:].split(b",")[0].strip()  # a list has one number per nesting level
            if first.isdigit() and len(first) < 7:
                return int(first)
            return None
    return None


def effective_uid(pid: int) -> int | None:
    """Return the effective uid of a process (proc_pid_status(5)).

    The owner of its directory may differ: it may be root.
    """
    for row in (procstat.read_bytes("/proc/%d/status" % pid, 4096) or b"").splitlines():
        if row.startswith(b"Uid:"):
            numbers = row.split()[1:]
            if len(numbers) > 1 and numbers[1].isdigit():
                return int(numbers[1])
            return None
    return None


class TrackedProcess:
    """A process that is read on every tick."""

    __slots__ = ("cmd", "fds", "omp", "run", "ticks", "uid", "words")

    def __init__(self, ticks: int, words: list[str], run: str | None) -> None:
        self.ticks = ticks
        self.words = words
        self.run = run
        self.cmd = " ".join(masking.mask_words(words))[:MAX_CMD]
        self.fds: int | None = None
        self.omp: int | None = None
        self.uid: int | None = None

    def read_details(self, pid: int, before: TrackedProcess | None = None) -> None:
        """Read what changes rarely.

        Constants are copied from `before` if it is the same process.
        """
        self.fds = count_fds(pid)
        if before is not None and before.ticks == self.ticks and before.uid is not None:
            self.omp = before.omp
            self.uid = before.uid
        elif self.uid is None:
            self.omp, self.uid = omp_threads(pid), effective_uid(pid)

    @property
    def is_wrapper(self) -> bool:
        """True for a shell or similar program that only waits for what it started."""
        return program_name(self.words) in WRAPPERS


class ProcSampler:
    """Tracks matching processes, those of the queues' running cells, and discovered trainings.

    Args:
        pattern: Regular expression for the command line.
        jobs: Job directories.
        found: Returns pid → (start, command line, run) of other trainings: `Finder.rows`.
        cells: Used instead of `LiveCells.read`.

    Raises:
        re.error: The pattern is malformed.
    """

    def __init__(
        self,
        pattern: str,
        jobs: list[str] | None = None,
        found: Rows | None = None,
        cells: Callable[[], dict[int, str]] | None = None,
    ) -> None:
        self._pattern = re.compile(pattern)
        self._found = found
        self._cells = cells or LiveCells(jobs or []).read
        self._boot = procstat.boot_time()
        self._tracked: dict[int, TrackedProcess] = {}
        self._judged: dict[int, int] = {}
        self._cpu: dict[tuple[int, int], tuple[float, int]] = {}
        self._scanned = 0.0
        self._every = background.poll_period(RESCAN)
        self._scans = 0
        self._users: dict[int, str] | None = None

    def read(self) -> list[JsonObject]:
        """Return the ``procs`` list of a sample."""
        now = time.monotonic()
        if not self._scanned or now - self._scanned >= min(RESCAN, self._every):
            self._scan_processes()
            self._scanned = now
        stats = {pid: procstat.read_stat(pid) for pid in self._tracked}
        alive = {
            pid: stat
            for pid, stat in stats.items()
            # Another start time: the PID was given to another process.
            if stat is not None and stat.start == self._tracked[pid].ticks
        }
        self._tracked = {pid: kept for pid, kept in self._tracked.items() if pid in alive}
        # A wrapper is listed only while the process that it waits for cannot be found.
        carried = {kept.run for kept in self._tracked.values() if kept.run and not kept.is_wrapper}
        found = []
        cpu = {}
        forked: dict[int, JsonObject] = {}
        for pid, stat in alive.items():
            kept = self._tracked[pid]
            parent = self._tracked.get(stat.ppid)
            if parent is not None and parent.words == kept.words:
                _add_worker(forked.setdefault(self._forked_by(stat, alive), new_workers()), stat)
                continue  # a data loader worker: forked, never exec'ed
            if kept.is_wrapper and kept.run in carried:
                continue  # the process it waits for is listed
            cpu[pid, kept.ticks] = (now, stat.cpu)
            found.append(self._describe_process(stat, kept, now, self._cpu.get((pid, kept.ticks))))
        self._cpu = cpu
        for proc in found:
            if proc["pid"] in forked:
                proc["workers"] = forked[proc["pid"]]
        return found[:MOST]

    def _forked_by(self, stat: procstat.ProcessStat, alive: dict[int, procstat.ProcessStat]) -> int:
        """Return the main process of a worker, through other workers."""
        words = self._tracked[stat.pid].words
        parent = stat.ppid
        while parent in alive:
            above = self._tracked.get(alive[parent].ppid)
            if above is None or above.words != words or alive[parent].ppid not in alive:
                break
            parent = alive[parent].ppid
        return parent

    def _user_name(self, uid: int | None) -> str | None:
        if uid is None:
            return None
        if self._users is None or (uid not in self._users and self._scans % FULL == 0):
            self._users = ownership.user_names()
        return self._users.get(uid, str(uid))

    def _describe_process(
        self,
        stat: procstat.ProcessStat,
        kept: TrackedProcess,
        now: float,
        before: tuple[float, int] | None,
    ) -> JsonObject:
        started = self._boot + stat.start / procstat.CLOCK_TICKS
        busy = None
        if before is not None and now > before[0]:
            busy = round(
                (stat.cpu - before[1]) / procstat.CLOCK_TICKS / (now - before[0]) * 100.0, 1
            )
        return jsonline.drop_empty(
            {
                "pid": stat.pid,
                "started": round(started, 2),
                "cmd": kept.cmd,
                "rss": stat.rss,
                "threads": stat.threads,
                "state": stat.state,
                "cpu_pct": busy,
                "age_s": round(max(0.0, time.time() - started), 1),
                "fds": kept.fds,
                "run": kept.run,
                "ppid": stat.ppid,
                "user": self._user_name(kept.uid),
                "omp": kept.omp,
            }
        )

    def _scan_processes(self) -> None:
        try:
            pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError:
            return
        self._scans += 1
        all_again = self._scans % FULL == 0
        # Otherwise it would grow with every process that ever ran.
        self._judged = {pid: scans for pid, scans in self._judged.items() if pid in pids}
        # The pattern is among our own arguments.
        pids.discard(os.getpid())
        cells = self._cells()
        if self._found is not None:
            found = self._found(pids, cells)
        else:
            found = {}
        for pid in pids:
            scans = self._judged.get(pid, 0)
            # Reading every command line of a large host at each scan would cost more than the
            # sample.
            if scans > YOUNG and pid not in self._tracked and not all_again:
                continue
            self._judged[pid] = scans + 1
            judged = self._track_if_training(pid, cells)
            if judged is not None:
                judged.read_details(pid, self._tracked.get(pid))
                self._tracked[pid] = judged
            elif pid not in found:
                self._tracked.pop(pid, None)
        for pid, (ticks, words, run) in found.items():
            known = self._tracked.get(pid)
            if known is None or (known.ticks, known.words, known.run) != (ticks, words, run):
                known = self._tracked[pid] = TrackedProcess(ticks, words, run)
            known.read_details(pid)

    def _track_if_training(self, pid: int, cells: dict[int, str]) -> TrackedProcess | None:
        words = procstat.read_cmdline(pid)
        known = self._tracked.get(pid)
        if known is not None and known.ticks != procstat.start_ticks(pid):
            known = None  # the number was given to another process
        # A process left by a cell belongs to its run until it ends, even after the cell has ended.
        if known is not None:
            run = known.run
        else:
            run = None
        if cells and words and run is None:
            run = cells.get(cell_session(pid, cells) or 0)
        if not is_training(words, self._pattern) and (run is None or is_helper(words)):
            return None
        if known is not None and (known.words, known.run) == (words, run):
            return known
        ticks = procstat.start_ticks(pid)
        if ticks is None:
            return None
        return TrackedProcess(ticks, words, run)


def new_workers() -> JsonObject:
    """Return an empty worker count."""
    return {"count": 0, "threads": 0, "states": {}}


def _add_worker(workers: JsonObject, stat: procstat.ProcessStat) -> None:
    workers["count"] += 1
    workers["threads"] += stat.threads
    workers["states"][stat.state] = workers["states"].get(stat.state, 0) + 1


def count_fds(pid: int) -> int | None:
    """Return how many files a process has open; None if it belongs to another user.

    Since Linux 6.2 the size of the directory is the count; before, it is 0 and the entries must be
    counted.
    """
    folder = "/proc/%d/fd" % pid
    try:
        return os.stat(folder).st_size or len(os.listdir(folder))
    except OSError:
        return None
