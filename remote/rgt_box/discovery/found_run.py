"""A found run as stored in ``found.json``, and what it lives in: tmux, Slurm, a container, etc."""

from __future__ import annotations

import os
import re

from rgt_box import background, jsonline, ownership, procstat
from rgt_box.background import Background
from rgt_box.discovery import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.discovery.process_tree import ProcessNode

    class ProcessSession(NamedTuple):
        """What a process lives in: a tmux pane, Slurm job, container or the like."""

        kind: str
        """tmux, screen, slurm, container, service, nohup, detached, shell or unknown."""
        place: "str | None"
        """Pane ID, job ID, container, unit or terminal."""
        socket: "str | None" = None
        """Path of tmux's socket."""
        pane: "str | None" = None
        """A pane that may be queried: it belongs to this user's own tmux."""

    class TmuxPane(NamedTuple):
        """A tmux pane."""

        name: str
        """``SESSION:WINDOW.PANE``."""
        piped: bool
else:
    from collections import namedtuple

    ProcessSession = namedtuple("ProcessSession", "kind place socket pane", defaults=(None, None))
    TmuxPane = namedtuple("TmuxPane", "name piped")

LISTS = ("logs", "files", "dirs", "roots", "notes", "pids", "lives", "uses")
SOCKET_WAIT = 0.5
"""Seconds to wait for the check who owns a tmux socket."""
FIELDS = (
    "name", "key", "pid", "ticks", "started", "command", "why", "cwd", "user", "session", "place",
    "pane", "socket",
    "silent", "deleted", "seen", "ended", "exit_code", "outcome", "marks", "cache", "world",
    "world_before",
    "job", "cell", *LISTS,
)  # fmt: skip


class FoundRun:
    """A training run, alive or ended.

    Attributes:
        name: Its display name; stays the same after a restart.
        key: See `training_commands.key`.
        pid, ticks: PID and start ticks of its root process; together they identify the run.
        started: When the root process started, in epoch seconds.
        command: Its command line without secrets.
        why: Why it was recognised as training.
        cwd, user: None if they could not be read.
        session, place: What it lives in, see `ProcessSession`.
        pane, socket: Those of tmux.
        silent: Why it has no log, as text; "" if it has one.
        deleted: Log path → its name before it was deleted.
        logs, files, dirs: Logs, open metrics files, and directories its arguments name for output.
        roots: Directories that its environment names for output, which other trainings may share.
        notes: What could not be determined, as text.
        pids: Its processes, the root first.
        seen: When it was last seen alive.
        ended: When it was found to have exited; None while it is alive.
        lives: (start, end) of earlier starts of the same training, oldest first.
        exit_code: None if unknown: only the parent process learns it, but Slurm reports it for
            jobs.
        outcome: Slurm's state in which the job ended, such as TIMEOUT; None if unknown.
        uses, marks, cache: See `script_look.look`.
        world, world_before: Number of ranks, now and before the last restart; None if unknown.
        job, cell: The job directory and cell it belongs to, if no client names that job; otherwise
            "".
    """

    __slots__ = FIELDS

    def __init__(self, name: str, key: int, pid: int, ticks: int, started: float) -> None:
        self.name = name
        self.key = key
        self.pid = pid
        self.ticks = ticks
        self.started = started
        self.command = self.why = self.silent = self.job = self.cell = ""
        self.session = "unknown"
        self.cwd: str | None = None
        self.user: str | None = None
        self.place: str | None = None
        self.pane: str | None = None
        self.socket: str | None = None
        self.deleted: dict[str, str] = {}
        self.logs: list[str] = []
        self.files: list[str] = []
        self.dirs: list[str] = []
        self.roots: list[str] = []
        self.notes: list[str] = []
        self.pids: list[int] = [pid]
        self.lives: list[list[float]] = []
        self.seen = started
        self.ended: float | None = None
        self.exit_code: int | None = None
        self.outcome: str | None = None
        self.uses: list[str] = []
        self.marks: list[str] | None = None
        self.cache: str | None = None
        self.world: int | None = None
        self.world_before: int | None = None

    def copy_history(self, old: FoundRun) -> None:
        """Copy the history of the same training from before it was restarted."""
        most_lives = 20
        ended = old.ended
        if ended is None:
            ended = old.seen
        lives = [*old.lives, [old.started, ended]]
        # The oldest stays: files written since `first_start` are the training's own.
        self.lives = lives[:1] + lives[1:][1 - most_lives :]
        self.files = list(old.files)
        self.world_before = old.world or old.world_before

    def was_running_at(self, at: float, slack: float, late: float) -> bool:
        """Return whether it was running at a time, with `slack` seconds before and `late` after."""
        lives = self.lives + [[self.started, self.ended or float("inf")]]
        return any(start - slack <= at <= end + late for start, end in lives)

    @property
    def first_start(self) -> float:
        """When it was first started."""
        if self.lives:
            return self.lives[0][0]
        return self.started

    def written_paths(self) -> tuple[list[str], list[str]]:
        """Return the output directories, and the metrics and log files, that this box can read.

        Left out are the home directory and the working directory, which may hold any files; deleted
        logs, whose only name ``/proc/PID/fd/N`` may later refer to another file; and files in a
        container, see `container_paths`.
        """
        here = (os.path.expanduser("~"), self.cwd)
        dirs = [
            path
            for path in self.dirs
            # A home or working directory holds much that is not the run's.
            if not _is_of_process(path) and os.path.realpath(path) not in here
        ]
        return dirs, [path for path in [*self.files, *self.logs] if not _is_of_process(path)]

    def container_paths(self) -> list[str]:
        """Return its paths inside a container, which are valid only while that process lives."""
        return [path for path in [*self.dirs, *self.files, *self.logs] if _OTHER_ROOT.match(path)]

    def as_dict(self) -> JsonObject:
        """Return the run as a JSON object."""
        return jsonline.drop_empty({field: getattr(self, field) for field in FIELDS})


