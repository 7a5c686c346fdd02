"""What a disk may hold after a power loss: every state that the recorded calls allow.

The model promises no more than POSIX does. Data are durable after an fsync of their file, and a name only after an
fsync of its directory; until then each of them may be there or not, whatever came before or after it. Of data that were
not fsynced there may be nothing, a part, or zeros. One thing file systems do promise: a rename is there as a whole or
not at all, also between two directories; it is durable when both are.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.train.supervisor import Call

Tree = tuple[tuple[str, bytes | None], ...]
"""Path below the root → content, None for a directory; sorted."""
_ALL = 7
"""So many pending names are tried in every combination; of more, a choice is."""
_RANDOM = 60


@dataclass(eq=False)
class Node:
    """A file or directory."""

    is_dir: bool
    names: dict[str, Node] = field(default_factory=dict)
    data: bytes = b""


@dataclass(eq=False)
class Change:
    """One step of the record.

    Attributes:
        kind: ``make``, ``rename``, ``unlink`` (names), ``data`` (content), or ``fsync``.
        node: What was made, written or synced.
        at: Directory and name it is about; for a rename the old ones.
        to: Directory and name of a rename.
        data: The whole content of the file from then on.
    """

    kind: str
    node: Node
    at: tuple[Node, str] | None = None
    to: tuple[Node, str] | None = None
    data: bytes = b""

    def folders(self) -> list[Node]:
        """Return the directories that must be synced for it."""
        return [place[0] for place in (self.at, self.to) if place is not None]


class Recorder:
    """Follows the calls of a process below `root`.

    Args:
        root: An existing folder; what is in it now is durable.

    Attributes:
        base: The tree at the start.
        changes: What happened since.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.base = _read(self.root)
        self._live = _copy(self.base, {})
        self._origin: dict[Node, Node] = {}
        _pair(self.base, self._live, self._origin)
        self._at: dict[Node, int] = {}
        self.changes: list[Change] = []

    def __call__(self, call: Call) -> int:
        """Take in a call that is about to be made (a decision of the supervisor: it passes)."""
        paths = [
            path for path in call.paths() if path.startswith(self.root + "/") or path == self.root
        ]
        if paths and call.name in _TAKEN:
            _TAKEN[call.name](self, call, *paths)
        return 0

    def tree(self) -> Tree:
        """Return what the disk must hold now if the record is right."""
        return _tree(self._live)

    def _place(self, path: str) -> tuple[Node, str] | None:
        node = self._live
        *folders, name = os.path.relpath(path, self.root).split("/")
        for folder in folders:
            found = node.names.get(folder)
            if found is None:
                return None
            node = found
        return node, name

    def _node(self, path: str) -> Node | None:
        if path == self.root:
            return self._live
        place = self._place(path)
        return place[0].names.get(place[1]) if place else None

    def _durably(self, live: Node) -> Node:
        return self._origin.setdefault(live, Node(live.is_dir))

    def _make(self, path: str, *, is_dir: bool) -> None:
        place = self._place(path)
        if place is None or place[1] in place[0].names:
            return
        live = place[0].names[place[1]] = Node(is_dir)
        self.changes.append(
            Change("make", self._durably(live), (self._durably(place[0]), place[1]))
        )

    def _open(self, call: Call, path: str) -> None:
        flags = call.args[1 if call.name == "open" else 2]
        if flags & os.O_CREAT:
            self._make(path, is_dir=False)
        node = self._node(path)
        if node is not None:
            self._at[node] = len(node.data) if flags & os.O_APPEND else 0
            if flags & os.O_TRUNC and node.data:
                self._content(node, b"")

    def _mkdir(self, call: Call, path: str) -> None:
        self._make(path, is_dir=True)

    def _write(self, call: Call, path: str) -> None:
        node = self._node(path)
        assert node is not None, path
        data, at = call.data(), self._at.get(node, 0)
        self._at[node] = at + len(data)
        self._content(node, node.data[:at].ljust(at, b"\0") + data + node.data[at + len(data) :])

    def _resize(self, call: Call, path: str) -> None:
        node, size = self._node(path), call.args[1]
        assert node is not None, path
        self._content(node, node.data[:size].ljust(size, b"\0"))

    def _fallocate(self, call: Call, path: str) -> None:
        node, size = self._node(path), call.args[2] + call.args[3]
        assert node is not None, path
        self._content(node, node.data.ljust(size, b"\0"))

    def _write_at(self, call: Call, path: str) -> None:
        node = self._node(path)
        assert node is not None, path
        data, at = call.data(), call.args[3]
        self._content(node, node.data[:at].ljust(at, b"\0") + data + node.data[at + len(data) :])

    def _content(self, node: Node, data: bytes) -> None:
        node.data = data
        self.changes.append(Change("data", self._durably(node), data=data))

    def _fsync(self, call: Call, path: str) -> None:
        node = self._node(path)
        assert node is not None, path
        self.changes.append(Change("fsync", self._durably(node)))

    def _unlink(self, call: Call, path: str) -> None:
        place = self._place(path)
        if place is None or place[1] not in place[0].names:
            return
        gone = place[0].names.pop(place[1])
        self.changes.append(
            Change("unlink", self._durably(gone), (self._durably(place[0]), place[1]))
        )

    def _rename(self, call: Call, old: str, new: str) -> None:
        source, target = self._place(old), self._place(new)
        assert source is not None and target is not None
        node = source[0].names.pop(source[1])
        target[0].names[target[1]] = node
        at, to = ((self._durably(place[0]), place[1]) for place in (source, target))
        self.changes.append(Change("rename", self._durably(node), at, to))


