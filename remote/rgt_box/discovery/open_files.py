"""What a process has open: where it prints, where its metrics go, and whether it holds a GPU.

Where a training writes, by its open files: logs, metrics, and the ends of its pipes.

Only links of ``/proc/PID/fd`` are read, never the files behind them: a mount that hangs must not hold up who asks.
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import procstat
from rgt_box.metrics.formats import candidates
from rgt_box.sampling.gpu import TOOLS, device_prefix
from rgt_box.sampling.processes import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from rgt_box.discovery.training_commands import Command

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


GONE = " (deleted)"
MOST = 4096
"""Open files looked at per process."""

_NO_PLACE = ("/dev/", "/proc/", "/sys/", "/memfd:", "/run/", "/anon_hugepage", "/SYSV", "/[")
_TEXT = re.compile(
    r"(?:.*\.(?:log|out|err|txt)(?:[.\-_]\d[\w\-:.]*)?|.*(?:stdout|stderr|console)[^/.]*|nohup\.out)$", re.I
)
_WRITERS = frozenset(
    ("tee", "ts", "cat", "sed", "awk", "gawk", "mawk", "grep", "rotatelogs", "multilog", "svlogd", "cronolog")
)


def open_files(pid: int) -> list[Open] | None:
    """Return what a process has open; None where that may not be looked at."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = []
    for name in names[:MOST]:
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
        deleted = target.endswith(GONE)
        found.append(Open(int(name), target[: -len(GONE)] if deleted else target, writes, deleted))
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


def follow_streams(pid: int, files: list[Open], near: list[int], words_of: dict[int, str]) -> Streams:
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
                found.other or "its output goes through a pipe to a program that could not be identified"
            )
            return
        _through(reader, near, words_of, found, depth)
    elif is_file(item):
        found.add(pid, item)


def _reader(pid: int, pipe: str, near: list[int]) -> tuple[int, list[Open]] | None:
    for other in near:
        if other != pid:
            files = open_files(other) or []
            if any(item.target == pipe and not item.writes for item in files):
                return other, files
    return None


def _through(
    reader: tuple[int, list[Open]], near: list[int], words_of: dict[int, str], found: Streams, depth: int
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
        found.other = found.other or "its output goes to %s" % (words_of.get(pid) or "another program")


BUSY = 0.5
"""Cores that a program has used in the mean over its life so far …"""
LONG = 60.0
"""… of at least so many seconds."""
HEAVY_RSS, HEAVY_CPU = 200 << 20, 5.0
"""A program that is not Python's is only asked for a GPU once it has this much memory, or seconds of CPU."""


def cards() -> bool:
    """Tell whether this box has device files of NVIDIA's cards."""
    folder, start = os.path.split(device_prefix())
    try:
        return any(name.startswith(start) and name[len(start) :].isdigit() for name in os.listdir(folder))
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
        heavy = has_cards and (stat.rss > HEAVY_RSS or cpu > HEAVY_CPU) and program(words) not in TOOLS
        return by_files(stat.pid, has_cards, False) if heavy else ""
    found = by_files(stat.pid, has_cards, command.kind == "python")
    if found or command.kind == "kernel":
        return found
    age = time.time() - (boot + stat.start / procstat.CLOCK_TICKS)
    if age >= LONG and cpu / age >= BUSY:
        return "it has kept %.1f cores busy for %d s" % (cpu / age, age)
    return ""


def by_files(pid: int, has_cards: bool, metrics: bool) -> str:
    """Return in words which of its open files tells that a process trains; "" when none does."""
    start = device_prefix()
    for item in open_files(pid) or []:
        rest = item.target[len(start) :]
        if has_cards and item.target.startswith(start) and rest.isdigit():
            return "it holds GPU %s" % rest
        if metrics and item.writes and is_file(item) and _sure(item.target) and is_metrics(item.target):
            return "it writes %s" % os.path.basename(item.target)
    return ""


def _sure(path: str) -> bool:
    """Tell whether a name alone is that of a training's metrics: any program writes some ``.json`` or database."""
    name = os.path.basename(path)
    return "tfevents" in name or name.endswith(".wandb") or name in ("metrics.csv", "metrics.jsonl")
