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
from rgt_box.commands import restorable_files, result_rules
from rgt_box.push import push_staging
from rgt_box.sampling import disks
from rgt_box.sampling.cgroup import unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_box.commands.result_rules import Rule
    from rgt_box.push.push_staging import PushedFiles

MOST_GROUPS, HELD_GROUPS = 300, 4096
"""Directories without an owner that are told one by one, and that are held while walking; of more, the deepest are
counted with the directory above."""
FAN = 16
"""Directories without an owner beside each other; more are one with the directory that they stand in."""
MOST_PROBLEMS = 100
MOST_MOUNTS = 1000
UNPACKED_NS = 10 * 10**9
"""A file whose content is so much older than its inode was unpacked, not written in place."""
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
    text = b"%s\0%d\0%d\0%d\0%d" % (
        path,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
        seen.st_ino,
    )
    return int.from_bytes(hashlib.sha256(text).digest(), "big")


class Owners:
    """Whose a directory is, by its path; links in it are resolved.

    Attributes:
        whole: Directory → owner of all below it, as far as no other one is nearer.
        shared: Those of them that hold other files as well, such as caches: the rules apply to these.
        alone: Directory → owner of what lies right in it.
    """

    def __init__(self) -> None:
        self.whole: dict[bytes, str] = {}
        self.shared: set[bytes] = set()
        self.alone: dict[bytes, str] = {}

    def add(self, path: str, owner: str, *, shared: bool = False) -> None:
        """Claim a directory with all below it, or the directory of a file; the first claim wins.

        Args:
            path: Absolute.
            owner: Who claims it.
            shared: It holds other files as well: see `Owners.shared`.
        """
        if not path.startswith("/") or "\0" in path:
            return
        real = os.fsencode(os.path.realpath(path))
        if os.path.isdir(real):
            if real not in COMMON:
                if shared and real not in self.whole:
                    self.shared.add(real)
                self.whole.setdefault(real, owner)
        elif os.path.exists(real) and os.path.dirname(real) not in COMMON:
            self.alone.setdefault(os.path.dirname(real), owner)


class Mounts:
    """What is mounted where, as ``/proc/self/mountinfo`` says (proc(5)).

    Attributes:
        points: All mount points.
        pseudo: Those that can hold nobody's files.
        read_only: Those that the box cannot write to, while somebody else may.
        disks: Those that are storage, not memory.
        rows: Point → type of the file system, and device, of each that can hold files.
    """

    def __init__(self, table: bytes) -> None:
        self.points: set[bytes] = set()
        self.pseudo: set[bytes] = set()
        self.read_only: set[bytes] = set()
        self.disks: set[bytes] = set()
        self.rows: dict[bytes, tuple[str, str]] = {}
        for row in table.decode("utf-8", "surrogateescape").splitlines():
            fields = row.split(" ")
            if "-" not in fields[6:] or len(fields) < fields.index("-", 6) + 4:
                continue
            kind, source, superblock = fields[fields.index("-", 6) + 1 :][:3]
            if source == disks.DEMO_DISK:
                kind = source
            point = os.fsencode(unescape(fields[4]))
            self.points.add(point)
            self.pseudo.discard(point)  # a later one covers it
            self.read_only.discard(point)
            self.disks.discard(point)
            self.rows.pop(point, None)
            here, below = fields[5].split(","), superblock.split(",")
            if kind in result_rules.PSEUDO:
                self.pseudo.add(point)
            elif "ro" in here and "ro" not in below:
                # A disk that the kernel made read-only after an error is so altogether.
                self.read_only.add(point)
            elif kind not in result_rules.MEMORY:
                self.disks.add(point)
            if point not in self.pseudo:
                self.rows[point] = kind, fields[2]

    def is_pseudo(self, path: bytes) -> bool:
        """Tell whether a path is in a file system that can hold nobody's files, such as /proc."""
        return next((at for at in [path, *parents(path)] if at in self.points), b"") in self.pseudo

    def is_apart(self, point: bytes) -> bool:
        """Tell whether a directory is storage of its own: a mount of another device than the root's, no memory."""
        root = self.rows.get(b"/", ("", ""))
        return point != b"/" and point in self.disks and self.rows[point][1] != root[1]


