"""Versions of pushed code: ``NAME-<hash>`` directories, and ``NAME``, a link to the newest.

A process keeps the version that it was started with. Before a version is removed, its users are
checked, and so are files written into it since the push: a run's results in its own directory are
not code.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time

from rgt_box import files, jsonline, ownership, procstat
from rgt_box.commands import hashing, remove
from rgt_box.push import push_staging
from rgt_box.push.push_staging import FOLDER, PushedFiles, PushManifest, record_path
from rgt_box.push.version_files import find_changed_files, link_target, read_version_records
from rgt_box.sampling import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject


TREE = "tree"
UNFINISHED = 24 * 3600.0
"""Seconds without progress after which an incomplete push counts as abandoned."""
_DERIVED = ("__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache")


_MAPPED = re.compile(rb"^\S+ \S+ \S+ \S+ \d+ +(/.*)$", re.M)
_HIDDEN = frozenset(
    ("sshd", "sshd-session", "ssh-agent", "(sd-pam)", "systemd", "gpg-agent", "su", "sudo", "ping")
)
"""Programs that hide their files from other users, and run none of this user's code."""
_MAPS = 16 << 20
_GONE = " (deleted)"
"""Suffix that the kernel adds to the name of a removed file."""


def find_complete_version(
    place: str, manifest: PushManifest, cache: hashing.HashCache
) -> str | None:
    """Return the existing version with exactly these files, ignoring files added to it."""
    for version, told in read_version_records(place).items():
        if told.get("digest") == manifest.digest and not find_changed_files(
            os.path.join(place, version), manifest, cache
        ):
            return version
    return None


def find_obstacles(manifest: PushManifest) -> str:
    """Return what blocks the link's path; "" if nothing, or a link of ours, is there."""
    path = os.path.join(manifest.place, manifest.name)
    target = link_target(path)
    if target is None and os.path.lexists(path):
        return (
            f"{path} already exists and is not a link of rgt's: push under another name, or to "
            "another directory"
        )
    if target is not None and target not in read_version_records(manifest.place):
        known = os.path.join(manifest.place, FOLDER, target + ".json")
        if "/" in target or not os.path.lexists(known):
            return f"{path} is a link to {target}, which rgt did not make: push under another name"
    return ""


def copy_from_versions(manifest: PushManifest, digests: list[str]) -> list[str]:
    """Copy contents from earlier versions; return the digests that none of them has (any more).

    Raises:
        OSError: It cannot be written.
    """
    places: dict[str, list[str]] = {}
    lacking = set(digests)
    for version, told in read_version_records(manifest.place).items():
        for row in told["files"]:
            if row[2] in lacking:
                path = os.path.join(manifest.place, version, row[0])
                places.setdefault(row[2], []).append(path)
    missing = []
    for digest in digests:
        target = push_staging.blob_path(manifest, digest)
        sources = places.get(digest, [])
        if not any(push_staging.copy_content(path, digest, target) for path in sources):
            missing.append(digest)
    return missing


def publish_version(manifest: PushManifest) -> str:
    """Build the directory from the staged files and give it its final name; return that.

    Raises:
        OSError: It cannot be written.
    """
    tree = os.path.join(manifest.staging_folder, TREE)
    push_staging.remove_folder(tree)
    # The only way to read the umask is to set it.
    mask = os.umask(0)
    os.umask(mask)
    os.mkdir(tree, 0o777 & ~mask)
    for folder in sorted(manifest.needed_folders()):
        os.mkdir(os.path.join(tree, folder), 0o777 & ~mask)
    used: set[str] = set()
    for path, _, digest, mtime, executable in manifest.files:
        target = os.path.join(tree, path)
        push_staging.move_content(manifest, digest, target, digest in used)
        used.add(digest)
        os.chmod(target, (0o777 if executable else 0o666) & ~mask)
        os.utime(target, ns=(mtime, mtime))
    for path, link in manifest.links:
        os.symlink(link, os.path.join(tree, path))
    sync_tree(tree)
    version = manifest.version_name
    number = 1
    # A version of this hash that was changed since stays, as a process may use it.
    while os.path.lexists(os.path.join(manifest.place, version)):
        number += 1
        version = "%s.%d" % (manifest.version_name, number)
    told = dict(manifest.told, version=version, pushed=time.time())
    # Before the directory: without its record a version would be unknown, and never removed.
    files.replace_file(record_path(manifest.place, version), jsonline.encode_line(told), sync=True)
    os.rename(tree, os.path.join(manifest.place, version))
    hashing.sync_folder(manifest.place)
    return version