_OTHER_ROOT = re.compile(r"/proc/\d+/root/")


def _is_of_process(path: str) -> bool:
    return path.startswith("/proc/")


def load_run(raw: Any) -> FoundRun | None:
    """Return a run from ``found.json``; None if the entry is invalid."""
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    key, pid, ticks, started = (raw.get(field) for field in ("key", "pid", "ticks", "started"))
    if not (isinstance(key, int) and isinstance(pid, int) and isinstance(ticks, int)):
        return None
    run = FoundRun(
        raw["name"], key, pid, ticks, float(started) if isinstance(started, (int, float)) else 0.0
    )
    for field in FIELDS:
        have = getattr(run, field)
        value = raw.get(field)
        # The file may be of another version: a value of another type is left out.
        if value is not None and (
            have is None or isinstance(value, type(have)) or isinstance(have, float)
        ):
            setattr(run, field, value)
    return run


def describe_run(run: FoundRun) -> str:
    """Return a one-line description of a run for an event."""
    where = ""
    if run.cwd:
        where = f" in {run.cwd}"
    lives = run.session + (" " + run.place if run.place else "")
    text = "%s: pid %d (%s)%s: %s; found because %s" % (
        run.name,
        run.pid,
        lives,
        where,
        run.command,
        run.why,
    )
    return text + (f"; log {run.logs[0]}" if run.logs else "")


_PANE, _NUMBER = re.compile(r"%\d{1,9}"), re.compile(r"\d{1,18}")
_JOB = re.compile(r"/job_(\d+)")
_CONTAINER = re.compile(
    r"(?:docker|libpod|cri-containerd|crio|containerd|kubepods)[^\n]*?([0-9a-f]{64})"
)
_SERVICE = re.compile(r"/([\w@.\-\\:]+)\.service(?:/|$)")
_OWN_SERVICES = (
    "ssh",
    "sshd",
    "cron",
    "crond",
    "user@",
    "slurmd",
    "slurmstepd",
    "docker",
    "containerd",
)