_TAKEN: dict[str, Callable[..., None]] = {
    "open": Recorder._open, "openat": Recorder._open, "mkdir": Recorder._mkdir, "mkdirat": Recorder._mkdir,
    "write": Recorder._write, "pwrite64": Recorder._write_at, "ftruncate": Recorder._resize,
    "fallocate": Recorder._fallocate,
    "fsync": Recorder._fsync, "fdatasync": Recorder._fsync, "unlink": Recorder._unlink,
    "unlinkat": Recorder._unlink, "rmdir": Recorder._unlink, "rename": Recorder._rename,
    "renameat": Recorder._rename, "renameat2": Recorder._rename,
}  # fmt: skip


def durable(changes: list[Change], count: int) -> set[int]:
    """Return which of the first `count` changes are on the disk for certain."""
    synced: dict[Node, int] = {}
    for number in range(count):
        if changes[number].kind == "fsync":
            synced[changes[number].node] = number
    certain = set()
    for number in range(count):
        change = changes[number]
        needs = [change.node] if change.kind == "data" else change.folders()
        if change.kind != "fsync" and all(synced.get(node, -1) > number for node in needs):
            certain.add(number)
    return certain


def states(base: Node, changes: list[Change], count: int, draw: random.Random) -> Iterator[Tree]:
    """Yield what the disk may hold when the power fails after the first `count` changes."""
    certain = durable(changes, count)
    open_names = [
        n
        for n in range(count)
        if n not in certain and changes[n].kind in ("make", "rename", "unlink")
    ]
    for kept in _choices(open_names, draw):
        for data in ("lost", "half", "zeros", "whole"):
            yield _apply(base, changes[:count], certain | kept, certain, data)


def build(tree: Tree, root: Path) -> None:
    """Make `root` hold exactly `tree`."""
    root.mkdir()
    for path, content in tree:
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def _choices(pending: list[int], draw: random.Random) -> Iterator[set[int]]:
    if len(pending) <= _ALL:
        for size in range(len(pending) + 1):
            yield from map(set, itertools.combinations(pending, size))
        return
    for cut in range(len(pending) + 1):
        yield set(pending[:cut])
    for one in pending:
        yield {one}
        yield set(pending) - {one}
    for _ in range(_RANDOM):
        yield {number for number in pending if draw.random() < 0.5}


def _apply(base: Node, changes: list[Change], kept: set[int], certain: set[int], data: str) -> Tree:
    twin: dict[Node, Node] = {}
    root = _copy(base, twin)
    for number, change in enumerate(changes):
        node = twin.setdefault(change.node, Node(change.node.is_dir))
        if change.kind == "data":
            node.data = (
                change.data if number in certain else _survives(node.data, change.data, data)
            )
        if number not in kept or change.at is None:
            continue
        folder = twin.setdefault(change.at[0], Node(True)).names
        if change.kind == "make":
            folder.setdefault(change.at[1], node)
        elif folder.get(change.at[1]) is not node:
            continue  # what it was about is not there in this state
        elif change.kind == "unlink":
            if not (node.is_dir and node.names):
                del folder[change.at[1]]
        elif change.to is not None:
            target = twin.setdefault(change.to[0], Node(True)).names
            there = target.get(change.to[1])
            if there is not None and there.is_dir and there.names:
                continue
            del folder[change.at[1]]
            target[change.to[1]] = node
    return _tree(root)


def _survives(before: bytes, after: bytes, how: str) -> bytes:
    if how == "half":
        return after[: (len(before) + len(after)) // 2]
    return {"lost": before, "zeros": before[: len(after)].ljust(len(after), b"\0"), "whole": after}[
        how
    ]


def _read(path: str) -> Node:
    node = Node(True)
    for name in sorted(os.listdir(path)):
        place = os.path.join(path, name)
        node.names[name] = (
            _read(place) if os.path.isdir(place) else Node(False, data=Path(place).read_bytes())
        )
    return node


def read_tree(path: Path) -> Tree:
    """Return what is below `path` now."""
    return _tree(_read(str(path)))


def _copy(node: Node, twin: dict[Node, Node]) -> Node:
    made = twin[node] = Node(node.is_dir, data=node.data)
    made.names = {name: _copy(child, twin) for name, child in node.names.items()}
    return made


def _pair(base: Node, live: Node, origin: dict[Node, Node]) -> None:
    origin[live] = base
    for name, child in base.names.items():
        _pair(child, live.names[name], origin)


def _tree(root: Node) -> Tree:
    found: list[tuple[str, bytes | None]] = []

    def walk(node: Node, prefix: str) -> None:
        for name, child in node.names.items():
            found.append((prefix + name, None if child.is_dir else child.data))
            walk(child, f"{prefix}{name}/")

    walk(root, "")
    return tuple(sorted(found, key=lambda entry: entry[0]))
