"""The processes of the box as trees, each of which is one run, and the files that a process has open.

The processes of the box, looked at as seldom as will do: what is not a training is read once and left alone.

Processes → one run per tree: its root is the topmost command that trains. Pure.
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import procstat
from rgt_box.discovery import training_commands
from rgt_box.metrics.formats import candidates
from rgt_box.sampling.gpu import TOOLS, device_prefix
from rgt_box.sampling.processes import is_training, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, NamedTuple

    from rgt_box.discovery.training_commands import Command


if TYPE_CHECKING:

    class Node(NamedTuple):
        """A process as far as the tree needs it."""

        pid: int
        ppid: int
        kind: str
        """`Command.kind`."""
        positive: bool
        """It trains."""
        words: "list[str]"
else:
    from collections import namedtuple

    Node = namedtuple("Node", "pid ppid kind positive words")


DEEP = 64
"""Ancestors looked at; a loop in what /proc says (a pid given anew while we looked) ends here."""


def root_of(pid: int, nodes: Mapping[int, Node]) -> int:
    """Return the topmost process above `pid` that trains or starts trainings, with only wrappers in between."""
    root, at = pid, nodes[pid].ppid
    step = pid
    for _ in range(DEEP):
        node = nodes.get(at)
        if node is None or at <= 1 or node.kind in ("border", "never"):
            break
        if node.positive or node.kind == "starter":
            root = at
        elif node.kind != "wrapper":
            break
        step, at = at, node.ppid
    return _first_task(root, step, nodes)


def _first_task(root: int, top: int, nodes: Mapping[int, Node]) -> int:
    """Slurm's daemon starts every task of a step itself: those of one command line are one run, by the first."""
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


def children(nodes: Mapping[int, Node]) -> dict[int, list[int]]:
    """Return pid → the pids that it started."""
    found: dict[int, list[int]] = {}
    for node in nodes.values():
        found.setdefault(node.ppid, []).append(node.pid)
    return found


def members(root: int, below: Mapping[int, list[int]], nodes: Mapping[int, Node]) -> list[int]:
    """Return the processes of a run, the root first, then by depth.

    Tasks that Slurm started beside the root, with the same command line, belong to it as well.
    """
    tops = [root]
    parent = nodes.get(nodes[root].ppid)
    if parent is not None and parent.words and parent.words[0].startswith("slurmstepd"):
        tops += [
            pid
            for pid in sorted(below.get(parent.pid, ()))
            if pid != root and nodes[pid].words == nodes[root].words
        ]
    found, seen = list(tops), set(tops)
    for pid in found:
        for child in sorted(below.get(pid, ())):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def listed(pids: list[int], nodes: Mapping[int, Node]) -> list[int]:
    """Return those worth a row: neither wrappers nor helpers nor what a loader forked without a command of its own."""
    found = []
    for at, pid in enumerate(pids):
        node = nodes[pid]
        parent = nodes.get(node.ppid)
        forked = parent is not None and parent.words == node.words
        if at == 0 or (node.kind in ("python", "starter", "kernel", "other") and not forked):
            found.append(pid)
    return found


YOUNG, FULL = 2, 12
"""Looks at a new process, and looks between two at all of them: what it runs may change by `exec`."""

KTHREADD = 2
UNDECIDED = ("python", "kernel", "other")
"""Kinds of which only evidence tells whether they train."""


class Known:
    """One process.

    Attributes:
        why: What told that it trains; "" as long as nothing did.
        looks: How often it was looked at.
        due: The look at which evidence is asked for next.
    """

    __slots__ = ("command", "due", "looks", "stat", "why", "words")

    def __init__(
        self, stat: procstat.Stat, words: list[str], command: training_commands.Command
    ) -> None:
        self.stat, self.words, self.command = stat, words, command
        self.looks = self.due = 0
        self.why = ""


