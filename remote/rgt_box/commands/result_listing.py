"""Lists the files of chosen directories of ``results``, one by one, as ``manifest --no-hash`` lists a tree.

A pull that fetches exactly these files has exactly what the list of results counts: nothing of rgt's own, nothing of a
package, nothing of a directory below that is listed separately.
"""

from __future__ import annotations

import os

from rgt_box import jsonline
from rgt_box.commands import file_tree, hashing, result_walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_box.commands.result_walk import Level


class Files(result_walk.Walk):
    """A walk over the chosen directories only, which reports each file instead of counting it.

    Attributes:
        known: Every directory of the first walk's list, with or without an owner.
        chosen: Those whose files are reported.
        write: Called with each line.
        counts: Files, bytes and problems reported.
    """

    known: frozenset[bytes] = frozenset()
    chosen: frozenset[bytes] = frozenset()

    def choose(self, known: set[bytes], chosen: set[bytes], write: Callable[[bytes], Any]) -> None:
        """Set the directories to report, and who takes the lines."""
        self.known, self.chosen, self.write = frozenset(known), frozenset(chosen), write
        self._above = {above for path in chosen for above in result_walk.parents(path)}
        self._root: bytes | None = None
        self.counts = {"files": 0, "bytes": 0, "links": 0, "problems": 0}

    def _entered(self, path: bytes, above: Level | None) -> Level | None:
        if path in self._above or _nearest(path, self.chosen) is not None:
            return super()._entered(path, above)
        return None

    def _add(self, level: Level, path: bytes, seen: os.stat_result) -> None:
        if self._report(level, path, hashing.listed(seen)):
            self.counts["files"] += 1
            self.counts["bytes"] += seen.st_size

    def _note_link(self, level: Level, name: str) -> None:
        path = os.path.join(level.path, os.fsencode(name))
        if level.rule is not None or level.ignored is not None or path in self._own:
            return
        try:
            target = os.fsencode(os.readlink(name, dir_fd=level.fd))
        except OSError:
            return  # it is gone
        if level.pushed is not None and level.pushed.is_link(path, target):
            return
        if self._report(level, path, file_tree.named(target, "link")):
            self.counts["links"] += 1

    def _problem(self, path: bytes, text: str, level: Level) -> None:
        if self._report(level, path, {"error": text}):
            self.counts["problems"] += 1

    def _report(self, level: Level, path: bytes, row: dict[str, Any]) -> bool:
        """Write the line of an entry if its directory is chosen."""
        root = level.root if level.owner else _nearest(level.path, self.known)
        if root is None or root not in self.chosen:
            return False
        if root != self._root:
            self._root = root
            self.write(jsonline.line(file_tree.named(root, "root")))
        name = path[len(root.rstrip(b"/")) + 1 :] or b"."
        self.write(jsonline.line(dict(file_tree.named(name), **row)))
        return True


def _nearest(path: bytes, folders: frozenset[bytes]) -> bytes | None:
    """Return the deepest of some directories that is `path` or contains it."""
    return next((at for at in [path, *result_walk.parents(path)] if at in folders), None)


def write_files(
    walk: Files, roots: list[str], known: set[bytes], chosen: set[bytes], write: Callable[[bytes], Any]
) -> None:
    """Walk again, and write the lines of the files of the chosen directories, and the last line.

    Args:
        walk: Made like the first one.
        roots: As for the first one.
        known: Directories of the first one's list.
        chosen: Those whose files are to be listed.
        write: Takes each line.
    """
    walk.choose(known, chosen & known, write)
    walk.run(roots)
    for path in sorted(chosen - known):
        write(jsonline.line(file_tree.named(path, "root")))
        write(jsonline.line({"path": ".", "error": "holds no results any more: list them again"}))
        walk.counts["problems"] += 1
    write(jsonline.line(dict(walk.counts, end=True)))