def read_mounts() -> Mounts:
    """Return what is mounted now."""
    return Mounts(procstat.read_whole("/proc/self/mountinfo") or b"")


class Skips:
    """What was left out: name of a rule → its files, bytes and the newest of them, without an owner."""

    def __init__(self) -> None:
        self.rules: dict[str, Group] = {}
        self.proved: set[str] = set()
        """Rules that more than the place of a file speaks for."""

    def add(self, rule: Rule, path: bytes, seen: os.stat_result) -> None:
        """Count a file."""
        group = self.name(rule.name, rule.proved)
        group.files += 1
        group.bytes += seen.st_size
        group.newest = max(group.newest, (seen.st_ctime_ns, path))

    def name(self, rule: str, proved: bool = True) -> Group:
        """Name a rule, also for files that were not walked."""
        if proved:
            self.proved.add(rule)
        return self.rules.setdefault(rule, Group())


class Level:
    """A directory that is being walked."""

    __slots__ = (
        "all_count", "bundle", "fd", "folds", "from_image", "group", "has_records", "ignored", "is_read_only",
        "listed", "names", "owner", "part", "parts", "path", "pushed", "root", "rule", "tree",
    )  # fmt: skip

    def __init__(self, path: bytes, above: Level | None) -> None:
        self.path, self.fd = path, -1
        self.names: Iterator[str] = iter(())
        self.owner: str = above.owner if above is not None else ""
        self.root: bytes = above.root if above is not None else path
        """The directory that its files are counted with, where they have an owner."""
        self.rule: Rule | None = above.rule if above is not None else None
        self.ignored: str | None = above.ignored if above is not None else None
        self.group: Group | None = None
        self.folds = 0
        """`Walk.folds` when the group was taken."""
        self.from_image: bool = above is None or above.from_image
        """Its files can be as old as the image: it is on no disk of its own."""
        self.is_read_only: bool = above is not None and above.is_read_only
        """The box cannot write to it, so its files are as old as they look."""
        self.listed: tuple[restorable_files.PathSet, ...] = (
            above.listed if above is not None else ()
        )
        self.parts: frozenset[str] = frozenset()
        """What belongs to the Python environment that this is, or is in."""
        self.part = ""
        """Where it is in that, with a slash at its end."""
        self.all_count: bool = above is not None and above.all_count
        """It is a run's own directory: nothing in it is a cache by its name alone."""
        self.pushed: PushedFiles | None = above.pushed if above is not None else None
        """The version of pushed code that it belongs to."""
        self.tree: restorable_files.WorkTree | None = above.tree if above is not None else None
        """The git work tree that it belongs to."""
        self.bundle: bytes = above.bundle if above is not None else b""
        """Directory that its files are counted with, if they have no owner: the top of a work tree."""
        self.has_records = False
        """Versions of pushed code are directly in it."""