class Table:
    """Every process that is not the kernel's.

    Args:
        pattern: What tells a training by its command line; None = rgt's own guess.
    """

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self._pattern = pattern
        self._known: dict[int, Known] = {}
        self._kernel: set[int] = set()
        self._looks = 0
        self._cards = False
        self.boot = procstat.boot_time()

    def look(self, pids: Iterable[int]) -> None:
        """Bring the table up to date.

        Args:
            pids: All processes there are now.
        """
        there = set(pids)
        full = self._looks % FULL == 0
        if full:
            self._cards = cards()
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
                self._read(pid, known, full)

    def _read(self, pid: int, known: Known | None, full: bool) -> None:
        stat = procstat.read_stat(pid)
        if stat is None or stat.state in "ZX":
            self._known.pop(pid, None)
            return
        if known is not None and known.stat.start != stat.start:
            known = None
        if known is None or known.looks <= YOUNG or full:
            words = procstat.cmdline(pid)
            if not words and KTHREADD in (pid, stat.ppid):
                self._kernel.add(pid)
                return
            if known is None or known.words != words:
                known = self._known[pid] = Known(stat, words, training_commands.read(words))
        known.stat = stat
        known.looks += 1
        if not known.why:
            self._judge(known, full)

    def _judge(self, known: Known, full: bool) -> None:
        if self._pattern is not None:
            if is_training(known.words, self._pattern):
                known.why = "the pattern matches"
            return
        known.why = known.command.why
        kind = known.command.kind
        if (
            known.why
            or kind not in UNDECIDED
            or (kind == "other" and not full)
            or known.looks < known.due
        ):
            return
        # Ever more seldom: what has not begun to train within minutes hardly ever does.
        known.due = known.looks + max(1, known.looks // 2)
        known.why = why_it_trains(known.command, known.words, known.stat, self.boot, self._cards)

    def known(self, pid: int) -> Known | None:
        """Return what is known of a process."""
        return self._known.get(pid)

    def nodes(self) -> dict[int, Node]:
        """Return every process as the tree needs it."""
        return {
            pid: Node(pid, known.stat.ppid, known.command.kind, bool(known.why), known.words)
            for pid, known in self._known.items()
        }

    def positive(self) -> list[int]:
        """Return the processes that train."""
        return sorted(pid for pid, known in self._known.items() if known.why)

    def group(self, number: int) -> list[int]:
        """Return the processes of a process group."""
        return sorted(pid for pid, known in self._known.items() if known.stat.group == number)


# What a process has open: where it prints, where its metrics go, and whether it holds a GPU.
#
# Where a training writes, by its open files: logs, metrics, and the ends of its pipes.
#
# Only links of ``/proc/PID/fd`` are read, never the files behind them: a mount that hangs must not hold up
# who asks.


if TYPE_CHECKING:

    class Open(NamedTuple):
        """One open file."""

        fd: int
        target: str
        """Path, ``pipe:[N]``, ``socket:[N]``, …; without the ``(deleted)`` of the kernel."""
        writes: bool
        deleted: bool
else:
    from collections import namedtuple

    Open = namedtuple("Open", "fd target writes deleted")


DELETED = " (deleted)"
MOST_OPEN_FILES = 4096
"""Open files looked at per process."""

_NO_PLACE = ("/dev/", "/proc/", "/sys/", "/memfd:", "/run/", "/anon_hugepage", "/SYSV", "/[")
_TEXT = re.compile(
    r"(?:.*\.(?:log|out|err|txt)(?:[.\-_]\d[\w\-:.]*)?|.*(?:stdout|stderr|console)[^/.]*|nohup\.out)$",
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


def read_open_files(pid: int) -> list[Open] | None:
    """Return what a process has open; None where that may not be looked at."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = []
    for name in names[:MOST_OPEN_FILES]:
        path = folder + "/" + name
        try:
            target = os.readlink(path)
            if target[0] != "/" and not target.startswith("pipe:"):
                if target.startswith("socket:") and int(name) < 3:
                    found.append(Open(int(name), target, True, False))
                continue
            # The mode of the link itself says how the file was opened: proc(5).
            writes = bool(os.lstat(path).st_mode & 0o200)
        except (OSError, ValueError):
            continue
        deleted = target.endswith(DELETED)
        found.append(
            Open(int(name), target[: -len(DELETED)] if deleted else target, writes, deleted)
        )
    return found


def is_file(item: Open) -> bool:
    """Tell whether it is a file with a name of its own, as far as the name tells."""
    return item.target.startswith("/") and not item.target.startswith(_NO_PLACE)


def is_log(path: str) -> bool:
    """Tell whether a name is that of a text log."""
    return bool(_TEXT.match(os.path.basename(path)))


def is_metrics(path: str) -> bool:
    """Tell whether a name is that of a file that may hold metrics (a console log is none)."""
    return any(kind != "console" for kind in candidates(path)) and not is_log(path)


class Streams:
    """Where the standard output and error of a process end.

    Attributes:
        logs: Paths, the standard output's first; ``/proc/PID/fd/N`` for a file that was deleted.
        deleted: Name that each deleted one had, by that path.
        terminal: A terminal that it writes to, or None.
        other: What else it writes to, in words, or "".
    """

    def __init__(self) -> None:
        self.logs: list[str] = []
        self.deleted: dict[str, str] = {}
        self.terminal: str | None = None
        self.other = ""

    def add(self, pid: int, item: Open) -> None:
        """Take over an open file that is a log."""
        path = "/proc/%d/fd/%d" % (pid, item.fd) if item.deleted else item.target
        if item.deleted:
            if item.target in self.deleted.values():
                return
            self.deleted[path] = item.target
        if path not in self.logs:
            self.logs.append(path)


def follow_streams(
    pid: int, files: list[Open], near: list[int], words_of: dict[int, str]
) -> Streams:
    """Follow the standard output and error of a process, also through pipes to ``tee`` and the like.

    Args:
        pid: The process.
        files: What it has open.
        near: Processes among which the reader of a pipe is looked for: those of its shell.
        words_of: pid → name of its program.
    """
    found = Streams()
    for wanted in (1, 2):
        for item in files:
            if item.fd == wanted:
                _stream(pid, item, near, words_of, found, 0)
    return found


def _stream(
    pid: int, item: Open, near: list[int], words_of: dict[int, str], found: Streams, depth: int
) -> None:
    if item.target.startswith("/dev/pts/") or item.target.startswith("/dev/tty"):
        found.terminal = found.terminal or item.target
    elif item.target == "/dev/null":
        found.other = found.other or "its output is thrown away (/dev/null)"
    elif item.target.startswith("socket:"):
        found.other = (
            found.other
            or "its output goes to another program (a socket: a service's journal or a container's log)"
        )
    elif item.target.startswith("pipe:"):
        reader = _reader(pid, item.target, near) if depth < 3 else None
        if reader is None:
            found.other = (
                found.other
                or "its output goes through a pipe to a program that could not be identified"
            )
            return
        _through(reader, near, words_of, found, depth)
    elif is_file(item):
        found.add(pid, item)


def _reader(pid: int, pipe: str, near: list[int]) -> tuple[int, list[Open]] | None:
    for other in near:
        if other != pid:
            files = read_open_files(other) or []
            if any(item.target == pipe and not item.writes for item in files):
                return other, files
    return None


def _through(
    reader: tuple[int, list[Open]],
    near: list[int],
    words_of: dict[int, str],
    found: Streams,
    depth: int,
) -> None:
    pid, files = reader
    before = len(found.logs)
    for item in files:
        if item.fd > 2 and item.writes and is_file(item):
            found.add(pid, item)  # tee's files
    for item in files:
        if item.fd == 1 and (len(found.logs) == before or item.target.startswith("/dev/pts/")):
            _stream(pid, item, near, words_of, found, depth + 1)
    if len(found.logs) == before and not found.terminal and words_of.get(pid) not in _WRITERS:
        found.other = found.other or "its output goes to %s" % (
            words_of.get(pid) or "another program"
        )


BUSY_CORES = 0.5
"""Cores that a program has used in the mean over its life so far …"""
BUSY_AFTER_S = 60.0
"""… of at least so many seconds."""
HEAVY_RSS, HEAVY_CPU = 200 << 20, 5.0
"""A program that is not Python's is only asked for a GPU once it has this much memory, or seconds of CPU."""


def cards() -> bool:
    """Tell whether this box has device files of NVIDIA's cards."""
    folder, start = os.path.split(device_prefix())
    try:
        return any(
            name.startswith(start) and name[len(start) :].isdigit() for name in os.listdir(folder)
        )
    except OSError:
        return False


def why_it_trains(
    command: Command, words: list[str], stat: procstat.Stat, boot: float, has_cards: bool
) -> str:
    """Return in words why a process trains; "" when nothing tells so (yet).

    Args:
        command: What it runs, of kind python, kernel or other.
        words: Its command line.
        stat: Its figures.
        boot: When the kernel was booted.
        has_cards: Whether there are GPUs to be held.
    """
    cpu = stat.cpu / procstat.CLOCK_TICKS
    if command.kind == "other":
        heavy = (
            has_cards and (stat.rss > HEAVY_RSS or cpu > HEAVY_CPU) and program(words) not in TOOLS
        )
        if heavy:
            return by_files(stat.pid, has_cards, False)
        return ""
    found = by_files(stat.pid, has_cards, command.kind == "python")
    if found or command.kind == "kernel":
        return found
    age = time.time() - (boot + stat.start / procstat.CLOCK_TICKS)
    if age >= BUSY_AFTER_S and cpu / age >= BUSY_CORES:
        return "it has kept %.1f cores busy for %d s" % (cpu / age, age)
    return ""


def by_files(pid: int, has_cards: bool, metrics: bool) -> str:
    """Return in words which of its open files tells that a process trains; "" when none does."""
    start = device_prefix()
    for item in read_open_files(pid) or []:
        rest = item.target[len(start) :]
        if has_cards and item.target.startswith(start) and rest.isdigit():
            return f"it holds GPU {rest}"
        if (
            metrics
            and item.writes
            and is_file(item)
            and _sure(item.target)
            and is_metrics(item.target)
        ):
            return f"it writes {os.path.basename(item.target)}"
    return ""


def _sure(path: str) -> bool:
    """Tell whether a name alone is that of a training's metrics: any program writes some ``.json`` or database."""
    name = os.path.basename(path)
    return "tfevents" in name or name.endswith(".wandb") or name in ("metrics.csv", "metrics.jsonl")
