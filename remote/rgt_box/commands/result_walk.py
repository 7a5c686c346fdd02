"""Walks the whole box for files that could be lost, grouped by directory, in bounded memory.

Names are raw bytes. Directories are opened relative to their parent's descriptor and links are not
followed, so a path swapped during the walk cannot redirect it. Regular files are not opened.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat

from rgt_box import procstat
from rgt_box.background import error_text
from rgt_box.commands import restorable_files, result_rules
from rgt_box.push import push_staging
from rgt_box.sampling import disks
from rgt_box.sampling.cgroup import unescape_octal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

    from rgt_box.commands.result_rules import ExclusionRule
    from rgt_box.push.push_staging import PushedFiles

MOST_GROUPS, HELD_GROUPS = 300, 4096
"""Maximum unowned directories in the answer, and in memory during the walk. Beyond that, the
deepest are merged into their parents. Those directly below an owned one only count in memory."""
MOST_PROBLEMS = 100
UNPACKED_NS = 10 * 10**9
"""A file whose mtime is this much older than its ctime was unpacked, not written in place."""
LONGEST = 4000
"""Maximum bytes of a path; deeper files count with the directory above."""
DEEPEST = 256
"""Maximum nesting of directories: each level costs a file descriptor."""
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""The directory was removed or replaced by another kind of file during the walk."""
COMMON = frozenset((b"/", b"/root", b"/home", b"/tmp", b"/var/tmp", b"/mnt", b"/workspace"))
"""Directories shared by everyone: a log file in one does not make its owner the directory's
owner."""
_MASK = (1 << 256) - 1
"""Digests are added modulo 2^256, so they do not depend on the order."""


class FileGroup:
    """Totals of the files of a directory. Two groups can be merged without their files."""

    __slots__ = ("bytes", "digests", "files", "newest", "owner", "problem")

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.files = self.bytes = self.digests = 0
        self.newest: tuple[int, bytes] = (0, b"")
        """ctime of the newest file in nanoseconds, and its path."""
        self.problem = ""

    def add_file(self, path: bytes, seen: os.stat_result) -> None:
        """Add a file."""
        self.files += 1
        self.bytes += seen.st_size
        self.digests = (self.digests + file_digest(path, seen)) & _MASK
        # The ctime, because a program can set the mtime, and archives do.
        self.newest = max(self.newest, (seen.st_ctime_ns, path))

    def merge_group(self, other: FileGroup) -> None:
        """Merge another group into this one."""
        self.files += other.files
        self.bytes += other.bytes
        self.digests = (self.digests + other.digests) & _MASK
        self.newest = max(self.newest, other.newest)
        self.problem = self.problem or other.problem

    def fingerprint(self) -> str:
        """Return a value that changes if any file changes, disappears or is added."""
        return hashlib.sha256(b"%d:%064x" % (self.files, self.digests)).hexdigest()


def file_digest(path: bytes, seen: os.stat_result) -> int:
    """Return a digest of a file's path, size, times and inode."""
    text = b"%s\0%d\0%d\0%d\0%d" % (
        path,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
        seen.st_ino,
    )
    return int.from_bytes(hashlib.sha256(text).digest(), "big")


