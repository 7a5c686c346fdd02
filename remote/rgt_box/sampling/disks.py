"""Bytes and inodes of all relevant mounts, and the largest directories when space runs short."""

from __future__ import annotations

import os
import select
import threading
import time

from rgt_box import background, jsonline, procstat
from rgt_box.sampling.cgroup import unescape_octal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import List, Tuple

    from rgt_wire import JsonObject

    Table = List[Tuple[str, str]]
    from typing import Callable

DEMO_DISK = "rgt-demo-disk"
"""Source, and here also type, of a tmpfs that serves as a disk of a demo box."""
LOCAL = frozenset(
    (
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "tmpfs",
        "ramfs",
        "overlay",
        "zfs",
        "f2fs",
        "devtmpfs",
        DEMO_DISK,
    )
)
"""File systems whose statvfs answers from memory; all others (NFS, FUSE, Lustre, …) may hang."""


def mount_table() -> Table:
    """Return (mount point, type) of every mount; later mounts cover earlier ones."""
    text = (procstat.read_whole("/proc/self/mounts") or b"").decode("utf-8", "replace")
    rows = [row.split() for row in text.splitlines()]
    return [
        (unescape_octal(row[1]), row[0] if row[0] == DEMO_DISK else row[2])
        for row in rows
        if len(row) >= 3
    ]


EVERY_DATA_MOUNT = "*"
"""Entry in a list of mount points: every file system of this box that may contain user data."""
DISKS_OF_DATA = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"))
SHARES_OF_DATA = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "lustre",
        "ceph",
        "gpfs",
        "beegfs",
        "glusterfs",
        "9p",
        "virtiofs",
        "wekafs",
    )
)
NO_FUSE_OF_DATA = frozenset(
    ("fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse", "fuse.fusectl")
)
SYSTEM_PLACES = (
    "/boot",
    "/snap",
    "/run",
    "/etc",
    "/usr",
    "/proc",
    "/sys",
    "/dev",
    "/var/lib",
    "/var/snap",
    "/var/log",
)


def data_mounts(text: str) -> list[str]:
    """Return the mount points that may contain user data, sorted.

    Each file system once, without ``/``.

    Args:
        text: Content of ``/proc/self/mounts`` (proc(5)).
    """
    rows = [row.split() for row in text.splitlines()]
    rows = [row for row in rows if len(row) >= 4]
    seen = {_file_system(row[0], row[2]) for row in rows if row[1] == "/"}
    found: list[str] = []
    for source, point, kind, given in (row[:4] for row in rows):
        path = unescape_octal(point)
        holds_data = kind in DISKS_OF_DATA or kind in SHARES_OF_DATA
        holds_data = holds_data or (kind.startswith("fuse.") and kind not in NO_FUSE_OF_DATA)
        # A read-only image holds no results, and is always full.
        if not holds_data or path == "/" or "ro" in given.split(","):
            continue
        if any(path == place or path.startswith(place + "/") for place in SYSTEM_PLACES):
            continue
        if _file_system(source, kind) not in seen:
            # Bind mounts of one file system would show the same free space several times.
            seen.add(_file_system(source, kind))
            found.append(path)
    most_data_mounts = 12
    return sorted(found)[:most_data_mounts]


def _file_system(source: str, kind: str) -> str:
    """Return the name of what shares one free space: for ZFS, the pool."""
    if kind == "zfs":
        return source.partition("/")[0]
    return source


def find_mount(path: str, mounts: Table) -> tuple[str, str]:
    """Return (mount point, type) of the mount of `path`, by its name only: this cannot hang."""
    best = ("/", "")
    wanted = os.path.normpath(path)
    for mount, kind in mounts:
        inside = mount == "/" or wanted == mount or wanted.startswith(mount + "/")
        # The longest one, and of equal ones the last: it covers the others.
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best


def resolve_links(path: str, mounts: Table) -> str:
    """Follow the symbolic links of `path` while they are on file systems that cannot hang.

    A link to a dead network mount must not be taken for a local directory. From the first part on a
    file system that may hang, the rest of the path is left unchanged.
    """
    todo = [part for part in os.path.normpath(path).split("/") if part]
    done = "/"
    followed = 0
    # Maximum number of symbolic links followed in one path, the same as the kernel's.
    links = 40
    while todo:
        part = todo.pop(0)
        if part == "..":
            done = os.path.dirname(done)
            continue
        step = os.path.join(done, part)
        # Checked before readlink, which would hang on a dead network mount.
        if find_mount(step, mounts)[1] not in LOCAL:
            return os.path.join(step, *todo)
        try:
            target = os.readlink(step)
        except OSError:  # not a link, or missing
            done = step
            continue
        followed += 1
        if followed > links:
            return path
        if target.startswith("/"):
            done = "/"
        todo = [piece for piece in target.split("/") if piece not in ("", ".")] + todo
    return done