def read_environment(pid: int) -> dict[str, str] | None:
    """Return the environment that a process was started with; None if not readable."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return procstat.split_environment(file.read(1 << 20))
    except OSError:
        return None


_OUTPUT_VARIABLE = re.compile(
    r"(?:.*_)?(?:results?|outputs?|(?:out|outputs?|results?|save|ckpts?|checkpoints?|logs?|exps?"
    r"|experiments?|work|runs?)_?(?:dir|path|root)s?)",
    re.I,
)
"""Names such as nnUNet_results, OUTPUT_DIR, RESULTS_DIR and SM_OUTPUT_DIR."""
_TOO_WIDE = re.compile(
    r"/+(?:[^/]*|home/[^/]*)/+$|/+(?:var|usr|etc|proc|sys|dev|run|lib|bin|sbin)/"
)
"""Directories that contain more than trainings write."""


def find_output_roots(pid: int) -> list[str]:
    """Return the directories that the environment of a process names for output."""
    inside = procstat.process_root_prefix(pid)
    found = []
    for name, value in (read_environment(pid) or {}).items():
        named = os.path.normpath(value)
        if not _OUTPUT_VARIABLE.fullmatch(name) or _TOO_WIDE.match(named + "/"):
            continue
        if named.startswith("/") and os.path.isdir(inside + named):
            found.append(inside + named)
    most_roots = 4
    return sorted(set(found))[:most_roots]


def find_session(pid: int, chain: list[list[str]]) -> ProcessSession:
    """Return what a process lives in: a tmux pane, Slurm job, container or the like.

    Args:
        pid: The root process of a run.
        chain: Command lines of its ancestors, nearest first.
    """
    own = read_environment(pid) or {}
    groups = (procstat.read_bytes("/proc/%d/cgroup" % pid, 8192) or b"").decode("utf-8", "replace")
    mine = (procstat.read_bytes("/proc/self/cgroup", 8192) or b"").decode("utf-8", "replace")
    above = [os.path.basename(words[0]).split(":")[0] if words else "" for words in chain]
    job = _JOB.search(groups)
    if "slurmstepd" in above or job:
        # The control group is set by Slurm's daemon; the process's environment may contain
        # anything.
        said = _NUMBER.fullmatch(own.get("SLURM_JOB_ID", ""))
        return ProcessSession("slurm", job.group(1) if job else said.group() if said else None)
    if "tmux" in above:
        return _in_tmux(pid, own)
    if "SCREEN" in above or "screen" in above:
        return ProcessSession("screen", own.get("STY"))
    container = _CONTAINER.search(groups)
    # In the same container as the agent, it lives in nothing else.
    if container and container.group(1) not in mine:
        return ProcessSession("container", container.group(1)[:12])
    service = _SERVICE.search(groups)
    if service and groups != mine and not service.group(1).startswith(_OWN_SERVICES):
        return ProcessSession("service", service.group(1))
    return _session_without_manager(pid)


def _in_tmux(pid: int, own: dict[str, str]) -> ProcessSession:
    """Return the pane of a process; another user's or a container's tmux is not queried."""
    found = _PANE.fullmatch(own.get("TMUX_PANE", ""))
    if found:
        pane = found.group()
    else:
        pane = None
    socket = own.get("TMUX", "").split(",")[0] or None
    if not ownership.is_own_process(pid) or procstat.process_root_prefix(pid):
        return ProcessSession("tmux", pane)
    if socket is not None:
        asking = Background(lambda: ownership.own_socket(socket), float("inf"), float("inf"))
        if asking.poll(SOCKET_WAIT)[0] is None:  # not ours, or in a directory that hangs
            return ProcessSession("tmux", pane)
    return ProcessSession("tmux", pane, socket, pane)


def _session_without_manager(pid: int) -> ProcessSession:
    text = procstat.read_bytes("/proc/%d/stat" % pid, 4096) or b""
    status = procstat.read_bytes("/proc/%d/status" % pid, 8192) or b""
    ignored = re.search(rb"^SigIgn:\s*([0-9a-f]+)", status, re.M)
    try:
        # After the last ")": a program's name may contain blanks and brackets (proc(5), tty_nr).
        terminal = int(text[text.rindex(b")") + 2 :].split()[4])
    except (ValueError, IndexError):
        return ProcessSession("unknown", None)
    # Bit of SIGHUP in a signal mask.
    hup = 1
    if ignored and int(ignored.group(1), 16) & hup:
        return ProcessSession("nohup", None)
    if terminal:
        return ProcessSession("shell", _terminal_name(terminal))
    return ProcessSession("detached", None)


def _terminal_name(number: int) -> str | None:
    """Return the name of a pseudo terminal (majors 136 to 143) by its device number."""
    major = os.major(number)
    minor = os.minor(number)
    # The majors of Unix98 pseudo terminals, 256 minors each (Linux, devices.txt).
    if 136 <= major <= 143:
        return "pts/%d" % (minor + 256 * (major - 136))
    return None


TIMEOUT, FIRST_ANSWER = 5.0, 0.5
"""Seconds to wait for an answer, and for the first one, so that a pane has its name from the
start."""

PANE_FORMAT = "#{pane_id} #{pane_pipe} #{session_name}:#{window_index}.#{pane_index}"


def query_tmux(socket: str | None, words: list[str], timeout: float) -> str:
    """Return the output of a tmux server; "" if the socket is not this user's own or tmux fails.

    Args:
        socket: None for the default socket, whose owner tmux itself checks.
        words: The tmux command.
        timeout: Seconds; see `background.run_program` for what it raises.
    """
    if socket is not None:
        socket = ownership.own_socket(socket)
        if socket is None:
            return ""
    return background.run_program(["tmux", *(["-S", socket] if socket else []), *words], timeout)


def parse_panes(text: str) -> dict[str, TmuxPane]:
    """Return pane ID → pane from the output of ``list-panes`` with `PANE_FORMAT`."""
    found = {}
    for line in text.splitlines():
        words = line.split(" ", 2)
        if len(words) == 3 and words[0].startswith("%"):
            found[words[0]] = TmuxPane(words[2][:200], words[1] == "1")
    return found


class TmuxPanes:
    """The panes of the tmux servers in which runs live.

    Args:
        seconds: Seconds between two queries, which run in a thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._servers: dict[str | None, Background] = {}

    def add_pane(
        self, run: FoundRun, nodes: Mapping[int, ProcessNode], below: Mapping[int, list[int]]
    ) -> None:
        """Set a run's pane name, and add the file that the pane is piped into to its logs."""
        if run.pane is None or background.which("tmux") is None:
            return
        asked = run.socket in self._servers
        if not asked:
            socket = run.socket
            words = ["list-panes", "-a", "-F", PANE_FORMAT]
            self._servers[socket] = Background(
                lambda: parse_panes(query_tmux(socket, words, TIMEOUT)), self._seconds, TIMEOUT * 2
            )
        panes, _ = self._servers[run.socket].poll(0.0 if asked else FIRST_ANSWER)
        mine = (panes or {}).get(run.pane)
        if mine is None:
            return
        run.place = mine.name
        if mine.piped:
            files = _piped_files(run, nodes, below)
            # Only tmux knows which of several pipes belongs to this pane.
            if sum(pane.piped for pane in panes.values()) == 1 and len(files) == 1:
                run.logs = files + [path for path in run.logs if path not in files]
                run.silent = ""


