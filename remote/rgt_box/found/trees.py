"""Processes → one run per tree: its root is the topmost command that trains. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, NamedTuple

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
