"""Groups the box's processes into trees, one run per tree, and reads a process's open files.

Processes are inspected as rarely as possible: one that is not training is read once and then mostly
skipped.

The root of a run is the topmost command that trains. The tree functions are pure.
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import background, procstat
from rgt_box.discovery import script_look, training_commands
from rgt_box.metrics.formats import candidates
from rgt_box.sampling.gpu import TOOLS, device_prefix
from rgt_box.sampling.processes import is_training, program_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, NamedTuple

    from rgt_box.discovery.training_commands import ParsedCommand


if TYPE_CHECKING:

    class ProcessNode(NamedTuple):
        """The fields of a process that the tree needs."""

        pid: int
        ppid: int
        kind: str
        """`ParsedCommand.kind`."""
        positive: bool
        """It was recognised as training."""
        words: "list[str]"
else:
    from collections import namedtuple

    ProcessNode = namedtuple("ProcessNode", "pid ppid kind positive words")


DEEP = 64
"""Ancestors inspected at most. This also ends a loop, which a reused PID can cause."""


def find_root(pid: int, nodes: Mapping[int, ProcessNode]) -> int:
    """Return the topmost training or launcher process above `pid`, skipping wrappers."""
    root = pid
    at = nodes[pid].ppid
    step = pid
    for _ in range(DEEP):
        node = nodes.get(at)
        # sshd, tmux and the like start several runs: above them nothing belongs to one run.
        if node is None or at <= 1 or node.kind in ("border", "never"):
            break
        if node.positive or node.kind == "starter":
            root = at
        elif node.kind != "wrapper":
            break
        step = at
        at = node.ppid
    return _first_task(root, step, nodes)


def _first_task(root: int, top: int, nodes: Mapping[int, ProcessNode]) -> int:
    """Return the first Slurm task with the root's command line.

    Slurm's daemon starts each task of a step itself; tasks with the same command line are one run.
    """
    above = nodes.get(nodes[top].ppid)
    if (
        top != root
        or above is None
        or not above.words
        or not above.words[0].startswith("slurmstepd")
    ):
        return root
    words = nodes[root].words
    return min(pid for pid, node in nodes.items() if node.ppid == above.pid and node.words == words)


def children_by_pid(nodes: Mapping[int, ProcessNode]) -> dict[int, list[int]]:
    """Return pid → PIDs of its children."""
    found: dict[int, list[int]] = {}
    for node in nodes.values():
        found.setdefault(node.ppid, []).append(node.pid)
    return found


def run_members(
    root: int, below: Mapping[int, list[int]], nodes: Mapping[int, ProcessNode]
) -> list[int]:
    """Return the processes of a run, the root first, then by depth.

    Tasks that Slurm started next to the root with the same command line are included.
    """
    tops = [root]
    parent = nodes.get(nodes[root].ppid)
    if parent is not None and parent.words and parent.words[0].startswith("slurmstepd"):
        tops += [
            pid
            for pid in sorted(below.get(parent.pid, ()))
            if pid != root and nodes[pid].words == nodes[root].words
        ]
    found = list(tops)
    seen = set(tops)
    for pid in found:
        # By number: usually the order in which they were started.
        for child in sorted(below.get(pid, ())):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def pids_to_show(pids: list[int], nodes: Mapping[int, ProcessNode]) -> list[int]:
    """Return processes worth showing: no wrappers, helpers, or forks with the same command line."""
    found = []
    for at, pid in enumerate(pids):
        node = nodes[pid]
        parent = nodes.get(node.ppid)
        forked = parent is not None and parent.words == node.words
        if at == 0 or (node.kind in ("python", "starter", "kernel", "other") and not forked):
            found.append(pid)
    return found


YOUNG, FULL = 2, 12
"""Number of times to read a new process, and reads between two full scans: `exec` may replace its
program."""

UNDECIDED = ("python", "kernel", "other")
"""Kinds for which only evidence shows whether they train."""


class KnownProcess:
    """One process and its classification.

    Attributes:
        why: Why it was recognised as training; "" if it was not.
        looks: How often it was read.
        due: Value of `looks` at which evidence is checked next.
        script: Reads its script once, in a thread: the script may be on a mount that hangs.
    """

    __slots__ = ("command", "due", "looks", "script", "stat", "why", "words")

    def __init__(
        self, stat: procstat.ProcessStat, words: list[str], command: training_commands.ParsedCommand
    ) -> None:
        self.stat = stat
        self.words = words
        self.command = command
        self.looks = self.due = 0
        self.script: background.Background | None = None
        self.why = ""


class ProcessTable:
    """All processes except kernel threads.

    Args:
        pattern: Matches the command line of a training process; None to use rgt's own rules.
    """

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self._pattern = pattern
        self._known: dict[int, KnownProcess] = {}
        self._kernel: set[int] = set()
        self._looks = 0
        self._cards = False
        self._script_wait = 0.1
        self.boot = procstat.boot_time()

    def update_table(self, pids: Iterable[int]) -> None:
        """Update the table.

        Args:
            pids: PIDs of all current processes.
        """
        there = set(pids)
        full = self._looks % FULL == 0
        if full:
            self._cards = has_nvidia_devices()
        self._looks += 1
        self._kernel &= there
        self._known = {pid: known for pid, known in self._known.items() if pid in there}
        for pid in there - self._kernel:
            known = self._known.get(pid)
            if (
                known is None
                or full
                or known.looks <= YOUNG
                or known.why
                or known.command.kind in ("python", "kernel")
            ):
                self._read_process(pid, known, full)

    def _read_process(self, pid: int, known: KnownProcess | None, full: bool) -> None:
        stat = procstat.read_stat(pid)
        # A zombie has no command line and no files, and trains nothing.
        if stat is None or stat.state in "ZX":
            self._known.pop(pid, None)
            return
        # The pid was reused.
        if known is not None and known.stat.start != stat.start:
            known = None
        if known is None or known.looks <= YOUNG or full:
            words = procstat.read_cmdline(pid)
            kthreadd = 2
            if not words and kthreadd in (pid, stat.ppid):
                # Remembered, and never read again: a box may have hundreds of kernel threads.
                self._kernel.add(pid)
                return
            if known is None or known.words != words:
                known = self._known[pid] = KnownProcess(
                    stat, words, training_commands.parse_command(words)
                )
        known.stat = stat
        known.looks += 1
        if not known.why:
            self._classify(known, full)

    def _classify(self, known: KnownProcess, full: bool) -> None:
        if self._pattern is not None:
            if is_training(known.words, self._pattern):
                known.why = "the pattern matches"
            return
        kind = known.command.kind
        known.why = known.command.why or self._why_by_script(known)
        if (
            known.why
            or kind not in UNDECIDED
            or (kind == "other" and not full)
            or known.looks < known.due
        ):
            return
        # Check less and less often: a process that does not train within minutes rarely does later.
        known.due = known.looks + max(1, known.looks // 2)
        command = known.command
        parent = self._known.get(known.stat.ppid)
        if kind != "kernel" or parent is None or not parent.command.script.endswith(".ipynb"):
            parent = None
        # A notebook that runs from beginning to end, not one in which a person works.
        if parent is not None:
            command = parent.command
        known.why = why_it_trains(command, known.words, known.stat, self.boot, self._cards)
        if parent is not None:
            parent.why = parent.why or known.why  # the run has the notebook's name

    def _why_by_script(self, known: KnownProcess) -> str:
        """Return which call in its script shows training; "" if none does, or not yet."""
        if known.command.kind != "python" or known.command.script == "-c":
            return ""
        wait = 0.0
        if known.script is None:
            # Never again: a script is read once per process.
            once = float("inf")
            pid, command = known.stat.pid, known.command
            known.script = background.Background(
                lambda: _read_training_call(pid, command), once, once
            )
            # Seconds to read a script; once one was slower, its mount may hang, and others there.
            wait = self._script_wait
        call, _ = known.script.poll(wait)
        if wait and known.script.is_busy:
            self._script_wait = 0.0
        if call:
            return f"its script calls {call}"
        return ""

    def find_process(self, pid: int) -> KnownProcess | None:
        """Return the entry of a process, or None."""
        return self._known.get(pid)

    def build_nodes(self) -> dict[int, ProcessNode]:
        """Return every process in the form that the tree needs."""
        return {
            pid: ProcessNode(pid, known.stat.ppid, known.command.kind, bool(known.why), known.words)
            for pid, known in self._known.items()
        }

    def training_pids(self) -> list[int]:
        """Return the PIDs that were recognised as training."""
        return sorted(pid for pid, known in self._known.items() if known.why)

    def group_pids(self, number: int) -> list[int]:
        """Return the PIDs of a process group."""
        return sorted(pid for pid, known in self._known.items() if known.stat.group == number)


# Open files of a process: its logs, metrics, pipe ends, and whether it holds a GPU. Only the links
# in ``/proc/PID/fd`` are read, never the files: a mount that hangs must not block the caller.


if TYPE_CHECKING:

    class OpenFile(NamedTuple):
        """One open file."""

        fd: int
        target: str
        """Path, ``pipe:[N]``, ``socket:[N]``, …; without the kernel's ``(deleted)``."""
        writes: bool
        deleted: bool