def sync_tree(tree: str) -> None:
    """Flush a directory tree to the disk before it gets its final name."""
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                files.sync_path(path)
        hashing.sync_folder(folder)


def switch_link(manifest: PushManifest, version: str) -> None:
    """Point the link to a version, atomically.

    Raises:
        OSError: It cannot be written.
    """
    path = os.path.join(manifest.place, manifest.name)
    if link_target(path) == version:
        return
    part = os.path.join(manifest.staging_folder, "link")
    files.unlink_if_exists(part)
    # Made aside and renamed: at no moment is there no link.
    os.symlink(version, part)
    os.rename(part, path)
    hashing.sync_folder(manifest.place)


def list_versions(place: str, jobs: list[str], shared_too: bool = False) -> list[JsonObject]:
    """Return the versions in a place, newest first, with the reason why each must stay (``kept``).

    Args:
        place: The directory that is pushed to.
        jobs: Job directories that may name a version.
        shared_too: Assume that no other machine runs code from a shared file system.
    """
    known = read_version_records(place)
    paths = {version: os.path.join(place, version) for version in known}
    names = [str(told.get("name")) for told in known.values()]
    links = {name: os.path.join(place, name) for name in names}
    held = find_users(list(paths.values()), jobs, tuple(links.values()))
    if shared_too:
        shared = ""
    else:
        shared = _why_maybe_shared(place)
    rows = []
    for version, told in known.items():
        path = paths[version]
        name = str(told.get("name"))
        current = link_target(links[name]) == version
        added = find_extra_files(path, told)
        if current:
            why = [f"it is the newest: {links[name]} points to it"]
        else:
            why = []
        why += held.users_of(path) + [
            f"{who}: unknown which version that is" for who in held.users_of(links[name])
        ]
        why += [f"it contains files that were not pushed: {', '.join(added[:3])}"] if added else []
        why += [shared] if shared else []
        # What could not be checked counts as use.
        why += held.doubts
        rows.append(
            {
                "path": path,
                "name": name,
                "version": version,
                "pushed": told.get("pushed"),
                "files": len(told["files"]),
                "bytes": sum(row[1] for row in told["files"]),
                "current": current,
                "kept": "; ".join(why[:3]) or None,
            }
        )
    return sorted(rows, key=lambda row: -(row["pushed"] or 0))


def _why_maybe_shared(place: str) -> str:
    table = disks.mount_table()
    mount, kind = disks.find_mount(disks.resolve_links(place, table), table)
    if kind in disks.LOCAL:
        return ""
    return (
        f"{mount} ({kind or 'an unknown file system'}) may be mounted on other machines, which "
        "may run it"
    )


def find_extra_files(folder: str, told: JsonObject) -> list[str]:
    """Return files of a version that were not pushed, or were changed since.

    Only their owner knows what they are worth.
    """
    pushed = PushedFiles(folder, told)
    found = []
    for path, seen in _files_below(folder):
        whole = os.path.join(folder, path)
        if stat.S_ISLNK(seen.st_mode):
            target = link_target(whole)
        else:
            target = None
        if stat.S_ISREG(seen.st_mode) and pushed.is_unchanged(os.fsencode(whole), seen):
            continue
        if target is None or not pushed.is_link(os.fsencode(whole), os.fsencode(target)):
            found.append(path)
    return found


def _files_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for at, folders, names in os.walk(folder):
        inside = os.path.relpath(at, folder)
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        folders[:] = sorted(name for name in folders if name not in _DERIVED and name not in links)
        for name in sorted(names + links):
            if not name.endswith(".pyc"):
                path = os.path.normpath(os.path.join(inside, name))
                yield path, os.lstat(os.path.join(folder, path))


