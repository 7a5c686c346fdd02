"""The processes of the box as trees, each of which is one run.

The processes of the box, looked at as seldom as will do: what is not a training is read once and left alone.

Processes → one run per tree: its root is the topmost command that trains. Pure.
"""

from __future__ import annotations

import re

from rgt_box import procstat
from rgt_box.discovery import open_files, training_commands
from rgt_box.sampling.processes import is_training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, NamedTuple

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
    if top != root or above is None or not above.words or not above.words[0].startswith("slurmstepd"):
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

    def __init__(self, stat: procstat.Stat, words: list[str], command: training_commands.Command) -> None:
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
            self._cards = open_files.cards()
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
        if known.why or kind not in UNDECIDED or (kind == "other" and not full) or known.looks < known.due:
            return
        # Ever more seldom: what has not begun to train within minutes hardly ever does.
        known.due = known.looks + max(1, known.looks // 2)
        known.why = open_files.why_it_trains(known.command, known.words, known.stat, self.boot, self._cards)

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