else:
    from collections import namedtuple

    OpenFile = namedtuple("OpenFile", "fd target writes deleted")


DELETED = " (deleted)"

_NO_PLACE = ("/dev/", "/proc/", "/sys/", "/memfd:", "/run/", "/anon_hugepage", "/SYSV", "/[")
_TEXT = re.compile(
    r"(?:.*\.(?:log|out|err|txt)(?:[.\-_]\d[\w\-:.]*)?|.*(?:stdout|stderr|console)[^/.]*"
    r"|nohup\.out)$",
    re.I,
)
_WRITERS = frozenset(
    (
        "tee",
        "ts",
        "cat",
        "sed",
        "awk",
        "gawk",
        "mawk",
        "grep",
        "rotatelogs",
        "multilog",
        "svlogd",
        "cronolog",
    )
)


def read_open_files(pid: int) -> list[OpenFile] | None:
    """Return a process's open files; None if not permitted."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = []
    # Open files inspected per process.
    most_open_files = 4096
    for name in names[:most_open_files]:
        path = folder + "/" + name
        try:
            target = os.readlink(path)
            # Sockets matter only as standard streams, anonymous inodes never.
            if target[0] != "/" and not target.startswith("pipe:"):
                if target.startswith("socket:") and int(name) < 3:
                    found.append(OpenFile(int(name), target, True, False))
                continue
            # The permission bits of the link show how the file was opened: proc(5).
            writes = bool(os.lstat(path).st_mode & 0o200)
        except (OSError, ValueError):
            continue
        deleted = target.endswith(DELETED)
        found.append(
            OpenFile(int(name), target[: -len(DELETED)] if deleted else target, writes, deleted)
        )
    return found


def is_file(item: OpenFile) -> bool:
    """Return whether the target looks like a regular file with a path."""
    return item.target.startswith("/") and not item.target.startswith(_NO_PLACE)


def is_log(path: str) -> bool:
    """Return whether a path is named like a text log."""
    return bool(_TEXT.match(os.path.basename(path)))


def is_metrics(path: str) -> bool:
    """Return whether a path is named like a metrics file, and not like a console log."""
    return any(kind != "console" for kind in candidates(path)) and not is_log(path)


class OutputStreams:
    """Where a process's standard output and error go.

    Attributes:
        logs: Paths, stdout's first; ``/proc/PID/fd/N`` for a deleted file.
        deleted: That path → the file's name before it was deleted.
        terminal: A terminal that it writes to, or None.
        other: Description of any other destination, or "".
    """

    def __init__(self) -> None:
        self.logs: list[str] = []
        self.deleted: dict[str, str] = {}
        self.terminal: str | None = None
        self.other = ""

    def add_log(self, pid: int, item: OpenFile) -> None:
        """Add an open file that is a log."""
        if item.deleted:
            path = "/proc/%d/fd/%d" % (pid, item.fd)
        else:
            path = item.target
        if item.deleted:
            if item.target in self.deleted.values():
                return
            self.deleted[path] = item.target
        if path not in self.logs:
            self.logs.append(path)


def follow_streams(
    pid: int, files: list[OpenFile], near: list[int], words_of: dict[int, str]
) -> OutputStreams:
    """Follow the stdout and stderr of a process, including through pipes to ``tee`` and the like.

    Args:
        pid: The process.
        files: Its open files.
        near: Processes that may be the reader of a pipe: those of its shell.
        words_of: pid → name of its program.
    """
    found = OutputStreams()
    # stdout first: the first log is the one that is shown.
    for wanted in (1, 2):
        for item in files:
            if item.fd == wanted:
                _follow_stream(pid, item, near, words_of, found, 0)
    return found


def _follow_stream(
    pid: int,
    item: OpenFile,
    near: list[int],
    words_of: dict[int, str],
    found: OutputStreams,
    depth: int,
) -> None:
    if item.target.startswith("/dev/pts/") or item.target.startswith("/dev/tty"):
        found.terminal = found.terminal or item.target
    elif item.target == "/dev/null":
        found.other = found.other or "its output is discarded (/dev/null)"
    elif item.target.startswith("socket:"):
        found.other = found.other or (
            "its output goes to another program (a socket: a service's journal or a "
            "container's log)"
        )
    elif item.target.startswith("pipe:"):
        # python | tee | ts: longer chains are rare, and a loop must end.
        if depth < 3:
            reader = _find_pipe_reader(pid, item.target, near)
        else:
            reader = None
        if reader is None:
            found.other = (
                found.other
                or "its output goes through a pipe to a program that could not be identified"
            )
            return
        _follow_through_reader(reader, near, words_of, found, depth)
    elif is_file(item):
        found.add_log(pid, item)


def _find_pipe_reader(pid: int, pipe: str, near: list[int]) -> tuple[int, list[OpenFile]] | None:
    for other in near:
        if other != pid:
            files = read_open_files(other) or []
            # Both ends have the same name; the reader is the one that cannot write.
            if any(item.target == pipe and not item.writes for item in files):
                return other, files
    return None


def _follow_through_reader(
    reader: tuple[int, list[OpenFile]],
    near: list[int],
    words_of: dict[int, str],
    found: OutputStreams,
    depth: int,
) -> None:
    pid, files = reader
    before = len(found.logs)
    for item in files:
        if item.fd > 2 and item.writes and is_file(item):
            found.add_log(pid, item)  # files written by tee
    for item in files:
        if item.fd == 1 and (len(found.logs) == before or item.target.startswith("/dev/pts/")):
            _follow_stream(pid, item, near, words_of, found, depth + 1)
    if len(found.logs) == before and not found.terminal and words_of.get(pid) not in _WRITERS:
        found.other = found.other or "its output goes to %s" % (
            words_of.get(pid) or "another program"
        )


def _read_training_call(pid: int, command: ParsedCommand) -> str:
    cwd = os.readlink("/proc/%d/cwd" % pid)
    return script_look.training_call(command, cwd, procstat.process_root_prefix(pid))


BUSY_CORES = 0.5
"""Mean number of cores over a process's life that counts as training …"""
BUSY_AFTER_S = 60.0
"""… if it has lived at least this many seconds."""
HEAVY_RSS, HEAVY_CPU = 200 << 20, 5.0
"""A non-Python program is only checked for a GPU above this much memory, or seconds of CPU time."""


