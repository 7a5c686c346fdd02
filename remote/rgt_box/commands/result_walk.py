"""Walks the whole box for files that somebody may miss, grouped by directory, in bounded memory.

Names are raw bytes. Directories are opened one below the other by descriptor and no link is followed, so that nobody
can lead the walk astray; nothing else is opened at all.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat

from rgt_box import procstat
from rgt_box.background import describe
from rgt_box.commands import result_rules
from rgt_box.sampling.cgroup import unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_box.commands.result_rules import Rule

MOST_GROUPS, HELD_GROUPS = 300, 4096
"""Directories without an owner that are told one by one, and that are held while walking; of more, the deepest are
counted with the directory above."""
FAN = 16
"""Directories without an owner beside each other; more are one with the directory that they stand in."""
MOST_PROBLEMS = 100
LONGEST = 4000
"""Bytes of a path; what is deeper counts with the directory above."""
DEEPEST = 256
"""Directories within each other: each costs a descriptor."""
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""It was removed, or another kind of thing put in its place, while we looked."""
COMMON = frozenset((b"/", b"/root", b"/home", b"/tmp", b"/var/tmp", b"/mnt", b"/workspace"))
"""Directories of everybody: a log that lies there makes it nobody's alone."""
AT_ONCE = 1000
"""Files of a directory that are held before they are counted."""
_MASK = (1 << 256) - 1
"""Digests are added up modulo 2^256."""


class Group:
    """The files of a directory, summed up. Two can be put together without the files."""

    __slots__ = ("bytes", "digests", "files", "newest", "owner", "problem")

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.files = self.bytes = self.digests = 0
        self.newest: tuple[int, bytes] = (0, b"")
        """When the newest file was changed (ns), and its path."""
        self.problem = ""

    def add(self, path: bytes, seen: os.stat_result) -> None:
        """Count a file in."""
        self.files += 1
        self.bytes += seen.st_size
        self.digests = (self.digests + file_digest(path, seen)) & _MASK
        self.newest = max(self.newest, (seen.st_ctime_ns, path))

    def take(self, other: Group) -> None:
        """Count the files of another group in."""
        self.files += other.files
        self.bytes += other.bytes
        self.digests = (self.digests + other.digests) & _MASK
        self.newest = max(self.newest, other.newest)
        self.problem = self.problem or other.problem

    def fingerprint(self) -> str:
        """Return a value that stays the same as long as no file changes, goes or is added."""
        return hashlib.sha256(b"%d:%064x" % (self.files, self.digests)).hexdigest()