def remove_unused(place: str, rows: list[JsonObject], jobs: list[str]) -> list[JsonObject]:
    """Remove the versions without known users; return the rows with the result for each.

    Each is renamed first and checked again: if a process has started to use it meanwhile, it gets
    its name back.
    """
    for row in rows:
        if row["kept"]:
            continue
        told = files.read_json(record_path(place, row["version"]), push_staging.MOST)
        aside = os.path.join(place, FOLDER, f"out-{row['version']}")
        try:
            # Moved first, then checked again: no process can start in it any more.
            os.rename(row["path"], aside)
        except OSError as error:
            row["kept"] = "it could not be removed: %s" % (error.strerror or error)
            continue
        # Under both names: /proc shows open files under the new one, a job still names the old.
        held = find_users([row["path"], aside], jobs)
        why = held.users_of(aside) + held.users_of(row["path"]) + held.doubts
        if told is None or find_extra_files(aside, told):
            why.append("it has just been written to")
        if why:
            os.rename(aside, row["path"])
            row["kept"] = "; ".join(why[:3])
            continue
        # First the record: without one, `unfinished` never takes half a version for a whole one.
        files.unlink_if_exists(record_path(place, row["version"]))
        push_staging.remove_folder(aside)
        row["removed"] = not os.path.lexists(aside)
    return rows


def unfinished(place: str, now: float, remove: bool) -> list[JsonObject]:
    """Return the pushes without progress for a day, and remove them on request.

    A version that a killed `remove_unused` had renamed but not checked gets its name back instead:
    a process may have written to it.
    """
    folder = os.path.join(place, FOLDER)
    found = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        if not name.startswith(("in-", "out-")) or os.path.islink(path):
            continue
        weight, newest = _size_and_newest(path)
        if now - newest < UNFINISHED:
            continue
        version = name.partition("-")[2]
        back = os.path.join(place, version)
        unchecked = name.startswith("out-") and os.path.exists(record_path(place, version))
        if remove and unchecked and not os.path.lexists(back):
            os.rename(path, back)
            continue
        if remove:
            push_staging.remove_folder(path)
        found.append(
            {"path": path, "bytes": weight, "removed": remove and not os.path.lexists(path)}
        )
    return found


def _size_and_newest(path: str) -> tuple[int, float]:
    total = 0
    newest = os.lstat(path).st_mtime
    for folder, _, names in os.walk(path):
        for name in [".", *names]:
            try:
                seen = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:  # a push that runs now has moved it to its place
                continue
            newest = max(
                # Only staged files show progress: others have the time that they have on the
                # sender's side.
                newest,
                seen.st_mtime if name == "." or folder.endswith(push_staging.BLOBS) else 0.0,
            )
            # st_blocks counts 512 bytes, regardless of the file system's block size.
            total += seen.st_blocks * 512
    return total, newest


# Find the processes that use a file or directory: have it open, mapped, as working directory, run
# it, or name it.
#
# Only what this user may inspect is seen. A process of this user that hides its open files is a
# doubt; other users' processes are one if they could access the file.


class PathUsers:
    """The known users of some paths.

    Attributes:
        doubts: What could not be checked; each may hide a user of any of the paths.
    """

    def __init__(self) -> None:
        self._who: dict[str, list[str]] = {}
        self.doubts: list[str] = []

    def add_user(self, path: str, who: str) -> None:
        """Record a user of a path."""
        known = self._who.setdefault(path, [])
        if who not in known:
            known.append(who)

    def users_of(self, path: str) -> list[str]:
        """Return descriptions of a path's users."""
        return list(self._who.get(path, []))


def find_open_paths(paths: list[str]) -> PathUsers:
    """Return the processes that have a path open, mapped, as working directory or as program.

    Args:
        paths: Absolute paths of files, or of directories with all their content.
    """
    found = PathUsers()
    real: dict[str, list[str]] = {}
    for path in paths:
        if not os.path.islink(path):  # a link's target has its own path
            real.setdefault(os.path.realpath(path), []).append(path)
    mine = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == mine:
            continue
        pid = int(entry)
        try:
            targets = list(_process_paths(pid))
        except PermissionError:
            _note_doubt(pid, found)
            continue
        except OSError:
            continue  # it has ended
        for target, how in targets:
            for path in _known_parents(target, real):
                for name in real[path]:
                    found.add_user(name, "process %d %s" % (pid, how % target))
    return found