class FolderOwners:
    """Maps directories to their owners; links in paths are resolved.

    Attributes:
        whole: Directory → owner of everything below it, unless a deeper claim applies.
        shared: Those that also hold other files, such as caches, so the rules apply to them.
        alone: Directory → owner of its direct files only.
        begun: Such a directory → when the first training began that wrote there.
    """

    def __init__(self) -> None:
        self.whole: dict[bytes, str] = {}
        self.shared: set[bytes] = set()
        self.alone: dict[bytes, str] = {}
        self.begun: dict[bytes, float] = {}

    def claim_path(
        self, path: str, owner: str, *, shared: bool = False, begun: float = 0.0
    ) -> None:
        """Claim a directory with its subtree, or the directory of a file; the first claim wins.

        Args:
            path: Absolute.
            owner: Owner label, such as ``cell a`` or ``run b``.
            shared: It also holds other files: see `FolderOwners.shared`.
            begun: Older files next to a file are inputs of its training; 0 = they are the owner's.
        """
        if not path.startswith("/") or "\0" in path:
            return
        real = os.fsencode(os.path.realpath(path))
        if os.path.isdir(real):
            # Owning /tmp or a home directory would give one run the files of all others.
            if real not in COMMON:
                if shared and real not in self.whole:
                    self.shared.add(real)
                self.whole.setdefault(real, owner)
        elif os.path.exists(real) and os.path.dirname(real) not in COMMON:
            folder = os.path.dirname(real)
            self.alone.setdefault(folder, owner)
            self.begun[folder] = min(begun, self.begun.get(folder, begun))

    def is_claimed(self, path: str) -> bool:
        """Return whether a directory or one around it is claimed with its subtree."""
        real = os.fsencode(os.path.realpath(path))
        return real in self.whole or any(at in self.whole for at in parent_folders(real))


class MountTable:
    """The mount table of ``/proc/self/mountinfo`` (proc(5)).

    Attributes:
        points: All mount points.
        pseudo: Pseudo file systems, which hold no user files.
        read_only: Mounts that the box cannot write to, although other hosts may.
        disks: Mounts backed by storage, not by memory.
        rows: Mount point → (file system type, device) of each that can hold files.
    """

    def __init__(self, table: bytes) -> None:
        self.points: set[bytes] = set()
        self.pseudo: set[bytes] = set()
        self.read_only: set[bytes] = set()
        self.disks: set[bytes] = set()
        self.rows: dict[bytes, tuple[str, str]] = {}
        for row in table.decode("utf-8", "surrogateescape").splitlines():
            fields = row.split(" ")
            # Optional fields come before the dash, so the type and the device have no fixed place
            # (proc(5)).
            if "-" not in fields[6:] or len(fields) < fields.index("-", 6) + 4:
                continue
            kind, source, superblock = fields[fields.index("-", 6) + 1 :][:3]
            if source == disks.DEMO_DISK:
                kind = source
            point = os.fsencode(unescape_octal(fields[4]))
            self.points.add(point)
            self.pseudo.discard(point)  # a later mount covers an earlier one
            self.read_only.discard(point)
            self.disks.discard(point)
            self.rows.pop(point, None)
            # Options of this mount, and of the file system: only the first is this box's own
            # restriction.
            here = fields[5].split(",")
            below = superblock.split(",")
            if kind in result_rules.PSEUDO:
                self.pseudo.add(point)
            elif "ro" in here and ("ro" not in below or _is_never_written(kind, below)):
                # A disk that the kernel made read-only after an error is ``ro`` in the superblock
                # as well.
                self.read_only.add(point)
            elif kind not in result_rules.MEMORY:
                self.disks.add(point)
            if point not in self.pseudo:
                self.rows[point] = kind, fields[2]

    def is_pseudo(self, path: bytes) -> bool:
        """Return whether a path is in a file system without user files, such as /proc."""
        return (
            next((at for at in [path, *parent_folders(path)] if at in self.points), b"")
            in self.pseudo
        )

    def is_apart(self, point: bytes) -> bool:
        """Return whether a directory is a separate disk: its device differs from the root's."""
        root = self.rows.get(b"/", ("", ""))
        return point != b"/" and point in self.disks and self.rows[point][1] != root[1]


def _is_never_written(kind: str, options: list[str]) -> bool:
    """Return whether no box has ever written a file there: an overlay without an upper directory."""
    return kind == "overlay" and not any(option.startswith("upperdir") for option in options)


def read_mounts() -> MountTable:
    """Return the current mounts."""
    return MountTable(procstat.read_whole("/proc/self/mountinfo") or b"")