def file_digest(path: bytes, seen: os.stat_result) -> int:
    """Return a number for a file in its present state: its path, size, times and inode."""
    text = b"%s\0%d\0%d\0%d\0%d" % (path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
    return int.from_bytes(hashlib.sha256(text).digest(), "big")


class Owners:
    """Whose a directory is, by its path; links in it are resolved.

    Attributes:
        whole: Directory → owner of all below it, as far as no other one is nearer.
        alone: Directory → owner of what lies right in it.
    """

    def __init__(self) -> None:
        self.whole: dict[bytes, str] = {}
        self.alone: dict[bytes, str] = {}

    def add(self, path: str, owner: str) -> None:
        """Claim a directory with all below it, or the directory of a file; the first claim wins."""
        if not path.startswith("/") or "\0" in path:
            return
        real = os.fsencode(os.path.realpath(path))
        if os.path.isdir(real):
            if real not in COMMON:
                self.whole.setdefault(real, owner)
        elif os.path.exists(real) and os.path.dirname(real) not in COMMON:
            self.alone.setdefault(os.path.dirname(real), owner)

    def any_below(self, path: bytes) -> bool:
        """Tell whether anything below a directory is claimed."""
        start = path + b"/"
        return any(owned.startswith(start) for known in (self.whole, self.alone) for owned in known)


class Mounts:
    """What is mounted where, as ``/proc/self/mountinfo`` says (proc(5)).

    Attributes:
        points: All mount points.
        pseudo: Those that can hold nobody's files.
        read_only: Those that the box cannot write to, while somebody else may.
    """

    def __init__(self, table: bytes) -> None:
        self.points: set[bytes] = set()
        self.pseudo: set[bytes] = set()
        self.read_only: set[bytes] = set()
        for row in table.decode("utf-8", "surrogateescape").splitlines():
            fields = row.split(" ")
            if "-" not in fields[6:] or len(fields) < fields.index("-", 6) + 4:
                continue
            kind, _, superblock = fields[fields.index("-", 6) + 1 :][:3]
            point = os.fsencode(unescape(fields[4]))
            self.points.add(point)
            self.pseudo.discard(point)  # a later one covers it
            self.read_only.discard(point)
            here, below = fields[5].split(","), superblock.split(",")
            if kind in result_rules.PSEUDO:
                self.pseudo.add(point)
            elif "ro" in here and "ro" not in below:
                # A disk that the kernel made read-only after an error is so altogether.
                self.read_only.add(point)


def read_mounts() -> Mounts:
    """Return what is mounted now."""
    return Mounts(procstat.read_whole("/proc/self/mountinfo") or b"")


class Skips:
    """What was left out, by rule."""

    def __init__(self) -> None:
        self.rules: dict[str, list[int]] = {}

    def add(self, rule: str, size: int) -> None:
        """Count a file."""
        counts = self.rules.setdefault(rule, [0, 0])
        counts[0] += 1
        counts[1] += size

    def name(self, rule: str) -> None:
        """Name what was not walked."""
        self.rules.setdefault(rule, [0, 0])


class Level:
    """A directory that is being walked."""

    __slots__ = ("fd", "group", "ignored", "names", "owner", "path", "root", "rule")

    def __init__(self, path: bytes, above: Level | None) -> None:
        self.path, self.fd = path, -1
        self.names: Iterator[str] = iter(())
        self.owner: str = above.owner if above is not None else ""
        self.root: bytes = above.root if above is not None else path
        """The directory that its files are counted with, where they have an owner."""
        self.rule: Rule | None = above.rule if above is not None else None
        self.ignored: str | None = above.ignored if above is not None else None
        self.group: Group | None = None


class Walk:
    """One look at everything.

    Args:
        owners: Whose what is.
        since: Seconds since the epoch; older files are left out. None = it is not known, and none is old.
        own: Directories of rgt itself.
        ignore: Globs that a person wants left out.
        survives: Directories that are not at stake.
        mounts: What is mounted where.

    Attributes:
        groups: Directory → its files, of those with an owner and of those without.
        skips: What was left out.
        problems: What could not be looked at, in words.
    """

    def __init__(
        self,
        owners: Owners,
        since: float | None = None,
        own: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        survives: tuple[str, ...] = (),
        mounts: Mounts | None = None,
    ) -> None:
        self._owners = owners
        self._since_ns = 0 if since is None else int(since * 10**9)
        self._own = {os.fsencode(os.path.realpath(path)) for path in own}
        self._survives = {os.fsencode(os.path.realpath(path)) for path in survives}
        self._ignore = [(glob, re.compile(os.fsencode(fnmatch.translate(glob)))) for glob in ignore]
        self._mounts = read_mounts() if mounts is None else mounts
        self._homes = {b"/root", os.fsencode(os.path.expanduser("~"))}
        self.groups: dict[bytes, Group] = {}
        self.pinned: set[bytes] = set()
        self.skips = Skips()
        self.problems: list[str] = []
        self._more_problems = 0

    def run(self, roots: list[str]) -> None:
        """Walk these directories, each with all that is mounted below it."""
        for root in roots:
            path = os.fsencode(os.path.realpath(root))
            self.pinned.add(path)
            self._tree(path)
        self._merge()
        if self._more_problems:
            self.problems.append("and %d more that cannot be read" % self._more_problems)

    def _tree(self, root: bytes) -> None:
        stack: list[Level] = []
        first = self._entered(root, None)
        if first is not None:
            stack.append(first)
        try:
            while stack:
                level = stack[-1]
                name = next(level.names, None)
                if name is None:
                    os.close(stack.pop().fd)
                    continue
                if len(stack) >= DEEPEST:
                    self._problem(level.path, "directories are nested too deeply", level)
                    continue
                below = self._entered(os.path.join(level.path, os.fsencode(name)), level)
                if below is not None:
                    stack.append(below)
        finally:
            for level in stack:
                os.close(level.fd)

    def _entered(self, path: bytes, above: Level | None) -> Level | None:
        """Open a directory, count its files, and return it with the names of those below; None where it is left."""
        if path in self._mounts.pseudo and above is not None:
            return None
        if path in self._survives:
            self.skips.name("outlives the instance: %s" % shown(path))
            return None
        level = Level(path, above)
        self._judge(level, above)
        if level.rule is not None and not level.rule.counted and not self._is_worth_it(path):
            self.skips.name(level.rule.name)
            return None
        try:
            level.fd = (
                os.open(path, OPEN)
                if above is None
                else os.open(os.path.basename(path), OPEN, dir_fd=above.fd)
            )
        except OSError as error:
            if error.errno not in _GONE:
                self._closed(level, error)
            return None
        try:
            self._read(level)
        except OSError as error:
            self._closed(level, error)
        return level

    def _judge(self, level: Level, above: Level | None) -> None:
        path = level.path
        owner = self._owners.whole.get(path)
        if owner is not None:
            level.owner, level.root, level.rule = owner, path, None
        elif path in self._mounts.points:
            level.root = path
            self.pinned.add(path)
            if level.rule is not None and not level.rule.counted and path not in self._mounts.read_only:
                level.rule = None  # a disk that was put among packages is none of them
            if level.rule is None and path in self._mounts.read_only and above is not None:
                level.rule = result_rules.READ_ONLY
        if path in self._own:
            level.rule = result_rules.OWN
        elif owner is None:
            at_home = above is not None and self._is_home(above.path)
            rule = result_rules.folder_rule(os.fsdecode(path), level.rule, at_home, self._since_ns > 0)
            # In a directory of a run nothing is a cache by its name alone.
            level.rule = rule if not level.owner or (rule is not None and rule.hides) else level.rule
        level.ignored = level.ignored or self._ignored(path)

    def _is_worth_it(self, path: bytes) -> bool:
        """Tell whether something below packages is somebody's, or a disk of its own."""
        disks = self._mounts.points - self._mounts.pseudo - self._mounts.read_only
        start = path + b"/"
        return self._owners.any_below(path) or any(
            point.startswith(start) and os.path.isdir(point) for point in disks
        )

    def _is_home(self, path: bytes) -> bool:
        return path in self._homes or os.path.dirname(path) == b"/home"

    def _closed(self, level: Level, error: OSError) -> None:
        """Say that a directory cannot be looked into; what the system keeps to itself is no riddle."""
        if level.ignored is not None:
            self.skips.name("ignored: %s" % level.ignored)
        elif level.rule is not None:
            self.skips.name("%s, not readable by this user" % level.rule.name)
        else:
            self._problem(level.path, describe(error), level)

    def _read(self, level: Level) -> None:
        folders: list[str] = []
        files: list[tuple[str, os.stat_result]] = []
        marks: list[str] = []
        with os.scandir(level.fd) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        seen = entry.stat(follow_symlinks=False)
                        if not stat.S_ISREG(seen.st_mode):
                            continue
                        if entry.name in result_rules.MARKS:
                            marks.append(entry.name)
                        if seen.st_ctime_ns >= self._since_ns:
                            files.append((entry.name, seen))
                            if len(files) >= AT_ONCE:
                                self._count(level, files)
                                files = []
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._problem(os.path.join(level.path, os.fsencode(entry.name)), describe(error), level)
        if level.rule is None and not level.owner:
            level.rule = result_rules.marked_rule(marks + folders)
        self._count(level, files)
        folders.sort()
        level.names = iter(folders)

    def _count(self, level: Level, files: list[tuple[str, os.stat_result]]) -> None:
        in_home = self._is_home(level.path) and not level.owner
        for name, seen in files:
            path = os.path.join(level.path, os.fsencode(name))
            rule = level.rule
            if rule is None and in_home and name.startswith("."):
                rule = result_rules.HOME_FILES
            if rule is None and path in self._own:
                rule = result_rules.OWN
            ignored = level.ignored or (self._ignored(path) if self._ignore else None)
            if ignored is not None:
                self.skips.add("ignored: %s" % ignored, seen.st_size)
            elif rule is not None and (rule.hides or not result_rules.looks_like_result(name)):
                self.skips.add(rule.name, seen.st_size)
            else:
                self._group(level).add(path, seen)

    def _ignored(self, path: bytes) -> str | None:
        return next((glob for glob, pattern in self._ignore if pattern.match(path)), None)

    def _group(self, level: Level) -> Group:
        if level.group is not None:
            return level.group
        if level.owner:
            key, owner = level.root, level.owner
        else:
            key, owner = level.path, self._owners.alone.get(level.path, "")
            while len(key) > LONGEST:
                key = os.path.dirname(key)
        if owner:
            self.pinned.add(key)
        level.group = self.groups.get(key)
        if level.group is None:
            level.group = self.groups[key] = Group(owner)
            if len(self.groups) - len(self.pinned) > HELD_GROUPS:
                self._fold(HELD_GROUPS // 2)
                level.group = None
                return self._group(level)
        return level.group

    def _problem(self, path: bytes, text: str, level: Level) -> None:
        words = "%s: %s" % (shown(path), text)
        group = self._group(level)
        group.problem = group.problem or words
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(words)
        else:
            self._more_problems += 1

    def _merge(self) -> None:
        """Put directories without an owner together, where there are many beside each other, or too many in all."""
        crowds: dict[bytes, int] = {}
        for path in self._free():
            above = os.path.dirname(path)
            crowds[above] = crowds.get(above, 0) + 1
        for above in sorted(crowds, key=_depth, reverse=True):
            if (
                crowds[above] > FAN
                and above != b"/"
                and not self._is_home(above)
                and not self._is_owned(above)
            ):
                for path in self._free():
                    if path.startswith(above + b"/"):
                        self._put_into(path, above)
        self._fold(MOST_GROUPS)

    def _fold(self, most: int) -> None:
        """Count the deepest directories without an owner with those above, until there are at most so many."""
        while len(self._free()) > most:
            free = self._free()
            deepest = max(map(_depth, free))
            if deepest <= 1:
                return
            for path in [path for path in free if _depth(path) == deepest]:
                above = os.path.dirname(path)
                while self._is_owned(above):
                    above = os.path.dirname(above)
                self._put_into(path, above)

    def _free(self) -> list[bytes]:
        """Return the directories that may be counted with those above them."""
        return sorted(path for path in self.groups if path not in self.pinned)

    def _is_owned(self, path: bytes) -> bool:
        group = self.groups.get(path)
        return group is not None and bool(group.owner)

    def _put_into(self, path: bytes, above: bytes) -> None:
        self.groups.setdefault(above, Group()).take(self.groups.pop(path))


def _depth(path: bytes) -> int:
    return path.count(b"/") if path != b"/" else 0


def shown(path: bytes) -> str:
    """Return a path for JSON: whatever is no UTF-8 in it becomes U+FFFD, as for every other name."""
    return path[: 2 * LONGEST].decode("utf-8", "replace")


def answer(walk: Walk, at: float, since: float | None) -> dict[str, Any]:
    """Return what the walk has found, as the client expects it."""
    groups = []
    for path, group in sorted(walk.groups.items()):
        row: dict[str, Any] = {
            "path": shown(path),
            "owner": group.owner,
            "files": group.files,
            "bytes": group.bytes,
        }
        row.update(newest=group.newest[0] / 10**9, newest_path=shown(group.newest[1][-LONGEST:]))
        row.update(fingerprint=group.fingerprint(), problem=group.problem or None)
        groups.append(row)
    whole = hashlib.sha256()
    for path, group in sorted(walk.groups.items()):
        whole.update(path + b"\0" + group.fingerprint().encode() + b"\n")
    skipped = [
        {"rule": rule, "files": counts[0], "bytes": counts[1]}
        for rule, counts in sorted(walk.skips.rules.items())
    ]
    return {
        "at": round(at, 3),
        "generation": whole.hexdigest(),
        "since": since,
        "groups": groups,
        "skipped": skipped,
        "problems": walk.problems,
    }