def _known_parents(target: str, known: dict[str, list[str]]) -> Iterator[str]:
    while len(target) > 1:
        if target in known:
            yield target
        target = os.path.dirname(target)


def _process_paths(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the paths that a process uses, and how.

    Raises:
        PermissionError: It may not be inspected.
        OSError: It has ended.
    """
    folder = "/proc/%d/" % pid
    for name, how in (("cwd", "works in %s"), ("exe", "runs %s")):
        try:
            yield _without_deleted_mark(os.readlink(folder + name)), how
        except FileNotFoundError:
            # A kernel thread has no exe; without a cwd the process has ended.
            if name == "cwd":
                raise
    for name in os.listdir(folder + "fd"):
        try:
            target = os.readlink(folder + "fd/" + name)
        except FileNotFoundError:
            continue
        if target.startswith("/"):
            yield _without_deleted_mark(target), "has %s open"
    for match in set(_MAPPED.findall(procstat.read_whole(folder + "maps", _MAPS) or b"")):
        yield _without_deleted_mark(os.fsdecode(match)), "has %s mapped"


def _without_deleted_mark(target: str) -> str:
    if target.endswith(_GONE):
        return target[: -len(_GONE)]
    return target


def _note_doubt(pid: int, found: PathUsers) -> None:
    name = (
        (procstat.read_bytes("/proc/%d/comm" % pid, 64) or b"").decode("utf-8", "replace").strip()
    )
    owners = ownership.process_uids(pid)
    if not owners or 0 in owners or name in _HIDDEN or name.startswith("sshd"):
        return  # root's own daemons and those that hide their files run none of this user's files
    if owners[0] == os.geteuid():
        whose = ""
    else:
        whose = f" of {ownership.user_name(owners[0])}"
    doubt = "what process %d (%s)%s uses cannot be read" % (pid, name or "unnamed", whose)
    if len(found.doubts) < 3 and doubt not in found.doubts:
        found.doubts.append(doubt)


def find_users(paths: list[str], jobs: list[str], links: tuple[str, ...] = ()) -> PathUsers:
    """Return the users of paths (see `find_open_paths`), and what names one: jobs, Slurm, Pods or cron.

    Args:
        paths: Directories whose names contain a hash, so that any mention of the name counts.
        jobs: Job directories.
        links: Links to them, whose names are not unique: only their full path counts.
    """
    found = find_open_paths(paths)
    naming, doubts = remove.find_references(paths, jobs, links)
    found.doubts += doubts
    by_name: dict[str, list[str]] = {link: [link] for link in links}
    for path in paths:
        by_name.setdefault(os.path.basename(path), []).append(path)
    for namer in naming:
        for path in by_name.get(namer.file, []):
            found.add_user(path, f"{namer.who} names it")
    for job in jobs:
        try:
            for path in (*paths, *links):
                if _named_in(job, path):
                    found.add_user(path, f"the job in {job} names it")
        except OSError as error:
            found.doubts.append(
                f"the files that the job in {job} names cannot be read: {error.strerror}"
            )
    return found


def _named_in(job: str, path: str) -> bool:
    """Return whether a job's files name a path, in full or by its last part.

    Raises:
        OSError: One of them cannot be read, is not a regular file, or is too large.
    """
    folder = os.path.abspath(os.path.expanduser(job))
    name = re.compile(
        rb"(?<![\w.\-])%s(?![\w.\-])" % re.escape(os.fsencode(os.path.basename(path)))
    )
    for file in ("job.json", "queue.txt", "indexes.json"):
        try:
            with open(files.open_regular(os.path.join(folder, file)), "rb") as source:
                text = source.read(remove.LONGEST + 1)
        except FileNotFoundError:
            continue
        if name.search(text):
            return True
        # The rest is unknown, which must not count as unused.
        if len(text) > remove.LONGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), file)
    return False