class Walk:
    """One look at everything.

    Args:
        owners: Whose what is.
        since: Seconds since the epoch; older files are left out. None = it is not known, and none is old.
        own: Directories of rgt itself.
        ignore: Globs that a person wants left out.
        survives: Directories that are not at stake.
        mounts: What is mounted where.
        disown: Globs of directories that are not the job's whose working directory they are in.

    Attributes:
        groups: Directory → its files, of those with an owner and of those without.
        skips: What was left out.
        problems: What could not be looked at, in words.
        mounts: What is mounted where.
    """

    def __init__(
        self,
        owners: Owners,
        since: float | None = None,
        own: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        survives: tuple[str, ...] = (),
        mounts: Mounts | None = None,
        disown: tuple[str, ...] = (),
    ) -> None:
        self._disown = [re.compile(os.fsencode(fnmatch.translate(glob))) for glob in disown]
        self._owners = owners
        self._since_ns = 0 if since is None else int(since * 10**9)
        self._own = {os.fsencode(os.path.realpath(path)) for path in own}
        self._ignore = [(glob, re.compile(os.fsencode(fnmatch.translate(glob)))) for glob in ignore]
        self.mounts = read_mounts() if mounts is None else mounts
        # What is only said to be a volume of its own is walked.
        stays = {os.fsencode(os.path.realpath(path)) for path in survives}
        self._survives = set(filter(self.mounts.is_apart, stays))
        self._homes = {b"/root", os.fsencode(os.path.expanduser("~"))}
        self._top = b""
        """The root of the present walk, without a slash at its end: rules are about paths from there."""
        self.groups: dict[bytes, Group] = {}
        self.pinned: set[bytes] = set()
        self.skips = Skips()
        self.problems: list[str] = []
        self.folds = 0
        """How often groups were put together: then one that a level has may no longer be in the list."""
        self._more_problems = 0

    def run(self, roots: list[str]) -> None:
        """Walk these directories, each with all that is mounted below it."""
        for root in roots:
            path = os.fsencode(os.path.realpath(root))
            self.pinned.add(path)
            self._tree(path)
            for point in self._within_survivors(path):
                self._tree(point, path)
        self._merge()
        if self._more_problems:
            self.problems.append("and %d more that cannot be read" % self._more_problems)

    def _within_survivors(self, root: bytes) -> list[bytes]:
        """Return the mounts below directories that are not walked: each of another device may not survive."""
        rows, kept = self.mounts.rows, set(self._survives)
        found: list[bytes] = []
        for point in sorted(rows.keys() - kept, key=len):
            around = next((at for at in parents(point) if at in rows), b"")
            if around not in kept or not point.startswith(root.rstrip(b"/") + b"/"):
                continue
            if rows[point][1] == rows[around][1]:
                kept.add(point)
            elif os.path.isdir(point):
                found.append(point)
        return found

    def _tree(self, root: bytes, top: bytes | None = None) -> None:
        """Walk a directory.

        Args:
            root: It.
            top: The root that rules about paths count from; by default the directory.
        """
        stack: list[Level] = []
        self._top = (root if top is None else top).rstrip(b"/")
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
        if path in self.mounts.pseudo and above is not None:
            return None
        if path in self._survives:
            self.skips.name(f"outlives the instance: {shown(path)}")
            return None
        level = Level(path, above)
        self._judge(level, above)
        if above is None:
            level.listed = (restorable_files.system_packages(os.fsdecode(path)),)
        try:
            if above is None:
                level.fd = os.open(path, OPEN)
            else:
                level.fd = os.open(os.path.basename(path), OPEN, dir_fd=above.fd)
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
        is_top = path.rstrip(b"/") == self._top
        owner = self._owners.whole.get(path)
        if level.owner and not level.all_count and self._is_disowned(path):
            level.owner, level.root = "", path
        if owner is not None:
            level.owner, level.root, level.rule = owner, path, None
            level.all_count = path not in self._owners.shared
        elif path in self.mounts.points:
            level.root, level.bundle = path, b""
            self.pinned.add(path)
            # A disk that is mounted among packages or system files holds neither.
            if path in self.mounts.disks:
                level.rule = None
            if level.rule is None and path in self.mounts.read_only and not is_top:
                level.rule = result_rules.READ_ONLY
        if path in self.mounts.points and not is_top:
            level.from_image = level.is_read_only = path in self.mounts.read_only
        if path in self._own:
            level.rule = result_rules.OWN
        elif owner is None:
            self._apply_rule(level, above)
        if above is not None and above.has_records:
            place, name = os.path.split(os.fsdecode(path))
            level.pushed = push_staging.load_record(place, name)
        level.ignored = level.ignored or self._ignored(path)

    def _is_disowned(self, path: bytes) -> bool:
        return any(pattern.match(path) for pattern in self._disown)

    def _apply_rule(self, level: Level, above: Level | None) -> None:
        at_home = above is not None and self._is_home(above.path)
        found = result_rules.folder_rule(self._rule_path(level.path), level.rule, at_home)
        if found is None and above is not None and above.parts:
            part = above.part + os.fsdecode(os.path.basename(level.path))
            if part in above.parts:
                found = result_rules.ENVIRONMENTS
            elif any(known.startswith(part + "/") for known in above.parts):
                level.parts, level.part = above.parts, part + "/"
        if found is result_rules.OBJECTS and level.tree is not None and not level.tree.published:
            found = None  # commits that no remote has are in there, or may be
        # In a directory of a run nothing is a cache by its name alone.
        if not level.all_count or (found is not None and found.hides):
            level.rule = found

    def _rule_path(self, path: bytes) -> str:
        return os.fsdecode(path[len(self._top) :]) or "/"

    def _is_home(self, path: bytes) -> bool:
        return path in self._homes or os.path.dirname(path) == b"/home"

    def _closed(self, level: Level, error: OSError) -> None:
        """Say that a directory cannot be looked into; what the system keeps to itself is no riddle."""
        if level.ignored is not None:
            self.skips.name(f"ignored: {level.ignored}")
        elif level.rule is not None:
            self.skips.name(f"{level.rule.name}, not readable by this user")
        else:
            self._problem(level.path, describe(error), level)

    def _read(self, level: Level) -> None:
        folders: list[str] = []
        files: list[tuple[str, os.stat_result]] = []
        # Before any file: what marks an environment, and where lists of packages are.
        with os.scandir(level.fd) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                except OSError as error:
                    self._problem(
                        os.path.join(level.path, os.fsencode(entry.name)), describe(error), level
                    )
        if ".git" in folders and level.rule is None and not level.all_count:
            level.tree, level.bundle = restorable_files.WorkTree(level.path), level.path
        if not level.all_count and not level.parts:
            has_config = _is_file(level.fd, result_rules.VENV)
            level.parts = result_rules.environment_parts(
                [*folders, *[result_rules.VENV] * has_config]
            )
        level.has_records = push_staging.FOLDER in folders
        if restorable_files.may_be_prefix(folders):
            level.listed += (restorable_files.python_packages(os.fsdecode(level.path)),)
        with os.scandir(level.fd) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        seen = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            files.append((entry.name, seen))
                            if len(files) >= AT_ONCE:
                                self._count(level, files)
                                files = []
                    elif entry.is_symlink():
                        self._note_link(level, entry.name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._problem(
                        os.path.join(level.path, os.fsencode(entry.name)), describe(error), level
                    )
        self._count(level, files)
        folders.sort()
        level.names = iter(folders)

    def _count(self, level: Level, files: list[tuple[str, os.stat_result]]) -> None:
        for name, seen in files:
            path = os.path.join(level.path, os.fsencode(name))
            ignored = level.ignored or (self._ignored(path) if self._ignore else None)
            if ignored is not None:
                rule: Rule | None = result_rules.Rule(f"ignored: {ignored}", True, True)
            else:
                rule = self._rule_of_file(level, name, path, seen)
            if rule is not None and (rule.hides or not result_rules.looks_like_result(name)):
                self.skips.add(rule, path, seen)
            else:
                self._add(level, path, seen)

    def _add(self, level: Level, path: bytes, seen: os.stat_result) -> None:
        """Count a file that could be lost."""
        self._group(level).add(path, seen)

    def _note_link(self, level: Level, name: str) -> None:
        """Do nothing with a symbolic link: the walk follows none."""

    def _rule_of_file(
        self, level: Level, name: str, path: bytes, seen: os.stat_result
    ) -> Rule | None:
        """Return why a file is no result; None = it is one."""
        if path in self._own:
            return result_rules.OWN
        if level.pushed is not None and level.pushed.is_unchanged(path, seen):
            return result_rules.PUSHED
        if (
            level.tree is not None
            and not level.all_count
            and level.tree.is_reproducible(path, seen)
        ):
            return result_rules.CLONED
        if level.rule is not None and level.rule.hides and level.rule.proved:
            return level.rule
        is_owned = bool(level.owner) or level.path in self._owners.alone
        if seen.st_ctime_ns < self._since_ns and level.from_image and not is_owned:
            # The file's own second witness: what is unpacked keeps the time of its archive; what is written in place,
            # although under a clock that was behind, has one time.
            is_unpacked = seen.st_mtime_ns < seen.st_ctime_ns - UNPACKED_NS
            if is_unpacked or level.is_read_only:
                return result_rules.OLDER
        if any(path in listed for listed in level.listed):
            return result_rules.LISTED
        rule = result_rules.file_rule(self._rule_path(path)) or level.rule
        if rule is None and path in self.mounts.read_only:
            return result_rules.READ_ONLY
        if rule is None and not level.all_count:
            if level.part + name in level.parts:
                return result_rules.ENVIRONMENTS
            if not level.owner and name.startswith(".") and self._is_home(level.path):
                return result_rules.HOME_FILES
        return rule

    def _ignored(self, path: bytes) -> str | None:
        return next((glob for glob, pattern in self._ignore if pattern.match(path)), None)

    def _group(self, level: Level) -> Group:
        if level.group is not None and level.folds == self.folds:
            return level.group
        if level.owner:
            key, owner = level.root, level.owner
        else:
            key, owner = level.path, self._owners.alone.get(level.path, "")
            if not owner and level.bundle:
                key = level.bundle
            while len(key) > LONGEST:
                key = os.path.dirname(key)
        if owner:
            self.pinned.add(key)
        if key not in self.groups:
            self.groups[key] = Group(owner)
            if len(self.groups) - len(self.pinned) > HELD_GROUPS:
                self._fold(HELD_GROUPS // 2, into_root=True)
        while key not in self.groups:
            key = os.path.dirname(key)
        level.group, level.folds = self.groups[key], self.folds
        return level.group

    def _problem(self, path: bytes, text: str, level: Level) -> None:
        words = f"{shown(path)}: {text}"
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

    def _fold(self, most: int, *, into_root: bool = False) -> None:
        """Count the deepest directories without an owner with those above, until there are at most so many.

        Args:
            most: Directories without an owner that may be left.
            into_root: Also those right in the root.
        """
        self.folds += 1
        while len(self._free()) > most:
            free = self._free()
            deepest = max(map(_depth, free))
            if deepest <= (0 if into_root else 1):
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


def parents(path: bytes) -> list[bytes]:
    """Return the directories around a path, the nearest first."""
    found = []
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        found.append(path)
    return found


def _is_file(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def _depth(path: bytes) -> int:
    if path != b"/":
        return path.count(b"/")
    return 0


def shown(path: bytes) -> str:
    """Return a path for JSON: whatever is no UTF-8 in it becomes U+FFFD, as for every other name."""
    return path[: 2 * LONGEST].decode("utf-8", "replace")


def answer(walk: Walk, at: float, since: float | None, no_since: str = "") -> dict[str, Any]:
    """Return what the walk has found, as the client expects it.

    Args:
        walk: It is over.
        at: When it began.
        since: Older files are left out, where they can have come with the image.
        no_since: Why none are, although a date was given.
    """
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
        {
            "rule": rule,
            "files": group.files,
            "bytes": group.bytes,
            "newest": group.newest[0] / 10**9,
            "newest_path": shown(group.newest[1][-LONGEST:]),
            "proved": rule in walk.skips.proved,
        }
        for rule, group in sorted(walk.skips.rules.items())
    ]
    return {
        "at": round(at, 3),
        "generation": whole.hexdigest(),
        "since": since,
        "no_since": no_since,
        "groups": groups,
        "skipped": skipped,
        "problems": walk.problems,
        "mounts": [
            {"path": shown(point), "kind": kind, "device": device}
            for point, (kind, device) in sorted(walk.mounts.rows.items())[:MOST_MOUNTS]
        ],
    }