class MountChanges:
    """Detects mounts and unmounts with one system call: the kernel flags the table's descriptor.

    Source: proc(5), ``/proc/PID/mounts``: "poll ... POLLERR | POLLPRI".
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fd = -1
        try:
            self._fd = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._fd, select.POLLPRI)
        except OSError:
            pass  # then only `configure` reads the table again

    def have_occurred(self) -> bool:
        """Return True once for the changes since the last call."""
        return self._fd >= 0 and bool(self._poll.poll(0))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


MAX_ENTRIES, MAX_SECONDS = 200000, 2.0
TOP = 5


class FolderNode:
    """One directory: its direct content and, after `total_up`, everything below it."""

    __slots__ = ("bytes", "children", "direct", "inodes", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.direct = self.inodes = self.bytes = 0
        self.children: list[FolderNode] = []


def find_inode_hogs(
    root: str, max_entries: int = MAX_ENTRIES, max_seconds: float = MAX_SECONDS
) -> list[JsonObject]:
    """Return the largest ``InodeHog`` objects below `root`, on its own file system only.

    Breadth first, so that a walk cut off by its limits has at least seen the upper levels.
    """
    _be_nice()
    top = FolderNode(root)
    fill_tree(top, max_entries, max_seconds)
    return [
        {"path": node.path, "inodes": inodes, "bytes": size}
        for node, inodes, size in choose_hogs(top)
    ]


def fill_tree(top: FolderNode, max_entries: int, max_seconds: float) -> None:
    """Fill the tree below `top`, within the limits."""
    device = os.stat(top.path).st_dev
    deadline = time.monotonic() + max_seconds
    seen = 0
    level = [top]
    while level:
        below: list[FolderNode] = []
        for node in level:
            try:
                with os.scandir(node.path) as entries:
                    for entry in entries:
                        seen += 1
                        if seen >= max_entries or time.monotonic() > deadline:
                            return total_up(top)
                        if not seen % 1000:
                            time.sleep(0.001)  # let the sampler thread run
                        _count_entry(entry, node, below, device)
            except OSError:
                continue
        level = below
    return total_up(top)


def _count_entry(
    entry: os.DirEntry[str], node: FolderNode, below: list[FolderNode], device: int
) -> None:
    try:
        stat = entry.stat(follow_symlinks=False)
        is_dir = entry.is_dir(follow_symlinks=False)
    except OSError:
        return
    # Another file system has inodes of its own.
    if stat.st_dev != device:
        return
    node.direct += 1
    # Blocks, not the size: sparse files take less, and st_blocks is always in units of 512 bytes.
    node.bytes += stat.st_blocks * 512
    if is_dir:
        child = FolderNode(entry.path)
        node.children.append(child)
        below.append(child)


def total_up(top: FolderNode) -> None:
    """Add every directory's figures to those of its parents."""
    order = [top]
    for node in order:
        order.extend(node.children)
    # Children come after their parents in `order`, so they are complete first.
    for node in reversed(order):
        node.inodes += node.direct
        for child in node.children:
            node.inodes += child.inodes
            node.bytes += child.bytes