def has_nvidia_devices() -> bool:
    """Return whether this box has device files of NVIDIA GPUs."""
    folder, start = os.path.split(device_prefix())
    try:
        return any(
            name.startswith(start) and name[len(start) :].isdigit() for name in os.listdir(folder)
        )
    except OSError:
        return False


def why_it_trains(
    command: ParsedCommand,
    words: list[str],
    stat: procstat.ProcessStat,
    boot: float,
    has_cards: bool,
) -> str:
    """Return why a process counts as training; "" if nothing shows it yet.

    Args:
        command: Its command, of kind python, kernel or other.
        words: Its command line.
        stat: Its stat figures.
        boot: Boot time of the kernel, in epoch seconds.
        has_cards: Whether the box has GPUs.
    """
    cpu = stat.cpu / procstat.CLOCK_TICKS
    if command.kind == "other":
        heavy = (
            has_cards
            and (stat.rss > HEAVY_RSS or cpu > HEAVY_CPU)
            and program_name(words) not in TOOLS
        )
        if heavy:
            return why_by_open_files(stat.pid, has_cards, False)
        return ""
    found = why_by_open_files(stat.pid, has_cards, command.kind == "python")
    if found or command.kind == "kernel":
        return found
    age = time.time() - (boot + stat.start / procstat.CLOCK_TICKS)
    # Only of Python: many other programs keep a core busy.
    if age >= BUSY_AFTER_S and cpu / age >= BUSY_CORES:
        return "it has kept %.1f cores busy for %d s" % (cpu / age, age)
    return ""


def why_by_open_files(pid: int, has_cards: bool, metrics: bool) -> str:
    """Return which open file shows that a process is training; "" if none does."""
    start = device_prefix()
    for item in read_open_files(pid) or []:
        rest = item.target[len(start) :]
        if has_cards and item.target.startswith(start) and rest.isdigit():
            return f"it uses GPU {rest}"
        if (
            metrics
            and item.writes
            and is_file(item)
            and _is_surely_metrics(item.target)
            and is_metrics(item.target)
        ):
            return f"it writes {os.path.basename(item.target)}"
    return ""


def _is_surely_metrics(path: str) -> bool:
    """Return whether a file name alone proves metrics, unlike ``.json`` or a database."""
    name = os.path.basename(path)
    return "tfevents" in name or name.endswith(".wandb") or name in ("metrics.csv", "metrics.jsonl")