def _piped_files(
    run: FoundRun, nodes: Mapping[int, ProcessNode], below: Mapping[int, list[int]]
) -> list[str]:
    """Return files written by tmux's pipe programs, which are those without a terminal."""
    at = run.pid
    while at in nodes and nodes[at].kind != "border":
        at = nodes[at].ppid
    found: list[str] = []
    queue = list(below.get(at, []))
    for pid in queue:
        files = process_tree.read_open_files(pid) or []
        # It lives in a pane itself, so it is not the program at the end of tmux's pipe.
        if any(item.target.startswith("/dev/pts/") for item in files):
            continue
        queue += below.get(pid, [])[: max(0, 64 - len(queue))]
        found += [
            item.target
            for item in files
            if item.fd > 0 and item.writes and process_tree.is_file(item)
        ]
    return list(dict.fromkeys(found))


SLURM_PERIOD, SLURM_TIMEOUT = 30.0, 5.0
"""Seconds between two queries about a job, and for an answer."""
_FIELD = re.compile(r"(?:^|\s)(StdOut|JobState|ExitCode)=(\S+)")
NOT_ENDED = (
    "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "PENDING", "CONFIGURING", "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED", "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT",
)  # fmt: skip
WELL = "COMPLETED"
"""The only state of a job that succeeded: a cancelled job or one that lost its node can have the
code 0:0 too. https://slurm.schedmd.com/job_state_codes.html"""


def parse_job(text: str) -> dict[str, str]:
    """Return the relevant fields of ``scontrol show job`` output."""
    return dict(_FIELD.findall(text))


def expand_slurm_log(path: str, job: str) -> str:
    """Return a log path with Slurm's placeholders for the job ID (``%j``, ``%A``) replaced."""
    return path.replace("%j", job).replace("%A", job)


class SlurmJobs:
    """Queries ``scontrol`` in a thread.

    Args:
        seconds: Seconds between two queries about one job.
    """

    def __init__(self, seconds: float = SLURM_PERIOD) -> None:
        self._seconds = seconds
        self._jobs: dict[str, Background] = {}

    def _query_job(self, job: str) -> dict[str, str]:
        if job not in self._jobs:
            if background.which("scontrol") is None:
                return {}
            words = ["scontrol", "show", "job", job]
            self._jobs[job] = Background(
                lambda: parse_job(background.run_program(words, SLURM_TIMEOUT)),
                self._seconds,
                SLURM_TIMEOUT * 2,
            )
        return self._jobs[job].poll(0.0)[0] or {}

    def add_job_output(self, run: FoundRun) -> None:
        """Add the job's output file to the logs of a live run that has none of its own."""
        if run.session != "slurm" or not run.place or run.logs:
            return
        path = expand_slurm_log(self._query_job(run.place).get("StdOut", ""), run.place)
        if path.startswith("/") and path != "/dev/null":
            run.logs = [path]
            run.silent = ""

    def record_job_end(self, run: FoundRun) -> bool:
        """Record how an ended run's job ended; returns True if there is nothing more to query.

        Slurm forgets a job some minutes after its end (MinJobAge), and reports the end of the job,
        not of a step.
        """
        if run.session != "slurm" or not run.place:
            return True
        told = self._query_job(run.place)
        state = told.get("JobState", "")
        code = told.get("ExitCode", "")
        if not state or state in NOT_ENDED:
            return False
        self._jobs.pop(run.place, None)
        note = f"Slurm job {run.place}: {state}"
        if note not in run.notes:
            run.notes.append(note)
        run.outcome = state
        number, _, signal = code.partition(":")
        if number.isdigit() and signal == "0" and (state == WELL or int(number)):
            run.exit_code = int(number)
        return True
