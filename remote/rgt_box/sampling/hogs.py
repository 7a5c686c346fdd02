"""Which directories hold the inodes: a bounded walk and a greedy choice of the most telling ones."""

from __future__ import annotations

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ENTRIES, MAX_SECONDS = 200000, 2.0
TOP = 5


class Node:
    """One directory: what lies in it directly and, after `total_up`, below it."""

    __slots__ = ("bytes", "children", "direct", "inodes", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.direct = self.inodes = self.bytes = 0
        self.children: list[Node] = []


def scan(root: str, max_entries: int = MAX_ENTRIES, max_seconds: float = MAX_SECONDS) -> list[dict[str, Any]]:
    """Return the top ``InodeHog`` objects below `root`, on its own file system only.

    Breadth first, so that a walk cut short by its bounds has at least seen the upper levels.
    """
    _be_nice()
    top = Node(root)
    walk(top, max_entries, max_seconds)
    return [{"path": node.path, "inodes": inodes, "bytes": size} for node, inodes, size in choose(top)]


def walk(top: Node, max_entries: int, max_seconds: float) -> None:
    """Fill the tree below `top`."""
    device = os.stat(top.path).st_dev
    deadline = time.monotonic() + max_seconds
    seen = 0
    level = [top]
    while level:
        below: list[Node] = []
        for node in level:
            try:
                with os.scandir(node.path) as entries:
                    for entry in entries:
                        seen += 1
                        if seen >= max_entries or time.monotonic() > deadline:
                            return total_up(top)
                        if not seen % 1000:
                            time.sleep(0.001)  # let the sampler have the interpreter
                        _count(entry, node, below, device)
            except OSError:
                continue
        level = below
    return total_up(top)


def _count(entry: os.DirEntry[str], node: Node, below: list[Node], device: int) -> None:
    try:
        stat = entry.stat(follow_symlinks=False)
        is_dir = entry.is_dir(follow_symlinks=False)
    except OSError:
        return
    if stat.st_dev != device:
        return
    node.direct += 1
    node.bytes += stat.st_blocks * 512
    if is_dir:
        child = Node(entry.path)
        node.children.append(child)
        below.append(child)


def total_up(top: Node) -> None:
    """Add every directory's figures to those above it."""
    order = [top]
    for node in order:
        order.extend(node.children)
    for node in reversed(order):
        node.inodes += node.direct
        for child in node.children:
            node.inodes += child.inodes
            node.bytes += child.bytes


def choose(top: Node, limit: int = TOP) -> list[tuple[Node, int, int]]:
    """Pick up to `limit` directories that explain the most inodes, leaf-most first of all.

    From the root the walk goes down as long as one child holds half of what is left, or holds many entries
    directly; what it stops at is reported and taken away from the directories above, then it starts anew.

    Returns:
        (directory, inodes at or below it that no earlier pick explains, their bytes), largest first.
    """
    left = {id(top): (top.inodes, top.bytes)}
    many = max(100, top.inodes // 20)
    picks: list[tuple[Node, int, int]] = []
    taken: set[int] = set()
    while len(picks) < limit:
        path = [top]
        while True:
            node = path[-1]
            children = [child for child in node.children if id(child) not in taken]
            largest = max(children, key=lambda child: left.get(id(child), (child.inodes, 0))[0], default=None)
            if largest is None:
                break
            held = left.get(id(largest), (largest.inodes, 0))[0]
            here = left.get(id(node), (node.inodes, 0))[0]
            from_root = node is top and held > node.direct
            if not (from_root or held * 2 >= here or largest.direct >= many):
                break
            path.append(largest)
        node = path[-1]
        inodes, size = left.get(id(node), (node.inodes, node.bytes))
        if node is top or inodes < max(10, top.inodes // 100):
            break
        picks.append((node, inodes, size))
        taken.add(id(node))
        for above in path[:-1]:
            was = left.get(id(above), (above.inodes, above.bytes))
            left[id(above)] = (was[0] - inodes, was[1] - size)
    return sorted(picks, key=lambda pick: -pick[1])


def _be_nice() -> None:
    try:  # Linux: the niceness belongs to the thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)
    except (OSError, AttributeError):
        pass