class SkippedTotals:
    """Totals of the files left out: rule name → group without an owner."""

    def __init__(self) -> None:
        self.rules: dict[str, FileGroup] = {}
        self.proved: set[str] = set()
        """Rules that rest on more than a file's path."""

    def count_file(self, rule: ExclusionRule, path: bytes, seen: os.stat_result) -> None:
        """Count a file."""
        group = self.register_rule(rule.name, rule.proved)
        group.files += 1
        group.bytes += seen.st_size
        group.newest = max(group.newest, (seen.st_ctime_ns, path))

    def register_rule(self, rule: str, proved: bool = True) -> FileGroup:
        """Register a rule, even if its files were not walked."""
        if proved:
            self.proved.add(rule)
        return self.rules.setdefault(rule, FileGroup())


class WalkLevel:
    """A directory that is being walked."""

    __slots__ = (
        "all_count", "bundle", "fd", "folds", "from_image", "group", "has_records", "ignored",
        "is_read_only",
        "listed", "names", "owner", "part", "parts", "path", "pushed", "root", "rule", "tree",
    )  # fmt: skip

    def __init__(self, path: bytes, above: WalkLevel | None) -> None:
        self.path = path
        self.fd = -1
        self.names: Iterator[str] = iter(())
        self.owner: str = above.owner if above is not None else ""
        self.root: bytes = above.root if above is not None else path
        """The directory that its files are counted with, if they have an owner."""
        self.rule: ExclusionRule | None = above.rule if above is not None else None
        self.ignored: str | None = above.ignored if above is not None else None
        self.group: FileGroup | None = None
        self.folds = 0
        """Value of `ResultWalk.folds` when `group` was looked up."""
        self.from_image: bool = above is None or above.from_image
        """Its files may come from the image: it is not on a separate disk."""
        self.is_read_only: bool = above is not None and above.is_read_only
        """The box cannot write to it, so its files are as old as their times say."""
        self.listed: tuple[restorable_files.PathSet, ...] = (
            above.listed if above is not None else ()
        )
        self.parts: frozenset[str] = frozenset()
        """Entries that belong to the Python environment at or around this directory."""
        self.part = ""
        """Its path inside that environment, with a trailing slash."""
        self.all_count: bool = above is not None and above.all_count
        """It is a run's own directory: nothing in it counts as a cache by name alone."""
        self.pushed: PushedFiles | None = above.pushed if above is not None else None
        """The version of pushed code that it belongs to."""
        self.tree: restorable_files.WorkTree | None = above.tree if above is not None else None
        """The git work tree that it belongs to."""
        self.bundle: bytes = above.bundle if above is not None else b""
        """Directory that its unowned files are counted with: the top of a work tree."""
        self.has_records = False
        """It directly contains versions of pushed code."""