def choose_hogs(top: FolderNode, limit: int = TOP) -> list[tuple[FolderNode, int, int]]:
    """Pick up to `limit` directories that explain the most inodes, as deep as possible.

    From the root the walk descends while one child has half of the remaining inodes, or has many
    direct entries. The directory where it stops is reported and subtracted from its parents, then
    the walk starts again.

    Returns:
        (directory, inodes at or below it that no earlier pick explains, their bytes), largest
        first.
    """
    left = {id(top): (top.inodes, top.bytes)}
    many = max(100, top.inodes // 20)
    picks: list[tuple[FolderNode, int, int]] = []
    taken: set[int] = set()
    while len(picks) < limit:
        path = [top]
        while True:
            node = path[-1]
            children = [child for child in node.children if id(child) not in taken]
            if not children:
                break
            largest = max(children, key=lambda child: left.get(id(child), (child.inodes, 0))[0])
            held = left.get(id(largest), (largest.inodes, 0))[0]
            here = left.get(id(node), (node.inodes, 0))[0]
            # The root itself is no answer, so leave it even if no child has half of the inodes.
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
    try:  # on Linux the niceness belongs to the thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)
    except (OSError, AttributeError):
        pass


PERIOD, TIMEOUT = 2.0, 5.0
"""Seconds between two statvfs of a mount that may hang, and after which it counts as hung."""


class DiskSampler:
    """Samples a changing set of paths."""

    def __init__(self) -> None:
        self._mounts: list[SampledMount] = []
        self._wanted: tuple[list[str], list[str]] = ([], [])
        self._changes = MountChanges()

    def configure(self, configured: list[str], written: list[str]) -> None:
        """Choose what to sample.

        Args:
            configured: Mount points (or any directories) that the client requested; see
                `EVERY_DATA_MOUNT`.
            written: Directories that runs write to; their mounts are added if missing.
        """
        self._wanted = (configured, written)
        self._changes.have_occurred()  # changes until now are covered by the read below
        table = mount_table()
        wanted = ["/"] + [path for path in configured if path.startswith("/")]
        if EVERY_DATA_MOUNT in configured:
            wanted += data_mounts(
                (procstat.read_whole("/proc/self/mounts") or b"").decode("utf-8", "replace")
            )
        wanted += [find_mount(resolve_links(path, table), table)[0] for path in written]
        unique = list(dict.fromkeys(os.path.normpath(path) for path in wanted))
        # Kept, so that a mount that hangs does not get a second thread.
        known = {(mount.path, mount.kind, mount.on): mount for mount in self._mounts}
        self._mounts = []
        for path in unique:
            on, kind = find_mount(resolve_links(path, table), table)
            self._mounts.append(
                known.get((path, kind, on)) or SampledMount(path, kind, os.statvfs, on)
            )

    def read(self, wait: float = 0.0) -> list[JsonObject]:
        """Return the ``disks`` list of a sample; a mount that does not answer has an error."""
        if self._changes.have_occurred():  # a local path may now be covered by a mount that hangs
            self.configure(*self._wanted)
        return [mount.read(wait) for mount in self._mounts]


class SampledMount:
    """One sampled path.

    Args:
        path: Path passed to statvfs.
        kind: Type of its file system; one that cannot hang needs no thread.
        statvfs: The system call.
        on: The mount point that contains it; different if `path` is an ordinary directory or a
            link.
    """

    def __init__(
        self, path: str, kind: str, statvfs: Callable[[str], os.statvfs_result], on: str = ""
    ) -> None:
        self.path = path
        self.kind = kind
        self.on = on
        self._stat = statvfs
        self._remote: background.Background | None = None
        if kind not in LOCAL:
            self._remote = background.Background(lambda: statvfs(path), PERIOD, TIMEOUT)
        self._scan: background.Background | None = None

    def read(self, wait: float) -> JsonObject:
        """Return one ``Disk``."""
        error: str | None = None
        result: os.statvfs_result | None = None
        if self._remote is None:
            try:
                result = self._stat(self.path)
            except OSError as problem:
                error = background.error_text(problem)
        else:
            # 20 ms: a mount that answers at once is then not one reading late.
            result, error = self._remote.poll(wait or 0.02)
        if result is not None and error is None:
            fields = statvfs_figures(result)
        else:
            fields = {}
        found, by_bytes = self._poll_hogs(fields, wait)
        if by_bytes:
            found = sorted(found, key=lambda hog: -hog["bytes"])
        return jsonline.drop_empty(
            dict(
                fields,
                mount=self.path,
                on=self.on if self.on != self.path and error is None else None,
                kind=self.kind or None,
                hogs=found,
                error=error,
            )
        )

    def _poll_hogs(self, fields: JsonObject, wait: float) -> tuple[list[JsonObject], bool]:
        inodes = ratio_or_zero(fields.get("inodes_used"), fields.get("inodes_total"))
        used = ratio_or_zero(fields.get("bytes_used"), fields.get("bytes_total"))
        # Share of bytes or inodes in use that starts the scan for hogs.
        scan_at = 0.90
        if max(inodes, used) < scan_at:
            self._scan = None
            return [], False
        if self._scan is None:
            # Seconds between two scans for hogs: one takes up to two seconds of CPU.
            rescan = 120.0
            self._scan = background.Background(lambda: find_inode_hogs(self.path), rescan, 30.0)
        return self._scan.poll(wait)[0] or [], inodes < scan_at


def ratio_or_zero(part: int | None, whole: int | None) -> float:
    """Return part/whole, 0 if either is unknown."""
    if part is not None and whole:
        return part / whole
    return 0.0


def statvfs_figures(stat: os.statvfs_result) -> JsonObject:
    """Return the byte and inode figures of a statvfs result."""
    # The blocks are counted in f_frsize (statvfs(3)); some FUSE file systems leave it 0.
    size = stat.f_frsize or stat.f_bsize
    fixed = stat.f_files > 0  # btrfs and some network file systems create inodes as needed
    return {
        "bytes_total": stat.f_blocks * size,
        # f_bfree includes the blocks reserved for root, f_bavail does not: the same figures as df.
        "bytes_used": (stat.f_blocks - stat.f_bfree) * size,
        "bytes_free": stat.f_bavail * size,
        "inodes_total": stat.f_files if fixed else None,
        "inodes_used": stat.f_files - stat.f_ffree if fixed else None,
        "read_only": bool(stat.f_flag & getattr(os, "ST_RDONLY", 1)),
    }