class ResultWalk:
    """One walk over the whole box.

    Args:
        owners: Owner of each directory.
        since: Epoch seconds; older files are left out. None if unknown: no file is too old.
        own: Directories of rgt itself.
        ignore: Globs that the user wants left out.
        survives: Directories that outlive the instance.
        mounts: The mount table; read now if None.
        disown: Globs of directories inside a job's working directory that are not the job's.

    Attributes:
        groups: Directory → its files, with and without an owner.
        skips: Totals of the files left out.
        problems: Descriptions of what could not be read.
        mounts: The mount table.
    """

    def __init__(
        self,
        owners: FolderOwners,
        since: float | None = None,
        own: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        survives: tuple[str, ...] = (),
        mounts: MountTable | None = None,
        disown: tuple[str, ...] = (),
    ) -> None:
        self._disown = [re.compile(os.fsencode(fnmatch.translate(glob))) for glob in disown]
        self._owners = owners
        if since is None:
            self._since_ns = 0
        else:
            self._since_ns = int(since * 10**9)
        self._own = {os.fsencode(os.path.realpath(path)) for path in own}
        self._ignore = [(glob, re.compile(os.fsencode(fnmatch.translate(glob)))) for glob in ignore]
        if mounts is None:
            self.mounts = read_mounts()
        else:
            self.mounts = mounts
        # A directory is only skipped if it really is on a separate disk.
        stays = {os.fsencode(os.path.realpath(path)) for path in survives}
        self._survives = set(filter(self.mounts.is_apart, stays))
        self._homes = {b"/root", os.fsencode(os.path.expanduser("~"))}
        self._top = b""
        """Root of the current walk without a trailing slash: path rules are relative to it."""
        self.groups: dict[bytes, FileGroup] = {}
        self.pinned: set[bytes] = set()
        self.skips = SkippedTotals()
        self.problems: list[str] = []
        self.folds = 0
        """Number of merges. After a merge, the group that a level refers to may no longer be in
        `groups`."""
        self._more_problems = 0

    def walk_roots(self, roots: list[str]) -> None:
        """Walk these directories, including everything mounted below them."""
        for root in roots:
            path = os.fsencode(os.path.realpath(root))
            self.pinned.add(path)
            self._walk_tree(path)
            for point in self._within_survivors(path):
                self._walk_tree(point, path)
        # Only now are all siblings known.
        self._merge_unowned()
        if self._more_problems:
            self.problems.append("and %d more that cannot be read" % self._more_problems)

    def _within_survivors(self, root: bytes) -> list[bytes]:
        """Return other disks mounted inside skipped durable directories: they may not survive."""
        rows = self.mounts.rows
        kept = set(self._survives)
        found: list[bytes] = []
        for point in sorted(rows.keys() - kept, key=len):
            around = next((at for at in parent_folders(point) if at in rows), b"")
            if around not in kept or not point.startswith(root.rstrip(b"/") + b"/"):
                continue
            # A bind mount of the durable disk itself survives with it.
            if rows[point][1] == rows[around][1]:
                kept.add(point)
            elif os.path.isdir(point):
                found.append(point)
        return found

    def _walk_tree(self, root: bytes, top: bytes | None = None) -> None:
        """Walk a directory.

        Args:
            root: The directory.
            top: The root that path rules are relative to; by default `root`.
        """
        stack: list[WalkLevel] = []
        self._top = (root if top is None else top).rstrip(b"/")
        first = self._enter_folder(root, None)
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
                    self._record_problem(level.path, "directories are nested too deeply", level)
                    continue
                below = self._enter_folder(os.path.join(level.path, os.fsencode(name)), level)
                if below is not None:
                    stack.append(below)
        finally:
            for level in stack:
                os.close(level.fd)

    def _enter_folder(self, path: bytes, above: WalkLevel | None) -> WalkLevel | None:
        """Open a directory and count its files; returns None if it is skipped or unreadable."""
        # Not at the root of a walk, which the caller named on purpose.
        if path in self.mounts.pseudo and above is not None:
            return None
        if path in self._survives:
            self.skips.register_rule(f"outlives the instance: {path_text(path)}")
            return None
        level = WalkLevel(path, above)
        self._decide_owner_and_rule(level, above)
        if above is None:
            # Package lists of the system have absolute paths, so they are read once, at the root.
            level.listed = (restorable_files.system_packages(os.fsdecode(path)),)
        try:
            if above is None:
                level.fd = os.open(path, OPEN)
            else:
                level.fd = os.open(os.path.basename(path), OPEN, dir_fd=above.fd)
        except OSError as error:
            if error.errno not in _GONE:
                self._record_unreadable(level, error)
            return None
        try:
            self._read_folder(level)
        except OSError as error:
            self._record_unreadable(level, error)
        return level

    def _decide_owner_and_rule(self, level: WalkLevel, above: WalkLevel | None) -> None:
        path = level.path
        is_top = path.rstrip(b"/") == self._top
        owner = self._owners.whole.get(path)
        if level.owner and not level.all_count and self._is_disowned(path):
            level.owner = ""
            level.root = path
        if owner is not None:
            level.owner = owner
            level.root = path
            level.rule = None
            level.all_count = path not in self._owners.shared
        # A mounted disk has a life of its own: it is not counted with the directory around it.
        elif path in self.mounts.points:
            level.root = path
            level.bundle = b""
            self.pinned.add(path)
            # A disk mounted inside a package or system directory holds neither packages nor system
            # files.
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
        level.ignored = level.ignored or self._matching_ignore_glob(path)

    def _is_disowned(self, path: bytes) -> bool:
        return any(pattern.match(path) for pattern in self._disown)

    def _apply_rule(self, level: WalkLevel, above: WalkLevel | None) -> None:
        at_home = above is not None and self._is_home(above.path)
        found = result_rules.folder_rule(self._rule_path(level.path), level.rule, at_home)
        if found is None and above is not None and above.parts:
            part = above.part + os.fsdecode(os.path.basename(level.path))
            if part in above.parts:
                found = result_rules.ENVIRONMENTS
            # Such as "share", of which only "share/man" belongs to the environment.
            elif any(known.startswith(part + "/") for known in above.parts):
                level.parts = above.parts
                level.part = part + "/"
        if found is result_rules.OBJECTS and level.tree is not None and not level.tree.published:
            found = None  # these objects may hold commits that no remote has
        # In a run's directory, nothing counts as a cache by name alone.
        if not level.all_count or (found is not None and found.hides):
            level.rule = found

    def _rule_path(self, path: bytes) -> str:
        return os.fsdecode(path[len(self._top) :]) or "/"

    def _is_home(self, path: bytes) -> bool:
        return path in self._homes or os.path.dirname(path) == b"/home"

    def _record_unreadable(self, level: WalkLevel, error: OSError) -> None:
        """Record that a directory cannot be read; under a rule this is expected, not a problem."""
        if level.ignored is not None:
            self.skips.register_rule(f"ignored: {level.ignored}")
        elif level.rule is not None:
            self.skips.register_rule(f"{level.rule.name}, not readable by this user")
        else:
            self._record_problem(level.path, error_text(error), level)

    def _read_folder(self, level: WalkLevel) -> None:
        folders: list[str] = []
        files: list[tuple[str, os.stat_result]] = []
        # List directories before any file: they mark environments and package lists.
        with os.scandir(level.fd) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                except OSError as error:
                    self._record_problem(
                        os.path.join(level.path, os.fsencode(entry.name)), error_text(error), level
                    )
        # Under a rule it is skipped already, and a run's own directory counts completely.
        if ".git" in folders and level.rule is None and not level.all_count:
            level.tree = restorable_files.WorkTree(level.path)
            level.bundle = level.path
        if not level.all_count and not level.parts:
            has_config = _is_file(level.fd, result_rules.VENV)
            level.parts = result_rules.environment_parts(
                [*folders, *[result_rules.VENV] * has_config]
            )
        level.has_records = push_staging.FOLDER in folders
        if restorable_files.may_be_prefix(folders):
            level.listed += (restorable_files.python_packages(os.fsdecode(level.path)),)
        with os.scandir(level.fd) as entries:
            # Files of a directory that are buffered before they are counted.
            at_once = 1000
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        seen = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            files.append((entry.name, seen))
                            if len(files) >= at_once:
                                self._count_files(level, files)
                                files = []
                    elif entry.is_symlink():
                        self._note_link(level, entry.name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._record_problem(
                        os.path.join(level.path, os.fsencode(entry.name)), error_text(error), level
                    )
        self._count_files(level, files)
        # In the same order in every walk: which directories are merged depends on it.
        folders.sort()
        level.names = iter(folders)

    def _count_files(self, level: WalkLevel, files: list[tuple[str, os.stat_result]]) -> None:
        for name, seen in files:
            path = os.path.join(level.path, os.fsencode(name))
            ignored = level.ignored or (self._matching_ignore_glob(path) if self._ignore else None)
            if ignored is not None:
                rule: ExclusionRule | None = result_rules.ExclusionRule(
                    f"ignored: {ignored}", True, True
                )
            else:
                rule = self._rule_of_file(level, name, path, seen)
            # A path is weak evidence: a checkpoint in a cache directory still counts.
            if rule is not None and (rule.hides or not result_rules.looks_like_result(name)):
                self.skips.count_file(rule, path, seen)
            else:
                self._add_result(level, path, seen)

    def _add_result(self, level: WalkLevel, path: bytes, seen: os.stat_result) -> None:
        """Count a file that could be lost."""
        self._group_of(level).add_file(path, seen)

    def _note_link(self, level: WalkLevel, name: str) -> None:
        """Ignore a symbolic link: the walk follows none."""

    def _rule_of_file(
        self, level: WalkLevel, name: str, path: bytes, seen: os.stat_result
    ) -> ExclusionRule | None:
        """Return the rule by which a file is not a result; None if it is a result."""
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
            # Require a second sign besides the ctime. An unpacked file keeps the mtime of its
            # archive. A file written in place has equal times, even if the clock was slow.
            is_unpacked = seen.st_mtime_ns < seen.st_ctime_ns - UNPACKED_NS
            if is_unpacked or level.is_read_only:
                return result_rules.OLDER
        if any(path in listed for listed in level.listed):
            return result_rules.LISTED
        rule = result_rules.file_rule(self._rule_path(path)) or level.rule
        if rule is None and not level.owner and self._is_input(level, name, seen):
            return result_rules.INPUTS
        if rule is None and path in self.mounts.read_only:
            return result_rules.READ_ONLY
        if rule is None and not level.all_count:
            if level.part + name in level.parts:
                return result_rules.ENVIRONMENTS
            if not level.owner and name.startswith(".") and self._is_home(level.path):
                return result_rules.HOME_FILES
        return rule

    def _is_input(self, level: WalkLevel, name: str, seen: os.stat_result) -> bool:
        """Return whether a file lay next to a training's log or checkpoint before the training began.

        By its ctime, which every write sets: a training's own file never passes for an input.
        """
        begun = self._owners.begun.get(level.path, 0.0)
        is_older = max(seen.st_ctime, seen.st_mtime) < begun
        return is_older and result_rules.is_input(name, seen.st_size)

    def _matching_ignore_glob(self, path: bytes) -> str | None:
        return next((glob for glob, pattern in self._ignore if pattern.match(path)), None)

    def _group_of(self, level: WalkLevel) -> FileGroup:
        # Files of a directory come in a row, so the group is looked up once, unless a merge has
        # replaced it.
        if level.group is not None and level.folds == self.folds:
            return level.group
        if level.owner:
            key = level.root
            owner = level.owner
        else:
            key = level.path
            owner = self._owners.alone.get(level.path, "")
            if not owner and level.bundle:
                key = level.bundle
            while len(key) > LONGEST:
                key = os.path.dirname(key)
        if owner:
            self.pinned.add(key)
        if key not in self.groups:
            self.groups[key] = FileGroup(owner)
            # Half of them at once: merging a single one at each new directory would take a scan
            # each time.
            if len(self.groups) - len(self.pinned) > HELD_GROUPS:
                self._fold_deepest(HELD_GROUPS // 2, into_root=True)
        while key not in self.groups:
            key = os.path.dirname(key)
        level.group = self.groups[key]
        level.folds = self.folds
        return level.group

    def _record_problem(self, path: bytes, text: str, level: WalkLevel) -> None:
        words = f"{path_text(path)}: {text}"
        group = self._group_of(level)
        # A group that could not be read completely must not pass for a small one.
        group.problem = group.problem or words
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(words)
        else:
            self._more_problems += 1

    def _merge_unowned(self) -> None:
        """Merge unowned directories if there are many siblings, or too many in all.

        Never across a directory with an owner: a file belongs to the deepest directory of the list
        that contains it, by which a pull finds the owner of each file.
        """
        crowds: dict[bytes, int] = {}
        for path in self._mergeable_folders():
            above = os.path.dirname(path)
            crowds[above] = crowds.get(above, 0) + 1
        # Unowned siblings above this number are merged into their parent directory.
        fan = 16
        for above in sorted(crowds, key=_path_depth, reverse=True):
            if (
                crowds[above] > fan
                and above != b"/"
                and not self._is_home(above)
                and not self._is_owned(above)
            ):
                for path in self._mergeable_folders():
                    if path.startswith(above + b"/") and not self._has_owner_between(path, above):
                        self._merge_into(path, above)
        self._fold_deepest(MOST_GROUPS)

    def _has_owner_between(self, path: bytes, above: bytes) -> bool:
        """Return whether a directory between the two has an owner."""
        return any(self._is_owned(at) for at in parent_folders(path) if at.startswith(above + b"/"))

    def _fold_deepest(self, most: int, *, into_root: bool = False) -> None:
        """Merge the deepest unowned directories into their parents until `most` are left.

        Those directly below a directory with an owner would count as the owner's, so a data set
        next to a log as its run's results: they stay apart, unless memory would grow (`into_root`).

        Args:
            most: Unowned directories that may be left.
            into_root: Also merge directories directly below the root.
        """
        self.folds += 1
        while len(free := self._mergeable_folders()) > most:
            below_owner = [path for path in free if self._is_owned(os.path.dirname(path))]
            paths = sorted(set(free) - set(below_owner))
            deepest = max(map(_path_depth, paths), default=0)
            if deepest <= (0 if into_root else 1):
                if not below_owner or not into_root:
                    return
                paths = below_owner
                deepest = max(map(_path_depth, paths))
            for path in [path for path in paths if _path_depth(path) == deepest]:
                self._merge_into(path, os.path.dirname(path))

    def _mergeable_folders(self) -> list[bytes]:
        """Return the directories that may be merged into their parents."""
        return sorted(path for path in self.groups if path not in self.pinned)

    def _is_owned(self, path: bytes) -> bool:
        group = self.groups.get(path)
        return group is not None and bool(group.owner)

    def _merge_into(self, path: bytes, above: bytes) -> None:
        self.groups.setdefault(above, FileGroup()).merge_group(self.groups.pop(path))


def parent_folders(path: bytes) -> list[bytes]:
    """Return the parent directories of a path, nearest first."""
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


def _path_depth(path: bytes) -> int:
    if path != b"/":
        return path.count(b"/")
    return 0


def path_text(path: bytes) -> str:
    """Return a path for JSON; bytes that are not UTF-8 become U+FFFD."""
    return path[: 2 * LONGEST].decode("utf-8", "replace")


def walk_answer(walk: ResultWalk, at: float, since: float | None, no_since: str = "") -> JsonObject:
    """Return the result of a walk in the form that the client expects.

    Args:
        walk: A finished walk.
        at: When it began.
        since: Files older than this were left out where they may come from the image.
        no_since: Why no file was left out for its age, although a date was given.
    """
    groups = []
    for path, group in sorted(walk.groups.items()):
        row: JsonObject = {
            "path": path_text(path),
            "owner": group.owner,
            "files": group.files,
            "bytes": group.bytes,
        }
        row.update(
            newest=group.newest[0] / 10**9, newest_path=path_text(group.newest[1][-LONGEST:])
        )
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
            "newest_path": path_text(group.newest[1][-LONGEST:]),
            "proved": rule in walk.skips.proved,
        }
        for rule, group in sorted(walk.skips.rules.items())
    ]
    most_mounts = 1000
    return {
        "at": round(at, 3),
        "generation": whole.hexdigest(),
        "since": since,
        "no_since": no_since,
        "groups": groups,
        "skipped": skipped,
        "problems": walk.problems,
        "mounts": [
            {"path": path_text(point), "kind": kind, "device": device}
            for point, (kind, device) in sorted(walk.mounts.rows.items())[:most_mounts]
        ],
    }
